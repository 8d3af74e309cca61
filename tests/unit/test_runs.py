from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from status_factory import write_status

from transit.errors import JobError
from transit.runtime.looks import look
from transit.runtime.runs import Run, running
from transit.runtime.step_time import Expected

EXPECTED = Expected(rank=1, step_ns=5, calls=6, copied_bytes=7)


def write_run(folder: Path, pid: int = 4242) -> Path:
    folder.mkdir()
    command = ("python", "train.py")
    run = Run(pid=pid, command=command, gpu_memory_bytes=64, expected=(EXPECTED,))
    run.write(folder)
    return folder


@contextmanager
def process_of(folder: Path) -> Iterator[int]:
    """A process that the shim would be in; it has started when its pid is given."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command,
        env=os.environ | {"TRANSIT_RUN_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    read = Run.read(write_run(tmp_path / "run"))
    assert (read.pid, read.command) == (4242, ("python", "train.py"))
    assert read.expected_of(1) == EXPECTED
    assert read.expected_of(0) is None


def test_only_what_runs_is_found(tmp_path: Path) -> None:
    folder, left = write_run(tmp_path / "run"), write_run(tmp_path / "left")
    recording = tmp_path / "recording"  # not by replay
    recording.mkdir()
    with process_of(folder) as first, process_of(folder) as second:
        with process_of(recording):
            found = running()
        assert found[folder] == {first, second}
        assert left not in found
        assert recording not in found
    assert folder not in running()


def test_a_run_is_found_by_its_processes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", pid=os.getpid())
    with process_of(folder) as pid, process_of(folder) as idle:
        other = pid + 1_000_000
        for number in (pid, other):
            write_status(folder, pid=number, allocations_seen=1)
        write_status(folder, pid=idle)
        for target, shown in {
            str(folder): [pid, other],
            str(os.getpid()): [pid, other],
            str(idle): [pid, other],
            str(pid): [pid],
        }.items():
            (found,) = look(target)
            assert found.folder == folder
            assert found.is_running
            assert [process.pid for process in found.processes] == shown
        with pytest.raises(JobError, match=f"{other}: not a process of a job"):
            look(str(other))


def test_what_was_left_is_shown_by_its_folder(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_status(folder, pid=5, allocations_seen=1)
    (found,) = look(str(folder))
    assert not found.is_running
    assert [process.pid for process in found.processes] == [5]
    with pytest.raises(JobError, match="not the folder of a run"):
        look(str(tmp_path))


def test_a_damaged_run_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "run.json").write_text('{"format": "transit-run", "version": 2}')
    with pytest.raises(JobError, match=r"run\.json: transit-run version 2 is newer"):
        look(str(folder))
