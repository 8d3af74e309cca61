"""The plan's format: what is written can be read, and nothing else can."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

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
from transit.errors import PlanError

MIB = 1 << 20


def document() -> dict[str, Any]:
    """A valid plan: one rank, 5 MiB of which 2 MiB are zero-copy."""
    return {
        "format": "transit-plan",
        "version": 1,
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
                "rank": 0,
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
        (b'{"format": "transit-plan", "version": 1}', "producer: Field required"),
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
        lambda v: allocation(v)["placements"][1].update(placement="windowed"),
        f"{PLACE}.placements[1].placement: Input should be 'resident' or 'zero-copy'",
    ),
    "resident sum": (
        lambda v: v["summary"].update(resident_bytes=6 * MIB),
        "the summary says 6291456 resident bytes, the placements 4194304",
    ),
    "zero-copy sum": (
        lambda v: v["summary"].update(zero_copy_bytes=0),
        "the summary says 0 zero-copy bytes, the placements 2097152",
    ),
    "windows": (
        lambda v: v["summary"].update(window_bytes=MIB),
        "summary.window_bytes",
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
