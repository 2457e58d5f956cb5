"""Our chat template against jinja2 executing the template file, over generated conversations; JSON against Python's.

LILY_CONVERSATIONS sets their number (default 2,000 for each template).
"""
import hashlib
import json
import os
import random

import pytest

jinja2 = pytest.importorskip("jinja2")
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402
from text_oracle import TINY, Driver  # noqa: E402

BLANKS = ["", " ", "\n", "\n\n", "  \n", "\t", "\u00a0", "\u2003", "\x1c", "\x85", "\r\n", "\u200b"]
WORDS = ["hi", "Straße", "नमस्ते", "日本", "a < b", "&amp;", "\"quoted\"", "it's", "\\n", "{}", "{{ x }}", "{% if %}", "\U0001f98a",
         "<think>", "</think>", "\n</think>\n\n", "<think>\nwhy\n</think>\n\n", "<tool_call>", "</tool_call>", "<tool_response>",
         "</tool_response>", "<|im_end|>", "<|im_start|>", "line one\nline two", "<function=f>", "12", "\u0301", "\x7f", "\x00"]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env


@pytest.fixture(scope="module", params=["qwen3.6", "lily-tiny"])
def both(request):
    """(compiled Jinja template, our driver with the same template, name)"""
    path = TINY / "chat_template.jinja"
    if request.param == "qwen3.6":
        path = request.getfixturevalue("shared") / "checkpoint/chat_template.jinja"
    text = path.read_bytes()
    driver = Driver(TINY / "tokenizer.json")
    [(ok, name)] = driver.ask("k", [text])
    assert ok, name
    yield environment().from_string(text.decode()), driver, request.param
    driver.close()


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def text(self):
        n = self.rng.choice((0, 1, 1, 2, 3, 6))
        body = self.rng.choice((" ", "", "\n")).join(self.rng.choice(WORDS) for _ in range(n))
        return self.rng.choice(BLANKS) + body + self.rng.choice(BLANKS)

    def number(self):
        return self.rng.choice((0, -1, 7, 2**53 + 1, -2**63, 2**64 - 1, 0.1, 1.0, -0.0, 1e16, 1e-7, 123456.789, 5e-324, 1e22))

    def value(self, depth=0):
        kind = self.rng.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return None
        if kind == 1:
            return self.rng.random() < 0.5
        if kind == 2:
            return self.number()
        if kind <= 4:
            return self.text()
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        return {self.text() or "k": self.value(depth + 1) for _ in range(self.rng.randrange(4))}

    def tool(self):  # case T11: odd schemas, members in any order, which the prompt keeps
        function = {"name": self.rng.choice(("add", "a.b-c/d", "é", "\U0001f98a", "</tool_call>")), "description": self.text()}
        if self.rng.random() < 0.8:
            members = [("type", "object"), ("properties", {"x": self.value(), "y": {"anyOf": [{"$ref": "#/$defs/q"}]}}),
                       ("required", ["x"])]
            self.rng.shuffle(members)
            function["parameters"] = dict(members[:self.rng.randrange(4)])
        return self.rng.choice(({"type": "function", "function": function}, function, self.value()))

    def message(self):
        role = self.rng.choice(("user", "user", "assistant", "assistant", "tool", "tool"))
        message = {"role": role, "content": self.text()}
        if role == "user" and self.rng.random() < 0.15:
            message["content"] = "<tool_response>\n" + self.text() + "\n</tool_response>"
        if role == "assistant":
            if self.rng.random() < 0.2:
                message["content"] = None
            if self.rng.random() < 0.4:
                message["reasoning_content"] = self.text()
            if self.rng.random() < 0.5:
                message["tool_calls"] = [
                    {"id": f"c{i}", "type": "function",
                     "function": {"name": self.rng.choice(("f", "get weather", "é")),
                                  "arguments": {self.rng.choice("abcdé") + str(k): self.value() for k in range(self.rng.randrange(3))}}}
                    for i in range(self.rng.randrange(4))]
        return message

    def conversation(self):
        messages = [self.message() for _ in range(self.rng.choice((1, 2, 3, 4, 6, 12)))]
        if self.rng.random() < 0.5:
            messages.insert(0, {"role": "system", "content": self.text()})
        if self.rng.random() < 0.05:
            messages.append({"role": "system", "content": self.text()})
        return {"messages": messages, "tools": [self.tool() for _ in range(self.rng.choice((0, 0, 1, 3)))],
                "add_generation_prompt": self.rng.random() < 0.8, "enable_thinking": self.rng.random() < 0.5,
                "preserve_thinking": self.rng.random() < 0.3, "strict": True}


