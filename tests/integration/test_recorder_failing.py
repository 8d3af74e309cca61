"""What libtransit_recorder.so leaves of jobs that end badly, and what it refuses."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from recorder_jobs import PRELOADED, STARTED, STOPPED, Jobs, names


def test_a_killed_job_leaves_a_readable_spool(jobs: Jobs) -> None:
    job = jobs.start("""
gpu = open_gpu()
x = gpu.alloc(64).address
while True:
    for _ in range(100):
        scale(gpu, x, x, 10)
    gpu.synchronize()
    print("round", flush=True)
""")
    assert job.stdout is not None
    job.stdout.readline()
    deadline = time.monotonic() + 60
    while not jobs.spool_folders() or not len(jobs.spool().records["activity"]):
        assert time.monotonic() < deadline, "nothing was flushed"
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGKILL)
    job.communicate()
    spool = jobs.spool()
    launches = spool.records["launch"]

    assert spool.num_torn == spool.num_dropped == 0
    assert len(launches) >= 100
    assert launches["launch_id"].tolist() == list(range(len(launches)))
    assert set(names(spool, "launch")) == {"scale"}
    assert set(spool.records["activity"]["correlation_id"]) <= set(
        launches["correlation_id"]
    )


def test_a_full_disk_drops_and_counts(jobs: Jobs) -> None:
    told = jobs.run("""
import resource  # Python ignores SIGXFSZ: growing a file fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
gpu = open_gpu()
x = gpu.alloc(64).address
count = (1 << 20) // 64 + 1000
for _ in range(count):
    call(cu.cuMemsetD8Async, x, 0, 1, gpu.stream)
gpu.synchronize()
print(json.dumps(count))
""")
    spool = jobs.spool()
    kept = len(spool.records["launch"])

    assert kept == ((1 << 20) - 64) // 64
    assert spool.num_dropped >= told - kept
    assert spool.num_torn == 0


def test_the_child_of_a_fork_writes_nothing(jobs: Jobs) -> None:
    jobs.run("""
gpu = open_gpu()
x = gpu.alloc(64).address
scale(gpu, x, x, 10)
gpu.synchronize()
if os.fork() == 0:
    recorder.transit_recorder_iteration_end(1)
    recorder.transit_recorder_blocks(bytes(32), ctypes.c_uint64(1))
    assert recorder.transit_recorder_state() == 2
    sys.exit(0)
assert os.wait()[1] == 0
scale(gpu, x, x, 10)
gpu.synchronize()
""")
    spool = jobs.spool()

    assert len(spool.records["launch"]) == len(spool.records["activity"]) == 2
    assert len(spool.records["block"]) == 0
    assert spool.records["mark"]["kind"].tolist() == [STARTED, STOPPED]


def test_a_process_without_a_context_leaves_nothing(jobs: Jobs) -> None:
    jobs.run("call(cu.cuInit, 0)")

    assert jobs.spool_folders() == []


def test_cupti_held_by_another_ends_the_job_before_it_trains(jobs: Jobs) -> None:
    job = jobs.start("open_gpu(); print('trained')", TRANSIT_SIM_CUPTI_HELD="Nsight")
    stdout, stderr = job.communicate(timeout=60)
    (folder,) = jobs.spool_folders()
    failure = (folder / "failure.txt").read_text()

    assert (job.returncode, stdout) == (1, "")
    assert "Nsight" in failure
    assert stderr == f"transit: {failure}"


def test_without_the_shim_the_recorder_refuses(jobs: Jobs) -> None:
    job = jobs.start("open_gpu(); print('trained')", LD_PRELOAD=PRELOADED)
    stdout, stderr = job.communicate(timeout=60)
    (folder,) = jobs.spool_folders()

    assert (job.returncode, stdout) == (1, "")
    assert "LD_PRELOAD" in stderr
    assert "LD_PRELOAD" in (folder / "failure.txt").read_text()


def test_a_foreign_cupti_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.start(
        "open_gpu()",
        TRANSIT_LIBCUPTI=str(tmp_path / "libnothing.so"),
    )
    _, stderr = job.communicate(timeout=60)

    assert job.returncode == 1
    assert "TRANSIT_LIBCUPTI" in stderr
