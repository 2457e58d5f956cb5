#!/usr/bin/env python3
"""Checks that includes only point inwards: the arrows of docs/architecture.md, one line a folder."""
import pathlib
import re
import sys

MAY_USE = {
    "base": set(),
    "tensor": {"base"},
    "model": {"base", "tensor"},
    "text": {"base", "model/shape.h"},
    "ops": {"base", "tensor", "model/shape.h"},
    "backend": {"base", "tensor", "model"},
    "backend/ref": {"base", "tensor", "model", "ops", "backend/backend.h"},
    "backend/cpu": {"base", "tensor", "model", "ops", "backend/backend.h"},
    "engine": {"base", "model/shape.h", "backend/backend.h"},
    "net": {"base"},
    "api": {"base", "net", "engine", "text", "model", "backend/backend.h"},
    "apps": {"base", "net", "api", "engine", "text", "model"},
}
# Headers of third parties that one folder alone may include.
WALLED = {"boost/beast": "net", "boost/asio": "net", "CLI/": "apps", "histedit.h": "apps", "utf8proc.h": "text"}
# The instruments look behind the engine: they time and compare backends directly.
EXTRA = {"apps/bench": {"backend/backend.h", "backend/cpu/bandwidth.h"}, "apps/eval": {"backend/backend.h"}}


def folder_of(path: pathlib.PurePath) -> str:
    parts = path.parts[:-1]
    return "/".join(parts[:2]) if parts[0] == "backend" else parts[0]


def allowed(source: pathlib.PurePath, target: str) -> bool:
    own = folder_of(source)
    permitted = set(MAY_USE[own]) | {own}
    for prefix, extra in EXTRA.items():
        if str(source).startswith(prefix):
            permitted |= extra
    return target in permitted or folder_of(pathlib.PurePath(target)) in permitted


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent / "src"
    problems = []
    for path in sorted(root.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        source = path.relative_to(root)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if own := re.match(r'\s*#include "([^"]+)"', line):
                if "/" in own[1] and (root / own[1]).exists() and not allowed(source, own[1]):
                    problems.append(f"src/{source}:{number}: {folder_of(source)} may not include {own[1]}")
            elif system := re.match(r"\s*#include <([^>]+)>", line):
                for prefix, owner in WALLED.items():
                    if system[1].startswith(prefix) and folder_of(source) != owner:
                        problems.append(f"src/{source}:{number}: only {owner} may include <{system[1]}>")
    print("\n".join(problems) if problems else "layers: all includes point inwards")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
