"""HTTP as bytes against the built program: framing, limits, deadlines, access."""
import json
import socket
import struct
import time

import pytest

BODY = json.dumps({"model": "lily", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
                   "max_tokens": 4}).encode()
PATH = "/v1/chat/completions"


def post(body=BODY, headers="", path=PATH, length=None):
    length = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n"
    return head.encode() + body


def get(path="/health", headers="Host: localhost\r\n", method="GET", version="1.1"):
    return f"{method} {path} HTTP/{version}\r\n{headers}\r\n".encode()


def chunked(pieces, trailer=b"", extension=b""):
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces)
    return head + chunks + b"0\r\n" + trailer + b"\r\n"


def content(response):
    assert response.status == 200, response.body
    return json.loads(response.body)["choices"][0]["message"]["content"]


def error(response):
    found = json.loads(response.body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert int(response.headers["content-length"]) == len(response.body)
    return found


def test_h01_chunked_bodies(server):
    with server.connect() as client:
        plain = content(client.ask(post()))
        assert content(client.ask(chunked([BODY]))) == plain
        single = [bytes([b]) for b in BODY]
        assert content(client.ask(chunked(single, trailer=b"X-T: 1\r\n", extension=b";x=y"))) == plain
        assert content(client.ask(post())) == plain


def test_h02_length_and_chunked(server):
    with server.connect() as client:
        client.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode() + get())
        response = client.receive()
        assert response.status == 400 and error(response)
        assert client.closed()


@pytest.mark.parametrize("length", ["-5", "+43", "43abc", "43, 43", "43\r\nContent-Length: 44",
                                    "99999999999999999999"])
def test_h04_malformed_length(server, length):
    with server.connect() as client:
        start = time.monotonic()
        response = client.ask(post(length=length))
        assert response.status in (400, 413) and error(response)
        assert time.monotonic() - start < 1.9, "before the deadline of the body"


def test_h04_wrong_length(server):
    with server.connect() as client:
        assert client.ask(post(length=len(BODY) + 10)).status == 408
    with server.connect() as client:
        assert client.ask(post(length=len(BODY) - 3)).status == 400
        assert client.closed()


def test_h06_slow_clients(server):
    slow = [server.connect() for _ in range(200)]
    for client in slow:
        client.send(b"G")
    assert content(server.ask(post())) is not None
    for letter in (b"E", b"T"):
        for client in slow:
            client.send(letter)
    for client in slow:
        assert client.receive().status == 408
        client.socket.close()


def test_h07_expect_continue(start_server):
    server = start_server("--max-body", "2M").wait_ready()
    padding = json.loads(BODY) | {"metadata": {"x": "y" * (1 << 20)}}
    body = json.dumps(padding).encode()
    with server.connect() as client:
        client.send(post(b"", "Expect: 100-continue\r\n", length=len(body)))
        assert client.receive().status == 100
        client.send(body)
        assert client.receive().status == 200
    with server.connect() as client:
        client.send(post(b"", "Expect: 100-continue\r\n", length=3 << 20))
        response = client.receive()
        assert response.status == 413 and error(response)
        assert client.closed()
    with server.connect() as client:  # H08, chunked: cut off once the cap is passed
        client.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        client.send(b"200001\r\n")
        assert client.receive().status == 413
    assert server.ask(post()).status == 200
    assert server.stop() == 0


