from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.errors import TraceError
from transit.traces.check import refuse_contradictions
from transit.traces.imports import json_stream, kineto
from transit.traces.imports.json_stream import JsonStream
from transit.traces.imports.write import Summary, import_profile
from transit.traces.reader import Trace

DATA = Path(__file__).parents[1] / "data" / "kineto"
GPU = {"id": 0, "name": "A100", "totalGlobalMem": 1, "numSms": 108}
GPU |= {"computeMajor": 8, "computeMinor": 0}
Events = list[dict[str, Any]]


def imported(file: Path, out: Path) -> tuple[Trace, Summary]:
    summary = import_profile(kineto.read, file, out)
    trace = Trace.open(out)
    for rank in trace.ranks:
        refuse_contradictions(trace, rank)
    return trace, summary


def written(folder: Path, events: Any, **about: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events} | about))
    return path


def kernel(ts: float, correlation: int, **args: Any) -> dict[str, Any]:
    shape = {"grid": [2, 3, 4], "block": [128, 1, 1]}
    work = {"device": 0, "stream": 7, "correlation": correlation} | shape | args
    return event("kernel", "add", ts, args=work)


def call(ts: float, correlation: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return event("cuda_runtime", name, ts, args={"correlation": correlation})


def event(category: str, name: str, ts: float, **more: Any) -> dict[str, Any]:
    place = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 2}
    return place | {"ts": ts, "dur": 5} | more


@pytest.mark.parametrize(
    ("name", "rank", "world_size", "device", "steps", "first_start_ns"),
    [
        ("two_gpus_2024", 0, 2, 0, [4, 5, 6], 1711964646000000000 + 4458676422880181),
        ("eight_gpus_2022", 3, 8, 3, [1009, 1010, 1011], 1661203462599325000),
    ],
)
def test_real_traces(
    name: str,
    rank: int,
    world_size: int,
    device: int,
    steps: list[int],
    first_start_ns: int,
    tmp_path: Path,
) -> None:
    trace, summary = imported(DATA / f"{name}.json.gz", tmp_path / "trace")
    info = trace.manifest.rank(rank)
    assert (trace.ranks, info.world_size) == ([rank], world_size)
    assert [gpu.device for gpu in info.devices] == [device]
    assert info.devices[0].compute_capability == "8.0"
    assert info.devices[0].num_multiprocessors == 108
    launches = trace.table(rank, "launches").to_pylist()
    assert len(launches) == 120
    assert {launch["device"] for launch in launches} == {device}
    assert min(launch["start_ns"] for launch in launches) <= first_start_ns
    assert first_start_ns in {launch["start_ns"] for launch in launches}
    iterations = trace.table(rank, "iterations").to_pylist()
    assert [tuple(row.values()) for row in iterations] == [
        (step, 40 * i, 40 * i + 39, "profiler step", "timing")
        for i, step in enumerate(steps)
    ]
    assert summary.notes == []


@pytest.mark.parametrize("name", ["two_gpus_2024", "eight_gpus_2022"])
def test_real_traces_value_by_value(name: str, tmp_path: Path) -> None:
    file = DATA / f"{name}.json.gz"
    trace, _ = imported(file, tmp_path / "trace")
    with gzip.open(file) as stream:
        profile = json.load(stream)
    base_us = profile.get("baseTimeNanoseconds", 0) / 1e3
    by_correlation: dict[int, dict[str, Any]] = {}
    for each in profile["traceEvents"]:
        if correlation := each.get("args", {}).get("correlation"):
            by_correlation.setdefault(correlation, {})[each["cat"]] = each
    launches = trace.table(trace.ranks[0], "launches").to_pylist()
    for launch in launches:
        seen = by_correlation[launch["correlation_id"]]
        host_us = seen.pop("cuda_runtime")["ts"]
        [(category, work)] = seen.items()
        kinds = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
        assert launch["kind"] == kinds[category]
        assert launch["name"] == work["name"]
        assert launch["stream"] == work["args"]["stream"]
        shape = work["args"].get("grid", [0] * 3) + work["args"].get("block", [0] * 3)
        assert [
            launch[f"{what}_{axis}"] for what in ("grid", "block") for axis in "xyz"
        ] == shape
        assert launch["host_ns"] == pytest.approx((base_us + host_us) * 1e3, abs=1000)
        assert launch["end_ns"] - launch["start_ns"] == pytest.approx(
            work["dur"] * 1e3, abs=1
        )
    host = [launch["host_ns"] for launch in launches]
    assert host == sorted(host)


