"""Reads a spool: the files that ``native/spool_format.h`` defines, memory-mapped."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.errors import TraceError

MAGIC = b"TRNSPOOL"
VERSION = 1
UNKNOWN_NAME = "<unknown>"
MOST = 1 << 56  # records that a damaged header is believed to have dropped

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("record_type", "S16"),
        ("record_bytes", "<u4"),
        ("pid", "<u4"),
        ("num_records", "<u8"),
        ("num_dropped", "<u8"),
        ("reserved", "<u8"),
    ]
)

PROCESS = np.dtype(
    [
        ("rank", "<u4"),
        ("local_rank", "<u4"),
        ("world_size", "<u4"),
        ("cupti_version", "<u4"),
        ("driver_version", "<u4"),
        ("device_count", "<u4"),
        ("clock_realtime_ns", "<u8"),
        ("clock_monotonic_ns", "<u8"),
        ("clock_cupti_ns", "<u8"),
    ]
)
DEVICE = np.dtype(
    [
        ("device", "<i4"),
        ("compute_capability", "<u4"),
        ("memory_bytes", "<u8"),
        ("name_id", "<u4"),
        ("num_multiprocessors", "<u4"),
    ]
)
LAUNCH = np.dtype(
    [
        ("launch_id", "<u8"),
        ("host_ns", "<u8"),
        ("stream", "<u8"),
        ("correlation_id", "<u4"),
        ("kind", "<u4"),
        ("name_id", "<u4"),
        ("device", "<i4"),
        ("grid", "<u4", 3),
        ("block", "<u4", 3),
    ]
)
ACCESS = np.dtype(
    [
        ("launch_id", "<u8"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("allocation_id", "<u4"),
        ("direction", "<u4"),
        ("source", "<u4"),
        ("param_offset", "<u4"),
    ]
)
GRAPH_NODE = np.dtype(
    [
        ("node_id", "<u8"),
        ("graph", "<u4"),
        ("node", "<u4"),
        ("kind", "<u4"),
        ("name_id", "<u4"),
        ("grid", "<u4", 3),
        ("block", "<u4", 3),
    ]
)
GRAPH_LAUNCH = np.dtype([("launch_id", "<u8"), ("graph", "<u4"), ("reserved", "<u4")])
ALLOCATION = np.dtype(
    [
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("host_ns", "<u8"),
        ("launch_id", "<u8"),
        ("allocation_id", "<u4"),
        ("ordinal", "<i4"),
        ("device", "<i4"),
        ("api", "<u4"),
        ("caller_name_id", "<u4"),
        ("reserved", "<u4"),
    ]
)
FREE = np.dtype(
    [
        ("host_ns", "<u8"),
        ("launch_id", "<u8"),
        ("allocation_id", "<u4"),
        ("reserved", "<u4"),
    ]
)
ACTIVITY = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("bytes", "<u8"),
        ("graph_node_id", "<u8"),
        ("correlation_id", "<u4"),
        ("kind", "<u4"),
        ("name_id", "<u4"),
        ("device", "<u4"),
        ("stream_id", "<u4"),
        ("graph_id", "<u4"),
        ("copy_kind", "<u4"),
        ("reserved", "<u4"),
    ]
)
UVM = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("address", "<u8"),
        ("value", "<u8"),
        ("counter_kind", "<u4"),
        ("flags", "<u4"),
        ("src_id", "<u4"),
        ("dst_id", "<u4"),
    ]
)
MEMORY = np.dtype(
    [
        ("time_ns", "<u8"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("operation", "<u4"),
        ("memory_kind", "<u4"),
        ("device", "<u4"),
        ("correlation_id", "<u4"),
    ]
)
MARK = np.dtype(
    [("host_ns", "<u8"), ("launch_id", "<u8"), ("kind", "<u4"), ("value", "<u4")]
)
BLOCK = np.dtype(
    [
        ("host_ns", "<u8"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("action", "<u4"),
        ("device", "<i4"),
    ]
)
HISTORY = np.dtype(
    [("begin_ns", "<u8"), ("end_ns", "<u8"), ("device", "<i4"), ("reserved", "<u4")]
)
LABEL = np.dtype(
    [("host_ns", "<u8"), ("address", "<u8"), ("name_id", "<u4"), ("reserved", "<u4")]
)
FRAMEWORK = np.dtype([("name_id", "<u4"), ("version_id", "<u4")])
OVERHEAD = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("kind", "<u4"),
        ("dropped_records", "<u4"),
    ]
)
ERROR = np.dtype(
    [
        ("host_ns", "<u8"),
        ("count", "<u8"),
        ("what_name_id", "<u4"),
        ("reason_name_id", "<u4"),
    ]
)
SAMPLE = np.dtype(
    [
        ("realtime_ns", "<u8"),
        ("monotonic_ns", "<u8"),
        ("hooked_launches", "<u8"),
        ("recorded_launches", "<u8"),
        ("captured_launches", "<u8"),
    ]
)
CHECKSUM = np.dtype(
    [
        ("launch_id", "<u8"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("is_changed", "<u4"),
        ("reserved", "<u4"),
    ]
)
NAME = np.dtype(
    [("name_id", "<u4"), ("piece", "<u2"), ("length", "<u2"), ("text", "S56")]
)

RECORDS: dict[str, np.dtype[np.void]] = {
    "process": PROCESS,
    "device": DEVICE,
    "launch": LAUNCH,
    "access": ACCESS,
    "graph_node": GRAPH_NODE,
    "graph_access": ACCESS,
    "graph_launch": GRAPH_LAUNCH,
    "allocation": ALLOCATION,
    "free": FREE,
    "activity": ACTIVITY,
    "uvm": UVM,
    "memory": MEMORY,
    "mark": MARK,
    "block": BLOCK,
    "history": HISTORY,
    "label": LABEL,
    "framework": FRAMEWORK,
    "overhead": OVERHEAD,
    "error": ERROR,
    "sample": SAMPLE,
    "checksum": CHECKSUM,
    "name": NAME,
}

Records = npt.NDArray[Any]


@dataclass(frozen=True)
class Spool:
    """One process's recording.

    Attributes
    ----------
    folder
        Where it is.
    pid
        The process, 0 if no file has a complete header.
    records
        Memory-mapped records by type; a type without a file has none.
    dropped_by_type
        Records the recorder could not keep.
    num_torn
        Records that a file's header counts and the file does not hold.
    """

    folder: Path
    pid: int
    records: dict[str, Records]
    dropped_by_type: dict[str, int]
    num_torn: int
    _name_ids: npt.NDArray[np.uint32] = field(repr=False)
    _name_texts: list[str] = field(repr=False)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map all files of `folder`; a missing, empty or blank file has no records."""
        if not folder.is_dir():
            raise TraceError(f"There is no spool at {folder}.")
        files = [
            _File.open(folder / f"{record_type}.spool", record_type)
            for record_type in RECORDS
        ]
        records = dict(zip(RECORDS, (file.records for file in files), strict=True))
        name_ids, name_texts = _decode_names(records["name"])
        return cls(
            folder,
            max(file.pid for file in files),
            records,
            {
                record_type: min(file.num_dropped, MOST)
                for record_type, file in zip(RECORDS, files, strict=True)
            },
            sum(file.num_torn for file in files),
            name_ids,
            name_texts,
        )

    @property
    def num_dropped(self) -> int:
        """Records of all types that the recorder could not keep."""
        return sum(self.dropped_by_type.values())

    def names(self, ids: npt.NDArray[Any]) -> pa.DictionaryArray[Any, Any]:
        """Return the names of `ids`; unknown ones are `UNKNOWN_NAME`."""
        position = np.searchsorted(self._name_ids, ids).astype(np.int32)
        unknown = np.int32(len(self._name_ids))
        found = position < unknown
        found[found] = self._name_ids[position[found]] == ids[found]
        return pa.DictionaryArray.from_arrays(
            pa.array(np.where(found, position, unknown), pa.int32()),
            pa.array([*self._name_texts, UNKNOWN_NAME], pa.string()),
        )


