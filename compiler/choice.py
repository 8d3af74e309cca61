"""What is decided for one GPU: where ranges of its memory live, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler import planner
from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.budget import smallest_budget, smallest_for_windows
from transit.compiler.course import Course
from transit.compiler.iteration import SteadyIteration
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES, PlacementKind, Window
from transit.compiler.planner import Planned
from transit.compiler.policies import POLICIES
from transit.compiler.problem import Problem
from transit.compiler.schedule import NEVER, Schedule


@dataclass(frozen=True)
class Range:
    """Pieces of a region that live in one place, or come and go together.

    `in_place_bytes` are what an iteration reads and writes of them over the link.
    """

    region: int
    first_piece: int  # from the region's start
    num_pieces: int
    kind: PlacementKind
    windows: tuple[Window, ...] = ()
    in_place_bytes: float = 0.0


@dataclass(frozen=True)
class Choice:
    """Placements of all regions of one GPU; `step_ns` and what crosses are predicted.

    `bound_ns` is null where no bound was looked for.
    """

    ranges: list[Range]
    why_spilled: str
    peak_pieces: int
    smallest_pieces: int
    ideal_ns: float
    step_ns: float
    bound_ns: float | None
    h2d_bytes: float
    d2h_bytes: float
    course: Course


def choose_static(problem: Problem, steady: SteadyIteration, policy: str) -> Choice:
    """Let a policy choose what is resident and what is zero-copy for the whole run."""
    rules, regions = POLICIES[policy], problem.regions
    zero_copy = rules.choose(problem)
    lists = regions.accesses
    share = (zero_copy / regions.num_pieces)[lists.region]
    used = np.flatnonzero(share)
    # A launch takes as long as its kernel or its link traffic, whichever is longer.
    link_ns = sum_by(
        lists.position[used], lists.link_ns[used] * share[used], steady.num_launches
    )
    busy_ns = np.nan_to_num(steady.duration_ns)
    launch_ns = np.maximum(link_ns, busy_ns)
    link_bytes = lists.link_bytes * share
    h2d_bytes, d2h_bytes = _in_place_bytes(link_bytes, lists.reads, lists.writes)
    in_place_bytes = sum_by(lists.region, link_bytes, len(regions))
    return Choice(
        ranges=_static_ranges(regions.num_pieces, zero_copy, in_place_bytes),
        why_spilled=rules.why_spilled,
        peak_pieces=problem.peak(zero_copy),
        smallest_pieces=smallest_budget(problem, rules),
        ideal_ns=float(busy_ns.sum()),
        step_ns=float(launch_ns.sum()),
        bound_ns=None,
        h2d_bytes=float(h2d_bytes.sum()),
        d2h_bytes=float(d2h_bytes.sum()),
        course=Course.of_static(
            problem,
            steady.launch_ids,
            zero_copy,
            launch_ns,
            sum_by(lists.position, h2d_bytes, steady.num_launches),
            sum_by(lists.position, d2h_bytes, steady.num_launches),
        ),
    )


def choose_windows(
    problem: Problem, steady: SteadyIteration, model: Model, link: Link
) -> Choice:
    """Let memory come and go during the iteration, so that the step is short.

    Raises
    ------
    planner.NothingFitsError
        If no schedule keeps to the budget.
    """
    nothing = np.zeros_like(model.num_pieces)
    if problem.peak(nothing) <= problem.budget:
        return _everything(problem, steady, model)
    planned = planner.plan(model, link)
    found, accesses = planned.schedule, model.accesses
    share = found.in_place / model.num_pieces[accesses.region]
    h2d_bytes, d2h_bytes = _in_place_bytes(
        accesses.link_bytes * share, accesses.reads, accesses.writes
    )
    loaded_bytes = planned.simulated.loaded_pieces * PIECE_BYTES
    stored_bytes = planned.simulated.stored_pieces * PIECE_BYTES
    resident = np.bincount(
        found.parts.region,
        found.parts.num_pieces * found.resident,
        len(model.num_pieces),
    ).astype(np.int64)
    kept = np.where(problem.regions.unexplained, model.num_pieces, resident)
    return Choice(
        ranges=[*_untouched(problem, model), *_scheduled(planned, model)],
        why_spilled="shortens the predicted step",
        peak_pieces=max(
            planned.simulated.peak_pieces, problem.peak(model.num_pieces - kept)
        ),
        smallest_pieces=smallest_for_windows(model),
        ideal_ns=float(model.duration_ns.sum()),
        step_ns=planned.simulated.step_ns,
        bound_ns=planned.bound_ns,
        h2d_bytes=float(h2d_bytes.sum()) + loaded_bytes,
        d2h_bytes=float(d2h_bytes.sum()) + stored_bytes,
        course=Course.of_windows(
            model,
            planned,
            sum_by(accesses.position, h2d_bytes, model.num_launches),
            sum_by(accesses.position, d2h_bytes, model.num_launches),
        ),
    )


def _everything(problem: Problem, steady: SteadyIteration, model: Model) -> Choice:
    nothing, no_bytes = np.zeros_like(model.num_pieces), np.zeros(model.num_launches)
    ideal_ns = float(model.duration_ns.sum())
    return Choice(
        ranges=_static_ranges(model.num_pieces, nothing, np.zeros(len(nothing))),
        why_spilled="",
        peak_pieces=problem.peak(nothing),
        smallest_pieces=smallest_for_windows(model),
        ideal_ns=ideal_ns,
        step_ns=ideal_ns,
        bound_ns=ideal_ns,
        h2d_bytes=0.0,
        d2h_bytes=0.0,
        course=Course.of_static(
            *(problem, steady.launch_ids, nothing, model.duration_ns),
            *(no_bytes, no_bytes),
        ),
    )


def _in_place_bytes(
    link_bytes: Floats, reads: Bools, writes: Bools
) -> tuple[Floats, Floats]:
    """Split what accesses in place move; one that does both moves as much each way."""
    each = link_bytes / np.maximum(reads * 1 + writes * 1, 1)
    return each * reads, each * writes


def _static_ranges(
    num_pieces: Ints, zero_copy: Ints, in_place_bytes: Floats
) -> list[Range]:
    """Keep each region's first pieces on the GPU."""
    ranges = []
    columns = (num_pieces.tolist(), zero_copy.tolist(), in_place_bytes.tolist())
    for region, (pieces, spilled, moved) in enumerate(zip(*columns, strict=True)):
        if kept := pieces - spilled:
            ranges.append(Range(region, 0, kept, "resident"))
        if spilled:
            ranges.append(
                Range(region, kept, spilled, "zero-copy", in_place_bytes=moved)
            )
    return ranges


