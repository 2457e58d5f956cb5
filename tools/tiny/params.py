"""All weights of a model in three flat float32 tensors, one per kind ("q4", "q8", "vec").

Quantisation groups lie in order in a flat tensor, so fake quantisation, the cast to bfloat16 and the optimiser are
one operation each instead of one per module.
"""

from math import log
from pathlib import Path

import torch

from quantise import fake

KINDS = ("q4", "q8", "vec")


def initial(p, g: torch.Generator, n_layers: int = 8) -> torch.Tensor:
    if p.init == "zero":
        return torch.zeros(p.shape)
    if p.init == "one":
        return torch.ones(p.shape)
    if p.init == "conv":  # the newest sample passes, the older ones are faint
        w = torch.randn(p.shape, generator=g) * 0.2
        w[:, -1] += 0.5
        return w
    if p.init == "a_log":
        return torch.rand(p.shape, generator=g).mul(log(8.0))
    if p.init == "dt_bias":  # decay rates from 1e-3 (long memory) to 1e-1
        rate = torch.exp(torch.rand(p.shape, generator=g) * log(100.0) + log(1e-3))
        return rate + torch.log(-torch.expm1(-rate))  # inverse of softplus
    width = p.shape[-1]
    std = width ** -0.5
    if p.init == "out":
        std *= (2 * n_layers) ** -0.5
    return torch.randn(p.shape, generator=g) * std


class Params:
    def __init__(self, table: list, seed: int = 0, device: str = "cpu"):
        g = torch.Generator().manual_seed(seed)
        values = {k: [] for k in KINDS}
        self.table = {k: [p for p in table if p.kind == k] for k in KINDS}
        self.order = table
        for p in table:
            values[p.kind].append(initial(p, g).flatten())
        self.flat = {k: torch.cat(v).to(device).requires_grad_() for k, v in values.items() if v}

    def split(self, kind: str, flat: torch.Tensor) -> dict:
        """Views by name; a single split keeps the backward pass to one concatenation."""
        table = self.table[kind]
        parts = torch.split(flat, [p.size for p in table])
        return {p.name: part.view(p.shape) for p, part in zip(table, parts)}

    def views(self, quantised: bool, dtype: torch.dtype) -> dict:
        """Weights by name as the forward pass uses them; "vec" stays float32."""
        out = {}
        for kind, flat in self.flat.items():
            if kind == "vec":
                out.update(self.split(kind, flat))
                continue
            w = fake(flat, int(kind[1])) if quantised else flat
            out.update(self.split(kind, w.to(dtype)))
        return out

    def items(self):
        """(Param, weight) in table order."""
        by_name = {}
        for kind, flat in self.flat.items():
            by_name.update(self.split(kind, flat.detach().cpu()))
        return [(p, by_name[p.name]) for p in self.order]

    @torch.no_grad()
    def load_named(self, weights: dict) -> None:
        for kind, table in self.table.items():
            if table:
                self.flat[kind].copy_(torch.cat([weights[p.name].flatten() for p in table]))

    def state(self) -> dict:
        return {k: v.detach().cpu() for k, v in self.flat.items()}

    @torch.no_grad()
    def load(self, state: dict) -> None:
        for k, v in state.items():
            self.flat[k].copy_(v)


def save_weights(path: Path, dtype: torch.dtype = torch.float32, **parts) -> None:
    torch.save({name: {k: v.to(dtype) for k, v in p.state().items()} for name, p in parts.items()}, path)


def load_weights(path: Path, **parts) -> list:
    """Read a saved file, or the pieces PATH.0, PATH.1, ... into which `save_pieces` cut it; the parts it holds."""
    pieces = sorted(path.parent.glob(path.name + ".[0-9]"))
    if pieces:
        joined = path.with_suffix(".joined")
        joined.write_bytes(b"".join(p.read_bytes() for p in pieces))
        path = joined
    saved = torch.load(path, map_location="cpu", weights_only=True)
    for name, p in parts.items():
        if name in saved:
            p.load({k: v.float() for k, v in saved[name].items()})
    return [name for name in parts if name in saved]


def save_pieces(path: Path, piece_bytes: int = 15 << 20, **parts) -> None:
    """bfloat16 weights in pieces small enough for any transfer."""
    whole = path.with_suffix(".whole")
    save_weights(whole, torch.bfloat16, **parts)
    data = whole.read_bytes()
    whole.unlink()
    for i in range(0, len(data), piece_bytes):
        Path(f"{path}.{i // piece_bytes}").write_bytes(data[i:i + piece_bytes])
