#!/usr/bin/env python3
"""Starts the server on the embedded model, asks it a few questions through the openai client, stops it."""
import re
import subprocess
import sys

from openai import OpenAI


def main() -> int:
    binary = sys.argv[1]
    server = subprocess.Popen([binary, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = None
        for line in server.stdout:
            print(line, end="", flush=True)
            if found := re.search(r"http://[\w.\[\]:]+", line):
                url = found[0]
                break
        if not url:
            print("error: the server did not start", file=sys.stderr)
            return 1
        client = OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key="none", max_retries=20)
        messages = []
        for question in sys.argv[2:] or ["Hello! Who are you?", "What is 27 + 45?"]:
            messages.append({"role": "user", "content": question})
            reply = client.chat.completions.create(model="lily-tiny", messages=messages, max_tokens=200)
            answer = reply.choices[0].message.content
            messages.append({"role": "assistant", "content": answer})
            cached = reply.usage.prompt_tokens_details.cached_tokens
            print(f"\nyou:  {question}\nlily: {answer}")
            print(f"      ({reply.usage.prompt_tokens} prompt tokens, {cached} of them cached, "
                  f"{reply.usage.completion_tokens} generated)")
    finally:
        server.terminate()
        server.wait(timeout=20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
