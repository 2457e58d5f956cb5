"""A running `lily serve` on the model inside the program, and a client that sends bytes as they are."""
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import pytest

WAIT = 60  # seconds for anything that should be quick, on a busy machine


class Server:
    def __init__(self, binary, *options, env=None):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [binary, "serve", "--port", "0", *options], stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("LILY_")}, **(env or {})})
        line = self.process.stdout.readline()
        found = re.search(r"http://(\S+):(\d+)", line)
        assert found, f"no address in {line!r}; {self.stderr()}"
        self.url, self.port = found[0], int(found[2])

    def wait_ready(self):
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            if self.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status == 200:
                return self
            assert self.process.poll() is None, self.stderr()
            time.sleep(0.02)
        raise AssertionError("the model did not load")

    def connect(self):
        return Client(self.port)

    def ask(self, data):
        with self.connect() as client:
            return client.ask(data)

    def stop(self, with_signal=signal.SIGTERM):
        """Ends the server and gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            return self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()

    def stderr(self):
        self.log.seek(0)
        return self.log.read()


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Client:
    """One connection. receive() takes the next answer; status 0 means that the server closed instead."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _fill(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def receive(self, head_only=False):
        while b"\r\n\r\n" not in self.buffer:
            if not self._fill():
                return Response(0, {}, self.buffer)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
        length = 0 if head_only else int(headers.get("content-length", 0))
        while len(self.buffer) < length and self._fill():
            pass
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Response(int(lines[0].split(" ")[1]), headers, body)

    def ask(self, data, head_only=False):
        self.send(data)
        return self.receive(head_only)

    def closed(self):
        return not self.buffer and not self._fill()


@pytest.fixture(scope="session")
def start_server(lily_bin):
    """start_server(*options): a server of one's own; ends with the test run at the latest."""
    started = []

    def start(*options, env=None):
        started.append(Server(lily_bin, *options, env=env))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(start_server):
    """The server that most tests share: default options but short deadlines."""
    running = start_server("--head-timeout", "2", "--body-timeout", "2").wait_ready()
    yield running
    assert running.process.poll() is None, "the server died: " + running.stderr()
