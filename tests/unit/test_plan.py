"""The plan's format: what is written can be read, and nothing else can."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.compiler.plan import (
    MAX_BYTES,
    PIECE_BYTES,
    VERSION,
    Plan,
    dump,
    json_schema,
    load,
    round_up,
)
from transit.compiler.sequence import Sequence
from transit.errors import PlanError
from transit.runtime.replay import refuse_windows

MIB = 1 << 20


def document() -> dict[str, Any]:
    """A valid plan: one rank, 5 MiB of which 2 MiB are zero-copy."""
    return {
        "format": "transit-plan",
        "version": 6,
        "producer": "transit 0.1.0",
        "policy": "reuse",
        "gpu_memory_bytes": 8 * MIB,
        "machine": {"name": "h200", "fingerprint": "b" * 64},
        "trace": {
            "fingerprint": "a" * 64,
            "command": ["python", "train.py"],
            "gpu_name": "Test GPU",
            "gpu_total_bytes": 80 << 30,
            "compute_capability": "9.0",
        },
        "summary": {
            "job_peak_bytes": 6 * MIB,
            "peak_resident_bytes": 4 * MIB,
            "resident_bytes": 4 * MIB,
            "zero_copy_bytes": 2 * MIB,
            "window_bytes": 0,
            "unmovable_bytes": 0,
            "smallest_budget_bytes": 4 * MIB,
            "estimated_link_bytes_per_iteration": 4 * MIB,
            "estimated_extra_ns_per_iteration": 100_000,
        },
        "ranks": [
            {
                "ranks": [0],
                "iteration": {
                    "launches": 12,
                    "signature": "c" * 64,
                    "found_by": "optimizer step",
                    "confidence": 1.0,
                },
                "allocations": [
                    {
                        "device": 0,
                        "ordinal": 3,
                        "bytes": 5 * MIB,
                        "address_offset": 8 * MIB,
                        "placements": [
                            {
                                "offset": 0,
                                "bytes": 4 * MIB,
                                "placement": "resident",
                                "why": "re-read",
                            },
                            {
                                "offset": 4 * MIB,
                                "bytes": 2 * MIB,
                                "placement": "zero-copy",
                                "why": "not accessed",
                            },
                        ],
                    }
                ],
            }
        ],
    }


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return load(write(tmp_path / "source.json", document()))


def test_round_trip_keeps_everything(plan: Plan, tmp_path: Path) -> None:
    dump(plan, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan
    assert json.loads((tmp_path / "plan.json").read_text()) == document()


def test_bytes_are_deterministic_and_end_with_a_newline(
    plan: Plan, tmp_path: Path
) -> None:
    shuffled = dict(reversed(document().items()))
    dump(plan, tmp_path / "a.json")
    dump(load(write(tmp_path / "s.json", shuffled)), tmp_path / "b.json")
    content = (tmp_path / "a.json").read_bytes()
    assert content == (tmp_path / "b.json").read_bytes()
    assert content.endswith(b"}\n")


def test_json_schema_is_current() -> None:
    committed = files("transit.compiler") / "plan.schema.json"
    assert committed.read_text() == json_schema()


def test_an_existing_plan_is_kept_unless_forced(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("precious")
    with pytest.raises(PlanError, match=r"plan\.json: exists already; pass --force"):
        dump(plan, path)
    assert path.read_text() == "precious"
    dump(plan, path, force=True)
    assert load(path) == plan
    assert [p.name for p in tmp_path.glob(".*")] == []  # no temporary is left


def test_forcing_does_not_replace_what_is_no_file(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="not a regular file"):
        dump(plan, tmp_path, force=True)
    with pytest.raises(PlanError, match="not a regular file"):
        dump(plan, Path("/dev/null"), force=True)


def test_forcing_writes_through_a_link(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    link = tmp_path / "latest.json"
    link.symlink_to("old.json")
    dump(plan, link, force=True)
    assert link.is_symlink()
    assert load(tmp_path / "old.json") == plan


def test_a_folder_that_is_not_there_is_named(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere/plan\.json: cannot be written"):
        dump(plan, tmp_path / "nowhere" / "plan.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"{", "not JSON, or cut short"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b"[]", 'not a transit-plan file (its "format" is not "transit-plan")'),
        (b'{"format": "transit-trace", "version": 1}', "not a transit-plan file"),
        (b'{"format": "transit-plan", "version": 6}', "producer: Field required"),
        (b'{"format": "transit-plan", "version": "1"}', "version"),
        (b'{"format": "transit-plan", "version": true}', "version"),
        (b'{"format": "transit-plan", "version": 0}', "version"),
        (b'{"version": 1, "version": 1}', "one key is given twice"),
        (b'{"format": "transit-plan", "version": ' + b"9" * 9999 + b"}", "not JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlanError) as refused:
        load(path)
    assert str(path) in str(refused.value)
    assert any(part in str(refused.value) for part in message.split("|"))


def test_a_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"gone\.json: cannot be read: No such file"):
        load(tmp_path / "gone.json")
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_a_newer_version_is_refused_naming_both(tmp_path: Path) -> None:
    newer = {"format": "transit-plan", "version": VERSION + 1, "what": "ever"}
    with pytest.raises(PlanError) as refused:
        load(write(tmp_path / "plan.json", newer))
    assert f"version {VERSION + 1} is newer than version {VERSION}" in str(
        refused.value
    )


Edit = Callable[[dict[str, Any]], object]


def allocation(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["ranks"][0]["allocations"][0]
    return found


def window(first: int = 2, last: int = 4, **other: Any) -> dict[str, Any]:
    """A window that is loaded when it is due."""
    plain = {"issue": first, "first": first, "last": last, "written": last}
    return plain | {"load": True, "write_back": True} | other


def windowed(value: dict[str, Any], *windows: dict[str, Any]) -> None:
    """Let what was zero-copy come and go; each launch is a call."""
    submitted(value, *[1] * value["ranks"][0]["iteration"]["launches"])
    placement = allocation(value)["placements"][1]
    placement.update(placement="windowed", windows=list(windows))
    value["summary"].update(zero_copy_bytes=0, window_bytes=2 * MIB)


def submitted(value: dict[str, Any], *num_positions: int) -> None:
    """Let calls submit so many launches each, and name nothing."""
    zeros = np.zeros(len(num_positions), np.uint64)
    sequence = Sequence(
        signature=zeros,
        num_positions=np.array(num_positions, np.int64),
        num_named=zeros.astype(np.int64),
        is_graph=zeros.astype(np.bool_),
        named=zeros[:0],
        kernel=zeros[:0],
        num_words=zeros[:0].astype(np.int64),
        words=zeros[:0].astype(np.int64),
    )
    value["ranks"][0]["iteration"]["sequence"] = sequence.encode()


def prediction() -> dict[str, Any]:
    return {
        "step_ns": 1_100,
        "ideal_step_ns": 900,
        "bound_step_ns": 1_000,
        "gap": 0.1,
        "policies": {"base": None, "reuse": 2_000},
        "h2d_bytes_per_iteration": 4 * MIB,
        "d2h_bytes_per_iteration": 0,
    }


@pytest.mark.parametrize(
    "windows",
    [
        [window()],
        [window(4, 2)],
        [window(4, 3)],
        [window(issue=5)],
        [window(issue=1)],
        [window(0, 11)],
        [window(1, 1), window(2, 2)],
        [window(1, 4), window(6, 0)],
        [window(1, 4, issue=9), window(6, 8, issue=5)],
        [window(1, 4, issue=1), window(6, 11, issue=5, written=7, load=False)],
    ],
)
def test_windows_may_go_around(windows: list[dict[str, Any]], tmp_path: Path) -> None:
    value = document() | {"prediction": prediction()}
    windowed(value, *windows)
    plan = load(write(tmp_path / "source.json", value))
    assert plan.total_bytes("windowed") == 2 * MIB
    dump(plan, tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text()) == value


def test_windows_are_enacted_on_vmm(tmp_path: Path) -> None:
    value = document()
    windowed(value, window(1, 5))
    submitted(value, 1, 4, 7)
    plan = load(write(tmp_path / "plan.json", value))
    refuse_windows(plan, "vmm")
    with pytest.raises(PlanError, match="replay with --backend vmm"):
        refuse_windows(plan, "uvm")


def test_what_version_1_was_is_read(tmp_path: Path, plan: Plan) -> None:
    old = document() | {"version": 1}
    old["ranks"][0]["rank"] = old["ranks"][0].pop("ranks")[0]
    assert load(write(tmp_path / "old.json", old)) == plan


def test_plans_of_version_5_are_of_one_step(tmp_path: Path) -> None:
    value = document() | {"version": 5}
    windowed(value, window(1, 5))
    old = load(write(tmp_path / "old.json", value))
    assert old.ranks[0].iteration.steps == 1
    assert old.total_bytes("windowed") > 0


@pytest.mark.parametrize("version", [2, 3, 4])
def test_older_plans_are_read_if_they_have_no_windows(
    version: int, tmp_path: Path, plan: Plan
) -> None:
    """Their launches, if they have any, do not say all of what they name."""
    value = document() | {"version": version}
    value["ranks"][0]["iteration"]["sequence"] = "of another format"
    if version == 2:
        del value["ranks"][0]["iteration"]["sequence"]
    assert load(write(tmp_path / "old.json", value)) == plan
    windowed(value, window(1, 5))
    if version == 2:
        del value["ranks"][0]["iteration"]["sequence"]
    with pytest.raises(PlanError, match=r"old\.json: .*compile the trace again"):
        load(write(tmp_path / "old.json", value))


@pytest.mark.parametrize(
    "ranks", [None, 3, [], [7], [{}], [{"rank": "0"}], {"rank": 0}]
)
def test_damaged_version_1_is_refused(ranks: object, tmp_path: Path) -> None:
    old = document() | {"version": 1, "ranks": ranks}
    with pytest.raises(PlanError, match="ranks"):
        load(write(tmp_path / "old.json", old))


def test_ranks_that_do_the_same_share_a_plan(tmp_path: Path) -> None:
    value = document()
    value["ranks"][0]["ranks"] = [0, 2, 3]
    value["ranks"].append(value["ranks"][0] | {"ranks": [1]})
    for name in ("resident_bytes", "zero_copy_bytes"):
        value["summary"][name] *= 4
    plan = load(write(tmp_path / "plan.json", value))
    assert plan.rank_numbers == [0, 1, 2, 3]
    assert plan.total_bytes("resident") == 16 * MIB


PLACE = "ranks[0].allocations[0]"
CONTRADICTIONS: dict[str, tuple[Edit, str]] = {
    "unknown key": (lambda v: v.update(extra=1), "extra: Extra inputs"),
    "wrong type": (
        lambda v: v.update(gpu_memory_bytes="8 MiB"),
        "gpu_memory_bytes: Input should be a valid integer",
    ),
    "a float for bytes": (
        lambda v: v.update(gpu_memory_bytes=8.0 * MIB),
        "gpu_memory_bytes: Input should be a valid integer",
    ),
    "no budget": (lambda v: v.update(gpu_memory_bytes=0), "gpu_memory_bytes: Input"),
    "no ranks": (lambda v: v.update(ranks=[]), "ranks: "),
    "a rank twice": (
        lambda v: v["ranks"].append(v["ranks"][0]),
        "ranks must be sorted, each once",
    ),
    "an allocation twice": (
        lambda v: v["ranks"][0]["allocations"].append(allocation(v)),
        "ranks[0]: allocations must be sorted by device and ordinal, each once",
    ),
    "negative ordinal": (
        lambda v: allocation(v).update(ordinal=-1),
        f"{PLACE}.ordinal",
    ),
    "hostile size": (
        lambda v: allocation(v).update(bytes=MAX_BYTES),
        f"{PLACE}.bytes: Input should be less than",
    ),
    "uncovered": (
        lambda v: allocation(v).update(bytes=7 * MIB),
        f"{PLACE}: placements cover {6 * MIB} bytes, the allocation occupies {8 * MIB}",
    ),
    "too much covered": (
        lambda v: allocation(v).update(bytes=3 * MIB),
        f"{PLACE}: placements cover {6 * MIB} bytes, the allocation occupies {4 * MIB}",
    ),
    "overlap": (
        lambda v: allocation(v)["placements"][1].update(offset=2 * MIB),
        f"{PLACE}: placement 1 overlaps the one before it",
    ),
    "gap": (
        lambda v: allocation(v)["placements"][1].update(offset=6 * MIB),
        f"{PLACE}: placement 1 leaves a gap after the one before it",
    ),
    "not whole pieces": (
        lambda v: allocation(v)["placements"][1].update(bytes=MIB),
        f"{PLACE}.placements[1]: offset and bytes must be multiples of 2 MiB",
    ),
    "address within a piece": (
        lambda v: allocation(v).update(address_offset=MIB),
        f"{PLACE}: address_offset must be a multiple of 2 MiB",
    ),
    "unknown placement": (
        lambda v: allocation(v)["placements"][1].update(placement="elsewhere"),
        f"{PLACE}.placements[1].placement: Input should be 'resident', 'zero-copy' or",
    ),
    "windowed without windows": (
        lambda v: allocation(v)["placements"][1].update(placement="windowed"),
        f"{PLACE}.placements[1]: what is windowed has windows",
    ),
    "windows of what is resident": (
        lambda v: allocation(v)["placements"][0].update(windows=[window()]),
        f"{PLACE}.placements[0]: what is windowed has windows",
    ),
    "windows of launches that are not there": (
        lambda v: (windowed(v, window()), v["ranks"][0]["iteration"].pop("sequence")),
        "ranks[0]: there are windows, but not the launches that they are for; compile",
    ),
    "windows overlap": (
        lambda v: windowed(v, window(0, 4), window(4, 6)),
        "windows must be sorted by first, without overlap",
    ),
    "windows overlap around the end": (
        lambda v: windowed(v, window(1, 4), window(6, 1)),
        "windows must be sorted by first, without overlap",
    ),
    "windows out of order": (
        lambda v: windowed(v, window(6, 8), window(2, 4)),
        "windows must be sorted by first, without overlap",
    ),
    "a window around the end comes first": (
        lambda v: windowed(v, window(6, 1), window(8, 9)),
        "windows must be sorted by first, without overlap",
    ),
    "issue in the window before": (
        lambda v: windowed(v, window(0, 4), window(6, 8, issue=4)),
        "issue must be after the window before, up to first",
    ),
    "issue in the only window": (
        lambda v: windowed(v, window(2, 4, issue=3)),
        "issue must be after the window before, up to first",
    ),
    "written outside": (
        lambda v: windowed(v, window(2, 4, written=5)),
        f"{PLACE}.placements[1].windows[0]: written must be from first to last",
    ),
    "a window past the iteration": (
        lambda v: windowed(v, window(2, 12)),
        "ranks[0]: a window of ordinal 3 on device 0 is past the iteration's 12",
    ),
    "home past the iteration": (
        lambda v: windowed(v, window(0, 2, home=12)),
        "is past the iteration's 12 launches",
    ),
    "a window from within a graph": (
        lambda v: (windowed(v, window(5, 6)), submitted(v, 1, 4, 7)),
        "ranks[0]: a window of ordinal 3 on device 0 begins or ends while a graph runs",
    ),
    "a window until within a graph": (
        lambda v: (windowed(v, window(1, 11)), submitted(v, 1, 4, 7)),
        "begins or ends while a graph runs",
    ),
    "launches that do not add up": (
        lambda v: submitted(v, 1, 4, 6),
        "ranks[0].iteration: the sequence is of 11 launches, the iteration of 12",
    ),
    "a damaged sequence": (
        lambda v: v["ranks"][0]["iteration"].update(sequence="eNo="),
        "ranks[0].iteration: the sequence of launches is damaged",
    ),
    "issue past the iteration": (
        lambda v: windowed(v, window(0, 2, issue=12)),
        "is past the iteration's 12 launches",
    ),
    "hostile position": (
        lambda v: windowed(v, window(0, 1 << 31)),
        f"{PLACE}.placements[1].windows[0].last",
    ),
    "no position": (
        lambda v: windowed(v, window(0, 4) | {"issue": None}),
        f"{PLACE}.placements[1].windows[0].issue",
    ),
    "load is no yes or no": (
        lambda v: windowed(v, window() | {"load": 1}),
        f"{PLACE}.placements[1].windows[0].load",
    ),
    "no rank": (lambda v: v["ranks"][0].update(ranks=[]), "ranks[0].ranks"),
    "ranks out of order": (
        lambda v: v["ranks"][0].update(ranks=[1, 0]),
        "ranks must be sorted, each once",
    ),
    "a rank of two plans": (
        lambda v: v["ranks"].append(v["ranks"][0] | {"ranks": [1, 0]}),
        "ranks must be sorted, each once",
    ),
    "more ranks than the summary counts": (
        lambda v: v["ranks"][0].update(ranks=[0, 1]),
        "the summary says 4194304 resident bytes, the placements 8388608",
    ),
    "a prediction without end": (
        lambda v: v.update(prediction=prediction() | {"gap": float("inf")}),
        "prediction.gap",
    ),
    "a prediction before the start": (
        lambda v: v.update(prediction=prediction() | {"step_ns": -1}),
        "prediction.step_ns",
    ),
    "a policy's step as text": (
        lambda v: v.update(prediction=prediction() | {"policies": {"base": "1"}}),
        "prediction.policies.base",
    ),
    "resident sum": (
        lambda v: v["summary"].update(resident_bytes=6 * MIB),
        "the summary says 6291456 resident bytes, the placements 4194304",
    ),
    "zero-copy sum": (
        lambda v: v["summary"].update(zero_copy_bytes=0),
        "the summary says 0 zero-copy bytes, the placements 2097152",
    ),
    "windowed sum": (
        lambda v: v["summary"].update(window_bytes=MIB),
        "the summary says 1048576 windowed bytes, the placements 0",
    ),
    "over budget": (
        lambda v: v.update(gpu_memory_bytes=2 * MIB),
        "peak_resident_bytes is more than gpu_memory_bytes",
    ),
    "peak over job": (
        lambda v: v["summary"].update(job_peak_bytes=2 * MIB),
        "peak_resident_bytes is more than job_peak_bytes",
    ),
    "peak over resident": (
        lambda v: v["summary"].update(peak_resident_bytes=6 * MIB),
        "peak_resident_bytes is more than all resident bytes",
    ),
    "confidence": (
        lambda v: v["ranks"][0]["iteration"].update(confidence=1.5),
        "ranks[0].iteration.confidence",
    ),
    "not a number": (
        lambda v: v["ranks"][0]["iteration"].update(confidence=float("nan")),
        "ranks[0].iteration.confidence",
    ),
    "fingerprint": (
        lambda v: v["trace"].update(fingerprint="abc"),
        "trace.fingerprint",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradictory_plan_is_refused_naming_the_place(
    name: str, tmp_path: Path
) -> None:
    edit, message = CONTRADICTIONS[name]
    value = document()
    edit(value)
    path = write(tmp_path / "plan.json", value)
    with pytest.raises(PlanError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(0, 1500), data=st.binary(max_size=8))
def test_damage_never_ends_in_anything_but_a_plan_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int, data: bytes
) -> None:
    whole = json.dumps(document()).encode()
    path = tmp_path_factory.mktemp("damaged") / "plan.json"
    path.write_bytes(whole[:cut] + data + whole[cut + len(data) :])
    with suppress(PlanError):
        load(path)


@given(st.integers(1, MAX_BYTES))
def test_round_up(num_bytes: int) -> None:
    rounded = round_up(num_bytes)
    assert rounded % PIECE_BYTES == 0
    assert 0 <= rounded - num_bytes < PIECE_BYTES
