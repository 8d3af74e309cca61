"""The steady iteration: what one period of the training loop launches and touches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transit.compiler import periods
from transit.compiler.arrays import (
    Bools,
    Floats,
    Hashes,
    Ints,
    codes,
    column,
    is_one_of,
)
from transit.compiler.marks import MIN_MARKED_TO_DROP_FIRST, rows_outside
from transit.compiler.naming import Naming
from transit.compiler.periods import Repeats
from transit.compiler.work import Work
from transit.errors import TraceError
from transit.traces.reader import Trace


@dataclass(frozen=True)
class Accesses:
    """What the launches of the iteration touch; one entry per launch and range.

    `position` is the launch's place in the iteration; `stop` is exclusive and an upper
    bound unless `exact`; `frequency` is the share of iterations that had the access.
    """

    position: Ints
    allocation_id: Ints
    start: Ints
    stop: Ints
    reads: Bools
    writes: Bools
    exact: Bools
    frequency: Floats

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.position)

    @property
    def size(self) -> Floats:
        """Bytes from start to stop."""
        return (self.stop - self.start).astype(np.float64)


@dataclass(frozen=True)
class SteadyIteration:
    """One iteration that stands for all steady ones.

    It has as many of the job's steps as it takes until calls name the same memory
    again, as when an allocator goes around between a few places. Durations are medians
    over the iterations, and NaN where none was recorded. Launches of the same
    `function` have the same number there, whatever their grids. Nodes of a graph count
    as launches. `launch_ids` are those of one of the iterations.
    """

    launch_ids: Ints
    signatures: Hashes
    function: Ints
    duration_ns: Floats
    is_kernel: Bools
    accesses: Accesses
    found_by: str
    confidence: float
    steps: int

    @property
    def num_launches(self) -> int:
        """Launches in the iteration."""
        return len(self.signatures)

    @property
    def busy_ns(self) -> Floats:
        """GPU time from the iteration's start to each launch, and to its end."""
        ends: Floats = np.cumsum(np.nan_to_num(self.duration_ns))
        return np.concatenate([np.zeros(1), ends])

    @property
    def fingerprint(self) -> str:
        """Hash of the signature sequence: equal for the same iteration."""
        data = self.signatures.astype("<u8").tobytes()
        return hashlib.sha256(data).hexdigest()


def find(trace: Trace, rank: int) -> SteadyIteration:
    """Find the steady iteration of one rank, which must not contradict itself.

    Raises
    ------
    TraceError
        If the recording has no iteration that repeats closely enough.
    """
    work = Work.read(trace, rank)
    launches = work.table
    found = locate(trace, rank, work)
    repeats, steps = _until_memory_repeats(trace, rank, work, found.repeats)
    one = slice(int(repeats.starts[0]), int(repeats.starts[0]) + repeats.launches)
    return SteadyIteration(
        launch_ids=work.launch_ids[one],
        signatures=column(launches, "signature")[one],
        function=codes(launches, "name")[one],
        duration_ns=_median_durations(launches, repeats),
        is_kernel=is_one_of(launches, "kind", "kernel", "graph")[one],
        accesses=_align_accesses(trace, rank, work, repeats),
        found_by=found.found_by,
        confidence=found.confidence,
        steps=steps,
    )


@dataclass(frozen=True)
class Located:
    """Where the steady iterations are, how they were found, and how sure that is."""

    repeats: Repeats
    found_by: str
    confidence: float


def locate(trace: Trace, rank: int, work: Work) -> Located:
    """Find the iterations of one rank that were recorded for their times.

    By marks if what is between them repeats; else by the period of the launches; else
    by the period of the functions launched, whatever their grids: the confidence is
    then lower by the share of launches whose shapes differ.

    Raises
    ------
    TraceError
        If the recording has no iteration that repeats closely enough.
    """
    found = _locate(trace, rank, work)
    return replace(found, repeats=_submitted_alike(work, found.repeats))


def _locate(trace: Trace, rank: int, work: Work) -> Located:
    where = f"{trace.path}, rank {rank}"
    if not len(work.launch_ids):
        raise TraceError(
            f"{where}: no launches were recorded; record more iterations, or check "
            "with `transit doctor` that recording works here"
        )
    signatures = column(work.table, "signature")
    marks = trace.table(rank, "iterations")
    is_timed = is_one_of(marks, "purpose", "timing") | _is_null(marks, "purpose")
    timed = marks.filter(pa.array(is_timed))
    rows = rows_outside(marks.filter(pa.array(~is_timed)), work.launch_ids)
    marked = _repeats_between_marks(timed, work.launch_ids, signatures)
    if marked and marked.confidence >= periods.MIN_CONFIDENCE:
        return Located(
            marked, str(timed.column("found_by")[0].as_py()), marked.confidence
        )
    found = _period(signatures, rows)
    if found and found.confidence >= periods.MIN_CONFIDENCE:
        return Located(found, "period of the launch sequence", found.confidence)
    alike = _period(codes(work.table, "name").astype(np.uint64), rows)
    if alike and alike.confidence >= periods.MIN_CONFIDENCE:
        share = periods.share_alike(signatures, alike)
        return Located(
            alike,
            "period of the functions' names, shapes vary",
            alike.confidence * share,
        )
    seen = max((r.confidence for r in (marked, found, alike) if r), default=0.0)
    raise TraceError(
        f"{where}: no steady iteration among {len(rows)} launches: at best "
        f"{seen:.0%} of the iterations are alike, not {periods.MIN_CONFIDENCE:.0%}. "
        "Record more iterations, skip the warm-up, and record plain training: "
        "evaluation or changing shapes make iterations differ"
    )


