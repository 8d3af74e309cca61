"""What a plan does with one allocation, access by access, and what that costs.

The same figures that the plan was made from: launches' recorded times, and the rates of
the machine profile. Nothing of it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from transit.compiler import iteration as iterations
from transit.compiler.arrays import Ints
from transit.compiler.compiler import Options, build_model, build_problems
from transit.compiler.iteration import SteadyIteration
from transit.compiler.labels import Labels
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES, Placement, Plan, RankPlan, Window
from transit.compiler.problem import Problem
from transit.compiler.work import Work
from transit.errors import TraceError
from transit.traces.reader import Trace

MAX_NAMED = 5


@dataclass(frozen=True)
class _Gpu:
    """One GPU of one rank, as its plan was made from it."""

    rank: int
    device: int
    problem: Problem
    model: Model
    labels: Labels
    names: list[str]  # of the iteration's launches
    busy_ns: Any
    link: Link | None  # None if no windows can be planned


def explain(
    trace: Trace, plan: Plan, options: Options, allocation: str
) -> list[dict[str, Any]]:
    """Tell of the ranges of an allocation, in every rank and GPU that has it.

    Parameters
    ----------
    options
        What the plan was compiled with.
    allocation
        Its ordinal, or the label of what lies in it: then of that range alone.

    Raises
    ------
    TraceError
        If there is no such allocation.
    """
    gpus = [gpu for rank in plan.ranks for gpu in _gpus(trace, rank.ranks[0], options)]
    plans = {rank.ranks[0]: rank for rank in plan.ranks}
    found = [
        explained
        for gpu in gpus
        for index, start, stop in _matches(gpu, allocation)
        if (explained := _allocation(gpu, plans[gpu.rank], index, start, stop))
    ]
    if not found:
        raise TraceError(f"{trace.path}: {_unknown(gpus, allocation)}")
    return found


def _gpus(trace: Trace, rank: int, options: Options) -> Iterator[_Gpu]:
    steady = iterations.find(trace, rank)
    work = Work.read(trace, rank)
    first = int(np.searchsorted(work.launch_ids, steady.launch_ids[0]))
    names = work.table["name"].slice(first, steady.num_launches).to_pylist()
    has_windows = options.backend in options.machine.backends
    rates = options.machine.windows(options.backend) if has_windows else None
    for device, problem in build_problems(trace, rank, steady, options):
        yield _Gpu(
            rank=rank,
            device=device,
            problem=problem,
            model=_model(trace, rank, steady, problem),
            labels=Labels.read(trace, rank, problem.allocations),
            names=names,
            busy_ns=steady.busy_ns,
            link=Link.of_windows(rates) if rates else None,
        )


def _model(trace: Trace, rank: int, steady: SteadyIteration, problem: Problem) -> Model:
    """Return the model with what is touched unseen as well: here nothing moves."""
    seen = np.zeros(len(problem.regions), np.bool_)
    regions = replace(problem.regions, unexplained=seen)
    return build_model(trace, rank, steady, replace(problem, regions=regions))


def _matches(gpu: _Gpu, allocation: str) -> Iterator[tuple[int, int, int]]:
    """Find allocations by ordinal, else ranges by label: index, start and stop."""
    allocations, labels = gpu.problem.allocations, gpu.labels
    if allocation.isdecimal():
        for index in np.flatnonzero(allocations.ordinal == int(allocation)).tolist():
            yield index, 0, int(allocations.bytes[index])
        return
    places = {
        (int(labels.allocation[i]), int(labels.start[i]), int(labels.stop[i]))
        for i, label in enumerate(labels.label)
        if label == allocation
    }
    yield from sorted(places)


def _unknown(gpus: list[_Gpu], allocation: str) -> str:
    last = max((int(gpu.problem.allocations.ordinal.max()) for gpu in gpus), default=0)
    labels = sorted({label for gpu in gpus for label in gpu.labels.label})
    near = get_close_matches(allocation, labels, MAX_NAMED, 0.3) or labels[:MAX_NAMED]
    known = (
        f"{len(labels)} labels, such as {'; '.join(near)}" if labels else "no labels"
    )
    return (
        f"no allocation {allocation!r} to explain; there are ordinals 0 to {last} and "
        f"{known}; `transit show` lists them"
    )


def _allocation(
    gpu: _Gpu, plan: RankPlan, index: int, start: int, stop: int
) -> dict[str, Any]:
    ordinal = int(gpu.problem.allocations.ordinal[index])
    placements = next(
        allocation.placements
        for allocation in plan.allocations
        if (allocation.device, allocation.ordinal) == (gpu.device, ordinal)
    )
    return {
        "rank": gpu.rank,
        "device": gpu.device,
        "ordinal": ordinal,
        "bytes": int(gpu.problem.allocations.bytes[index]),
        "labels": gpu.labels.within(index, start, stop),
        "ranges": [
            _range(gpu, index, region, placement)
            for region, placement in _pieces(gpu, index, placements, start, stop)
        ],
    }


def _pieces(
    gpu: _Gpu, index: int, placements: tuple[Placement, ...], start: int, stop: int
) -> Iterator[tuple[int, Placement]]:
    """Cut placements at regions: each with what lies from start to stop of it."""
    regions = gpu.problem.regions
    for region in np.flatnonzero(regions.allocation == index).tolist():
        begin = int(regions.first_piece[region]) * PIECE_BYTES
        end = begin + int(regions.num_pieces[region]) * PIECE_BYTES
        for placement in placements:
            low = max(begin, placement.offset)
            high = min(end, placement.offset + placement.bytes)
            if low < high and low < stop and high > start:
                part = {"offset": low, "bytes": high - low}
                yield region, placement.model_copy(update=part)


def _range(gpu: _Gpu, index: int, region: int, part: Placement) -> dict[str, Any]:
    accesses = gpu.model.accesses
    first, last = np.searchsorted(accesses.region, [region, region + 1])
    own: Ints = np.arange(first, last)
    lasts_ns = accesses.gaps_last(gpu.busy_ns)
    return {
        "offset_bytes": part.offset,
        "bytes": part.bytes,
        "labels": gpu.labels.within(index, part.offset, part.offset + part.bytes),
        "placement": part.placement,
        "why": part.why,
        "accesses": [
            _access(gpu, part, access)
            | {
                "gap_ns": round(float(lasts_ns[access])),
                "is_dead": bool(accesses.dead[access]),
            }
            | _in_gap(gpu, part, access)
            for access in own.tolist()
        ],
    }


def _access(gpu: _Gpu, part: Placement, access: int) -> dict[str, Any]:
    """Tell what a launch does, and what it would cost if the range were zero-copy.

    `passes` is how often the link would carry each byte, each way.
    """
    accesses, model = gpu.model.accesses, gpu.model
    region, position = accesses.region[access], int(accesses.position[access])
    reads, writes = bool(accesses.reads[access]), bool(accesses.writes[access])
    region_bytes = float(model.num_pieces[region]) * PIECE_BYTES
    link_ns = float(accesses.link_ns[access]) * part.bytes / region_bytes
    passes = float(accesses.link_bytes[access]) / region_bytes / (reads + writes or 1)
    return {
        "launch": position,
        "kernel": gpu.names[position],
        "direction": "both" if reads and writes else "write" if writes else "read",
        "launch_ns": round(float(model.duration_ns[position])),
        "zero_copy_ns": round(link_ns) if np.isfinite(link_ns) else None,
        "passes": round(passes, 2),
        "rereads": bool(accesses.rereads[access]),
    }


def _in_gap(gpu: _Gpu, part: Placement, access: int) -> dict[str, Any]:
    """Tell where the range is after an access, and what moving it takes.

    It `leaves` if a window ends with the access; it is `stored` and, for the window of
    the next access, `loaded` in so many ns. Null stands for no copy.
    """
    accesses, nothing = gpu.model.accesses, {"store_ns": None, "load_ns": None}
    if part.placement != "windowed":
        stays = "stays" if part.placement == "resident" else "on the host"
        return {"gap": stays, **nothing}
    position = int(accesses.position[access])
    until = int(accesses.position[accesses.following[access]])
    own, after = _window_at(part, position), _window_at(part, until)
    if own and own.last != position:
        return {"gap": "stays", **nothing}
    pieces, link = part.bytes / PIECE_BYTES, gpu.link
    moved: dict[str, int | None] = dict(nothing)
    if link and own and own.write_back:
        moved["store_ns"] = round(link.store_fixed_ns + pieces / link.store)
    if link and after and after.load:
        moved["load_ns"] = round(link.load_fixed_ns + pieces / link.load)
    return {"gap": "leaves" if own else "on the host", **moved}


def _window_at(part: Placement, position: int) -> Window | None:
    return next((w for w in part.windows if w.covers(position)), None)
