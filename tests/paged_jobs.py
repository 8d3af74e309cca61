"""Jobs whose memory is paged, compared with the same jobs left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shim_job import PIECE, Job
from windowed_plans import STEPS_JOB, Step

from transit.runtime.status import ProcessStatus, ShimState

CHUNK_PIECES = 16


def paging(budget_pieces: int, *, ahead: bool) -> dict[str, str]:
    """Return the variables of a job whose memory is paged."""
    return {
        "TRANSIT_PAGING_BYTES": str(budget_pieces * PIECE),
        "TRANSIT_PAGING_AHEAD": str(int(ahead)),
    }


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
        allocated = len(self.pieces)
        if self.num_allocated is not None:
            allocated = self.num_allocated
        program = folder / "steps.json"
        description = {"pieces": self.pieces, "allocated": allocated, "steps": steps}
        program.write_text(json.dumps(description))
        plain, _ = job(str(STEPS_JOB), str(program))
        variables = paging(budget_pieces, ahead=ahead) | dict(env or {})
        paged, [status] = job(str(STEPS_JOB), str(program), env=variables)
        assert json.loads(paged.stdout) == json.loads(plain.stdout)
        assert status.state is ShimState.PAGING
        assert status.gpu_peak_bytes <= budget_pieces * PIECE
        return status
