from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from command_line import transit
from hypothesis import given
from hypothesis import strategies as st
from perfetto_events import Export, read_export
from trace_factory import MIB, START_NS, LayeredLoop, Tables, write_tables, write_trace

from transit.errors import TraceError
from transit.traces import schema
from transit.traces.perfetto import track_event
from transit.traces.perfetto.export import export_trace
from transit.traces.perfetto.lanes import assign_lanes
from transit.traces.reader import Trace

RANK, GPU = "rank 0, pid 1000", "GPU 0: Test GPU"
ADDRESS = 0x7F00_1234_5000


@pytest.fixture
def tables() -> Tables:
    """Two iterations of a forward, a backward and an update kernel."""
    return LayeredLoop(layers=1, iterations=2, host_bytes=MIB).tables()


def change(tables: Tables, name: str, changes: dict[int, dict[str, Any]]) -> None:
    rows = tables[name].to_pylist()
    for index, values in changes.items():
        rows[index].update(values)
    put(tables, name, rows)


def put(tables: Tables, name: str, rows: list[dict[str, Any]]) -> None:
    tables[name] = pa.Table.from_pylist(rows, schema=schema.TABLES[name])


def exported(tmp_path: Path, *ranks: Tables) -> Export:
    trace = write_tables(tmp_path / "trace", dict(enumerate(ranks)))
    export_trace(Trace.open(trace), tmp_path / "out")
    return read_export(tmp_path / "out")


def test_kernels_have_their_stream_times_and_shape(
    tables: Tables, tmp_path: Path
) -> None:
    change(
        tables,
        "launches",
        {
            1: {"stream": 0x7F00_0000_0010},
            2: {"grid_y": 300, "name": "_ZN2at6native6updateIfEEvPT_"},
        },
    )
    export = exported(tmp_path, tables)
    rows = tables["launches"].to_pylist()
    assert export.on(RANK, GPU, "stream 7 kernels") == [
        (name, row["start_ns"], row["end_ns"])
        for name, row in zip(
            ("forward", "update<float>", "forward", "backward", "update"),
            (row for row in rows if row["launch_id"] != 1),
            strict=True,
        )
    ]
    assert export.on(RANK, GPU, "stream 0x7f0000000010 kernels") == [
        ("backward", rows[1]["start_ns"], rows[1]["end_ns"])
    ]
    update = next(event for event in export.slices if "update" in event.name)
    assert update.arguments == {
        "launch_id": 2,
        "function": "void at::native::update<float>(float*)",
        **dict(grid_x=132, grid_y=300, grid_z=1, block_x=256, block_y=1, block_z=1),
    }


def test_launches_of_the_host_lead_to_their_kernels(
    tables: Tables, tmp_path: Path
) -> None:
    export = exported(tmp_path, tables, tables)
    host = [e for e in export.instants if e.track.endswith("/launches on the host")]
    kernels = [e for e in export.slices if e.track.endswith("kernels")]
    assert [e.start_ns for e in host if e.track.startswith(RANK)] == (
        tables["launches"]["host_ns"].to_pylist()
    )
    begun = {event.flows[0]: event for event in host}
    assert len(begun) == len(host) == len(kernels) == 12
    for kernel in kernels:
        (flow,) = kernel.flows
        assert begun[flow].name == kernel.name
        assert begun[flow].arguments["launch_id"] == kernel.arguments["launch_id"]
        assert begun[flow].track.split("/")[0] == kernel.track.split("/")[0]


def test_a_launch_precedes_its_kernel_also_at_one_time(
    tables: Tables, tmp_path: Path
) -> None:
    time_ns = tables["launches"]["start_ns"][0].as_py()
    change(tables, "launches", {0: {"host_ns": time_ns}})
    packets = exported(tmp_path, tables).packets
    events = [packet.track_event for packet in packets if packet.timestamp == time_ns]
    begins = [list(event.flow_ids) for event in events]
    ends = [list(event.terminating_flow_ids) for event in events]
    assert max(begins) == max(ends) != []
    assert begins.index(max(begins)) < ends.index(max(ends))


