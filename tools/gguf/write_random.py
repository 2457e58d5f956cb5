#!/usr/bin/env python3
"""Writes a GGUF of one of this program's shapes with random Q4_0 weights, for llama.cpp to be measured on.

    tools/gguf/write_random.py --shape Qwen3.6-35B-A3B /data/qwen-random.gguf     # 19.6 GB, streamed
    tools/gguf/write_random.py --shape LilyTiny /tmp/tiny.gguf

Types are those of llama-quantize's Q4_0, except that the output matrix is Q4_0 as well (there it is Q6_K), so that a
decoded token reads about the bytes that it reads here: matrices Q4_0; router, norms, convolution and gates F32. The
file has no vocabulary, only its size; llama-bench needs no more. Scales keep activations sane and routing spread.
"""

import argparse
import math
import os
import struct
import sys

import numpy as np

F32, Q4_0 = 0, 2
BLOCK, BLOCK_BYTES = 32, 18  # Q4_0: 32 weights as one half scale and 16 bytes
ALIGNMENT = 32
CHUNK_BLOCKS = 1 << 20

SHAPES = {
    "Qwen3.6-35B-A3B": dict(hidden=2048, layers=40, interval=4, q_heads=16, kv_heads=2, head_dim=256, rotary=64,
                            k_heads=16, v_heads=32, gdn_dim=128, conv=4, experts=256, active=8, expert_dim=512,
                            shared_dim=512, vocab=248320, positions=262144),
    "LilyTiny": dict(hidden=256, layers=8, interval=4, q_heads=16, kv_heads=2, head_dim=256, rotary=64,
                     k_heads=2, v_heads=4, gdn_dim=128, conv=4, experts=32, active=8, expert_dim=64,
                     shared_dim=64, vocab=2048, positions=32768),
}


def metadata(name, s):
    """Key, kind and value of what llama.cpp's qwen35moe architecture reads."""
    arch = "qwen35moe"
    u32 = lambda key, value: (f"{arch}.{key}", "u32", value)
    return [
        ("general.architecture", "str", arch),
        ("general.name", "str", f"{name} random"),
        ("general.file_type", "u32", 2),
        ("general.quantization_version", "u32", 2),
        u32("vocab_size", s["vocab"]),
        u32("context_length", s["positions"]),
        u32("embedding_length", s["hidden"]),
        u32("block_count", s["layers"]),
        u32("full_attention_interval", s["interval"]),
        u32("attention.head_count", s["q_heads"]),
        u32("attention.head_count_kv", s["kv_heads"]),
        u32("attention.key_length", s["head_dim"]),
        u32("attention.value_length", s["head_dim"]),
        (f"{arch}.attention.layer_norm_rms_epsilon", "f32", 1e-6),
        u32("rope.dimension_count", s["rotary"]),
        (f"{arch}.rope.dimension_sections", "i32s", [11, 11, 10, 0]),
        (f"{arch}.rope.freq_base", "f32", 1e7),
        u32("expert_count", s["experts"]),
        u32("expert_used_count", s["active"]),
        u32("expert_feed_forward_length", s["expert_dim"]),
        u32("expert_shared_feed_forward_length", s["shared_dim"]),
        u32("ssm.conv_kernel", s["conv"]),
        u32("ssm.inner_size", s["v_heads"] * s["gdn_dim"]),
        u32("ssm.state_size", s["gdn_dim"]),
        u32("ssm.time_step_rank", s["v_heads"]),
        u32("ssm.group_count", s["k_heads"]),
        ("tokenizer.ggml.model", "str", "none"),
    ]


