"""Compare quantise.py with MLX's own `mx.quantize` on the CPU: words, scales and biases, bit for bit.

Run: python check_quantise.py        needs mlx (on Linux: mlx and mlx-cpu); fails on any difference
"""

import mlx.core as mx
import numpy as np
import torch

import quantise

KINDS = {
    "normal": lambda g: torch.randn(256, 512, generator=g) * 0.05,
    "one outlier a group": lambda g: torch.randn(64, 512, generator=g) * 0.01 + 2.0 * (torch.arange(512) % 64 == 7),
    "positive": lambda g: torch.rand(64, 512, generator=g) + 0.5,
    "negative": lambda g: -torch.rand(64, 512, generator=g) - 0.5,
    "zero": lambda g: torch.zeros(8, 512),
    "constant": lambda g: torch.full((8, 512), 0.375),
    "tiny": lambda g: torch.randn(8, 512, generator=g) * 1e-8,
    "ties": lambda g: torch.randint(-15, 16, (64, 512), generator=g) / 2.0,
    "bfloat16 values": lambda g: (torch.randn(256, 512, generator=g) * 0.05).bfloat16().float(),
}


def compare(w: torch.Tensor, bits: int) -> tuple:
    """Numbers of differing words, scales and biases."""
    words, scales, biases = quantise.pack(w, bits)
    theirs = mx.quantize(mx.array(w.numpy()), group_size=quantise.GROUP, bits=bits)
    t_words = np.array(theirs[0])
    t_scales, t_biases = (np.array(t.astype(mx.bfloat16).astype(mx.float32)) for t in theirs[1:])
    return (int((words.numpy() != t_words).sum()), int((scales.float().numpy() != t_scales).sum()),
            int((biases.float().numpy() != t_biases).sum()))


def main() -> None:
    mx.set_default_device(mx.cpu)
    different = 0
    for bits in (4, 8):
        for kind, make in KINDS.items():
            counts = compare(make(torch.Generator().manual_seed(1)), bits)
            different += sum(counts)
            print(f"{bits} bits, {kind}: differing words {counts[0]}, scales {counts[1]}, biases {counts[2]}")
    if different:
        raise SystemExit("the quantiser differs from MLX's")


if __name__ == "__main__":
    main()
