"""Builds the programs of tests/native, which drive parts of the native code."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SANITIZERS = "-fsanitize=address,undefined"


def find_one(pattern: str) -> Path:
    """Return a file of the NVIDIA wheels that the build requires."""
    found = importlib.util.find_spec("nvidia")
    assert found, "the tests need the build requirements: pip install --group build"
    wheels = [Path(folder) for folder in found.submodule_search_locations or ()]
    files = [path for wheel in wheels for path in wheel.glob(pattern)]
    assert files, f"no {pattern} in {wheels}: pip install --group build"
    return files[0]


def build(name: str, sources: Iterable[str], folder: Path) -> Path:
    """Compile tests/native/``name``.cpp with sources, paths without suffix."""
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler")
    program = folder / name
    command = [
        *("g++", "-std=c++17", "-g", "-O1", "-Wall", "-Wextra", f"-I{ROOT}"),
        *("-isystem", str(find_one("**/cupti.h").parent)),
        str(ROOT / "tests/native" / f"{name}.cpp"),
        *(str(ROOT / f"{source}.cpp") for source in sources),
        *("-o", str(program), "-pthread", "-ldl"),
    ]
    for sanitizers in ([SANITIZERS], []):  # not every compiler comes with them
        done = subprocess.run([*command, *sanitizers], capture_output=True, text=True)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    return program
