"""Load models/lily-tiny with mlx-lm and let it sit some of the exam, greedily, on the CPU.

Run: python check_mlx.py [lines a part] [part ...]        prints the share right for each part
"""

import json
import re
import sys

import mlx.core as mx
import mlx_lm
from mlx_lm.sample_utils import make_sampler

from chat import MODEL_DIR, ROOT, with_objects

CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.S)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.S)


def answer(model, tokenizer, request: dict) -> tuple:
    """(reasoning, content)"""
    thinking = request["chat_template_kwargs"]["enable_thinking"]
    prompt = tokenizer.apply_chat_template([with_objects(m) for m in request["messages"]], tools=request.get("tools"),
                                           add_generation_prompt=True, enable_thinking=thinking)
    text = mlx_lm.generate(model, tokenizer, prompt=prompt, max_tokens=request["max_tokens"],
                           sampler=make_sampler(temp=0.0))
    reasoning, end, content = text.partition("</think>\n\n") if thinking else ("", "", text)
    return reasoning, content


def typed(text: str, like: object):
    return text if isinstance(like, str) else json.loads(text)


def right(content: str, expect) -> bool:
    if isinstance(expect, str):
        return content == expect
    if "contains" in expect:
        return expect["contains"] in content
    try:
        if "json" in expect:
            return json.loads(content) == expect["json"]
        name, body = CALL.search(content).groups()
        wanted = expect["tool"]["arguments"]
        got = {k: typed(v, wanted.get(k, "")) for k, v in PARAMETER.findall(body)}
        return (name, got) == (expect["tool"]["name"], wanted)
    except (ValueError, AttributeError):
        return False


def main() -> None:
    mx.set_default_device(mx.cpu)
    n_lines = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    model, tokenizer = mlx_lm.load(str(MODEL_DIR))
    lines = [json.loads(line) for line in open(ROOT / "tests" / "exam" / "exam.jsonl")]
    parts = sys.argv[2:] or [p for p in dict.fromkeys(line["part"] for line in lines) if p != "retrieve_16k"]
    for part in parts:
        chosen = [line for line in lines if line["part"] == part][:n_lines]
        n_right = 0
        for line in chosen:
            reasoning, content = answer(model, tokenizer, line["request"])
            fine = right(content, line["expect"])
            n_right += fine
            if not fine:
                print(f"  {part}: {content!r} instead of {line['expect']!r}"[:400])
        print(f"{part}: {n_right} of {len(chosen)}", flush=True)


if __name__ == "__main__":
    main()
