"""A job's measured step beside the predicted one, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from transit.runtime.status import MIN_LAPS, ProcessStatus
from transit.units import format_bytes, format_ns

if TYPE_CHECKING:
    from transit.compiler.plan import Plan, RankPlan

TOLERANCE = 0.1  # what a prediction may be off by before it is worth a warning
FEW = 0.05  # such a share of the launches does not change a step much


class Expected(BaseModel):
    """What the plan leads to expect of a rank's steps; nothing of it was measured.

    A step is submitted by so many calls, and windows copy so many bytes in it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rank: int
    step_ns: int
    calls: Annotated[int, Field(gt=0)]
    copied_bytes: int


def expectations(plan: Plan) -> tuple[Expected, ...]:
    """Return what the plan leads to expect of each rank; nothing if it says nothing."""
    if plan.prediction is None:
        return ()
    return tuple(
        Expected(
            rank=rank,
            step_ns=plan.prediction.step_ns,
            calls=_calls(rank_plan),
            copied_bytes=_copied_bytes(rank_plan),
        )
        for rank_plan in plan.ranks
        for rank in rank_plan.ranks
    )


def _calls(rank_plan: RankPlan) -> int:
    calls = rank_plan.iteration.calls()
    return rank_plan.iteration.launches if calls is None else len(calls.signature)


def _copied_bytes(rank_plan: RankPlan) -> int:
    return sum(
        placement.bytes * (window.load + window.write_back)
        for allocation in rank_plan.allocations
        for placement in allocation.placements
        for window in placement.windows
    )


def slowest(processes: Sequence[ProcessStatus]) -> ProcessStatus | None:
    """Return the process whose measured step is longest: that is the job's."""
    measured = [p for p in processes if p.measured_step_ns is not None]
    return max(measured, key=lambda p: p.measured_step_ns or 0, default=None)


def describe_step(process: ProcessStatus) -> str:
    """Say what was measured of a process's steps, or that nothing was."""
    if not process.windowed_peak_bytes:
        return "nothing measured: the job is followed only where a plan has windows"
    if process.measured_step_ns is None:
        return (
            "nothing measured: the job was followed around the plan's iteration "
            f"{process.laps} times, {MIN_LAPS} are needed"
        )
    return (
        f"{format_ns(process.measured_step_ns)} measured (median of the last "
        f"{len(process.lap_ns)} of {process.laps} laps)"
    )


def deviation(process: ProcessStatus, expected: Expected | None) -> str | None:
    """Say that a measured step is not as predicted, and the likely reason.

    None if they differ by no more than a tenth, or there is nothing to compare.
    """
    measured_ns = process.measured_step_ns
    if measured_ns is None or expected is None:
        return None
    difference_ns = measured_ns - expected.step_ns
    if abs(difference_ns) <= TOLERANCE * expected.step_ns:
        return None
    if difference_ns > 0:
        reasons, word = _reasons_for_slow_steps(process, expected), "longer"
    else:
        reasons, word = _reasons_for_fast_steps(process), "shorter"
    likely = next(
        reasons,
        "the costs that the plan was made with are not this machine's; measure them "
        "with transit calibrate, and compile with --machine",
    )
    return (
        f"a step is {word} than predicted: {format_ns(measured_ns)} measured, "
        f"{format_ns(expected.step_ns)} predicted; likely because {likely}"
    )


def _reasons_for_slow_steps(
    process: ProcessStatus, expected: Expected
) -> Iterator[str]:
    """Yield what was not as planned, the weightiest first."""
    others = process.launches_inserted + process.launches_elsewhere
    followed = process.launches_planned + others
    total = followed + process.launches_unlocked
    if process.launches_unlocked > total / 2:
        yield (
            f"the job mostly did something else than the plan's iteration "
            f"({process.launches_unlocked} of {total} launches)"
        )
    if others > FEW * followed:
        yield (
            f"{others} of {followed} launches were not the plan's "
            f"({process.launches_inserted} inserted, {process.launches_elsewhere} on "
            "other addresses)"
        )
    if process.loads_without_room:
        yield (
            f"{process.loads_without_room} chunks of windows stayed in host memory for "
            "lack of room"
        )
    if process.transfer_failures:
        yield f"{process.transfer_failures} transfers of windows failed"
    # Where the job is found, all comes and goes once beside what is planned.
    copied_bytes = process.h2d_bytes + process.d2h_bytes
    copied_bytes -= process.unlocked_copied_bytes
    copied_bytes -= 2 * process.locks * process.windowed_peak_bytes
    planned_bytes = round(_laps_followed(process, expected) * expected.copied_bytes)
    if copied_bytes > (1 + TOLERANCE) * planned_bytes:
        yield (
            f"windows copied {format_bytes(copied_bytes)}, where the plan has "
            f"{format_bytes(planned_bytes)} for as many steps"
        )


def _laps_followed(process: ProcessStatus, expected: Expected) -> float:
    """Return how often the host went around the iteration, before the GPU does."""
    planned = process.launches_planned + process.launches_elsewhere
    return (planned + process.launches_skipped) / expected.calls


def _reasons_for_fast_steps(process: ProcessStatus) -> Iterator[str]:
    skipped = process.launches_skipped
    planned = skipped + process.launches_planned + process.launches_elsewhere
    if skipped > FEW * planned:
        yield f"the job left out {skipped} of {planned} launches of the plan"
