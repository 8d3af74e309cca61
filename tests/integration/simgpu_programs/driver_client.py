"""The driver's calls, as the programs use them."""

from __future__ import annotations

import ctypes
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
            "most_used_bytes",
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
