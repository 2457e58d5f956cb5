"""LilyTiny's shape and the table of its parameters.

One `Param` per module of the checkpoint, in checkpoint order. Kinds: "q4" and "q8" are quantised along the last axis
in groups of 64, "vec" stays bfloat16. Norms called `centred` here are trained as w and applied (and stored) as 1 + w.
"""

from dataclasses import dataclass
from math import prod

HIDDEN = 256
N_LAYERS = 8
FULL_EVERY = 4  # layer i is full attention iff (i + 1) % FULL_EVERY == 0
N_HEADS, N_KV_HEADS, HEAD_DIM, ROPE_DIM, ROPE_THETA = 16, 2, 256, 64, 1e7
N_KEY_HEADS, N_VALUE_HEADS, GDN_DIM, CONV = 2, 4, 128, 4
N_EXPERTS, TOP_K, EXPERT_DIM, SHARED_DIM = 32, 8, 64, 64
VOCAB = 2048
MAX_POSITIONS = 32768
EPS = 1e-6
GROUP = 64

KEY_DIM = N_KEY_HEADS * GDN_DIM
VALUE_DIM = N_VALUE_HEADS * GDN_DIM
CONV_DIM = 2 * KEY_DIM + VALUE_DIM


@dataclass(frozen=True)
class Param:
    name: str  # module path; quantised modules lack the ".weight"
    shape: tuple
    kind: str
    init: object = "normal"  # "normal", "zero", "one", "conv", "a_log", "dt_bias"; residual outputs: "out"
    centred: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)


def is_full_attention(layer: int) -> bool:
    return (layer + 1) % FULL_EVERY == 0


def norm(name: str, width: int = HIDDEN) -> Param:
    return Param(f"{name}.weight", (width,), "vec", "zero", centred=True)


def attention_params(prefix: str) -> list:
    return [Param(f"{prefix}.q_proj", (2 * N_HEADS * HEAD_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.k_proj", (N_KV_HEADS * HEAD_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.v_proj", (N_KV_HEADS * HEAD_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.o_proj", (HIDDEN, N_HEADS * HEAD_DIM), "q4", "out"),
            norm(f"{prefix}.q_norm", HEAD_DIM), norm(f"{prefix}.k_norm", HEAD_DIM)]


def gdn_params(prefix: str) -> list:
    return [Param(f"{prefix}.in_proj_qkv", (CONV_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.in_proj_z", (VALUE_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.in_proj_b", (N_VALUE_HEADS, HIDDEN), "q4"),
            Param(f"{prefix}.in_proj_a", (N_VALUE_HEADS, HIDDEN), "q4"),
            Param(f"{prefix}.conv1d.weight", (CONV_DIM, CONV), "vec", "conv"),
            Param(f"{prefix}.A_log", (N_VALUE_HEADS,), "vec", "a_log"),
            Param(f"{prefix}.dt_bias", (N_VALUE_HEADS,), "vec", "dt_bias"),
            Param(f"{prefix}.norm.weight", (GDN_DIM,), "vec", "one"),
            Param(f"{prefix}.out_proj", (HIDDEN, VALUE_DIM), "q4", "out")]


def moe_params(prefix: str, router: str) -> list:
    return [Param(f"{prefix}.gate", (N_EXPERTS, HIDDEN), router),
            Param(f"{prefix}.shared_expert_gate", (1, HIDDEN), router),
            Param(f"{prefix}.shared_expert.gate_proj", (SHARED_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.shared_expert.up_proj", (SHARED_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.shared_expert.down_proj", (HIDDEN, SHARED_DIM), "q4", "out"),
            Param(f"{prefix}.switch_mlp.gate_proj", (N_EXPERTS, EXPERT_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.switch_mlp.up_proj", (N_EXPERTS, EXPERT_DIM, HIDDEN), "q4"),
            Param(f"{prefix}.switch_mlp.down_proj", (N_EXPERTS, HIDDEN, EXPERT_DIM), "q4", "out")]


def layer_params(prefix: str, full_attention: bool, router: str = "q8") -> list:
    mixer = attention_params(f"{prefix}.self_attn") if full_attention else gdn_params(f"{prefix}.linear_attn")
    return mixer + [norm(f"{prefix}.input_layernorm"), norm(f"{prefix}.post_attention_layernorm")] \
        + moe_params(f"{prefix}.mlp", router)


def trunk_params() -> list:
    """The language model; checkpoint names carry the prefix "language_model."."""
    params = [Param("model.embed_tokens", (VOCAB, HIDDEN), "q4")]
    for layer in range(N_LAYERS):
        params += layer_params(f"model.layers.{layer}", is_full_attention(layer))
    return params + [norm("model.norm"), Param("lm_head", (VOCAB, HIDDEN), "q4")]


def mtp_params() -> list:
    """The draft head: one full-attention layer, all of it 4-bit, its router too."""
    return [Param("fc", (HIDDEN, 2 * HIDDEN), "q4"), norm("pre_fc_norm_embedding"), norm("pre_fc_norm_hidden"),
            norm("norm")] + layer_params("layers.0", True, router="q4")
