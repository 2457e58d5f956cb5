"""Our logits against mlx-lm's on the same bytes: N11, and the numeric contract itself."""
import subprocess

import pytest

pytest.importorskip("mlx.core", reason="mlx is not installed (tests/requirements.txt)")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (tests/requirements.txt)")

import mlx_oracle as oracle  # noqa: E402

TINY = oracle.ROOT / "models/lily-tiny"
# Largest and mean difference and largest margin of a disagreement, in units of the logits' spread, and KL. The cpu
# backend quantises activations to 15 bits by groups of 64, and a near tie in a router with random weights then turns.
BOUNDS = {"reference": (1e-2, 2e-4, 2e-3, 1e-6), "cpu": (3e-1, 1e-3, 5e-2, 1e-4)}
BACKENDS = list(BOUNDS)
N_GREEDY = 16


class Case:
    """A checkpoint, texts, and what mlx-lm says of them in float32."""

    def __init__(self, checkpoint, texts):
        mlx = oracle.Mlx(checkpoint, float32=True)
        self.checkpoint, self.texts = checkpoint, texts
        self.logits = [mlx.run(text.ids) for text in texts]
        self.prompt = texts[-1].ids[: texts[-1].first]
        self.greedy = mlx.greedy(self.prompt, N_GREEDY)

    def ours(self, backend):
        return [oracle.our_logits(self.checkpoint, backend, text.ids)[0] for text in self.texts]


@pytest.fixture(scope="session")
def tiny():
    return Case(TINY, oracle.exam_texts(TINY))


@pytest.fixture(scope="session")
def as_shipped(tiny):
    mlx = oracle.Mlx(TINY, float32=False)
    return [mlx.run(text.ids) for text in tiny.texts[:1]]  # bfloat16 takes mlx's cpu build a quarter of a second a token


@pytest.fixture(scope="session", params=[3, 4])
def synthetic(request, lily_bin, tmp_path_factory):
    checkpoint = tmp_path_factory.mktemp("synth") / "model"
    subprocess.run([lily_bin, "synth", checkpoint, "--seed", str(request.param)], check=True, capture_output=True)
    return Case(checkpoint, [oracle.random_text(200, 2048, request.param)])


def check_float32(case, backend):
    ours, targets = oracle.gather(case.texts, case.ours(backend), everything=True)
    theirs, _ = oracle.gather(case.texts, case.logits, everything=True)
    c = oracle.compare(ours, theirs, targets)
    largest, mean, margin, kl = BOUNDS[backend]
    assert c.max_diff < largest * c.rms and c.mean_diff < mean * c.rms, c
    assert c.agreement >= 0.99 and max(c.margins, default=0) < margin * c.rms, c
    assert c.kl < kl, c
    assert c.perplexity[0] == pytest.approx(c.perplexity[1], rel=1e-3), c
    _, greedy = oracle.our_logits(case.checkpoint, backend, case.prompt, N_GREEDY)
    assert greedy == case.greedy


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_on_the_tiny_model(tiny, backend):
    check_float32(tiny, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_on_random_weights(synthetic, backend):
    check_float32(synthetic, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_n11_as_mlx_lm_ships(tiny, as_shipped, backend):
    """bfloat16 activations: another token only where mlx-lm's own rounding turns the choice."""
    texts = tiny.texts[:1]
    ours, targets = oracle.gather(texts, [oracle.our_logits(TINY, backend, text.ids)[0] for text in texts])
    assert len(targets) >= 192
    exact, _ = oracle.gather(texts, tiny.logits[:1])
    shipped, _ = oracle.gather(texts, as_shipped)
    noise = abs(shipped - exact).max(-1)  # of their rounding, at each position
    best, their_best = ours.argmax(-1), shipped.argmax(-1)
    for t in range(len(best)):
        margin = ours[t, best[t]] - ours[t, their_best[t]]
        assert margin <= 2.01 * noise[t], f"row {t}: {best[t]} over {their_best[t]} by {margin}, noise {noise[t]}"
    c = oracle.compare(ours, shipped, targets)
    assert c.agreement >= 0.99, c
    assert c.perplexity[0] == pytest.approx(c.perplexity[1], rel=0.02), c
