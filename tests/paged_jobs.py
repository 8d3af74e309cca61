"""Jobs whose memory is paged, compared with the same jobs left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import NamedTuple

from shim_job import PIECE, Job
from windowed_plans import STEPS_JOB, Step, alloc, copy, free, scale, upload, zero

from transit.runtime.status import ProcessStatus, ShimState

CHUNK_PIECES = 16


def paging(budget_pieces: int, *, ahead: bool) -> dict[str, str]:
    """Return the variables of a job whose memory is paged."""
    return {
        "TRANSIT_PAGING_BYTES": str(budget_pieces * PIECE),
        "TRANSIT_PAGING_AHEAD": str(int(ahead)),
    }


def managed(budget_pieces: int, policy: str) -> dict[str, str]:
    """Return the variables of a job whose memory becomes managed memory."""
    return {
        "TRANSIT_PAGING_BYTES": str(budget_pieces * PIECE),
        "TRANSIT_PAGING_POLICY": policy,
    }


class Counters(NamedTuple):
    """What the simulated GPU counted: see runtime/simgpu/memory.h."""

    link_read_bytes: int
    link_written_bytes: int
    fault_count: int
    migrated_in_bytes: int
    migrated_out_bytes: int
    evicted_bytes: int
    most_used_bytes: int


COUNT: Step = {"op": "print_counters"}


def counters_of(stderr: str) -> list[Counters]:
    """Read what `COUNT` printed, each time."""
    return [
        Counters(*map(int, line.split()[1 : 1 + len(Counters._fields)]))
        for line in stderr.splitlines()
        if line.startswith("counters:")
    ]


@dataclass(frozen=True)
class PagedJob:
    """Buffers of some pieces each; the first `num_allocated` are there at once."""

    pieces: Sequence[int]
    num_allocated: int | None = None

    def run(
        self,
        job: Job,
        folder: Path,
        steps: Sequence[Step],
        budget_pieces: int,
        *,
        ahead: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> ProcessStatus:
        """Do the steps paged and not: all that is read must be equal."""
        variables = paging(budget_pieces, ahead=ahead) | dict(env or {})
        _, status = self._compare(job, folder, steps, variables)
        assert status.gpu_peak_bytes <= budget_pieces * PIECE
        return status

    def run_managed(
        self,
        job: Job,
        folder: Path,
        steps: Sequence[Step],
        budget_pieces: int,
        policy: str,
        *,
        env: Mapping[str, str] | None = None,
    ) -> tuple[ProcessStatus, list[Counters]]:
        """Do the steps on managed memory; return what each `COUNT` of them counted."""
        variables = managed(budget_pieces, policy) | dict(env or {})
        paged, status = self._compare(job, folder, [*steps, COUNT], variables)
        assert status.resident_bytes <= status.gpu_peak_bytes
        return status, counters_of(paged.stderr)

    def _compare(
        self,
        job: Job,
        folder: Path,
        steps: Sequence[Step],
        variables: Mapping[str, str],
    ) -> tuple[CompletedProcess[str], ProcessStatus]:
        allocated = len(self.pieces)
        if self.num_allocated is not None:
            allocated = self.num_allocated
        program = folder / "steps.json"
        description = {"pieces": self.pieces, "allocated": allocated, "steps": steps}
        program.write_text(json.dumps(description))
        plain, _ = job(str(STEPS_JOB), str(program))
        paged, [status] = job(str(STEPS_JOB), str(program), env=variables)
        assert json.loads(paged.stdout) == json.loads(plain.stdout)
        assert status.state is ShimState.PAGING
        return paged, status


SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "3000"}
GATHERING_JOB = Path(__file__).with_name("pointer_array_job.py")
A, B, C, D = ((buffer, 0, 2) for buffer in range(4))
UPPER_A = (0, 1, 1)
FOUR = PagedJob((2, 2, 2, 2))
CYCLE = [scale(A, A), scale(B, A), scale(C, B), scale(D, C), scale(A, D)]


def any_steps(random: Random, pieces: Sequence[int], count: int) -> list[Step]:
    """Make up work on two streams: it is ordered where it shares a buffer."""

    def part() -> tuple[int, int, int]:
        buffer = random.randrange(len(pieces))
        first = random.randrange(pieces[buffer])
        return buffer, first, 1

    steps: list[Step] = []
    period = [
        random.choice(
            [
                scale(part(), part(), random.random()),
                scale(part(), part(), random.random()),
                copy(part(), part()),
                upload(part(), random.randrange(99)),
                zero(part()),
                {"op": "download", "source": part()},
            ]
        )
        for _ in range(random.randint(5, 15))
    ]
    while len(steps) < count:
        steps += period
        if random.random() < 0.4:
            buffer = random.randrange(len(pieces))
            steps += [free(buffer), alloc(buffer)]
        if random.random() < 0.3:
            steps += [{"op": "synchronize"}, scale(part(), part(), 0.5, stream=1)]
            steps += [{"op": "synchronize"}]
        if random.random() < 0.2:
            inside = [scale(part(), part()), zero(part())]
            steps += [{"op": "capture", "steps": inside}]
    return steps
