"""What a job's other processes leave in a recording: ranks do, helpers do not."""

from __future__ import annotations

import pytest
from recorder_jobs import Jobs

from transit.recorder.spool import Spool

USE_GPU = """
gpu = open_gpu()
x = gpu.alloc(64).address
scale(gpu, x, x, 10)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_without_cuda_leave_nothing(jobs: Jobs, method: str) -> None:
    job = jobs.start(
        USE_GPU
        + f"""
import multiprocessing, operator
with multiprocessing.get_context({method!r}).Pool(2) as pool:
    assert pool.map(operator.neg, [1, 2, 3]) == [-1, -2, -3]
scale(gpu, x, x, 10)
"""
    )
    stdout, stderr = job.communicate(timeout=120)
    assert (job.returncode, stdout, stderr) == (0, "", "")
    assert len(jobs.spool().records["launch"]) == 2


def test_a_subprocess_without_cuda_leaves_nothing(jobs: Jobs) -> None:
    job = jobs.start(
        USE_GPU
        + """
import subprocess
subprocess.run([sys.executable, "-c", "import numpy"], check=True)
subprocess.run("true && echo done", shell=True, check=True)
"""
    )
    assert job.communicate(timeout=120) == ("done\n", "")
    assert len(jobs.spool().records["launch"]) == 1


@pytest.mark.parametrize(
    ("rank", "local_rank", "size"),
    [
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "", "PMI_SIZE"),
    ],
)
def test_processes_of_other_launchers_are_ranks(
    jobs: Jobs, rank: str, local_rank: str, size: str
) -> None:
    started = []
    for number in ("0", "1"):
        variables = {rank: number, size: "2", local_rank or "UNUSED": number}
        started.append(jobs.start(USE_GPU, **variables))
    for job in started:
        assert job.communicate(timeout=120) == ("", "")
    processes = [Spool.open(f).records["process"][0] for f in jobs.spool_folders()]
    assert sorted(int(process["rank"]) for process in processes) == [0, 1]
    assert {int(process["world_size"]) for process in processes} == {2}
