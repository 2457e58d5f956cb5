"""The quantiser, and what `lily synth` writes, against MLX itself."""
import os
import pathlib
import subprocess

import pytest

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (tests/requirements.txt)")
np = pytest.importorskip("numpy", reason="numpy is not installed (tests/requirements.txt)")

IN = 256
PARTS = ("weight", "scales", "biases")


@pytest.fixture(scope="session")
def driver(lily_bin) -> pathlib.Path:
    path = pathlib.Path(os.environ.get("LILY_AFFINE_DRIVER", pathlib.Path(lily_bin).parent / "tests/affine_driver"))
    if not path.exists():
        pytest.skip(f"{path} is not built (LILY_TESTS=ON)")
    return path


def rows():
    """Rows of BF16 values: ordinary ones, and every edge of the rule."""
    rng = np.random.default_rng(5)
    special = np.zeros((12, IN), np.float32)
    special[1] = 1e-9
    special[2] = 0.75
    special[3] = -0.75
    special[4] = -2 - rng.random(IN)
    special[5] = 2 + rng.random(IN)
    special[6, ::64] = -8
    special[6, 1::64] = 7
    special[6, 2:64] = np.arange(62) / 4 - 8  # ties on every second quarter
    special[7] = np.where(rng.random(IN) < 0.5, 2.0**-123, -(2.0**-123))
    special[8, 5] = 3
    special[9, 5] = -3
    special[10] = rng.choice([-1.0, 1.0], IN)  # both ends equally large
    special[11] = 1e30 * rng.standard_normal(IN)
    normal = rng.standard_normal((2000, IN)) * rng.choice([1e-3, 0.02, 1.0, 50.0], (2000, 1))
    return mx.array(np.concatenate([special, normal]).astype(np.float32)).astype(mx.bfloat16)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantiser_is_mlx_to_the_bit(driver, bits):
    values = rows()
    with mx.stream(mx.cpu):
        expected = [np.array(x.view(mx.uint8)).reshape(values.shape[0], -1)
                    for x in mx.quantize(values, group_size=64, bits=bits)]
    head = np.array([bits, IN], np.int32).tobytes()
    out = subprocess.run([driver], input=head + np.array(values.astype(mx.float32)).tobytes(), check=True,
                         capture_output=True).stdout
    ours = np.frombuffer(out, np.uint8).reshape(values.shape[0], -1)
    sizes = np.cumsum([IN * bits // 8, IN // 64 * 2])
    for name, mine, theirs in zip(PARTS, np.split(ours, sizes, axis=1), expected):
        different = np.nonzero((mine != theirs).any(axis=1))[0]
        assert different.size == 0, f"{name} differs in {different.size} rows, first {different[0]}"


@pytest.fixture(scope="session")
def synth(lily_bin, tmp_path_factory):
    directory = tmp_path_factory.mktemp("synth") / "model"
    subprocess.run([lily_bin, "synth", directory, "--seed", "11", "--shard-size", "4MB"], check=True, capture_output=True)
    return directory


def test_mlx_reads_what_synth_writes(synth):
    weights = {}
    for path in sorted(synth.glob("model-*.safetensors")):
        weights |= mx.load(str(path))
    assert len(weights) == 357
    name = "language_model.model.layers.2.mlp.switch_mlp.gate_proj"
    dense = mx.dequantize(*(weights[f"{name}.{part}"] for part in PARTS), group_size=64, bits=4).astype(mx.float32)
    assert dense.shape == (32, 64, 256)
    assert float(dense.std()) == pytest.approx(256**-0.5, rel=0.1)
    assert abs(float(dense.mean())) < 0.01 * float(dense.std()) + 1e-3
    decay = mx.exp(weights["language_model.model.layers.0.linear_attn.A_log"].astype(mx.float32))
    assert 1 <= float(decay.min()) and float(decay.max()) <= 16.1


def test_tokenizer_of_synth(synth):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (tests/requirements.txt)")
    tokenizer = tokenizers.Tokenizer.from_file(str(synth / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 2000
    text = "Hello <|im_end|> नमस्ते 🙂 x1"
    ids = tokenizer.encode(text).ids
    assert 1969 in ids and tokenizer.decode(ids, skip_special_tokens=False) == text
