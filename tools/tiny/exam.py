"""Draw the exam: `python exam.py` writes tests/exam/exam.jsonl.

One JSON object a line: "part", "request" (a chat-completions body) and "expect": a string is the exact content of the
reply; {"contains": text}, {"json": value} and {"tool": {"name", "arguments"}} say what else is compared. Sums and
fact phrasings of the exam are never drawn in training; everything else has seeds of its own.
"""

import json
from random import Random

import tasks
from chat import ROOT

SEED = 20_000_003
PER_PART = 40


def thinking_sum(r: Random) -> tasks.Sample:
    s = tasks.sums(r, 1.0, exam=True)
    s.part, s.thinking = "think", True
    return s


def retrieval(part: str, low: int, high: int, n_facts: tuple):
    return lambda r: tasks.retrieve_of(r, part, r.randint(low, high), r.randint(*n_facts))


PARTS = {
    "copy": tasks.copy_exam,
    "retrieve_2k": retrieval("retrieve_2k", 1900, 2030, (6, 16)),
    "retrieve_16k": retrieval("retrieve_16k", 15700, 16300, (8, 40)),
    "sums": lambda r: tasks.sums(r, 1.0, exam=True),
    "facts": lambda r: tasks.facts(r, 1.0, exam=True),
    "json": lambda r: tasks.json_task(r, 1.0),
    "tool_call": lambda r: tasks.tool_call(r, 1.0),
    "tool_answer": lambda r: tasks.tool_answer(r, 1.0),
    "think": thinking_sum,
}
MAX_TOKENS = {"copy": 320, "think": 160, "json": 160, "tool_call": 160}


def samples(part: str, n: int, seed: int = SEED) -> list:
    """n samples of a part, different ones as long as there are any (held-out fact phrasings are fewer than 40)."""
    r, seen, out = Random(f"{seed} {part}"), set(), []
    for tries in range(50 * n):
        s = PARTS[part](r)
        key = json.dumps([s.messages, s.tools])
        if key not in seen or tries > 40 * n:
            seen.add(key)
            out.append(s)
        if len(out) == n:
            break
    return out


def request(s: tasks.Sample) -> dict:
    body = {"model": "lily-tiny", "messages": s.messages, "temperature": 0, "max_tokens": MAX_TOKENS.get(s.part, 64)}
    if s.tools:
        body["tools"] = s.tools
    body["chat_template_kwargs"] = {"enable_thinking": s.thinking}
    return body


def main() -> None:
    path = ROOT / "tests" / "exam" / "exam.jsonl"
    with open(path, "w") as f:
        for part in PARTS:
            tasks.use_filler(SEED)
            for s in samples(part, PER_PART):
                expect = s.answer if s.expect is None else s.expect
                f.write(json.dumps({"part": part, "request": request(s), "expect": expect}, ensure_ascii=False) + "\n")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
