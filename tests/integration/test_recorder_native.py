"""What libtransit_recorder.so leaves in a spool, on the simulated GPU."""

from __future__ import annotations

import os
import signal
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorder_jobs import (
    COMPLETE,
    COPY,
    DEVICE_TO_HOST,
    FROM_COPY,
    FROM_PARAMETER,
    FROM_SET,
    GRAPH,
    HOST_TO_DEVICE,
    ITERATION_END,
    KERNEL,
    PRELOADED,
    READ,
    SET,
    STARTED,
    STOPPED,
    UNKNOWN,
    WRITE,
    Jobs,
)

from transit.recorder.spool import Spool


def names(spool: Spool, record_type: str) -> list[Any]:
    ids = spool.records[record_type]["name_id"]
    return [name.as_py() for name in spool.names(ids)]


def accesses_of(spool: Spool, launch_id: int) -> set[tuple[int, ...]]:
    """Return (address, bytes, direction, source) of each access of a launch."""
    accesses = spool.records["access"]
    own = accesses[accesses["launch_id"] == launch_id]
    fields = own[["address", "bytes", "direction", "source"]].tolist()
    assert len(set(fields)) == len(fields), "recorded twice"
    return set(fields)


def test_migrations_of_managed_memory_are_recorded(jobs: Jobs) -> None:
    address, num_bytes = jobs.run("""
gpu = open_gpu()
num_bytes = 4 << 20
flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
managed = int(call(cu.cuMemAllocManaged, num_bytes, flags.value))
host, device = cu.CUmemLocation(), cu.CUmemLocation()
host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
device.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
call(cu.cuMemsetD8, managed, 1, num_bytes)
for place in (host, device):
    call(cu.cuMemPrefetchAsync, managed, num_bytes, place, 0, gpu.stream)
    gpu.synchronize()
print(json.dumps([managed, num_bytes]))
""")
    uvm = jobs.spool().records["uvm"]
    for counter_kind in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        moved = uvm[uvm["counter_kind"] == counter_kind]
        assert moved["value"].sum() == num_bytes
        assert moved["address"].min() == address


def test_launches_and_accesses_are_what_the_job_did(jobs: Jobs) -> None:
    told = jobs.run("""
gpu = open_gpu()
x, y = gpu.alloc(1024).address, gpu.alloc(1024).address
host = np.ones(1024, np.float32)
pinned = int(call(cu.cuMemHostAlloc, 4096, 0))
call(cu.cuMemcpyHtoD, x + 16, host.ctypes.data, 1000)
call(cu.cuMemsetD16, y + 32, 7, 50)
call(cu.cuMemcpyDtoDAsync, y, x, 4096, gpu.stream)
call(cu.cuMemcpyDtoHAsync, pinned, y + 4, 64, gpu.stream)
scale(gpu, y + 8, x, 100)
scale(gpu, y, y, 100)
gpu.synchronize()
print(json.dumps([x, y, pinned, int(gpu.stream)]))
""")
    x, y, pinned, stream = told
    spool = jobs.spool()
    launches = spool.records["launch"]

    assert launches["launch_id"].tolist() == list(range(6))
    assert launches["kind"].tolist() == [COPY, SET, COPY, COPY, KERNEL, KERNEL]
    assert launches["stream"].tolist() == [0, 0, stream, stream, stream, stream]
    assert names(spool, "launch") == [
        "cuMemcpyHtoD_v2",
        "cuMemsetD16_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "scale",
        "scale",
    ]
    assert launches["grid"].tolist() == [[0, 0, 0]] * 4 + [[100, 1, 1]] * 2
    assert launches["block"].tolist() == [[0, 0, 0]] * 4 + [[1, 1, 1]] * 2
    assert np.all(np.diff(launches["host_ns"].astype(np.int64)) > 0)
    assert [accesses_of(spool, i) for i in range(6)] == [
        {(x + 16, 1000, WRITE, FROM_COPY)},
        {(y + 32, 100, WRITE, FROM_SET)},
        {(x, 4096, READ, FROM_COPY), (y, 4096, WRITE, FROM_COPY)},
        {(y + 4, 64, READ, FROM_COPY), (pinned, 64, WRITE, FROM_COPY)},
        {(y + 8, 0, UNKNOWN, FROM_PARAMETER), (x, 0, UNKNOWN, FROM_PARAMETER)},
        {(y, 0, UNKNOWN, FROM_PARAMETER)},
    ]
    kernel = spool.records["access"][spool.records["access"]["launch_id"] == 4]
    assert kernel["param_offset"].tolist() == [0, 8]
    by_id = dict(spool.records["allocation"][["allocation_id", "address"]].tolist())
    assert [by_id[i] for i in kernel["allocation_id"]] == [y, x]


