"""Some of LilyTiny's exam on the fast backend and on the reference. `scripts/dev exam` runs all of it."""
import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parent.parent / "exam/run.py"


def run_exam(*arguments: str) -> None:
    result = subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout + result.stderr


def test_short_parts_are_right_and_as_on_the_reference(lily_bin):
    run_exam(lily_bin, "--per-part", "4", "--long-per-part", "0", "--against", "reference")


def test_a_fact_16000_tokens_back_is_found(lily_bin):
    run_exam(lily_bin, "--parts", "retrieve_16k", "--long-per-part", "1")
