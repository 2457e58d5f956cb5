"""LilyTiny's forward pass for training: packed sequences, experts as one dense product, chunked delta rule.

Rows hold several sequences one after another. `Batch.position` counts from 0 in each of them; nothing flows across a
start: attention runs per sequence, the convolution drops taps from before the start, and the delta rule's decay is
driven to zero there. On a GPU, fast.py puts other versions in the place of some functions
here when they agree with them.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

import shape as S

RESET = -50.0  # added to the log decay at a sequence start: exp(-50) forgets everything
CHUNK = 64


@dataclass
class Batch:
    ids: torch.Tensor       # [R, T] int64
    position: torch.Tensor  # [R, T] int64, within its sequence
    weight: torch.Tensor    # [R, T] float32, of predicting this token from the ones before it
    starts: torch.Tensor    # [n + 1] int32, sequence starts in the flattened rows, padded with R * T
    longest: int            # an upper bound of the sequence lengths


# ---- attention ------------------------------------------------------------------------------------------------------

def attend_dense(q, k, v, batch: Batch):
    """q, k, v [R, T, heads, 256]. Reference: a mask over whole rows."""
    rows, n, _, _ = q.shape
    index = torch.arange(n, device=q.device)
    first = index - batch.position  # where each token's sequence starts in its row
    mask = (index[None, None, :] <= index[None, :, None]) & (index[None, None, :] >= first[:, :, None])
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2)


def attend_flash(q, k, v, batch: Batch):
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    out = torch.ops.aten._flash_attention_forward(
        *flat, batch.starts, batch.starts, batch.longest, batch.longest, 0.0, True, False, scale=S.HEAD_DIM ** -0.5)
    return out[0].view_as(q)


def rope(x, cos, sin):
    """Rotate the first 64 of 256 dimensions, j with j + 32. x [R, T, heads, 256], cos and sin [R, T, 1, 32]."""
    half = S.ROPE_DIM // 2
    a, b, rest = x.split([half, half, S.HEAD_DIM - S.ROPE_DIM], -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def rms(x, w):
    return F.rms_norm(x, (x.shape[-1],), w.to(x.dtype), S.EPS)


def rms1(x, w):
    return rms(x, w + 1)


def attention(x, w, p, batch, cos, sin, kernels):
    rows, n, _ = x.shape
    q, gate = F.linear(x, w[p + ".q_proj"]).view(rows, n, S.N_HEADS, 2 * S.HEAD_DIM).chunk(2, -1)
    k = F.linear(x, w[p + ".k_proj"]).view(rows, n, S.N_KV_HEADS, S.HEAD_DIM)
    v = F.linear(x, w[p + ".v_proj"]).view(rows, n, S.N_KV_HEADS, S.HEAD_DIM)
    q = kernels.rope(rms1(q, w[p + ".q_norm.weight"]), cos, sin)
    k = kernels.rope(rms1(k, w[p + ".k_norm.weight"]), cos, sin)
    k, v = (t.repeat_interleave(S.N_HEADS // S.N_KV_HEADS, 2) for t in (k, v))
    o = kernels.attend(q, k, v, batch) * torch.sigmoid(gate)
    return F.linear(o.flatten(2), w[p + ".o_proj"])


# ---- Gated DeltaNet -------------------------------------------------------------------------------------------------

def conv_silu(c, w, position):
    """Causal depthwise convolution of width 4 inside each sequence. c [R, T, channels], w [channels, 4]."""
    out = c * w[:, -1]
    for back in range(1, S.CONV):
        older = F.pad(c, (0, 0, back, 0))[:, :-back]
        out = out + torch.where((position >= back)[..., None], older, 0) * w[:, -1 - back]
    return F.silu(out)


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower A [..., 64, 64]: blocks of 16 by the finite product of (I + A^2^i), then merges."""

    @staticmethod
    def forward(ctx, a):
        tf32 = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False  # the products of a block cancel: full float32
        blocks = torch.stack([a[..., i:i + 16, i:i + 16] for i in range(0, CHUNK, 16)])
        eye = torch.eye(16, device=a.device)
        inverse, power = eye - blocks, blocks @ blocks
        for _ in range(2):
            inverse, power = inverse @ (eye + power), power @ power
        inverse = inverse @ (eye + power)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        inverse, width = list(inverse.unbind(0)), 16
        while width < CHUNK:
            merged = []
            for i in range(0, len(inverse), 2):
                first, second, at = inverse[i], inverse[i + 1], i * width
                below = -second @ (a[..., at + width:at + 2 * width, at:at + width] @ first)
                merged.append(torch.cat([F.pad(first, (0, width)), torch.cat([below, second], -1)], -2))
            inverse, width = merged, 2 * width
        ctx.save_for_backward(inverse[0])
        return inverse[0]

    @staticmethod
    def backward(ctx, grad):
        t, = ctx.saved_tensors
        return -(t.mT @ grad @ t.mT).tril(-1)


