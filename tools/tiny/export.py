"""Write a trained (or an untrained) LilyTiny as an MLX checkpoint.

Layout of models/lily-tiny: model-0000N-of-00002.safetensors with index, config.json, and mtp/ with the draft head as
a checkpoint of its own. Header lengths are not padded and data follow in table order, as MLX writes them.

Run: python export.py WEIGHTS [model directory]     WEIGHTS is a file of train.py, or "random"; parts that the file
does not hold stay as they are
"""

import json
import struct
import sys
from pathlib import Path

import torch

import shape as S
from chat import MODEL_DIR
from params import Params, load_weights
from quantise import pack
from tokenizer import ID

N_SHARDS = 2
PREFIX = "language_model."
DTYPES = {torch.uint32: "U32", torch.bfloat16: "BF16"}


def tensors(params: Params, prefix: str):
    """(name, tensor) in checkpoint form."""
    for p, w in params.items():
        if p.kind == "vec":
            w = w + 1 if p.centred else w
            if p.init == "conv":
                w = w.unsqueeze(-1)  # [channels, taps, 1]
            yield prefix + p.name, w.bfloat16()
        else:
            words, scales, biases = pack(w, int(p.kind[1]))
            yield f"{prefix}{p.name}.weight", words
            yield f"{prefix}{p.name}.scales", scales
            yield f"{prefix}{p.name}.biases", biases


def raw(t: torch.Tensor) -> bytes:
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def write_safetensors(path: Path, named: list) -> None:
    header, at = {"__metadata__": {"format": "mlx"}}, 0
    for name, t in named:
        n_bytes = t.numel() * t.element_size()
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, t in named:
            f.write(raw(t))


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=4))


def write_sharded(out: Path, named: list) -> None:
    """Greedy shards of equal size; a module's three tensors may fall into two of them, as in the real checkpoint."""
    total = sum(t.numel() * t.element_size() for _, t in named)
    shards, used = [[]], 0
    for name, t in named:
        n_bytes = t.numel() * t.element_size()
        if used + n_bytes > total * len(shards) / N_SHARDS and len(shards) < N_SHARDS:
            shards.append([])
        shards[-1].append((name, t))
        used += n_bytes
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write_safetensors(out / file, shard)
        weight_map.update({name: file for name, _ in shard})
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def text_config() -> dict:
    return {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
        "bos_token_id": ID["<|endoftext|>"], "dtype": "bfloat16", "eos_token_id": ID["<|endoftext|>"],
        "full_attention_interval": S.FULL_EVERY, "head_dim": S.HEAD_DIM, "hidden_act": "silu",
        "hidden_size": S.HIDDEN, "initializer_range": 0.02,
        "layer_types": ["full_attention" if S.is_full_attention(i) else "linear_attention"
                        for i in range(S.N_LAYERS)],
        "linear_conv_kernel_dim": S.CONV, "linear_key_head_dim": S.GDN_DIM, "linear_num_key_heads": S.N_KEY_HEADS,
        "linear_num_value_heads": S.N_VALUE_HEADS, "linear_value_head_dim": S.GDN_DIM, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": S.MAX_POSITIONS, "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": S.EXPERT_DIM, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": S.N_HEADS, "num_experts": S.N_EXPERTS, "num_experts_per_tok": S.TOP_K,
        "num_hidden_layers": S.N_LAYERS, "num_key_value_heads": S.N_KV_HEADS, "output_router_logits": False,
        "pad_token_id": None, "partial_rotary_factor": S.ROPE_DIM / S.HEAD_DIM, "rms_norm_eps": S.EPS,
        "rope_parameters": {
            "mrope_interleaved": True, "mrope_section": [11, 11, 10],
            "partial_rotary_factor": S.ROPE_DIM / S.HEAD_DIM, "rope_theta": int(S.ROPE_THETA),
            "rope_type": "default"},
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": S.SHARED_DIM, "tie_word_embeddings": False,
        "use_cache": True, "vocab_size": S.VOCAB,
    }


def config() -> dict:
    eight_bit = {PREFIX + p.name: {"group_size": S.GROUP, "bits": 8} for p in S.trunk_params() if p.kind == "q8"}
    quantization = {"group_size": S.GROUP, "bits": 4, "mode": "affine", **eight_bit}
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "eos_token_id": [ID["<|im_end|>"], ID["<|endoftext|>"]],
        "image_token_id": ID["<|image_pad|>"], "model_type": "qwen3_5_moe", "quantization": quantization,
        "quantization_config": quantization, "text_config": text_config(), "tie_word_embeddings": False,
        "transformers_version": "4.57.1", "video_token_id": ID["<|video_pad|>"],
        "vision_end_token_id": ID["<|vision_end|>"], "vision_start_token_id": ID["<|vision_start|>"],
    }


def mtp_config() -> dict:
    quantization = {"group_size": S.GROUP, "bits": 4, "mode": "affine"}
    return {"block_size": 3, "model_type": "qwen3_5_mtp", "quantization": quantization,
            "quantization_config": quantization, "text_config": text_config(), "tie_word_embeddings": False}


def write_mtp(out: Path, params: Params) -> None:
    out.mkdir(exist_ok=True)
    named = list(tensors(params, ""))
    write_safetensors(out / "model.safetensors", named)
    write_json(out / "config.json", mtp_config())
    write_json(out / "model.safetensors.index.json", {
        "metadata": {"total_size": sum(t.numel() * t.element_size() for _, t in named)},
        "weight_map": {name: "model.safetensors" for name, _ in sorted(named)}})


def main() -> None:
    trunk, mtp = Params(S.trunk_params(), seed=1), Params(S.mtp_params(), seed=2)
    parts = {"trunk": trunk, "mtp": mtp}
    loaded = list(parts) if sys.argv[1] == "random" else load_weights(Path(sys.argv[1]), **parts)
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else MODEL_DIR
    if "trunk" in loaded:
        write_sharded(out, list(tensors(trunk, PREFIX)))
        write_json(out / "config.json", config())
    if "mtp" in loaded:
        write_mtp(out / "mtp", mtp)
    print("written:", ", ".join(loaded))


if __name__ == "__main__":
    main()