def test_every_launch_has_its_activity(jobs: Jobs) -> None:
    jobs.run("""
gpu = open_gpu()
x = gpu.alloc(1 << 18).address
call(cu.cuMemsetD32Async, x, 0, 1 << 18, gpu.stream)
for _ in range(50):
    scale(gpu, x, x, 10)
gpu.synchronize()
""")
    spool = jobs.spool()
    launches, activities = spool.records["launch"], spool.records["activity"]

    assert sorted(launches["correlation_id"]) == sorted(activities["correlation_id"])
    assert np.bincount(activities["kind"]).tolist() == [0, 50, 0, 1]
    assert np.all(activities["end_ns"] > activities["start_ns"])
    (set_bytes,) = activities["bytes"][activities["kind"] == SET]
    assert set_bytes == 1 << 20
    assert set(names(spool, "activity")) == {"scale", "<unknown>"}


def test_argument_buffers_are_scanned(jobs: Jobs) -> None:
    x, y = jobs.run("""
gpu = open_gpu()
x, y = gpu.alloc(64).address, gpu.alloc(64).address
block = ctypes.create_string_buffer(
    y.to_bytes(8, "little") + x.to_bytes(8, "little")
    + np.float32(2).tobytes() + bytes(4) + (64).to_bytes(8, "little"))
size = ctypes.c_size_t(32)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
function = call(cu.cuModuleGetFunction, gpu._module, b"scale")
call(cu.cuLaunchKernel, function, 1, 1, 1, 64, 1, 1, 0, gpu.stream, 0,
     ctypes.addressof(extra))
gpu.synchronize()
print(json.dumps([x, y]))
""")
    spool = jobs.spool()

    assert accesses_of(spool, 0) == {
        (y, 0, UNKNOWN, FROM_PARAMETER),
        (x, 0, UNKNOWN, FROM_PARAMETER),
    }
    assert spool.records["access"]["param_offset"].tolist() == [0, 8]


def test_allocations_and_frees_are_in_launch_order(jobs: Jobs) -> None:
    first, second = jobs.run("""
gpu = open_gpu()
first = int(call(cu.cuMemAlloc, 100))
call(cu.cuMemsetD8, first, 0, 100)
second = int(call(cu.cuMemAlloc, 3 << 20))
call(cu.cuMemFree, first)
call(cu.cuMemsetD8, second, 0, 100)
print(json.dumps([first, second]))
""")
    spool = jobs.spool()
    allocations, frees = spool.records["allocation"], spool.records["free"]

    assert allocations[["address", "bytes", "launch_id", "ordinal"]].tolist() == [
        (first, 100, 0, 0),
        (second, 3 << 20, 1, 1),
    ]
    assert frees[["allocation_id", "launch_id"]].tolist() == [
        (allocations["allocation_id"][0], 1)
    ]


def test_a_freed_allocation_is_not_accessed(jobs: Jobs) -> None:
    jobs.run("""
gpu = open_gpu()
x, gone = gpu.alloc(64).address, int(call(cu.cuMemAlloc, 256))
call(cu.cuMemFree, gone)
gpu.launch("fill", (1, 1), (64, 1), (x, ctypes.c_void_p), (0.0, ctypes.c_float),
           (0, ctypes.c_size_t))
gpu.launch("fill", (1, 1), (64, 1), (gone, ctypes.c_void_p), (0.0, ctypes.c_float),
           (0, ctypes.c_size_t))
gpu.synchronize()
""")
    spool = jobs.spool()

    assert len(spool.records["launch"]) == 2
    assert spool.records["access"]["launch_id"].tolist() == [0]


def test_skipped_iterations_are_not_recorded(jobs: Jobs) -> None:
    states = jobs.run(
        """
recorder.transit_recorder_expect_iterations()
gpu = open_gpu()
x = gpu.alloc(64).address
states = []
for step in range(1, 8):
    for _ in range(step):
        scale(gpu, x, x, 10)
    recorder.transit_recorder_iteration_end(step)
    states.append(recorder.transit_recorder_state())
y = gpu.alloc(64)
print(json.dumps(states))
""",
        TRANSIT_SKIP="2",
        TRANSIT_ITERATIONS="3",
    )
    spool = jobs.spool()

    assert states == [0, 1, 1, 1, 2, 2, 2]
    assert spool.records["mark"][["kind", "launch_id", "value"]].tolist() == [
        (STARTED, 0, 2),
        (ITERATION_END, 3, 3),
        (ITERATION_END, 7, 4),
        (ITERATION_END, 12, 5),
        (STOPPED, 12, 5),
    ]
    correlation_ids = spool.records["launch"]["correlation_id"].tolist()
    assert len(correlation_ids) == 12
    # There may be more: kernels that were in flight when the recording began.
    assert set(correlation_ids) <= set(spool.records["activity"]["correlation_id"])
    assert len(spool.records["allocation"]) == 1, "the recording was over"


