"""Programs about the driver as a whole: symbols, faults, forks and threads."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
from cuda.bindings import driver as cu
from driver_client import (
    call,
    fails_with,
    function,
    launch,
    read,
    start,
    used_bytes,
    write,
)


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
