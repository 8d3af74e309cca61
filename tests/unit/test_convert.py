from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spool_factory as factory
from spool_factory import BASE, MIB, NOW_NS

from transit.errors import JobError, TraceError
from transit.recorder.convert import Summary, convert
from transit.traces.reader import Trace

Rows = list[dict[str, Any]]


def _convert(run_dir: Path, **options: Any) -> Summary:
    arguments: dict[str, Any] = {
        "command": ["python", "train.py"],
        "ended": "completed",
    }
    return convert(run_dir, run_dir / "trace", **(arguments | options))


def _trace(tmp_path: Path, **files: Rows) -> Trace:
    """Convert `factory.small_spool` with some of its files replaced."""
    factory.small_spool(tmp_path / "spool-1", **files)
    _convert(tmp_path)
    return Trace.open(tmp_path / "trace")


def _column(trace: Trace, table: str, column: str) -> list[Any]:
    values: list[Any] = trace.table(0, table)[column].to_pylist()
    return values


def _losses(trace: Trace) -> dict[str, int]:
    losses = trace.manifest.ranks[0].losses.model_dump()
    return {name: count for name, count in losses.items() if count}


# Launches.


def test_launches_get_their_times_from_the_gpu(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        launch=[factory.launch(1, name_id=0), factory.launch(0), factory.launch(2)],
        activity=[
            factory.activity(2, start_ns=0, end_ns=0),
            factory.activity(1, start_ns=NOW_NS + 7, end_ns=NOW_NS + 9),
            factory.activity(55),
        ],
    )
    rows = trace.table(0, "launches").to_pylist()
    assert [row["launch_id"] for row in rows] == [0, 1, 2]
    assert [row["name"] for row in rows] == ["kernel", "Test GPU", "kernel"]
    assert [row["start_ns"] for row in rows] == [None, NOW_NS + 7, None]
    assert [row["end_ns"] for row in rows] == [None, NOW_NS + 9, None]
    assert rows[1]["host_ns"] == NOW_NS + 1_000_000
    assert rows[1]["grid_x"] == 132
    assert rows[1]["block_x"] == 256
    assert _losses(trace) == {"untimed_activities": 1, "unmatched_activities": 1}
    rank = trace.manifest.ranks[0]
    assert rank.kernel_launches == rank.launches_seen_by_cupti == 3
    assert rank.kernel_launches_with_access == 2
    assert rank.kernel_activities == 3


def test_a_graph_takes_the_time_of_all_its_nodes(tmp_path: Path) -> None:
    nodes = [
        factory.activity(
            0,
            start_ns=NOW_NS + start,
            end_ns=NOW_NS + start + 5,
            graph_id=3,
            graph_node_id=start,
        )
        for start in (20, 10, 40)
    ]
    trace = _trace(
        tmp_path,
        launch=[factory.launch(0, kind=4)],
        activity=[*nodes, factory.activity(0, start_ns=5, end_ns=4)],
    )
    (row,) = trace.table(0, "launches").to_pylist()
    assert (row["kind"], row["graph_id"], row["graph_node_id"]) == ("graph", 3, None)
    assert (row["start_ns"], row["end_ns"]) == (NOW_NS + 10, NOW_NS + 45)


def _graph_trace(tmp_path: Path) -> Trace:
    """Two launches of a graph of two kernels, the second after a change; one alone."""

    def node(graph: int, place: int, name_id: int) -> dict[str, Any]:
        return {
            "graph": graph,
            "node": place,
            "node_id": 70 + place,
            "kind": 1,
            "name_id": name_id,
            "grid": (9, 1, 1),
            "block": (32, 1, 1),
        }

    def touch(graph: int, place: int, offset: int) -> dict[str, Any]:
        return factory.access(graph << 32 | place, offset)

    def activity(launch_id: int, place: int, start: int) -> dict[str, Any]:
        start_ns = NOW_NS + launch_id * 1_000_000 + start
        return factory.activity(
            launch_id,
            start_ns=start_ns,
            end_ns=start_ns + 7,
            graph_id=5,
            graph_node_id=70 + place,
        )

    return _trace(
        tmp_path,
        launch=[
            factory.launch(0, kind=4),
            factory.launch(1),
            factory.launch(2, kind=4),
        ],
        access=[factory.access(1, 4 * MIB)],
        activity=[
            activity(2, 1, 60),
            activity(0, 0, 10),
            factory.activity(1),
            activity(0, 1, 30),
        ],
        graph_launch=[{"launch_id": 0, "graph": 1}, {"launch_id": 2, "graph": 2}],
        graph_node=[node(1, 1, 0), node(1, 0, 1), node(2, 0, 1), node(2, 1, 0)],
        graph_access=[touch(2, 1, 0), touch(1, 0, MIB), touch(1, 1, MIB)],
    )


