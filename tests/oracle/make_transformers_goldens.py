"""Makes tests/oracle/data/transformers_lily_tiny.json: logits of transformers' own model on our tiny checkpoint.

The 4-bit weights are dequantised to float32 and renamed to the vendor's layout (norms minus one, experts fused, the
convolution turned), then Qwen3_5MoeForCausalLM runs on the CPU in float32. Only the KV cache is rounded to bfloat16, as
our numeric contract says. Run it again whenever models/lily-tiny changes:

    python tests/oracle/make_transformers_goldens.py
"""
import hashlib
import json
import pathlib
import platform

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers import DynamicCache, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

import mlx_oracle

CHECKPOINT = mlx_oracle.ROOT / "models/lily-tiny"
GOLDENS = mlx_oracle.ROOT / "tests/oracle/data/transformers_lily_tiny.json"
TOP = 8  # logits kept for each position that is kept
EVERY = 16  # positions between two that are kept
ZERO_CENTRED = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight",
                "k_norm.weight")


def shards() -> list[pathlib.Path]:
    return sorted(CHECKPOINT.glob("*.safetensors"))


def checkpoint_hash() -> str:
    digest = hashlib.sha256()
    for shard in shards():
        digest.update(shard.read_bytes())
    return digest.hexdigest()


def dequantise(weight, scales, biases):
    """[..., out, in] float32 of a module's three tensors."""
    groups = scales.shape[-1]
    bits = 32 * weight.shape[-1] // (64 * groups)
    words = weight.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    codes = torch.stack([(words >> shift) & ((1 << bits) - 1) for shift in range(0, 32, bits)], -1)
    codes = codes.reshape(*scales.shape, 64).float()
    values = scales.float()[..., None] * codes + biases.float()[..., None]
    return values.flatten(-2)


def vendor_weights() -> dict:
    stored = {name: tensor for shard in shards() for name, tensor in load_file(shard).items()}
    weights = {}
    for name, tensor in stored.items():
        if name.endswith((".scales", ".biases")):
            continue
        module = name.removesuffix(".weight")
        if module + ".scales" in stored:
            tensor = dequantise(tensor, stored[module + ".scales"], stored[module + ".biases"])
        name = name.removeprefix("language_model.")
        tensor = tensor.float()
        if name.endswith(ZERO_CENTRED):
            tensor = tensor - 1
        if name.endswith("conv1d.weight"):
            tensor = tensor.movedim(2, 1)
        weights[name] = tensor
    for name in [n for n in weights if n.endswith("switch_mlp.gate_proj.weight")]:
        old, new = name.removesuffix("gate_proj.weight"), name.replace("switch_mlp.gate_proj.weight", "experts.")
        gate, up, down = (weights.pop(f"{old}{part}_proj.weight") for part in ("gate", "up", "down"))
        weights[new + "gate_up_proj"] = torch.cat([gate, up], 1)
        weights[new + "down_proj"] = down
    return weights


def model() -> Qwen3_5MoeForCausalLM:
    config = json.loads((CHECKPOINT / "config.json").read_text())["text_config"]
    m = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**config)).float().eval()
    m.load_state_dict(vendor_weights(), strict=True)
    return m


def logits(m, ids: list[int]):
    cache = DynamicCache(config=m.config)
    update = cache.update

    def rounded(keys, values, *args, **kwargs):
        return update(keys.bfloat16().float(), values.bfloat16().float(), *args, **kwargs)

    cache.update = rounded
    with torch.no_grad():
        return m(torch.tensor([ids]), cache=cache, use_cache=True).logits[0].numpy()


def golden(m, text: mlx_oracle.Text) -> dict:
    values = logits(m, text.ids)
    kept = list(range(0, len(text.ids), EVERY)) + [len(text.ids) - 1]
    rows = []
    for t in kept:
        best = np.argsort(-values[t], kind="stable")[:TOP]
        rows.append({"position": t, "ids": best.tolist(), "logits": [round(float(v), 6) for v in values[t, best]]})
    return {"tokens": text.ids, "first_scored": text.first, "rms": float(values.std()),
            "perplexity": mlx_oracle.perplexity(*mlx_oracle.scored(text, values)),
            "top": values.argmax(-1).tolist(), "rows": rows}


def main() -> None:
    m = model()
    texts = [golden(m, text) for text in mlx_oracle.exam_texts(CHECKPOINT)]
    manifest = {
        "command": "python tests/oracle/make_transformers_goldens.py",
        "tools": {"python": platform.python_version(), "torch": torch.__version__,
                  "transformers": transformers.__version__},
        "checkpoint": "models/lily-tiny",
        "checkpoint_sha256": checkpoint_hash(),
        "activations": "float32, KV cache bfloat16",
    }
    lines = ",\n ".join(json.dumps(text) for text in texts)
    GOLDENS.write_text(f'{{"manifest": {json.dumps(manifest)},\n "texts": [\n {lines}]}}\n')
    for text in texts:
        print(f"{len(text['tokens'])} tokens, perplexity of the answer {text['perplexity']:.4f}")


if __name__ == "__main__":
    main()