def packed(request):
    return json.dumps(request, ensure_ascii=self_ascii(request)).encode()


def self_ascii(request):
    return len(request["messages"]) % 2 == 0  # both spellings of non-ASCII reach the JSON reader


def reference(template, request):
    return template.render(**{k: v for k, v in request.items() if k != "strict"})


def test_generated_conversations(both):
    template, driver, _ = both
    generator = Generator(8)
    requests = [generator.conversation() for _ in range(int(os.environ.get("LILY_CONVERSATIONS", "2000")))]
    rendered = refused = 0
    for request, (ok, text) in zip(requests, driver.ask("r", [packed(r) for r in requests])):
        try:
            expected = reference(template, request)
        except jinja2.exceptions.TemplateError as error:
            assert not ok and text.decode() == error.message, request
            refused += 1
            continue
        assert ok, (text, request)
        assert text.decode() == expected, request
        rendered += 1
    print(f"{rendered} rendered alike, {refused} refused alike")
    assert rendered >= len(requests) // 2


def test_ids_are_those_of_the_whole_string(both):
    """Where no content holds a control literal, the spans are tokenised as the reference tokenises the whole prompt."""
    tokenizers = pytest.importorskip("tokenizers")
    template, driver, _ = both
    hf = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))
    generator = Generator(9)
    requests = []
    while len(requests) < 500:
        request = generator.conversation()
        if not any(t in json.dumps(request) for t in ("<think>", "</think>", "<tool_", "</tool_", "<|im_")):
            requests.append(request)
    compared = 0
    for request, (ok, ids) in zip(requests, driver.ask("i", [packed(r) for r in requests])):
        if ok:
            got = [int.from_bytes(ids[i:i + 4], "little") for i in range(0, len(ids), 4)]
            assert got == hf.encode(reference(template, request), add_special_tokens=False).ids, request
            compared += 1
    assert compared > 100


def test_check_vectors(both):
    """Digests of two prompts with a tool, made independently of this file."""
    _, driver, name = both
    if name != "qwen3.6":
        pytest.skip("the digests are Qwen3.6's")
    tool = {"type": "function", "function": {"name": "f", "description": "d <é> \"q\"",
                                             "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
    user = {"role": "user", "content": "a"}
    for messages, size, digest in (
            ([user], 1131, "902438a854a43d931c723104120f8764549eb63c173567e86556a8f8ad0fdb27"),
            ([{"role": "system", "content": "sys"}, user], 1136,
             "980ba88475dc530cf2e79d0a547a93c1607b33de8410a07c2a6977e0bedd438d")):
        sizes = []
        for prompt, thinking in ((True, True), (True, False), (False, False)):
            request = {"messages": messages, "tools": [tool], "add_generation_prompt": prompt, "enable_thinking": thinking}
            [(ok, text)] = driver.ask("r", [packed(request)])
            assert ok
            sizes.append((len(text), hashlib.sha256(text).hexdigest()))
        assert (size, digest) in sizes


def test_json_is_pythons(both):
    _, driver, _ = both
    generator = Generator(10)
    values = [generator.value() for _ in range(5000)]
    rng = random.Random(11)
    for _ in range(20000):  # doubles over the whole range, and short decimals
        values.append(float(f"{rng.randrange(10 ** rng.randrange(1, 18))}e{rng.randrange(-330, 290)}"))
        values.append(round(rng.uniform(-1e6, 1e6), rng.randrange(8)))
    for value, (ok, text) in zip(values, driver.ask("j", [json.dumps(v).encode() for v in values])):
        assert ok and text.decode() == json.dumps(value, ensure_ascii=False), value
    for value, (ok, text) in zip(values, driver.ask("c", [json.dumps(v).encode() for v in values])):
        assert ok and json.loads(text) == value, value
