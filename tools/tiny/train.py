"""Train LilyTiny on one GPU within a given time.

The schedule runs on the clock: `--minutes` of training, then the draft head with the trunk frozen for
`--mtp-minutes`. Lengths grow as soon as the model copies and retrieves at the present ones. Quantisation-aware from
`QUANTISE_FROM` of the time on. The exam's parts are scored on the quantised weights, teacher-forced: all tokens of a
reply must be the most likely ones, which is what greedy decoding needs to give that reply.

Run: python train.py --out DIR --minutes 15
"""

import argparse
import math
import multiprocessing as mp
import os
import sys
import time
from pathlib import Path

import torch

import checkpoint
import data
import exam
import fast
import model
import shape as S
import tasks
from params import Params, load_weights, save_pieces, save_weights

PEAK_LR, LAST_LR, WARMUP, DECAY_FROM = 1.5e-3, 1.5e-5, 0.02, 0.45
QUANTISE_FROM = 0.35
LONG_FROM, LONG_EVERY = 0.5, 8
WEIGHT_DECAY, BETAS, CLIP, BALANCE = 0.05, (0.9, 0.95), 1.0, 0.01
LAST_ID = 2000


class Buffers:
    """Static tensors of one batch shape, so that a captured step finds its inputs at fixed addresses."""

    def __init__(self, n_rows: int, length: int, device):
        self.batch = model.Batch(
            torch.zeros(n_rows, length, dtype=torch.long, device=device),
            torch.zeros(n_rows, length, dtype=torch.long, device=device),
            torch.zeros(n_rows, length, device=device),
            torch.zeros(n_rows * data.MAX_PER_ROW + 1, dtype=torch.int32, device=device), length)

    def fill(self, arrays: tuple) -> model.Batch:
        b = self.batch
        for target, values in zip((b.ids, b.position, b.weight, b.starts), arrays):
            source = torch.from_numpy(values)
            target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)
        return b


