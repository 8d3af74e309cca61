"""Everything that the page says, as plain values."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, NamedTuple

from transit.compiler.alike import groups
from transit.compiler.arrays import Floats
from transit.compiler.compiled import Compiled, GpuResult
from transit.compiler.compiler import Options
from transit.compiler.course import Course
from transit.compiler.placements import HOLDS
from transit.compiler.plan import Allocation, Placement, Plan
from transit.compiler.policies import AUTO
from transit.compiler.report.curves import Memory, bytes_in_bins
from transit.compiler.summary import summarize
from transit.compiler.sweep import Point
from transit.traces.caveats import caveats
from transit.traces.reader import Trace

MAX_RANGES = 200


@dataclass(frozen=True)
class Crossing:
    """One direction of the link: bytes in equal parts of the step, and its rate."""

    name: str
    moved_bytes: list[float]
    bytes_per_s: float


@dataclass(frozen=True)
class Gpu:
    """One GPU of ranks that do the same; `ranges` are those that matter most."""

    name: str
    step_ns: float
    wait_ns: float
    memory: Memory
    link: list[Crossing]
    ranges: list[dict[str, Any]]
    num_ranges: int


@dataclass(frozen=True)
class Report:
    """What a plan does and is predicted to cost; times are None if none is known."""

    command: str
    plan: Plan
    summary: dict[str, Any]
    backend: str | None
    caveats: list[str]
    steps_ns: dict[str, int | None]
    sweep: list[Point]
    gpus: list[Gpu]


def gather(
    trace: Trace,
    options: Options,
    compiled: Compiled,
    sweep: list[Point],
) -> Report:
    """Gather what there is to say about a plan.

    Parameters
    ----------
    sweep
        Steps with other budgets, or nothing.
    """
    plan = compiled.plan
    slowest_first = sorted(compiled.gpus, key=lambda gpu: -gpu.course.step_ns)
    alike = {group[0]: group for group in groups(trace)}
    return Report(
        command=shlex.join(plan.trace.command),
        plan=plan,
        summary=summarize(plan),
        backend=options.backend if plan.policy == AUTO else None,
        caveats=_caveats(trace),
        steps_ns=_steps(plan),
        sweep=sweep,
        gpus=[_gpu(gpu, alike[gpu.rank], plan, options) for gpu in slowest_first],
    )


def _caveats(trace: Trace) -> list[str]:
    """List each caveat once, with the ranks that it is of if there are several."""
    ranks: dict[str, list[int]] = {}
    for info in trace.manifest.ranks:
        for caveat in caveats(info):
            ranks.setdefault(caveat, []).append(info.rank)
    if len(trace.ranks) == 1:
        return list(ranks)
    return [f"{_ranks(those)}: {caveat}" for caveat, those in ranks.items()]


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _steps(plan: Plan) -> dict[str, int | None]:
    """Return what a step takes, by policy, and what it is to be compared with."""
    found = plan.prediction
    if not found:
        return {}
    steps = {"everything fits (ideal)": found.ideal_step_ns}
    if found.bound_step_ns is not None:
        steps["no schedule is faster (bound)"] = found.bound_step_ns
    others = sorted(
        found.policies.items(), key=lambda item: (item[1] is None, item[1] or 0)
    )
    return {**steps, f"{plan.policy} (this plan)": found.step_ns, **dict(others)}


def _gpu(result: GpuResult, ranks: list[int], plan: Plan, options: Options) -> Gpu:
    course = result.course
    (rank_plan,) = (one for one in plan.ranks if result.rank in one.ranks)
    ranges = [
        _range(allocation, placement, result)
        for allocation in rank_plan.allocations
        if allocation.device == result.device
        for placement in allocation.placements
    ]
    ranges.sort(key=lambda row: (-row["moved_bytes"], -row["bytes"]))
    return Gpu(
        name=_name(ranks, result.device),
        step_ns=course.step_ns,
        wait_ns=float(course.wait_ns.sum()),
        memory=Memory.of(course),
        link=_link(course, options),
        ranges=ranges[:MAX_RANGES],
        num_ranges=len(ranges),
    )


def _name(ranks: list[int], device: int) -> str:
    """Name the GPUs that a section is of: each rank has its own."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}, GPU {device}"
    return f"Ranks {', '.join(map(str, ranks))}: as GPU {device} of rank {ranks[0]}"


def _link(course: Course, options: Options) -> list[Crossing]:
    machine = options.machine
    windows = machine.windows(options.backend) if options.policy == AUTO else None
    return [
        _crossing(
            "host to GPU",
            course,
            _Use(course.read_bytes, machine.zero_copy_read_bytes_per_s or 0.0),
            _Use(course.loaded_bytes, windows.load_bytes_per_s if windows else 0.0),
        ),
        _crossing(
            "GPU to host",
            course,
            _Use(course.written_bytes, machine.zero_copy_write_bytes_per_s or 0.0),
            _Use(course.stored_bytes, windows.store_bytes_per_s if windows else 0.0),
        ),
    ]


class _Use(NamedTuple):
    """What uses one direction of the link, and how fast it can."""

    moved_bytes: Floats
    bytes_per_s: float


def _crossing(name: str, course: Course, in_place: _Use, windows: _Use) -> Crossing:
    """Return what crosses one way; the limit is that of the fastest use made of it."""
    uses = [use for use in (in_place, windows) if use.moved_bytes.any()]
    most = max(use.bytes_per_s for use in uses or (in_place, windows))
    moved_bytes = bytes_in_bins(
        course,
        in_place.moved_bytes,
        windows.moved_bytes,
        window_bytes_per_s=windows.bytes_per_s,
        bytes_per_s=most,
    )
    return Crossing(name, moved_bytes.tolist(), most)


def _range(
    allocation: Allocation, placement: Placement, result: GpuResult
) -> dict[str, Any]:
    """Tell of one range; what it holds is at the end of its reason."""
    why, _, holds = placement.why.partition(HOLDS)
    copies = sum(window.load + window.write_back for window in placement.windows)
    in_place = sum(
        moved
        for offset, moved in result.in_place_bytes.get(allocation.ordinal, ())
        if placement.offset <= offset < placement.offset + placement.bytes
    )
    return {
        "ordinal": allocation.ordinal,
        "offset_bytes": placement.offset,
        "bytes": placement.bytes,
        "holds": holds,
        "placement": placement.placement,
        "windows": len(placement.windows),
        "moved_bytes": copies * placement.bytes + round(in_place),
        "why": why,
    }