def test_optimizer_steps_become_marks(jobs: Jobs) -> None:
    pytest.importorskip("torch")
    hook = str(files("transit.recorder").joinpath("hook"))
    version = jobs.run(
        """
import torch
gpu = open_gpu()
x = gpu.alloc(64).address
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(6):
    scale(gpu, x, x, 10)
    optimizer.step()
print(json.dumps(torch.__version__))
""",
        PYTHONPATH=f"{hook}:{jobs.python_path}",
        TRANSIT_SKIP="2",
        TRANSIT_ITERATIONS="3",
    )

    spool = jobs.spool()
    (framework,) = spool.records["framework"]
    told = spool.names(np.array([framework["name_id"], framework["version_id"]]))
    assert told.to_pylist() == ["torch", version]
    assert spool.records["mark"][["kind", "launch_id", "value"]].tolist() == [
        (STARTED, 0, 2),
        (ITERATION_END, 1, 3),
        (ITERATION_END, 2, 4),
        (ITERATION_END, 3, 5),
        (STOPPED, 3, 5),
        (COMPLETE, 3, 0),
    ]


def test_captured_launches_are_not_launches(jobs: Jobs) -> None:
    jobs.run("""
gpu = open_gpu()
x = gpu.alloc(64).address
mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
call(cu.cuStreamBeginCapture, gpu.stream, mode)
scale(gpu, x, x, 10)
scale(gpu, x, x, 10)
graph = call(cu.cuStreamEndCapture, gpu.stream)
executable = call(cu.cuGraphInstantiate, graph, 0)
call(cu.cuGraphLaunch, executable, gpu.stream)
gpu.synchronize()
scale(gpu, x, x, 10)
gpu.synchronize()
""")
    spool = jobs.spool()
    launches, activities = spool.records["launch"], spool.records["activity"]

    assert launches["kind"].tolist() == [GRAPH, KERNEL]
    of_graph = activities["correlation_id"] == launches["correlation_id"][0]
    assert activities["kind"][of_graph].tolist() == [KERNEL, KERNEL]


def test_blocks_come_from_the_allocators_history(jobs: Jobs) -> None:
    hook = str(files("transit.recorder").joinpath("hook"))
    told = jobs.run(
        f"""
sys.path.insert(0, {hook!r})
from types import SimpleNamespace as Record
import transit_torch_hook
gpu = open_gpu()
library = transit_torch_hook.load_recorder(os.environ["CUDA_INJECTION64_PATH"])
now_us = library.transit_recorder_timestamp_ns() // 1000 + 1
settings, snapshots = [], [
    dict(segments=[dict(device=0, blocks=[
        dict(address=1000, size=64, state="active_allocated"),
        dict(address=1064, size=64, state="inactive")])], device_traces=[[]]),
    dict(segments=[], device_traces=[[
        dict(action="alloc", addr=5, size=512, time_us=now_us - 60_000_000),
        dict(action="alloc", addr=2000, size=512, time_us=now_us + 1_000_000),
        dict(action="free_requested", addr=1000, size=64, time_us=now_us + 2_000_000),
        dict(action="free_completed", addr=1000, size=64, time_us=now_us + 3_000_000),
        dict(action="segment_alloc", addr=7, size=9, time_us=now_us + 3_000_000)]])]
memory = Record(_record_memory_history=lambda **kw: settings.append(kw["enabled"]),
                _snapshot=lambda: snapshots.pop(0))
torch = Record(_C=Record(_cuda_isHistoryEnabled=lambda: False), cuda=Record(
    memory=memory, is_initialized=lambda: True,
    is_current_stream_capturing=lambda: False))
hook = transit_torch_hook.TorchHook(torch, library)
class Optimizer: pass
optimizer = Optimizer()
for _ in range(2):
    hook.on_step(optimizer, (), {{}})
    x = gpu.alloc(64)
print(json.dumps(dict(now_us=now_us, settings=settings)))
""",
        TRANSIT_ITERATIONS="2",
    )
    us = 1000 * told["now_us"]
    blocks = jobs.spool().records["block"]

    assert told["settings"] == ["all", None]
    assert blocks[["action", "address", "bytes", "device"]].tolist() == [
        (3, 1000, 64, 0),
        (1, 2000, 512, 0),
        (2, 1000, 64, 0),
    ]
    assert blocks["host_ns"][1:].tolist() == [us + 10**9, us + 3 * 10**9]


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


def test_the_process_and_the_device_are_described(jobs: Jobs) -> None:
    jobs.run("open_gpu()", RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")
    spool = jobs.spool()
    (process,), (device,) = spool.records["process"], spool.records["device"]

    assert [process[k] for k in ("rank", "local_rank", "world_size")] == [3, 1, 8]
    assert process["driver_version"] == 13000
    assert abs(int(process["clock_cupti_ns"]) - int(process["clock_realtime_ns"])) < 1e9
    assert (device["device"], device["compute_capability"]) == (0, 90)
    assert names(spool, "device") == ["transit simulated GPU"]


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
