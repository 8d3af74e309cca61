"""What goes wrong in mid-run costs records, never the job, and the trace says so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import RunTransit
from recorder_jobs import Jobs, names
from simulated_job import layers

from transit.traces.manifest import RankInfo
from transit.traces.reader import Trace

STEPS = 5


class Recorded:
    """A trace, and what was said while it was made."""

    def __init__(self, trace: Path, stderr: str) -> None:
        self.info: RankInfo = Trace.open(trace).manifest.rank(0)
        self.failed = {call.what: call for call in self.info.checks.failed_calls}
        self.stderr = stderr


@pytest.fixture
def record(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> Callable[..., Recorded]:
    def run(**variables: str) -> Recorded:
        trace = tmp_path / "trace"
        done = run_transit(
            ["record", "-o", trace, "--simulated-gpu", "--", *layers(steps=STEPS)],
            env={**simgpu_env, **variables},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count('"step"') == STEPS, "the job went on to its end"
        return Recorded(trace, done.stderr)

    return run


def test_decoding_that_stops_half_way(record: Callable[..., Recorded]) -> None:
    recorded = record(TRANSIT_SIM_FAIL="cuptiActivityGetNextRecord:30=21")
    failed = recorded.failed["decoding of a buffer"]

    assert "INVALID_KIND" in failed.reason
    assert failed.count == 1
    assert recorded.info.checks.missing_kernel_activities > 0
    assert recorded.info.kernel_activities > 0
    assert "decoding of a buffer failed once" in recorded.stderr


def test_flushes_that_fail_are_said_once(record: Callable[..., Recorded]) -> None:
    recorded = record(
        TRANSIT_SIM_FAIL="cuptiActivityFlushAll:*=999", TRANSIT_SIM_SLOW_COPY_US="30000"
    )

    assert recorded.failed["flush of activity records"].count > 1
    assert recorded.stderr.count("loses something: flush of activity records") == 1


def test_times_that_cupti_lost_count_in_no_timing(
    record: Callable[..., Recorded],
) -> None:
    recorded = record(TRANSIT_SIM_CUPTI_LOSES="times")

    assert recorded.info.losses.untimed_activities > 0
    assert recorded.info.checks.missing_kernel_activities == 0
    assert "no device memory" in recorded.stderr


def test_all_witnesses_of_a_whole_recording_agree(
    record: Callable[..., Recorded],
) -> None:
    recorded = record(TRANSIT_DIRECTIONS="0")  # the job marks no iterations
    checks = recorded.info.checks

    assert "warning" not in recorded.stderr
    assert checks.hooked_launches == checks.recorded_launches
    assert checks.recorded_launches == recorded.info.launches_seen_by_cupti
    assert checks.missing_kernel_activities == 0
    assert checks.unseen_allocations == 0
    assert checks.failed_calls == []


def test_counters_of_managed_memory_that_are_refused(jobs: Jobs) -> None:
    jobs.run(
        """
gpu = open_gpu()
flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
managed = int(call(cu.cuMemAllocManaged, 1 << 20, flags.value))
call(cu.cuMemsetD8, managed, 1, 1 << 20)
""",
        TRANSIT_SIM_FAIL="cuptiActivityConfigureUnifiedMemoryCounter:1=28",
    )
    spool = jobs.spool()
    (what,) = spool.names(spool.records["error"]["what_name_id"]).to_pylist()

    assert "managed memory" in str(what)
    assert names(spool, "launch") == ["cuMemsetD8_v2"]


def test_recording_that_cannot_start_late_leaves_the_job_alone(jobs: Jobs) -> None:
    job = jobs.start(
        """
recorder.transit_recorder_expect_iterations()
gpu = open_gpu()
x = gpu.alloc(64).address
recorder.transit_recorder_iteration_end(1)
assert recorder.transit_recorder_state() == 2
scale(gpu, x, x, 10)
gpu.synchronize()
print("trained")
""",
        TRANSIT_SKIP="1",
        TRANSIT_SIM_FAIL="cuptiActivityEnable:3=35",
    )
    stdout, stderr = job.communicate(timeout=60)
    (folder,) = jobs.spool_folders()

    assert (job.returncode, stdout) == (0, "trained\n")
    assert "INSUFFICIENT_PRIVILEGES" in (folder / "failure.txt").read_text()
    assert "INSUFFICIENT_PRIVILEGES" in stderr


def test_a_limit_on_file_sizes_does_not_end_the_job(jobs: Jobs) -> None:
    count = jobs.run("""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in a job that is not Python
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
gpu = open_gpu()
x = gpu.alloc(64).address
count = (1 << 20) // 64 + 1000
for _ in range(count):
    call(cu.cuMemsetD8Async, x, 0, 1, gpu.stream)
gpu.synchronize()
assert signal.SIGXFSZ not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
print(json.dumps(count))
""")
    spool = jobs.spool()

    kept = len(spool.records["launch"])
    assert spool.dropped_by_type["launch"] == count - kept
    assert spool.dropped_by_type["mark"] == 0


@pytest.mark.parametrize("what", ["", "/spool-*"])
def test_a_recording_removed_under_the_job(
    what: str, run_transit: RunTransit, tmp_path: Path
) -> None:
    script = f"""
import glob, os, shutil, sys
from transit.examples import layers
wait = layers.Gpu.synchronize
def synchronize(gpu):
    wait(gpu)
    for folder in glob.glob(os.environ["TRANSIT_RUN_DIR"] + {what!r}):
        shutil.rmtree(folder)
layers.Gpu.synchronize = synchronize
sys.argv = ["layers.py", "--steps", "3", "--dim", "64", "--batch", "8"]
layers.main()
"""
    arguments = ["record", "-o", tmp_path / "trace", "--simulated-gpu", "--"]
    done = run_transit([*arguments, sys.executable, "-c", script])

    assert done.stdout.count('"step"') == 3
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "removed" in done.stderr
    assert list(tmp_path.iterdir()) == []
