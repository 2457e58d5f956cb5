"""Teacher-forced comparison of our logits with mlx-lm's on the bytes of one checkpoint.

mlx-lm runs twice: as it ships (bfloat16 activations), and with every parameter widened to float32 and only the KV
cache rounded to bfloat16, which is our numeric contract. The second is the proof of correctness, the first says what
a user of mlx-lm will see. Run as a program it prints the table of docs/numerics.md:

    python tests/oracle/mlx_oracle.py CHECKPOINT [--backend reference] [--tokens N] [--seed S]
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

EXAM = ROOT / "tests/exam/exam.jsonl"
EXAM_LINES = [("copy", 0), ("copy", 1), ("sums", 0), ("tool_answer", 0)]  # their expected answers are texts


@dataclasses.dataclass
class Text:
    """Token ids; those from `first` on are scored (the answer, where there is a prompt before it)."""
    ids: list[int]
    first: int = 1


def driver() -> pathlib.Path:
    lily = pathlib.Path(os.environ.get("LILY_BIN", ROOT / "build/release/lily"))
    return lily.parent / "tests/logits_driver"


def exam_texts(checkpoint: pathlib.Path) -> list[Text]:
    """Prompts of the exam followed by the expected answers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    lines = [json.loads(line) for line in EXAM.read_text().splitlines()]
    texts = []
    for part, index in EXAM_LINES:
        line = [entry for entry in lines if entry["part"] == part][index]
        request = line["request"]
        for message in request["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        prompt = tokenizer.apply_chat_template(request["messages"], tools=request.get("tools"), tokenize=False,
                                               add_generation_prompt=True, enable_thinking=False)
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        answer = tokenizer.encode(line["expect"] + "<|im_end|>", add_special_tokens=False)
        texts.append(Text(ids + answer, len(ids)))
    return texts


def random_text(count: int, vocab: int, seed: int) -> Text:
    return Text(np.random.default_rng(seed).integers(0, vocab, count).tolist())


def our_logits(checkpoint, backend: str, ids: list[int], n_greedy: int = 0):
    """float32 [T, V], and the greedy continuation."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.f32"
        run = subprocess.run([driver(), checkpoint, backend, out, str(n_greedy)], input=" ".join(map(str, ids)),
                             text=True, capture_output=True)
        if run.returncode != 0:
            raise RuntimeError(f"logits_driver: {run.stderr.strip()}")
        return np.fromfile(out, np.float32).reshape(len(ids), -1), [int(line) for line in run.stdout.split()]


class Mlx:
    """mlx-lm's model of a checkpoint, on the CPU."""

    def __init__(self, checkpoint, float32: bool):
        import mlx.core as mx
        from mlx_lm.utils import load_model

        mx.set_default_device(mx.cpu)
        self.model, _ = load_model(pathlib.Path(checkpoint))
        self.float32 = float32
        if float32:
            self.model.set_dtype(mx.float32)

    def cache(self):
        import mlx.core as mx
        from mlx_lm.models.cache import KVCache

        class Bfloat16Cache(KVCache):
            def update_and_fetch(self, keys, values):
                rounded = [x.astype(mx.bfloat16).astype(x.dtype) for x in (keys, values)]
                return super().update_and_fetch(*rounded)

        cache = self.model.make_cache()
        return [Bfloat16Cache() if self.float32 and isinstance(c, KVCache) else c for c in cache]

    def run(self, ids: list[int], cache=None):
        """float32 [T, V]"""
        import mlx.core as mx

        return np.array(self.model(mx.array(ids)[None], cache=cache or self.cache()).astype(mx.float32))[0]

    def greedy(self, ids: list[int], count: int) -> list[int]:
        cache = self.cache()
        tokens = [int(self.run(ids, cache)[-1].argmax())]
        while len(tokens) < count:
            tokens.append(int(self.run(tokens[-1:], cache)[-1].argmax()))
        return tokens


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def scored(text: Text, logits):
    """The rows that predict the scored tokens, and those tokens."""
    return logits[text.first - 1 : -1], text.ids[text.first :]


def gather(texts: list[Text], logits: list, everything: bool = False):
    """Scored rows of all texts, and their tokens; with `everything` the prompts are scored too."""
    parts = [scored(Text(text.ids) if everything else text, rows) for text, rows in zip(texts, logits)]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([targets for _, targets in parts])


def perplexity(rows, targets) -> float:
    return float(np.exp(-log_softmax(rows)[np.arange(len(targets)), targets].mean()))


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


def compare(ours, theirs, targets) -> Comparison:
    best, their_best = ours.argmax(-1), theirs.argmax(-1)
    apart = np.flatnonzero(best != their_best)
    diff = np.abs(ours.astype(np.float64) - theirs)
    log_p, log_q = log_softmax(theirs), log_softmax(ours)
    return Comparison(
        positions=len(targets),
        agreement=1 - len(apart) / len(targets),
        margins=[float(ours[t, best[t]] - ours[t, their_best[t]]) for t in apart],
        max_diff=float(diff.max()),
        mean_diff=float(diff.mean()),
        rms=float(ours.std()),
        kl=float((np.exp(log_p) * (log_p - log_q)).sum(-1).mean()),
        perplexity=(perplexity(ours, targets), perplexity(theirs, targets)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--tokens", type=int, default=0, help="random ids instead of exam questions with their answers")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config = json.loads((args.checkpoint / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    texts = [random_text(args.tokens, vocab, args.seed)] if args.tokens else exam_texts(args.checkpoint)
    ours = [our_logits(args.checkpoint, args.backend, text.ids)[0] for text in texts]
    print("| mlx-lm activations | positions | same top token | largest margin | max diff | mean diff | rms of logits | KL "
          "| perplexity ours / theirs |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for float32 in (True, False):
        mlx = Mlx(args.checkpoint, float32)
        theirs = [mlx.run(text.ids) for text in texts]
        for everything in (False, True):
            rows, targets = gather(texts, ours, everything)
            c = compare(rows, gather(texts, theirs, everything)[0], targets)
            print(f"| {'float32' if float32 else 'bfloat16'} | {c.positions} {'all' if everything else 'scored'} "
                  f"| {100 * c.agreement:.2f} % | {max(c.margins, default=0):.1e} | {c.max_diff:.1e} "
                  f"| {c.mean_diff:.1e} | {c.rms:.2f} | {c.kl:.1e} | {c.perplexity[0]:.6f} / {c.perplexity[1]:.6f} |",
                  flush=True)


if __name__ == "__main__":
    main()
