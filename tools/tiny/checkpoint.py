"""Read a checkpoint that export.py wrote back into weights as the forward pass uses them."""

import json
import struct
from pathlib import Path

import torch

import shape as S

DTYPES = {"U32": torch.uint32, "BF16": torch.bfloat16}


def read_safetensors(path: Path) -> dict:
    data = path.read_bytes()
    n_header, = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + n_header]).items():
        if name != "__metadata__":
            first, last = (8 + n_header + at for at in entry["data_offsets"])
            raw = torch.frombuffer(bytearray(data[first:last]), dtype=torch.uint8)
            tensors[name] = raw.view(DTYPES[entry["dtype"]]).view(entry["shape"])
    return tensors


def dequantised(words, scales, biases, bits: int) -> torch.Tensor:
    shifts = bits * torch.arange(32 // bits)
    codes = (words.to(torch.int64)[..., None] >> shifts) & (2 ** bits - 1)
    groups = codes.flatten(-2).unflatten(-1, (-1, S.GROUP)).float()
    return (groups * scales.float()[..., None] + biases.float()[..., None]).flatten(-2)


def load(directory: Path, table: list, prefix: str) -> dict:
    """Weights by name, float32; norms as w of 1 + w."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    weights = {}
    for p in table:
        name = prefix + p.name
        if p.kind == "vec":
            weights[p.name] = tensors[name].float().view(p.shape) - (1 if p.centred else 0)
        else:
            weights[p.name] = dequantised(*(tensors[f"{name}.{part}"] for part in ("weight", "scales", "biases")),
                                          int(p.kind[1]))
    return weights