def read_records(folder: Path, record_type: str) -> Records:
    """Map the records of one type that a process has left so far."""
    return _File.open(folder / f"{record_type}.spool", record_type).records


@dataclass(frozen=True)
class _File:
    records: Records
    pid: int = 0
    num_dropped: int = 0
    num_torn: int = 0

    @classmethod
    def open(cls, path: Path, record_type: str) -> Self:
        dtype = RECORDS[record_type]
        nothing = cls(np.empty(0, dtype))
        try:
            if not path.exists() or path.stat().st_size == 0:
                return nothing
            content = np.asarray(np.memmap(path, np.uint8, mode="r"))
        except OSError as error:
            raise TraceError(f"Cannot read {path}: {error.strerror}.") from error
        if len(content) < HEADER.itemsize:
            raise TraceError(f"{path} is damaged: it is shorter than its header.")
        header = content[: HEADER.itemsize].view(HEADER)[0]
        if not content[: HEADER.itemsize].any():
            return nothing  # killed between making the file and writing the header
        _check_header(path, header, record_type)
        body = content[HEADER.itemsize :]
        announced = int(header["num_records"])
        complete = min(announced, len(body) // dtype.itemsize)
        return cls(
            body[: complete * dtype.itemsize].view(dtype),
            int(header["pid"]),
            int(header["num_dropped"]),
            announced - complete,
        )


def _check_header(path: Path, header: Any, record_type: str) -> None:
    version = int(header["version"])
    if header["magic"] != MAGIC:
        raise TraceError(f"{path} is not a spool file of transit.")
    if version > VERSION:
        raise TraceError(
            f"{path} has version {version}; this transit reads up to version {VERSION}."
            " Use the transit that recorded it, or a newer one."
        )
    expected = (HEADER.itemsize, record_type.encode(), RECORDS[record_type].itemsize)
    found = (
        int(header["header_bytes"]),
        bytes(header["record_type"]),
        int(header["record_bytes"]),
    )
    if version < 1 or found != expected:
        raise TraceError(
            f"{path} is damaged: its header says {found}, expected {expected}"
            " (header bytes, record type, record bytes)."
        )


def _decode_names(pieces: Records) -> tuple[npt.NDArray[np.uint32], list[str]]:
    order = np.lexsort((pieces["piece"], pieces["name_id"]))
    ids, first = np.unique(pieces["name_id"][order], return_index=True)
    # "S56" ends at the first zero byte, as the text does.
    text = pieces["text"][order].tolist()
    ends = np.append(first, len(text))[1:]
    return ids, [
        b"".join(text[start:end]).decode(errors="replace")
        for start, end in zip(first, ends, strict=True)
    ]
