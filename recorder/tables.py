"""The tables of one rank out of its spool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.block_labels import block_labels
from transit.recorder.columns import (
    NEVER,
    DamagedError,
    Ints,
    constant,
    int64,
    known_labels,
    nullable,
)
from transit.recorder.extents import BEFORE, Histories, Lifetimes
from transit.recorder.launches import Launches
from transit.recorder.spool import Records, Spool

ALLOCATION_APIS = {
    1: "mem_alloc",
    2: "managed",
    3: "async",
    4: "pitch",
    5: "vmm",
    6: "host",
    7: "audited",
}
RECORDING_STARTED, ITERATION_END = 1, 2
RECORDING_COMPLETE, PURPOSE_CHANGED = 4, 5
PURPOSES = {0: "timing", 1: "direction", 2: "audit"}


@dataclass(frozen=True)
class Allocations:
    """Allocations by ascending id."""

    table: pa.Table
    ids: Ints
    lifetimes: Lifetimes

    @cached_property
    def line_start(self) -> Ints:
        """Return where each would start, and the last end, if they lay end to end.

        Real addresses are used again after a free.
        """
        return np.append(0, np.cumsum(self.lifetimes.bytes))

    def rows(self, ids: npt.NDArray[Any]) -> Ints:
        """Return each id's row, -1 for an unknown one."""
        place = np.searchsorted(self.ids, ids)
        found = np.append(self.ids, -1)[place] == ids
        return np.where(found, place, -1)


def allocations(spool: Spool) -> Allocations:
    """Join allocations with their frees."""
    records, frees = spool.records["allocation"], spool.records["free"]
    # Registering an observer may report an allocation in the making twice.
    ids, first = np.unique(records["allocation_id"], return_index=True)
    records = records[first]
    freed, free_row = np.unique(frees["allocation_id"], return_index=True)
    place = np.searchsorted(freed, ids)
    never = np.append(freed.astype(np.int64), -1)[place] != ids
    row = np.append(free_row, -1)[place]
    died_ns = np.append(int64(frees["host_ns"], "time of a free"), 0)[row]
    free_launch_id = np.append(int64(frees["launch_id"], "launch id"), 0)[row]
    address = int64(records["address"], "address")
    size = int64(records["bytes"], "allocation size")
    columns: dict[str, Any] = {
        "allocation_id": ids.astype(np.int64),
        "ordinal": nullable(records["ordinal"], records["ordinal"] < 0),
        "device": records["device"],
        "address": records["address"],
        "bytes": size,
        "api": known_labels(records["api"], ALLOCATION_APIS, "allocation API"),
        "caller": spool.names(records["caller_name_id"]),
        "alloc_launch_id": int64(records["launch_id"], "launch id"),
        "free_launch_id": nullable(free_launch_id, never),
    }
    if size.sum(dtype=np.float64) >= NEVER:
        raise DamagedError("its allocations have no end")
    born_ns = int64(records["host_ns"], "time of an allocation")
    lifetimes = Lifetimes(
        address,
        size,
        born_ns,
        np.where(never, NEVER, died_ns),
        seen_ns=born_ns,
        birth_seen=np.ones(len(ids), np.bool_),
    )
    return Allocations(pa.table(columns), ids.astype(np.int64), lifetimes)


@dataclass(frozen=True)
class Blocks:
    """What the framework's allocator handed out, by place.

    `lifetimes` holds all of them; the rest those inside one allocation.
    """

    table: pa.Table
    lifetimes: Lifetimes
    allocation_row: Ints
    offset: Ints
    num_unresolved: int
    num_unknown: int
    """Events of times at which the allocator's history is not whole."""


def blocks(spool: Spool, launched: Launches, allocated: Allocations) -> Blocks:
    """Pair the allocator's events, and place the blocks in allocations."""
    events = spool.records["block"]
    for name in ("host_ns", "address", "bytes"):
        int64(events[name], f"block {name}")
    histories = Histories.read(spool.records["history"], launched.host_ns)
    known, span = histories.of(events)
    everywhere = Lifetimes.of_blocks(events[known], span)
    row = allocated.lifetimes.find(everywhere.address, everywhere.seen_ns)
    inside = everywhere.end <= np.append(allocated.lifetimes.end, 0)[row]
    keep = np.flatnonzero((row >= 0) & inside)
    offset = everywhere.address[keep] - allocated.lifetimes.address[row[keep]]
    order = np.lexsort((everywhere.seen_ns[keep], offset, row[keep]))
    keep, offset = keep[order], offset[order]
    born, died = everywhere.born_ns[keep], everywhere.died_ns[keep]
    columns: dict[str, Any] = {
        "allocation_id": allocated.ids[row[keep]],
        "offset": offset,
        "bytes": everywhere.bytes[keep],
        "alloc_launch_id": nullable(launched.next_at(born), born == BEFORE),
        "free_launch_id": nullable(launched.next_at(died), died == NEVER),
        "label": block_labels(spool, everywhere, keep),
    }
    return Blocks(
        pa.table(columns),
        everywhere,
        row[keep],
        offset,
        num_unresolved=len(row) - len(keep),
        num_unknown=int(np.count_nonzero(~known)),
    )


def iterations(spool: Spool, launched: Launches) -> pa.Table:
    """Return the launches between each two ends of an optimizer step."""
    marks = spool.records["mark"]
    marks = marks[np.argsort(marks["launch_id"], kind="stable")]
    ends = marks[marks["kind"] == ITERATION_END]
    bounds = int64(ends["launch_id"], "launch id")
    steps = ends["value"].astype(np.int64)
    purposes = _purposes(marks)[marks["kind"] == ITERATION_END]
    # A recording that skipped steps starts when one ends.
    started = marks[marks["kind"] == RECORDING_STARTED]
    if len(started) and len(steps) and steps[0] > 1:
        bounds = np.append(started["launch_id"][:1].astype(np.int64), bounds)
    else:
        steps, purposes = steps[1:], purposes[1:]
    ids = launched.ids
    low = np.searchsorted(ids, bounds[:-1])
    high = np.searchsorted(ids, bounds[1:]) - 1
    full = low <= high
    low, high = low[full], high[full]
    columns: dict[str, Any] = {
        "iteration": steps[full],
        "first_launch_id": ids[low],
        "last_launch_id": ids[high],
        "found_by": constant("optimizer step", len(low)),
        "purpose": known_labels(purposes[full], PURPOSES, "purpose"),
    }
    return pa.table(columns)


def _purposes(marks: Records) -> Ints:
    """Return what the job was recorded for at each mark."""
    changes = np.flatnonzero(marks["kind"] == PURPOSE_CHANGED)
    last = np.searchsorted(changes, np.arange(len(marks)), side="right") - 1
    return np.where(last >= 0, np.append(marks["value"][changes], 0)[last], 0)
