"""Whatever is wrong: a clear message, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from simulated_job import layers
from trace_factory import write_trace

from transit.traces.reader import Trace

ENDLESS = layers(steps=100_000, check=False)
SIMULATED_GPU = "transit simulated GPU"
Document = dict[str, Any]


def assert_refused(
    done: subprocess.CompletedProcess[str], *words: str, code: int = 1
) -> None:
    """Check for a message of ours with the given words, and no traceback."""
    assert done.returncode == code, done.stderr
    assert "transit: error: " in done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class EndlessRecording:
    """``transit record`` of a job that trains until it is told to stop."""

    def __init__(self, trace: Path, env: Mapping[str, str]) -> None:
        self.trace = trace
        arguments = ["record", "-o", str(trace), "--simulated-gpu", "--", *ENDLESS]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transit", *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts the tests in the background has SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.wait_for_step(3)

    def wait_for_step(self, number: int) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if json.loads(line)["step"] >= number:
                return
        pytest.fail(f"the job ended early: {self.process.communicate()[1]}")

    def job_pid(self) -> int:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0])

    def finish(self) -> tuple[int, str]:
        _, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stderr


@pytest.fixture
def recording(
    tmp_path: Path, simgpu_env: Mapping[str, str]
) -> Iterator[EndlessRecording]:
    endless = EndlessRecording(tmp_path / "trace", simgpu_env)
    yield endless
    if endless.process.poll() is None:  # the test has failed
        os.kill(endless.job_pid(), signal.SIGKILL)
        endless.finish()


def assert_usable(trace: Path, ended: str) -> None:
    opened = Trace.open(trace)
    assert opened.manifest.ended == ended
    launches = opened.table(0, "launches", ["launch_id"])
    assert launches.num_rows > 3 * 10  # three steps of a few layers
    assert opened.manifest.rank(0).kernel_launches_with_access > 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_to_transit_while_recording(
    name: str, recording: EndlessRecording
) -> None:
    number = signal.Signals[name]
    recording.process.send_signal(number)
    code, stderr = recording.finish()
    assert code == 128 + number, stderr
    assert_usable(recording.trace, f"was ended by {name}")
    assert names(recording.trace.parent) == ["trace"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_signal_to_the_job_while_recording(
    name: str, recording: EndlessRecording
) -> None:
    number = signal.Signals[name]
    os.kill(recording.job_pid(), number)
    code, stderr = recording.finish()
    assert code == 128 + number, stderr
    assert_usable(recording.trace, f"was ended by {name}")
    assert names(recording.trace.parent) == ["trace"]


@pytest.fixture(scope="module")
def left_over(
    tmp_path_factory: pytest.TempPathFactory, simgpu_env: Mapping[str, str]
) -> Path:
    """The run folder that stays when transit itself is killed."""
    folder = tmp_path_factory.mktemp("left_over")
    recording = EndlessRecording(folder / "trace", simgpu_env)
    job = recording.job_pid()
    recording.process.kill()
    os.kill(job, signal.SIGKILL)
    recording.finish()
    (run_dir,) = folder.iterdir()
    return run_dir


def test_transit_itself_killed(
    left_over: Path, tmp_path: Path, run_transit: RunTransit
) -> None:
    trace = tmp_path / "trace"
    done = run_transit(["record", "--recover", left_over, "-o", trace])
    assert done.returncode == 0, done.stderr
    assert_usable(trace, "recovered")
    assert left_over.exists()


def spool_file(run_dir: Path, name: str) -> Path:
    (path,) = run_dir.glob(f"spool-*/{name}.spool")
    return path


def patch(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


SPOOL_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "foreign": (lambda d: patch(spool_file(d, "launch"), 0, b"\x7fELF"), "launch"),
    "newer": (lambda d: patch(spool_file(d, "launch"), 8, b"\x63"), "99"),
    "short header": (lambda d: os.truncate(spool_file(d, "launch"), 20), "launch"),
    "record size": (lambda d: patch(spool_file(d, "launch"), 32, b"\x07"), "launch"),
    "no launches": (lambda d: spool_file(d, "launch").unlink(), ""),
    "no job file": (lambda d: (d / "job.json").unlink(), "job.json"),
    "torn job file": (lambda d: os.truncate(d / "job.json", 5), "job.json"),
}


@pytest.mark.parametrize("damage", SPOOL_DAMAGE)
def test_damaged_spool(
    damage: str, left_over: Path, tmp_path: Path, run_transit: RunTransit
) -> None:
    run_dir = shutil.copytree(left_over, tmp_path / "run")
    spoil, word = SPOOL_DAMAGE[damage]
    spoil(run_dir)
    before = names(run_dir)
    done = run_transit(["record", "--recover", run_dir, "-o", tmp_path / "trace"])
    assert_refused(done, word)
    assert names(tmp_path) == ["run"]
    assert names(run_dir) == before


def test_truncated_spool_gives_what_is_whole(
    left_over: Path, tmp_path: Path, run_transit: RunTransit
) -> None:
    run_dir = shutil.copytree(left_over, tmp_path / "run")
    os.truncate(spool_file(run_dir, "launch"), 64 + 50 * 64 + 13)
    done = run_transit(["record", "--recover", run_dir, "-o", tmp_path / "trace"])
    assert done.returncode == 0, done.stderr
    trace = Trace.open(tmp_path / "trace")
    assert trace.table(0, "launches").num_rows == 50
    assert trace.manifest.rank(0).losses.torn > 0
    assert "lost" in done.stderr


def test_no_spool(tmp_path: Path, run_transit: RunTransit) -> None:
    arguments = ["record", "--recover", tmp_path / "none", "-o", tmp_path / "trace"]
    assert_refused(run_transit(arguments), "none")


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
