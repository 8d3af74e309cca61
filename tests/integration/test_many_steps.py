"""Many steps with windows: memory does not grow, and nothing gets out of step.

More of them: ``TRANSIT_TEST_STEPS=10000 pytest tests/integration/test_many_steps.py``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from shim_job import PIECE, Job
from windowed_plans import (
    LOADS,
    STEPS_JOB,
    WRITES_BACK,
    Window,
    WindowedJob,
    copy,
    scale,
    zero,
)

NUM_STEPS = int(os.environ.get("TRANSIT_TEST_STEPS", "1500"))
STEPS_BETWEEN = 100  # evaluations
A, B, C = ((buffer, 0, 1) for buffer in range(3))
ITERATION = [scale(A, A, 1.0), scale(B, A), scale(C, B)]
WINDOWS = {
    A: [Window(2, 0, 1, 0, LOADS | WRITES_BACK)],
    B: [Window(1, 1, 2, 1, 0)],
}
EVALUATION = [copy(C, A), zero(C)]


def test_many_steps_are_like_few(job: Job, tmp_path: Path) -> None:
    windowed = WindowedJob((1, 1, 1), ITERATION, WINDOWS, 3 * PIECE)
    num_evaluations = NUM_STEPS // STEPS_BETWEEN
    part = [
        {"op": "repeat", "count": STEPS_BETWEEN, "steps": ITERATION},
        *[*EVALUATION, {"op": "synchronize"}, {"op": "print_memory"}],
    ]
    description = {
        "pieces": windowed.pieces,
        "allocated": len(windowed.pieces),
        "steps": [{"op": "repeat", "count": num_evaluations, "steps": part}],
    }
    program = tmp_path / "steps.json"
    program.write_text(json.dumps(description))
    done, [status] = job(str(STEPS_JOB), str(program), plan=windowed.plan())

    memory_kib = [int(kib) for kib in re.findall(r"RssAnon:\s*(\d+) kB", done.stderr)]
    assert len(memory_kib) == num_evaluations
    assert max(memory_kib[num_evaluations // 2 :]) <= memory_kib[4] + 2048

    assert status.message == ""
    assert status.locks == 1
    assert status.launches_unlocked <= 2 * len(ITERATION) + len(windowed.pieces)
    assert status.launches_planned >= (NUM_STEPS - 2) * len(ITERATION)
    assert status.launches_elsewhere == status.launches_skipped == 0
    # And what reads the buffers in the end.
    assert 0 <= status.launches_inserted - num_evaluations * len(EVALUATION) <= 3
    assert status.loads_without_room == status.transfer_failures == 0
    assert status.resident_peak_bytes <= windowed.gpu_memory_bytes
    # One each step; what an evaluation may have changed, more often.
    for moved_bytes in (status.h2d_bytes, status.d2h_bytes):
        num_more = moved_bytes // PIECE - NUM_STEPS
        assert -2 <= num_more <= 5 * num_evaluations
