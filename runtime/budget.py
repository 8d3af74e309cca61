"""What a job took of its GPU's and of the host's memory, beside what it may have."""

from __future__ import annotations

from transit.errors import BudgetError
from transit.runtime.status import ProcessStatus
from transit.units import format_bytes


def problems_of(process: ProcessStatus) -> list[str]:
    """Say where a process passed a bound, or came up against one."""
    found = []
    if count := process.budget_excesses:
        found.append(
            f"{count} allocations or moves came when a GPU had more than its budget of "
            f"{format_bytes(process.budget_bytes)}, by up to "
            f"{format_bytes(process.budget_excess_peak_bytes)}: "
            f"{format_bytes(process.passed_peak_bytes)} at most were left to the "
            "driver, and cannot be moved"
        )
    if count := process.host_refusals:
        found.append(
            f"{count} allocations were refused as out of memory, for lack of host "
            f"memory; at most the process had {format_bytes(process.host_peak_bytes)}"
        )
    if process.budget_bytes + process.card_taken_bytes > process.card_bytes > 0:
        found.append(
            f"{format_bytes(process.card_taken_bytes)} of the GPU's "
            f"{format_bytes(process.card_bytes)} were taken before the first "
            "allocation (contexts, code, other processes): a budget of "
            f"{format_bytes(process.budget_bytes)} does not fit beside that"
        )
    return found


def describe(process: ProcessStatus) -> str:
    """Say what a process had beside what it allocated on the GPU."""
    bound = process.host_limit_bytes
    limit = f" of {format_bytes(bound)} for the job" if bound else ""
    return (
        f"at most {format_bytes(process.host_peak_bytes)} of host memory{limit}; "
        f"{format_bytes(process.card_taken_bytes)} of the GPU taken before the first "
        "allocation, beside the budget (contexts, code, other processes)"
    )


def check_host_memory(needs_bytes: list[int], bound_bytes: int) -> str | None:
    """Refuse a plan that needs more host memory than a job may have.

    Returns
    -------
    str or None
        A warning, if the ranks fit, but not all of them on one machine.
    """
    largest, total = max(needs_bytes, default=0), sum(needs_bytes)
    if largest > bound_bytes:
        raise BudgetError(
            f"the plan keeps {format_bytes(largest)} of a rank in host memory, and the "
            f"job may have {format_bytes(bound_bytes)}; give more --host-memory, or "
            "compile with more --gpu-memory"
        )
    if total > bound_bytes:
        return (
            f"the plan keeps {format_bytes(total)} of all ranks in host memory, and "
            f"those of one machine may have {format_bytes(bound_bytes)}: if all run "
            "here, some are told that they are out of memory"
        )
    return None
