"""The tables of a trace: one explicit Arrow schema each, as in ``FORMAT.md``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

FORMAT: Final = "transit-trace"
VERSION = 5

_NAME = pa.dictionary(pa.int32(), pa.string())


def _table(
    required: dict[str, pa.DataType], optional: dict[str, pa.DataType]
) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    fields += [pa.field(name, kind) for name, kind in optional.items()]
    return pa.schema(fields)


LAUNCHES = _table(
    {
        "launch_id": pa.int64(),
        "correlation_id": pa.int64(),
        "kind": _NAME,
        "name": _NAME,
        "signature": pa.uint64(),
        "device": pa.int32(),
        "stream": pa.uint64(),
        "grid_x": pa.int32(),
        "grid_y": pa.int32(),
        "grid_z": pa.int32(),
        "block_x": pa.int32(),
        "block_y": pa.int32(),
        "block_z": pa.int32(),
        "host_ns": pa.int64(),
    },
    {
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
        "graph_id": pa.int64(),
        "graph_node_id": pa.int64(),
    },
)

ACCESSES = _table(
    {
        "launch_id": pa.int64(),
        "allocation_id": pa.int64(),
        "offset": pa.int64(),
        "direction": _NAME,
        "source": _NAME,
    },
    {
        "bytes": pa.int64(),
        "extent": _NAME,
        "direction_source": _NAME,
        "graph_node": pa.int32(),
        "parameter_offset": pa.int32(),
    },
)

GRAPH_NODES = _table(
    {
        "launch_id": pa.int64(),
        "graph_node": pa.int32(),
        "kind": _NAME,
        "name": _NAME,
        "signature": pa.uint64(),
        "grid_x": pa.int32(),
        "grid_y": pa.int32(),
        "grid_z": pa.int32(),
        "block_x": pa.int32(),
        "block_y": pa.int32(),
        "block_z": pa.int32(),
    },
    {"graph_node_id": pa.int64(), "start_ns": pa.int64(), "end_ns": pa.int64()},
)

ALLOCATIONS = _table(
    {
        "allocation_id": pa.int64(),
        "device": pa.int32(),
        "address": pa.uint64(),
        "bytes": pa.int64(),
        "api": _NAME,
        "caller": _NAME,
        "alloc_launch_id": pa.int64(),
    },
    {"ordinal": pa.int64(), "free_launch_id": pa.int64()},
)

BLOCKS = _table(
    {"allocation_id": pa.int64(), "offset": pa.int64(), "bytes": pa.int64()},
    {"alloc_launch_id": pa.int64(), "free_launch_id": pa.int64(), "label": _NAME},
)

UVM_MIGRATIONS = _table(
    {
        "address": pa.uint64(),
        "bytes": pa.int64(),
        "direction": _NAME,
        "cause": _NAME,
    },
    {"start_ns": pa.int64(), "end_ns": pa.int64()},
)

UVM_FAULTS = _table(
    {"address": pa.uint64(), "access": _NAME, "processor": _NAME},
    {"start_ns": pa.int64(), "end_ns": pa.int64(), "groups": pa.int64()},
)

UVM_EVENTS = _table(
    {"kind": _NAME, "address": pa.uint64()},
    {
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
        "bytes": pa.int64(),
        "cause": _NAME,
    },
)

ITERATIONS = _table(
    {
        "iteration": pa.int64(),
        "first_launch_id": pa.int64(),
        "last_launch_id": pa.int64(),
        "found_by": _NAME,
    },
    {"purpose": _NAME},
)

AUDIT = _table(
    {
        "allocation_id": pa.int64(),
        "offset": pa.int64(),
        "bytes": pa.int64(),
        "access": _NAME,
        "is_explained": pa.bool_(),
    },
    {"launch_id": pa.int64()},
)

OVERHEAD = _table(
    {
        "kind": _NAME,
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
        "dropped": pa.int64(),
    },
    {},
)

TABLES: dict[str, pa.Schema] = {
    "launches": LAUNCHES,
    "graph_nodes": GRAPH_NODES,
    "accesses": ACCESSES,
    "allocations": ALLOCATIONS,
    "blocks": BLOCKS,
    "uvm_migrations": UVM_MIGRATIONS,
    "uvm_faults": UVM_FAULTS,
    "uvm_events": UVM_EVENTS,
    "iterations": ITERATIONS,
    "audit": AUDIT,
    "overhead": OVERHEAD,
}

# The version that brought a table, or a column of one: in an older trace the table has
# no rows, and the column, which may be null, is.
SINCE_VERSION: Final = {
    "graph_nodes": 2,
    "accesses.graph_node": 2,
    "accesses.direction_source": 3,
    "iterations.purpose": 3,
    "audit": 3,
    "accesses.parameter_offset": 5,
}

# Each table's rows are in this order.
SORTED_BY: dict[str, tuple[str, ...]] = {
    "launches": ("launch_id",),
    "graph_nodes": ("launch_id", "graph_node"),
    "accesses": ("launch_id", "allocation_id", "offset"),
    "allocations": ("allocation_id",),
    "blocks": ("allocation_id", "offset"),
    "uvm_migrations": ("start_ns",),
    "uvm_faults": ("start_ns",),
    "uvm_events": ("start_ns",),
    "iterations": ("iteration",),
    "audit": ("allocation_id", "offset"),
    "overhead": ("start_ns",),
}

# Nearly monotone columns, which small differences describe best.
DELTA_ENCODED = frozenset(
    {
        "launch_id",
        "correlation_id",
        "host_ns",
        "start_ns",
        "end_ns",
        "allocation_id",
        "first_launch_id",
        "last_launch_id",
    }
)


def file_metadata(table: str, rank: int) -> dict[str, str]:
    """Return the key-value metadata that identifies one table's file."""
    return {
        "transit.format": FORMAT,
        "transit.version": str(VERSION),
        "transit.meta": f'{{"rank": {rank}, "table": "{table}"}}',
    }


def empty(table: str) -> pa.Table:
    """Return a table without rows."""
    return TABLES[table].empty_table()
