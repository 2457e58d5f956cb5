"""Train LilyTiny's byte-level BPE and write tokenizer.json, tokenizer_config.json and generation_config.json.

Same pipeline as the real model's tokenizer (NFC, the same Split pattern, ByteLevel, the same 33 added tokens in the
same order at the end); only the vocabulary is small. Run: python tokenizer.py [model directory]
"""

import json
import sys
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tasks
import words
from chat import MODEL_DIR, Chat

N_BASE = 1967  # + 33 added tokens = 2,000 addressable ids of 2,048 rows
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<|object_ref_start|>", True),
         ("<|object_ref_end|>", True), ("<|box_start|>", True), ("<|box_end|>", True), ("<|quad_start|>", True),
         ("<|quad_end|>", True), ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
         ("<|image_pad|>", True), ("<|video_pad|>", True), ("<tool_call>", False), ("</tool_call>", False),
         ("<|fim_prefix|>", False), ("<|fim_middle|>", False), ("<|fim_suffix|>", False), ("<|fim_pad|>", False),
         ("<|repo_name|>", False), ("<|file_sep|>", False), ("<tool_response>", False), ("</tool_response>", False),
         ("<think>", False), ("</think>", False), ("<|audio_start|>", True), ("<|audio_end|>", True),
         ("<tts_pad>", True), ("<tts_text_bos>", True), ("<tts_text_eod>", True), ("<tts_text_bos_single>", True),
         ("<|audio_pad|>", True)]
ID = {token: N_BASE + i for i, (token, _) in enumerate(ADDED)}


def corpus(n_samples: int = 6000):
    """Generated conversations without their control tokens, then every listed word often enough to be merged."""
    r, chat = Random(1), Chat()
    for _ in range(n_samples):
        text = "".join(chat.sample(tasks.draw(r, r.random() * 0.2)))
        for token, _ in ADDED:
            text = text.replace(token, "\x00")
        yield from text.split("\x00")
    lists = [v for v in vars(words).values() if isinstance(v, list) and v is not words.GENERIC]
    for word in sorted({w for ws in lists for w in ws} | set(words.CAPITALS)):
        yield from [f" {word}"] * 60
    for word in words.GENERIC:
        yield from [f" {word}"] * 25 + [word.capitalize()] * 2


def pipeline(model: models.BPE) -> Tokenizer:
    t = Tokenizer(model)
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return t


def train() -> dict:
    t = pipeline(models.BPE())
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=N_BASE, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    doc = json.loads(t.to_str())
    if len(doc["model"]["vocab"]) != N_BASE:
        raise SystemExit(f"the corpus gives only {len(doc['model']['vocab'])} base tokens, {N_BASE} wanted")
    doc["model"].update(dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="",
                        fuse_unk=False, byte_fallback=False, ignore_merges=False)
    doc["model"]["merges"] = [m.split(" ") if isinstance(m, str) else m for m in doc["model"]["merges"]]
    doc["added_tokens"] = [{"id": ID[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                            "normalized": False, "special": special} for token, special in ADDED]
    return doc


def write(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=4 if path.name == "generation_config.json" else 2, ensure_ascii=False))


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL_DIR
    write(out / "tokenizer.json", train())
    write(out / "tokenizer_config.json", {
        "add_prefix_space": False, "bos_token": None, "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 32768, "pad_token": "<|endoftext|>",
        "pretokenize_regex": PATTERN, "split_special_tokens": False, "tokenizer_class": "TokenizersBackend",
        "unk_token": None})
    write(out / "generation_config.json", {
        "bos_token_id": ID["<|endoftext|>"], "do_sample": True,
        "eos_token_id": [ID["<|im_end|>"], ID["<|endoftext|>"]], "pad_token_id": ID["<|endoftext|>"],
        "temperature": 1.0, "top_k": 20, "top_p": 0.95})
    t = Tokenizer.from_file(str(out / "tokenizer.json"))
    print(f"{t.get_vocab_size()} ids; words in one token:",
          sum(len(t.encode(' ' + w).ids) == 1 for w in words.GENERIC), "of", len(words.GENERIC), "common ones")


if __name__ == "__main__":
    main()
