"""Builds valid traces of a layered training loop, for tests of what reads traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from transit.traces import schema
from transit.traces.manifest import (
    Clocks,
    DeviceInfo,
    Losses,
    Manifest,
    RankInfo,
)
from transit.traces.writer import TraceWriter

MIB = 1 << 20
Rows = list[dict[str, Any]]
Tables = dict[str, pa.Table]

HBM_BYTES_PER_S = 4.4e12
START_NS = 1_700_000_000_000_000_000
TENSORS = ("weight", "gradient", "moment1", "moment2", "activation")


@dataclass
class LayeredLoop:
    """A training loop: forward and backward per layer, then an update per layer.

    Forward and backward re-read their operands (long kernels); updates stream once.
    Every tensor is an allocation of `layer_bytes`: weight, gradient, two moments and
    an activation per layer, in that order, layer by layer. Ahead of them come a
    workspace of a library (no ordinal) and, with `host_bytes`, pinned host memory.
    """

    layers: int = 4
    layer_bytes: int = 8 * MIB
    iterations: int = 4
    warmup_launches: int = 0  # before the first iteration
    tail_launches: int = 0  # of an iteration that was not completed
    marked: bool = True  # the iterations table is filled
    workspace_bytes: int = 2 * MIB
    host_bytes: int = 0
    compute_ns: int = 1_000_000  # a forward or backward kernel

    _launches: Rows = field(default_factory=list)
    _accesses: Rows = field(default_factory=list)
    _iterations: Rows = field(default_factory=list)
    _clock_ns: int = START_NS
    _ids: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def tables(self) -> Tables:
        """Return all tables of one rank."""
        self._launches, self._accesses, self._iterations = [], [], []
        self._clock_ns = START_NS
        allocations = self._allocations()
        self._ids = {
            (a["caller"], a["ordinal"]): a["allocation_id"] for a in allocations
        }
        for step in range(self.warmup_launches):
            self._launch(f"warmup{step % 3}", [self._tensor(0, "weight")], 10_000)
        for iteration in range(self.iterations):
            first = len(self._launches)
            for name, tensors, duration_ns in self._kernels():
                self._launch(name, tensors, duration_ns)
            self._iterations.append(
                {
                    "iteration": iteration + 1,
                    "first_launch_id": first,
                    "last_launch_id": len(self._launches) - 1,
                    "found_by": "optimizer step",
                }
            )
        for name, tensors, duration_ns in self._kernels()[: self.tail_launches]:
            self._launch(name, tensors, duration_ns)
        rows = {
            "launches": self._launches,
            "accesses": self._accesses,
            "allocations": allocations,
            "blocks": self._blocks(allocations),
            "iterations": self._iterations if self.marked else [],
        }
        return {
            name: pa.Table.from_pylist(rows.get(name, []), schema=table)
            for name, table in schema.TABLES.items()
        }

    @property
    def launches_per_iteration(self) -> int:
        return 3 * self.layers

    def _kernels(self) -> list[tuple[str, list[int], int]]:
        """One iteration: name, allocations touched, duration."""
        kernels = []
        for layer in range(self.layers):
            touched = [self._tensor(layer, "weight"), self._tensor(layer, "activation")]
            if layer:
                touched.append(self._tensor(layer - 1, "activation"))
            kernels.append(("forward", touched, self.compute_ns))
        for layer in reversed(range(self.layers)):
            touched = [
                self._tensor(layer, name)
                for name in ("weight", "gradient", "activation")
            ]
            kernels.append(("backward", touched, self.compute_ns))
        update_ns = 3_000 + int(4 * self.layer_bytes / HBM_BYTES_PER_S * 1e9)
        for layer in range(self.layers):
            touched = [self._tensor(layer, name) for name in TENSORS[:4]]
            kernels.append(("update", touched, update_ns))
        return kernels

    def _tensor(self, layer: int, tensor: str) -> int:
        ordinal = layer * len(TENSORS) + TENSORS.index(tensor)
        return self._ids["libcudart.so.13", ordinal]

    def _allocations(self) -> Rows:
        wanted: list[tuple[int | None, int, str, str]] = []
        if self.workspace_bytes:
            wanted.append((None, self.workspace_bytes, "mem_alloc", "libcublas.so.13"))
        if self.host_bytes:
            wanted.append((None, self.host_bytes, "host", "libcudart.so.13"))
        wanted += [
            (ordinal, self.layer_bytes, "mem_alloc", "libcudart.so.13")
            for ordinal in range(self.layers * len(TENSORS))
        ]
        address, rows = 0x7F00_0000_0000, []
        for allocation_id, (ordinal, size, api, caller) in enumerate(wanted):
            rows.append(
                {
                    "allocation_id": allocation_id,
                    "ordinal": ordinal,
                    "device": 0,
                    "address": address,
                    "bytes": size,
                    "api": api,
                    "caller": caller,
                    "alloc_launch_id": 0,
                    "free_launch_id": None,
                }
            )
            address += -(-size // (2 * MIB)) * 2 * MIB
        return rows

    def _blocks(self, allocations: Rows) -> Rows:
        return [
            {
                "allocation_id": row["allocation_id"],
                "offset": 0,
                "bytes": row["bytes"],
                "alloc_launch_id": None,
                "free_launch_id": None,
                "label": None,
            }
            for row in allocations
            if row["ordinal"] is not None
        ]

    def _launch(self, name: str, allocation_ids: list[int], duration_ns: int) -> None:
        launch_id = len(self._launches)
        start_ns = self._clock_ns + 5_000
        self._launches.append(
            {
                "launch_id": launch_id,
                "correlation_id": launch_id + 100,
                "kind": "kernel",
                "name": name,
                "signature": sum(ord(c) << (5 * i) for i, c in enumerate(name)),
                "device": 0,
                "stream": 7,
                "grid_x": 132,
                "grid_y": 1,
                "grid_z": 1,
                "block_x": 256,
                "block_y": 1,
                "block_z": 1,
                "host_ns": self._clock_ns,
                "start_ns": start_ns,
                "end_ns": start_ns + duration_ns,
                "graph_id": None,
                "graph_node_id": None,
            }
        )
        self._clock_ns = start_ns + duration_ns
        self._accesses += [
            {
                "launch_id": launch_id,
                "allocation_id": allocation_id,
                "offset": 0,
                "bytes": self.layer_bytes,
                "extent": "block",
                "direction": "unknown",
                "source": "parameter",
            }
            for allocation_id in sorted(allocation_ids)
        ]


def in_graphs(
    tables: Tables, *, graphs: int = 1, iterations: slice = slice(None)
) -> Tables:
    """Make each marked iteration but its first launch launches of so many graphs."""
    rows = {name: table.to_pylist() for name, table in tables.items()}
    place: dict[int, tuple[int, int]] = {}
    for iteration_row in rows["iterations"][iterations]:
        start = iteration_row["first_launch_id"] + 1
        nodes = iteration_row["last_launch_id"] + 1 - start
        bounds = [start + nodes * i // graphs for i in range(graphs + 1)]
        for first, end in pairwise(bounds):
            place |= {i: (first, i - first) for i in range(first, end)}
            iteration_row["last_launch_id"] = first
    for launch in rows["launches"]:
        if launch["launch_id"] in place:
            launch_id, node = place[launch["launch_id"]]
            rows["graph_nodes"].append(
                launch | {"launch_id": launch_id, "graph_node": node}
            )
    graph_ids = {launch_id for launch_id, _ in place.values()}
    rows["launches"] = [
        launch | {"kind": "graph", "name": "cuGraphLaunch", "signature": 3}
        if launch["launch_id"] in graph_ids
        else launch
        for launch in rows["launches"]
        if launch["launch_id"] not in place or launch["launch_id"] in graph_ids
    ]
    for access in rows["accesses"]:
        if access["launch_id"] in place:
            access["launch_id"], access["graph_node"] = place[access["launch_id"]]
    order = ("launch_id", "allocation_id", "offset", "graph_node")
    rows["accesses"].sort(key=lambda row: [row[name] or 0 for name in order])
    return {
        name: pa.Table.from_pylist(table, schema=schema.TABLES[name])
        for name, table in rows.items()
    }


def rank_info(rank: int, tables: Tables, *, memory_bytes: int = 80 << 30) -> RankInfo:
    """Describe one rank's tables as the manifest does."""
    launches = tables["launches"].num_rows
    return RankInfo(
        rank=rank,
        local_rank=rank,
        world_size=rank + 1,
        pid=1000 + rank,
        devices=[
            DeviceInfo(
                device=0,
                name="Test GPU",
                memory_bytes=memory_bytes,
                compute_capability="9.0",
                num_multiprocessors=132,
            )
        ],
        driver_version=13000,
        cupti_version=130000,
        clocks=Clocks(realtime_ns=START_NS, monotonic_ns=10**12, cupti_ns=START_NS),
        counts={name: table.num_rows for name, table in tables.items()},
        launches_seen_by_hooks=launches,
        launches_seen_by_cupti=launches,
        kernel_launches=launches,
        kernel_activities=launches,
        kernel_launches_with_access=launches,
        losses=Losses(),
    )


def write_tables(path: Path, ranks: dict[int, Tables], **options: Any) -> Path:
    """Write a trace of the given tables; `options` go to `rank_info`."""
    with TraceWriter(path) as writer:
        for rank, tables in ranks.items():
            for name, rows in tables.items():
                writer.write(rank, name, rows)
        writer.finish(
            Manifest(
                transit_version="0.1.0",
                created="2026-01-01T00:00:00+00:00",
                command=["python", "train.py"],
                ended="completed",
                ranks=[
                    rank_info(rank, tables, **options) for rank, tables in ranks.items()
                ],
            )
        )
    return path


def write_trace(path: Path, *, ranks: int = 1, **loop: Any) -> Path:
    """Write a trace of a `LayeredLoop` with the given fields, alike on every rank."""
    tables = LayeredLoop(**loop).tables()
    return write_tables(path, dict.fromkeys(range(ranks), tables))
