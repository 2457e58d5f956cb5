"""The API through the openai client, as its users meet it."""
import openai
import pytest


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def ask(client, content, **options):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return client.chat.completions.create(model="lily", messages=messages, **{"temperature": 0, "max_tokens": 16} | options)


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["lily-tiny"]
    assert client.models.retrieve("lily-tiny").id == "lily-tiny"
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("another")
    assert raised.value.code == "model_not_found"


def test_answer_and_usage(client):
    reply = ask(client, "hi")
    choice = reply.choices[0]
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason in ("stop", "length")
    assert reply.model == "lily-tiny" and reply.system_fingerprint
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_same_answer_with_and_without_cache(client):
    answers = {ask(client, "Tell me about rivers.", extra_body={"cache": use}).choices[0].message.content
               for use in (True, True, False)}
    assert len(answers) == 1


def test_t06_short_prompts(client):
    assert ask(client, "hi", max_tokens=1).usage.completion_tokens == 1


def test_p01_p02_limits(client):
    none = ask(client, "hi", max_tokens=0)
    assert none.choices[0].message.content == "" and none.choices[0].finish_reason == "length"
    assert none.usage.completion_tokens == 0
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, "hi", max_tokens=-2)
    assert raised.value.param == "max_tokens"
    both = ask(client, "Write a long story.", max_tokens=9, max_completion_tokens=3)
    assert both.usage.completion_tokens <= 3


def test_p03_p04_context_limit(start_server):
    server = start_server("--max-seq", "512").wait_ready()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    n = 100
    while (used := ask(client, " 1" * n, max_tokens=0).usage.prompt_tokens) < 500:
        n += max(1, (500 - used) // 4)
    rest = ask(client, " 1" * n, max_tokens=None)
    assert rest.usage.prompt_tokens + rest.usage.completion_tokens <= 512
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, " 1" * 600)
    assert raised.value.code == "context_length_exceeded" and "512" in raised.value.message
    assert server.stop() == 0


def test_p09_model_names(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "hi"}])
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize("options,param", [
    ({"temperature": 0.7}, "temperature"), ({"n": 2}, "n"), ({"logprobs": True}, "logprobs"),
    ({"response_format": {"type": "json_object"}}, "response_format"), ({"tool_choice": "required"}, "tool_choice"),
    ({"extra_body": {"stream": True}}, "stream"), ({"frequency_penalty": 1.0}, "frequency_penalty")])
def test_what_is_not_there_is_refused_by_name(client, options, param):
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, "hi", **options)
    assert raised.value.param == param


def test_j10_harmless_fields(client):
    raw = client.chat.completions.with_raw_response.create(
        model="lily", messages=[{"role": "user", "content": "hi"}], max_tokens=1, seed=7, top_p=0.5, user="u", store=True,
        metadata={"a": "b"}, extra_body={"logit_bais": {}})
    assert raw.headers["x-lily-warning"] == "ignored unknown fields: logit_bais"
    assert raw.headers["x-request-id"]


def test_t03_missing_contents_are_the_same(client):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    seen = set()
    for extra in ({"content": None}, {}, {"content": ""}, {"content": []}):
        messages = [{"role": "user", "content": "2+3?"}, {"role": "assistant", "tool_calls": [call], **extra},
                    {"role": "tool", "tool_call_id": "c1", "content": "5"}, {"role": "user", "content": "thanks"}]
        reply = ask(client, messages)
        seen.add((reply.usage.prompt_tokens, reply.choices[0].message.content))
    assert len(seen) == 1


def test_t01_late_system_message(client):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"}, {"role": "system", "content": "The clock says noon."},
                {"role": "user", "content": "Time?"}]
    assert ask(client, messages).choices[0].message.role == "assistant"


def test_t04_images_are_refused(client):
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, [{"role": "user", "content": parts}])
    assert raised.value.param == "messages[0].content[1].type"


def test_x01_second_turn_hits_the_cache(client):
    system = {"role": "system", "content": "You know these words: " + " ".join(f"word{i}" for i in range(300))}
    first = [system, {"role": "user", "content": "hi"}]
    answer = ask(client, first)
    second = [*first, {"role": "assistant", "content": answer.choices[0].message.content},
              {"role": "user", "content": "and?"}]
    warm = ask(client, second)
    cold = ask(client, second, extra_body={"cache": False})
    # everything up to the end of the first user turn; the generation prompt behind it is a handful of tokens
    assert warm.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens - 8
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.choices[0].message.content == cold.choices[0].message.content


def test_r08_thinking(client):
    reply = ask(client, "What is 2+2?", max_tokens=64, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    details = reply.usage.completion_tokens_details
    assert 0 <= details.reasoning_tokens <= reply.usage.completion_tokens
    assert "</think>" not in (reply.choices[0].message.content or "")
