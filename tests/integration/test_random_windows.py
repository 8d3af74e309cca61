"""Any windows, and jobs that do not keep to their plan: the right numbers all the same.

More of them: ``TRANSIT_TEST_JOBS=500 pytest tests/integration/test_random_windows.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from random_windows import random_job, random_steps
from shim_job import Job

NUM_JOBS = int(os.environ.get("TRANSIT_TEST_JOBS", "10"))
FIRST_SEED = int(os.environ.get("TRANSIT_TEST_SEED", "0"))
NUM_LAPS = 25


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_JOBS))
def test_any_job_reads_what_it_would_have(job: Job, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    windowed = random_job(random)
    steps = random_steps(windowed, random, NUM_LAPS)
    delay = random.choice(["0", "0", "0", "400"])
    status = windowed.run(job, tmp_path, steps, {"TRANSIT_SIM_SLOW_COPY_US": delay})
    assert status.message == ""
    assert status.transfer_failures == status.placement_failures == 0
    assert status.loads_without_room == 0
    assert status.locks > 0
    used = status.resident_peak_bytes + status.passed_peak_bytes
    assert used <= windowed.gpu_memory_bytes
