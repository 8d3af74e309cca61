"""Makes SQLite files as ``nsys export --type sqlite`` does, with a few columns of each.

Names and types are those of exports of Nsight Systems 2024.5; the memory-usage and
fault tables are as its guide documents them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]

_WORK = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, graphNodeId INTEGER"
)
TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT",
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER,"
        " smCount INTEGER, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_WORK}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,"
        " mangledName INTEGER, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,"
        " gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,"
        " blockZ INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_WORK}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,"
        " migrationCause INTEGER, virtualAddress INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        f"{_WORK}, value INTEGER NOT NULL, bytes INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        f"{_WORK}, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER NOT NULL"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,"
        " globalTid INTEGER, textId INTEGER"
    ),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
        " contextId INTEGER NOT NULL, address INTEGER NOT NULL, bytes INTEGER NOT NULL,"
        " memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL,"
        " localMemoryPoolAddress INTEGER"
    ),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
        "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, address INTEGER NOT NULL"
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, globalPid INTEGER NOT NULL,"
        " deviceId INTEGER NOT NULL, address INTEGER NOT NULL,"
        " numberOfPageFaults INTEGER NOT NULL, faultAccessType INTEGER NOT NULL"
    ),
}

UTC_NS = 1_700_000_000_000_000_000
NAMES = ["_Z3addPf", "add(float*)", "add", "cudaLaunchKernel_v7000"]
NAMES += ["cudaGraphLaunch_v10000", "cudaMemcpyAsync_v3020", "Optimizer.step#SGD.step"]


def global_pid(pid: int) -> int:
    # Above the process: which machine it ran on.
    return (1 << 48) | (pid << 24)


def export(path: Path, tables: Mapping[str, Rows]) -> Path:
    """Write an export: tables without rows are absent, as they are in real ones."""
    standard: dict[str, Rows] = {
        "StringIds": [{"id": i, "value": name} for i, name in enumerate(NAMES)],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": UTC_NS}],
    }
    with sqlite3.connect(path) as connection:
        for table, rows in (standard | dict(tables)).items():
            if not rows:
                continue
            connection.execute(f"CREATE TABLE {table} ({TABLES[table]})")
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",
                    list(row.values()),
                )
    connection.close()
    return path


def work(
    start: int, end: int, correlation: int | None, *, pid: int = 7, **more: Any
) -> dict[str, Any]:
    """What kernels, copies and sets have in common; on GPU 0 and stream 13."""
    return {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 13,
        "correlationId": correlation,
        "globalPid": global_pid(pid),
    } | more


def kernel(
    start: int, end: int, correlation: int | None, **more: Any
) -> dict[str, Any]:
    """A launch of ``add`` on 2 x 3 x 4 blocks of 128 threads."""
    names = {"demangledName": 1, "shortName": 2, "mangledName": 0}
    shape = {"gridX": 2, "gridY": 3, "gridZ": 4, "blockX": 128, "blockY": 1}
    return work(start, end, correlation) | names | shape | {"blockZ": 1} | more


def call(
    start: int, correlation: int, *, name: int = 3, pid: int = 7
) -> dict[str, Any]:
    """A call of the CUDA API, of 10 ns."""
    return {
        "start": start,
        "end": start + 10,
        "globalTid": global_pid(pid) + 5,
        "correlationId": correlation,
        "nameId": name,
    }


def mark(start: int, end: int | None, *, pid: int = 7, **name: Any) -> dict[str, Any]:
    """An NVTX range with a `text`, or a `textId`."""
    thread = {"eventType": 59, "globalTid": global_pid(pid) + 5}
    return {"start": start, "end": end} | thread | name
