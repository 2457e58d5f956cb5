"""Requests that other servers stumbled over, and what is not served yet: each is answered or refused by name."""
import json

import pytest

from test_http import BODY, error, get, post


def chat(server, **fields):
    body = {"model": "lily", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 4} | fields
    return server.ask(post(json.dumps(body).encode()))


def text(response):
    assert response.status == 200, response.body
    return json.loads(response.body)["choices"][0]["message"]["content"]


@pytest.mark.parametrize("body", [b'{"messages": [\xff', b"[]", b'"hi"', b"7", b"null", b"", BODY + b"x", BODY + BODY])
def test_j02_j07_bodies_that_are_no_object(server, body):
    response = server.ask(post(body))
    assert response.status == 400
    error(response)
    response.body.decode()


def test_j07_byte_order_mark(server):
    assert server.ask(post(b"\xef\xbb\xbf" + BODY)).status == 200


@pytest.mark.parametrize("messages", [
    [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}], [{"role": "user", "content": " "}],
    [{"role": "user", "content": "\n\n"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "b"}]])
def test_t05_blank_contents(server, messages):
    text(chat(server, messages=messages))


@pytest.mark.parametrize("name", ["two\nlines", "a.b-c/d", "n" * 300, 'quo"te', "\U0001f98a"])
def test_t14_odd_tool_names_are_answered_or_refused(server, name):
    response = chat(server, tools=[{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}])
    assert response.status in (200, 400)
    json.loads(response.body)


def test_p06_seeds_do_not_change_a_greedy_answer(server):
    assert len({text(chat(server, **seed)) for seed in ({}, {"seed": 7}, {"seed": -1}, {"seed": 2**63 - 1})}) == 1


@pytest.mark.parametrize("fields,param", [
    ({"n": 0}, "n"), ({"n": 2}, "n"), ({"n": 129}, "n"),                               # P10
    ({"logprobs": True, "top_logprobs": 20}, "logprobs"),                              # P07
    ({"stream": True, "stream_options": {"include_usage": True}}, "stream"),           # S07, S10, S11
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, "response_format"),  # R05
    ({"tool_choice": "required"}, "tool_choice"),                                      # C13, C14
    ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice")])
def test_what_is_not_served_is_refused_by_name(server, fields, param):
    with server.connect() as client:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4} | fields
        response = client.ask(post(json.dumps(body).encode()))
        assert response.status == 400 and error(response)["param"] == param
        assert client.ask(get()).status == 200
