"""The audit iteration on a real GPU, whose driver reports first touches of pages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from conftest import RunTransit

from transit.traces.reader import Trace

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("room_for_managed_memory")]

POINTER_ARRAY_JOB = Path(__file__).parents[1] / "pointer_array_job.py"
SOURCES, POINTERS, GATHERED = {0, 1, 2, 3}, 4, 5  # ordinals
AUDITED_GIB = "2"  # what the jobs need, and no more: the card may be shared
LEAST_RECALL = 0.99

Audited = Callable[[Sequence[str]], tuple[Trace, str]]


@pytest.fixture
def audited(
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path: Path,
) -> Audited:
    """Audit a job; return its trace and what it printed."""

    def run(arguments: Sequence[str]) -> tuple[Trace, str]:
        out = tmp_path / "trace"
        options = ["record", "--audit", "--iterations", "3", "--skip", "1", "-o", out]
        done = run_transit(
            [*options, "--", sys.executable, *arguments],
            env={**gpu_env, "TRANSIT_AUDIT_GIB": AUDITED_GIB},
        )
        assert done.returncode == 0, done.stderr
        return Trace.open(out), done.stdout

    return run


def test_touches_behind_pointers_are_unexplained(audited: Audited) -> None:
    trace, _ = audited([str(POINTER_ARRAY_JOB)])
    allocations = trace.table(0, "allocations").to_pylist()
    ordinals = {a["allocation_id"]: a["ordinal"] for a in allocations}
    touched: dict[bool, set[int]] = {True: set(), False: set()}
    rows = trace.table(0, "audit").to_pylist()
    for row in rows:
        touched[row["is_explained"]].add(ordinals[row["allocation_id"]])
    assert touched == {False: SOURCES, True: {POINTERS, GATHERED}}
    assert {row["access"] for row in rows if not row["is_explained"]} == {"read"}
    audit = trace.manifest.rank(0).audit
    assert audit is not None
    assert audit.outside_bytes == 0
    assert audit.unexplained_regions == len(SOURCES)


def losses(output: str) -> list[str]:
    steps = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [step["loss_hex"] for step in steps if "step" in step]


def test_what_a_training_step_touches_is_explained(
    audited: Audited, gpu_env: Mapping[str, str]
) -> None:
    pytest.importorskip("torch")
    script = str(files("transit.examples") / "train_gpt.py")
    job = [script, "--preset", "small", "--steps", "8", "--deterministic"]
    plain = subprocess.run(
        [sys.executable, *job], env=gpu_env, capture_output=True, text=True, timeout=120
    )
    assert plain.returncode == 0, plain.stderr

    trace, output = audited(job)
    assert losses(output) == losses(plain.stdout)
    audit = trace.manifest.rank(0).audit
    assert audit is not None
    assert audit.faulted_bytes > 0
    assert audit.explained_bytes >= LEAST_RECALL * audit.faulted_bytes
