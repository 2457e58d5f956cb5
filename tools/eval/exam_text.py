#!/usr/bin/env python3
"""Writes the exam of the tiny model as one text in its chat format, questions with their expected answers.

    tools/eval/exam_text.py tests/exam/exam.jsonl > exam.txt
    lily eval --text exam.txt --tokens 20K --context 4K --activations int8 --against cpu:int16

It is text that the model was trained to predict, so that its perplexity means something. Parts whose answer is not a
plain string are left out, and so are the prompts of 16,000 tokens.
"""

import json
import sys


def main():
    for line in open(sys.argv[1]):
        row = json.loads(line)
        if not isinstance(row["expect"], str) or row["part"] == "retrieve_16k" or row["request"].get("tools"):
            continue
        for message in row["request"]["messages"]:
            print(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>")
        print(f"<|im_start|>assistant\n<think>\n\n</think>\n\n{row['expect']}<|im_end|>")


if __name__ == "__main__":
    main()
