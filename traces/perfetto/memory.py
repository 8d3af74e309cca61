"""How much memory a job had at each time, from when it was allocated and freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transit.errors import TraceError
from transit.traces.reader import Trace

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MemoryUse:
    """An amount of memory over time.

    Attributes
    ----------
    device
        The GPU, or None for the memory of the host.
    what
        What is counted.
    time_ns
        When it changes: at the host's call of the first launch after the change, since
        that is what a trace knows.
    bytes
        How much it is from each time on, in bytes as they were asked for.
    """

    device: int | None
    what: str
    time_ns: Ints
    bytes: Ints


def memory_use(trace: Trace, rank: int) -> Iterator[MemoryUse]:
    """Count what a rank had allocated of each kind of memory.

    Parameters
    ----------
    trace
        The trace, of which launches, allocations and blocks are read.
    rank
        The rank to look at.
    """
    launches = trace.table(rank, "launches", ["launch_id", "host_ns"])
    if not launches.num_rows:
        return  # nothing tells when
    launch_id, host_ns = (column.to_numpy() for column in launches.columns)

    def over_time(rows: pa.Table) -> tuple[Ints, Ints]:
        born = rows["alloc_launch_id"].fill_null(pa.scalar(0)).to_numpy()
        died = rows["free_launch_id"].drop_null().to_numpy()
        size = rows["bytes"].to_numpy()
        freed = rows.filter(pc.is_valid(rows["free_launch_id"]))["bytes"].to_numpy()
        index = np.searchsorted(launch_id, np.r_[born, died])
        changes_ns = host_ns[np.minimum(index, len(host_ns) - 1)]
        time_ns, moment = np.unique(changes_ns, return_inverse=True)
        changes = np.zeros(len(time_ns), np.int64)
        np.add.at(changes, moment, np.r_[size, -freed])
        return time_ns, np.cumsum(changes)

    for device, what, rows in _kinds(trace, rank):
        if rows.num_rows:
            yield MemoryUse(device, what, *over_time(rows))


def _kinds(trace: Trace, rank: int) -> Iterator[tuple[int | None, str, pa.Table]]:
    allocations = trace.table(rank, "allocations")
    api = np.asarray(allocations["api"].cast(pa.string()).to_pylist(), np.str_)
    on_host, managed = api == "host", api == "managed"
    devices = allocations["device"].to_numpy()
    blocks = trace.table(rank, "blocks")
    ids, block_ids = (t["allocation_id"].to_numpy() for t in (allocations, blocks))
    if not np.isin(block_ids, ids).all():
        where = f"{trace.path}, rank {rank}"
        raise TraceError(f"{where}, contradicts itself: a block is in no allocation.")
    block_devices = devices[np.searchsorted(ids, block_ids)]
    for device in np.unique(devices[~on_host]).tolist():
        gpu = ~on_host & (devices == device)
        in_use = blocks.filter(pa.array(block_devices == device))
        for what, rows in (
            ("GPU memory allocated", allocations.filter(pa.array(gpu & ~managed))),
            ("in use by the framework", in_use),
            ("managed memory allocated", allocations.filter(pa.array(gpu & managed))),
        ):
            yield device, what, rows
    yield None, "pinned host memory allocated", allocations.filter(pa.array(on_host))