class Trainer:
    def __init__(self, params: Params, device, kernels, dtype):
        self.params, self.device, self.kernels, self.dtype = params, device, kernels, dtype
        for p in params.flat.values():
            p.grad = torch.zeros_like(p)
        self.lr = torch.tensor(0.0, device=device)
        decayed = [p for k, p in params.flat.items() if k != "vec"]
        self.optimiser = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": [params.flat["vec"]], "weight_decay": 0.0}],
            lr=self.lr, betas=BETAS, fused=True, capturable=device.type == "cuda")
        self.graphs = {}

    def loss(self, batch, quantised: bool):
        raise NotImplementedError

    def step(self, batch, quantised: bool):
        """One update; returns the loss as a tensor."""
        for p in self.params.flat.values():
            p.grad.zero_()
        loss = self.loss(batch, quantised)
        loss.backward()
        grads = [p.grad for p in self.params.flat.values()]
        size = torch.stack([g.norm() for g in grads]).norm()
        factor = (CLIP / (size + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor)
        self.optimiser.step()
        return loss.detach()

    def captured(self, name: str, buffers: Buffers, quantised: bool):
        """The step as a CUDA graph, captured at first use; the plain step where that is not possible."""
        key = (name, quantised)
        if key not in self.graphs:
            self.graphs[key] = self.capture(buffers, quantised)
        return self.graphs[key]()

    def capture(self, buffers: Buffers, quantised: bool):
        def plain():
            return self.step(buffers.batch, quantised)

        if self.device.type != "cuda":
            return plain
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilation and lazy initialisation happen here
            for _ in range(2):
                plain()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                out = plain()
        except RuntimeError as e:
            print(f"no CUDA graph, steps run one by one: {str(e)[:300]}", flush=True)
            torch.cuda.synchronize()
            return plain

        def replay():
            graph.replay()
            return out

        return replay


class TrunkTrainer(Trainer):
    def loss(self, batch, quantised):
        w = self.params.views(quantised, self.dtype)
        hidden, balance = model.trunk(w, batch, self.kernels)
        return model.weighted_loss(model.head(w, hidden), batch, 1) + BALANCE * balance


class DraftTrainer(Trainer):
    """The MTP head over frozen trunk weights, as the forward pass uses them."""

    def __init__(self, frozen: dict, *rest):
        super().__init__(*rest)
        self.frozen = frozen

    def loss(self, batch, quantised):
        with torch.no_grad():
            hidden, _ = model.trunk(self.frozen, batch, self.kernels)
        m = self.params.views(quantised, self.dtype)
        return model.weighted_loss(model.draft(self.frozen, m, batch, hidden, self.kernels), batch, 2)


# ---- scoring --------------------------------------------------------------------------------------------------------

def packed(encoder, samples: list, n_rows: int, length: int):
    """Batches as arrays, with where each sample went: (arrays, [(row, first, n_prompt, end)])."""
    rows, places = data.Rows(n_rows, length), []
    row = 0
    for s in samples:
        ids, n_prompt = encoder.encode(s)
        if len(ids) > length:
            raise ValueError(f"a sample of {len(ids)} tokens in rows of {length}")
        while not rows.put(row, ids, n_prompt, 1.0):
            row += 1
            if row == n_rows:
                yield rows.arrays(), places
                rows, places, row = data.Rows(n_rows, length), [], 0
        places.append((row, rows.used[row] - len(ids), n_prompt, rows.used[row]))
    yield rows.arrays(), places


@torch.no_grad()
def score(w, encoder, samples: list, buffers: Buffers, kernels, head_weights=None) -> tuple:
    """(share of replies fully right, share of their tokens right, share of drafted tokens right)."""
    right = tokens = good = n = drafted = agreed = 0
    n_rows, length = buffers.batch.ids.shape
    for arrays, places in packed(encoder, samples, n_rows, length):
        batch = buffers.fill(arrays)
        hidden, _ = model.trunk(w, batch, kernels)
        best = model.head(w, hidden)[..., :LAST_ID].argmax(-1)
        hit = (best[:, :-1] == batch.ids[:, 1:]).cpu()
        if head_weights is not None:
            guess = model.draft(w, head_weights, batch, hidden, kernels)[..., :LAST_ID].argmax(-1)
            same = (guess[:, :-2] == best[:, 1:-1]).cpu()  # what the trunk itself says one token later
        for row, first, n_prompt, end in places:
            reply = hit[row, first + n_prompt - 1:end - 1]
            right, good, tokens, n = right + bool(reply.all()), good + int(reply.sum()), tokens + len(reply), n + 1
            if head_weights is not None:
                rows = same[row, first + n_prompt - 1:end - 2]
                agreed, drafted = agreed + int(rows.sum()), drafted + len(rows)
    return right / n, good / tokens, agreed / max(1, drafted)


def quick_samples(hard: float, n: int) -> dict:
    r = tasks.Random(7)
    return {"copy": [tasks.copy(r, hard) for _ in range(n)],
            "retrieve_2k": [tasks.retrieve_2k(r, hard) for _ in range(n)]}


# ---- the run --------------------------------------------------------------------------------------------------------

def learning_rate(progress: float, peak: float) -> float:
    if progress < WARMUP:
        return peak * progress / WARMUP
    if progress < DECAY_FROM:
        return peak
    along = min(1.0, (progress - DECAY_FROM) / (1 - DECAY_FROM))
    return LAST_LR + (peak - LAST_LR) * 0.5 * (1 + math.cos(math.pi * along))


class Run:
    def __init__(self, a):
        self.a, self.out = a, Path(a.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.out / "log.txt", "a")
        tasks.OPEN = a.open  # the workers are forked after this
        self.hard = mp.get_context("fork").Value("d", a.hard)
        n_long = max(1, a.workers // 7)
        self.short = data.Source(a.workers - n_long, a.rows, a.short_row, self.hard, 1000 * a.seed, 300)
        self.long = data.Source(n_long, 1, a.long_row, self.hard, 1000 * a.seed + 500, 100, long=True)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        torch.manual_seed(a.seed)
        self.kernels, self.plain = fast.kernels(self.device, self.log, compile=not a.trunk)
        self.trunk = Params(S.trunk_params(), seed=a.seed, device=self.device)
        self.mtp = Params(S.mtp_params(), seed=a.seed + 100, device=self.device)
        if a.start_from:
            self.trunk.load_named(checkpoint.load(Path(a.start_from), S.trunk_params(), "language_model."))
            self.mtp.load_named(checkpoint.load(Path(a.start_from) / "mtp", S.mtp_params(), ""))
        if a.resume:
            load_weights(Path(a.resume), trunk=self.trunk, mtp=self.mtp)
        self.buffers = {"short": Buffers(a.rows, a.short_row, self.device),
                        "long": Buffers(1, a.long_row, self.device)}
        self.encoder = data.Encoder()

    def log(self, text: str) -> None:
        print(text, flush=True)
        print(text, file=self.log_file, flush=True)

    def save(self) -> None:
        save_pieces(self.out / "weights", trunk=self.trunk, mtp=self.mtp)

    def raise_difficulty(self, w) -> str:
        if self.hard.value >= 1:
            return ""
        scores = {part: score(w, self.encoder, s, self.buffers["short"], self.plain)
                  for part, s in quick_samples(self.hard.value, 24).items()}
        if min(s[0] for s in scores.values()) >= 0.7:
            self.hard.value = min(1.0, self.hard.value * 1.5 + 0.02)
        return " " + " ".join(f"{part} {s[0]:.2f}/{s[1]:.2f}" for part, s in scores.items())

    def train_trunk(self) -> None:
        a = self.a
        trainer = TrunkTrainer(self.trunk, self.device, self.kernels, self.dtype)
        start = last = time.time()
        saved, n_steps, n_logged, total, counted = start, 0, 0, torch.zeros((), device=self.device), 0
        while True:
            progress = (time.time() - start) / (60 * a.minutes)
            if progress >= 1 or n_steps == a.max_steps:
                break
            trainer.lr.fill_(learning_rate(progress, a.lr))
            quantised = progress >= a.quantise_from
            kind = "long" if progress >= a.long_from and n_steps % LONG_EVERY == 0 else "short"
            buffers = self.buffers[kind]
            buffers.fill((self.long if kind == "long" else self.short).draw())
            loss = trainer.captured(kind, buffers, quantised)
            if kind == "short":
                total += loss
                counted += 1
            n_steps += 1
            if n_steps in (20, 100) or n_steps % a.log_every == 0:
                value = total.item() / counted
                now = time.time()
                with torch.no_grad():
                    w = self.trunk.views(quantised, self.dtype)
                    grown = self.raise_difficulty(w)
                    del w
                step_ms = 1e3 * (now - last) / (n_steps - n_logged)
                self.log(f"{now - start:6.0f} s  step {n_steps:6}  loss {value:.4f}  hard {self.hard.value:.2f}  "
                         f"{step_ms:.1f} ms a step  fresh {self.short.fresh / self.short.drawn:.2f}{grown}")
                if not math.isfinite(value):
                    raise SystemExit("the loss is not finite")
                total.zero_()
                counted, n_logged, last = 0, n_steps, time.time()
                # whatever the scores say, full lengths come by 40 % of the time
                self.hard.value = max(self.hard.value, min(1.0, (progress - 0.15) / 0.25))
            if time.time() - saved > 60:
                self.save()
                saved = time.time()
                if progress > 0.5:
                    self.examine(24, quick=True)
        self.save()
        self.log(f"trained {n_steps} steps in {time.time() - start:.0f} s")

    def train_mtp(self) -> None:
        trainer = DraftTrainer(self.quantised_trunk(), self.mtp, self.device, self.kernels, self.dtype)
        start, n_steps = time.time(), 0
        while (progress := (time.time() - start) / (60 * self.a.mtp_minutes)) < 1 and n_steps != self.a.max_steps:
            trainer.lr.fill_(learning_rate(progress, self.a.lr))
            kind = "long" if n_steps % 32 == 31 else "short"
            self.buffers[kind].fill((self.long if kind == "long" else self.short).draw())
            loss = trainer.captured(kind, self.buffers[kind], True)
            n_steps += 1
            if n_steps % self.a.log_every == 0:
                self.log(f"draft head {time.time() - start:5.0f} s  step {n_steps}  loss {loss.item():.4f}")
        self.save()

    @torch.no_grad()
    def quantised_trunk(self) -> dict:
        """The trunk's weights as a reader of the checkpoint sees them."""
        if not self.a.trunk:
            return {k: v.detach().clone() for k, v in self.trunk.views(True, self.dtype).items()}
        weights = checkpoint.load(Path(self.a.trunk), S.trunk_params(), "language_model.")
        kinds = {p.name: p.kind for p in S.trunk_params()}
        return {k: v.to(self.device, torch.float32 if kinds[k] == "vec" else self.dtype) for k, v in weights.items()}

    @torch.no_grad()
    def examine(self, n: int, quick: bool = False) -> None:
        tasks.OPEN = 0.0  # the exam asks only for listed words
        w = self.quantised_trunk()
        m = None if quick else self.mtp.views(True, self.dtype)
        scores = []
        for part in exam.PARTS:
            if quick and part == "retrieve_16k":
                continue
            buffers = self.buffers["long" if part == "retrieve_16k" else "short"]
            replies, tokens, drafts = score(w, self.encoder, exam.samples(part, n), buffers, self.plain, m)
            scores.append(f"{part} {replies:.3f}" + ("" if quick else f" (tokens {tokens:.4f}, drafts {drafts:.3f})"))
        if self.a.open:
            tasks.OPEN, r = 1.0, tasks.Random(99)
            replies, tokens, _ = score(w, self.encoder, [tasks.copy(r, 0.3) for _ in range(n)], self.buffers["short"],
                                       self.plain)
            scores.append(f"copies of unlisted words {replies:.3f} (tokens {tokens:.4f})")
        self.log("exam: " + ", ".join(scores))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--minutes", type=float, default=15)
    p.add_argument("--mtp-minutes", type=float, default=1.5)
    p.add_argument("--rows", type=int, default=8, help="rows of 2,304 tokens a step")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--short-row", type=int, default=data.SHORT_ROW)
    p.add_argument("--long-row", type=int, default=data.LONG_ROW)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=PEAK_LR)
    p.add_argument("--hard", type=float, default=0.02, help="difficulty to begin with")
    p.add_argument("--quantise-from", type=float, default=QUANTISE_FROM)
    p.add_argument("--long-from", type=float, default=LONG_FROM)
    p.add_argument("--resume", help="weights of an earlier run to begin with")
    p.add_argument("--start-from", help="a checkpoint directory to begin with")
    p.add_argument("--open", type=float, default=tasks.OPEN, help="share of words from outside the lists")
    p.add_argument("--log-every", type=int, default=250)
    p.add_argument("--max-steps", type=int, default=-1)
    p.add_argument("--exam", type=int, default=64, help="samples a part at the end")
    p.add_argument("--trunk", help="train only the draft head, over the checkpoint in this directory")
    run = Run(p.parse_args())
    if not run.a.trunk:
        run.train_trunk()
    if run.a.mtp_minutes:
        run.train_mtp()
    if run.a.exam:
        run.examine(run.a.exam)
    save_weights(run.out / "final.pt", trunk=run.trunk, mtp=run.mtp)
    run.log("finished")
    sys.stdout.flush()
    os._exit(0)  # the workers never end by themselves


if __name__ == "__main__":
    main()
