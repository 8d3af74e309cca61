"""What the built package promises: light libraries, few symbols, a quick start."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of glibc; anything else would reach the job's process before the job's own copy.
ALLOWED_NEEDED = re.compile(
    r"(libc|libdl|libm|libpthread|librt|ld-linux[-\w]*)\.so\.\d"
)
LIBRARIES = {
    "libtransit.so": "runtime/native/exports.map",
    "libtransit_recorder.so": "recorder/native/exports.map",
    "simgpu/lib/libcuda.so.1": "runtime/simgpu/cuda.map",
    "simgpu/lib/libcupti.so.13": "runtime/simgpu/cupti.map",
}
HEAVY_MODULES = {"numpy", "pandas", "pyarrow", "torch", "cuda"}


def output(*command: str | Path) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def exported_patterns(version_script: str) -> set[str]:
    """Return the patterns of a version script's ``global`` parts."""
    script = re.sub(r"/\*.*?\*/|#[^\n]*", "", version_script, flags=re.DOTALL)
    parts = re.findall(r"global\s*:(.*?)(?:local\s*:|\})", script, flags=re.DOTALL)
    return {name.strip() for part in parts for name in part.split(";") if name.strip()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_need_only_glibc(library: str, native_libs: Path) -> None:
    dynamic = output("readelf", "--dynamic", "--wide", native_libs / library)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert needed
    assert [name for name in needed if not ALLOWED_NEEDED.fullmatch(name)] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_export_only_what_their_map_lists(
    library: str, native_libs: Path
) -> None:
    patterns = exported_patterns((ROOT / LIBRARIES[library]).read_text())
    symbols = output("nm", "--dynamic", "--defined-only", native_libs / library)
    # Type A: the version script's own node names.
    lines = [line.split() for line in symbols.splitlines()]
    exported = {name.split("@")[0] for _, kind, name in lines if kind != "A"}
    assert exported
    assert {
        name for name in exported if not any(fnmatchcase(name, p) for p in patterns)
    } == set()
    plain = {pattern for pattern in patterns if not set(pattern) & set("*?[")}
    assert plain <= exported


def test_help_starts_without_the_heavy_packages() -> None:
    script = (
        "import runpy, sys\n"
        "sys.argv = ['transit', '--help']\n"
        "try:\n"
        "    runpy.run_module('transit', run_name='__main__')\n"
        "except SystemExit as stopped:\n"
        "    assert not stopped.code, stopped.code\n"
        "print('MODULES', *sys.modules)\n"
    )
    *_, modules = output(sys.executable, "-c", script).splitlines()
    assert modules.startswith("MODULES transit") or " transit.cli " in modules
    assert HEAVY_MODULES.intersection(modules.split()) == set()