def test_fractions_of_microseconds_since_1970_are_exact(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [kernel(77, 1), call(66, 1)]})
    text = text.replace('"ts": 77', '"ts": 1661203462598738.417')
    file.write_text(text.replace('"ts": 66', '"ts": 1661203462598730.001'))
    trace, _ = imported(file, tmp_path / "trace")
    [launch] = trace.table(0, "launches").to_pylist()
    assert launch["host_ns"] == 1661203462598730001
    assert (launch["start_ns"], launch["end_ns"]) == (
        1661203462598738417,
        1661203462598743417,
    )


def test_graph_launch_is_one_launch(tmp_path: Path) -> None:
    events = [
        call(1, 5, "cudaGraphLaunch"),
        kernel(10, 5),
        kernel(20, 5),
        call(2, 6),
        kernel(30, 6),
    ]
    trace, _ = imported(written(tmp_path, events), tmp_path / "trace")
    columns = ["kind", "start_ns", "end_ns"]
    assert trace.table(0, "launches", columns).to_pylist() == [
        {"kind": "graph", "start_ns": 10_000, "end_ns": 25_000},
        {"kind": "kernel", "start_ns": 30_000, "end_ns": 35_000},
    ]


def test_copy_between_two_gpus(tmp_path: Path) -> None:
    devices = {"fromDevice": 2, "inDevice": 1, "toDevice": 1}
    args = devices | {"stream": 7, "correlation": 1, "bytes": 8}
    copy = event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 2, args=args)
    trace, _ = imported(written(tmp_path, [call(1, 1), copy]), tmp_path / "trace")
    columns = ["kind", "device"]
    assert trace.table(0, "launches", columns).to_pylist() == [
        {"kind": "copy", "device": 1}
    ]


def test_steps_that_overlap_or_run_backwards_are_left_out(tmp_path: Path) -> None:
    steps = {"ProfilerStep#5": 0, "ProfilerStep#6": 2, "ProfilerStep#4": 10}
    events: Events = [event("user_annotation", name, ts) for name, ts in steps.items()]
    events.append(event("user_annotation", "ProfilerStep#7", 20))
    events.append(event("gpu_user_annotation", "ProfilerStep#9", 20))
    for i, ts in enumerate((1, 3, 6, 11, 21)):
        events += [kernel(ts, i + 1), call(ts, i + 1)]
    trace, summary = imported(written(tmp_path, events), tmp_path / "trace")
    columns = ["iteration", "first_launch_id", "last_launch_id"]
    found = trace.table(0, "iterations", columns).to_pylist()
    assert [tuple(row.values()) for row in found] == [(5, 0, 1), (7, 4, 4)]
    assert any("2 steps overlap" in note for note in summary.notes)


def test_what_the_file_does_not_say_is_said(tmp_path: Path) -> None:
    file = written(tmp_path, [kernel(1, 1, device=3), kernel(2, 2)])
    trace, summary = imported(file, tmp_path / "trace")
    assert "accesses, allocations" in summary.missing
    assert summary.notes == [
        "rank 0: the file does not describe GPU 0, 3",
        "rank 0: 2 launches have no API call in the file; they are in the order in"
        " which the GPU started them",
    ]
    assert trace.manifest.rank(0).devices == []
    assert trace.manifest.ended == "not recorded: imported from Kineto"


