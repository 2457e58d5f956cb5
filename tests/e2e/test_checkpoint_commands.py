"""lily synth, inspect and verify as programs: exit codes, what goes to which stream, one line for an error."""
import json
import os
import shutil
import subprocess

import pytest


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def model(lily_bin, tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint") / "ein Modell"
    done = run(lily_bin, "synth", directory, "--seed", "3", "--shard-size", "5MB")
    assert done.returncode == 0, done.stderr
    assert "357 tensors in 3 files" in done.stdout and done.stderr == ""
    return directory


def refused(done):
    """An error is one line on standard error and a code that is not 0."""
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.startswith("lily: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_inspect_as_json(lily_bin, model):
    report = json.loads(run(lily_bin, "inspect", model, "--json", "--tensors").stdout)
    assert report["shape"] == "LilyTiny" and report["id"] == "ein Modell"
    assert report["parts"]["text"] == {"tensors": 357, "bytes": 13632480}
    assert len(report["tensors"]) == 357 and report["stop_ids"] == [1969, 1967]


def test_inspect_without_a_directory_shows_the_model_inside(lily_bin):
    done = run(lily_bin, "inspect")
    assert done.returncode == 0 and "lily-tiny" in done.stdout


def test_verify_sound(lily_bin, model):
    done = run(lily_bin, "verify", model)
    assert done.returncode == 0 and done.stderr == ""
    assert "not checked  SHA-256" in done.stdout and "sound, as far as it was checked" in done.stdout


def test_synth_is_repeatable_and_never_overwrites(lily_bin, model, tmp_path):
    again = tmp_path / "again"
    assert run(lily_bin, "synth", again, "--seed", "3", "--shard-size", "5MB").returncode == 0
    for path in sorted(model.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    done = run(lily_bin, "synth", again)
    assert done.returncode == 2 and "nothing is overwritten" in done.stderr


def test_damage_is_one_clear_line(lily_bin, model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    shard = copy / "model-00002-of-00003.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 100)
    for command in ("inspect", "verify"):
        message = refused(run(lily_bin, command, copy))
        assert shard.name in message and "100 bytes past the end" in message
    shard.unlink()
    assert "no such file" in refused(run(lily_bin, "verify", copy))


def test_verify_reads_tokenizer_and_template_as_the_program_will(lily_bin, model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    whole = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(whole[:3000])
    done = run(lily_bin, "verify", copy)
    assert done.returncode == 1 and "tokenizer.json" in done.stderr and "NOT sound" in done.stdout
    (copy / "tokenizer.json").write_bytes(whole)
    (copy / "chat_template.jinja").unlink()
    done = run(lily_bin, "verify", copy)
    assert done.returncode == 1 and "chat_template.jinja" in done.stderr


@pytest.mark.parametrize("option", [("serve", "--max-body", "-1"), ("serve", "--max-body", "100G"),
                                    ("serve", "--cache-size", "-1"), ("serve", "--kv-size", "-1"),
                                    ("synth", "--seed", "-1", "nowhere")])
def test_sizes_out_of_range_are_refused(lily_bin, option, tmp_path):
    done = run(lily_bin, *option, cwd=tmp_path)
    assert done.returncode == 2 and "not in range" in done.stderr and option[1] in done.stderr
    assert not any(tmp_path.iterdir())


def test_other_formats_are_named(lily_bin, tmp_path):
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF" + bytes(100))
    for path in (gguf, tmp_path):
        message = refused(run(lily_bin, "inspect", path))
        assert "found a GGUF file" in message and "wanted: Qwen3.6-35B-A3B" in message


def test_unreadable_directory(lily_bin, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    as_anybody = []
    if os.geteuid() == 0:  # who may read everything, unless these rights are given up
        as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    assert "ermission denied" in refused(run(*as_anybody, lily_bin, "inspect", closed))


def test_file_size_limit_leaves_nothing_behind(lily_bin, tmp_path):
    directory = tmp_path / "full"
    done = run("bash", "-c", 'ulimit -f 2000; exec "$0" synth "$1"', lily_bin, directory)
    assert done.returncode == 1, done
    assert "cannot write" in done.stderr and not directory.exists()
