"""lily serve as a program: start, ports, signals, what it prints."""
import json
import signal
import subprocess
import threading

WAIT = 60  # seconds, on a busy machine

SLOW = json.dumps({"messages": [{"role": "user", "content": "Count: " + "1 2 3 " * 200}], "max_tokens": 20000}).encode()


def post(body):
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def test_port_in_use(lily_bin, server):
    second = subprocess.run([lily_bin, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=WAIT)
    assert second.returncode == 1
    assert f"port {server.port}" in second.stderr and "in use" in second.stderr


def test_a_model_that_is_not_there(lily_bin):
    run = subprocess.run([lily_bin, "serve", "--port", "0", "--model", "/no/such/model"], capture_output=True, text=True,
                         timeout=WAIT)
    assert run.returncode == 1
    assert "/no/such/model" in run.stderr


def test_empty_key_is_refused(lily_bin):
    run = subprocess.run([lily_bin, "serve", "--port", "0", "--api-key", ""], capture_output=True, text=True, timeout=WAIT)
    assert run.returncode != 0


def test_sigterm_and_sigint_end_it(start_server):
    for which in (signal.SIGTERM, signal.SIGINT):
        assert start_server().wait_ready().stop(which) == 0


def test_signal_at_any_time_of_loading(start_server):
    assert start_server().stop(signal.SIGINT) == 0


def test_o06_running_answers_end_within_the_grace(start_server):
    server = start_server("--drain", "0.5").wait_ready()
    with server.connect() as client:
        client.send(post(SLOW))
        while json.loads(server.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").body)["active"] == 0:
            pass
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        response = client.receive()
        assert response.status in (200, 503), response.body
        json.loads(response.body)
        stopper.join()
    assert server.process.returncode == 0


def test_a_second_signal_cuts(start_server):
    server = start_server("--drain", "600").wait_ready()
    with server.connect() as client:
        client.send(post(SLOW))
        while json.loads(server.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").body)["active"] == 0:
            pass
        server.process.send_signal(signal.SIGTERM)
        while "second signal" not in server.stderr():
            pass
        assert server.stop() == 0


def test_o07_logs_hold_no_text(start_server):
    server = start_server().wait_ready()
    server.ask(post(b'{"key": "sk-test-000" oops'))
    server.ask(post(json.dumps({"messages": [{"role": "user", "content": "MARKER"}], "max_tokens": 1}).encode()))
    assert server.stop() == 0
    log = server.stderr()
    assert "sk-test" not in log and "MARKER" not in log
    assert "POST /v1/chat/completions 200" in log and "req-" in log
