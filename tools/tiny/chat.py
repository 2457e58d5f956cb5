"""Rendering through the shipped chat template, and the tokens to train on."""

import json
import os
from pathlib import Path

import jinja2

from tasks import Sample

ROOT = Path(__file__).resolve().parents[2]
MODEL_DIR = Path(os.environ.get("LILY_TINY_DIR", ROOT / "models" / "lily-tiny"))


def load_template(path: Path) -> jinja2.Template:
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env.from_string(path.read_text())


def with_objects(message: dict) -> dict:
    """OpenAI's bodies hold call arguments as JSON text; the template wants the object."""
    if not message.get("tool_calls"):
        return message
    calls = [{"function": {"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}}
             for c in message["tool_calls"]]
    return {**message, "tool_calls": calls}


class Chat:
    def __init__(self, model_dir: Path = MODEL_DIR):
        self.template = load_template(model_dir / "chat_template.jinja")

    def prompt(self, messages: list, tools: list | None, thinking: bool) -> str:
        return self.template.render(messages=[with_objects(m) for m in messages], tools=tools,
                                    add_generation_prompt=True, enable_thinking=thinking)

    def sample(self, s: Sample) -> tuple:
        """(prompt, reply): the reply ends the turn itself."""
        return self.prompt(s.messages, s.tools, s.thinking), reply(s)


def call_text(name: str, arguments: dict) -> str:
    body = "".join(f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n"
                   for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def reply(s: Sample) -> str:
    parts = [s.answer] if s.answer else []
    parts += ["\n".join(call_text(n, a) for n, a in s.calls)] if s.calls else []
    text = "\n\n".join(parts) + "<|im_end|>"
    return f"{s.thought}\n</think>\n\n{text}" if s.thinking else text
