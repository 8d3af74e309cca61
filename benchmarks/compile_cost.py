"""Measure how long compiling takes and in how much memory, as traces grow.

Needs no GPU: the traces are synthetic, and nothing is measured but the compiler. The
steps are those that its plans are predicted to make.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conversion import machine, run
from synthetic_trace import Loop, write_trace

LOOPS = {
    "10k launches": Loop(layers=57, micro_batches=1),
    "100k launches": Loop(layers=300, micro_batches=2),
    "1m launches": Loop(layers=417, micro_batches=15),
}
MANY_RANKS = 64


def main() -> None:
    """Measure every size, and many ranks of one, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="sizes, separated by commas")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(LOOPS)
    result: dict[str, Any] = {
        "command": "python benchmarks/compile_cost.py"
        + (f" --only '{options.only}'" if options.only else ""),
        "machine": machine(),
        "versions": {name: version(name) for name in ("numpy", "pyarrow", "scipy")}
        | {"python": platform.python_version()},
        "sizes": {},
    }
    for name in names:
        result["sizes"][name] = measure(LOOPS[name], ranks=1)
        print(name, json.dumps(result["sizes"][name]), flush=True)
    if "100k launches" in names:
        loop = LOOPS["100k launches"]
        result["ranks"] = measure(loop, ranks=MANY_RANKS)
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


def measure(loop: Loop, *, ranks: int) -> dict[str, Any]:
    """Compile one trace."""
    folder = Path(tempfile.mkdtemp(prefix="transit-compile-"))
    try:
        trace, plan = folder / "trace", folder / "plan.json"
        write_trace(trace, loop, ranks=ranks)
        arguments = ("--gpu-memory", "60%", "--policy", "auto", "-o", str(plan))
        taken = run("compile", str(trace), *arguments)
        prediction = json.loads(plan.read_text())["prediction"]
        counts = json.loads((trace / "manifest.json").read_text())["ranks"][0]["counts"]
        return {
            "ranks": ranks,
            "launches": counts["launches"],
            "iterations": loop.iterations,
            "accesses": counts["accesses"],
            "tensors": loop.num_tensors,
            "compile": taken,
            "plan_bytes": plan.stat().st_size,
            "predicted": {
                name: prediction[name]
                for name in ("ideal_step_ns", "bound_step_ns", "step_ns", "gap")
            },
        }
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
