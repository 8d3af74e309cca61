"""Directions by checksum, on the simulated GPU: what each launch changed."""

from __future__ import annotations

import numpy as np
import pytest
from hashed_jobs import ON, PRELUDE, checksums_by_launch
from recorder_jobs import KERNEL, Jobs


def test_kernels_of_known_direction(jobs: Jobs) -> None:
    x, y, p, g, m, v = jobs.run(
        PRELUDE
        + """
x, y, p, g, m, v = (gpu.alloc(1024).address for _ in range(6))
def step():
    fill(x, 1.0, 1024)          # writes
    fill(x, 1.0, 1024)          # writes what is there
    fill(x + 1024, 2.0, 10)     # a part, from an interior pointer
    call(cu.cuMemsetD8Async, y, 0, 4096, gpu.stream)  # known without a hash
    scale(gpu, y, x, 1024)      # reads x, writes y
    scale(gpu, x, x, 1)         # in place
    fill(g, 3.0, 1024)
    adam(p, g, m, v, 1024)
iterations(step, step)
print(json.dumps([x, y, p, g, m, v]))
""",
        **ON,
    )
    # Without an allocator's history an access ends where another one begins.
    assert checksums_by_launch(jobs) == [
        {(x, 1024): True},
        {(x, 1024): False},
        {(x + 1024, 3072): True},
        {},
        {(y, 4096): True, (x, 1024): False},
        {(x, 1024): True},
        {(g, 4096): False},  # the iteration before wrote the same
        {(p, 4096): True, (g, 4096): False, (m, 4096): True, (v, 4096): True},
    ]


def test_nothing_of_ours_is_in_the_recording(jobs: Jobs) -> None:
    (x,) = jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
def step():
    for _ in range(10):
        scale(gpu, x, x, 10)
iterations(step, step)
print(json.dumps([x]))
""",
        **ON,
    )
    spool = jobs.spool()
    launches, activities = spool.records["launch"], spool.records["activity"]
    assert len(spool.records["checksum"])
    assert set(launches["kind"]) == {KERNEL}
    assert sorted(activities["correlation_id"]) == sorted(launches["correlation_id"])
    assert spool.records["memory"]["address"].tolist() == [x]
    assert spool.records["allocation"]["address"].tolist() == [x]
    samples = spool.records["sample"]
    assert np.ptp(samples["hooked_launches"]) == len(launches) == 20
    assert not len(spool.records["error"])


def test_an_access_reaches_to_the_end_of_its_furthest_block(jobs: Jobs) -> None:
    x = jobs.run(
        PRELUDE
        + """
x = gpu.alloc(4096).address
push_blocks((x, 512), (x, 8192), (x + 8192, 512))
def step():
    fill(x + 2048, 1.0, 1)
def another():
    push_blocks((x, 4096))  # as the framework does between two iterations
    fill(x, 2.0, 10)
    fill(x, 3.0, 200)
    fill(x + 1024, 4.0, 2)
    fill(x + 8192, 4.0, 1)
iterations(step, another)
print(json.dumps(x))
""",
        **ON,
    )
    # The block that was here when the iteration began, in pieces.
    assert checksums_by_launch(jobs) == [
        {(x, 512): True, (x + 512, 1536): False, (x + 2048, 2048): False}
        | {(x + 4096, 4096): False},
        {(x, 512): True, (x + 512, 1536): True, (x + 2048, 2048): False}
        | {(x + 4096, 4096): False},
        {(x + 1024, 1024): True, (x + 2048, 2048): False, (x + 4096, 4096): False},
        {(x + 8192, 512): True},
    ]


def test_each_byte_is_hashed_once(jobs: Jobs) -> None:
    x = jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
push_blocks((x, 4096))
def step():
    scale(gpu, x + 512, x + 256, 10)
    scale(gpu, x + 256, x + 256, 10)
iterations(step, step)
print(json.dumps(x))
""",
        **ON,
    )
    first, second = checksums_by_launch(jobs)
    for pieces in first, second:
        assert list(pieces) == [(x + 256, 256), (x + 512, 4096 - 512)]


def test_more_pieces_than_one_kernel_takes(jobs: Jobs) -> None:
    x = jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1 << 16).address
push_blocks((x, 4 << 16), *((x + 256 * i, 256) for i in range(1024)))
value = iter(range(1, 3))
def step():
    fill(x, next(value), 64 * 600 + 1)
iterations(step, step)
print(json.dumps(x))
""",
        **ON,
    )
    (pieces,) = checksums_by_launch(jobs)
    assert pieces == {(x + 256 * i, 256): i <= 600 for i in range(1024)}


def test_streams_and_threads(jobs: Jobs) -> None:
    parts = jobs.run(
        PRELUDE
        + """
from threading import Thread
parts = [gpu.alloc(1024).address for _ in range(4)]
context = call(cu.cuCtxGetCurrent)
function = call(cu.cuModuleGetFunction, gpu._module, b"scale")

def launch(address, stream):
    call(cu.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream,
         ((address, address + 2048, 2.0, 10),
          (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t)), 0)

def work(address):
    call(cu.cuCtxSetCurrent, context)
    stream = call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
    for _ in range(50):
        call(cu.cuMemsetD32Async, address + 2048, 0x3F800000, 512, stream)
        call(cu.cuMemsetD32Async, address, 0, 512, stream)
        launch(address, stream)
    call(cu.cuStreamSynchronize, stream)

