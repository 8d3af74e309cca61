"""Lower one rank of a plan to the flat file that the shim maps."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transit.compiler.sequence import Sequence

if TYPE_CHECKING:
    from transit.compiler.plan import Allocation, Placement, Plan, RankPlan, Window

Records = npt.NDArray[Any]

MAGIC = b"TRNSPLAN"
VERSION = 2
NO_ADDRESS = 2**64 - 1
LOADS, WRITES_BACK = 1, 2  # FlatWindow::flags
PLACEMENT_CODES = {"resident": 0, "zero-copy": 1, "windowed": 2}

# Mirror runtime/native/flat_plan.h.
HEADER_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("rank", "<u4"),
        ("num_allocations", "<u4"),
        ("num_ranges", "<u4"),
        ("num_windows", "<u4"),
        ("num_launches", "<u4"),
        ("reserved", "<u4"),
        ("gpu_memory_bytes", "<u8"),
        ("file_bytes", "<u8"),
    ]
)
ALLOCATION_DTYPE = np.dtype(
    [
        ("device", "<i4"),
        ("ordinal", "<u4"),
        ("bytes", "<u8"),
        ("address_offset", "<u8"),
        ("first_range", "<u4"),
        ("num_ranges", "<u4"),
    ]
)
RANGE_DTYPE = np.dtype(
    [
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("placement", "<u4"),
        ("reserved", "<u4"),
    ]
)
WINDOW_DTYPE = np.dtype(
    [
        ("range", "<u4"),
        ("issue", "<u4"),
        ("first", "<u4"),
        ("last", "<u4"),
        ("written", "<u4"),
        ("flags", "<u4"),
    ]
)
LAUNCH_DTYPE = np.dtype([("signature", "<u8"), ("addresses", "<u8")])


def lower(rank_plan: RankPlan, rank: int, *, gpu_memory_bytes: int) -> bytes:
    """Return the flat plan of one rank.

    Parameters
    ----------
    rank_plan
        Of a valid plan: its ranges are sorted and cover their allocation. If there are
        windows, its iteration has a sequence.
    rank
        One of its ranks.
    gpu_memory_bytes
        The plan's budget.
    """
    planned = sorted(rank_plan.allocations, key=lambda a: (a.device, a.ordinal))
    placements = [placed for allocation in planned for placed in allocation.placements]
    launches, windows = _launches_and_windows(rank_plan, placements)
    tables = [_allocations(planned), _ranges(placements), windows, launches]
    allocations, ranges, *_ = tables
    header = np.zeros((), HEADER_DTYPE)
    header["magic"] = MAGIC
    header["version"] = VERSION
    header["header_bytes"] = HEADER_DTYPE.itemsize
    header["rank"] = rank
    header["num_allocations"] = len(allocations)
    header["num_ranges"] = len(ranges)
    header["num_windows"] = len(windows)
    header["num_launches"] = len(launches)
    header["gpu_memory_bytes"] = gpu_memory_bytes
    header["file_bytes"] = HEADER_DTYPE.itemsize + sum(t.nbytes for t in tables)
    return b"".join(part.tobytes() for part in (header, *tables))


def _allocations(planned: Items[Allocation]) -> Records:
    counts = [len(allocation.placements) for allocation in planned]
    allocations = np.zeros(len(planned), ALLOCATION_DTYPE)
    allocations["device"] = [allocation.device for allocation in planned]
    allocations["ordinal"] = [allocation.ordinal for allocation in planned]
    allocations["bytes"] = [allocation.bytes for allocation in planned]
    allocations["address_offset"] = [
        NO_ADDRESS if allocation.address_offset is None else allocation.address_offset
        for allocation in planned
    ]
    allocations["first_range"] = np.cumsum([0, *counts])[:-1]
    allocations["num_ranges"] = counts
    return allocations


def _ranges(placements: Items[Placement]) -> Records:
    ranges = np.zeros(len(placements), RANGE_DTYPE)
    ranges["offset"] = [placed.offset for placed in placements]
    ranges["bytes"] = [placed.bytes for placed in placements]
    ranges["placement"] = [PLACEMENT_CODES[placed.placement] for placed in placements]
    return ranges


def _launches_and_windows(
    rank_plan: RankPlan, placements: Items[Placement]
) -> tuple[Records, Records]:
    """Count by calls that submit work: a graph's nodes are submitted by one."""
    text = rank_plan.iteration.sequence
    if text is None:
        return np.zeros(0, LAUNCH_DTYPE), np.zeros(0, WINDOW_DTYPE)
    sequence = Sequence.decode(text, launches=rank_plan.iteration.launches)
    launches = np.zeros(len(sequence.signature), LAUNCH_DTYPE)
    launches["signature"] = sequence.signature
    launches["addresses"] = sequence.addresses
    call_at = np.repeat(np.arange(len(launches)), sequence.num_positions)
    rows = [
        (index, *astuple(call))
        for index, placed in enumerate(placements)
        for call in calls_of(placed.windows, call_at)
    ]
    return launches, np.array(rows, WINDOW_DTYPE)


@dataclass(frozen=True)
class Call:
    """A window in the calls that submit work, as in runtime/native/flat_plan.h."""

    issue: int
    first: int
    last: int
    written: int
    flags: int


def calls_of(windows: Items[Window], call_at: npt.NDArray[np.int64]) -> list[Call]:
    """Return the windows of a range, in calls; those that meet within one are one.

    Parameters
    ----------
    call_at
        The call that submits the launch at each position.
    """
    calls: list[Call] = []
    for window in windows:
        flags = LOADS * window.load | WRITES_BACK * window.write_back
        positions = (window.issue, window.first, window.last, window.written)
        issue, first, last, written = (int(call_at[position]) for position in positions)
        call = Call(issue, first, last, written, flags)
        if window.last < window.first and call.first == call.last:
            call = _whole_turn(call, int(call_at[-1]) + 1)
        meets = bool(calls) and call.first <= calls[-1].last
        calls = [*calls[:-1], _joined(calls[-1], call)] if meets else [*calls, call]
    if len(calls) > 1 and calls[0].first <= calls[-1].last < calls[-1].first:
        calls = [*calls[1:-1], _joined(calls[-1], calls[0])]
    count = int(call_at[-1]) + 1
    befores = calls[-1:] + calls[:-1]
    return [_issued(c, before, count) for before, c in zip(befores, calls, strict=True)]


def _joined(call: Call, later: Call) -> Call:
    flags = (call.flags & LOADS) | ((call.flags | later.flags) & WRITES_BACK)
    return Call(call.issue, call.first, later.last, later.last, flags)


def _whole_turn(call: Call, count: int) -> Call:
    """Begin within a call and end within the same one, a turn later."""
    last = (call.first - 1) % count
    return Call(call.first, call.first, last, last, call.flags)


def _issued(call: Call, before: Call, count: int) -> Call:
    """Load no sooner than the window before has ended."""
    ahead = (call.first - before.last - 1) % count
    issue = (call.first - min((call.first - call.issue) % count, ahead)) % count
    return replace(call, issue=issue)


def write_all(plan: Plan, folder: Path) -> None:
    """Write ``rank=<r>.flat`` for every rank of a plan into a new folder."""
    folder.mkdir()
    for rank_plan in plan.ranks:
        for rank in rank_plan.ranks:
            flat = lower(rank_plan, rank, gpu_memory_bytes=plan.gpu_memory_bytes)
            (folder / f"rank={rank}.flat").write_bytes(flat)