def tensors(s):
    """(name, dims fastest first, type, fill): fill is a constant, or None for random values around zero."""
    d = s["hidden"]
    key_dim, value_dim = s["k_heads"] * s["gdn_dim"], s["v_heads"] * s["gdn_dim"]
    yield "token_embd.weight", [d, s["vocab"]], Q4_0, None
    for i in range(s["layers"]):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", [d], F32, 1.0
        yield p + "post_attention_norm.weight", [d], F32, 1.0
        if (i + 1) % s["interval"] == 0:
            yield p + "attn_q.weight", [d, 2 * s["q_heads"] * s["head_dim"]], Q4_0, None
            yield p + "attn_k.weight", [d, s["kv_heads"] * s["head_dim"]], Q4_0, None
            yield p + "attn_v.weight", [d, s["kv_heads"] * s["head_dim"]], Q4_0, None
            yield p + "attn_output.weight", [s["q_heads"] * s["head_dim"], d], Q4_0, None
            yield p + "attn_q_norm.weight", [s["head_dim"]], F32, 1.0
            yield p + "attn_k_norm.weight", [s["head_dim"]], F32, 1.0
        else:
            yield p + "attn_qkv.weight", [d, 2 * key_dim + value_dim], Q4_0, None
            yield p + "attn_gate.weight", [d, value_dim], Q4_0, None
            yield p + "ssm_conv1d.weight", [s["conv"], 2 * key_dim + value_dim], F32, None
            yield p + "ssm_dt.bias", [s["v_heads"]], F32, 0.5
            yield p + "ssm_a", [s["v_heads"]], F32, -0.05
            yield p + "ssm_beta.weight", [d, s["v_heads"]], Q4_0, None
            yield p + "ssm_alpha.weight", [d, s["v_heads"]], Q4_0, None
            yield p + "ssm_norm.weight", [s["gdn_dim"]], F32, 1.0
            yield p + "ssm_out.weight", [value_dim, d], Q4_0, None
        yield p + "ffn_gate_inp.weight", [d, s["experts"]], F32, None
        yield p + "ffn_gate_exps.weight", [d, s["expert_dim"], s["experts"]], Q4_0, None
        yield p + "ffn_up_exps.weight", [d, s["expert_dim"], s["experts"]], Q4_0, None
        yield p + "ffn_down_exps.weight", [s["expert_dim"], d, s["experts"]], Q4_0, None
        yield p + "ffn_gate_inp_shexp.weight", [d], F32, None
        yield p + "ffn_gate_shexp.weight", [d, s["shared_dim"]], Q4_0, None
        yield p + "ffn_up_shexp.weight", [d, s["shared_dim"]], Q4_0, None
        yield p + "ffn_down_shexp.weight", [s["shared_dim"], d], Q4_0, None
    yield "output_norm.weight", [d], F32, 1.0
    yield "output.weight", [d, s["vocab"]], Q4_0, None


def tensor_bytes(dims, kind):
    count = math.prod(dims)
    return count // BLOCK * BLOCK_BYTES if kind == Q4_0 else count * 4


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def encode_value(kind, value):
    if kind == "u32":
        return struct.pack("<II", 4, value)
    if kind == "f32":
        return struct.pack("<If", 6, value)
    if kind == "i32s":
        return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return struct.pack("<I", 8) + string(value)


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def header(name, shape, listing):
    keys = metadata(name, shape)
    out = [b"GGUF", struct.pack("<IQQ", 3, len(listing), len(keys))]
    out += [string(key) + encode_value(kind, value) for key, kind, value in keys]
    offset = 0
    for tensor, dims, kind, _ in listing:
        out.append(string(tensor) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims))
        out.append(struct.pack("<IQ", kind, offset))
        offset += padded(tensor_bytes(dims, kind))
    blob = b"".join(out)
    return blob + bytes(padded(len(blob)) - len(blob)), offset


def random_blocks(rng, count, n_in):
    """Q4_0 blocks whose weights have a deviation of 1/sqrt(n_in): codes are uniform over -8..7, deviation 4.61."""
    blocks = rng.integers(0, 256, size=(count, BLOCK_BYTES), dtype=np.uint8)
    scales = (rng.random(count, dtype=np.float32) + 0.5) / (4.61 * math.sqrt(n_in))
    blocks[:, :2] = scales.astype("<f2").view(np.uint8).reshape(count, 2)
    return blocks


def write_tensor(out, rng, dims, kind, fill):
    if kind == Q4_0:
        left = math.prod(dims) // BLOCK
        while left:
            count = min(left, CHUNK_BLOCKS)
            out.write(random_blocks(rng, count, dims[0]).data)
            left -= count
    elif fill is not None:
        out.write(np.full(math.prod(dims), fill, dtype="<f4").data)
    else:
        values = rng.standard_normal(math.prod(dims), dtype=np.float32) / np.float32(math.sqrt(dims[0]))
        out.write(values.astype("<f4").data)
    size = tensor_bytes(dims, kind)
    out.write(bytes(padded(size) - size))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="LilyTiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("path")
    args = parser.parse_args()

    shape = SHAPES[args.shape]
    listing = list(tensors(shape))
    head, data_bytes = header(args.shape, shape, listing)
    rng = np.random.default_rng(args.seed)
    partial = args.path + ".part"
    done = 0
    with open(partial, "wb") as out:
        out.write(head)
        for name, dims, kind, fill in listing:
            write_tensor(out, rng, dims, kind, fill)
            done += padded(tensor_bytes(dims, kind))
            if sys.stderr.isatty():
                print(f"\r{done / data_bytes:6.1%} of {data_bytes / 1e9:.1f} GB  {name:40}", end="", file=sys.stderr)
    os.replace(partial, args.path)
    print(f"{args.path}: {len(listing)} tensors, {(len(head) + data_bytes) / 1e9:.2f} GB", file=sys.stderr)


if __name__ == "__main__":
    main()