def test_copies_sets_and_graphs_have_tracks_of_their_own(
    tables: Tables, tmp_path: Path
) -> None:
    change(
        tables,
        "launches",
        {
            0: {"kind": "copy", "name": "cuMemcpyHtoDAsync_v2"},
            1: {"kind": "set", "name": "cuMemsetD8Async"},
            2: {"kind": "graph", "name": "cuGraphLaunch", "graph_id": 77},
            3: {"kind": "copy", "name": "cuMemcpy3DAsync_v2"},
        },
    )
    accesses = [a for a in tables["accesses"].to_pylist() if a["launch_id"] in (0, 1)]
    for access, size in zip(accesses, (4096, 4096, 300, 300, 300), strict=True):
        access["bytes"], access["extent"] = size, "exact"
        access["source"] = "copy" if access["launch_id"] == 0 else "set"
    put(tables, "accesses", accesses)
    export = exported(tmp_path, tables)
    found = {(e.track.split("/")[-1], e.name): e.arguments for e in export.slices}
    assert found["stream 7 copies", "cuMemcpyHtoDAsync_v2"] == {
        "launch_id": 0,
        "bytes": 4096,
    }
    assert found["stream 7 sets", "cuMemsetD8Async"] == {"launch_id": 1, "bytes": 300}
    graph = found["stream 7 graphs", "cuGraphLaunch"]
    assert graph == {"launch_id": 2, "graph_id": 77}
    # How much it moved is not known, so nothing is said of it.
    assert found["stream 7 copies", "cuMemcpy3DAsync_v2"] == {"launch_id": 3}


def test_work_that_overlaps_is_beside_each_other(
    tables: Tables, tmp_path: Path
) -> None:
    spans = [(0, 10), (5, 20), (10, 10), (10, 30), (20, 25), (30, 31)]
    change(
        tables,
        "launches",
        {
            index: {"start_ns": START_NS + start, "end_ns": START_NS + end}
            for index, (start, end) in enumerate(spans)
        },
    )
    export = exported(tmp_path, tables)  # which fails on overlaps
    assert sorted(export.on(RANK, GPU, "stream 7 kernels")) == sorted(
        (row["name"], row["start_ns"], row["end_ns"])
        for row in tables["launches"].to_pylist()
    )
    titles = [title for title in export.tracks.values() if title.endswith("kernels")]
    assert titles == [f"{RANK}/{GPU}/stream 7 kernels"] * 2


def test_iterations_last_from_first_to_last_work_on_the_gpu(
    tables: Tables, tmp_path: Path
) -> None:
    start_ns = tables["launches"]["start_ns"].to_pylist()
    end_ns = tables["launches"]["end_ns"].to_pylist()
    untimed = {"start_ns": None, "end_ns": None}
    change(tables, "launches", {0: untimed, 1: {"end_ns": end_ns[2] + 7}})
    export = exported(tmp_path, tables)
    assert export.on(RANK, "iterations") == [
        ("iteration 1", start_ns[1], end_ns[2] + 7),
        ("iteration 2", start_ns[3], end_ns[5]),
    ]


def test_memory_is_counted_as_it_comes_and_goes(tables: Tables, tmp_path: Path) -> None:
    host_ns = tables["launches"]["host_ns"].to_pylist()
    sizes = tables["allocations"]["bytes"].to_pylist()
    change(
        tables,
        "allocations",
        {
            2: {"alloc_launch_id": 1, "free_launch_id": 3},
            3: {"api": "managed", "alloc_launch_id": 2},
            4: {"alloc_launch_id": 99, "free_launch_id": None},  # after the last launch
        },
    )
    change(tables, "blocks", {0: {"alloc_launch_id": 2, "free_launch_id": 4}})
    counters = exported(tmp_path, tables).counters
    first = sizes[0] + sizes[5] + sizes[6]
    assert counters[f"{RANK}/{GPU}/GPU memory allocated"] == [
        (host_ns[0], first),
        (host_ns[1], first + sizes[2]),
        (host_ns[3], first),
        (host_ns[5], first + sizes[4]),
    ]
    assert counters[f"{RANK}/{GPU}/managed memory allocated"] == [
        (host_ns[2], sizes[3])
    ]
    assert counters[f"{RANK}/pinned host memory allocated"] == [(host_ns[0], MIB)]
    assert counters[f"{RANK}/{GPU}/in use by the framework"] == [
        (host_ns[0], 4 * 8 * MIB),
        (host_ns[2], 5 * 8 * MIB),
        (host_ns[4], 4 * 8 * MIB),
    ]


