"""Looks at jobs under the shim: what is where now, and what moved in between."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from transit.errors import JobError
from transit.runtime.runs import FILE, Run, running
from transit.runtime.status import ProcessStatus, read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A run, as its processes' status files had it at one time."""

    folder: Path
    run: Run
    is_running: bool
    processes: list[ProcessStatus]
    at_s: float

    def find(self, pid: int) -> ProcessStatus | None:
        """Return the status of a process."""
        return next((p for p in self.processes if p.pid == pid), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """What windows copied between two looks."""

    seconds: float
    h2d_bytes_per_s: float
    d2h_bytes_per_s: float


def look(target: str | None) -> list[Look]:
    """Look at the runs of this user, or at one.

    Parameters
    ----------
    target
        A run's folder, or the id of one of its processes or of the ``transit`` that
        waits for it. Of a process that uses a GPU, only that is shown.
    """
    runs = running()
    if target is None:
        return [_look_at(folder, is_running=True) for folder in sorted(runs)]
    if not target.isdecimal():
        folder = Path(target).absolute()
        if not (folder / FILE).is_file():
            raise JobError(
                f"{target}: not the folder of a run; transit status lists those "
                "that run"
            )
        return [_look_at(folder, is_running=folder in runs)]
    pid = int(target)
    for folder, pids in runs.items():
        found = _look_at(folder, is_running=True)
        if pid in pids | {found.run.pid}:
            own = [p for p in found.processes if p.pid == pid]
            return [replace(found, processes=own or found.processes)]
    raise JobError(
        f"{target}: not a process of a job under transit, as far as this user may "
        "see; transit status lists those that run"
    )


def _look_at(folder: Path, *, is_running: bool) -> Look:
    return Look(
        folder=folder,
        run=Run.read(folder),
        is_running=is_running,
        # Launchers such as torchrun only ask how many GPUs there are.
        processes=[p for p in read_run(folder) if p.is_busy],
        at_s=time.monotonic(),
    )


def link_rate(before: Look, after: Look, pid: int) -> LinkRate | None:
    """Return what a process's windows copied between two looks at its run."""
    old, new = before.find(pid), after.find(pid)
    seconds = after.at_s - before.at_s
    if old is None or new is None or seconds <= 0:
        return None
    return LinkRate(
        seconds=seconds,
        h2d_bytes_per_s=(new.h2d_bytes - old.h2d_bytes) / seconds,
        d2h_bytes_per_s=(new.d2h_bytes - old.d2h_bytes) / seconds,
    )