def refusal(file: Path) -> str:
    with pytest.raises(TraceError) as caught:
        import_profile(kineto.read, file, file.parent / "trace")
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert str(file) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"  \n", "ends in the middle"),
        (b"hello", '"h" where "{" should be'),
        (b"[]", '"[" where "{" should be'),
        (b"{}", "no Kineto trace: it has no events"),
        (b'{"a": 1', "ends in the middle"),
        (b'{"a": 12', "ends in the middle"),
        (b'{"a" 1}', '"1" where ":" should be'),
        (b'{"a": 1 "b": 2}', '""" where "}" should be'),
        (b"{1: 2}", "a key is no text"),
        (b'{"a": tru}', "not valid JSON"),
        (b'{"traceEvents": {}}', '"{" where "[" should be'),
        (b'{"traceEvents": [1]}', "event 1 is not as Kineto writes it"),
        (b'{"traceEvents": [{"ph": "M"}]}', "no GPU work among 1 events"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1e99999999999999999999}', "not JSON that can be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON that can be read"),
        (b'{"a": ' + b"[" * 100_000, "not JSON that can be read"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\x1f\x8b\x08rest", "truncated"),
        (b"\x1f\x8b\x07" + b"\0" * 50, "damaged gzip data"),
    ],
)
def test_other_content(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert message in refusal(tmp_path / "file")


@pytest.mark.parametrize(
    ("cut", "flip", "message"),
    [(-100, None, "truncated"), (None, -2000, "damaged gzip data")],
)
def test_damaged_gzip(
    cut: int | None, flip: int | None, message: str, tmp_path: Path
) -> None:
    content = bytearray((DATA / "two_gpus_2024.json.gz").read_bytes())[:cut]
    if flip:
        content[flip : flip + 8] = b"\xff" * 8
    (tmp_path / "file").write_bytes(content)
    assert message in refusal(tmp_path / "file")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ts": "1"}, "is no time"),
        ({"ts": None}, "is no time"),
        ({"ts": 1e30}, "an impossible time"),
        ({"dur": -1e30}, "an impossible time"),
        ({"ts": -10}, "impossible time"),
        ({"name": 5}, "impossible name"),
        ({"name": "\ud800"}, "impossible name"),
        ({"args": {}}, "'inDevice'"),
        ({"args": []}, "not as Kineto writes it"),
    ],
)
def test_impossible_events(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = written(tmp_path, [kernel(1, 1) | changed])
    assert message in refusal(file)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"device": -1}, "impossible device"),
        ({"stream": -1}, "impossible stream"),
        ({"correlation": 1 << 32}, "impossible correlation_id"),
        ({"correlation": 1.5}, "correlation_id is no integer"),
        ({"grid": [1, 2]}, "not as Kineto writes it"),
        ({"grid": [1 << 31, 1, 1]}, "impossible grid_x"),
    ],
)
def test_impossible_launches(
    args: dict[str, Any], message: str, tmp_path: Path
) -> None:
    launch = kernel(1, 1)
    launch["args"] |= args
    assert message in refusal(written(tmp_path, [launch]))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"distributedInfo": {"rank": -1}}, "distributedInfo"),
        ({"deviceProperties": [{"id": 0}]}, "deviceProperties"),
        ({"deviceProperties": {}}, "deviceProperties"),
        ({"deviceProperties": [GPU | {"numSms": -1}]}, "deviceProperties"),
        ({"baseTimeNanoseconds": 1.5}, "baseTimeNanoseconds"),
        ({"baseTimeNanoseconds": (1 << 63) - 1}, "impossible time"),
    ],
)
def test_impossible_facts(about: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refusal(written(tmp_path, [kernel(1, 1)], **about))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"Cannot read .*none: No such file"):
        import_profile(kineto.read, tmp_path / "none", tmp_path / "trace")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text().filter(lambda key: key != "e"), JSON),
    st.lists(JSON),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_streams_what_json_reads(
    about: dict[str, Any], elements: list[Any], chunk: int, indent: int | None
) -> None:
    """Also when every value is cut by the end of a chunk."""
    text = json.dumps({"e": elements} | about, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK_CHARS", chunk)
        members = list(JsonStream(io.StringIO(text), "text").members("e"))
    assert members == [("e", element) for element in elements] + list(about.items())


def test_large_values_and_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_CHARS", 10)
    monkeypatch.setattr(json_stream, "MAX_VALUE_CHARS", 50)
    long = f'{{"a": "{"x" * 200}"}}'
    with pytest.raises(TraceError, match="one value is larger"):
        list(JsonStream(io.StringIO(long), "text").members("e"))
    monkeypatch.setattr(json_stream, "MAX_CHARS", 100)
    many = f'{{"e": [{"1, " * 200}1]}}'
    with pytest.raises(TraceError, match="profile fewer steps"):
        list(JsonStream(io.StringIO(many), "text").members("e"))
