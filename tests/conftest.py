"""Shared fixtures: the built program, the optional folder with facts about the real checkpoint."""
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def lily_bin() -> str:
    path = os.environ.get("LILY_BIN", str(ROOT / "build/release/lily"))
    if not pathlib.Path(path).exists():
        pytest.fail(f"{path} is not built; run scripts/dev build, or set LILY_BIN")
    return path


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("LILY_SHARED", ROOT.parent / "shared"))
    if not (path / "checkpoint/config.json").exists():
        pytest.skip("the real checkpoint's small files are not here (LILY_SHARED)")
    return path
