"""Launches one kernel, and moves one managed page to the GPU and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import resources
from typing import Any

from cuda.bindings import driver as cuda

PAGE_BYTES = 4096
FLOATS = PAGE_BYTES // 4
MOVES_PAGES = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS


def main() -> None:
    """Do it, and check the numbers."""
    _call(cuda.cuInit, 0)
    device = _call(cuda.cuDeviceGet, 0)
    _call(cuda.cuCtxSetCurrent, _call(cuda.cuDevicePrimaryCtxRetain, device))
    kernels = resources.files("transit.examples").joinpath("kernels.ptx").read_bytes()
    fill = _call(
        cuda.cuModuleGetFunction, _call(cuda.cuModuleLoadData, kernels), b"fill"
    )
    memory = _call(cuda.cuMemAlloc, PAGE_BYTES)
    _launch(fill, int(memory), 1.0)
    _call(cuda.cuMemFree, memory)
    print("the kernel ran", flush=True)
    _move_a_page(fill, device)


def _move_a_page(fill: Any, device: Any) -> None:
    if not _call(cuda.cuDeviceGetAttribute, MOVES_PAGES, device):
        raise SystemExit("this GPU does not move managed memory by itself")
    attach = cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    page = int(_call(cuda.cuMemAllocManaged, PAGE_BYTES, attach))
    ctypes.memset(page, 0, PAGE_BYTES)
    on_device, on_host = cuda.CUmemLocation(), cuda.CUmemLocation()
    on_device.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    on_device.id = int(device)
    on_host.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    _prefetch(page, on_device)
    _launch(fill, page, 2.0)
    _prefetch(page, on_host)
    if ctypes.c_float.from_address(page).value != 2.0:
        raise SystemExit("the GPU's writes to managed memory did not arrive")
    _prefetch(page, on_device)
    _call(cuda.cuMemFree, page)


def _prefetch(page: int, place: Any) -> None:
    # In the bindings of CUDA 12 the name alone is an older function.
    prefetch = getattr(cuda, "cuMemPrefetchAsync_v2", cuda.cuMemPrefetchAsync)
    _call(prefetch, page, PAGE_BYTES, place, 0, 0)
    _call(cuda.cuCtxSynchronize)


def _launch(fill: Any, address: int, value: float) -> None:
    values = (address, value, FLOATS)
    types = (ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t)
    grid, block = (FLOATS // 256, 1, 1), (256, 1, 1)
    _call(cuda.cuLaunchKernel, fill, *grid, *block, 0, 0, (values, types), 0)
    _call(cuda.cuCtxSynchronize)


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    error, *results = function(*arguments)
    if error != cuda.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{function.__name__} failed: {error.name}")
    return results[0] if results else None


if __name__ == "__main__":
    main()
