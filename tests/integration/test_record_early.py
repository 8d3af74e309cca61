"""A trace is there as soon as its recording is complete, on the simulated GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from transit.traces.reader import Trace

RunTransit = Callable[..., subprocess.CompletedProcess[str]]

# Marks its iterations as the torch hook does; two steps are skipped, three recorded for
# their times and one for directions.
JOB = """
import ctypes, os, sys, time
from pathlib import Path
from transit.examples import layers

recorder = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
recorder.transit_recorder_expect_iterations()
gpu = layers.Gpu(Path(layers.__file__).with_name("kernels.ptx").read_bytes())
memory = gpu.alloc(1024).address

def step(number):
    gpu.launch("fill", (1024, 1), (1, 1), (memory, ctypes.c_void_p),
               (1.0, ctypes.c_float), (1024, ctypes.c_size_t))
    gpu.synchronize()
    recorder.transit_recorder_iteration_end(number)

for number in range(1, 7):
    step(number)
assert recorder.transit_recorder_state() == 2
recorder.transit_recorder_complete()
print("recorded", flush=True)
"""
RECORDED = 4
GOES_ON = """
deadline = time.monotonic() + 60
while not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    time.sleep(0.05)
print("trace is there:", Path(sys.argv[1]).exists(), flush=True)
step(7)
sys.exit(5)
"""
WAITS = """
time.sleep(60)
print("not ended")
"""


def record(
    run_transit: RunTransit, trace: Path, rest: str, *options: str
) -> subprocess.CompletedProcess[str]:
    return run_transit(
        [
            *("record", "--simulated-gpu", "-o", trace),
            *("--skip", "2", "--iterations", "3", *options, "--"),
            *(sys.executable, "-c", JOB + rest, trace),
        ]
    )


def test_the_trace_is_written_while_the_job_goes_on(
    run_transit: RunTransit, tmp_path: Path
) -> None:
    done = record(run_transit, tmp_path / "trace", GOES_ON)
    assert done.stdout.splitlines() == ["recorded", "trace is there: True"]
    assert done.returncode == 5, done.stderr
    trace = Trace.open(tmp_path / "trace")
    assert trace.manifest.ended == "went on after the recording"
    assert trace.table(0, "launches").num_rows == RECORDED
    assert trace.table(0, "iterations").num_rows == RECORDED
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_the_job_is_ended_after_the_recording(
    run_transit: RunTransit, tmp_path: Path
) -> None:
    done = record(run_transit, tmp_path / "trace", WAITS, "--exit-after")
    assert done.stdout.splitlines() == ["recorded"]
    assert done.returncode == 0, done.stderr
    trace = Trace.open(tmp_path / "trace")
    assert trace.manifest.ended == "was ended after the recording"
    assert trace.table(0, "launches").num_rows == RECORDED


def test_a_job_that_fails_before_keeps_its_exit_code(
    run_transit: RunTransit, tmp_path: Path
) -> None:
    failing = "step(1); step(2); step(3); sys.exit(7)"
    rest = JOB.partition("for number")[0] + failing
    done = run_transit(
        [
            *("record", "--simulated-gpu", "-o", tmp_path / "trace", "--skip", "2"),
            *("--iterations", "3", "--exit-after", "--"),
            *(sys.executable, "-c", rest),
        ]
    )
    assert done.returncode == 7, done.stderr
    assert Trace.open(tmp_path / "trace").table(0, "launches").num_rows == 1
