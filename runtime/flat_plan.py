"""Lower one rank of a plan to the flat file that the shim maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transit.compiler.plan import Allocation, Placement, Plan, RankPlan, Window
    from transit.compiler.sequence import Sequence as Calls

Records = npt.NDArray[Any]

MAGIC = b"TRNSPLAN"
VERSION = 5
NO_ADDRESS = 2**64 - 1
NEVER = 2**32 - 1  # FlatWindow::home
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
        ("num_addresses", "<u4"),
        ("num_kernels", "<u4"),
        ("num_words", "<u4"),
        ("num_steps", "<u4"),
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
        ("home", "<u4"),
        ("reserved", "<u4"),
    ]
)
LAUNCH_DTYPE = np.dtype(
    [
        ("signature", "<u8"),
        ("addresses", "<u8"),
        ("first_address", "<u4"),
        ("num_addresses", "<u4"),
    ]
)
ADDRESS_DTYPE = np.dtype("<u8")
KERNEL_DTYPE = np.dtype(
    [("signature", "<u8"), ("first_word", "<u4"), ("num_words", "<u4")]
)
WORD_DTYPE = np.dtype("<u4")


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
    calls = rank_plan.iteration.calls()
    tables = (
        allocations := _allocations(planned),
        ranges := _ranges(placements),
        windows := _windows(placements, calls),
        launches := _launches(calls),
        addresses := _addresses(calls),
        kernels := _kernels(calls),
        words := _words(calls),
    )
    header = np.zeros((), HEADER_DTYPE)
    header["magic"] = MAGIC
    header["version"] = VERSION
    header["header_bytes"] = HEADER_DTYPE.itemsize
    header["rank"] = rank
    header["num_allocations"] = len(allocations)
    header["num_ranges"] = len(ranges)
    header["num_windows"] = len(windows)
    header["num_launches"] = len(launches)
    header["num_addresses"] = len(addresses)
    header["num_kernels"] = len(kernels)
    header["num_words"] = len(words)
    header["num_steps"] = rank_plan.iteration.steps
    header["gpu_memory_bytes"] = gpu_memory_bytes
    header["file_bytes"] = HEADER_DTYPE.itemsize + sum(t.nbytes for t in tables)
    return b"".join(part.tobytes() for part in (header, *tables))


def _allocations(planned: Sequence[Allocation]) -> Records:
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


def _ranges(placements: Sequence[Placement]) -> Records:
    ranges = np.zeros(len(placements), RANGE_DTYPE)
    ranges["offset"] = [placed.offset for placed in placements]
    ranges["bytes"] = [placed.bytes for placed in placements]
    ranges["placement"] = [PLACEMENT_CODES[placed.placement] for placed in placements]
    return ranges


def _launches(calls: Calls | None) -> Records:
    """Count by calls that submit work: a graph's nodes are submitted by one."""
    launches = np.zeros(len(calls.signature) if calls else 0, LAUNCH_DTYPE)
    if calls:
        launches["signature"] = calls.signature
        launches["addresses"] = calls.addresses
        launches["first_address"] = np.cumsum(calls.num_named) - calls.num_named
        launches["num_addresses"] = calls.num_named
    return launches


def _addresses(calls: Calls | None) -> Records:
    return calls.named.astype(ADDRESS_DTYPE) if calls else np.zeros(0, ADDRESS_DTYPE)


def _kernels(calls: Calls | None) -> Records:
    kernels = np.zeros(len(calls.kernel) if calls else 0, KERNEL_DTYPE)
    if calls:
        kernels["signature"] = calls.kernel
        kernels["first_word"] = np.cumsum(calls.num_words) - calls.num_words
        kernels["num_words"] = calls.num_words
    return kernels


def _words(calls: Calls | None) -> Records:
    return calls.words.astype(WORD_DTYPE) if calls else np.zeros(0, WORD_DTYPE)


def _windows(placements: Sequence[Placement], calls: Calls | None) -> Records:
    if not calls:
        return np.zeros(0, WINDOW_DTYPE)
    rows = [
        (index, *row)
        for index, placed in enumerate(placements)
        for row in _windows_of(placed.windows, calls.call_at)
    ]
    return np.array(rows, WINDOW_DTYPE)


def _windows_of(
    windows: tuple[Window, ...], call_at: npt.NDArray[np.int64]
) -> Iterator[tuple[int, ...]]:
    """Put the windows of a range in calls; none begins or ends within one."""
    count = int(call_at[-1]) + 1
    for before, window in zip(windows[-1:] + windows, windows, strict=False):
        positions = (window.issue, window.first, window.last, window.written)
        issue, *rest = (int(call_at[position]) for position in positions)
        # After the window before, but within the call that this one ends with.
        if issue == call_at[before.last] and window.issue != window.first:
            issue = (issue + 1) % count
        flags = LOADS * window.load | WRITES_BACK * window.write_back
        home = NEVER if window.home is None else int(call_at[window.home])
        yield issue, *rest, flags, home, 0


def write_all(plan: Plan, folder: Path) -> None:
    """Write ``rank=<r>.flat`` for every rank of a plan into a new folder."""
    folder.mkdir()
    for rank_plan in plan.ranks:
        for rank in rank_plan.ranks:
            flat = lower(rank_plan, rank, gpu_memory_bytes=plan.gpu_memory_bytes)
            (folder / f"rank={rank}.flat").write_bytes(flat)
