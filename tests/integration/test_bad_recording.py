"""Recordings interrupted or damaged: what is whole is in the trace, else a reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import RunTransit
from outcomes import assert_refused, assert_usable, names
from simulated_job import layers

from transit.traces.reader import Trace

ENDLESS = layers(steps=2_000, check=False)  # minutes


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