def test_unified_memory_has_tracks_by_what_it_did(
    tables: Tables, tmp_path: Path
) -> None:
    def at(start: int | None, end: int | None, **values: Any) -> dict[str, Any]:
        times = {"start_ns": start and START_NS + start, "end_ns": end}
        if end is not None:
            times["end_ns"] = START_NS + end
        return {"address": ADDRESS, **times, **values}

    down = {"direction": "host to device", "cause": "prefetch", "bytes": 2 * MIB}
    up = {"direction": "device to host", "cause": "eviction", "bytes": 65536}
    gpu = {"access": "write", "processor": "gpu 0", "groups": 3}
    cpu = {"access": "read", "processor": "cpu", "groups": None}
    put(
        tables,
        "uvm_migrations",
        [at(1, 9, **down), at(4, 12, **down), at(5, 6, **up), at(None, None, **up)],
    )
    put(tables, "uvm_faults", [at(2, 3, **gpu), at(8, None, **cpu)])
    put(
        tables,
        "uvm_events",
        [
            at(7, None, kind="thrashing", bytes=4096, cause=None),
            at(7, 9, kind="throttling", bytes=None, cause=None),
        ],
    )
    trace = write_tables(tmp_path / "trace", {0: tables})
    counted = export_trace(Trace.open(trace), tmp_path / "out")
    assert counted.untimed == 1
    export = read_export(tmp_path / "out")
    found = {
        (e.track.split("/")[-1], e.name, e.start_ns - START_NS, e.end_ns - START_NS): {
            **e.arguments
        }
        for e in export.slices + export.instants
        if "/UVM " in e.track
    }
    assert found == {
        ("UVM migrations, host to device", "prefetch", start, start + 8): {
            "address": ADDRESS,
            "bytes": 2 * MIB,
        }
        for start in (1, 4)
    } | {
        ("UVM migrations, device to host", "eviction", 5, 6): {
            "address": ADDRESS,
            "bytes": 65536,
        },
        ("UVM page faults, gpu 0", "write", 2, 3): {"address": ADDRESS, "groups": 3},
        ("UVM page faults, cpu", "read", 8, 8): {"address": ADDRESS},
        ("UVM thrashing", "thrashing", 7, 7): {"address": ADDRESS, "bytes": 4096},
        ("UVM throttling", "throttling", 7, 9): {"address": ADDRESS},
    }


def test_times_are_of_the_wall_clock(tables: Tables, tmp_path: Path) -> None:
    snapshot = exported(tmp_path, tables).packets[0].clock_snapshot
    realtime = 1
    assert snapshot.primary_trace_clock == realtime
    assert [(c.clock_id, c.timestamp) for c in snapshot.clocks] == [
        (realtime, START_NS)
    ]


def test_batches_do_not_show(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    whole = exported(tmp_path / "whole", tables)
    monkeypatch.setattr(track_event, "_EVENTS_PER_BATCH", 4)
    batched = exported(tmp_path, tables)
    assert batched.slices == whole.slices
    assert batched.instants == whole.instants
    assert batched.counters == whole.counters


def test_same_trace_same_bytes(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", ranks=2))
    export_trace(trace, tmp_path / "a")
    export_trace(trace, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_empty_recording_is_exported(tmp_path: Path) -> None:
    nothing = {name: schema.empty(name) for name in schema.TABLES}
    export = exported(tmp_path, nothing)
    assert list(export.tracks.values()) == [RANK]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"end_ns": START_NS}, "ends before it starts"),
        ({"start_ns": -5}, "a time in start_ns is negative"),
        ({"host_ns": -5}, "a time in host_ns is negative"),
    ],
)
def test_impossible_times_are_refused(
    values: dict[str, int], message: str, tables: Tables, tmp_path: Path
) -> None:
    change(tables, "launches", {3: values})
    trace = Trace.open(write_tables(tmp_path / "trace", {0: tables}))
    (tmp_path / "out").write_text("kept")
    with pytest.raises(TraceError, match=message):
        export_trace(trace, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "trace"]


def test_a_block_in_no_allocation_is_refused(tables: Tables, tmp_path: Path) -> None:
    change(tables, "blocks", {0: {"allocation_id": 99}})
    with pytest.raises(TraceError, match="a block is in no allocation"):
        exported(tmp_path, tables)


def intervals(min_length: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    lengths = st.integers(min_length, 9)
    pairs = st.tuples(st.integers(0, 50), lengths).map(lambda p: (p[0], sum(p)))
    return st.lists(pairs).map(sorted)


def lanes_of(spans: list[tuple[int, int]]) -> list[int]:
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    return assign_lanes(starts, ends).tolist()


@given(intervals(min_length=0))
def test_intervals_of_a_lane_do_not_overlap(spans: list[tuple[int, int]]) -> None:
    busy_until: dict[int, int] = {}
    for lane, (start, end) in zip(lanes_of(spans), spans, strict=True):
        assert busy_until.get(lane, 0) <= start
        busy_until[lane] = end


@given(intervals(min_length=1))
def test_lanes_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    at_once = [sum(s <= start < e for s, e in spans) for start, _ in spans]
    assert len(set(lanes_of(spans))) == max(at_once, default=0)


def test_command_writes_once_and_says_what_is_next(tmp_path: Path) -> None:
    trace, output = write_trace(tmp_path / "trace", layers=1), tmp_path / "out.gz"
    arguments = ["export", "--perfetto", trace, "-o", output]
    done = transit(*arguments)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"wrote {output}: 16 slices and 12 instants" in done.stderr
    assert done.stderr.endswith("transit: next: open it in ui.perfetto.dev\n")
    again = transit(*arguments)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    output.write_text("old")
    assert transit(*arguments, "--force").returncode == 0
    assert len(read_export(output).slices) == 16


def test_command_wants_a_format(tmp_path: Path) -> None:
    done = transit("export", tmp_path, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "--perfetto" in done.stderr
