"""From tasks to packed rows of tokens, in worker processes."""

import multiprocessing as mp
import os
import queue
from random import Random

import numpy as np
from tokenizers import Tokenizer

import tasks
from chat import MODEL_DIR, Chat

SHORT_ROW, LONG_ROW = 2304, 20480  # multiples of the delta rule's chunk
MAX_PER_ROW = 96
PROMPT_WEIGHT = 0.03
# Long replies would drown the short ones: weight of a reply's tokens by task, 1 where not named.
REPLY_WEIGHT = {"copy": 0.5, "retrieve_2k": 4, "retrieve_16k": 8, "sums": 3, "count": 0.3, "story": 0.15}


class Encoder:
    def __init__(self):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.chat = Chat()
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))

    def encode(self, s: tasks.Sample) -> tuple:
        """(ids, number of prompt tokens)"""
        prompt, reply = self.chat.sample(s)
        a, b = (self.tokenizer.encode(t).ids for t in (prompt, reply))
        return a + b, len(a)


class Rows:
    """Rows being filled; `arrays` gives what a batch is made of."""

    def __init__(self, n_rows: int, length: int):
        self.ids = np.zeros((n_rows, length), np.int16)
        self.position = np.zeros((n_rows, length), np.int16)
        self.weight = np.zeros((n_rows, length), np.float16)
        self.used = [0] * n_rows
        self.starts = [[] for _ in range(n_rows)]

    def put(self, row: int, ids: list, n_prompt: int, weight: float) -> bool:
        at, n = self.used[row], len(ids)
        if at + n > self.ids.shape[1] or len(self.starts[row]) >= MAX_PER_ROW - 1:
            return False
        self.ids[row, at:at + n] = ids
        self.position[row, at:at + n] = np.arange(n)
        self.weight[row, at:at + n_prompt] = PROMPT_WEIGHT
        self.weight[row, at + n_prompt:at + n] = weight
        self.starts[row].append(at)
        self.used[row] = at + n
        return True

    def arrays(self) -> tuple:
        n_rows, length = self.ids.shape
        starts = []
        for row in range(n_rows):
            starts += [row * length + s for s in self.starts[row]]
            if self.used[row] < length:  # the rest of the row is one idle sequence
                starts.append(row * length + self.used[row])
                self.position[row, self.used[row]:] = np.arange(length - self.used[row])
        full = np.full(n_rows * MAX_PER_ROW + 1, n_rows * length, np.int32)
        full[:len(starts)] = starts
        return self.ids, self.position, self.weight, full


def fill(r: Random, encoder: Encoder, n_rows: int, length: int, hard: float, long: bool = False) -> tuple:
    rows = Rows(n_rows, length)
    for row in range(n_rows):
        misses = 0
        if long:
            s = tasks.retrieve_16k(r, hard)
            rows.put(row, *encoder.encode(s), REPLY_WEIGHT[s.part])
        while misses < 3:
            s = tasks.draw(r, hard)
            misses += not rows.put(row, *encoder.encode(s), REPLY_WEIGHT.get(s.part, 1))
    return rows.arrays()


def work(seed: int, n_rows: int, length: int, hard, long: bool, out) -> None:
    r, encoder = Random(seed), Encoder()
    tasks.use_filler(seed)
    for n in range(10 ** 9):
        if n % 50 == 49:
            tasks.use_filler(seed * 1000 + n)
        out.put(fill(r, encoder, n_rows, length, hard.value, long))


class Source:
    """Batches of one row length from worker processes; an earlier one is used again when none is ready."""

    def __init__(self, n_workers: int, n_rows: int, length: int, hard, seed: int, keep: int, long: bool = False):
        context = mp.get_context("fork")
        self.queue = context.Queue(maxsize=16)
        self.kept, self.keep, self.random = [], keep, Random(seed)
        self.fresh = self.drawn = 0
        self.workers = [context.Process(target=work, daemon=True,
                                        args=(seed + i, n_rows, length, hard, long, self.queue))
                        for i in range(n_workers)]
        for p in self.workers:
            p.start()

    def draw(self) -> tuple:
        self.drawn += 1
        try:
            arrays = self.queue.get(block=not self.kept, timeout=None if not self.kept else 0)
        except queue.Empty:
            return self.random.choice(self.kept)
        self.fresh += 1
        if len(self.kept) < self.keep:
            self.kept.append(arrays)
        else:
            self.kept[self.random.randrange(self.keep)] = arrays
        return arrays
