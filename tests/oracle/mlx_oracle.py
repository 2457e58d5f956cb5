"""Teacher-forced comparison of our logits with mlx-lm's on the bytes of one checkpoint.

mlx-lm runs twice: as it ships (bfloat16 activations), and with every parameter widened to float32 and only the KV
cache rounded to bfloat16, which is our numeric contract. The second is the proof of correctness, the first says what
a user of mlx-lm will see. Run as a program it prints the tables of docs/numerics.md, with --many those of
docs/benchmarks/fidelity-lily-tiny.md:

    python tests/oracle/mlx_oracle.py CHECKPOINT [--many | --tokens N --seed S] [--activations bfloat16 float16]
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
MANY_LINES = EXAM_LINES + [(part, index) for part, first, end in
                           (("sums", 1, 8), ("tool_answer", 1, 5), ("copy", 2, 6), ("retrieve_2k", 0, 1))
                           for index in range(first, end)]


@dataclasses.dataclass
class Text:
    """Token ids; those from `first` on are scored (the answer, where there is a prompt before it)."""
    ids: list[int]
    first: int = 1


# Router logits of LilyTiny spread by 1 to 2. Quantised activations move them by 1e-4, rarely by 1e-3.
NEAR_TIE = 2e-3
TIE_BOUND = 2e-3  # differences of logits, in units of their spread, from which on a tie is suspected


@dataclasses.dataclass(frozen=True)
class Tie:
    """Two experts, one of them chosen last and the other left out, whose logits are `gap` apart."""
    layer: int
    token: int
    gap: float = dataclasses.field(compare=False)


def driver() -> pathlib.Path:
    lily = pathlib.Path(os.environ.get("LILY_BIN", ROOT / "build/release/lily"))
    return lily.parent / "tests/logits_driver"


def exam_texts(checkpoint: pathlib.Path, lines=EXAM_LINES) -> list[Text]:
    """Prompts of the exam followed by the expected answers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    exam = [json.loads(line) for line in EXAM.read_text().splitlines()]
    texts = []
    for part, index in lines:
        line = [entry for entry in exam if entry["part"] == part][index]
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


class Router:
    """Stands in for a router of mlx-lm: keeps the logits of its last run, float32 [T, E], and for the tokens in
    `exchanged` swaps those of the last expert chosen and the first one left out."""

    def __init__(self, gate, n_active: int):
        self.gate, self.n_active = gate, n_active
        self.logits, self.exchanged = None, []

    def __call__(self, x):
        import mlx.core as mx

        self.logits = np.array(self.gate(x))[0]
        logits = self.logits.copy()
        for t in self.exchanged:
            pair = self.contested(t)
            logits[t, pair] = logits[t, pair[::-1]]
        return mx.array(logits)[None]

    def contested(self, t: int):
        return np.argsort(-self.logits[t], kind="stable")[self.n_active - 1 : self.n_active + 1]

    def gap(self, t: int) -> float:
        chosen, left_out = self.logits[t, self.contested(t)]
        return float(chosen - left_out)


class Mlx:
    """mlx-lm's model of a checkpoint, on the CPU. Activations: bfloat16 as it ships, float16 or float32."""

    def __init__(self, checkpoint, activations: str):
        import mlx.core as mx
        from mlx_lm.utils import load_model

        mx.set_default_device(mx.cpu)
        self.model, _ = load_model(pathlib.Path(checkpoint))
        self.float32 = activations == "float32"
        if activations != "bfloat16":
            self.model.set_dtype(getattr(mx, activations))
        self.routers = []
        if self.float32:
            for layer in self.model.layers:
                layer.mlp.gate = Router(layer.mlp.gate, layer.mlp.top_k)
                self.routers.append(layer.mlp.gate)

    def cache(self):
        import mlx.core as mx
        from mlx_lm.models.cache import KVCache

        class Bfloat16Cache(KVCache):
            def update_and_fetch(self, keys, values):
                rounded = [x.astype(mx.bfloat16).astype(x.dtype) for x in (keys, values)]
                return super().update_and_fetch(*rounded)

        cache = self.model.make_cache()
        return [Bfloat16Cache() if self.float32 and isinstance(c, KVCache) else c for c in cache]

    def run(self, ids: list[int], cache=None, ties=()):
        """float32 [T, V]; `ties` are those whose other expert is to be chosen."""
        import mlx.core as mx

        for layer, router in enumerate(self.routers):
            router.exchanged = [tie.token for tie in ties if tie.layer == layer]
        return np.array(self.model(mx.array(ids)[None], cache=cache or self.cache()).astype(mx.float32))[0]

    def greedy(self, ids: list[int], count: int) -> list[int]:
        cache = self.cache()
        tokens = [int(self.run(ids, cache)[-1].argmax())]
        while len(tokens) < count:
            tokens.append(int(self.run(tokens[-1:], cache)[-1].argmax()))
        return tokens

    def settle_ties(self, ids: list[int], logits, ours, bound: float):
        """What the float32 model says if near ties in its routers fall as ours did: logits [T, V], and those ties.

        Begins with `logits`, its own. At the first token where ours are apart by more than `bound`, near ties are
        tried, the nearest first; one is exchanged if ours are then met. A difference that no tie explains stays.
        """
        ties = []
        while True:
            apart = np.flatnonzero(np.abs(logits - ours).max(-1) > bound)
            if len(apart) == 0:
                return logits, ties
            head, tail = ids[: apart[0] + 1], ids[apart[0] + 1 :]
            self.run(head, ties=ties)
            near = [Tie(layer, len(head) - 1, router.gap(-1)) for layer, router in enumerate(self.routers)]
            for tie in sorted(near, key=lambda tie: tie.gap):
                if tie.gap < NEAR_TIE and tie not in ties:
                    cache = self.cache()
                    logits = self.run(head, cache, [*ties, tie])
                    if np.abs(logits[-1] - ours[len(head) - 1]).max() <= bound:
                        break
            else:
                return self.run(ids, ties=ties), ties
            ties.append(tie)
            if tail:
                logits = np.concatenate([logits, self.run(tail, cache)])


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


