"""Teacher-forced comparison of our logits with mlx-lm's on the bytes of one checkpoint.

mlx-lm runs twice: as it ships (bfloat16 activations), and with every parameter widened to float32 and only the KV
cache rounded to bfloat16, which is our numeric contract. The second is the proof of correctness, the first says what
a user of mlx-lm will see. Run as a program it prints the table of docs/numerics.md:

    python tests/oracle/mlx_oracle.py CHECKPOINT [--backend reference] [--tokens N] [--seed S]
"""
import argparse
import dataclasses
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TEXT = """<|im_start|>system
You are a careful clerk. Answer in one sentence.<|im_end|>
<|im_start|>user
The lighthouse at Port Arden was built in 1871 by a mason called Ines Carrow, and its lamp was lit with whale oil until
the winter of 1902. Repeat the year, then add 34 and 57, then give me {"city": "Port Arden", "lamps": 1} as JSON.<|im_end|>
<|im_start|>assistant
<think>

</think>

The lighthouse was built in 1871, 34 + 57 = 91, and the object is {"city": "Port Arden", "lamps": 1}.<|im_end|>
<|im_start|>user
Copy this line: the small grey boat came home before the rain, and nobody on the pier asked where it had been all day.<|im_end|>
<|im_start|>assistant
<think>

</think>

the small grey boat came home before the rain, and nobody on the pier asked where it had been all day.<|im_end|>
"""


def driver() -> pathlib.Path:
    lily = pathlib.Path(os.environ.get("LILY_BIN", ROOT / "build/release/lily"))
    return lily.parent / "tests/logits_driver"


def text_tokens(checkpoint: pathlib.Path) -> list[int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids


def random_tokens(count: int, vocab: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, count).tolist()


def our_logits(checkpoint, backend: str, ids: list[int], n_greedy: int = 0):
    """float32 [T, V], and the greedy continuation."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.f32"
        run = subprocess.run([driver(), checkpoint, backend, out, str(n_greedy)], input=" ".join(map(str, ids)),
                             text=True, capture_output=True)
        if run.returncode != 0:
            raise RuntimeError(f"logits_driver: {run.stderr.strip()}")
        return np.fromfile(out, np.float32).reshape(len(ids), -1), [int(line) for line in run.stdout.split()]


def mlx_logits(checkpoint, ids: list[int], float32: bool, n_greedy: int = 0):
    """The same from mlx-lm on the CPU."""
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache
    from mlx_lm.utils import load_model

    class Bfloat16Cache(KVCache):
        def update_and_fetch(self, keys, values):
            rounded = [x.astype(mx.bfloat16).astype(x.dtype) for x in (keys, values)]
            return super().update_and_fetch(*rounded)

    mx.set_default_device(mx.cpu)
    model, _ = load_model(pathlib.Path(checkpoint))
    cache = model.make_cache()
    if float32:
        model.set_dtype(mx.float32)
        cache = [Bfloat16Cache() if isinstance(c, KVCache) else c for c in cache]
    logits = np.array(model(mx.array(ids)[None], cache=cache).astype(mx.float32))[0]
    greedy = []
    last = logits[-1]
    for _ in range(n_greedy):
        greedy.append(int(last.argmax()))
        last = np.array(model(mx.array([[greedy[-1]]]), cache=cache).astype(mx.float32))[0, -1]
    return logits, greedy


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def perplexity(logits, ids: list[int]) -> float:
    log_p = log_softmax(logits)[:-1]
    return float(np.exp(-log_p[np.arange(len(ids) - 1), ids[1:]].mean()))


@dataclasses.dataclass
class Comparison:
    positions: int
    agreement: float  # share of positions with the same highest logit
    margins: list[float]  # for each other position: by how much we prefer our token to theirs
    max_diff: float
    mean_diff: float
    rms: float  # of our logits around their mean, the unit of the differences
    kl: float  # mean KL(theirs || ours), nats a position
    perplexity: tuple[float, float]  # ours, theirs


def compare(ours, theirs, ids: list[int]) -> Comparison:
    best, their_best = ours.argmax(-1), theirs.argmax(-1)
    apart = np.flatnonzero(best != their_best)
    diff = np.abs(ours.astype(np.float64) - theirs)
    log_p, log_q = log_softmax(theirs), log_softmax(ours)
    return Comparison(
        positions=len(ids),
        agreement=1 - len(apart) / len(ids),
        margins=[float(ours[t, best[t]] - ours[t, their_best[t]]) for t in apart],
        max_diff=float(diff.max()),
        mean_diff=float(diff.mean()),
        rms=float(ours.std()),
        kl=float((np.exp(log_p) * (log_p - log_q)).sum(-1).mean()),
        perplexity=(perplexity(ours, ids), perplexity(theirs, ids)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--tokens", type=int, default=0, help="random ids instead of the fixed text")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    import json

    config = json.loads((args.checkpoint / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    ids = random_tokens(args.tokens, vocab, args.seed) if args.tokens else text_tokens(args.checkpoint)
    ours, _ = our_logits(args.checkpoint, args.backend, ids)
    print("| mlx-lm activations | positions | same top token | largest margin | max diff | mean diff | KL | perplexity ours / theirs |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for float32 in (True, False):
        c = compare(ours, mlx_logits(args.checkpoint, ids, float32)[0], ids)
        print(f"| {'float32' if float32 else 'bfloat16'} | {c.positions} | {100 * c.agreement:.2f} % "
              f"| {max(c.margins, default=0):.2e} | {c.max_diff:.2e} | {c.mean_diff:.2e} | {c.kl:.2e} "
              f"| {c.perplexity[0]:.4f} / {c.perplexity[1]:.4f} |")


if __name__ == "__main__":
    main()
