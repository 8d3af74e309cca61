"""The audit iteration on the simulated GPU: what no launch names is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest
from conftest import RunTransit

from transit.traces.reader import Trace

JOB = Path(__file__).parents[1] / "pointer_array_job.py"
OPTIONS = ("record", "--simulated-gpu", "--audit", "--iterations", "3", "--skip", "1")
MIB = 1 << 20
SOURCES, POINTERS, GATHERED = {0, 1, 2, 3}, 4, 5  # ordinals


class Recorded(Protocol):
    """Record the job with some variables, and open the trace."""

    def __call__(self, **variables: str) -> Trace: ...


@pytest.fixture
def record(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> Recorded:
    def run(**variables: str) -> Trace:
        out = tmp_path / "trace"
        result = run_transit(
            [*OPTIONS, "-o", out, "--", sys.executable, JOB],
            env=dict(simgpu_env) | variables,
        )
        assert result.returncode == 0, result.stderr
        return Trace.open(out)

    return run


def test_touches_behind_pointers_are_unexplained(record: Recorded) -> None:
    trace = record()
    rows = trace.table(0, "audit").to_pylist()
    unexplained = {r["allocation_id"] for r in rows if not r["is_explained"]}
    explained = {r["allocation_id"] for r in rows if r["is_explained"]}
    assert unexplained == SOURCES
    assert explained == {POINTERS, GATHERED}
    assert {r["access"] for r in rows if not r["is_explained"]} == {"read"}
    audit = trace.manifest.rank(0).audit
    assert audit is not None
    assert audit.outside_bytes == 0
    assert audit.unexplained_regions == len(SOURCES)
    assert 0 < audit.explained_bytes < audit.faulted_bytes


def test_what_a_launch_names_faults_again_in_the_next(record: Recorded) -> None:
    launches: dict[int, set[int]] = {}
    for row in record().table(0, "audit").to_pylist():
        launches.setdefault(row["allocation_id"], set()).add(row["launch_id"])
    assert len(launches[POINTERS]) == len(launches[GATHERED]) == 2
    assert launches[POINTERS] == launches[GATHERED]
    # What none names stays where the first brought it.
    first = {min(launches[GATHERED])}
    assert all(launches[source] == first for source in SOURCES)


def test_memory_beyond_the_limit_is_outside_of_the_audit(record: Recorded) -> None:
    trace = record(TRANSIT_AUDIT_GIB="0.004")  # two pieces
    audit = trace.manifest.rank(0).audit
    assert audit is not None
    assert audit.managed_bytes == 4 * MIB
    assert audit.outside_bytes > 0
    audited = {
        row["allocation_id"]
        for row in trace.table(0, "allocations").to_pylist()
        if row["api"] == "audited"
    }
    touched = set(trace.table(0, "audit")["allocation_id"].to_pylist())
    assert touched <= audited == {0, 1}


@pytest.mark.parametrize("policy", ["reuse", "advise"])
def test_what_is_unexplained_is_never_moved(
    record: Recorded, run_transit: RunTransit, tmp_path: Path, policy: str
) -> None:
    trace = record()
    plan = tmp_path / "plan.json"
    budget = "10MiB"  # 19 MiB are allocated
    result = run_transit(
        ["compile", trace.path, "--policy", policy, "-o", plan, "--gpu-memory", budget]
    )
    assert result.returncode == 0, result.stderr
    (rank,) = json.loads(plan.read_text())["ranks"]
    for allocation in rank["allocations"]:
        for placement in allocation["placements"]:
            if allocation["ordinal"] in SOURCES:
                assert placement["placement"] == "resident"
                assert "no launch names" in placement["why"]
            else:
                assert "no launch names" not in placement["why"]
