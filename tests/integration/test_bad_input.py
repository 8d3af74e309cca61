"""Whatever is wrong: a clear message, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from outcomes import assert_refused, assert_usable, names
from simulated_job import layers
from trace_factory import write_trace

from transit.traces.reader import Trace

SIMULATED_GPU = "transit simulated GPU"
Document = dict[str, Any]


def edit(path: Path, change: Callable[[Document], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


LAUNCHES = Path("rank=0", "launches.parquet")
TRACE_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda t: shutil.rmtree(t), "no trace"),
    "no manifest": (lambda t: (t / "manifest.json").unlink(), "manifest.json"),
    "torn manifest": (lambda t: os.truncate(t / "manifest.json", 40), "manifest.json"),
    "newer": (
        lambda t: edit(t / "manifest.json", lambda m: m.update(version=99)),
        "99",
    ),
    "foreign": (
        lambda t: edit(t / "manifest.json", lambda m: m.update(format="nsys")),
        "nsys",
    ),
    "missing table": (lambda t: (t / LAUNCHES).unlink(), "launches.parquet"),
    "torn table": (lambda t: os.truncate(t / LAUNCHES, 100), "launches.parquet"),
    "foreign table": (lambda t: (t / LAUNCHES).write_text("a,b"), "launches.parquet"),
    "two recordings mixed": (
        lambda t: edit(
            t / "manifest.json",
            lambda m: m["ranks"][0]["counts"].update(launches=7),
        ),
        "7",
    ),
}


@pytest.mark.parametrize("damage", TRACE_DAMAGE)
@pytest.mark.parametrize("command", ["compile", "show"])
def test_damaged_trace(
    damage: str, command: str, tmp_path: Path, run_transit: RunTransit
) -> None:
    trace = write_trace(tmp_path / "trace")
    spoil, word = TRACE_DAMAGE[damage]
    spoil(trace)
    options = ["--gpu-memory", "80%", "-o", tmp_path / "plan.json"]
    done = run_transit([command, trace, *(options if command == "compile" else [])])
    if damage == "missing" and command == "show":
        word = "cannot be read"  # it may as well have been a plan
    assert_refused(done, word)
    assert not (tmp_path / "plan.json").exists()


@pytest.fixture
def plan(tmp_path: Path, run_transit: RunTransit) -> Path:
    """A plan for a job that is not the example, as if made on the simulated GPU."""
    path = tmp_path / "plan.json"
    trace = write_trace(tmp_path / "trace")
    done = run_transit(["compile", trace, "--gpu-memory", "80%", "-o", path])
    assert done.returncode == 0, done.stderr
    edit(path, lambda p: p["trace"].update(gpu_name=SIMULATED_GPU))
    return path


def first_placement(plan: Document) -> Document:
    placement: Document = plan["ranks"][0]["allocations"][0]["placements"][0]
    return placement


PLAN_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda p: p.unlink(), "plan.json"),
    "truncated": (lambda p: os.truncate(p, 300), "plan.json"),
    "foreign": (lambda p: p.write_bytes(b"\x89PNG\xff"), "plan.json"),
    "newer": (lambda p: edit(p, lambda d: d.update(version=99)), "99"),
    "wrong type": (
        lambda p: edit(p, lambda d: d.update(gpu_memory_bytes="much")),
        "gpu_memory_bytes",
    ),
    "hostile size": (
        lambda p: edit(p, lambda d: first_placement(d).update(bytes=1 << 62)),
        "bytes",
    ),
    "unknown placement": (
        lambda p: edit(p, lambda d: first_placement(d).update(placement="attic")),
        "placement",
    ),
    "contradictory": (
        lambda p: edit(p, lambda d: d["summary"].update(zero_copy_bytes=0)),
        "zero-copy",
    ),
}


@pytest.mark.parametrize("damage", PLAN_DAMAGE)
def test_damaged_plan(
    damage: str, plan: Path, tmp_path: Path, run_transit: RunTransit
) -> None:
    spoil, word = PLAN_DAMAGE[damage]
    spoil(plan)
    started = tmp_path / "started"
    arguments = ["replay", "--plan", plan, "--simulated-gpu", "--", "touch", started]
    assert_refused(run_transit(arguments), word)
    assert not started.exists()


def test_plan_for_another_gpu(
    plan: Path, tmp_path: Path, run_transit: RunTransit
) -> None:
    edit(plan, lambda p: p["trace"].update(gpu_name="NVIDIA Abacus"))
    started = tmp_path / "started"
    arguments = ["replay", "--plan", plan, "--simulated-gpu", "--", "touch", started]
    assert_refused(run_transit(arguments), "NVIDIA Abacus", SIMULATED_GPU)
    assert not started.exists()
    done = run_transit([arguments[0], "--any-gpu", *arguments[1:]])
    assert done.returncode == 0, done.stderr
    assert started.exists()


def test_plan_for_another_job(plan: Path, run_transit: RunTransit) -> None:
    arguments = ["replay", "--plan", plan, "--simulated-gpu"]
    done = run_transit([*arguments, "--", *layers(steps=2)])
    assert done.returncode == 0, done.stderr
    assert "transit: warning: " in done.stderr
    assert "planned" in done.stderr
    strict = run_transit([*arguments, "--strict", "--", *layers(steps=2)])
    assert strict.returncode == 1


def test_replayed_job_without_cuda(plan: Path, run_transit: RunTransit) -> None:
    arguments = ["replay", "--plan", plan, "--simulated-gpu"]
    done = run_transit([*arguments, "--", "true"])
    assert done.returncode == 0
    assert "warning: the plan did nothing" in done.stderr
    assert run_transit([*arguments, "--strict", "--", "true"]).returncode == 1


def test_status_file_is_not_overwritten(plan: Path, run_transit: RunTransit) -> None:
    status = plan.with_name("status.json")
    status.write_text("mine")
    arguments = ["replay", "--plan", plan, "--simulated-gpu", "--status", status]
    assert_refused(run_transit([*arguments, "--", "true"]), "--force")
    assert status.read_text() == "mine"


def test_recorded_job_without_cuda(tmp_path: Path, run_transit: RunTransit) -> None:
    arguments = ["record", "-o", tmp_path / "trace", "--simulated-gpu", "--"]
    assert_refused(run_transit([*arguments, "true"]), "CUDA")
    assert_refused(run_transit([*arguments, "sh", "-c", "exit 3"]), "CUDA", code=3)
    assert names(tmp_path) == []


def test_job_that_fails_by_itself(
    tmp_path: Path, plan: Path, run_transit: RunTransit
) -> None:
    job = ["sh", "-c", '"$@"; exit 3', "sh", *layers(steps=4)]
    trace = tmp_path / "new"
    done = run_transit(["record", "-o", trace, "--simulated-gpu", "--", *job])
    assert done.returncode == 3, done.stderr
    assert_usable(trace, "ended with exit code 3")
    done = run_transit(["replay", "--plan", plan, "--simulated-gpu", "--", *job])
    assert done.returncode == 3, done.stderr


def test_cupti_held_by_another_tool(
    tmp_path: Path, run_transit: RunTransit, simgpu_env: Mapping[str, str]
) -> None:
    arguments = ["record", "-o", tmp_path / "trace", "--simulated-gpu", "--"]
    done = run_transit(
        [*arguments, *layers(steps=2)],
        env={**simgpu_env, "TRANSIT_SIM_CUPTI_HELD": "nsys"},
    )
    assert_refused(done, "nsys")
    assert '"step"' not in done.stdout  # stopped before training
    assert names(tmp_path) == []


@pytest.mark.parametrize("command", ["record", "replay"])
@pytest.mark.parametrize(("job", "code"), [("no-such-job", 127), ("./notes", 126)])
def test_command_that_cannot_start(
    command: str,
    job: str,
    code: int,
    plan: Path,
    tmp_path: Path,
    run_transit: RunTransit,
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes").write_text("no program")
    options = ["-o", "trace"] if command == "record" else ["--plan", plan]
    done = run_transit([command, *options, "--simulated-gpu", "--", job], cwd=folder)
    assert_refused(done, job, code=code)
    assert names(folder) == ["notes"]


def test_existing_trace_is_kept(tmp_path: Path, run_transit: RunTransit) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "mine").touch()
    started = tmp_path / "started"
    arguments = ["record", "-o", trace, "--simulated-gpu"]
    job = ["--", "touch", started]
    assert_refused(run_transit([*arguments, *job]), "--force")
    assert_refused(run_transit([*arguments, "--force", *job]), "not a trace")
    assert names(trace) == ["mine"]
    assert not started.exists()


def test_failed_recording_keeps_the_trace_it_was_to_replace(
    tmp_path: Path, run_transit: RunTransit
) -> None:
    trace = write_trace(tmp_path / "trace")
    arguments = ["record", "-o", trace, "--simulated-gpu", "--force", "--", "true"]
    assert_refused(run_transit(arguments), "CUDA")
    assert Trace.open(trace).table(0, "launches").num_rows > 0
    assert names(tmp_path) == ["trace"]
