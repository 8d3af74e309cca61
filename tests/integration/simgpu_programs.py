"""Programs on the simulated driver, one function each; ``test_simgpu`` runs them.

Usage: ``python simgpu_programs.py NAME``. A program ends with exit code 0, or an
assertion says what was wrong.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

MIB = 1 << 20
PAGE_BYTES = 2 * MIB

PTX = b"""
.version 9.0
.target sm_75
.address_size 64
/* .entry not_this_one( */
.visible .entry fill(
  .param .u64 .ptr .global .align 1 fill_param_0, // the pointee's alignment
  .param .f32 fill_param_1,
  .param .u64 fill_param_2
)
{ ret; }
.visible .entry scale(.param .u64 scale_param_0, .param .u64 scale_param_1,
  .param .f32 scale_param_2, .param .u64 scale_param_3) { ret; }
.visible .entry unheard_of(
  .param .u8 a, .param .align 16 .b8 b[24], .param .align 64 .b8 c[128], .param .u16 d)
{ ret; }
\0"""


class CudaError(Exception):
    def __init__(self, function: str, result: cu.CUresult) -> None:
        super().__init__(f"{function}: {result.name}")
        self.result = result


def call(function: Callable[..., Any], *args: Any) -> Any:
    result, *values = function(*args)
    if result != cu.CUresult.CUDA_SUCCESS:
        raise CudaError(function.__name__, result)
    return values[0] if len(values) == 1 else values or None


def fails_with(name: str, function: Callable[..., Any], *args: Any) -> None:
    result = function(*args)[0]
    assert result.name == f"CUDA_ERROR_{name}", f"{function.__name__}: {result.name}"


def start() -> None:
    call(cu.cuInit, 0)
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, 0))


def function(name: bytes) -> Any:
    return call(cu.cuModuleGetFunction, call(cu.cuModuleLoadData, PTX), name)


def launch(kernel: Any, stream: Any, values: tuple[Any, ...]) -> None:
    types = tuple(
        ctypes.c_float if isinstance(v, float) else ctypes.c_uint64 for v in values
    )
    shape = (1, 1, 1, 32, 1, 1, 0, stream)
    call(cu.cuLaunchKernel, kernel, *shape, (values, types), 0)


def read(address: int, count: int) -> np.ndarray[Any, Any]:
    host = np.empty(count, np.float32)
    call(cu.cuMemcpyDtoH, host.ctypes.data, address, host.nbytes)
    return host


def write(address: int, values: np.ndarray[Any, Any]) -> None:
    call(cu.cuMemcpyHtoD, address, values.ctypes.data, values.nbytes)


class Counters(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "link_read_bytes",
            "link_written_bytes",
            "fault_count",
            "migrated_in_bytes",
            "migrated_out_bytes",
            "evicted_bytes",
        )
    ]


def counters() -> Counters:
    found = Counters()
    ctypes.CDLL("libcuda.so.1").simgpu_get_counters(ctypes.byref(found))
    return found


def used_bytes() -> int:
    free, total = call(cu.cuMemGetInfo)
    return int(total - free)


def location(kind: str) -> cu.CUmemLocation:
    where = cu.CUmemLocation()
    where.type = getattr(cu.CUmemLocationType, f"CU_MEM_LOCATION_TYPE_{kind}")
    where.id = 0
    return where


def create(kind: str, size: int) -> Any:
    wanted = cu.CUmemAllocationProp()
    wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location = location(kind)
    return call(cu.cuMemCreate, size, wanted, 0)


def allow(address: int, size: int) -> None:
    access = cu.CUmemAccessDesc()
    access.location = location("DEVICE")
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call(cu.cuMemSetAccess, address, size, [access], 1)


def managed(size: int) -> int:
    flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    return int(call(cu.cuMemAllocManaged, size, flags))


def advise(address: int, size: int, advice: str, kind: str) -> None:
    value = getattr(cu.CUmem_advise, f"CU_MEM_ADVISE_{advice}")
    call(cu.cuMemAdvise, address, size, value, location(kind))


def kernels_and_copies_move_data() -> None:
    start()
    stream = call(cu.cuStreamCreate, 0)
    count = 3 * MIB
    x, y = (int(call(cu.cuMemAlloc, count * 4)) for _ in range(2))
    values = np.arange(count, dtype=np.float32)
    call(cu.cuMemcpyHtoDAsync, x, values.ctypes.data, values.nbytes, stream)
    launch(function(b"scale"), stream, (y, x, 3.0, count))
    call(cu.cuMemcpyDtoDAsync, x, y, count * 2, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.array_equal(read(y, count), 3 * values)
    half = count // 2
    assert np.array_equal(read(x, half), 3 * values[:half])
    assert np.array_equal(read(x + half * 4, half), values[half:])
    call(cu.cuMemsetD32, y, 0x3F800000, count)
    assert np.all(read(y, count) == 1)
    fails_with("INVALID_VALUE", cu.cuMemsetD8, y + count * 4 - 1, 0, 2)


def packed_arguments_are_read() -> None:
    start()
    address = int(call(cu.cuMemAlloc, 1024))
    fill = function(b"fill")

    class Arguments(ctypes.Structure):
        _fields_ = [
            ("p", ctypes.c_uint64),
            ("value", ctypes.c_float),
            ("n", ctypes.c_uint64),
        ]

    arguments = Arguments(address, 2.5, 256)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    extra = (ctypes.c_void_p * 5)(
        1, ctypes.addressof(arguments), 2, ctypes.addressof(size), 0
    )
    shape = (1, 1, 1, 1, 1, 1, 0, 0)
    call(cu.cuLaunchKernel, fill, *shape, 0, ctypes.addressof(extra))
    assert np.all(read(address, 256) == 2.5)


def parameters_are_laid_out_as_in_the_ptx() -> None:
    start()
    unheard_of = function(b"unheard_of")
    layout = [call(cu.cuFuncGetParamInfo, unheard_of, i) for i in range(4)]
    assert layout == [[0, 1], [16, 24], [64, 128], [192, 2]], layout
    fails_with("INVALID_VALUE", cu.cuFuncGetParamInfo, unheard_of, 4)
    fill = function(b"fill")
    assert [call(cu.cuFuncGetParamInfo, fill, i) for i in range(3)] == [
        [0, 8],
        [8, 4],
        [16, 8],
    ]
    assert call(cu.cuFuncGetName, fill) == b"fill"


def an_unknown_kernel_is_refused_at_its_launch() -> None:
    start()
    shape = (1, 1, 1, 1, 1, 1, 0, 0)
    block = (ctypes.c_byte * 256)()
    pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(block)] * 4)
    fails_with(
        "NOT_SUPPORTED",
        cu.cuLaunchKernel,
        function(b"unheard_of"),
        *shape,
        ctypes.addressof(pointers),
        0,
    )


def bad_modules_are_refused() -> None:
    start()
    fails_with("INVALID_PTX", cu.cuModuleLoadData, b"nonsense\0")
    fails_with("INVALID_PTX", cu.cuModuleLoadData, b"\0")
    torn = b".version 9.0 .entry f(.param .u64 a, .param\0"
    fails_with("INVALID_PTX", cu.cuModuleLoadData, torn)
    huge = b".version 9.0 .entry f(.param .align 8 .b8 a[99999999999])\0"
    fails_with("INVALID_PTX", cu.cuModuleLoadData, huge)
    fails_with("NO_BINARY_FOR_GPU", cu.cuModuleLoadData, b"\x7fELF\0")
    fails_with("FILE_NOT_FOUND", cu.cuModuleLoad, b"/no/such/file")
    module = call(cu.cuModuleLoadData, PTX)
    fails_with("NOT_FOUND", cu.cuModuleGetFunction, module, b"not_this_one")


def memory_is_counted_and_ends() -> None:
    start()
    _, total = call(cu.cuMemGetInfo)
    assert total == 64 * MIB
    before = used_bytes()
    addresses = [int(call(cu.cuMemAlloc, 20 * MIB)) for _ in range(3)]
    assert used_bytes() - before == 60 * MIB
    fails_with("OUT_OF_MEMORY", cu.cuMemAlloc, 20 * MIB)
    fails_with("OUT_OF_MEMORY", cu.cuMemAlloc, 1 << 62)
    fails_with("INVALID_VALUE", cu.cuMemAlloc, 0)
    call(cu.cuMemFree, addresses.pop())
    call(cu.cuMemFree, call(cu.cuMemAlloc, 20 * MIB))
    fails_with("INVALID_VALUE", cu.cuMemFree, addresses[0] + 512)
    for address in addresses:
        call(cu.cuMemFree, address)
    assert used_bytes() == before


def ordered_memory_is_freed_when_its_stream_gets_there() -> None:
    start()
    stream = call(cu.cuStreamCreate, 1)
    flag = ctypes.c_uint32.from_address(int(call(cu.cuMemHostAlloc, 64, 0)))
    flag.value = 0
    x = int(call(cu.cuMemAllocAsync, PAGE_BYTES, stream))
    call(cu.cuStreamWaitValue32, stream, ctypes.addressof(flag), 1, 0)
    call(cu.cuMemFreeAsync, x, stream)
    assert used_bytes() == PAGE_BYTES
    flag.value = 1
    call(cu.cuStreamSynchronize, stream)
    assert used_bytes() == 0
    fails_with("INVALID_VALUE", cu.cuMemFree, x)


def work_outlives_its_module_and_stream() -> None:
    start()
    stream = call(cu.cuStreamCreate, 1)
    flag = ctypes.c_uint32.from_address(int(call(cu.cuMemHostAlloc, 64, 0)))
    flag.value = 0
    x = int(call(cu.cuMemAlloc, 1024))
    module = call(cu.cuModuleLoadData, PTX)
    fill = call(cu.cuModuleGetFunction, module, b"fill")
    call(cu.cuStreamWaitValue32, stream, ctypes.addressof(flag), 1, 0)
    launch(fill, stream, (x, 6.0, 256))
    call(cu.cuModuleUnload, module)
    call(cu.cuStreamDestroy, stream)
    flag.value = 1
    call(cu.cuCtxSynchronize)
    assert np.all(read(x, 256) == 6)
    fails_with("INVALID_HANDLE", cu.cuFuncGetName, fill)


def each_device_has_its_own_memory() -> None:
    call(cu.cuInit, 0)
    assert call(cu.cuDeviceGetCount) == 2
    contexts = [call(cu.cuDevicePrimaryCtxRetain, device) for device in range(2)]
    for context in contexts:
        call(cu.cuCtxSetCurrent, context)
        assert used_bytes() == 0
        call(cu.cuMemAlloc, 3 * PAGE_BYTES)
        assert used_bytes() == 3 * PAGE_BYTES
    call(cu.cuDevicePrimaryCtxRelease, 1)
    fails_with("CONTEXT_IS_DESTROYED", cu.cuMemAlloc, 512)
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, 1))
    assert used_bytes() == 0, "the last release frees what the context had"


def one_handle_at_two_addresses_is_one_memory() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, 3 * PAGE_BYTES, 0, 0, 0))
    device, host = create("DEVICE", PAGE_BYTES), create("HOST_NUMA", PAGE_BYTES)
    assert used_bytes() == PAGE_BYTES, "host chunks must not count"
    call(cu.cuMemMap, base, PAGE_BYTES, 0, device, 0)
    call(cu.cuMemMap, base + PAGE_BYTES, PAGE_BYTES, 0, device, 0)
    call(cu.cuMemMap, base + 2 * PAGE_BYTES, PAGE_BYTES, 0, host, 0)
    allow(base, 3 * PAGE_BYTES)
    values = np.arange(PAGE_BYTES // 4, dtype=np.float32)
    write(base, values)
    assert np.array_equal(read(base + PAGE_BYTES, values.size), values)
    # A launch over both kinds of chunk, and the copy of one to the other.
    count = 2 * values.size
    launch(function(b"scale"), 0, (base + PAGE_BYTES, base + PAGE_BYTES, 2.0, count))
    call(cu.cuCtxSynchronize)
    assert np.array_equal(read(base, values.size), 2 * values)
    call(cu.cuMemcpyDtoD, base + 2 * PAGE_BYTES, base, PAGE_BYTES)
    # Remapped to the host chunk, the address holds what was copied there.
    call(cu.cuMemUnmap, base, PAGE_BYTES)
    call(cu.cuMemMap, base, PAGE_BYTES, 0, host, 0)
    allow(base, PAGE_BYTES)
    before = counters().link_read_bytes
    assert np.array_equal(read(base, values.size), 2 * values)
    assert counters().link_read_bytes - before == PAGE_BYTES
    memory_type = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert call(cu.cuPointerGetAttribute, memory_type, base) == 1
    assert call(cu.cuPointerGetAttribute, memory_type, base + PAGE_BYTES) == 2
    call(cu.cuMemUnmap, base, 3 * PAGE_BYTES)
    for handle in (device, host):
        call(cu.cuMemRelease, handle)
    call(cu.cuMemAddressFree, base, 3 * PAGE_BYTES)
    assert used_bytes() == 0


def mapping_is_refused_where_a_gpu_refuses_it() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, 4 * PAGE_BYTES, 0, 0, 0))
    host = create("HOST_NUMA", 2 * PAGE_BYTES)
    map_ = cu.cuMemMap
    fails_with("NOT_SUPPORTED", map_, base, PAGE_BYTES, PAGE_BYTES, host, 0)
    fails_with("INVALID_VALUE", map_, base + 4 * PAGE_BYTES, PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", map_, base, 4 * PAGE_BYTES, 0, host, 0)
    call(map_, base, 2 * PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", map_, base, PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", cu.cuMemUnmap, base, PAGE_BYTES)
    fails_with("INVALID_VALUE", cu.cuMemAddressFree, base, 4 * PAGE_BYTES)
    fails_with("INVALID_VALUE", cu.cuIpcGetMemHandle, base)
    call(cu.cuIpcGetMemHandle, call(cu.cuMemAlloc, 512))


def access_before_it_is_set_fails_for_good() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, PAGE_BYTES, 0, 0, 0))
    call(cu.cuMemMap, base, PAGE_BYTES, 0, create("DEVICE", PAGE_BYTES), 0)
    launch(function(b"fill"), 0, (base, 1.0, 16))
    fails_with("ILLEGAL_ADDRESS", cu.cuCtxSynchronize)
    fails_with("ILLEGAL_ADDRESS", cu.cuMemAlloc, 512)


def managed_pages_fault_in_and_stay() -> None:
    start()
    address, count = managed(4 * PAGE_BYTES), 4 * PAGE_BYTES // 4
    call(cu.cuMemPrefetchAsync, address, 4 * PAGE_BYTES, location("HOST"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == 0
    launch(function(b"fill"), 0, (address + 3 * PAGE_BYTES // 2, 1.0, PAGE_BYTES // 4))
    call(cu.cuCtxSynchronize)
    seen = counters()
    assert seen.fault_count == 2, seen.fault_count
    assert used_bytes() == seen.migrated_in_bytes == 2 * PAGE_BYTES
    launch(function(b"fill"), 0, (address, 2.0, count))
    launch(function(b"fill"), 0, (address, 3.0, count))
    call(cu.cuCtxSynchronize)
    assert counters().fault_count == 4, "resident pages must not fault"
    assert np.all(read(address, count) == 3)
    call(cu.cuMemFree, address)
    assert used_bytes() == 0


def advised_pages_are_used_in_place() -> None:
    start()
    size = 2 * PAGE_BYTES
    address = managed(size)
    advise(address, size, "SET_PREFERRED_LOCATION", "HOST")
    advise(address, size, "SET_ACCESSED_BY", "DEVICE")
    call(cu.cuMemPrefetchAsync, address, size, location("HOST"), 0, 0)
    launch(function(b"scale"), 0, (address, address, 1.0, size // 4))
    call(cu.cuCtxSynchronize)
    seen = counters()
    assert used_bytes() == seen.fault_count == seen.migrated_in_bytes == 0
    assert seen.link_read_bytes == seen.link_written_bytes == size
    # A prefetch overrides the preference; the way back maps the pages again.
    call(cu.cuMemPrefetchAsync, address, size, location("DEVICE"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == size
    call(cu.cuMemPrefetchAsync, address, size, location("HOST"), 0, 0)
    launch(function(b"fill"), 0, (address, 1.0, size // 4))
    call(cu.cuCtxSynchronize)
    assert used_bytes() == counters().fault_count == 0
    attribute = cu.CUmem_range_attribute
    for name, expected in {
        "PREFERRED_LOCATION": -1,
        "LAST_PREFETCH_LOCATION": -1,
        "READ_MOSTLY": 0,
    }.items():
        which = getattr(attribute, f"CU_MEM_RANGE_ATTRIBUTE_{name}")
        found = call(cu.cuMemRangeGetAttribute, 4, which, address, size)
        assert found == expected, (name, found)


def read_mostly_pages_are_duplicated() -> None:
    start()
    address = managed(PAGE_BYTES)
    call(cu.cuMemPrefetchAsync, address, PAGE_BYTES, location("HOST"), 0, 0)
    call(cu.cuCtxSynchronize)
    advise(address, PAGE_BYTES, "SET_READ_MOSTLY", "DEVICE")
    call(cu.cuMemPrefetchAsync, address, PAGE_BYTES, location("DEVICE"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == PAGE_BYTES
    advise(address, PAGE_BYTES, "UNSET_READ_MOSTLY", "DEVICE")
    assert used_bytes() == 0
    assert counters().migrated_out_bytes == 0, "a duplicate needs no copy back"


def the_least_recently_used_pages_leave_a_full_card() -> None:
    start()
    size = 24 * MIB
    fill = function(b"fill")
    first, second, third = (managed(size) for _ in range(3))
    for address, value in ((first, 1.0), (second, 2.0), (first, 3.0), (third, 4.0)):
        launch(fill, 0, (address, value, size // 4))
    call(cu.cuCtxSynchronize)
    assert used_bytes() <= 64 * MIB
    assert counters().evicted_bytes == 3 * size - 64 * MIB
    faults = counters().fault_count
    launch(fill, 0, (first, 5.0, size // 4))
    call(cu.cuCtxSynchronize)
    assert counters().fault_count == faults, "the second was older than the first"
    for address, value in ((first, 5), (second, 2), (third, 4)):
        assert np.all(read(address, size // 4) == value)
    # Other memory pushes managed pages out too.
    call(cu.cuMemAlloc, 60 * MIB)
    assert used_bytes() <= 64 * MIB


def streams_wait_for_events_and_values() -> None:
    start()
    first, second = (call(cu.cuStreamCreate, 1) for _ in range(2))
    event = call(cu.cuEventCreate, 2)
    flag = ctypes.c_uint32.from_address(int(call(cu.cuMemHostAlloc, 64, 0)))
    flag.value = 0
    x, y = (int(call(cu.cuMemAlloc, 1024)) for _ in range(2))
    greater_or_equal = 0
    gate = (first, ctypes.addressof(flag), 7, greater_or_equal)
    call(cu.cuStreamWaitValue32, *gate)
    launch(function(b"fill"), first, (x, 4.0, 256))
    call(cu.cuEventRecord, event, first)
    call(cu.cuStreamWaitEvent, second, event, 0)
    launch(function(b"scale"), second, (y, x, 2.0, 256))
    fails_with("NOT_READY", cu.cuEventQuery, event)
    fails_with("NOT_READY", cu.cuStreamQuery, second)
    flag.value = 7
    call(cu.cuStreamSynchronize, second)
    call(cu.cuEventQuery, event)
    assert np.all(read(y, 256) == 8)
    call(cu.cuStreamDestroy, first)
    fails_with("INVALID_HANDLE", cu.cuStreamSynchronize, first)


def the_default_stream_orders_the_others() -> None:
    start()
    blocking = call(cu.cuStreamCreate, 0)
    flag = ctypes.c_uint32.from_address(int(call(cu.cuMemHostAlloc, 64, 0)))
    flag.value = 0
    x = int(call(cu.cuMemAlloc, 1024))
    call(cu.cuStreamWaitValue32, blocking, ctypes.addressof(flag), 1, 0)
    launch(function(b"fill"), blocking, (x, 1.0, 256))
    launch(function(b"scale"), 0, (x, x, 5.0, 256))
    launch(function(b"scale"), blocking, (x, x, 7.0, 256))
    flag.value = 1
    call(cu.cuStreamSynchronize, blocking)
    assert np.all(read(x, 256) == 35)


def a_captured_graph_repeats_its_work() -> None:
    start()
    stream, side = (call(cu.cuStreamCreate, 1) for _ in range(2))
    fork, join = (call(cu.cuEventCreate, 2) for _ in range(2))
    x, y = (int(call(cu.cuMemAlloc, 1024)) for _ in range(2))
    scale = function(b"scale")
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    write(x, np.full(256, 1, np.float32))
    call(cu.cuStreamBeginCapture, stream, mode)
    launch(scale, stream, (x, x, 2.0, 256))
    call(cu.cuEventRecord, fork, stream)
    call(cu.cuStreamWaitEvent, side, fork, 0)
    call(cu.cuMemcpyDtoDAsync, y, x, 1024, side)
    call(cu.cuEventRecord, join, side)
    call(cu.cuStreamWaitEvent, stream, join, 0)
    launch(scale, stream, (y, y, 10.0, 256))
    graph = call(cu.cuStreamEndCapture, stream)
    types = [
        call(cu.cuGraphNodeGetType, node).name.rsplit("_", 1)[1]
        for node in call(cu.cuGraphGetNodes, graph, 3)[0]
    ]
    assert types == ["KERNEL", "MEMCPY", "KERNEL"], types
    executable = call(cu.cuGraphInstantiate, graph, 0)
    call(cu.cuGraphDestroy, graph)
    assert np.all(read(x, 256) == 1), "capture must not run anything"
    for _ in range(3):
        call(cu.cuGraphLaunch, executable, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.all(read(x, 256) == 8)
    assert np.all(read(y, 256) == 80)


def graph_with_two_scales(stream: Any, x: int, factors: tuple[float, float]) -> Any:
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    scale = function(b"scale")
    call(cu.cuStreamBeginCapture, stream, mode)
    for factor in factors:
        launch(scale, stream, (x, x, factor, 256))
    return call(cu.cuStreamEndCapture, stream)


def an_executable_graph_takes_new_parameters() -> None:
    start()
    stream = call(cu.cuStreamCreate, 1)
    x, y = (int(call(cu.cuMemAlloc, 1024)) for _ in range(2))
    graph = graph_with_two_scales(stream, x, (2.0, 3.0))
    executable = call(cu.cuGraphInstantiate, graph, 0)
    first, second = call(cu.cuGraphGetNodes, graph, 2)[0]
    parameters = call(cu.cuGraphKernelNodeGetParams, second)
    assert (parameters.gridDimX, parameters.blockDimX) == (1, 32)
    parameters.kernelParams = (
        (y, x, 5.0, 256),
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t),
    )
    call(cu.cuGraphExecKernelNodeSetParams, executable, second, parameters)
    write(x, np.full(256, 1, np.float32))
    call(cu.cuGraphLaunch, executable, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.all(read(x, 256) == 2), "the node was not changed"
    assert np.all(read(y, 256) == 10)
    fresh = call(cu.cuGraphInstantiate, graph, 0)
    call(cu.cuGraphLaunch, fresh, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.all(read(x, 256) == 12), "the graph it was made of was changed"
    call(cu.cuGraphDestroy, graph)
    fails_with(
        "INVALID_VALUE",
        cu.cuGraphExecKernelNodeSetParams,
        executable,
        first,
        parameters,
    )


def an_executable_graph_is_updated_from_another() -> None:
    start()
    stream = call(cu.cuStreamCreate, 1)
    x = int(call(cu.cuMemAlloc, 1024))
    write(x, np.full(256, 1, np.float32))
    graph = graph_with_two_scales(stream, x, (2.0, 3.0))
    executable = call(cu.cuGraphInstantiate, graph, 0)
    other = graph_with_two_scales(stream, x, (7.0, 11.0))
    call(cu.cuGraphExecUpdate, executable, call(cu.cuGraphClone, other))
    call(cu.cuGraphLaunch, executable, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.all(read(x, 256) == 77)
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    call(cu.cuStreamBeginCapture, stream, mode)
    launch(function(b"scale"), stream, (x, x, 2.0, 256))
    shorter = call(cu.cuStreamEndCapture, stream)
    fails_with("GRAPH_EXEC_UPDATE_FAILURE", cu.cuGraphExecUpdate, executable, shorter)


def a_child_graph_runs_where_its_node_is() -> None:
    start()
    stream = call(cu.cuStreamCreate, 1)
    x = int(call(cu.cuMemAlloc, 1024))
    write(x, np.full(256, 1, np.float32))
    inner = graph_with_two_scales(stream, x, (2.0, 3.0))
    outer = call(cu.cuGraphCreate, 0)
    first = call(cu.cuGraphAddChildGraphNode, outer, None, 0, inner)
    call(cu.cuGraphAddChildGraphNode, outer, [first], 1, inner)
    call(cu.cuGraphDestroy, inner)
    assert call(cu.cuGraphNodeGetType, first).name == "CU_GRAPH_NODE_TYPE_GRAPH"
    child = call(cu.cuGraphChildGraphNodeGetGraph, first)
    assert len(call(cu.cuGraphGetNodes, child, 2)[0]) == 2
    executable = call(cu.cuGraphInstantiate, outer, 0)
    call(cu.cuGraphLaunch, executable, stream)
    call(cu.cuStreamSynchronize, stream)
    assert np.all(read(x, 256) == 36)


def capture_refuses_unsafe_calls() -> None:
    start()
    modes = cu.CUstreamCaptureMode
    stream = call(cu.cuStreamCreate, 1)
    call(cu.cuStreamBeginCapture, stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL)
    fails_with("STREAM_CAPTURE_UNSUPPORTED", cu.cuMemAlloc, 1024)
    fails_with("STREAM_CAPTURE_INVALIDATED", cu.cuStreamEndCapture, stream)
    call(cu.cuStreamBeginCapture, stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL)
    relaxed = modes.CU_STREAM_CAPTURE_MODE_RELAXED
    old = call(cu.cuThreadExchangeStreamCaptureMode, relaxed)
    assert old == modes.CU_STREAM_CAPTURE_MODE_GLOBAL
    managed(PAGE_BYTES)
    call(cu.cuMemAlloc, 1024)
    call(cu.cuThreadExchangeStreamCaptureMode, old)
    elsewhere: list[str] = []

    def allocate() -> None:
        start()
        elsewhere.append(cu.cuMemAlloc(1024)[0].name)

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert elsewhere == ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"], elsewhere
    fails_with("STREAM_CAPTURE_INVALIDATED", cu.cuStreamEndCapture, stream)
    call(cu.cuStreamBeginCapture, stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL)
    call(cu.cuStreamEndCapture, stream)


def symbols_are_found_by_version_and_stream() -> None:
    start()
    library = ctypes.CDLL("libcuda.so.1")

    def address(symbol: str) -> int:
        return int(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0)

    per_thread = 2
    for base, version, flags, symbol in (
        (b"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        (b"cuMemPrefetchAsync", 8000, 0, "cuMemPrefetchAsync"),
        (b"cuMemPrefetchAsync", 12010, per_thread, "cuMemPrefetchAsync_ptsz"),
        (b"cuMemPrefetchAsync", 13000, 0, "cuMemPrefetchAsync_v2"),
        (b"cuLaunchKernel", 13000, per_thread, "cuLaunchKernel_ptsz"),
        (b"cuMemcpyHtoD", 7000, per_thread, "cuMemcpyHtoD_v2_ptds"),
        (b"cuMemAlloc", 13000, per_thread, "cuMemAlloc_v2"),
        (b"cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        (b"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ):
        pointer, status = call(cu.cuGetProcAddress, base, version, flags)
        assert status.value == 0
        assert pointer == address(symbol), symbol
    for base, version, expected in (
        (b"cuMemAlloc_v2", 13000, 1),
        (b"cuMemMap", 9000, 2),
    ):
        pointer, status = call(cu.cuGetProcAddress, base, version, 0)
        assert (pointer, status.value) == (0, expected), base


def chosen_calls_fail() -> None:
    start()
    call(cu.cuMemAlloc, 512)
    fails_with("OUT_OF_MEMORY", cu.cuMemAlloc, 512)
    call(cu.cuMemAlloc, 512)
    for _ in range(2):
        result = cu.cuMemcpyHtoD(0, 0, 0)[0]
        assert result == cu.CUresult.CUDA_ERROR_UNKNOWN


def a_fork_child_cannot_use_the_driver() -> None:
    start()
    child = os.fork()
    if child == 0:
        codes = {cu.cuInit(0)[0], cu.cuMemAlloc(512)[0], cu.cuCtxSynchronize()[0]}
        os._exit(0 if codes == {cu.CUresult.CUDA_ERROR_NOT_INITIALIZED} else 1)
    assert os.waitpid(child, 0)[1] == 0
    call(cu.cuMemAlloc, 512)


def threads_share_the_device() -> None:
    start()
    scale = function(b"scale")
    wrong: list[float] = []

    def work(value: float) -> None:
        start()
        stream = call(cu.cuStreamCreate, 1)
        for _ in range(20):
            x = int(call(cu.cuMemAlloc, 4096))
            write(x, np.full(1024, value, np.float32))
            launch(scale, stream, (x, x, 2.0, 1024))
            call(cu.cuStreamSynchronize, stream)
            if not np.all(read(x, 1024) == 2 * value):
                wrong.append(value)
            call(cu.cuMemFree, x)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert used_bytes() == 0


if __name__ == "__main__":
    globals()[sys.argv[1]]()
