"""Measure what the recorder's callback costs a launch; no GPU is needed.

Builds ``scan_cost.cpp``, which drives the recorder as CUPTI does, with launches of
three kinds and 10 000 live allocations, and writes what it printed, with the machine,
to one JSON file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> Path:
    """Compile the measuring program with optimisation and return its path."""
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder)]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (
        configure,
        ["cmake", "--build", str(folder), "--target", "scan_cost", "--parallel", "2"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "benchmarks" / "scan_cost"


def processor() -> str:
    """Return the processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """Describe what was measured, where, and when."""
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {
        "processor": processor(),
        "kernel": platform.release(),
        "compiler": compiler.stdout.splitlines()[0],
        "commit": commit.stdout.strip(),
        "command": shlex.join(["python", *sys.argv]),
        "measured": datetime.datetime.now(datetime.UTC).isoformat(),
    }


def main() -> None:
    """Build, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if shutil.which("cmake") is None:
        sys.exit("scan_cost needs cmake, a C++ compiler and the CUDA headers' wheels.")
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder, "build"))
        result = subprocess.run(
            [program, folder], check=True, capture_output=True, text=True
        )
    measured = json.loads(result.stdout)
    content = {"benchmark": "scan_cost", "version": 1, "machine": machine(), **measured}
    options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
