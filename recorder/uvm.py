"""Unified-memory and overhead records of CUPTI as tables.

Codes and meanings are those of ``cupti_activity.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.columns import int64, labels, nullable
from transit.recorder.spool import Records

DIRECTIONS = {1: "host to device", 2: "device to host", 8: "device to device"}
CPU_FAULT, GPU_FAULT = 3, 4
PAGE_BYTES = 4096  # faults are reported so, whatever the driver moves at once
EVENTS = {5: "thrashing", 6: "throttling", 7: "remote map"}
THROTTLING, REMOTE_MAP = 6, 7

MIGRATION_CAUSES = {
    1: "user",
    2: "coherence",
    3: "prefetch",
    4: "eviction",
    5: "access counters",
}
REMOTE_MAP_CAUSES = {
    1: "coherence",
    2: "thrashing",
    3: "policy",
    4: "out of memory",
    5: "eviction",
}
FAULT_ACCESSES = {1: "read", 2: "write", 3: "atomic", 4: "prefetch"}

OVERHEADS = {
    0: "transit",
    1: "driver compiler",
    1 << 16: "buffer flush",
    2 << 16: "instrumentation",
    3 << 16: "resource",
    4 << 16: "module loading",
    5 << 16: "lazy function loading",
    6 << 16: "command buffer full",
    7 << 16: "buffer request",
    8 << 16: "uvm activity init",
}


def migrations(uvm: Records) -> pa.Table:
    """Return the copies the driver made."""
    rows = _of_kinds(uvm, list(DIRECTIONS))
    columns: dict[str, Any] = {
        "start_ns": _time(rows["start_ns"]),
        "end_ns": _time(rows["end_ns"]),
        "address": rows["address"],
        "bytes": int64(rows["value"], "migration size"),
        "direction": labels(rows["counter_kind"], DIRECTIONS),
        "cause": _labels_or_unknown(rows["flags"], MIGRATION_CAUSES),
    }
    return pa.table(columns)


def faults(uvm: Records) -> pa.Table:
    """Return page faults; CPU faults have no end and no groups."""
    rows = _of_kinds(uvm, [CPU_FAULT, GPU_FAULT])
    by_cpu = rows["counter_kind"] == CPU_FAULT
    devices = np.unique(rows["src_id"][~by_cpu]).tolist()
    processors = {-1: "cpu"} | {device: f"gpu {device}" for device in devices}
    columns: dict[str, Any] = {
        "start_ns": _time(rows["start_ns"]),
        "end_ns": nullable(rows["end_ns"], by_cpu | _is_lost(rows["end_ns"])),
        "address": rows["address"],
        # A CPU fault's value is the instruction.
        "groups": nullable(rows["value"], by_cpu),
        "access": _labels_or_unknown(rows["flags"], FAULT_ACCESSES),
        "processor": labels(
            np.where(by_cpu, -1, rows["src_id"].astype(np.int64)), processors
        ),
    }
    return pa.table(columns)


def events(uvm: Records) -> pa.Table:
    """Return thrashing, throttling and remote maps."""
    rows = _of_kinds(uvm, list(EVENTS))
    throttled = rows["counter_kind"] == THROTTLING
    is_map = rows["counter_kind"] == REMOTE_MAP
    causes = np.where(is_map, rows["flags"].astype(np.int64), -1)
    columns: dict[str, Any] = {
        "kind": labels(rows["counter_kind"], EVENTS),
        "start_ns": _time(rows["start_ns"]),
        "end_ns": nullable(rows["end_ns"], ~throttled | _is_lost(rows["end_ns"])),
        "address": rows["address"],
        "bytes": nullable(rows["value"], throttled),
        "cause": labels(causes, REMOTE_MAP_CAUSES),
    }
    return pa.table(columns)


def overhead(records: Records) -> pa.Table:
    """Return what recording cost and dropped."""
    rows = records[np.argsort(records["start_ns"], kind="stable")]
    columns: dict[str, Any] = {
        "kind": _labels_or_unknown(rows["kind"], OVERHEADS),
        "start_ns": int64(rows["start_ns"], "overhead time"),
        "end_ns": int64(rows["end_ns"], "overhead time"),
        "dropped": rows["dropped_records"].astype(np.int64),
    }
    return pa.table(columns)


def num_untimed(uvm: Records) -> int:
    """Return how many records have no start."""
    return int(np.count_nonzero(_is_lost(uvm["start_ns"])))


def _of_kinds(uvm: Records, kinds: list[int]) -> Records:
    rows = uvm[np.isin(uvm["counter_kind"], kinds)]
    return rows[np.argsort(rows["start_ns"], kind="stable")]


def _is_lost(time_ns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    lost: npt.NDArray[np.bool_] = (time_ns == 0) | (time_ns >= 1 << 63)
    return lost


def _time(time_ns: npt.NDArray[Any]) -> pa.Array[Any]:
    return nullable(time_ns, _is_lost(time_ns))


def _labels_or_unknown(codes: npt.NDArray[Any], texts: dict[int, str]) -> pa.Array[Any]:
    known = np.isin(codes, list(texts))
    return labels(np.where(known, codes.astype(np.int64), -1), {-1: "unknown"} | texts)