def test_h10_versions(server):
    for extra in ("", "Connection: keep-alive\r\n"):
        with server.connect() as client:
            response = client.ask(f"POST {PATH} HTTP/1.0\r\n{extra}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            assert content(response) is not None
            assert "transfer-encoding" not in response.headers
            assert client.closed()
    for version in ("2.0", "9.9"):
        assert server.ask(get(version=version)).status == 505


def test_h11_methods(server):
    with server.connect() as client:
        for path in ("/health", "/v1/models"):
            whole = client.ask(get(path))
            head = client.ask(get(path, method="HEAD"), head_only=True)
            assert head.status == 200 and head.headers["content-length"] == whole.headers["content-length"]
        options = client.ask(get(PATH, method="OPTIONS"))
        assert options.status == 204 and options.headers["allow"] == "POST, OPTIONS"
        for method in ("GET", "PUT"):
            refused = client.ask(get(PATH, method=method))
            assert refused.status == 405 and refused.headers["allow"] == "POST, OPTIONS" and error(refused)
        assert client.ask(get(method="M" * 300)).status == 501
        assert client.ask(get(method="OPTIONSX")).status == 501


def test_h12_cors(server):
    def preflight(origin):
        return server.ask(get(PATH, f"Host: localhost\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n",
                              "OPTIONS"))
    for origin in ("https://pages.example", "null"):
        refused = preflight(origin)
        assert "access-control-allow-origin" not in refused.headers
        assert refused.headers["vary"] == "Origin"
        response = server.ask(post(headers=f"Origin: {origin}\r\n"))
        assert response.status == 403 and error(response)
    local = "http://localhost:3000"
    assert preflight(local).headers["access-control-allow-origin"] == local
    response = server.ask(post(headers=f"Origin: {local}\r\n"))
    assert response.status == 200 and response.headers["access-control-allow-origin"] == local
    assert "access-control-allow-credentials" not in response.headers


def test_h13_rebinding(server):
    for host in (f"127.0.0.1:{server.port}", "localhost", f"[::1]:{server.port}"):
        assert server.ask(get("/v1/models", f"Host: {host}\r\n")).status == 200
    assert server.ask(get("/v1/models", f"Host: evil.example:{server.port}\r\n")).status == 403
    assert server.ask(get("/v1/models", "Host: localhost\r\nHost: localhost\r\n")).status == 400
    assert server.ask(get("/v1/models", "")).status == 400


def test_h15_paths(server):
    assert server.ask(post(path=f"{PATH}?{'x' * 300}")).status == 200
    response = server.ask(get(f"/v1/models/{'a' * 250}"))
    assert response.status == 404 and error(response)["code"] == "model_not_found"
    assert server.ask(get("/v1/modelsx")).status == 404


def test_h16_keys(start_server):
    server = start_server(env={"LILY_API_KEY": "sk-test-000"}).wait_ready()

    def models(headers, path="/v1/models"):
        return server.ask(get(path, f"Host: localhost\r\n{headers}")).status
    right = "Authorization: Bearer sk-test-000\r\n"
    assert models(right) == 200 and models("x-api-key: sk-test-000\r\n") == 200
    assert models("", "/health") == 200
    for path in ("/v1/models", "/v1/models/lily-tiny", PATH, "/nothing"):
        for wrong in ("", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", right + "x-api-key:\r\n",
                      right + "x-api-key: wrong\r\n", right + right, "Authorization: Bearer sk-test-0000\r\n"):
            assert models(wrong, path) == 401, (wrong, path)
    assert models("authorization: bearer sk-test-000\r\n") == 200
    assert server.ask(post()).status == 401
    assert server.ask(post(headers=right)).status == 200
    assert "sk-test" not in server.stderr()
    assert server.stop() == 0


@pytest.mark.parametrize("body", [b'{"messages":[{"role":"user","content":"\xc4\xe3\xba\xc3"}]}',
                                  b'{"messages": [\xff', b"[]", b"null", b"", BODY + b"x",
                                  BODY[:-1] + b',"metadata":' + b"[" * 200_000,
                                  b'{"messages":[]}', b'{"messages":[null]}'])
def test_bad_json_leaves_the_connection_usable(server, body):
    with server.connect() as client:
        response = client.ask(post(body))
        assert response.status == 400 and error(response)["type"] == "invalid_request_error"
        response.body.decode()
        assert client.ask(get()).status == 200


def test_j09_large_inputs(server):
    """8 MiB of text, many messages, many tools: refused for their length, while others are served."""
    message = {"role": "user", "content": "a"}
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 20, "parameters": {"type": "object"}}}
    bodies = [{"messages": [message | {"content": "a " * (4 << 20)}]}, {"messages": [message] * 50_000},
              {"messages": [message], "tools": [tool] * 3000}]
    clients = [server.connect() for _ in bodies]
    for client, body in zip(clients, bodies):
        client.send(post(json.dumps(body).encode()))
    assert server.ask(get()).status == 200
    assert content(server.ask(post())) is not None
    for client in clients:
        response = client.receive()
        assert response.status == 400 and error(response)["code"] == "context_length_exceeded"
        client.socket.close()


LONG = post(json.dumps({"messages": [{"role": "user", "content": "Count: " + "1 2 3 4 5 6 7 8 9 " * 300}],
                        "max_tokens": 20000}).encode())


def active(server):
    return json.loads(server.ask(get()).body)["active"]


def wait_active(server, wanted):
    deadline = time.monotonic() + 60
    while active(server) != wanted:
        assert time.monotonic() < deadline, f"active is {active(server)}, not {wanted}"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_o01_a_client_that_leaves(server, how):
    wait_active(server, 0)
    client = server.connect()
    client.send(LONG)
    wait_active(server, 1)
    if how == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    wait_active(server, 0)
    assert server.ask(post()).status == 200


def test_o01_half_close_is_not_a_cancel(server):
    with server.connect() as client:
        client.send(post())
        client.socket.shutdown(socket.SHUT_WR)
        assert content(client.receive()) is not None
        assert client.closed()


def test_connection_limit(start_server):
    server = start_server("--max-connections", "3").wait_ready()
    held = [server.connect() for _ in range(3)]
    for client in held:
        assert client.ask(get()).status == 200
    response = server.connect().receive()
    assert response.status == 503 and error(response)
    for client in held:
        client.socket.close()
    assert server.stop() == 0