@dataclasses.dataclass
class Choices:
    """Our choice of each position beside the one of mlx-lm with rounded activations; arrays [T]."""
    apart: np.ndarray  # bool: another highest logit
    lead: np.ndarray  # of our highest logit over the second
    margin: np.ndarray  # of our choice over theirs in our logits, 0 where they are the same
    error: np.ndarray  # what rounding changed in those two of their logits, together
    level: np.ndarray  # root mean square of what it changed in the sixteen highest others

    @property
    def clear(self):
        """Positions that rounding should not turn, judged by logits that are not in question."""
        return self.lead > 2 * self.level


def choices(ours, exact, rounded) -> Choices:
    """`exact` and `rounded` are mlx-lm's logits in float32 and as rounded."""
    order = np.argsort(-ours, -1, kind="stable")
    t, best, their_best = np.arange(len(ours)), order[:, 0], rounded.argmax(-1)
    change = np.abs(rounded.astype(np.float64) - exact)
    rival = np.where(best == their_best, order[:, 1], their_best)
    others = order[(order != best[:, None]) & (order != rival[:, None])].reshape(len(ours), -1)[:, :16]
    return Choices(
        apart=best != their_best,
        lead=ours[t, best] - ours[t, order[:, 1]],
        margin=ours[t, best] - ours[t, their_best],
        error=change[t, best] + change[t, their_best],
        level=np.sqrt((np.take_along_axis(change, others, -1) ** 2).mean(-1)),
    )


def print_choices(name: str, ours: dict, exact, rounded) -> None:
    """By the lead of the reference's choice: how often mlx-lm as rounded chooses another token than mlx-lm itself in
    float32, and than we."""
    chosen = {who: choices(rows, exact, rounded) for who, rows in {"mlx-lm float32": exact, **ours}.items()}
    judge = chosen["reference"]
    print(f"\n| lead of the reference's choice | positions | {name} chooses other than "
          + " | than ".join(chosen) + " |\n|---|---:|" + "---:|" * len(chosen))

    def row(label, where):
        counts = " | ".join(f"{(c.apart & where).sum()}" for c in chosen.values())
        print(f"| {label} | {where.sum()} | {counts} |")

    edges = [0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, np.inf]
    for low, high in zip(edges, edges[1:]):
        row(f"{low:g} to {high:g}", (judge.lead >= low) & (judge.lead < high))
    row("all", judge.lead >= 0)
    row("more than twice the level of the rounding", judge.clear)
    for who, c in chosen.items():
        share = (c.margin[c.apart] / c.error[c.apart]).max(initial=0)
        print(f"{who}: largest margin {c.margin.max():.3f}, at most {share:.4f} of the change by rounding", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--many", action="store_true", help="twenty conversations of the exam, not four")
    parser.add_argument("--tokens", type=int, default=0, help="random ids instead of exam questions with their answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--activations", nargs="*", default=["bfloat16"], help="rounded types to run mlx-lm with")
    args = parser.parse_args()
    config = json.loads((args.checkpoint / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    if args.tokens:
        texts = [random_text(args.tokens, vocab, args.seed)]
    else:
        texts = exam_texts(args.checkpoint, MANY_LINES if args.many else EXAM_LINES)
    ours = {name: [our_logits(args.checkpoint, name, text.ids)[0] for text in texts] for name in ("reference", "cpu")}

    print("| ours | mlx-lm activations | positions | same top token | largest margin | max diff | mean diff "
          "| rms of logits | KL | perplexity ours / theirs |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")

    def row(name, activations, theirs, everything=True):
        rows, targets = gather(texts, ours[name], everything)
        c = compare(rows, gather(texts, theirs, everything)[0], targets)
        print(f"| {name} | {activations} | {c.positions} {'all' if everything else 'scored'} "
              f"| {100 * c.agreement:.2f} % | {max(c.margins, default=0):.1e} | {c.max_diff:.1e} | {c.mean_diff:.1e} "
              f"| {c.rms:.2f} | {c.kl:.1e} | {c.perplexity[0]:.6f} / {c.perplexity[1]:.6f} |", flush=True)

    mlx = Mlx(args.checkpoint, "float32")
    theirs = {"float32": [mlx.run(text.ids) for text in texts]}
    for name in ours:
        row(name, "float32", theirs["float32"], everything=False)
        row(name, "float32", theirs["float32"])
    unit = np.concatenate(theirs["float32"]).std()
    for name in ours:
        settled = [mlx.settle_ties(text.ids, *pair, TIE_BOUND * unit)
                   for text, *pair in zip(texts, theirs["float32"], ours[name])]
        n_ties = sum(len(ties) for _, ties in settled)
        row(name, f"float32, {n_ties} router ties as ours", [logits for logits, _ in settled])
    for activations in args.activations:
        mlx = Mlx(args.checkpoint, activations)
        theirs[activations] = [mlx.run(text.ids) for text in texts]
        for name in ours:
            row(name, activations, theirs[activations], everything=False)
            row(name, activations, theirs[activations])
    for activations in args.activations:
        print_choices(f"mlx-lm {activations}",
                      {name: gather(texts, logits, everything=True)[0] for name, logits in ours.items()},
                      *(gather(texts, theirs[key], everything=True)[0] for key in ("float32", activations)))


if __name__ == "__main__":
    main()
