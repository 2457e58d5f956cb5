"""Versions for the GPU of functions in model.py, each used only if it agrees with the readable one.

Attention: flash attention with sequence starts. What is point-wise or small (the convolution, the experts' activation,
the parts of the delta rule inside a chunk): torch.compile.
"""

import time

import torch

import model
import shape as S


class Plain(model.Kernels):
    """For scoring: not compiled, since that would be done again for every shape."""


class Fast(Plain):
    """For training, where shapes are few."""


def close(ours, reference, inputs, what: str, log) -> bool:
    """Compare values and gradients of two functions of the same inputs; both relative to the reference's size."""
    results = []
    for f in (ours, reference):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        out = f(*leaves)
        torch.manual_seed(5)
        (out.float() * torch.randn(out.shape, device=out.device)).sum().backward()
        results.append([out] + [x.grad for x in leaves])
    errors = [((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(*results)]
    log(f"{what}: relative differences " + " ".join(f"{e:.1e}" for e in errors))
    return all(e < 0.05 for e in errors)


def test_batch(device) -> model.Batch:
    lengths = [300, 5, 1, 142, 64, 512]
    position = torch.cat([torch.arange(n) for n in lengths]).view(2, 512).to(device)
    starts = torch.tensor([0] + lengths).cumsum(0).to(device, torch.int32)
    starts = torch.cat([starts, starts[-1:].repeat(5)])
    return model.Batch(torch.zeros_like(position), position, torch.ones(2, 512, device=device), starts, 512)


def tried(f, what: str, log):
    """f(), or None with a line in the log."""
    start = time.time()
    try:
        result = f()
        log(f"{what}: {'taken' if result else 'not taken'}, {time.time() - start:.1f} s")
        return result
    except Exception as e:  # any failure means the readable version stays
        log(f"{what}: not taken, {type(e).__name__}: {str(e)[:300]}")
        return None


def kernels(device, log, compile: bool = True) -> tuple:
    """(for training, for scoring); compiling takes half a minute, too long for a short run."""
    if device.type != "cuda":
        return model.Kernels, model.Kernels
    torch.manual_seed(0)
    batch = test_batch(device)

    def random(*shape):
        return torch.randn(2, 512, *shape, device=device, dtype=torch.bfloat16)

    def flash():
        inputs = [random(S.N_HEADS, S.HEAD_DIM) for _ in range(3)]
        return close(lambda *x: model.attend_flash(*x, batch), lambda *x: model.attend_dense(*x, batch), inputs,
                     "flash attention", log)

    def pointwise():
        compiled = {name: torch.compile(getattr(model, name), dynamic=False) for name in ("conv_silu", "gated")}
        inputs = [random(S.CONV_DIM), torch.randn(S.CONV_DIM, S.CONV, device=device, dtype=torch.bfloat16)]
        fine = close(lambda x, w: compiled["conv_silu"](x, w, batch.position),
                     lambda x, w: model.conv_silu(x, w, batch.position), inputs, "compiled convolution", log)
        return fine and compiled

    def delta_rule():
        chunks = torch.compile(model.delta_rule_chunks, dynamic=False)

        def compiled(q, k, v, g, beta):
            return model.delta_rule_chunked(q, k, v, g, beta, chunks)

        g = -torch.rand(2, 512, S.N_VALUE_HEADS, device=device) * 0.3 + model.RESET * (batch.position == 0)[..., None]
        inputs = [random(S.N_KEY_HEADS, S.GDN_DIM), random(S.N_KEY_HEADS, S.GDN_DIM),
                  random(S.N_VALUE_HEADS, S.GDN_DIM), g, torch.rand(2, 512, S.N_VALUE_HEADS, device=device)]
        return close(compiled, model.delta_rule_chunked, inputs, "compiled delta rule", log) and compiled

    torch.backends.cuda.matmul.allow_tf32 = True  # only the delta rule multiplies float32 matrices
    if tried(flash, "flash attention", log):
        Plain.attend = staticmethod(model.attend_flash)
    if not compile:
        return Plain, Plain
    if functions := tried(pointwise, "compiled point-wise functions", log):
        for name, f in functions.items():
            setattr(Fast, name, staticmethod(f))
    if rule := tried(delta_rule, "compiled delta rule", log):
        Fast.delta_rule = staticmethod(rule)
    return Fast, Plain
