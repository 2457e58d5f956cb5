"""Compare model.py with transformers' Qwen3_5Moe on the CPU in float32: same weights, same ids, packed or alone.

Run: python check_transformers.py        prints the largest difference of the logits, fails above 2e-3
"""

import torch
from transformers import Qwen3_5MoeForCausalLM
from transformers.models.qwen3_5_moe import Qwen3_5MoeTextConfig

import model
import shape as S
from export import text_config
from params import Params


def transformers_model(params: Params):
    ours = text_config()
    config = Qwen3_5MoeTextConfig(**{k: v for k, v in ours.items() if k not in ("dtype", "model_type")})
    theirs = Qwen3_5MoeForCausalLM(config).float().eval()
    weights = {}
    for p, w in params.items():
        name = p.name if p.kind == "vec" else p.name + ".weight"
        if p.init == "conv":
            w = w.unsqueeze(1)
        weights[name] = w
    state = {}
    for layer in range(S.N_LAYERS):
        m = f"model.layers.{layer}.mlp."
        gate, up, down = (weights.pop(f"{m}switch_mlp.{n}_proj.weight") for n in ("gate", "up", "down"))
        state[m + "experts.gate_up_proj"] = torch.cat([gate, up], 1)
        state[m + "experts.down_proj"] = down
    theirs.load_state_dict({**weights, **state})
    return theirs


def main() -> None:
    torch.manual_seed(0)
    params = Params(S.trunk_params(), seed=3)
    with torch.no_grad():
        params.flat["vec"] += 0.1 * torch.randn_like(params.flat["vec"])
    theirs = transformers_model(params)
    lengths = [70, 5, 1, 52]
    ids = torch.randint(0, 2000, (1, 128))
    position = torch.cat([torch.arange(n) for n in lengths])[None]
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    with torch.no_grad():
        w = params.views(quantised=False, dtype=torch.float32)
        batch = model.Batch(ids, position, torch.ones(1, 128), starts, 128)
        ours = model.head(w, model.trunk(w, batch)[0])[0]
        worst, at = 0.0, 0
        for n in lengths:
            reference = theirs(ids[:, at:at + n]).logits[0]
            worst = max(worst, (ours[at:at + n] - reference).abs().max().item())
            at += n
    print(f"largest logit difference {worst:.2e}, logits of size {ours.abs().mean():.2f}")
    if worst > 2e-3:
        raise SystemExit("the forward pass differs from transformers'")


if __name__ == "__main__":
    main()
