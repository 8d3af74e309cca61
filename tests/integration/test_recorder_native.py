"""What libtransit_recorder.so leaves in a spool, on the simulated GPU."""

from __future__ import annotations

import numpy as np
from recorder_jobs import (
    COPY,
    DEVICE_TO_HOST,
    FROM_COPY,
    FROM_PARAMETER,
    FROM_SET,
    GRAPH,
    HOST_TO_DEVICE,
    KERNEL,
    READ,
    SET,
    UNKNOWN,
    WRITE,
    Jobs,
    accesses_of,
    names,
)


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


def test_a_launch_that_is_made_again_touches_what_is_there_then(jobs: Jobs) -> None:
    x, y = jobs.run("""
gpu = open_gpu()
x, y = gpu.alloc(1024).address, int(call(cu.cuMemAlloc, 4096))
def work():
    for to, by in (y, x), (x, y), (y, y), (x, x + 8), (y, 0), (0, y):
        gpu.launch("scale", (1, 1), (1, 1), (to, ctypes.c_void_p),
                   (by, ctypes.c_void_p), (2.0, ctypes.c_float), (0, ctypes.c_size_t))
    gpu.synchronize()
work()
work()
call(cu.cuMemFree, y)
work()
assert int(call(cu.cuMemAlloc, 4096)) == y
work()
print(json.dumps([x, y]))
""")
    spool = jobs.spool()
    launches, accesses = spool.records["launch"], spool.records["access"]
    assert len(launches) == 4 * 6
    found = [
        accesses[accesses["launch_id"] == launch][
            ["address", "allocation_id", "param_offset"]
        ].tolist()
        for launch in range(len(launches))
    ]
    first, second = spool.records["allocation"]["allocation_id"][[0, 1]].tolist()
    third = int(spool.records["allocation"]["allocation_id"][-1])

    def expected(of_y: int | None) -> list[list[tuple[int, int, int]]]:
        launches = [[y, x], [x, y], [y, y], [x, x + 8], [y, None], [None, y]]
        ids = {y: of_y, x: first, x + 8: first, None: None}
        return [
            [
                (address, number, 8 * place)
                for place, address in enumerate(launch)
                if address is not None and (number := ids[address]) is not None
            ]
            for launch in launches
        ]

    assert found == [*expected(second) * 2, *expected(None), *expected(third)]


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


def test_the_process_and_the_device_are_described(jobs: Jobs) -> None:
    jobs.run("open_gpu()", RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")
    spool = jobs.spool()
    (process,), (device,) = spool.records["process"], spool.records["device"]

    assert [process[k] for k in ("rank", "local_rank", "world_size")] == [3, 1, 8]
    assert process["driver_version"] == 13000
    assert abs(int(process["clock_cupti_ns"]) - int(process["clock_realtime_ns"])) < 1e9
    assert (device["device"], device["compute_capability"]) == (0, 90)
    assert names(spool, "device") == ["transit simulated GPU"]
