"""The command line as a person and a script meet it: messages, exit codes, pipes, and a terminal (pty)."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

COMMANDS = ["serve", "chat", "generate", "bench", "eval", "inspect", "verify", "synth"]
LONG = "Repeat this text: " + " ".join(f"the {word} stone lies in the river" for word in "red blue old new big".split())
PROMPT = r">(\x1b\[0m)? "
PATIENCE = 60  # seconds before a test gives up on a program; never a measure of speed


def run(lily_bin, *args, **kwargs):
    kwargs.setdefault("stdin", subprocess.DEVNULL if "input" not in kwargs else None)
    if kwargs["stdin"] is None:
        del kwargs["stdin"]
    return subprocess.run([lily_bin, *args], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


class Terminal:
    """A program on a pseudo terminal of its own, with what it has written so far."""

    def __init__(self, command, **env):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")  # 24 lines of 80

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        environment = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "LILY_HISTORY": "", **env}
        environment.pop("NO_COLOR", None) if "NO_COLOR" not in env else None
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env=environment)
        os.close(slave)
        self.master = master
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def send(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, pattern, since=0):
        """The end of the first match after `since`."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.compile(pattern).search(self.text, since)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text[since:]!r}"
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the program is gone
                    assert re.compile(pattern).search(self.text, since), f"ended without {pattern!r}: {self.text!r}"
        return found.end()

    def exit_code(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.text!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    pass
        return self.process.returncode


def test_version_tells_commit_build_backends_and_cpu(lily_bin):
    out = run(lily_bin, "--version").stdout
    assert re.search(r"^lily \d+\.\d+\.\d+ \(commit \S+\)$", out, re.M)
    assert re.search(r"^backends: .*cpu.*reference", out, re.M)
    assert re.search(r"^build: +\S+", out, re.M) and re.search(r"^cpu: +\S+", out, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples(lily_bin, command):
    done = run(lily_bin, command, "--help")
    assert done.returncode == 0
    assert f"Examples:\n  " in done.stdout and f"lily {command}" in done.stdout
    assert done.stderr == ""


def test_without_arguments_the_help_is_shown(lily_bin):
    done = run(lily_bin)
    assert done.returncode == 0 and all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("args, named", [
    (["generate", "--tempo", "3", "hi"], "--tempo"),
    (["frobnicate"], "frobnicate"),
    (["serve", "--port", "99999"], "--port"),
    (["bench", "--prefill", "12Q"], "--prefill"),
    (["generate", "--raw", "--system", "x", "hi"], "--raw"),
    (["eval", "--against", "gpu9"], "--against"),
    (["synth"], "directory"),
])
def test_wrong_usage_is_named_with_exit_code_2(lily_bin, args, named):
    done = run(lily_bin, *args)
    assert done.returncode == 2
    assert named in done.stderr and "--help" in done.stderr
    assert done.stdout == ""


def test_a_missing_model_is_one_clear_line(lily_bin, tmp_path):
    done = run(lily_bin, "generate", "--model", str(tmp_path / "nowhere"), "hi")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("lily: ") and "nowhere" in done.stderr and done.stderr.count("\n") == 1


def test_without_a_model_the_tiny_one_answers_and_says_so(lily_bin):
    done = run(lily_bin, "generate", "Hello", "-n", "8")
    assert done.returncode == 0
    assert "no --model" in done.stderr and "tiny model" in done.stderr
    assert done.stdout.endswith("\n") and "tiny model" not in done.stdout


def test_a_prompt_may_come_from_pipe_file_or_argument(lily_bin, tmp_path):
    text = "What is 12 + 30?"
    file = tmp_path / "question.txt"
    file.write_text(text + "\n")
    given = [run(lily_bin, "generate", text, "-n", "8"),
             run(lily_bin, "generate", "-n", "8", input=text + "\n"),
             run(lily_bin, "generate", "-n", "8", "--file", str(file)),
             run(lily_bin, "generate", "-n", "8", "--file", "-", input=text)]
    assert {done.returncode for done in given} == {0}
    assert len({done.stdout for done in given}) == 1


def test_an_empty_prompt_is_refused(lily_bin):
    done = run(lily_bin, "generate", input="\n")
    assert done.returncode == 1 and "prompt is empty" in done.stderr


def test_generate_json(lily_bin):
    done = run(lily_bin, "generate", "--json", "-n", "6", "Hello")
    answer = json.loads(done.stdout)
    assert set(answer) == {"model", "text", "reasoning", "finish_reason", "usage", "timings"}
    assert answer["finish_reason"] in {"stop", "length"}
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] <= 6 and usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert answer["timings"]["prefill_seconds"] > 0


def test_zero_tokens_only_runs_the_prompt(lily_bin):
    answer = json.loads(run(lily_bin, "generate", "--json", "-n", "0", "Hello").stdout)
    assert answer["text"] == "" and answer["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0


def test_raw_continues_the_text_itself(lily_bin):
    chat = json.loads(run(lily_bin, "generate", "--json", "-n", "1", "The river").stdout)
    raw = json.loads(run(lily_bin, "generate", "--json", "-n", "1", "--raw", "The river").stdout)
    assert raw["usage"]["prompt_tokens"] < chat["usage"]["prompt_tokens"]


def test_no_escape_sequences_without_a_terminal(lily_bin):
    for args, text in ((["generate", "Hello", "--think", "-n", "8"], None), (["chat", "--think", "-n", "8"], "Hello\n")):
        done = run(lily_bin, *args, **({"input": text} if text else {}))
        assert "\x1b" not in done.stdout + done.stderr


def test_a_full_disk_is_an_error(lily_bin):
    with open("/dev/full", "w") as full:
        done = subprocess.run([lily_bin, "generate", "Hello", "-n", "4"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=PATIENCE)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_context_too_long_is_an_error_with_both_counts(lily_bin):
    done = run(lily_bin, "generate", "--max-seq", "64", "-n", "4", input="word " * 200)
    assert done.returncode == 1 and "64" in done.stderr and done.stderr.count("lily: ") == 2  # notice and error


def test_chat_from_a_pipe_answers_every_line(lily_bin):
    done = run(lily_bin, "chat", "--stats", "-n", "4", input="Hello\n\nAnd now?\n")
    assert done.returncode == 0
    assert done.stderr.count("prompt tokens") == 2


def test_chat_commands(lily_bin):
    script = "/help\n/system You are brief.\n/system\nHello\n/think on\n/stats on\nAgain\n/reset\n/nonsense\n"
    done = run(lily_bin, "chat", "-n", "4", input=script)
    assert "/reset" in done.stdout
    assert "You are brief." in done.stderr and "(thinking on)" in done.stderr and "(forgotten)" in done.stderr
    assert "no command /nonsense" in done.stderr
    assert done.returncode == 1  # a script should notice that a command was wrong


def test_chat_exit_command(lily_bin):
    done = run(lily_bin, "chat", "-n", "4", input="/exit\nHello\n")
    assert done.returncode == 0 and done.stdout.strip() == ""


def test_interrupting_generate_ends_with_130(lily_bin):
    # The reference backend is slow enough to be met at work.
    process = subprocess.Popen([lily_bin, "generate", "--device", "reference", "-n", "4000", "--raw", LONG],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE)
    if process.returncode == 0:
        pytest.skip("the answer ended before the signal came")
    assert process.returncode == 130 and (first + rest).endswith("\n")


class TestChatOnATerminal:
    def start(self, lily_bin, *args, **env):
        terminal = Terminal([lily_bin, "chat", *args], **env)
        terminal.wait_for(r"/help for commands")
        terminal.wait_for(PROMPT)
        return terminal

    def test_ctrl_d_ends_with_0(self, lily_bin):
        with self.start(lily_bin) as terminal:
            terminal.send("\x04")
            assert terminal.exit_code() == 0

    def test_ctrl_c_drops_the_line_and_not_the_program(self, lily_bin):
        with self.start(lily_bin) as terminal:
            terminal.send("half a thou")
            terminal.wait_for("half a thou")
            terminal.send("\x03")
            end = terminal.wait_for(r"Ctrl-D ends the program")
            terminal.wait_for(PROMPT, end)
            terminal.send("\x04")
            assert terminal.exit_code() == 0

    def test_ctrl_space_ends_nothing(self, lily_bin):  # the byte that an early Ctrl-D becomes
        with self.start(lily_bin) as terminal:
            time.sleep(0.2)  # a prompt that stands
            terminal.send("\x00half\x00 a line")
            terminal.wait_for("half a line")
            terminal.send("\x03\x04")
            assert terminal.exit_code() == 0

    def test_ctrl_c_stops_the_answer_and_not_the_program(self, lily_bin):
        with self.start(lily_bin, "--device", "reference", "-n", "4000") as terminal:
            begin = len(terminal.text)
            terminal.send(LONG + "\r")
            answering = terminal.wait_for(r"\x1b\[\?2004l", begin)  # the line is read, the keyboard is ours no more
            terminal.send("\x03")
            end = terminal.wait_for(r"\(stopped\)", answering)
            terminal.wait_for(PROMPT, end)
            terminal.send("/help\r")
            terminal.wait_for(r"/reset", end)
            terminal.send("\x04")  # perhaps before the next prompt stands
            assert terminal.exit_code() == 0

    def test_a_pasted_text_of_several_lines_is_one_message(self, lily_bin):
        with self.start(lily_bin, "--stats", "-n", "4") as terminal:
            terminal.send("\x1b[200~first line\nsecond line\nthird line\x1b[201~")
            terminal.wait_for("third line")
            terminal.send("\r")
            end = terminal.wait_for(r"\d+ prompt tokens")
            terminal.wait_for(PROMPT, end)
            terminal.send("\x04")
            assert terminal.exit_code() == 0
            assert len(re.findall(r"\d+ prompt tokens", terminal.text)) == 1

    def test_words_beyond_ascii_arrive_whole(self, lily_bin):
        with self.start(lily_bin, LANG="C", LC_ALL="C") as terminal:
            terminal.send("/system Grüße aus 東京\r")
            end = terminal.wait_for(r"started afresh")
            terminal.send("/system\r")
            terminal.wait_for("Grüße aus 東京\x1b\\[0m", end)  # as the program writes it, dimmed
            terminal.send("\x04")
            assert terminal.exit_code() == 0

    def test_history_comes_back_and_is_private(self, lily_bin, tmp_path):
        history = tmp_path / "history"
        for _ in range(2):
            with self.start(lily_bin, LILY_HISTORY=str(history)) as terminal:
                if history.exists():
                    begin = len(terminal.text)
                    terminal.send("\x1b[A")
                    terminal.wait_for("/system remember me", begin)
                    terminal.send("\r")
                    terminal.wait_for("started afresh", begin)
                else:
                    terminal.send("/system remember me\r")
                    terminal.wait_for("started afresh")
                terminal.send("\x04")
                assert terminal.exit_code() == 0
        assert history.stat().st_mode & 0o077 == 0

    def test_no_colours_where_they_are_not_wanted(self, lily_bin):
        with self.start(lily_bin, NO_COLOR="1") as terminal:
            terminal.send("\x04")
            terminal.exit_code()
            assert not re.search(r"\x1b\[(1|2|36)m", terminal.text)
        with self.start(lily_bin) as terminal:
            assert "\x1b[2m" in terminal.text
