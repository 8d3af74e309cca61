"""Compare a C++ struct with the NumPy dtype that mirrors it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
Layout = tuple[int, dict[str, int]]  # bytes, and each field's offset


def cpp_layout(header: str, struct: str, fields: Sequence[str], folder: Path) -> Layout:
    """Ask the compiler; skip the test when there is none."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    offsets = "".join(
        f'std::printf("%s\\"{field}\\": %zu", "{", " if index else ""}",'
        f" offsetof(transit::{struct}, {field}));\n"
        for index, field in enumerate(fields)
    )
    source = folder / "layout.cpp"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\n"
        f'#include "{header}"\n'
        "int main() {\n"
        f'std::printf("[%zu, {{", sizeof(transit::{struct}));\n'
        f'{offsets}std::puts("}}]");\n}}\n'
    )
    program = folder / "layout"
    command = [compiler, "-std=c++17", "-I", str(ROOT), str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    size, found = json.loads(subprocess.check_output([program]))
    return size, found


def numpy_layout(dtype: np.dtype[Any]) -> Layout:
    """Return a dtype's layout in the same form."""
    return dtype.itemsize, {
        name: field[1] for name, field in (dtype.fields or {}).items()
    }