def _untouched(problem: Problem, model: Model) -> list[Range]:
    """Keep what is touched unseen, and give up what the iteration does not touch."""
    touched = np.unique(model.accesses.region)
    rest = np.setdiff1d(np.arange(len(model.num_pieces)), touched)
    return [
        Range(
            region,
            0,
            int(model.num_pieces[region]),
            "resident" if problem.regions.unexplained[region] else "zero-copy",
        )
        for region in rest.tolist()
    ]


def _scheduled(planned: Planned, model: Model) -> list[Range]:
    parts, schedule = planned.schedule.parts, planned.schedule
    windows = _windows(schedule, planned.simulated.issue)
    rows = zip(
        parts.region.tolist(),
        parts.first_piece.tolist(),
        parts.num_pieces.tolist(),
        schedule.resident.tolist(),
        _in_place_bytes_of_parts(schedule, model).tolist(),
        strict=True,
    )
    ranges = []
    for part, (region, first, pieces, is_resident, moved) in enumerate(rows):
        own = windows.get(part, ())
        spilled: PlacementKind = "windowed" if own else "zero-copy"
        kind = "resident" if is_resident else spilled
        ranges.append(Range(region, first, pieces, kind, own, moved))
    return ranges


def _in_place_bytes_of_parts(schedule: Schedule, model: Model) -> Floats:
    """Return what an iteration moves of each part in place."""
    parts, accesses = schedule.parts, model.accesses
    end = parts.first_piece + parts.num_pieces
    share = parts.num_pieces / model.num_pieces[parts.region]
    used = np.flatnonzero(schedule.in_place)
    first = np.searchsorted(parts.region, accesses.region[used])
    last = np.searchsorted(parts.region, accesses.region[used], side="right")
    moved = np.zeros(len(share))
    for access, begin, stop in zip(used, first, last, strict=True):
        own = slice(begin, stop)
        # The first pieces of a region are those that are in place.
        is_in_place = end[own] <= schedule.in_place[access]
        moved[own] += is_in_place * share[own] * accesses.link_bytes[access]
    return moved


def _windows(schedule: Schedule, issue: Ints) -> dict[int, tuple[Window, ...]]:
    """Return the windows of each part that has some, in the iteration's order."""
    windows = schedule.windows
    # What is not loaded is only there once the launch is known that overwrites it.
    issue = np.where(windows.load, issue, windows.first)
    order = np.lexsort((windows.first, windows.part))
    # Only what is stored needs to know when it was written for the last time.
    written = np.where(windows.store, windows.written, windows.last)
    columns = (
        issue,
        windows.first,
        windows.last,
        written,
        windows.load,
        windows.store,
        windows.home,
    )
    rows = zip(*(values[order].tolist() for values in columns), strict=True)
    names = ("issue", "first", "last", "written", "load", "write_back", "home")
    found: dict[int, list[Window]] = {}
    for part, row in zip(windows.part[order].tolist(), rows, strict=True):
        values = dict(zip(names, row, strict=True))
        home = values.pop("home")
        window = Window(**values, home=None if home == NEVER else home)
        found.setdefault(part, []).append(window)
    return {part: tuple(own) for part, own in found.items()}
