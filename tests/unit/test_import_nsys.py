from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_factory import UTC_NS, call, export, global_pid, kernel, mark, work

from transit.errors import TraceError
from transit.traces.check import refuse_contradictions
from transit.traces.imports import nsys
from transit.traces.imports.write import Summary, import_profile
from transit.traces.reader import Trace

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
MIB = 1 << 20


def imported(folder: Path, tables: dict[str, Any]) -> tuple[Trace, Summary]:
    file = export(folder / "report.sqlite", tables)
    summary = import_profile(nsys.read, file, folder / "trace")
    trace = Trace.open(folder / "trace")
    for rank in trace.ranks:
        refuse_contradictions(trace, rank)
    return trace, summary


def rows(trace: Trace, table: str, *columns: str, rank: int = 0) -> list[Any]:
    read = trace.table(rank, table, columns)
    return [tuple(row.values()) for row in read.to_pylist()]


def test_launches_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    trace, summary = imported(
        tmp_path,
        {
            KERNELS: [kernel(500, 600, 2), kernel(300, 400, 3)],
            COPIES: [work(100, 150, 1, bytes=64, copyKind=1)],
            "CUPTI_ACTIVITY_KIND_MEMSET": [work(700, 720, 4, value=0, bytes=8)],
            CALLS: [
                call(90, 3),
                call(99, 2),  # inside the one that counts
                call(20, 1, name=5),
                call(80, 2),
                call(95, 4),
            ],
        },
    )
    names = ("launch_id", "kind", "name", "host_ns", "start_ns", "end_ns")
    assert rows(trace, "launches", *names) == [
        (i, kind, name, UTC_NS + host, UTC_NS + start, UTC_NS + end)
        for i, (kind, name, host, start, end) in enumerate(
            [
                ("copy", "[CUDA memcpy Host-to-Device]", 20, 100, 150),
                ("kernel", "_Z3addPf", 80, 500, 600),
                ("kernel", "_Z3addPf", 90, 300, 400),
                ("set", "[CUDA memset]", 95, 700, 720),
            ]
        )
    ]
    shape = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    assert rows(trace, "launches", "device", "stream", *shape) == [
        (0, 13, 0, 0, 0, 0, 0, 0),
        (0, 13, 2, 3, 4, 128, 1, 1),
        (0, 13, 2, 3, 4, 128, 1, 1),
        (0, 13, 0, 0, 0, 0, 0, 0),
    ]
    signatures = [s for (s,) in rows(trace, "launches", "signature")]
    assert signatures[1] == signatures[2]
    assert len(set(signatures)) == 3
    assert (trace.manifest.rank(0).pid, trace.manifest.rank(0).kernel_launches) == (
        7,
        2,
    )
    assert "accesses" in summary.missing
    assert summary.notes == ["rank 0: the file does not describe GPU 0"]


def test_names_are_demangled_where_that_is_all_there_is(tmp_path: Path) -> None:
    trace, _ = imported(tmp_path, {KERNELS: [kernel(1, 2, 1, mangledName=None)]})
    assert rows(trace, "launches", "name") == [("add(float*)",)]


def test_work_without_a_call_is_placed_by_its_start(tmp_path: Path) -> None:
    trace, summary = imported(
        tmp_path,
        {
            KERNELS: [kernel(100, 200, 1), kernel(50, 60, None), kernel(40, 45, 0)],
            CALLS: [call(45, 1), call(1, 0)],
        },
    )
    host = [ns - UTC_NS for (ns,) in rows(trace, "launches", "host_ns")]
    assert host == [40, 45, 50]
    assert any("2 launches have no API call" in note for note in summary.notes)


