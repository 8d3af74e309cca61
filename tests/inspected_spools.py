"""Spools with iterations that were looked into, and what is found of directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spool_factory as factory
from spool_factory import BASE, MIB, NOW_NS, access

from transit.traces.reader import Trace

MS = 1_000_000
UNKNOWN = ("unknown", None)
NAMES = [
    *factory.name_pieces(0, "Test GPU"),
    *factory.name_pieces(2, "libcudart.so.13"),
    *factory.name_pieces(1, "kernel"),
    *factory.name_pieces(3, "other"),
]
ITERATION_END, PURPOSE_CHANGED, DIRECTION, AUDIT = 2, 5, 1, 2


def fault(launch_id: int, offset: int, access: int) -> dict[str, Any]:
    time_ns = NOW_NS + launch_id * MS + 6_000
    return {
        "start_ns": time_ns,
        "end_ns": time_ns + 10,
        "address": BASE + offset,
        "value": 1,
        "counter_kind": 4,
        "flags": access,
        "src_id": 0,
    }


def piece(launch_id: int, offset: int, size: int, changed: int) -> dict[str, Any]:
    return {
        "launch_id": launch_id,
        "address": BASE + offset,
        "bytes": size,
        "is_changed": changed,
    }


def block(action: int, ms: float, offset: int, size: int = MIB) -> dict[str, Any]:
    return {
        "action": action,
        "host_ns": NOW_NS + int(ms * MS),
        "address": BASE + offset,
        "bytes": size,
    }


def parameter(launch_id: int, offset: int, slot: int = 0) -> dict[str, Any]:
    return access(launch_id, offset, param_offset=8 * slot)


def marks(
    length: int, launches: int, *purposes: int, start: int = 0
) -> list[dict[str, Any]]:
    """Return marks of iterations of `length` launches, one of them for each purpose."""
    rows = [{"kind": 1, "host_ns": NOW_NS}]
    for step, first in enumerate(range(start, launches + 1, length)):
        rows.append({"kind": ITERATION_END, "launch_id": first, "value": step + 1})
        if step < len(purposes):
            value = purposes[step]
            row = {"kind": PURPOSE_CHANGED, "launch_id": first, "value": value}
            rows.append(row)
    return rows


def record(path: Path, launches: int, **files: Any) -> Trace:
    common = {
        "launch": [factory.launch(index) for index in range(launches)],
        "activity": [factory.activity(index) for index in range(launches)],
        "name": NAMES,
    }
    return factory.trace(path, **(common | files))


def directions(trace: Trace) -> dict[tuple[int, int], tuple[str, str | None]]:
    rows = trace.table(0, "accesses").to_pylist()
    return {
        (row["launch_id"], row["offset"]): (row["direction"], row["direction_source"])
        for row in rows
    }
