"""Our logits against mlx-lm's on the same bytes: N11, and the numeric contract itself."""
import subprocess

import pytest

pytest.importorskip("mlx.core", reason="mlx is not installed (tests/requirements.txt)")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (tests/requirements.txt)")

import mlx_oracle as oracle  # noqa: E402

TINY = oracle.ROOT / "models/lily-tiny"
BACKENDS = ["reference", "cpu"]
N_GREEDY = 24


@pytest.fixture(scope="session", params=["lily-tiny"])
def case(request, lily_bin, tmp_path_factory):
    """A checkpoint, token ids, and what mlx-lm says in float32."""
    if request.param == "lily-tiny":
        checkpoint, ids = TINY, oracle.text_tokens(TINY)
    else:
        seed = int(request.param.split()[1])
        checkpoint = tmp_path_factory.mktemp("synth") / "model"
        subprocess.run([lily_bin, "synth", checkpoint, "--seed", str(seed)], check=True, capture_output=True)
        ids = oracle.random_tokens(200, 2048, seed)
    assert len(ids) >= 192
    return checkpoint, ids, oracle.mlx_logits(checkpoint, ids, float32=True, n_greedy=N_GREEDY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_logits_and_greedy_tokens_are_the_same(case, backend):
    checkpoint, ids, (theirs, their_greedy) = case
    ours, greedy = oracle.our_logits(checkpoint, backend, ids, N_GREEDY)
    c = oracle.compare(ours, theirs, ids)
    assert c.mean_diff < 2e-4 * c.rms and c.max_diff < 1e-2 * c.rms, c
    assert c.agreement >= 0.99 and max(c.margins, default=0) < 2e-3 * c.rms, c
    assert c.kl < 1e-6, c
    assert c.perplexity[0] == pytest.approx(c.perplexity[1], rel=1e-4), c
    assert greedy == their_greedy


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_mlx_lm_ships(lily_bin, backend):
    """bfloat16 activations: other tokens only where mlx-lm's own rounding turns the choice."""
    ids = oracle.text_tokens(TINY)
    ours, _ = oracle.our_logits(TINY, backend, ids)
    shipped, _ = oracle.mlx_logits(TINY, ids, float32=False)
    exact, _ = oracle.mlx_logits(TINY, ids, float32=True)
    noise = abs(shipped - exact).max(-1)  # of their rounding, at each position
    best, their_best = ours.argmax(-1), shipped.argmax(-1)
    for t in range(len(ids)):
        margin = ours[t, best[t]] - ours[t, their_best[t]]
        assert margin <= 2.01 * noise[t], f"position {t}: {best[t]} over {their_best[t]} by {margin}, noise {noise[t]}"
    c = oracle.compare(ours, shipped, ids)
    if c.perplexity[0] > 200:
        pytest.skip(f"models/lily-tiny is not trained (perplexity {c.perplexity[0]:.0f}): every choice is a tie")
    assert c.agreement >= 0.99, c
    assert c.perplexity[0] == pytest.approx(c.perplexity[1], rel=0.01), c
