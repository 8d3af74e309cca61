"""``transit diff``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import transit
from trace_factory import write_trace

from transit.compiler import machine
from transit.compiler.compiler import compile_trace
from transit.compiler.diff import diff
from transit.compiler.plan import Plan, dump
from transit.traces.reader import Trace

MIB = 1 << 20


def planned(trace: Path, policy: str = "reuse", mib: int = 130) -> Plan:
    return compile_trace(
        Trace.open(trace),
        gpu_memory_bytes=mib * MIB,
        policy=policy,
        machine=machine.load("h200"),
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace")


def test_a_plan_does_not_differ_from_itself(trace: Path) -> None:
    found = diff(planned(trace), planned(trace))
    assert found["same_trace"]
    assert found["options"] == found["predictions"] == found["allocations"] == []


def test_changes_of_options_are_named(trace: Path) -> None:
    found = diff(planned(trace), planned(trace, "advise", 100))
    assert found["options"] == [
        {"name": "policy", "before": "reuse", "after": "advise"},
        {"name": "gpu_memory_bytes", "before": 130 * MIB, "after": 100 * MIB},
    ]
    summary = {change["name"]: change for change in found["predictions"]}
    assert summary["zero_copy_bytes"]["after"] == 64 * MIB


@pytest.mark.parametrize("policy", ["reuse", "advise", "auto"])
def test_allocations_add_up_to_the_plans_totals(trace: Path, policy: str) -> None:
    """Against a plan that moves nothing, all that is not resident has changed."""
    plan = planned(trace, policy)
    rows = diff(planned(trace, mib=1000), plan)["allocations"]

    def total(name: str) -> int:
        return sum(row["after"][name] for row in rows)

    moved = plan.total_bytes("zero-copy") + plan.total_bytes("windowed")
    assert moved > 0
    assert sum(row["changed_bytes"] for row in rows) == moved
    assert total("zero_copy_bytes") == plan.total_bytes("zero-copy")
    assert total("window_bytes") == plan.total_bytes("windowed")
    sizes = [row["changed_bytes"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    windows = [
        (window, placement.bytes)
        for allocation in plan.ranks[0].allocations
        for placement in allocation.placements
        for window in placement.windows
    ]
    assert total("windows") == len(windows)
    assert total("moved_bytes") == sum(
        size * (window.load + window.write_back) for window, size in windows
    )


def test_what_only_one_plan_has_is_all_changed(trace: Path, tmp_path: Path) -> None:
    larger = planned(write_trace(tmp_path / "larger", layers=5), mib=1000)
    found = diff(planned(trace, mib=1000), larger)
    assert not found["same_trace"]
    rows = found["allocations"]
    assert [row["before"] for row in rows] == [None] * 5
    assert [row["changed_bytes"] for row in rows] == [8 * MIB] * 5
    assert diff(larger, planned(trace, mib=1000))["allocations"][0]["after"] is None


def run(*plans: Plan, tmp_path: Path, options: tuple[str, ...] = ()) -> Any:
    for name, plan in zip("ab", plans, strict=True):
        dump(plan, tmp_path / f"{name}.json")
    return transit("diff", "a.json", "b.json", *options, cwd=tmp_path)


def test_the_command_shows_what_differs(trace: Path, tmp_path: Path) -> None:
    done = run(planned(trace), planned(trace, mib=140), tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "130.00 MiB" in done.stdout
    assert "140.00 MiB" in done.stdout
    assert "not measured" in done.stdout
    assert "different traces" not in done.stderr
    assert "next: transit show b.json" in done.stderr


def test_plans_of_other_traces_are_said_to_be(trace: Path, tmp_path: Path) -> None:
    other = planned(write_trace(tmp_path / "other", layers=5), mib=150)
    done = run(planned(trace), other, tmp_path=tmp_path, options=("--json",))
    assert done.returncode == 0, done.stderr
    assert "warning: the plans are of different traces" in done.stderr
    assert json.loads(done.stdout)["same_trace"] is False


def test_equal_plans_and_unreadable_ones(trace: Path, tmp_path: Path) -> None:
    same = run(planned(trace), planned(trace), tmp_path=tmp_path)
    assert (same.returncode, same.stdout) == (0, "the plans do not differ\n")
    (tmp_path / "bad.json").write_text("{")
    bad = transit("diff", "a.json", "bad.json", cwd=tmp_path)
    assert bad.returncode == 1
    assert "bad.json: not JSON" in bad.stderr
    assert "Traceback" not in bad.stderr