class LinearScan(torch.autograd.Function):
    """S[c + 1] = M[c] S[c] + N[c] from S[0] = 0; M, N [chunks, batch, 128, 128]. Gives the states before each chunk."""

    @staticmethod
    def forward(ctx, m, n):
        states = torch.zeros_like(n)
        for c in range(len(n) - 1):
            torch.baddbmm(n[c], m[c], states[c], out=states[c + 1])
        ctx.save_for_backward(m, states)
        return states

    @staticmethod
    def backward(ctx, grad):
        m, states = ctx.saved_tensors
        back = torch.zeros_like(states)  # of the state after each chunk
        for c in range(len(m) - 2, -1, -1):
            if c == len(m) - 2:
                back[c] = grad[c + 1]
            else:
                torch.baddbmm(grad[c + 1], m[c + 1].mT, back[c + 1], out=back[c])
        return back @ states.mT, back


def delta_rule_chunks(q, k, v, g, beta):
    """What each chunk needs and can be computed for itself, as [chunks, R * value heads, ...] float32."""
    share = v.shape[2] // k.shape[2]
    rows, n, heads, dim = v.shape

    def chunks(t):  # [R, T, heads, ...] -> [chunks, R * heads, 64, ...]
        return t.float().unflatten(1, (n // CHUNK, CHUNK)).movedim(1, 0).movedim(3, 2).flatten(1, 2)

    def per_value_head(t):
        return t.unflatten(1, (rows, -1)).repeat_interleave(share, 2).flatten(1, 2)

    q, k = (chunks(t.float() * (t.float().square().sum(-1, keepdim=True) + S.EPS).rsqrt()) for t in (q, k))
    q = q * dim ** -0.5
    kk, qk = per_value_head(k @ k.mT), per_value_head(q @ k.mT)
    q, k, v, g, beta = per_value_head(q), per_value_head(k), chunks(v), chunks(g), chunks(beta)[..., None]
    total = g.cumsum(-1)
    grown = total.exp()[..., None]
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    a = (kk * decay * beta).tril(-1)
    right = torch.cat([v * beta, k * beta * grown], -1)
    k_out = k * (total[..., -1:] - total).exp()[..., None]
    return a, right, qk * decay, q * grown, k_out, total[..., -1].exp()[..., None, None]


def delta_rule_chunked(q, k, v, g, beta, chunks=delta_rule_chunks):
    """q, k [R, T, key heads, 128], v [R, T, value heads, 128], g and beta [R, T, value heads], g in log space.

    T must be a multiple of 64. The state after a chunk is a linear function of the one before, so that the sequential
    part is one product a chunk; all else is done for all chunks at once.
    """
    rows, n, heads, dim = v.shape
    a, right, inside, q_in, k_out, keep = chunks(q, k, v, g, beta)
    u, w = (UnitLowerInverse.apply(a) @ right).split(dim, -1)
    eye = torch.eye(dim, device=v.device)
    states = LinearScan.apply(keep * eye - k_out.mT @ w, k_out.mT @ u)
    out = q_in @ states + inside @ (u - w @ states)
    return out.unflatten(1, (rows, heads)).movedim(0, 2).flatten(2, 3).transpose(1, 2).to(v.dtype)


def gdn(x, w, p, batch, kernels):
    rows, n, _ = x.shape
    c = F.linear(x, w[p + ".in_proj_qkv"])
    z = F.linear(x, w[p + ".in_proj_z"]).view(rows, n, S.N_VALUE_HEADS, S.GDN_DIM)
    b = F.linear(x, w[p + ".in_proj_b"])
    a = F.linear(x, w[p + ".in_proj_a"])
    c = kernels.conv_silu(c, w[p + ".conv1d.weight"].to(x.dtype), batch.position)
    q, k, v = c.split([S.KEY_DIM, S.KEY_DIM, S.VALUE_DIM], -1)
    q, k, v = (t.unflatten(-1, (-1, S.GDN_DIM)) for t in (q, k, v))
    g = -w[p + ".A_log"].exp() * F.softplus(a.float() + w[p + ".dt_bias"])
    g = g + RESET * (batch.position == 0)[..., None]
    o = kernels.delta_rule(q, k, v, g, torch.sigmoid(b.float()))
    o = rms(o, w[p + ".norm.weight"]) * F.silu(z)
    return F.linear(o.flatten(2), w[p + ".out_proj"])


# ---- experts --------------------------------------------------------------------------------------------------------

def gated(gate, up, share):
    """silu(gate) * up, each expert's 64 columns times its share. share [..., experts + 1]."""
    y = (F.silu(gate) * up).unflatten(-1, (-1, S.EXPERT_DIM))
    return (y * share[..., None].to(y.dtype)).flatten(-2)


def moe(x, w, p, kernels):
    """(y, balance loss): all experts as one dense product, unchosen ones weighted 0, the shared expert as the 33rd."""
    logits = F.linear(x, w[p + ".gate"]).float()
    top, chosen = logits.topk(S.TOP_K, -1)
    share = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(-1))
    shared = torch.sigmoid(F.linear(x, w[p + ".shared_expert_gate"]).float())
    gate, up = (F.linear(x, torch.cat([w[f"{p}.switch_mlp.{m}"].flatten(0, 1), w[f"{p}.shared_expert.{m}"]]))
                for m in ("gate_proj", "up_proj"))
    down = torch.cat([w[p + ".switch_mlp.down_proj"].transpose(0, 1).flatten(1), w[p + ".shared_expert.down_proj"]], 1)
    y = F.linear(kernels.gated(gate, up, torch.cat([share, shared], -1)), down)
    load = (share > 0).float().flatten(0, -2).mean(0)
    balance = S.N_EXPERTS / S.TOP_K * (load * logits.softmax(-1).flatten(0, -2).mean(0)).sum()
    return y, balance


# ---- the whole ------------------------------------------------------------------------------------------------------

class Kernels:
    """The readable versions; fast.py has others."""
    attend = staticmethod(attend_dense)
    delta_rule = staticmethod(delta_rule_chunked)
    rope = staticmethod(rope)
    conv_silu = staticmethod(conv_silu)
    gated = staticmethod(gated)


def rope_table(position, dtype):
    pair = torch.arange(S.ROPE_DIM // 2, device=position.device, dtype=torch.float64)
    theta = S.ROPE_THETA ** (-2 * pair / S.ROPE_DIM)
    angle = position[..., None, None] * theta
    return angle.cos().to(dtype), angle.sin().to(dtype)


def decoder_layer(x, w, p, full_attention, batch, cos, sin, kernels):
    h = rms1(x, w[p + ".input_layernorm.weight"])
    if full_attention:
        x = x + attention(h, w, p + ".self_attn", batch, cos, sin, kernels)
    else:
        x = x + gdn(h, w, p + ".linear_attn", batch, kernels)
    y, balance = moe(rms1(x, w[p + ".post_attention_layernorm.weight"]), w, p + ".mlp", kernels)
    return x + y, balance


def trunk(w, batch: Batch, kernels=Kernels):
    """(hidden states after the final norm [R, T, H], mean balance loss)."""
    x = F.embedding(batch.ids, w["model.embed_tokens"])
    cos, sin = rope_table(batch.position, x.dtype)
    total = 0
    for layer in range(S.N_LAYERS):
        x, balance = decoder_layer(x, w, f"model.layers.{layer}", S.is_full_attention(layer), batch, cos, sin, kernels)
        total = total + balance
    return rms1(x, w["model.norm.weight"]), total / S.N_LAYERS


def head(w, h):
    return F.linear(h, w["lm_head"])


def draft(w, m, batch: Batch, hidden, kernels=Kernels):
    """The MTP head's logits for the token after next: row i sees hidden i and token i + 1. w trunk, m head weights."""
    e = F.embedding(batch.ids.roll(-1, 1), w["model.embed_tokens"])
    u = torch.cat([rms1(e, m["pre_fc_norm_embedding.weight"]), rms1(hidden, m["pre_fc_norm_hidden.weight"])], -1)
    cos, sin = rope_table(batch.position, u.dtype)
    y, _ = decoder_layer(F.linear(u, m["fc"]), m, "layers.0", True, batch, cos, sin, kernels)
    return head(w, rms1(y, m["norm.weight"]))


def weighted_loss(logits, batch: Batch, ahead: int):
    """Cross-entropy of the token `ahead` places on, weighted; places whose target lies in another sequence weigh 0."""
    target = batch.ids.roll(-ahead, 1)
    weight = batch.weight.roll(-ahead, 1) * (batch.position.roll(-ahead, 1) >= ahead)
    weight[:, -ahead:] = 0
    loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum().clamp_min(1e-6)
