"""The jobs that run under the shim now, and what their run folders say of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from transit.compiler.files import read_model
from transit.errors import JobError
from transit.files import write_text
from transit.runtime.step_time import Expected

FORMAT = "transit-run"
VERSION = 1
FILE = "run.json"
VARIABLE = b"TRANSIT_RUN_DIR="
PROCESSES = Path("/proc")


class Run(BaseModel):
    """What is known of a job before it starts; ``pid`` is of the waiting command."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["transit-run"] = "transit-run"
    version: Literal[1] = 1
    pid: int
    command: tuple[str, ...]
    gpu_memory_bytes: int
    expected: tuple[Expected, ...] = ()

    def write(self, folder: Path) -> None:
        """Write it into the run's folder."""
        write_text(folder / FILE, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read it from the run's folder."""
        return read_model(
            cls, folder / FILE, format=FORMAT, version=VERSION, error=JobError
        )

    def expected_of(self, rank: int) -> Expected | None:
        """Return what the plan leads to expect of a rank, if it does."""
        return next((e for e in self.expected if e.rank == rank), None)


def running() -> dict[Path, set[int]]:
    """Return the folders of the runs that this user may look at, with their processes.

    A job's processes carry the folder's name. Nothing else is kept, so that nothing
    has to be cleaned up, or can be mistaken for a run that goes on.
    """
    found: defaultdict[Path, set[int]] = defaultdict(set)
    for pid, folder in _carriers():
        if (folder / FILE).is_file():
            found[folder].add(pid)
    return dict(found)


def _carriers() -> Iterator[tuple[int, Path]]:
    for environment in PROCESSES.glob("[0-9]*/environ"):
        try:
            variables = environment.read_bytes().split(b"\0")
        except OSError:  # another user's, or it has just ended
            continue
        for variable in variables:
            if variable.startswith(VARIABLE):
                folder = variable.removeprefix(VARIABLE).decode(errors="replace")
                yield int(environment.parent.name), Path(folder)
