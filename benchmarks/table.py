"""Print the result of benchmarks/skeleton.py as tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Result = dict[str, Any]


def gib(count: float | None) -> str:
    """Return bytes as GiB for a table."""
    return "-" if count is None else f"{count / 2**30:.2f}"


def peak(status: Result, key: str) -> int:
    """Return the largest value of a counter among a run's processes."""
    return max((process[key] for process in status["processes"]), default=0)


def run_row(name: str, run: Result, plain_ms: float | None) -> list[str]:
    """Return one run's row of the table of runs."""
    if "error" in run:
        return [name, "failed", *[""] * 6]
    ms, status = run["median_step_ms"], run.get("status")
    bound = run.get("bound_here_step_ms")
    identical = run.get("losses_identical")
    return [
        name,
        f"{ms:.2f}",
        f"{ms / plain_ms:.3f}" if plain_ms else "-",
        f"{ms / bound:.3f}" if bound else "-",
        gib(peak(status, "resident_peak_bytes") if status else None),
        gib(peak(status, "zero_copy_peak_bytes") if status else None),
        gib(run["peak_bytes"]),
        "-" if identical is None else "identical" if identical else "DIFFERENT",
    ]


def runs_table(parts: Result) -> Table:
    """Return the table of step times, memory and losses."""
    table = Table(title="Median step")
    for column in ("run", "ms", "/ plain", "/ bound", "resident GiB",
                   "zero-copy GiB", "job's peak GiB", "losses"):  # fmt: skip
        table.add_column(column, justify="left" if column == "run" else "right")
    plain_ms = parts.get("plain", {}).get("median_step_ms")
    runs = {name: parts[name] for name in ("plain", "record") if name in parts}
    for part in ("replay", "advise"):
        found = parts.get(part, {}).items()
        runs |= {name: run for name, run in found if isinstance(run, dict)}
    for name, run in runs.items():
        table.add_row(*run_row(name, run, plain_ms))
    return table


def figures_table(parts: Result) -> Table:
    """Return the table of everything that is not a run."""
    table = Table("figure", "value", title="Figures")
    machine, record = parts.get("machine", {}), parts.get("record", {})
    if link := machine.get("link"):
        table.add_row("GPU", f"{machine['gpu']}, torch {machine['torch']}")
        table.add_row("link, duplex GB/s", f"{link['duplex_bytes_per_s'] / 1e9:.1f}")
    if "overhead" in record:
        launches, named = (
            record[key] for key in ("kernel_launches", "kernel_launches_with_access")
        )
        table.add_row("recording overhead", f"{record['overhead']:+.2%}")
        table.add_row("kernel launches with an access", f"{named} of {launches}")
        table.add_row("kernels in CUPTI's activity", str(record["kernel_activities"]))
    for backend, overhead in parts.get("overhead", {}).get("overhead", {}).items():
        table.add_row(
            f"replay overhead, nothing spilled, {backend}", f"{overhead:+.2%}"
        )
    if "bytes" in parts.get("sample", {}):
        table.add_row("sample trace, bytes", str(parts["sample"]["bytes"]))
    for name, part in parts.items():
        if "error" in part:
            table.add_row(f"{name}: failed", part["error"].splitlines()[-1])
    return table


def print_tables(parts: Result) -> None:
    """Print whatever was measured."""
    console = Console(width=120)
    console.print(runs_table(parts), figures_table(parts))


if __name__ == "__main__":
    print_tables(json.loads(Path(sys.argv[1]).read_text())["parts"])
