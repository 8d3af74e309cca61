"""Lower one rank of a plan to the flat file that the shim maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transit.compiler.plan import Plan, RankPlan

MAGIC = b"TRNSPLAN"
VERSION = 2
NO_ADDRESS = 2**64 - 1
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
        Of a valid plan: its ranges are sorted and cover their allocation. None of them
        has windows.
    rank
        One of its ranks.
    gpu_memory_bytes
        The plan's budget.
    """
    planned = sorted(rank_plan.allocations, key=lambda a: (a.device, a.ordinal))
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

    placements = [placed for allocation in planned for placed in allocation.placements]
    ranges = np.zeros(len(placements), RANGE_DTYPE)
    ranges["offset"] = [placed.offset for placed in placements]
    ranges["bytes"] = [placed.bytes for placed in placements]
    ranges["placement"] = [PLACEMENT_CODES[placed.placement] for placed in placements]

    header = np.zeros((), HEADER_DTYPE)
    header["magic"] = MAGIC
    header["version"] = VERSION
    header["header_bytes"] = HEADER_DTYPE.itemsize
    header["rank"] = rank
    header["num_allocations"] = len(allocations)
    header["num_ranges"] = len(ranges)
    header["gpu_memory_bytes"] = gpu_memory_bytes
    header["file_bytes"] = HEADER_DTYPE.itemsize + allocations.nbytes + ranges.nbytes
    return header.tobytes() + allocations.tobytes() + ranges.tobytes()


def write_all(plan: Plan, folder: Path) -> None:
    """Write ``rank=<r>.flat`` for every rank of a plan into a new folder."""
    folder.mkdir()
    for rank_plan in plan.ranks:
        for rank in rank_plan.ranks:
            flat = lower(rank_plan, rank, gpu_memory_bytes=plan.gpu_memory_bytes)
            (folder / f"rank={rank}.flat").write_bytes(flat)
