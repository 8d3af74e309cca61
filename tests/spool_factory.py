"""Writes spools as the recorder does, for tests of what reads or converts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from transit.recorder import spool
from transit.recorder.convert import convert
from transit.recorder.summary import Summary
from transit.traces.reader import Trace

NOW_NS = 1_700_000_000_000_000_000
BASE = 0x7F00_0000_0000
MIB = 1 << 20

Rows = list[dict[str, Any]]


def write_file(
    folder: Path,
    record_type: str,
    rows: Rows,
    /,
    *,
    pid: int = 4242,
    num_dropped: int = 0,
    slack_bytes: int = 4096,
    **header: Any,
) -> Path:
    """Write one file; `header` overrides fields of its header."""
    records = np.zeros(len(rows), spool.RECORDS[record_type])
    for record, row in zip(records, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return write_records(
        folder,
        record_type,
        records,
        pid=pid,
        num_dropped=num_dropped,
        slack_bytes=slack_bytes,
        **header,
    )


def write_records(
    folder: Path,
    record_type: str,
    records: Any,
    /,
    *,
    slack_bytes: int = 4096,
    **header: Any,
) -> Path:
    head = np.zeros(1, spool.HEADER)
    fields: dict[str, Any] = {
        "magic": spool.MAGIC,
        "version": spool.VERSION,
        "header_bytes": spool.HEADER.itemsize,
        "record_type": record_type.encode(),
        "record_bytes": records.dtype.itemsize,
        "pid": 4242,
        "num_records": len(records),
    }
    for name, value in (fields | header).items():
        head[name] = value
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record_type}.spool"
    # The recorder grows its files ahead of need: zeros follow the records.
    path.write_bytes(head.tobytes() + records.tobytes() + bytes(slack_bytes))
    return path


def name_pieces(name_id: int, text: str) -> Rows:
    encoded = text.encode()
    pieces = [encoded[i : i + 56] for i in range(0, len(encoded), 56)] or [b""]
    return [
        {"name_id": name_id, "piece": i, "length": len(piece), "text": piece}
        for i, piece in enumerate(pieces)
    ]


def small_spool(folder: Path, **changes: Rows) -> Path:
    """Write a spool of two launches on one allocation; `changes` replace files."""
    pid = int(folder.name.partition("-")[2] or 1)
    files: dict[str, Rows] = {
        "process": [
            {
                "rank": 0,
                "world_size": 1,
                "cupti_version": 130000,
                "driver_version": 13000,
                "device_count": 1,
                "clock_realtime_ns": NOW_NS,
                "clock_monotonic_ns": 5,
                "clock_cupti_ns": NOW_NS,
            }
        ],
        "device": [
            {
                "device": 0,
                "compute_capability": 90,
                "memory_bytes": 80 << 30,
                "name_id": 0,
                "num_multiprocessors": 132,
            }
        ],
        "name": [
            *name_pieces(0, "Test GPU"),
            *name_pieces(1, "kernel"),
            *name_pieces(2, "libcudart.so.13"),
        ],
        "allocation": [allocation(0)],
        "launch": [launch(0), launch(1)],
        "access": [access(0), access(1)],
        "activity": [activity(0), activity(1)],
        "mark": [{"host_ns": NOW_NS, "kind": 1}],
        "history": [{"device": 0, "begin_ns": 0, "end_ns": 2 * NOW_NS}],
    }
    for record_type, rows in (files | changes).items():
        write_file(folder, record_type, rows, pid=pid)
    return folder


def allocation(allocation_id: int, **fields: Any) -> dict[str, Any]:
    return {
        "address": BASE + allocation_id * 64 * MIB,
        "bytes": 16 * MIB,
        "host_ns": NOW_NS - 1000,
        "allocation_id": allocation_id,
        "ordinal": allocation_id,
        "api": 1,
        "caller_name_id": 2,
    } | fields


def launch(launch_id: int, **fields: Any) -> dict[str, Any]:
    return {
        "launch_id": launch_id,
        "host_ns": NOW_NS + launch_id * 1_000_000,
        "stream": 7,
        "correlation_id": 100 + launch_id,
        "kind": 1,
        "name_id": 1,
        "grid": (132, 1, 1),
        "block": (256, 1, 1),
    } | fields


def access(launch_id: int, offset: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "launch_id": launch_id,
        "address": BASE + offset,
        "allocation_id": 0,
        "source": 1,
    } | fields


def activity(launch_id: int, **fields: Any) -> dict[str, Any]:
    start_ns = NOW_NS + launch_id * 1_000_000 + 5_000
    return {
        "start_ns": start_ns,
        "end_ns": start_ns + 2_000,
        "correlation_id": 100 + launch_id,
        "kind": 1,
        "name_id": 1,
    } | fields


def convert_spools(run_dir: Path, **options: Any) -> Summary:
    arguments: dict[str, Any] = {
        "command": ["python", "train.py"],
        "ended": "completed",
    }
    return convert(run_dir, run_dir / "trace", **(arguments | options))


def trace(tmp_path: Path, **files: Rows) -> Trace:
    """Convert a `small_spool` with some of its files replaced."""
    small_spool(tmp_path / "spool-1", **files)
    convert_spools(tmp_path)
    return Trace.open(tmp_path / "trace")


def column(trace: Trace, table: str, name: str) -> list[Any]:
    values: list[Any] = trace.table(0, table)[name].to_pylist()
    return values


def losses(trace: Trace) -> dict[str, int]:
    counts = trace.manifest.ranks[0].losses.model_dump()
    return {name: count for name, count in counts.items() if count}
