"""Programs whose work waits in streams."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver as cu
from driver_client import (
    PAGE_BYTES,
    PTX,
    call,
    fails_with,
    function,
    launch,
    read,
    start,
    used_bytes,
)


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
