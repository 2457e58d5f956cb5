"""bench/peers/run.py with stand-ins for llama-bench: the settings that it chooses, the table, and a peer that dies."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench/peers/run.py"

# Faster with 2 threads, and with the larger micro-batch where the prompt fills it.
STAND_IN = f"""#!{sys.executable}
import itertools, json, sys
words = sys.argv[1:]
value = lambda flag: [int(v) for v in words[words.index(flag) + 1].split(",")]
if "--version" in words:
    sys.exit(print("version: stand-in"))
depths = value("-d") if "-d" in words else [0]
tests = []
for prompt, depth, threads, ubatch in itertools.product(value("-p"), depths, value("-t"), value("-ub")):
    rate = 100.0 * threads + (ubatch if prompt >= ubatch else 0)
    tests.append(dict(n_prompt=prompt, n_depth=depth, n_threads=threads, n_ubatch=ubatch, avg_ts=rate,
                      samples_ts=[rate] * value("-r")[0]))
print(json.dumps(tests))
"""
DIES = f"""#!{sys.executable}
import os, signal, sys
if "--version" in sys.argv:
    sys.exit(0)
os.kill(os.getpid(), signal.SIGILL)
"""


def compare(lily_bin, tmp_path, stand_in):
    llama = tmp_path / "llama-bench"
    llama.write_text(stand_in)
    llama.chmod(0o755)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--lily", lily_bin, "--model", ROOT / "models/lily-tiny", "--gguf", "x.gguf", "--llama-bench", llama,
         "--prefill", "16,64", "--contexts", "16", "--decode-tokens", "2", "--repeats", "2", "--threads", "1,2",
         "--ubatch", "32,64", "--activations", "int16,int8", "--max-load", "1000", "--out", tmp_path / "out"],
        capture_output=True, text=True, timeout=300)
    record = json.loads((tmp_path / "out.json").read_text())
    return done, record, (tmp_path / "out.md").read_text()


def test_the_peer_gets_its_best_settings(lily_bin, tmp_path):
    done, record, table = compare(lily_bin, tmp_path, STAND_IN)
    assert done.returncode == 0, done.stderr
    assert [side["name"] for side in record["sides"]] == ["lily int16", "lily int8", "llama.cpp"]
    peer = {(row["kind"], row["tokens"]): row["tokens_per_second"] for row in record["sides"][2]["rows"]}
    assert set(peer) == {("prefill", 16), ("prefill", 64), ("decode", 16)}
    assert all(rate["threads"] == 2 for rate in peer.values())
    assert peer["prefill", 64]["ubatch"] == 64 and peer["prefill", 64]["median"] == 264
    assert "lily int16 / llama.cpp" in table and "lily int8 / llama.cpp" in table


def test_a_peer_that_dies_leaves_our_figures(lily_bin, tmp_path):
    done, record, table = compare(lily_bin, tmp_path, DIES)
    assert done.returncode == 1
    assert "failed: SIGILL" in table and "error" in record["sides"][2]
    assert len(record["sides"][0]["rows"]) == 3
