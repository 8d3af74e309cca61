"""That every way to launch is recorded, and what is no launch is not."""

from __future__ import annotations

import pytest
from recorder_jobs import (
    COPY,
    FROM_COPY,
    FROM_PARAMETER,
    KERNEL,
    READ,
    UNKNOWN,
    WRITE,
    Jobs,
    accesses_of,
    names,
)

PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD

SCALE = """
gpu = open_gpu()
x, y = (gpu.alloc(1024).address for _ in range(2))
types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t)
arguments = ((y, x, 2.0, 64), types)
ptx = Path(layers.__file__).with_name("kernels.ptx").read_bytes() + b"\\0"
"""


def from_kernel(*addresses: int) -> set[tuple[int, ...]]:
    return {(address, 0, UNKNOWN, FROM_PARAMETER) for address in addresses}


def test_cooperative_and_cluster_launches_and_kernels_of_libraries(jobs: Jobs) -> None:
    x, y = jobs.run(
        SCALE
        + """
function = gpu._function("scale")
call(cu.cuLaunchCooperativeKernel, function, 3, 1, 1, 64, 1, 1, 0, gpu.stream,
     arguments)
library = call(cu.cuLibraryLoadData, ptx, [], [], 0, [], [], 0)
kernel = call(cu.cuLibraryGetKernel, library, b"scale")
cluster = cu.CUlaunchAttribute()
cluster.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
cluster.value.clusterDim.x = 2
cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1
config = cu.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = 4, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 32, 2, 1
config.hStream = gpu.stream
config.attrs, config.numAttrs = [cluster], 1
call(cu.cuLaunchKernelEx, config, cu.CUfunction(int(kernel)), arguments, 0)
gpu.synchronize()
print(json.dumps([x, y]))
"""
    )
    spool = jobs.spool()
    launches = spool.records["launch"]

    assert names(spool, "launch") == ["scale", "scale"]
    assert launches["kind"].tolist() == [KERNEL, KERNEL]
    assert launches["grid"].tolist() == [[3, 1, 1], [4, 1, 1]]
    assert launches["block"].tolist() == [[64, 1, 1], [32, 2, 1]]
    for launch_id in (0, 1):
        assert accesses_of(spool, launch_id) == from_kernel(x, y)


@pytest.mark.parametrize("form", ["module", "library"])
def test_a_handle_of_unloaded_code_is_read_anew(jobs: Jobs, form: str) -> None:
    x, y = jobs.run(
        SCALE
        + """
def launch(source, name, *parameters):
    if FORM == "module":
        code = call(cu.cuModuleLoadData, source)
        function = call(cu.cuModuleGetFunction, code, name)
        unload = cu.cuModuleUnload
    else:
        code = call(cu.cuLibraryLoadData, source, [], [], 0, [], [], 0)
        function = cu.CUfunction(int(call(cu.cuLibraryGetKernel, code, name)))
        unload = cu.cuLibraryUnload
    call(cu.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu.stream,
         tuple(zip(*parameters)), 0)
    gpu.synchronize()
    call(unload, code)
    return int(function)

pointer, real, size = ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t
HEAD = b".version 9.0 .target sm_90 .address_size 64 .visible .entry "
first = launch(HEAD + b"scale(.param .u64 y, .param .u64 x, .param .f32 a, "
               b".param .u64 n) { ret; }\\0", b"scale",
               (y, pointer), (x, pointer), (2.0, real), (64, size))
second = launch(HEAD + b"fill(.param .u64 x, .param .f32 a, .param .u64 n) { ret; }"
                b"\\0", b"fill", (x, pointer), (2.0, real), (64, size))
assert first == second
print(json.dumps([x, y]))
""".replace("FORM", repr(form))
    )
    spool = jobs.spool()

    assert names(spool, "launch") == ["scale", "fill"]
    assert accesses_of(spool, 0) == from_kernel(x, y)
    assert accesses_of(spool, 1) == from_kernel(x)


def test_each_thread_and_stream_is_told_apart(jobs: Jobs) -> None:
    told = jobs.run(
        SCALE
        + """
from threading import Thread
streams = [call(cu.cuStreamCreate, 1) for _ in range(4)]
places = [gpu.alloc(64).address for _ in range(4)]
function = gpu._function("scale")
device = call(cu.cuDevicePrimaryCtxRetain, gpu.device)

def work(stream, place):
    call(cu.cuCtxSetCurrent, device)
    for _ in range(200):
        call(cu.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream,
             ((place, place, 2.0, 1), types), 0)

threads = [Thread(target=work, args=pair) for pair in zip(streams, places)]
for thread in threads: thread.start()
for thread in threads: thread.join()
call(cu.cuCtxSynchronize)
print(json.dumps([[int(stream) for stream in streams], places]))
"""
    )
    spool = jobs.spool()
    launches, accesses = spool.records["launch"], spool.records["access"]

    place_of = dict(zip(*told, strict=True))
    assert launches["launch_id"].tolist() == list(range(800))
    by_launch = dict(accesses[["launch_id", "address"]].tolist())
    assert len(accesses) == 2 * 800  # two words of each launch name the place
    for launch_id, stream in launches[["launch_id", "stream"]].tolist():
        assert by_launch[launch_id] == place_of[stream]


def test_per_thread_default_streams_are_named(jobs: Jobs) -> None:
    x, y = jobs.run(
        SCALE
        + """
driver = ctypes.CDLL("libcuda.so.1")
values = [ctype(value) for value, ctype in zip(*arguments)]
pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
function = ctypes.c_void_p(int(gpu._function("scale")))
for launch in (driver.cuLaunchKernel_ptsz, driver.cuLaunchKernel):
    assert launch(function, 1, 1, 1, 1, 1, 1, 0, None, pointers, None) == 0
call(cu.cuCtxSynchronize)
print(json.dumps([x, y]))
"""
    )
    spool = jobs.spool()

    assert spool.records["launch"]["stream"].tolist() == [PER_THREAD_STREAM, 0]
    for launch_id in (0, 1):
        assert accesses_of(spool, launch_id) == from_kernel(x, y)


def test_peer_copies_are_copies(jobs: Jobs) -> None:
    x, y = jobs.run(
        SCALE
        + """
context = call(cu.cuCtxGetCurrent)
call(cu.cuMemcpyPeerAsync, y, context, x, context, 100, gpu.stream)
gpu.synchronize()
print(json.dumps([x, y]))
"""
    )
    spool = jobs.spool()

    assert spool.records["launch"]["kind"].tolist() == [COPY]
    assert accesses_of(spool, 0) == {
        (x, 100, READ, FROM_COPY),
        (y, 100, WRITE, FROM_COPY),
    }


def test_what_is_no_launch_is_not_recorded(jobs: Jobs) -> None:
    jobs.run(
        SCALE
        + """
called = []
host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
driver = ctypes.CDLL("libcuda.so.1")
stream = ctypes.c_void_p(int(gpu.stream))
assert driver.cuLaunchHostFunc(stream, host_function, None) == 0
call(cu.cuStreamWriteValue32, gpu.stream, x, 7, 0)
call(cu.cuStreamWaitValue32, gpu.stream, x, 7, 0)
flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
managed = int(call(cu.cuMemAllocManaged, 1 << 21, flags))
host = cu.CUmemLocation()
host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
advice = cu.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
call(cu.cuMemAdvise, managed, 1 << 21, advice, host)
call(cu.cuMemPrefetchAsync, managed, 1 << 21, host, 0, gpu.stream)
gpu.synchronize()
assert len(called) == 1
"""
    )

    assert len(jobs.spool().records["launch"]) == 0