def test_a_graph_is_one_launch_whichever_way_it_was_profiled(tmp_path: Path) -> None:
    nodes = [
        kernel(100, 150, 1, graphNodeId=11),
        kernel(120, 190, 1, graphNodeId=12),
        kernel(300, 310, 2),
        kernel(320, 330, 2),  # of a graph, too: its call says so
    ]
    whole = work(500, 600, 3, graphId=9, graphExecId=1)
    trace, _ = imported(
        tmp_path,
        {
            KERNELS: [*nodes, kernel(700, 710, 4)],
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [whole],
            CALLS: [call(i * 10, i, name=4 if i < 4 else 3) for i in range(1, 5)],
        },
    )
    names = ("kind", "name", "grid_x", "graph_id", "start_ns", "end_ns")
    assert rows(trace, "launches", *names) == [
        ("graph", "cuGraphLaunch", 0, None, UTC_NS + 100, UTC_NS + 190),
        ("graph", "cuGraphLaunch", 0, None, UTC_NS + 300, UTC_NS + 330),
        ("graph", "cuGraphLaunch", 0, 9, UTC_NS + 500, UTC_NS + 600),
        ("kernel", "_Z3addPf", 2, None, UTC_NS + 700, UTC_NS + 710),
    ]
    info = trace.manifest.rank(0)
    assert (info.kernel_launches, info.kernel_activities) == (1, 5)


def test_a_graph_is_known_by_its_nodes_where_calls_are_missing(tmp_path: Path) -> None:
    nodes = [kernel(100 * i, 100 * i + 50, 1, graphNodeId=i) for i in (1, 2)]
    trace, _ = imported(tmp_path, {KERNELS: [*nodes, kernel(400, 450, 2)]})
    assert rows(trace, "launches", "kind", "start_ns", "end_ns") == [
        ("graph", UTC_NS + 100, UTC_NS + 250),
        ("kernel", UTC_NS + 400, UTC_NS + 450),
    ]


def test_migrations_and_faults_are_no_launches(tmp_path: Path) -> None:
    def migration(start: int, kind: int, cause: int) -> dict[str, Any]:
        where = {"copyKind": kind, "migrationCause": cause, "virtualAddress": 1 << 46}
        return work(start, start + 5, 0, bytes=4096, **where)

    process = {"globalPid": global_pid(7)}
    gpu = process | {"deviceId": 1, "numberOfPageFaults": 3, "faultAccessType": 2}
    trace, _ = imported(
        tmp_path,
        {
            KERNELS: [kernel(1, 2, 1)],
            COPIES: [migration(30, 12, 4), migration(20, 11, 2), migration(40, 13, 99)],
            "CUDA_UM_CPU_PAGE_FAULT_EVENTS": [{"start": 60, "address": 8192} | process],
            "CUDA_UM_GPU_PAGE_FAULT_EVENTS": [
                {"start": 50, "end": 55, "address": 4096} | gpu
            ],
        },
    )
    assert rows(trace, "launches", "kind") == [("kernel",)]
    assert rows(trace, "uvm_migrations", "start_ns", "direction", "cause", "bytes") == [
        (UTC_NS + 20, "host to device", "coherence", 4096),
        (UTC_NS + 30, "device to host", "eviction", 4096),
        (UTC_NS + 40, "device to device", "unknown", 4096),
    ]
    names = ("start_ns", "end_ns", "address", "access", "processor", "groups")
    assert rows(trace, "uvm_faults", *names) == [
        (UTC_NS + 50, UTC_NS + 55, 4096, "write", "gpu 1", 3),
        (UTC_NS + 60, None, 8192, "unknown", "cpu", None),
    ]


def test_allocations_live_from_launch_to_launch(tmp_path: Path) -> None:
    def event(start: int, kind: int, operation: int, **more: Any) -> dict[str, Any]:
        return {
            "start": start,
            "globalPid": global_pid(7),
            "deviceId": 0,
            "contextId": 1,
            "address": 0x7F00_0000_0000,
            "bytes": 4 * MIB,
            "memKind": kind,
            "memoryOperationType": operation,
        } | more

    trace, _ = imported(
        tmp_path,
        {
            KERNELS: [kernel(100 * i + 50, 100 * i + 60, i) for i in range(1, 5)],
            CALLS: [call(100 * i, i) for i in range(1, 5)],
            MEMORY: [
                event(250, 2, 1),
                event(10, 2, 0),
                event(250, 4, 0),
                event(310, 1, 0, address=4096),
                event(320, 2, 0, address=8192, localMemoryPoolAddress=5),
                event(330, 5, 0, address=16384),  # a module's: no call made it
                event(340, 2, 1, address=20480),  # from before the profile
                event(350, 1, 1, address=4096),
                event(450, 1, 1, address=4096),  # of one that is not in the file
            ],
        },
    )
    names = ("ordinal", "api", "bytes", "alloc_launch_id", "free_launch_id")
    assert rows(trace, "allocations", *names) == [
        (None, "mem_alloc", 4 * MIB, 0, 2),
        (None, "managed", 4 * MIB, 2, None),
        (None, "host", 4 * MIB, 3, 3),
        (None, "async", 4 * MIB, 3, None),
    ]


