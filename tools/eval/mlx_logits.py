#!/usr/bin/env python3
"""Saves mlx-lm's teacher-forced logits on a checkpoint, for `lily eval --reference`.

    tools/eval/mlx_logits.py --model models/lily-tiny --text book.txt --tokens 2048 --out mlx.safetensors
    lily eval --model models/lily-tiny --reference mlx.safetensors

Needs mlx (mlx-cpu does), mlx-lm and tokenizers. The text is cut into windows as `lily eval` does; with --tokens-from a
file that `lily eval --save` wrote, exactly its windows are used. The file format stands in docs/eval.md.
"""

import argparse
import pathlib
import sys

import mlx.core as mx
import mlx_lm.utils
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer


def windows_of_text(args):
    tokenizer = Tokenizer.from_file(str(pathlib.Path(args.model) / "tokenizer.json"))
    ids = tokenizer.encode(pathlib.Path(args.text).read_text(), add_special_tokens=False).ids
    windows, at, left = [], 0, args.tokens
    while at + 1 < len(ids) and left > 0:
        window = ids[at : at + min(args.context, left + 1)]
        if len(window) < 2:
            break
        windows.append(window)
        at += len(window)
        left -= len(window) - 1
    return windows


def windows_of_file(path):
    with safe_open(path, framework="numpy") as file:
        tokens = file.get_tensor("tokens").tolist()
        starts = file.get_tensor("starts").tolist() + [len(tokens)]
    return [tokens[a:b] for a, b in zip(starts, starts[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text")
    parser.add_argument("--tokens-from")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--float32", action="store_true", help="activations in float32, not in the checkpoint's bfloat16")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if bool(args.text) == bool(args.tokens_from):
        parser.error("give one of --text and --tokens-from")

    windows = windows_of_file(args.tokens_from) if args.tokens_from else windows_of_text(args)
    model, _ = mlx_lm.utils.load_model(pathlib.Path(args.model), lazy=True)
    if args.float32:
        model.set_dtype(mx.float32)
    rows, starts, count = [], [], 0
    for window in windows:
        logits = model(mx.array([window]))[0].astype(mx.float32)
        rows.append(np.array(logits, copy=True))
        starts.append(count)
        count += len(window)
        print(f"\r{count} tokens", end="", file=sys.stderr)
    print(file=sys.stderr)
    tokens = np.array([t for w in windows for t in w], dtype=np.int32)
    save_file({"tokens": tokens, "starts": np.array(starts, dtype=np.int32), "logits": np.concatenate(rows)}, args.out)


if __name__ == "__main__":
    main()