def step():
    threads = [Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
iterations(step, step)
print(json.dumps(parts))
""",
        **ON,
    )
    kernels = [pieces for pieces in checksums_by_launch(jobs) if pieces]
    assert len(kernels) == 4 * 50
    for part in parts:
        expected = {(part, 2048): True, (part + 2048, 2048): False}
        assert kernels.count(expected) == 50


def test_memory_that_comes_and_goes(jobs: Jobs) -> None:
    stays, freed = jobs.run(
        PRELUDE
        + """
stays, freed = gpu.alloc(1024).address, int(call(cu.cuMemAlloc, 4096))
managed = int(call(cu.cuMemAllocManaged, 4096, 1))
pinned = int(call(cu.cuMemHostAlloc, 4096, 0))
pooled = int(call(cu.cuMemAllocAsync, 4096, gpu.stream))
def step():
    for address in (stays, managed, pinned, pooled):
        fill(address, 1.0, 1)
    scale(gpu, freed, stays, 1)
    gpu.synchronize()
def another():
    step()
    call(cu.cuMemFree, freed)
    # The numbers of memory that is gone, and of memory that came: of no use.
    new = int(call(cu.cuMemAlloc, 4096))
    fill(new, 1.0, 1)
    scale(gpu, stays, new, 1)
iterations(step, another)
print(json.dumps([stays, freed]))
""",
        **ON,
    )
    assert checksums_by_launch(jobs) == [
        {(stays, 4096): False},
        {},
        {},
        {},
        {(stays, 4096): False, (freed, 4096): False},
        {},
        {(stays, 4096): True},
    ]


def test_contexts_end_beside_hashed_launches(jobs: Jobs) -> None:
    x = jobs.run(
        PRELUDE
        + """
from threading import Thread
x = gpu.alloc(1024).address
done = False

def end_contexts():
    while not done:
        call(cu.cuCtxDestroy, call(cu.cuCtxCreate, None, 0, gpu.device))

def launch_beside_it():
    global done
    thread = Thread(target=end_contexts)
    thread.start()
    for _ in range(1000):
        scale(gpu, x, x, 10)
    done = True
    thread.join()
iterations(lambda: scale(gpu, x, x, 10), launch_beside_it)
print(json.dumps(x))
""",
        **ON,
    )
    kernels = [list(pieces) for pieces in checksums_by_launch(jobs)]
    assert kernels == [[(x, 4096)]] * 1000


def test_a_context_that_ends_takes_its_sums_along(jobs: Jobs) -> None:
    jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
function = gpu._function("scale")
def launch():
    call(cu.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, 0,
         ((x, x, 2.0, 10),
          (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t)), 0)
    call(cu.cuCtxSynchronize)
def another():
    launch()
    before = call(cu.cuCtxGetCurrent)
    call(cu.cuDevicePrimaryCtxReset, gpu.device)
    # Both numbers mean something else from now on.
    assert call(cu.cuDevicePrimaryCtxRetain, gpu.device) == before
    assert int(call(cu.cuMemAlloc, 4096)) == x
    launch()
iterations(launch, another)
assert recorder.transit_recorder_state() == 2
""",
        **ON,
    )
    assert checksums_by_launch(jobs) == [{}, {}]


def test_a_graph_is_hashed_as_a_whole(jobs: Jobs) -> None:
    x, y = jobs.run(
        PRELUDE
        + """
x, y = gpu.alloc(1024).address, gpu.alloc(1024).address
call(cu.cuStreamBeginCapture, gpu.stream,
     cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
scale(gpu, x, x, 10)
scale(gpu, x, y, 10)
graph = call(cu.cuStreamEndCapture, gpu.stream)
executable = call(cu.cuGraphInstantiate, graph, 0)
call(cu.cuMemsetD32Async, y, 0x3F800000, 1024, gpu.stream)
def step():
    call(cu.cuMemsetD32Async, x, 0, 1024, gpu.stream)
    call(cu.cuGraphLaunch, executable, gpu.stream)
iterations(step, step)
print(json.dumps([x, y]))
""",
        **ON,
    )
    assert checksums_by_launch(jobs)[1] == {(x, 4096): True, (y, 4096): False}


def test_launches_into_a_capture_are_not_hashed(jobs: Jobs) -> None:
    jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
def step():
    call(cu.cuStreamBeginCapture, gpu.stream,
         cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    scale(gpu, x, x, 10)
    graph = call(cu.cuStreamEndCapture, gpu.stream)
    assert cu.cuGraphGetNodes(graph, 10)[2] == 1
iterations(step, step)
""",
        **ON,
    )
    assert not len(jobs.spool().records["checksum"])


def test_without_it_nothing_is_hashed(jobs: Jobs) -> None:
    jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
iterations(*[lambda: fill(x, 1.0, 1)] * 3)
""",
        TRANSIT_ITERATIONS="1",
    )
    spool = jobs.spool()
    assert not len(spool.records["checksum"])
    assert 5 not in spool.records["mark"]["kind"]
    assert len(spool.records["launch"]) == 1


@pytest.mark.parametrize(
    "fault",
    [
        "cuModuleLoadData:2=209",
        "cuMemAlloc_v2:2=2",
        "cuMemsetD8_v2:1=999",
        "cuLaunchKernel:2=98",
        "cuMemcpyDtoH_v2:1=999",
    ],
)
def test_a_recording_without_directions_is_as_good(jobs: Jobs, fault: str) -> None:
    jobs.run(
        PRELUDE
        + """
x = gpu.alloc(1024).address
iterations(*[lambda: fill(x, 1.0, 1)] * 3)
assert recorder.transit_recorder_state() == 2
""",
        TRANSIT_SIM_FAIL=fault,
        **ON,
    )
    spool = jobs.spool()
    assert not len(spool.records["checksum"])
    activities, launches = spool.records["activity"], spool.records["launch"]
    assert activities["correlation_id"].tolist() == launches["correlation_id"].tolist()
