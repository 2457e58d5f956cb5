#!/usr/bin/env python3
"""LilyTiny's exam over HTTP: every line of exam.jsonl as a chat completion, judged by its `expect`.

    tests/exam/run.py build/release/lily                       the whole exam on the cpu backend
    tests/exam/run.py build/release/lily --per-part 4          four lines of each part
    tests/exam/run.py build/release/lily --against reference   and the same lines on a second backend: answers must be equal
    tests/exam/run.py build/release/lily --jobs 16 --threads 1 that many servers side by side

Prints a row for each part and leaves the failures in --log. Exit status 1 if a part has less than its pass mark, or an
answer differs between the backends. Standard library only.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.request

EXAM = pathlib.Path(__file__).resolve().parent / "exam.jsonl"
PASS_MARK = collections.defaultdict(lambda: 0.9, retrieve_16k=0.7)


class Server:
    """`lily serve` on a free port."""

    def __init__(self, binary: str, device: str, threads: int):
        command = [binary, "serve", "--port", "0", "--device", device, "--threads", str(threads), "--log-level", "error"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if found := re.search(r"http://[\w.\[\]]+:\d+", line):
                self.url = found[0]
                break
        else:
            raise RuntimeError(f"{' '.join(command)} did not start")
        threading.Thread(target=lambda: [None for _ in self.process.stdout], daemon=True).start()
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).read()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server did not become ready")

    def answer(self, request: dict) -> dict:
        body = json.dumps(request).encode()
        call = urllib.request.Request(self.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=3600) as reply:
            completion = json.load(reply)
        message = completion["choices"][0]["message"]
        return {
            "content": message.get("content"),
            "reasoning": message.get("reasoning_content"),
            "tools": [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []],
            "tokens": completion["usage"]["completion_tokens"],
            "finish": completion["choices"][0]["finish_reason"],
        }

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def is_right(expect, reply: dict) -> bool:
    content = reply["content"] or ""
    if isinstance(expect, str):
        return content == expect
    if "contains" in expect:
        return expect["contains"] in content
    if "json" in expect:
        try:
            return json.loads(content) == expect["json"]
        except ValueError:
            return False
    return reply["tools"] == [(expect["tool"]["name"], expect["tool"]["arguments"])]


def answer_all(lines: list, binary: str, device: str, jobs: int, threads: int) -> list:
    replies = [None] * len(lines)
    # Long prompts first, so that the last worker to finish is not the one that got the longest.
    order = sorted(range(len(lines)), key=lambda i: -len(json.dumps(lines[i]["request"])))
    queue = collections.deque(order)
    failures = []

    def work():
        try:
            server = Server(binary, device, threads)
            while queue:
                try:
                    index = queue.popleft()
                except IndexError:
                    break
                replies[index] = server.answer(lines[index]["request"])
            server.stop()
        except Exception as error:  # noqa: BLE001: reported by the main thread
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            worker.join(timeout=1)
        if sys.stderr.isatty():
            print(f"\r{device}: {sum(r is not None for r in replies)} of {len(lines)}", end="", file=sys.stderr)
    if failures:
        raise failures[0]
    return replies


def chosen(parts: list, per_part: int, long_per_part: int) -> list:
    taken = collections.Counter()
    lines = []
    for line in map(json.loads, EXAM.read_text().splitlines()):
        limit = min(per_part, long_per_part) if line["part"] == "retrieve_16k" else per_part
        if (not parts or line["part"] in parts) and taken[line["part"]] < limit:
            taken[line["part"]] += 1
            lines.append(line)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--against", help="a second backend whose answers must be the same")
    parser.add_argument("--parts", nargs="*", default=[])
    parser.add_argument("--per-part", type=int, default=10**9)
    parser.add_argument("--long-per-part", type=int, default=10**9, help="of retrieve_16k, whose prompts take longest")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--log", help="file for the lines that failed")
    options = parser.parse_args()

    lines = chosen(options.parts, options.per_part, options.long_per_part)
    replies = answer_all(lines, options.binary, options.device, options.jobs, options.threads)
    others = replies
    if options.against:
        others = answer_all(lines, options.binary, options.against, options.jobs, options.threads)

    total, right, same = collections.Counter(), collections.Counter(), collections.Counter()
    bad = []
    for line, reply, other in zip(lines, replies, others):
        part = line["part"]
        total[part] += 1
        right[part] += is_right(line["expect"], reply)
        same[part] += reply == other
        if not is_right(line["expect"], reply) or reply != other:
            bad.append({"part": part, "expect": line["expect"], options.device: reply, options.against or "": other})
    if options.log:
        pathlib.Path(options.log).write_text("".join(json.dumps(entry) + "\n" for entry in bad))

    print(f"{'part':<14}{'lines':>6}{'right':>8}" + (f"{'as ' + options.against:>14}" if options.against else ""))
    for part in total:
        row = f"{part:<14}{total[part]:>6}{right[part] / total[part]:>8.1%}"
        print(row + (f"{same[part]:>10} of {total[part]}" if options.against else ""))
    failed = [p for p in total if right[p] < PASS_MARK[p] * total[p]] + [p for p in total if same[p] < total[p]]
    print("failed: " + ", ".join(failed) if failed else "passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
