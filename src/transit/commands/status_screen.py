"""What ``transit status`` shows of a run: words for people, values for scripts."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transit.runtime.looks import LinkRate, Look, link_rate
from transit.runtime.status import ProcessStatus, ShimState
from transit.runtime.step_time import Expected, describe_step, deviation
from transit.units import format_bytes, format_ns


def describe_run(before: Look, after: Look) -> dict[str, Any]:
    """Return a run as plain values, with what moved between two looks."""
    return {
        "folder": str(after.folder),
        "pid": after.run.pid,
        "command": list(after.run.command),
        "is_running": after.is_running,
        "gpu_memory_bytes": after.run.gpu_memory_bytes,
        "processes": [
            _describe_process(process, before, after) for process in after.processes
        ],
    }


def _describe_process(
    process: ProcessStatus, before: Look, after: Look
) -> dict[str, Any]:
    expected = after.run.expected_of(process.rank)
    rate = link_rate(before, after, process.pid)
    return process.to_json() | {
        "predicted_step_ns": expected.step_ns if expected else None,
        "deviation": deviation(process, expected),
        "link_rate": asdict(rate) if rate else None,
    }


def screen(before: Look, after: Look) -> Group:
    """Return a run in words, with what moved between two looks."""
    parts: list[RenderableType] = [
        Text(shlex.join(after.run.command), style="bold"),
        Text(_state_of_run(after)),
    ]
    for process in after.processes:
        parts += [
            Text(f"\nrank {process.rank}, pid {process.pid}: {_state(process)}"),
            _table(_facts(process, before, after)),
        ]
    return Group(*parts, "")


def _table(facts: dict[str, str | None]) -> Table:
    """Lay out one fact a line, without those that there is nothing to say of."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in facts.items():
        if value:
            table.add_row(f"  {name}", Text(value))
    return table


def _state_of_run(look: Look) -> str:
    if not look.is_running:
        return f"has ended; what it left is in {look.folder}"
    if not look.processes:
        return f"run by transit, pid {look.run.pid}; uses no GPU yet"
    return f"run by transit, pid {look.run.pid}"


def _state(process: ProcessStatus) -> str:
    state = process.state.name.lower().replace("_", "-")
    return f"{state}, backend {process.backend.name.lower()}"


def _facts(process: ProcessStatus, before: Look, after: Look) -> dict[str, str | None]:
    expected = after.run.expected_of(process.rank)
    has_plan = process.state is not ShimState.PAGING
    rate = link_rate(before, after, process.pid)
    return {
        "GPU memory": _gpu_memory(process, after.run.gpu_memory_bytes),
        "host memory": f"{format_bytes(process.zero_copy_bytes)} zero-copy, "
        f"{format_bytes(process.windowed_bytes)} that can leave the GPU; of "
        f"{format_bytes(process.host_limit_bytes)} for the job",
        "link": _link(rate),
        "step": _step(process, expected) if has_plan else None,
        "stalls": f"{process.gates:,} waits of streams for chunks under way; threads "
        f"of the job held back for {format_ns(process.held_back_ns)} in all",
        "fallbacks": _fallbacks(process),
        "alignment": _alignment(process) if has_plan else None,
        "warning": deviation(process, expected),
        "failure": process.message,
    }


def _gpu_memory(process: ProcessStatus, budget_bytes: int) -> str:
    return (
        f"{format_bytes(process.resident_bytes)} placed, "
        f"{format_bytes(process.passed_bytes)} left to the driver, of "
        f"{format_bytes(budget_bytes)}; at most {format_bytes(process.gpu_peak_bytes)} "
        "at once"
    )


def _link(rate: LinkRate | None) -> str:
    if rate is None:
        return "nothing copied yet"
    return (
        f"{rate.h2d_bytes_per_s / 1e9:.2f} GB/s to the GPU, "
        f"{rate.d2h_bytes_per_s / 1e9:.2f} GB/s back (last {rate.seconds:.1f} s)"
    )


def _step(process: ProcessStatus, expected: Expected | None) -> str:
    measured_ns = process.measured_step_ns
    words = describe_step(process)
    if measured_ns:
        words += f", {1e9 / measured_ns:.2f} a second"
    if expected:
        words += f"; predicted: {format_ns(expected.step_ns)}"
    return words


def _fallbacks(process: ProcessStatus) -> str:
    return (
        f"{process.loads_without_room:,} chunks without room, "
        f"{process.transfer_failures:,} transfers and "
        f"{process.placement_failures:,} placements failed, "
        f"{process.allocations_unmatched:,} allocations not as planned"
    )


def _alignment(process: ProcessStatus) -> str:
    return (
        f"{process.launches_planned:,} launches as planned, "
        f"{process.launches_elsewhere:,} on other addresses, "
        f"{process.launches_inserted:,} inserted, {process.launches_skipped:,} "
        f"skipped, {process.launches_unlocked:,} not followed; locks: {process.locks:,}"
    )
