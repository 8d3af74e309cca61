"""Measure how long, in how much memory and to what size a large spool is converted.

Needs no GPU: the spool is synthetic. What is then made of the trace is measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from synthetic_spool import Shape, write_spool

MIB = 1 << 20
VARIANTS = {"eager": 0, "graphs": 500}


def main() -> None:
    """Measure every variant and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result = {
        "command": f"python benchmarks/conversion.py --work {options.work}",
        "machine": machine(),
        "versions": {name: version(name) for name in ("numpy", "pyarrow")}
        | {"python": platform.python_version()},
        "variants": {
            name: measure(Shape(work=options.work, graph_nodes=graph_nodes))
            for name, graph_nodes in VARIANTS.items()
        },
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


def machine() -> dict[str, Any]:
    """Describe the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def measure(shape: Shape) -> dict[str, Any]:
    """Convert one spool, and show and compile the trace."""
    folder = Path(tempfile.mkdtemp(prefix="transit-conversion-"))
    try:
        spool = write_spool(folder / "spool" / "spool-4242", shape)
        (folder / "spool" / "job.json").write_text(
            '{"command": ["python", "train.py"]}'
        )
        trace = str(folder / "trace")
        convert = run("record", "--recover", str(folder / "spool"), "-o", trace)
        return {
            "work": shape.period * shape.iterations,
            "iterations": shape.iterations,
            "graph_nodes": shape.graph_nodes,
            "spool_bytes": sum(file.stat().st_size for file in spool.iterdir()),
            "convert": convert,
            "show": run("show", trace),
            "compile": run("compile", trace, "--gpu-memory", "90%"),
            "tables": sizes(Path(trace), shape),
        }
    finally:
        shutil.rmtree(folder)


def run(*arguments: str) -> dict[str, Any]:
    """Run transit and return what it took."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "transit", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"transit {arguments[0]} failed")
    return {
        "wall_s": round(time.monotonic() - begin, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_rss_mib": round(usage.ru_maxrss * 1024 / MIB),
    }


def sizes(trace: Path, shape: Shape) -> dict[str, Any]:
    """Return the bytes that each table takes per kernel, copy and set."""
    work = shape.period * shape.iterations
    counts = json.loads((trace / "manifest.json").read_text())["ranks"][0]["counts"]
    bytes_of = {
        name: (trace / "rank=0" / f"{name}.parquet").stat().st_size for name in counts
    }
    tables = {
        name: {
            "rows": counts[name],
            "bytes_per_launch": round(bytes_of[name] / work, 2),
        }
        for name in counts
        if counts[name]
    }
    total = {"bytes_per_launch": round(sum(bytes_of.values()) / work, 2)}
    return tables | {"all": total}


if __name__ == "__main__":
    main()