def test_nodes_of_graphs_are_listed_by_launch(tmp_path: Path) -> None:
    rows = _graph_trace(tmp_path).table(0, "graph_nodes").to_pylist()
    assert [(r["launch_id"], r["graph_node"], r["name"]) for r in rows] == [
        (0, 0, "kernel"),
        (0, 1, "Test GPU"),
        (2, 0, "kernel"),
        (2, 1, "Test GPU"),
    ]
    assert [r["graph_node_id"] for r in rows] == [70, 71, 70, 71]
    assert {(r["kind"], r["grid_x"], r["block_x"]) for r in rows} == {("kernel", 9, 32)}
    later = NOW_NS + 2_000_000
    assert [(r["start_ns"], r["end_ns"]) for r in rows] == [
        (NOW_NS + 10, NOW_NS + 17),
        (NOW_NS + 30, NOW_NS + 37),
        (None, None),
        (later + 60, later + 67),
    ]


def test_accesses_of_graphs_name_their_node(tmp_path: Path) -> None:
    rows = _graph_trace(tmp_path).table(0, "accesses").to_pylist()
    assert [(r["launch_id"], r["offset"], r["graph_node"]) for r in rows] == [
        (0, MIB, 0),
        (0, MIB, 1),
        (1, 4 * MIB, None),
        (2, 0, 1),
    ]


def test_a_graph_is_signed_with_its_nodes(tmp_path: Path) -> None:
    trace = _graph_trace(tmp_path)
    nodes = trace.table(0, "graph_nodes").to_pylist()
    launches = trace.table(0, "launches").to_pylist()
    assert nodes[0]["signature"] == nodes[2]["signature"] != nodes[1]["signature"]
    assert launches[0]["signature"] == launches[2]["signature"]
    digest = 0xCBF29CE484222325
    for step in [
        *b"kernel",
        4,
        132,
        1,
        1,
        256,
        1,
        1,
        *(n["signature"] for n in nodes[:2]),
    ]:
        digest = (digest ^ step) * 0x100000001B3 % (1 << 64)
    assert launches[0]["signature"] == digest


def test_memory_of_a_graph_is_found_anew_at_each_launch(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        launch=[factory.launch(0, kind=4), factory.launch(10, kind=4)],
        allocation=[
            factory.allocation(0),
            factory.allocation(1, address=factory.BASE, host_ns=NOW_NS + 6_000_000),
        ],
        free=[{"allocation_id": 0, "host_ns": NOW_NS + 5_000_000, "launch_id": 1}],
        access=[],
        graph_launch=[{"launch_id": launch_id, "graph": 1} for launch_id in (0, 10)],
        graph_node=[{"graph": 1, "node": 0, "kind": 1}],
        graph_access=[factory.access(1 << 32, MIB)],
    )
    assert _column(trace, "accesses", "allocation_id") == [0, 1]
    assert _column(trace, "accesses", "offset") == [MIB, MIB]


def test_signatures_are_those_of_the_format(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        launch=[
            factory.launch(0),
            factory.launch(1),
            factory.launch(2, grid=(133, 1, 1)),
            factory.launch(3, grid=(1, 132, 1)),
            factory.launch(4, name_id=0),
            factory.launch(5, kind=2),
        ],
    )
    found = _column(trace, "launches", "signature")
    expected = 0xCBF29CE484222325
    for step in [*b"kernel", 1, 132, 1, 1, 256, 1, 1]:
        expected = (expected ^ step) * 0x100000001B3 % 2**64
    assert found[0] == found[1] == expected
    assert len(set(found)) == 5


def test_a_clock_set_back_is_counted(tmp_path: Path) -> None:
    launches = [
        factory.launch(0),
        factory.launch(1, host_ns=NOW_NS - 5_000_000),
        factory.launch(2, host_ns=NOW_NS - 5_000_100),  # two threads, no step
    ]
    trace = _trace(tmp_path, launch=launches)
    assert _losses(trace)["clock_steps"] == 1