def _submitted_alike(work: Work, repeats: Repeats) -> Repeats:
    """Keep the iterations that are submitted as the last one is, from a call on.

    One call submits all nodes of a graph; a warm-up may have launched its kernels one
    by one.
    """
    is_submitted = np.diff(work.launch_ids, prepend=-1) > 0
    if is_submitted.all():
        return repeats
    starts = np.sort(repeats.starts)
    within = np.arange(repeats.launches)
    if shift := int(np.argmax(is_submitted[starts[-1] + within])):
        starts = starts[np.isin(starts + repeats.launches, starts)] + shift
    if not len(starts):
        return repeats
    calls = is_submitted[starts[:, None] + within]
    return replace(repeats, starts=starts[(calls == calls[-1]).all(axis=1)])


def _until_memory_repeats(
    trace: Trace, rank: int, work: Work, repeats: Repeats
) -> tuple[Repeats, int]:
    """Join steps until their calls name the same memory again; say how many."""
    start = int(repeats.starts[-1])
    calls = np.unique(work.launch_ids[start : start + repeats.launches])
    steps = Naming.read(trace, rank, calls).period()
    joined = periods.join(repeats, steps)
    return (joined, steps) if joined else (repeats, 1)


def _is_null(table: pa.Table, name: str) -> Bools:
    return np.asarray(pc.is_null(table.column(name)), np.bool_)


def _period(values: Hashes, rows: Ints) -> Repeats | None:
    """Find repeats among some rows, without those that others come between."""
    repeats = periods.find_repeats(values[rows])
    if repeats is None:
        return None
    first, last = rows[repeats.starts], rows[repeats.starts + repeats.launches - 1]
    whole = last - first == repeats.launches - 1
    return replace(repeats, starts=first[whole]) if whole.any() else None


def _repeats_between_marks(
    marks: pa.Table, ids: Ints, signatures: Hashes
) -> Repeats | None:
    if not marks.num_rows:
        return None
    starts = np.searchsorted(ids, column(marks, "first_launch_id"))
    stops = np.searchsorted(ids, column(marks, "last_launch_id"), side="right")
    if len(starts) >= MIN_MARKED_TO_DROP_FIRST:
        starts, stops = starts[1:], stops[1:]
    return periods.most_common(signatures, starts, stops)


def _median_durations(launches: pa.Table, repeats: Repeats) -> Floats:
    rows = repeats.starts[:, None] + np.arange(repeats.launches)
    start = column(launches, "start_ns", null=0)[rows]
    duration = column(launches, "end_ns", null=0)[rows] - start
    ordered = np.sort(np.where((start > 0) & (duration >= 0), duration, np.nan), axis=0)
    known = np.count_nonzero(~np.isnan(ordered), axis=0)  # NaN is sorted last
    middle = np.maximum(known - 1, 0) // 2
    return np.asarray(ordered[middle, np.arange(repeats.launches)], np.float64)


def _align_accesses(trace: Trace, rank: int, work: Work, repeats: Repeats) -> Accesses:
    """Gather the accesses of all steady iterations by their place in the iteration."""
    table = trace.table(
        rank,
        "accesses",
        [
            *("launch_id", "allocation_id", "offset", "bytes", "extent", "direction"),
            "graph_node",
        ],
    )
    launch = work.places(column(table, "launch_id"), column(table, "graph_node"))
    starts = np.sort(repeats.starts)
    iteration = np.searchsorted(starts, launch, side="right") - 1
    position = launch - starts[iteration]
    steady = (iteration >= 0) & (position < repeats.launches)
    table = table.filter(pa.array(steady))
    keys = ["position", "allocation_id", "offset", "bytes", "extent", "direction"]
    grouped = (
        table.append_column("position", pa.array(position[steady]))
        .append_column("iteration", pa.array(iteration[steady]))
        .group_by(keys, use_threads=False)
        .aggregate([("iteration", "count_distinct")])
        .sort_by([(key, "ascending") for key in keys[:4]])
    )
    return _resolve(grouped, trace, rank, len(starts))


def _resolve(
    grouped: pa.Table, trace: Trace, rank: int, num_iterations: int
) -> Accesses:
    """Give every access an end, that of its allocation if unknown; drop empty ones."""
    allocations = trace.table(rank, "allocations", ["allocation_id", "bytes"])
    known = column(allocations, "allocation_id")
    allocation_id = column(grouped, "allocation_id")
    end = column(allocations, "bytes")[np.searchsorted(known, allocation_id)]
    start, size = column(grouped, "offset"), column(grouped, "bytes")
    stop = np.where(size < 0, end, start + size)
    keep = stop > start
    unknown = is_one_of(grouped, "direction", "unknown", "both")
    return Accesses(
        position=column(grouped, "position")[keep],
        allocation_id=allocation_id[keep],
        start=start[keep],
        stop=stop[keep],
        reads=(unknown | is_one_of(grouped, "direction", "read"))[keep],
        writes=(unknown | is_one_of(grouped, "direction", "write"))[keep],
        exact=is_one_of(grouped, "extent", "exact")[keep],
        frequency=column(grouped, "iteration_count_distinct")[keep] / num_iterations,
    )
