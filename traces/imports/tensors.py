"""Writes published lists of tensors and kernels as a trace that can be compiled.

Each tensor becomes an allocation of its own, alive while the lists have it alive; those
smaller than the unit of placement share one. Launch ids are even: what dies after a
kernel is freed at the odd one, so that it and what is born for the next kernel are not
there at once.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from transit import __version__
from transit.traces import schema
from transit.traces.imports import tensor_lists
from transit.traces.imports.launches import KINDS
from transit.traces.imports.profile import SHAPE
from transit.traces.imports.tensor_layout import PIECE_BYTES, Layout
from transit.traces.imports.tensor_lists import NEVER, Ints, TensorLists
from transit.traces.imports.tensor_machine import Hardware
from transit.traces.imports.write import Summary
from transit.traces.manifest import Clocks, DeviceInfo, Losses, Manifest, RankInfo
from transit.traces.signatures import signatures
from transit.traces.writer import TraceWriter

_START_NS = 1_000_000_000  # some time that is not 0
_TOLD_APART_BY = ("name", "op", "shape")


def import_tensors(folder: Path, out: Path, *, overwrite: bool = False) -> Summary:
    """Write the lists of `folder`, and the machine they are of, as a trace.

    Parameters
    ----------
    folder
        Holds ``tensors.csv.gz`` and ``kernels.csv.gz``; ``hardware.json`` is there or
        in the folder around it.
    out
        Trace folder to make; it appears when it is complete.
    overwrite
        Replace a trace at `out`.
    """
    with TraceWriter(out, overwrite=overwrite) as writer:
        lists = tensor_lists.read(folder)
        hardware = Hardware.find(folder)
        layout = Layout.of(lists)
        tables = {name: schema.empty(name) for name in schema.TABLES} | {
            "launches": _launches(lists),
            "accesses": _accesses(lists, layout),
            "allocations": _allocations(layout),
            "blocks": _blocks(lists, layout),
            "iterations": _iteration(lists.kernels.num_rows),
        }
        for table_name, table in tables.items():
            writer.write(0, table_name, table)
        writer.write_text("machine.json", hardware.profile(lists))
        counts = {name: table.num_rows for name, table in tables.items()}
        info = _rank_info(lists, hardware, counts)
        of = hardware.source.partition(",")[0]
        # Names of files are bytes; the manifest has text.
        name = os.fsencode(folder.resolve().name).decode(errors="replace")
        source = f"published lists of tensors: {of}, {name}"
        writer.finish(
            Manifest(
                transit_version=__version__,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                command=[],
                ended=f"not recorded: imported from {source}",
                ranks=[info],
            )
        )
    return Summary(source, 1, counts, "streams, grids, host times", hardware.caveats)


def _launches(lists: TensorLists) -> pa.Table:
    kernels = lists.kernels
    ends = _START_NS + np.cumsum(lists.of_kernels("duration_ns"))
    starts = np.r_[_START_NS, ends[:-1]]
    count = kernels.num_rows
    # The shape is no grid, but tells launches apart as one would.
    texts = zip(*(kernels[name].to_pylist() for name in _TOLD_APART_BY), strict=True)
    names: Any = pa.array([" ".join(t) for t in texts], pa.string()).dictionary_encode()
    words = [np.full(count, KINDS["kernel"]), *[np.zeros(count, np.int64)] * len(SHAPE)]
    zeros = np.zeros(count, np.int64)
    return _table(
        "launches",
        launch_id=2 * np.arange(count),
        kind=["kernel"] * count,
        name=kernels["name"].to_pylist(),
        signature=signatures(names, words),
        host_ns=starts,
        start_ns=starts,
        end_ns=ends,
        **dict.fromkeys(("correlation_id", "device", "stream", *SHAPE), zeros),
    )


def _accesses(lists: TensorLists, layout: Layout) -> pa.Table:
    direction = np.where(
        lists.reads & lists.writes, "both", np.where(lists.reads, "read", "write")
    )
    allocation, offset = layout.of_tensor[lists.tensor], layout.offset[lists.tensor]
    order = np.lexsort((offset, allocation, lists.kernel))
    count = len(order)
    return _table(
        "accesses",
        launch_id=2 * lists.kernel[order],
        allocation_id=allocation[order],
        offset=offset[order],
        bytes=lists.tensor_bytes[lists.tensor[order]],
        extent=["exact"] * count,
        direction=direction[order].tolist(),
        direction_source=["listed"] * count,
        source=["listed"] * count,
    )


def _allocations(layout: Layout) -> pa.Table:
    count = len(layout.bytes)
    occupied = -(-layout.bytes // PIECE_BYTES) * PIECE_BYTES
    return _table(
        "allocations",
        allocation_id=np.arange(count),
        ordinal=pa.array(np.cumsum(layout.movable) - 1, mask=~layout.movable),
        device=np.zeros(count, np.int64),
        address=np.cumsum(occupied) - occupied + PIECE_BYTES,
        bytes=layout.bytes,
        api=["mem_alloc"] * count,
        caller=["unknown"] * count,
        **_lifetime(layout.first, layout.stop),
    )


def _blocks(lists: TensorLists, layout: Layout) -> pa.Table:
    """Name every tensor and workspace."""
    kernels, tensors = lists.kernels, lists.tensors
    used = np.flatnonzero(lists.of_kernels("workspace_bytes"))
    named = zip(tensors["name"].to_pylist(), tensors["role"].to_pylist(), strict=True)
    labels = [f"{name}, {role}" for name, role in named]
    labels += [f"{op}, workspace" for op in kernels["op"].take(used).to_pylist()]
    none = np.zeros_like(used)
    table = _table(
        "blocks",
        allocation_id=np.r_[layout.of_tensor, layout.of_workspace],
        offset=np.r_[layout.offset, none],
        bytes=np.r_[lists.tensor_bytes, lists.of_kernels("workspace_bytes")[used]],
        label=labels,
        **_lifetime(np.r_[lists.first, used], np.r_[lists.stop, used + 1]),
    )
    return table.sort_by([("allocation_id", "ascending"), ("offset", "ascending")])


def _lifetime(first: Ints, stop: Ints) -> dict[str, Any]:
    never = stop == NEVER
    freed = pa.array(np.where(never, 0, 2 * stop - 1), mask=never)
    return {"alloc_launch_id": 2 * first, "free_launch_id": freed}


def _iteration(num_kernels: int) -> pa.Table:
    return _table(
        "iterations",
        iteration=[1],
        first_launch_id=[0],
        last_launch_id=[2 * (num_kernels - 1)],
        found_by=["published tensor lists"],
        purpose=["timing"],
    )


def _rank_info(
    lists: TensorLists, hardware: Hardware, counts: dict[str, int]
) -> RankInfo:
    num_kernels = lists.kernels.num_rows
    gpu = DeviceInfo(
        device=0,
        name=hardware.gpu.model,
        memory_bytes=hardware.gpu.memory_bytes,
        compute_capability="0.0",
        num_multiprocessors=0,
    )
    return RankInfo(
        rank=0,
        local_rank=0,
        world_size=1,
        pid=0,
        devices=[gpu],
        driver_version=0,
        cupti_version=0,
        clocks=Clocks(realtime_ns=0, monotonic_ns=0, cupti_ns=0),
        counts=counts,
        launches_seen_by_cupti=0,
        kernel_launches=num_kernels,
        kernel_activities=num_kernels,
        kernel_launches_with_access=len(np.unique(lists.kernel)),
        losses=Losses(),
        source_caveats=hardware.caveats,
    )


def _table(table: str, /, **columns: Any) -> pa.Table:
    """Build a table of a trace; columns that are not given are not known."""
    rows = len(next(iter(columns.values())))
    arrays: list[Any] = []
    for field in schema.TABLES[table]:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(rows, field.type))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values).cast(field.type))
    return pa.table(arrays, schema=schema.TABLES[table])
