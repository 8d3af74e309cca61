"""What is decided for one GPU: where ranges of its memory live, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler import planner
from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.budget import smallest_budget, smallest_for_windows
from transit.compiler.iteration import SteadyIteration
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES, PlacementKind, Window
from transit.compiler.planner import Planned
from transit.compiler.policies import POLICIES
from transit.compiler.problem import Problem
from transit.compiler.schedule import Schedule


@dataclass(frozen=True)
class Range:
    """Pieces of a region that live in one place, or come and go together."""

    region: int
    first_piece: int  # from the region's start
    num_pieces: int
    kind: PlacementKind
    windows: tuple[Window, ...] = ()


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
    h2d_bytes, d2h_bytes = _in_place_bytes(
        lists.link_bytes * share, lists.reads, lists.writes
    )
    return Choice(
        ranges=_static_ranges(regions.num_pieces, zero_copy),
        why_spilled=rules.why_spilled,
        peak_pieces=problem.peak(zero_copy),
        smallest_pieces=smallest_budget(problem, rules),
        ideal_ns=float(busy_ns.sum()),
        step_ns=float(np.maximum(link_ns, busy_ns).sum()),
        bound_ns=None,
        h2d_bytes=h2d_bytes,
        d2h_bytes=d2h_bytes,
    )


def choose_windows(problem: Problem, model: Model, link: Link) -> Choice:
    """Let memory come and go during the iteration, so that the step is short.

    Raises
    ------
    planner.NothingFitsError
        If no schedule keeps to the budget.
    """
    nothing = np.zeros_like(model.num_pieces)
    if problem.peak(nothing) <= problem.budget:
        return _everything(problem, model)
    planned = planner.plan(model, link)
    found, accesses = planned.schedule, model.accesses
    share = found.in_place / model.num_pieces[accesses.region]
    h2d_bytes, d2h_bytes = _in_place_bytes(
        accesses.link_bytes * share, accesses.reads, accesses.writes
    )
    resident = np.bincount(
        found.parts.region,
        found.parts.num_pieces * found.resident,
        len(model.num_pieces),
    ).astype(np.int64)
    kept = np.where(problem.regions.unexplained, model.num_pieces, resident)
    return Choice(
        ranges=[*_untouched(problem, model), *_scheduled(planned)],
        why_spilled="shortens the predicted step",
        peak_pieces=max(
            planned.simulated.peak_pieces, problem.peak(model.num_pieces - kept)
        ),
        smallest_pieces=smallest_for_windows(model),
        ideal_ns=float(model.duration_ns.sum()),
        step_ns=planned.simulated.step_ns,
        bound_ns=planned.bound_ns,
        h2d_bytes=h2d_bytes + planned.simulated.loaded_pieces * PIECE_BYTES,
        d2h_bytes=d2h_bytes + planned.simulated.stored_pieces * PIECE_BYTES,
    )


def _everything(problem: Problem, model: Model) -> Choice:
    nothing = np.zeros_like(model.num_pieces)
    ideal_ns = float(model.duration_ns.sum())
    return Choice(
        ranges=_static_ranges(model.num_pieces, nothing),
        why_spilled="",
        peak_pieces=problem.peak(nothing),
        smallest_pieces=smallest_for_windows(model),
        ideal_ns=ideal_ns,
        step_ns=ideal_ns,
        bound_ns=ideal_ns,
        h2d_bytes=0.0,
        d2h_bytes=0.0,
    )


def _in_place_bytes(
    link_bytes: Floats, reads: Bools, writes: Bools
) -> tuple[float, float]:
    """Split what accesses in place move; one that does both moves as much each way."""
    each = link_bytes / np.maximum(reads * 1 + writes * 1, 1)
    return float((each * reads).sum()), float((each * writes).sum())


def _static_ranges(num_pieces: Ints, zero_copy: Ints) -> list[Range]:
    """Keep each region's first pieces on the GPU."""
    ranges = []
    for region, (pieces, spilled) in enumerate(
        zip(num_pieces.tolist(), zero_copy.tolist(), strict=True)
    ):
        if kept := pieces - spilled:
            ranges.append(Range(region, 0, kept, "resident"))
        if spilled:
            ranges.append(Range(region, kept, spilled, "zero-copy"))
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


def _scheduled(planned: Planned) -> list[Range]:
    parts, schedule = planned.schedule.parts, planned.schedule
    windows = _windows(schedule, planned.simulated.issue)
    rows = zip(
        parts.region.tolist(),
        parts.first_piece.tolist(),
        parts.num_pieces.tolist(),
        schedule.resident.tolist(),
        strict=True,
    )
    ranges = []
    for part, (region, first, pieces, is_resident) in enumerate(rows):
        own = windows.get(part, ())
        spilled: PlacementKind = "windowed" if own else "zero-copy"
        kind = "resident" if is_resident else spilled
        ranges.append(Range(region, first, pieces, kind, own))
    return ranges


def _windows(schedule: Schedule, issue: Ints) -> dict[int, tuple[Window, ...]]:
    """Return the windows of each part that has some, in the iteration's order."""
    windows = schedule.windows
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
    )
    rows = zip(*(values[order].tolist() for values in columns), strict=True)
    names = ("issue", "first", "last", "written", "load", "write_back")
    found: dict[int, list[Window]] = {}
    for part, row in zip(windows.part[order].tolist(), rows, strict=True):
        window = Window(**dict(zip(names, row, strict=True)))
        found.setdefault(part, []).append(window)
    return {part: tuple(own) for part, own in found.items()}
