"""Print the result of a benchmark as tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
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
    return [
        name,
        f"{ms:.2f}",
        f"{ms / plain_ms:.3f}" if plain_ms else "-",
        f"{ms / bound:.3f}" if bound else "-",
        gib(peak(status, "resident_peak_bytes") if status else None),
        gib(peak(status, "zero_copy_peak_bytes") if status else None),
        gib(run["peak_bytes"]),
        losses(run),
    ]


def losses(run: Result) -> str:
    """Say how a run's losses were to those of the job by itself."""
    identical = run.get("losses_identical")
    return "-" if identical is None else "identical" if identical else "DIFFERENT"


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
    """Return the table of what else the skeleton's parts found."""
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
    return table


def overhead_table(parts: Result) -> Table:
    """Return the table of what recording costs, by job."""
    jobs = {
        name: part
        for name, part in parts.items()
        if isinstance(part.get("overhead"), dict) and "step_ms" in part
    }
    table = Table("slower than plain by", *jobs, title="Overhead")
    for kind in unique(kind for part in jobs.values() for kind in part["overhead"]):
        found = [part["overhead"].get(kind) for part in jobs.values()]
        table.add_row(kind, *("-" if x is None else f"{x:+.2%}" for x in found))
    table.add_section()
    for step in unique(step for part in jobs.values() for step in part["step_ms"]):
        found = [part["step_ms"].get(step) for part in jobs.values()]
        cells = ("-" if ms is None else f"{ms:.2f}" for ms in found)
        table.add_row(f"step, ms: {step}", *cells)
    table.add_section()
    for label, show in TRACE_ROWS.items():
        table.add_row(label, *(show(part["trace"]) for part in jobs.values()))
    identical = [part["losses_identical"] for part in jobs.values()]
    table.add_row("losses", *("identical" if x else "DIFFERENT" for x in identical))
    return table


def coverage_table(parts: Result) -> Table:
    """Return the table of what traces know, by job."""
    jobs = {
        name.partition("/")[2]: part
        for name, part in parts.items()
        if "accessed_bytes" in part
    }
    table = Table("in a trace of", *jobs, title="Coverage")
    for label, show in TRACE_ROWS.items():
        table.add_row(label, *(show(part) for part in jobs.values()))
    for column in ("extent", "direction", "direction_source"):
        shares = [part[f"bytes_by_{column}"] for part in jobs.values()]
        for value in unique(value for found in shares for value in found):
            name = f"bytes, {column.replace('_', ' ')} {value}"
            table.add_row(name, *(f"{found.get(value, 0):.2%}" for found in shares))
    table.add_row("recall of the audit", *(recall(part) for part in jobs.values()))
    return table


def recall(part: Result) -> str:
    """Return the share of the bytes touched in the audit that the scan explains."""
    audited = part["audited"]
    if audited is None:
        return "not audited"
    if "error" in audited:
        return "failed"
    return f"{audited['recall']:.3%}"


TRACE_ROWS: dict[str, Callable[[Result], str]] = {
    "launches per iteration": lambda trace: f"{trace['launches_per_iteration']:.0f}",
    "kernel launches": lambda trace: str(trace["kernel_launches"]),
    "kernels in CUPTI's activity": lambda trace: str(trace["kernel_activities"]),
    "with an access": lambda trace: str(trace["kernel_launches_with_access"]),
    "records lost": lambda trace: str(lost_records(trace["losses"])),
}


def lost_records(losses: Result) -> int:
    """Return how many records are missing from a trace."""
    return sum(losses.get(key, 0) for key in ("dropped", "torn"))


def unique(values: Iterable[str]) -> list[str]:
    """Return the values in the order they first appear."""
    return list(dict.fromkeys(values))


def problems_table(parts: Result) -> Table:
    """Return the table of the parts that were not measured."""
    table = Table("part", "why it was not measured", title="Not measured")
    for name, part in parts.items():
        for problem in (part, part.get("audited") or {}):
            for outcome in ("error", "skipped"):
                if outcome in problem:
                    table.add_row(f"{name}: {outcome}", last_line(problem[outcome]))
    return table


def windows_table(parts: Result) -> Table:
    """Return the table of replays whose memory comes and goes, job by job."""
    table = Table(title="Median step with windows")
    for column in ("job", "memory", "ms", "/ plain", "/ bound", "/ predicted",
                   "GPU peak GiB", "losses"):  # fmt: skip
        table.add_column(column, justify="left" if column == "job" else "right")
    for job, part in parts.items():
        plain_ms = part.get("plain_median_step_ms")
        if plain_ms is None:
            continue
        table.add_row(job, "all", f"{plain_ms:.1f}", *[""] * 5)
        for share, run in part.items():
            if isinstance(run, dict) and "median_step_ms" in run:
                ms, bound_ms = run["median_step_ms"], run.get("bound_step_ms")
                predicted_ms = run.get("predicted_step_ms")
                table.add_row(
                    job,
                    share,
                    f"{ms:.1f}",
                    f"{ms / plain_ms:.3f}",
                    f"{ms / bound_ms:.3f}" if bound_ms else "",
                    f"{ms / predicted_ms:.3f}" if predicted_ms else "",
                    gib(peak(run["status"], "gpu_peak_bytes")),
                    losses(run),
                )
    return table


def last_line(text: str) -> str:
    """Return the end of an error, which says most."""
    return text.strip().splitlines()[-1] if text.strip() else text


TABLES: dict[str, list[Callable[[Result], Table]]] = {
    "skeleton": [runs_table, figures_table, problems_table],
    "windows": [windows_table, problems_table],
    "recorder": [overhead_table, coverage_table, problems_table],
}


def print_tables(benchmark: str, parts: Result) -> None:
    """Print whatever was measured."""
    console = Console(width=120)
    tables = [make(parts) for make in TABLES[benchmark]]
    console.print(*(t for t in tables if t.row_count and len(t.columns) > 1))


def main() -> None:
    """Print the result that the command line names."""
    result = json.loads(Path(sys.argv[1]).read_text())
    if result.get("benchmark") not in TABLES:
        known = ", ".join(TABLES)
        sys.exit(f"{sys.argv[1]}: not a result of one of the benchmarks {known}")
    print_tables(result["benchmark"], result["parts"])


if __name__ == "__main__":
    main()
