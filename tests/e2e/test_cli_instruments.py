"""bench and eval on the tiny model: their JSON is what docs/bench.md and docs/eval.md promise."""
import json
import subprocess

import pytest

PATIENCE = 600
HEAD = {"schema", "date", "command", "version", "commit", "machine"}


def run(lily_bin, *args):
    done = subprocess.run([lily_bin, *args], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(lily_bin, *args):
    return json.loads(run(lily_bin, *args, "--json", "-"))


def is_spread(value):
    return set(value) == {"median", "min", "max"} and 0 < value["min"] <= value["median"] <= value["max"]


QUICK = ["bench", "--prefill", "16,32", "--contexts", "16", "--batches", "1,2", "--repeats", "2", "--decode-tokens", "2"]


def test_bench_record(lily_bin):
    r = record(lily_bin, *QUICK)
    assert r["schema"] == "lily-bench-speed/1" and HEAD <= set(r)
    assert {"cpu", "cores", "memory_bytes", "system", "load_average"} == set(r["machine"])
    assert {"id", "shape", "fingerprint", "checkpoint_bytes"} == set(r["model"])
    assert {"name", "description", "weight_bytes", "max_batch_tokens"} == set(r["backend"])
    assert r["command"].endswith("--json -") and r["repeats"] == 2
    assert is_spread(r["read_bytes_per_second"]) and r["load"]["seconds"] > 0
    assert [row["tokens"] for row in r["prefill"]] == [16, 32]
    for row in r["prefill"]:
        assert {"tokens", "seconds", "tokens_per_second", "gflop", "gflop_per_second"} == set(row)
        assert is_spread(row["seconds"]) and is_spread(row["tokens_per_second"])
    assert [(row["context"], row["batch"]) for row in r["decode"]] == [(16, 1), (16, 2)]
    for row in r["decode"]:
        assert {"context", "batch", "steps", "seconds", "tokens_per_second", "bytes_per_step", "bytes_per_second",
                "read_bytes_per_second", "bandwidth_share"} == set(row)
        assert is_spread(row["tokens_per_second"]) and row["bandwidth_share"] > 0
    assert [row["through"] for row in r["first_token"]] == ["engine", "http"]
    assert r["first_token"][0]["tokens"] == 16 and 8 <= r["first_token"][1]["tokens"] <= 32
    assert all(is_spread(row["seconds"]) for row in r["first_token"])


def test_bench_table_and_file(lily_bin, tmp_path):
    file = tmp_path / "bench.json"
    table = run(lily_bin, *QUICK, "--json", str(file))
    assert "prefill" in table and "decode" in table and "of the read bandwidth" in table
    assert json.loads(file.read_text())["schema"] == "lily-bench-speed/1"


def test_bench_refuses_sizes_beyond_the_model(lily_bin):
    done = subprocess.run([lily_bin, "bench", "--prefill", "128K"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "32768" in done.stderr


def test_cache_suite_record(lily_bin):
    r = record(lily_bin, "bench", "--suite", "cache")
    assert r["schema"] == "lily-bench-cache/1" and HEAD <= set(r)
    runs = {(run["scenario"], run["thinking"], run["cache"]): run for run in r["runs"]}
    assert len(runs) == 18
    for (scenario, _, cache), found in runs.items():
        assert len(found["steps"]) == {"chat": 10, "three chats": 30, "tools": 12}[scenario]
        assert all(step["cached_tokens"] < step["prompt_tokens"] for step in found["steps"])
        assert is_spread(found["first_token_seconds"])
        if cache == "none":
            assert found["cached_tokens"] == 0
        if cache == "trie":  # never runs again what lies before the last shared boundary
            assert found["missed_tokens"] == 0, found
            assert found["hit_rate"] > 0.5


def test_eval_record_and_saved_logits(lily_bin, tmp_path):
    file = tmp_path / "own.safetensors"
    first = record(lily_bin, "eval", "--tokens", "100", "--context", "40", "--save", str(file))
    assert first["schema"] == "lily-eval/1" and HEAD <= set(first) and "comparison" not in first
    assert first["own"]["positions"] == 100 and first["own"]["perplexity"] > 1
    again = record(lily_bin, "eval", "--reference", str(file))
    assert again["own"] == first["own"]
    comparison = again["comparison"]
    assert {"positions", "top1_agreement", "disagreements", "largest_margin", "worst", "kl_mean", "kl_largest",
            "logit_rms_difference", "perplexity_ratio"} == set(comparison)
    assert comparison["top1_agreement"] == 1 and comparison["kl_mean"] == 0 and comparison["perplexity_ratio"] == 1


def test_eval_against_the_reference_backend(lily_bin):
    r = record(lily_bin, "eval", "--tokens", "60", "--against", "reference")
    assert r["reference"]["source"] == "reference"
    assert r["comparison"]["top1_agreement"] > 0.9
    assert abs(r["comparison"]["perplexity_ratio"] - 1) < 0.01


def test_eval_refuses_another_vocabulary(lily_bin, tmp_path):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    file = tmp_path / "foreign.safetensors"
    safetensors.save_file({"tokens": numpy.zeros(2, numpy.int32), "starts": numpy.zeros(1, numpy.int32),
                           "logits": numpy.zeros((2, 7), numpy.float32)}, file)
    done = subprocess.run([lily_bin, "eval", "--reference", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "vocabulary of 7" in done.stderr


def test_eval_of_a_text_too_short(lily_bin, tmp_path):
    file = tmp_path / "short.txt"
    file.write_text("a")
    done = subprocess.run([lily_bin, "eval", "--text", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "fewer than two tokens" in done.stderr
