"""What profilers have in common: GPU work, the calls that started it, marked steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transit.errors import TraceError
from transit.traces.manifest import DeviceInfo

MAX_NS = 1 << 62  # the year 2116

PROFILER_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#")


def table_schema(
    required: dict[str, pa.DataType], **optional: pa.DataType
) -> pa.Schema:
    """Return a schema in which only the optional columns may have nulls."""
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in required.items()]
        + [pa.field(name, kind) for name, kind in optional.items()]
    )


SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")

# A piece of work on the GPU. Correlation id 0: it has none.
ACTIVITIES = table_schema(
    {
        "kind": pa.string(),
        "name": pa.string(),
        "device": pa.uint16(),
        "stream": pa.uint64(),
        "correlation_id": pa.uint32(),
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
        **dict.fromkeys(SHAPE, pa.int32()),
    },
    graph_id=pa.int64(),
    graph_node_id=pa.int64(),
    process=pa.int64(),
)

# A call of the CUDA API.
CALLS = table_schema(
    {"correlation_id": pa.uint32(), "start_ns": pa.int64(), "name": pa.string()},
    process=pa.int64(),
)

# A range of host time that stands for a step of the job.
STEPS = table_schema(
    {"start_ns": pa.int64(), "end_ns": pa.int64(), "name": pa.string()},
    process=pa.int64(),
)

# Memory that came, or went: address and time name it then.
MEMORY = table_schema(
    {
        "start_ns": pa.int64(),
        "is_free": pa.uint8(),
        "device": pa.uint16(),
        "address": pa.uint64(),
        "bytes": pa.uint64(),
        "api": pa.string(),
    },
    process=pa.int64(),
)

MIGRATIONS = table_schema(
    {
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
        "address": pa.uint64(),
        "bytes": pa.uint64(),
        "direction": pa.string(),
        "cause": pa.string(),
    },
    process=pa.int64(),
)

FAULTS = table_schema(
    {
        "start_ns": pa.int64(),
        "address": pa.uint64(),
        "access": pa.string(),
        "processor": pa.string(),
    },
    end_ns=pa.int64(),
    groups=pa.int64(),
    process=pa.int64(),
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of the profiled job."""

    rank: int
    world_size: int
    pid: int
    devices: list[DeviceInfo]
    activities: pa.Table
    calls: pa.Table
    steps: pa.Table
    memory: pa.Table = field(default_factory=MEMORY.empty_table)
    migrations: pa.Table = field(default_factory=MIGRATIONS.empty_table)
    faults: pa.Table = field(default_factory=FAULTS.empty_table)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A file that another profiler wrote.

    `missing` names, as a list for people, what such a file cannot give; `notes` are
    sentences on what this one lacks.
    """

    source: str
    processes: list[Process]
    missing: str
    notes: list[str]


def is_step(name: object) -> bool:
    """Tell whether a range of this name is a step of the job."""
    return isinstance(name, str) and bool(
        PROFILER_STEP.match(name) or OPTIMIZER_STEP.match(name)
    )


def used_devices(activities: pa.Table) -> set[int]:
    """Return the GPUs that any work ran on."""
    return set(activities["device"].to_numpy().tolist())


def describe_missing_devices(processes: list[Process]) -> list[str]:
    """Return a sentence for each rank that used a GPU its file says nothing of."""
    notes = []
    for process in processes:
        described = {device.device for device in process.devices}
        unknown = used_devices(process.activities) - described
        if unknown:
            gpus = ", ".join(map(str, sorted(unknown)))
            notes.append(f"rank {process.rank}: the file does not describe GPU {gpus}")
    return notes


def shifted(table: pa.Table, base_ns: int, where: str) -> pa.Table:
    """Return the table with `base_ns` added to its times, and those checked."""
    for name in {"start_ns", "end_ns"}.intersection(table.schema.names):
        index = table.schema.get_field_index(name)
        try:
            moved = pc.add_checked(table[name], pa.scalar(base_ns, pa.int64()))
        except (pa.ArrowException, OverflowError) as error:
            raise TraceError(f"{where}: impossible time.") from error
        bounds: Any = pc.min_max(moved).as_py()
        if (bounds["min"] or 0) < 0 or (bounds["max"] or 0) >= MAX_NS:
            raise TraceError(f"{where}: impossible time.")
        table = table.set_column(index, table.schema.field(index), moved)
    return table