@pytest.mark.parametrize("by", ["text", "textId"])
def test_optimizer_steps_end_iterations(by: str, tmp_path: Path) -> None:
    name = {"text": "Optimizer.step#Adam.step, op_id = 5"} if by == "text" else {by: 6}
    ends = [210, 410, 610]
    trace, _ = imported(
        tmp_path,
        {
            KERNELS: [kernel(100 * i + 50, 100 * i + 60, i) for i in range(1, 8)],
            CALLS: [call(100 * i, i) for i in range(1, 8)],
            "NVTX_EVENTS": [
                *(mark(end - 20, end, **name) for end in ends),
                mark(0, 700, text="train"),
                mark(690, None, **name),  # still open at the end
            ],
        },
    )
    assert rows(
        trace, "iterations", "iteration", "first_launch_id", "last_launch_id"
    ) == [
        (2, 2, 3),
        (3, 4, 5),
    ]
    assert set(rows(trace, "iterations", "found_by")) == {("optimizer step",)}


def test_processes_become_ranks_by_their_gpus(tmp_path: Path) -> None:
    gpus = [
        {"vmId": 1, "id": i, "cuDevice": i, "name": f"GPU {i}", "totalMemory": 8 << 30}
        | {"smCount": 108, "computeMajor": 8, "computeMinor": i}
        for i in range(3)
    ]
    other = {"pid": 3}
    trace, summary = imported(
        tmp_path,
        {
            "TARGET_INFO_GPU": gpus,
            KERNELS: [
                kernel(100, 150, 1, deviceId=1, globalPid=global_pid(3)),
                kernel(200, 250, 1),
                kernel(300, 350, 2),
            ],
            # Both count their calls from 1.
            CALLS: [call(10, 1, **other), call(190, 1), call(290, 2)],
            "NVTX_EVENTS": [mark(180, 300, text="ProfilerStep#5")],
        },
    )
    assert trace.ranks == [0, 1]
    infos = [trace.manifest.rank(rank) for rank in trace.ranks]
    assert [(info.pid, info.world_size) for info in infos] == [(7, 2), (3, 2)]
    assert [info.devices[0].compute_capability for info in infos] == ["8.0", "8.1"]
    assert [len(info.devices) for info in infos] == [1, 1]
    hosts = [rows(trace, "launches", "host_ns", rank=rank) for rank in trace.ranks]
    assert hosts == [[(UTC_NS + 190,), (UTC_NS + 290,)], [(UTC_NS + 10,)]]
    assert [info.counts["iterations"] for info in infos] == [1, 0]
    assert summary.notes == ["ranks are processes in the order of their GPUs"]


def test_without_the_start_of_the_session_times_are_relative(tmp_path: Path) -> None:
    trace, summary = imported(
        tmp_path,
        {KERNELS: [kernel(100, 150, 1)], "TARGET_INFO_SESSION_START_TIME": []},
    )
    assert rows(trace, "launches", "start_ns") == [(100,)]
    assert any("not from 1970" in note for note in summary.notes)


def test_times_that_run_backwards_are_not_known(tmp_path: Path) -> None:
    trace, _ = imported(tmp_path, {KERNELS: [kernel(200, 100, 1), kernel(300, 310, 2)]})
    assert rows(trace, "launches", "start_ns") == [(None,), (UTC_NS + 300,)]
    assert trace.manifest.rank(0).losses.untimed_activities == 1


