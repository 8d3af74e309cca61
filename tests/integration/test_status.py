"""``transit status`` while a job runs, and what replay says of its steps afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import TIMEOUT_S, RunTransit
from simulated_job import layers

from transit.compiler.plan import load

Runs = list[dict[str, Any]]
LOOK = ["--json", "--interval", "0.1"]
MANY = 5000  # steps, which take longer than anybody waits
FAST, SLOW = 1, 10**15  # predictions that no step keeps to


@pytest.fixture(scope="module")
def plan(run_transit: RunTransit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    job = layers(steps=6, check=False)
    trace, plan = folder / "trace", folder / "plan.json"
    options = ["--policy", "auto", "--gpu-memory", "60%"]
    for args in (
        ["record", "-o", trace, "--simulated-gpu", "--", *job],
        ["compile", trace, "-o", plan, *options],
    ):
        done = run_transit(args)
        assert done.returncode == 0, done.stderr
    return plan


def predicting(plan: Path, step_ns: int, path: Path) -> Path:
    """Write the plan with another prediction."""
    prediction = {
        "step_ns": step_ns,
        "ideal_step_ns": step_ns,
        "bound_step_ns": None,
        "gap": None,
        "policies": {},
        "h2d_bytes_per_iteration": 0,
        "d2h_bytes_per_iteration": 0,
    }
    value = json.loads(plan.read_text()) | {"prediction": prediction}
    path.write_text(json.dumps(value))
    return path


@contextmanager
def replaying(
    plan: Path, env: Mapping[str, str], status: Path
) -> Iterator[subprocess.Popen[str]]:
    """Replay a job that goes on until it is asked to end."""
    options = ["--plan", plan, "--status", status, "--simulated-gpu"]
    job = layers(steps=MANY, check=False)
    with subprocess.Popen(
        [sys.executable, "-m", "transit", "replay", *map(str, options), "--", *job],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def look(run_transit: RunTransit, target: int) -> Runs:
    done = run_transit(["status", str(target), *LOOK])
    if done.returncode:
        assert "not a process of a job" in done.stderr
        return []
    report = json.loads(done.stdout)
    assert (report["format"], report["version"]) == ("transit-runs", 1)
    return list(report["runs"])


def wait_for(
    run_transit: RunTransit, target: int, is_there: Callable[[Runs], bool]
) -> dict[str, Any]:
    """Look until something has happened in the run; return it."""
    until = time.monotonic() + TIMEOUT_S
    while not is_there(runs := look(run_transit, target)):
        assert time.monotonic() < until, runs
    (run,) = runs
    return run


def is_under_way(runs: Runs) -> bool:
    """Whether laps were measured, and windows moved both ways between two looks."""
    processes = [process for run in runs for process in run["processes"]]
    rates = [process["link_rate"] for process in processes if process["laps"] >= 5]
    return any(
        rate and rate["h2d_bytes_per_s"] and rate["d2h_bytes_per_s"] for rate in rates
    )


def test_a_job_is_watched_until_it_ends(
    plan: Path, run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    status = tmp_path / "status.json"
    fast = predicting(plan, FAST, tmp_path / "plan.json")
    with replaying(fast, simgpu_env, status) as process:
        run = wait_for(run_transit, process.pid, is_under_way)
        (seen,) = run["processes"]
        assert run["pid"] == process.pid
        assert run["command"] == layers(steps=MANY, check=False)
        assert run["is_running"]
        assert run["gpu_memory_bytes"] == load(plan).gpu_memory_bytes
        assert seen["state"] == "replaying"
        assert 0 < seen["resident_bytes"] <= run["gpu_memory_bytes"]
        assert seen["windowed_bytes"] > 0
        assert seen["link_rate"]["h2d_bytes_per_s"] > 0
        assert seen["link_rate"]["d2h_bytes_per_s"] > 0
        assert seen["predicted_step_ns"] == FAST
        assert seen["measured_step_ns"] > FAST
        assert "longer than predicted" in seen["deviation"]
        # Its own process is the same, and all that run are listed.
        (own,) = look(run_transit, seen["pid"])
        assert own["folder"] == run["folder"]
        shown = run_transit(["status", "--interval", "0.1"])
        assert shown.returncode == 0, shown.stderr
        assert f"pid {process.pid}" in shown.stdout
        assert f"rank 0, pid {seen['pid']}: replaying, backend vmm" in shown.stdout
        assert "predicted: 1 ns" in shown.stdout
        process.terminate()
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
        assert process.stderr is not None
        said = process.stderr.read()
    assert f"transit status {process.pid} --watch" in said
    assert "a step: " in said
    assert "transit: warning: a step is longer than predicted" in said
    step = json.loads(status.read_text())["step"]
    assert step["predicted_ns"] == FAST
    assert step["measured_ns"] > FAST
    assert step["deviation"] in said
    assert look(run_transit, process.pid) == []


def test_watching_ends_with_the_job(
    plan: Path, run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    with replaying(plan, simgpu_env, tmp_path / "status.json") as process:
        wait_for(run_transit, process.pid, bool)
        command = ["status", str(process.pid), "--watch", *LOOK]
        with subprocess.Popen(
            [sys.executable, "-m", "transit", *command],
            env=simgpu_env,
            stdout=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            first = json.loads(watching.stdout.readline())
            process.terminate()
            *_, last = map(json.loads, watching.stdout)
            assert watching.wait(TIMEOUT_S) == 0
    assert first["runs"][0]["pid"] == process.pid
    assert last["runs"] == []


@pytest.mark.parametrize(
    ("steps", "words", "is_measured"),
    [
        (8, "warning: a step is shorter than predicted", True),
        (3, "a step: nothing measured: the job was followed around", False),
    ],
)
def test_only_what_was_measured_is_compared(
    steps: int,
    words: str,
    is_measured: bool,
    plan: Path,
    run_transit: RunTransit,
    tmp_path: Path,
) -> None:
    slow = predicting(plan, SLOW, tmp_path / "plan.json")
    status = tmp_path / "status.json"
    options = ["--plan", slow, "--status", status, "--strict", "--simulated-gpu"]
    done = run_transit(["replay", *options, "--", *layers(steps=steps, check=False)])
    # A step that is not as predicted is no fault of the plan's.
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    step = json.loads(status.read_text())["step"]
    assert step["predicted_ns"] == SLOW
    assert (step["measured_ns"] is not None) == is_measured
    assert (step["deviation"] is not None) == is_measured
    assert ("than predicted" in done.stderr) == is_measured
