"""Checks of a recording against itself: what several witnesses say of one thing."""

from __future__ import annotations

from typing import Any

import numpy as np

from transit.recorder.columns import Ints, int64
from transit.recorder.extents import Lifetimes
from transit.recorder.launches import KERNEL
from transit.recorder.spool import MOST, Spool
from transit.recorder.tables import PURPOSE_CHANGED
from transit.traces.manifest import Checks, FailedCall, Inspection

ALLOCATION = 1  # CUpti_ActivityMemoryOperationType
ON_DEVICE = (3, 5, 6)  # CUpti_ActivityMemoryKind: device, managed, device static
SMALLEST_CLOCK_STEP_NS = 1_000_000
MAX_LISTED = 100


def check(
    spool: Spool, allocated: Lifetimes, missed_inspections: list[Inspection]
) -> Checks:
    """Compare the records of one process with each other, and with what was asked."""
    hooked, recorded, captured = _launches_while_timing(spool)
    unseen = _allocations_not_in(allocated, spool)
    return Checks(
        hooked_launches=hooked,
        recorded_launches=recorded,
        captured_launches=captured,
        missing_kernel_activities=_missing_kernel_activities(spool),
        unseen_allocations=len(unseen),
        unseen_allocation_bytes=int(unseen.sum()),
        clock_steps_ns=_clock_steps(spool)[:MAX_LISTED],
        dropped_by_table={
            table: count for table, count in spool.dropped_by_type.items() if count
        },
        failed_calls=_failed_calls(spool),
        missed_inspections=missed_inspections,
    )


def _launches_while_timing(spool: Spool) -> tuple[int | None, ...]:
    """Return what the shim saw, what was recorded, and what went into graphs.

    From the first sample to the last before a closer inspection: that launches too.
    """
    samples, marks = spool.records["sample"], spool.records["mark"]
    inspected = marks[marks["kind"] == PURPOSE_CHANGED]
    if len(inspected):
        timed = samples["recorded_launches"] <= inspected["launch_id"].min()
        samples = samples[timed]
    if len(samples) < 2:
        return None, None, None
    hooked, recorded, captured = (
        int(np.ptp(int64(samples[name], "count of launches")))
        for name in ("hooked_launches", "recorded_launches", "captured_launches")
    )
    return hooked, recorded, captured


def _missing_kernel_activities(spool: Spool) -> int:
    """Return how many kernels were launched, also by graphs, and never reported."""
    launches, activities = spool.records["launch"], spool.records["activity"]
    nodes = spool.records["graph_node"]
    kernel_nodes, num_kernels = np.unique(
        nodes["graph"][nodes["kind"] == KERNEL], return_counts=True
    )
    graph = spool.records["graph_launch"]["graph"]
    place = np.searchsorted(kernel_nodes, graph)
    known = np.append(kernel_nodes.astype(np.int64), -1)[place] == graph
    in_graphs = int(np.append(num_kernels, 0)[place][known].sum())
    launched = int(np.count_nonzero(launches["kind"] == KERNEL)) + in_graphs
    kernels = activities["correlation_id"][activities["kind"] == KERNEL]
    reported = int(np.count_nonzero(np.isin(kernels, launches["correlation_id"])))
    return max(launched - reported, 0)


def _allocations_not_in(allocated: Lifetimes, spool: Spool) -> Ints:
    """Return the sizes of device allocations that CUPTI reports and the shim does not.

    Whenever the shim saw something at the place: the two read their clocks apart.
    """
    records = spool.records["memory"]
    records = records[
        (records["operation"] == ALLOCATION)
        & np.isin(records["memory_kind"], ON_DEVICE)
    ]
    size = int64(records["bytes"], "allocation size")
    address = int64(records["address"], "address")
    order = np.argsort(allocated.address, kind="stable")
    reached = np.append(0, np.maximum.accumulate(allocated.end[order]))
    before = np.searchsorted(allocated.address[order], address, "right")
    return size[address + size > reached[before]]


def _clock_steps(spool: Spool) -> list[int]:
    """Return by how much the clock was set, each time."""
    samples = spool.records["sample"]
    realtime = int64(samples["realtime_ns"], "time")
    ahead = realtime - int64(samples["monotonic_ns"], "time")
    steps = np.diff(ahead)
    found: list[int] = steps[np.abs(steps) > SMALLEST_CLOCK_STEP_NS].tolist()
    return found


def _failed_calls(spool: Spool) -> list[FailedCall]:
    records = spool.records["error"]
    whats: Any = spool.names(records["what_name_id"])
    reasons: Any = spool.names(records["reason_name_id"])
    counts: dict[tuple[str, str], int] = {}
    for what, reason, count in zip(
        whats.to_pylist(), reasons.to_pylist(), records["count"].tolist(), strict=True
    ):
        counts[what, reason] = counts.get((what, reason), 0) + count
    return [
        FailedCall(what=what, reason=reason, count=min(count, MOST))
        for (what, reason), count in list(counts.items())[:MAX_LISTED]
    ]
