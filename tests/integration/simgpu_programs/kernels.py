"""Programs that load modules and launch kernels."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver as cu
from driver_client import MIB, PTX, call, fails_with, function, launch, read, start


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