def refusal(file: Path) -> str:
    out = file.parent / "trace"
    with pytest.raises(TraceError) as caught:
        import_profile(nsys.read, file, out)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert str(file) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"SQLite format 4\0"])
def test_no_sqlite(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert "nsys export --type sqlite" in refusal(tmp_path / "file")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"Cannot read .*none: No such file"):
        import_profile(nsys.read, tmp_path / "none", tmp_path / "trace")


def test_other_database(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "file") as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    connection.close()
    assert "no export of Nsight Systems" in refusal(tmp_path / "file")


def test_export_without_gpu_work(tmp_path: Path) -> None:
    assert "--trace=cuda" in refusal(export(tmp_path / "file", {CALLS: [call(1, 1)]}))


def test_truncated_database(tmp_path: Path) -> None:
    many = [kernel(i, i + 1, i) for i in range(2000)]
    file = export(tmp_path / "file", {KERNELS: many})
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert "damaged" in refusal(file)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1))
def test_damage_is_refused_or_harmless(damage: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {KERNELS: [kernel(1, 2, 1)], CALLS: [call(1, 1)]}
        file = export(folder / "report.sqlite", tables)
        content = bytearray(file.read_bytes())
        for place, byte in damage:
            content[place % len(content)] = byte
        file.write_bytes(content)
        with contextlib.suppress(TraceError):
            import_profile(nsys.read, file, folder / "trace")
            refuse_contradictions(Trace.open(folder / "trace"), 0)


def test_name_that_is_no_text(tmp_path: Path) -> None:
    file = export(tmp_path / "file", {KERNELS: [kernel(1, 2, 1)]})
    content = file.read_bytes().replace(KERNELS.encode(), b"\xff" * len(KERNELS))
    file.write_bytes(content)
    assert "damaged" in refusal(file)


def test_unknown_version(tmp_path: Path) -> None:
    file = export(tmp_path / "file", {KERNELS: [kernel(1, 2, 1)]})
    with sqlite3.connect(file) as connection:
        connection.execute(f"ALTER TABLE {KERNELS} RENAME COLUMN streamId TO queueId")
    connection.close()
    assert f'{KERNELS} has no column "streamId"' in refusal(file)


def test_view_in_place_of_a_table_is_not_run(tmp_path: Path) -> None:
    file = export(tmp_path / "file", {CALLS: [call(1, 1)]})
    with sqlite3.connect(file) as connection:
        connection.execute(
            f"CREATE VIEW {KERNELS} AS WITH RECURSIVE n(i) AS"
            " (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start FROM n"
        )
    connection.close()
    assert "has no GPU work" in refusal(file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": "soon"}, "start_ns is no integer"),
        ({"start": -UTC_NS - 1}, "impossible time"),
        ({"end": 2**63 - 1}, "impossible time"),
        ({"deviceId": -1}, "impossible device"),
        ({"streamId": -1}, "impossible stream"),
        ({"gridX": 1 << 31}, "impossible grid_x"),
        ({"demangledName": 99, "mangledName": 98}, "name is missing or impossible"),
        ({"correlationId": 0.5}, "correlation_id is no integer"),
    ],
)
def test_impossible_values(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = export(tmp_path / "file", {KERNELS: [kernel(1, 2, 1) | changed]})
    assert message in refusal(file)


def test_allocation_of_an_impossible_size(tmp_path: Path) -> None:
    event = {"start": 1, "globalPid": 0, "deviceId": 0, "contextId": 1, "memKind": 2}
    event |= {"memoryOperationType": 0, "address": 4096, "bytes": 1 << 48}
    file = export(tmp_path / "file", {KERNELS: [kernel(1, 2, 1)], MEMORY: [event]})
    assert f"{MEMORY}: bytes is missing or impossible" in refusal(file)


def test_file_name_that_a_uri_would_misread(tmp_path: Path) -> None:
    file = export(tmp_path / "plain", {KERNELS: [kernel(1, 2, 1)]})
    odd = shutil.move(file, tmp_path / "a?mode=rwc#%41 b")
    summary = import_profile(nsys.read, odd, tmp_path / "trace")
    assert summary.counts["launches"] == 1
