"""MLX affine quantisation, groups of 64 along the last axis.

`codes` follows MLX's rule to the letter (float32 arithmetic; code from the unrounded scale and bias, which are only
then rounded to bfloat16); `fake` is the same rule as a straight-through step of training; `pack` gives the words of
the checkpoint: element i of a word sits in bits [i * bits, (i + 1) * bits).
"""

import torch

GROUP = 64
SMALLEST_SCALE = 1e-7


def codes(w: torch.Tensor, bits: int) -> tuple:
    """(codes float32 [..., 64], scale [..., 1], bias [..., 1]) of groups [..., 64]; scale and bias unrounded."""
    n = 2 ** bits - 1
    lo, hi = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    scale = ((hi - lo) / n).clamp_min(SMALLEST_SCALE)
    low_edge = lo.abs() > hi.abs()
    scale = torch.where(low_edge, scale, -scale)
    edge = torch.where(low_edge, lo, hi)
    q0 = torch.round(edge / scale)
    nonzero = q0 != 0
    scale = torch.where(nonzero, edge / torch.where(nonzero, q0, 1), scale)
    bias = torch.where(nonzero, edge, 0)
    q = torch.round((w - bias) / scale).clamp(0, n)
    return q, scale, bias


def rounded(w: torch.Tensor, bits: int) -> torch.Tensor:
    """The value that a reader of the checkpoint sees, for flat float32 weights whose groups lie in order."""
    q, scale, bias = codes(w.view(-1, GROUP), bits)
    return (q * scale.bfloat16().float() + bias.bfloat16().float()).view_as(w)


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, bits):
        return rounded(w, bits)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def fake(w: torch.Tensor, bits: int) -> torch.Tensor:
    return StraightThrough.apply(w, bits)


def pack(w: torch.Tensor, bits: int) -> tuple:
    """(words uint32, scales bfloat16, biases bfloat16) of a weight [..., width]."""
    *rows, width = w.shape
    q, scale, bias = codes(w.float().reshape(-1, GROUP), bits)
    per_word = 32 // bits
    q = q.to(torch.int64).view(-1, per_word)
    words = (q << (bits * torch.arange(per_word))).sum(-1)
    return (words.to(torch.uint32).view(*rows, width // per_word),
            scale.bfloat16().view(*rows, width // GROUP), bias.bfloat16().view(*rows, width // GROUP))
