"""Reads Nsight Systems' SQLite exports.

Tables are absent when they have no rows, and columns come and go with versions: what a
trace cannot do without is required, the rest is looked for. Codes are those of the
export's ``ENUM_*`` tables, whose ids, unlike their names, have not changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from transit.errors import TraceError
from transit.traces.imports import nsys_memory
from transit.traces.imports.profile import (
    ACTIVITIES,
    CALLS,
    STEPS,
    Process,
    Profile,
    describe_missing_devices,
    shifted,
    table_schema,
    used_devices,
)
from transit.traces.imports.sqlite import Columns, Database
from transit.traces.manifest import DeviceInfo

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

_COPY_NAMES = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
}
_NO_SHAPE = ["0"] * 6
_PID_MASK = (1 << 24) - 1


def read(path: Path) -> Profile:
    """Read an export of ``nsys export --type sqlite``.

    Raises
    ------
    TraceError
        The file cannot be read, is no such export, is damaged, or has no GPU work.
    """
    with Database.open(path) as database:
        if "StringIds" not in database.tables:
            raise TraceError(f"{path} is SQLite, but no export of Nsight Systems.")
        return _Export(database, str(path)).profile()


class _Export:
    """One export, with all its processes."""

    def __init__(self, database: Database, where: str) -> None:
        self._database = database
        self._where = where
        self._notes: list[str] = []

    def profile(self) -> Profile:
        """Return what the export holds, process by process."""
        base_ns = self._session_start_ns()
        tables = {
            "activities": self._activities(),
            "calls": self._calls(),
            "steps": self._steps(),
            "memory": nsys_memory.read_events(self._database),
            "migrations": nsys_memory.read_migrations(self._database),
            "faults": nsys_memory.read_faults(self._database),
        }
        if not tables["activities"].num_rows:
            raise TraceError(
                f"{self._where} has no GPU work: profile with nsys profile --trace=cuda"
            )
        by_process = self._split(
            {name: shifted(t, base_ns, self._where) for name, t in tables.items()}
        )
        devices = self._devices()
        processes = [
            self._process(rank, len(by_process), process, rows, devices)
            for rank, (process, rows) in enumerate(by_process)
        ]
        if len(processes) > 1:
            self._notes.append("ranks are processes in the order of their GPUs")
        return Profile(
            source="Nsight Systems",
            processes=processes,
            missing="accesses, blocks, and which allocations can be moved",
            notes=self._notes + describe_missing_devices(processes),
        )

    def _process(
        self,
        rank: int,
        world_size: int,
        process: int,
        rows: dict[str, pa.Table],
        devices: list[DeviceInfo],
    ) -> Process:
        used = used_devices(rows["activities"])
        return Process(
            rank=rank,
            world_size=world_size,
            pid=process & _PID_MASK,
            devices=[device for device in devices if device.device in used],
            **rows,
        )

    def _split(
        self, tables: dict[str, pa.Table]
    ) -> list[tuple[int, dict[str, pa.Table]]]:
        """Return the rows of each process that used a GPU, by their GPUs."""
        work = tables["activities"]
        if work["process"].null_count:  # it does not say whose it is
            return [(0, tables)]
        first_device: Any = work.group_by("process").aggregate([("device", "min")])
        order = first_device.sort_by(
            [("device_min", "ascending"), ("process", "ascending")]
        )
        return [
            (process, {name: _of_process(t, process) for name, t in tables.items()})
            for process in order["process"].to_pylist()
        ]

    def _session_start_ns(self) -> int:
        schema = table_schema({}, utc_ns=pa.int64())
        found = self._database.read(
            "TARGET_INFO_SESSION_START_TIME", schema, lambda c: [c.get("utcEpochNs")]
        )
        start_ns: Any = found["utc_ns"].drop_null().to_pylist()
        if not start_ns:
            self._notes.append("times count from the start of profiling, not from 1970")
        return int(start_ns[0]) if start_ns else 0

    def _activities(self) -> pa.Table:
        read = self._database.read
        parts = [
            read(_KERNELS, ACTIVITIES, _kernel),
            read(_COPIES, ACTIVITIES, _copy, nsys_memory.is_no_migration),
            read(_SETS, ACTIVITIES, _set),
            read(_GRAPHS, ACTIVITIES, _graph),
        ]
        return pa.concat_tables(parts).unify_dictionaries()

    def _calls(self) -> pa.Table:
        return self._database.read(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            CALLS,
            lambda c: [
                c.get("correlationId", "0"),
                c["start"],
                f"coalesce({c.text('nameId')}, '')",
                c.process("globalTid"),
            ],
        )

    def _steps(self) -> pa.Table:
        def name(c: Columns) -> str:
            return f"coalesce({c.get('text')}, {c.text('textId')}, '')"

        return self._database.read(
            "NVTX_EVENTS",
            STEPS,
            lambda c: [c["start"], c["end"], name(c), c.process("globalTid")],
            lambda c: (
                f"({name(c)} GLOB 'ProfilerStep#*' OR {name(c)} GLOB"
                f" 'Optimizer.step#*') AND {c['end']} IS NOT NULL"
            ),
        )

    def _devices(self) -> list[DeviceInfo]:
        table = self._database.read(
            "TARGET_INFO_GPU",
            _GPUS,
            lambda c: [
                c.get("cuDevice", c.get("id")),
                c.get("name"),
                c.get("totalMemory"),
                c.get("computeMajor"),
                c.get("computeMinor"),
                c.get("smCount"),
            ],
        )
        complete: list[Any] = [
            row for row in table.to_pylist() if None not in row.values()
        ]
        return [
            DeviceInfo(
                device=row["device"],
                name=row["name"],
                memory_bytes=row["memory_bytes"],
                compute_capability=f"{row['major']}.{row['minor']}",
                num_multiprocessors=row["num_multiprocessors"],
            )
            for row in complete
        ]


_GPUS = table_schema(
    {},
    device=pa.uint16(),
    name=pa.string(),
    memory_bytes=pa.uint64(),
    major=pa.uint8(),
    minor=pa.uint8(),
    num_multiprocessors=pa.uint32(),
)


def _kernel(c: Columns) -> list[str]:
    name = f"coalesce({c.text('mangledName')}, {c.text('demangledName')})"
    shape = [c[f"{what}{axis}"] for what in ("grid", "block") for axis in "XYZ"]
    return _work(c, "'kernel'", name, shape)


def _copy(c: Columns) -> list[str]:
    cases = " ".join(f"WHEN {kind} THEN '{text}'" for kind, text in _COPY_NAMES.items())
    which = f"CASE {c['copyKind']} {cases} ELSE 'Unknown' END"
    return _work(c, "'copy'", f"'[CUDA memcpy ' || {which} || ']'", _NO_SHAPE)


def _set(c: Columns) -> list[str]:
    return _work(c, "'set'", "'[CUDA memset]'", _NO_SHAPE)


def _graph(c: Columns) -> list[str]:
    return _work(c, "'graph'", "'cuGraphLaunch'", _NO_SHAPE)


def _work(c: Columns, kind: str, name: str, shape: list[str]) -> list[str]:
    return [
        kind,
        name,
        c["deviceId"],
        c["streamId"],
        c.get("correlationId", "0"),
        c["start"],
        c["end"],
        *shape,
        c.get("graphId"),
        c.get("graphNodeId"),
        c.process("globalPid"),
    ]


def _of_process(table: pa.Table, process: int) -> pa.Table:
    return table.filter(pa.array(table["process"].to_numpy() == process))