# Accesses.


def test_parameters_reach_to_the_next_base_without_a_history(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        access=[
            factory.access(1, 8 * MIB),
            factory.access(0, 0),
            factory.access(0, 2 * MIB),
            factory.access(1, 2 * MIB),
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    assert [(r["launch_id"], r["offset"], r["bytes"], r["extent"]) for r in rows] == [
        (0, 0, 2 * MIB, "gap"),
        (0, 2 * MIB, 6 * MIB, "gap"),
        (1, 2 * MIB, 6 * MIB, "gap"),
        (1, 8 * MIB, 8 * MIB, "gap"),
    ]
    assert {row["source"] for row in rows} == {"parameter"}
    assert {row["direction"] for row in rows} == {"unknown"}


def test_copies_and_sets_are_exact(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        launch=[factory.launch(0, kind=2), factory.launch(1, kind=3)],
        access=[
            factory.access(0, 4096, bytes=100, source=2, direction=1),
            factory.access(1, 16 * MIB - 8, bytes=9, source=3, direction=2),
            factory.access(1, 0, source=3, direction=2),  # a 2D set: only the start
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    found = [(r["bytes"], r["extent"], r["direction"], r["source"]) for r in rows]
    assert found == [
        (100, "exact", "read", "copy"),
        (4096, "gap", "write", "set"),
        (8, "exact", "write", "set"),  # never beyond the allocation
    ]


def test_parameters_reach_to_the_end_of_the_block_alive_then(tmp_path: Path) -> None:
    def event(action: int, ms: float, offset: int, size: int) -> dict[str, Any]:
        host_ns = NOW_NS + int(ms * 1e6)
        return {
            "action": action,
            "host_ns": host_ns,
            "address": BASE + offset,
            "bytes": size,
        }

    trace = _trace(
        tmp_path,
        launch=[factory.launch(index) for index in range(8)],  # one each ms
        block=[
            event(3, -0.1, 0, 1000),  # alive at start, until 1.5 ms
            event(2, 1.5, 0, 1000),
            event(1, 2.5, 0, 5000),  # the same place, larger
            event(2, 4.5, 0, 5000),
            event(2, 3.5, MIB, 700),  # its birth was not seen
            event(1, 6.02, 0, 600),  # clocks differ: the launch at 6 ms uses it
        ],
        access=[
            factory.access(0, 0),
            factory.access(1, 400),
            factory.access(2, 0),  # nothing alive
            factory.access(3, 400),
            factory.access(4, 4999),
            factory.access(0, MIB),
            factory.access(4, MIB),  # freed
            factory.access(6, 0),
            factory.access(7, 599),
            factory.access(7, 600),
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    found = [(r["launch_id"], r["offset"], r["bytes"], r["extent"]) for r in rows]
    assert found == [
        (0, 0, 1000, "block"),
        (0, MIB, 700, "block"),
        (1, 400, 600, "block"),
        (2, 0, 400, "gap"),
        (3, 400, 4600, "block"),
        (4, 4999, 1, "block"),
        (4, MIB, 15 * MIB, "gap"),
        (6, 0, 600, "block"),
        (7, 599, 1, "block"),
        (7, 600, 4399, "gap"),
    ]
    blocks = [tuple(row.values()) for row in trace.table(0, "blocks").to_pylist()]
    assert blocks == [
        # allocation, offset, bytes, alloc launch, free launch, label
        (0, 0, 1000, None, 2, None),
        (0, 0, 5000, 3, 5, None),
        (0, 0, 600, 7, None, None),
        (0, MIB, 700, None, 4, None),
    ]


def test_what_is_born_before_the_snapshot_is_one_block(tmp_path: Path) -> None:
    place = {"address": BASE, "bytes": 512}
    trace = _trace(
        tmp_path,
        block=[
            {"action": 1, "host_ns": NOW_NS - 2000, **place},
            {"action": 3, "host_ns": NOW_NS - 1000, **place},
        ],
    )
    assert _column(trace, "blocks", "alloc_launch_id") == [0]


def test_addresses_used_again_belong_to_the_allocation_of_the_time(
    tmp_path: Path,
) -> None:
    trace = _trace(
        tmp_path,
        allocation=[
            factory.allocation(0, bytes=2 * MIB),
            factory.allocation(
                1, address=BASE, bytes=4 * MIB, host_ns=NOW_NS + 600_000, launch_id=1
            ),
        ],
        free=[{"allocation_id": 0, "host_ns": NOW_NS + 500_000, "launch_id": 1}],
        access=[factory.access(0, MIB), factory.access(1, MIB, allocation_id=1)],
        block=[
            {"action": 3, "host_ns": NOW_NS - 10, "address": BASE, "bytes": 256},
            {"action": 1, "host_ns": NOW_NS + 700_000, "address": BASE, "bytes": 512},
            # Beyond its allocation, and in none.
            {"action": 1, "host_ns": NOW_NS, "address": BASE, "bytes": 9 * MIB},
            {"action": 1, "host_ns": NOW_NS, "address": 4096, "bytes": 1},
        ],
    )
    assert _column(trace, "accesses", "allocation_id") == [0, 1]
    assert _column(trace, "accesses", "bytes") == [MIB, 3 * MIB]
    assert _column(trace, "blocks", "allocation_id") == [0, 1]
    assert _column(trace, "blocks", "bytes") == [256, 512]
    assert _column(trace, "allocations", "free_launch_id") == [1, None]
    assert _column(trace, "allocations", "alloc_launch_id") == [0, 1]
    assert _losses(trace)["unresolved_blocks"] == 2


def test_accesses_to_nowhere_are_counted(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        access=[
            factory.access(0),
            factory.access(0, 16 * MIB),  # past the end
            factory.access(0, -1),
            factory.access(9),  # no such launch
            factory.access(0, allocation_id=5),
        ],
    )
    assert _column(trace, "accesses", "launch_id") == [0]
    assert _losses(trace) == {"unresolved_accesses": 4}


def test_allocations_keep_what_the_shim_said(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        allocation=[
            factory.allocation(2, ordinal=-1, api=6, caller_name_id=17, device=1),
            factory.allocation(0),
            factory.allocation(0, bytes=1),  # reported twice
        ],
    )
    first, second = trace.table(0, "allocations").to_pylist()
    assert first["bytes"] == 16 * MIB
    assert (first["ordinal"], first["api"]) == (0, "mem_alloc")
    assert (first["caller"], first["device"]) == ("libcudart.so.13", 0)
    assert (second["allocation_id"], second["ordinal"], second["api"]) == (
        2,
        None,
        "host",
    )
    assert (second["caller"], second["device"]) == ("<unknown>", 1)


# Iterations.


def _marks(first_step: int, *ends: int) -> Rows:
    steps: Rows = [
        {"kind": 2, "value": first_step + index, "launch_id": end}
        for index, end in enumerate(ends)
    ]
    return [{"kind": 1, "launch_id": 0}, *steps, {"kind": 3, "launch_id": 99}]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        # Two steps were skipped: the recording starts where the second ended.
        (_marks(3, 2, 5, 8), [(3, 0, 1), (4, 2, 4), (5, 5, 7)]),
        # None was: what comes before the first end is more than an iteration.
        (_marks(1, 2, 5, 8), [(2, 2, 4), (3, 5, 7)]),
        (_marks(1, 2, 2, 8), [(3, 2, 7)]),  # a step that launched nothing
        (_marks(1), []),
        (_marks(1, 4), []),
    ],
)
def test_iterations_lie_between_ends_of_steps(
    tmp_path: Path, marks: Rows, expected: list[tuple[int, int, int]]
) -> None:
    launches = [factory.launch(index) for index in range(8)]
    trace = _trace(tmp_path, launch=launches, mark=marks)
    rows = [tuple(row.values()) for row in trace.table(0, "iterations").to_pylist()]
    assert rows == [(*bounds, "optimizer step") for bounds in expected]


# Unified memory and overhead.


def test_unified_memory_records_are_told_apart(tmp_path: Path) -> None:
    def record(kind: int, **fields: int) -> dict[str, int]:
        known = {"start_ns": NOW_NS, "end_ns": NOW_NS + 9, "address": BASE, "value": 7}
        return known | {"counter_kind": kind} | fields

    trace = _trace(
        tmp_path,
        uvm=[
            record(2, flags=4),
            record(1, flags=1, start_ns=NOW_NS - 1),
            record(8, flags=77, start_ns=0),
            record(3, flags=2, end_ns=0),
            record(4, flags=1, src_id=1),
            record(5),
            record(6, value=0),
            record(7, flags=3),
            record(99),
        ],
    )
    migrations = trace.table(0, "uvm_migrations").to_pylist()
    assert [(m["direction"], m["cause"], m["start_ns"]) for m in migrations] == [
        ("device to device", "unknown", None),
        ("host to device", "user", NOW_NS - 1),
        ("device to host", "eviction", NOW_NS),
    ]
    faults = trace.table(0, "uvm_faults").to_pylist()
    found = [(f["processor"], f["access"], f["groups"], f["end_ns"]) for f in faults]
    assert found == [("cpu", "write", None, None), ("gpu 1", "read", 7, NOW_NS + 9)]
    events = trace.table(0, "uvm_events").to_pylist()
    assert [(e["kind"], e["bytes"], e["cause"], e["end_ns"]) for e in events] == [
        ("thrashing", 7, None, None),
        ("throttling", None, None, NOW_NS + 9),
        ("remote map", 7, "policy", None),
    ]
    assert _losses(trace) == {"untimed_activities": 1}


def test_overhead_and_drops_are_kept(tmp_path: Path) -> None:
    trace = _trace(
        tmp_path,
        overhead=[
            {"start_ns": 5, "end_ns": 9, "kind": 1 << 16, "dropped_records": 4},
            {"start_ns": 1, "end_ns": 2},
        ],
    )
    rows = [tuple(row.values()) for row in trace.table(0, "overhead").to_pylist()]
    assert rows == [("transit", 1, 2, 0), ("buffer flush", 5, 9, 4)]
    assert _losses(trace) == {"dropped": 4}


# The manifest, and which process is which rank.


def test_the_manifest_describes_the_recording(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1")
    summary = _convert(tmp_path, ended="killed", hooks={1: 12, 9: 3})
    manifest = Trace.open(tmp_path / "trace").manifest
    assert manifest.command == ["python", "train.py"]
    assert manifest.ended == "killed"
    (rank,) = manifest.ranks
    assert (rank.pid, rank.launches_seen_by_hooks) == (1, 12)
    assert (rank.cupti_version, rank.driver_version) == (130000, 13000)
    assert rank.clocks.cupti_ns == NOW_NS
    assert rank.torch_version is None
    (device,) = rank.devices
    assert (device.name, device.memory_bytes) == ("Test GPU", 80 << 30)
    assert device.compute_capability == "9.0"
    assert rank.counts["launches"] == 2
    assert str(summary) == (
        "1 rank, 2 launches, 2 of 2 kernel launches with an access, 1 allocation,"
        " 0 marked iterations"
    )


def test_the_manifest_names_the_version_of_torch(tmp_path: Path) -> None:
    names = ["Test GPU", "kernel", "libcudart.so.13", "jax", "0.9", "torch", "2.9.0"]
    trace = _trace(
        tmp_path,
        name=[p for i, name in enumerate(names) for p in factory.name_pieces(i, name)],
        framework=[{"name_id": 3, "version_id": 4}, {"name_id": 5, "version_id": 6}],
    )

    assert trace.manifest.ranks[0].torch_version == "2.9.0"


def _process(rank: int) -> Rows:
    return [{"rank": rank, "local_rank": rank, "world_size": 2}]


def test_every_rank_gets_its_folder(tmp_path: Path) -> None:
    launches = [factory.launch(0)]
    factory.small_spool(tmp_path / "spool-8", process=_process(1), launch=launches)
    factory.small_spool(tmp_path / "spool-9", process=_process(0))
    told: list[str] = []
    summary = _convert(tmp_path, progress=told.append)
    trace = Trace.open(tmp_path / "trace")
    assert trace.ranks == [0, 1]
    assert [trace.table(rank, "launches").num_rows for rank in (0, 1)] == [2, 1]
    assert [info.pid for info in trace.manifest.ranks] == [9, 8]
    assert summary.launches == 3
    assert told == ["converting rank 0", "converting rank 1"]


def test_of_two_that_claim_a_rank_the_busier_is_it(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-3", launch=[factory.launch(0)])
    factory.small_spool(tmp_path / "spool-4")
    factory.small_spool(tmp_path / "spool-5", launch=[], process=_process(1))
    factory.small_spool(tmp_path / "spool-6", process=[])
    summary = _convert(tmp_path)
    manifest = Trace.open(tmp_path / "trace").manifest
    assert [info.pid for info in manifest.ranks] == [4]
    reasons = {process.pid: process.reason for process in manifest.skipped}
    assert "process 4 with more launches (2 against 1)" in reasons[3]
    assert reasons[5] == "rank 1 launched nothing while recording"
    assert reasons[6] == "ended before it could say its rank"
    assert "3 processes left out" in str(summary)


def test_a_torn_spool_is_still_a_trace(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    launches = [factory.launch(index) for index in range(3)]
    path = factory.write_file(folder, "launch", launches, slack_bytes=0)
    path.write_bytes(path.read_bytes()[:-70])
    factory.write_file(folder, "access", [factory.access(0)], num_dropped=5)
    for missing in ("mark", "activity", "device"):
        (folder / f"{missing}.spool").unlink()

    summary = _convert(tmp_path, ended="killed")

    trace = Trace.open(tmp_path / "trace")
    assert _column(trace, "launches", "launch_id") == [0]
    assert _column(trace, "launches", "start_ns") == [None]
    assert _losses(trace) == {"dropped": 5, "torn": 2}
    assert "7 records lost" in str(summary)


# Failures.


def test_no_spool_means_no_cuda(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="No process of the job used CUDA"):
        _convert(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_recorders_failure_is_the_error(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    (folder / "failure.txt").write_text("CUPTI is held by nsys: stop it first.\n")
    with pytest.raises(JobError, match=r"^CUPTI is held by nsys: stop it first\.$"):
        _convert(tmp_path)


def test_a_job_that_ends_while_skipping_is_told_so(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1", launch=[], mark=[])
    with pytest.raises(JobError, match=r"before the steps to skip had passed.*--skip"):
        _convert(tmp_path)


def test_a_job_that_launches_nothing_is_told_so(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1", launch=[])
    with pytest.raises(JobError, match="launched nothing"):
        _convert(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"launch": [factory.launch(0)] * 2}, "a launch is there twice"),
        ({"launch": [factory.launch(0, kind=9)]}, "launch kind 9 does not exist"),
        ({"launch": [factory.launch(0, grid=(2**31, 1, 1))]}, "impossible grid"),
        ({"launch": [{"launch_id": 2**63}]}, "launch id 9223"),
        ({"launch": [factory.launch(0, host_ns=2**63)]}, "launch time 9223"),
        ({"access": [factory.access(0, source=8)]}, "access source 8 does not exist"),
        ({"access": [factory.access(0, direction=4)]}, "direction 4 does not exist"),
        ({"access": [factory.access(0, bytes=2**64 - 1)]}, "access size 1844"),
        ({"access": [{"address": 2**64 - 1}]}, "address 1844"),
        ({"allocation": [factory.allocation(0, api=0)]}, "allocation API 0 does not"),
        ({"allocation": [factory.allocation(0, bytes=2**62)]}, "allocation size 46"),
        (
            {"allocation": [factory.allocation(i, bytes=2**61) for i in range(8)]},
            "its allocations have no end",
        ),
        ({"block": [{"bytes": 2**63, "action": 1}]}, "block bytes 9223"),
    ],
)
def test_damaged_records_are_refused(
    tmp_path: Path, files: dict[str, Rows], message: str
) -> None:
    folder = factory.small_spool(tmp_path / "spool-1", **files)
    with pytest.raises(TraceError, match=f"spool-1 is damaged: .*{message}"):
        _convert(tmp_path)
    assert folder.is_dir()
    assert not (tmp_path / "trace").exists()


def test_a_failed_conversion_keeps_the_trace_that_was_there(tmp_path: Path) -> None:
    before = _trace(tmp_path).manifest
    with pytest.raises(TraceError, match="exists"):
        _convert(tmp_path)
    factory.small_spool(tmp_path / "spool-1", launch=[factory.launch(0, kind=9)])
    with pytest.raises(TraceError, match="damaged"):
        _convert(tmp_path, overwrite=True)
    assert Trace.open(tmp_path / "trace").manifest == before
    factory.small_spool(tmp_path / "spool-1")
    _convert(tmp_path, overwrite=True, ended="again")
    assert Trace.open(tmp_path / "trace").manifest.ended == "again"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spool-1", "trace"]
