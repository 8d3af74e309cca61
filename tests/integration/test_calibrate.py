"""Calibrating on the simulated GPU: what is done is real, how fast means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import RunTransit
from trace_factory import write_trace

from transit.compiler import machine


@pytest.fixture(scope="module")
def small_gpu(simgpu_env: Mapping[str, str]) -> dict[str, str]:
    """A GPU that is small enough for its measurements to take a second."""
    return {**simgpu_env, "TRANSIT_SIM_GPU_MEMORY": "512MiB"}


def test_a_profile_to_compile_with(
    run_transit: RunTransit, small_gpu: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    done = run_transit(["calibrate", "-o", path, "--json"], env=small_gpu)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    profile = machine.load(str(path))
    assert report["profile"] == profile.model_dump(mode="json")
    assert profile.gpu_name == "transit simulated GPU"
    assert profile.gpu_memory_bytes == 512 << 20
    assert profile.has_zero_copy
    assert profile.backends.keys() == {"vmm", "uvm"}
    assert {"vmm: load", "uvm: page faults, reading", "copy to the GPU"} <= {
        measured["what"] for measured in report["measurements"]
    }
    assert "the simulated GPU has no speed: these rates mean nothing" in done.stderr
    assert f"next: transit compile TRACE --machine {path}" in done.stderr

    trace = write_trace(tmp_path / "trace")
    compiled = run_transit(["compile", trace, "--machine", path, "--json"])
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["gpu_memory_bytes"] == 512 << 20


def test_what_is_there_is_not_measured_again(
    run_transit: RunTransit, small_gpu: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    path.write_text("mine")
    done = run_transit(["-v", "calibrate", "-o", path], env=small_gpu)
    assert done.returncode == 1
    assert "--force" in done.stderr
    assert "measuring" not in done.stderr
    assert path.read_text() == "mine"


def test_without_a_file_there_is_a_table(
    run_transit: RunTransit, small_gpu: dict[str, str]
) -> None:
    done = run_transit(["calibrate"], env=small_gpu)
    assert done.returncode == 0, done.stderr
    assert "kernel to read GPU memory" in done.stdout
    assert "GB/s" in done.stdout
    assert "nothing was written" in done.stderr


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (["--device", "1"], {}, "there is no GPU 1"),
        ([], {"TRANSIT_SIM_GPU_COUNT": "0"}, "no CUDA-capable device"),
        ([], {"TRANSIT_SIM_GPU_MEMORY": "64MiB"}, "calibrate needs 512.00 MiB"),
        (
            [],
            {"TRANSIT_SIM_FAIL": "cuMemHostAlloc:2=2"},
            "cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
        ),
        (
            [],
            {"TRANSIT_SIM_FAIL": "cuMemSetAccess:20=999"},
            "cuMemSetAccess failed: CUDA_ERROR_UNKNOWN",
        ),
        (
            [],
            {"TRANSIT_SIM_FAIL": "cuMemPrefetchAsync_v2:7=1"},
            "cuMemPrefetchAsync failed: CUDA_ERROR_INVALID_VALUE",
        ),
    ],
)
def test_what_fails_is_said_and_nothing_is_written(
    options: list[str],
    variables: dict[str, str],
    message: str,
    run_transit: RunTransit,
    small_gpu: dict[str, str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "machine.json"
    done = run_transit(
        ["calibrate", "-o", path, *options], env={**small_gpu, **variables}
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_driver(
    run_transit: RunTransit, simgpu_env: Mapping[str, str]
) -> None:
    done = run_transit(["calibrate"], env={**simgpu_env, "LD_LIBRARY_PATH": ""})
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert "there is no NVIDIA driver here" in done.stderr
    assert "Traceback" not in done.stderr


def run_script(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LEAVES_NOTHING = """
from contextlib import closing
from transit.runtime.calibration.calibrate import calibrate
from transit.runtime.calibration.gpu import Gpu
calibrate(0, lambda step: None)
with closing(Gpu(0)) as gpu:
    print(gpu.free_bytes() >> 20)
"""


def test_all_memory_goes_back(small_gpu: dict[str, str]) -> None:
    assert run_script(LEAVES_NOTHING, small_gpu) == "512\n"


TOO_MUCH_MANAGED = """
from contextlib import closing
from transit.errors import MachineError
from transit.runtime.calibration.gpu import Gpu
with closing(Gpu(0)) as gpu, gpu.managed(64 << 20):
    try:
        with gpu.managed(64 << 20):
            print("allocated")
    except MachineError as refused:
        print(refused)
    with gpu.managed(62 << 20):
        print("fine")
"""


def test_managed_memory_stays_below_a_quarter_of_what_is_free(
    small_gpu: dict[str, str],
) -> None:
    refused, fine = run_script(TOO_MUCH_MANAGED, small_gpu).splitlines()
    assert refused.startswith("128.00 MiB of managed memory are needed")
    assert fine == "fine"


MOVES_PIECES = """
import ctypes
from contextlib import ExitStack, closing
from transit.runtime.calibration.gpu import Gpu
from transit.runtime.calibration.vmm import _Pieces

PIECE, COUNT = 2 << 20, 8
with closing(Gpu(0)) as gpu, ExitStack() as resources:
    pieces = _Pieces(gpu, PIECE, COUNT, resources)

    def last_word(index):
        end = pieces._base + (index + 1) * PIECE
        return ctypes.c_uint64.from_address(end - 8)

    some, others = range(COUNT), range(COUNT, 2 * COUNT)
    for index in [*some, *others]:
        last_word(index).value = index + 1
    pieces.hold(some)
    for index in some:
        last_word(index).value += 100
    pieces.move(some, others)
    for index in others:
        last_word(index).value += 200
    print([last_word(index).value for index in [*some, *others]])
    pieces.drop(others)
    print([last_word(index).value for index in others])
"""


def test_windows_are_measured_on_moves_that_keep_the_data(
    small_gpu: dict[str, str],
) -> None:
    """What is dropped without a copy is as it was: so pieces were not on the host."""
    both, dropped = run_script(MOVES_PIECES, small_gpu).splitlines()
    assert json.loads(both) == [*range(101, 109), *range(209, 217)]
    assert json.loads(dropped) == list(range(9, 17))
