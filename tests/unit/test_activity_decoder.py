"""The recorder's decoder of activity buffers, with the real CUPTI iterating them.

CUPTI does that without a driver. The records are fabricated here, field by field.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_programs import build, find_one

from transit.recorder.spool import Spool

ROOT = Path(__file__).parents[2]
NAMES = ("activities", "cupti_api", "cupti_errors", "failure", "spool", "spool_file")
SOURCES = [f"recorder/native/{name}" for name in NAMES]
NEW_MEMORY = 0xFFFF_FFFF
NO_NAME = 0xFFFF_FFFF

# Kinds of activity.
MEMCPY, MEMSET, DRIVER, KERNEL, OVERHEAD, PEER_COPY, UVM, MEMORY = (
    *(1, 2, 4, 10, 17, 22, 25, 49),
)
UNKNOWN_KIND = 9999
# Bytes of a record in the versions of CUPTI from each one on: the newest struct it has.
SIZES = {
    MEMCPY: {18: 88, 28: 96, 130400: 112},
    MEMSET: {18: 88, 130400: 104},
    DRIVER: {18: 40},
    KERNEL: {18: 208, 130000: 216, 130100: 224, 130300: 232, 130400: 248},
    OVERHEAD: {18: 40, 22: 56},
    PEER_COPY: {18: 96},
    UVM: {18: 64, 28: 104},
    MEMORY: {18: 120, 24: 128},
    UNKNOWN_KIND: {18: 64},
}
# Where each field lies, and its struct format.
TIMES = {"start_ns": (16, "Q"), "end_ns": (24, "Q")}
SET_PLACES = {
    "bytes": (8, "Q"),
    **TIMES,
    "device": (32, "I"),
    "stream_id": (40, "I"),
    "correlation_id": (44, "I"),
    "graph_node_id": (64, "Q"),
    "graph_id": (72, "I"),
}
PLACES: dict[int, dict[str, tuple[int, str]]] = {
    KERNEL: {
        **TIMES,
        "device": (40, "I"),
        "stream_id": (48, "I"),
        "correlation_id": (92, "I"),
        "graph_node_id": (144, "Q"),
        "graph_id": (156, "I"),
    },
    MEMSET: SET_PLACES,
    MEMCPY: {
        "copy_kind": (4, "B"),
        "bytes": (8, "Q"),
        "start_ns": (16, "Q"),
        "end_ns": (24, "Q"),
        "device": (32, "I"),
        "stream_id": (40, "I"),
        "correlation_id": (44, "I"),
        "graph_node_id": (64, "Q"),
        "graph_id": (72, "I"),
    },
    PEER_COPY: {
        "copy_kind": (4, "B"),
        "bytes": (8, "Q"),
        "start_ns": (16, "Q"),
        "end_ns": (24, "Q"),
        "device": (32, "I"),
        "stream_id": (40, "I"),
        "correlation_id": (60, "I"),
        "graph_node_id": (72, "Q"),
        "graph_id": (80, "I"),
    },
    MEMORY: {
        "operation": (4, "I"),
        "memory_kind": (8, "I"),
        "correlation_id": (12, "I"),
        "address": (16, "Q"),
        "bytes": (24, "Q"),
        "time_ns": (32, "Q"),
        "device": (52, "I"),
    },
    UVM: {
        "counter_kind": (4, "I"),
        "value": (8, "Q"),
        "start_ns": (16, "Q"),
        "end_ns": (24, "Q"),
        "address": (32, "Q"),
        "src_id": (40, "I"),
        "dst_id": (44, "I"),
        "flags": (56, "I"),
    },
    OVERHEAD: {"kind": (4, "I"), "start_ns": (24, "Q"), "end_ns": (32, "Q")},
    DRIVER: {},
    UNKNOWN_KIND: {},
}
NAME_PLACE, OVERHEAD_DATA_PLACE = 104, 48
LAUNCH_KINDS = {KERNEL: 1, MEMCPY: 2, PEER_COPY: 2, MEMSET: 3}
TABLES = {MEMORY: "memory", UVM: "uvm", OVERHEAD: "overhead"} | dict.fromkeys(
    LAUNCH_KINDS, "activity"
)


@dataclass(frozen=True)
class Record:
    kind: int
    fields: dict[str, int]
    name: str | None = None  # a kernel's


@dataclass(frozen=True)
class Buffer:
    records: list[Record] = field(default_factory=list)
    tail: bytes = b""  # behind what CUPTI says is valid
    cut_bytes: int = 0  # of the last record
    refused: bool = False


def fields_of(kind: int) -> st.SearchStrategy[dict[str, int]]:
    limits = {"B": 8, "I": 32, "Q": 64}
    return st.fixed_dictionaries(
        {
            name: st.sampled_from([0, 1, (1 << limits[code]) - 1])
            | st.integers(0, (1 << limits[code]) - 1)
            for name, (_, code) in PLACES[kind].items()
        }
    )


NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=80
)
HUGE_NAMES = st.builds(lambda text, n: text * n, NAMES, st.integers(1, 2000))
RECORDS = st.one_of(
    st.sampled_from([kind for kind in PLACES if kind != KERNEL]).flatmap(
        lambda kind: st.builds(Record, st.just(kind), fields_of(kind))
    ),
    st.builds(
        Record,
        st.just(KERNEL),
        fields_of(KERNEL),
        st.none() | NAMES | HUGE_NAMES,
    ),
)
BUFFERS = st.builds(
    Buffer,
    st.lists(RECORDS, max_size=12),
    st.binary(max_size=300),
    st.integers(0, 36),  # less than any record, and its kind stays
    st.sampled_from([False, False, False, True]),
)


class Decoder:
    """The test program, and the CUPTI it runs."""

    def __init__(self, program: Path, cupti: Path) -> None:
        self._program = program
        self._environment = {
            "TRANSIT_LIBCUPTI": str(cupti),
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        (self.version,) = self._run(ROOT / "no such folder", b"", code=4)

    def __call__(self, run_dir: Path, buffers: list[Buffer]) -> Spool:
        self._run(run_dir, b"".join(self._encode(buffer) for buffer in buffers))
        (folder,) = run_dir.glob("spool-*")
        return Spool.open(folder)

    def _run(self, run_dir: Path, content: bytes, code: int = 0) -> list[int]:
        done = subprocess.run(
            [self._program, run_dir],
            input=content,
            capture_output=True,
            env=self._environment,
        )
        assert done.returncode == code, done.stderr.decode()
        return [int(line) for line in done.stdout.split()]

    def _encode(self, buffer: Buffer) -> bytes:
        content, texts = bytearray(), bytearray(b"\0")
        pointers: list[tuple[int, int]] = []
        for record in buffer.records:
            start = len(content)
            content += bytes(self._size(record.kind))
            struct.pack_into("<I", content, start, record.kind)
            for name, value in record.fields.items():
                place, code = PLACES[record.kind][name]
                struct.pack_into(f"<{code}", content, start + place, value)
            if record.name is not None:
                pointers.append((start + NAME_PLACE, len(texts)))
                texts += record.name.encode() + b"\0"
            if record.kind == OVERHEAD and self._size(OVERHEAD) > OVERHEAD_DATA_PLACE:
                pointers.append((start + OVERHEAD_DATA_PLACE, NEW_MEMORY))
        valid_bytes = max(0, len(content) - buffer.cut_bytes)
        content += buffer.tail
        header = struct.pack(
            "<5I",
            len(content),
            valid_bytes,
            len(texts),
            len(pointers),
            buffer.refused,
        )
        packed = b"".join(struct.pack("<2I", *pointer) for pointer in pointers)
        return header + bytes(content) + bytes(texts) + packed

    def _size(self, kind: int) -> int:
        sizes = SIZES[kind]
        return sizes[max(since for since in sizes if since <= self.version)]


@pytest.fixture(scope="session")
def decode(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    program = build("decode_activities", SOURCES, tmp_path_factory.mktemp("native"))
    # Other versions can be tried by hand; see SIZES.
    chosen = os.environ.get("TRANSIT_LIBCUPTI")
    return Decoder(program, Path(chosen) if chosen else find_one("**/libcupti.so.1?"))


@pytest.fixture(scope="session")
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("run")


def whole_records(buffer: Buffer) -> list[Record]:
    """Return the records that CUPTI finds."""
    if buffer.refused:
        return []
    kinds = [record.kind for record in buffer.records]
    if UNKNOWN_KIND in kinds:
        return buffer.records[: kinds.index(UNKNOWN_KIND)]
    return buffer.records[:-1] if buffer.cut_bytes else buffer.records


def expected_rows(buffers: list[Buffer]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES.values()}
    for buffer in buffers:
        for record in whole_records(buffer):
            if record.kind not in TABLES:
                continue
            row: dict[str, Any] = dict(record.fields)
            if record.kind in LAUNCH_KINDS:
                row["kind"] = LAUNCH_KINDS[record.kind]
                row["name"] = record.name
            rows[TABLES[record.kind]].append(row)
    return rows


def found_rows(spool: Spool, table: str) -> list[dict[str, Any]]:
    records = spool.records[table]
    rows = [
        dict(zip(records.dtype.names or (), values, strict=True))
        for values in records.tolist()
    ]
    if table == "activity":
        names: Any = spool.names(records["name_id"])
        for row, name in zip(rows, names.to_pylist(), strict=True):
            row["name"] = None if row["name_id"] == NO_NAME else name
    return rows


def errors(spool: Spool) -> dict[str, int]:
    records = spool.records["error"]
    whats: Any = spool.names(records["what_name_id"])
    counts: dict[str, int] = {}
    for what, count in zip(whats.to_pylist(), records["count"].tolist(), strict=True):
        counts[what] = counts.get(what, 0) + count
    return counts


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(buffers=st.lists(BUFFERS, max_size=6))
def test_every_record_is_decoded_to_the_byte(
    decode: Decoder, new_folder: Callable[[], Path], buffers: list[Buffer]
) -> None:
    spool = decode(new_folder(), buffers)

    for table, expected in expected_rows(buffers).items():
        found = found_rows(spool, table)
        assert len(found) == len(expected), table
        for row, wanted in zip(found, expected, strict=True):
            assert row | wanted == row, table
    stopped = sum(
        not buffer.refused
        and any(record.kind == UNKNOWN_KIND for record in buffer.records)
        for buffer in buffers
    )
    refused = sum(buffer.refused for buffer in buffers)
    assert errors(spool) == {
        what: count
        for what, count in {
            "decoding of a buffer": stopped,
            "request of a buffer": refused,
        }.items()
        if count
    }


def test_an_error_is_said_once_and_counted(decode: Decoder, tmp_path: Path) -> None:
    broken = Buffer([Record(UNKNOWN_KIND, {})])
    spool = decode(tmp_path, [broken] * 5)

    assert errors(spool) == {"decoding of a buffer": 5}
    assert len(spool.records["error"]) == 5
