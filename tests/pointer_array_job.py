"""A job with a kernel that follows an array of pointers in the GPU's memory.

It uses the driver alone, and runs on a real GPU as on the simulated one.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np

from transit.examples import layers

ROWS, ROW_FLOATS, THREADS = 4, 1 << 19, 256
STEPS, LAUNCHES_PER_STEP = 6, 2
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry gather_rows(
    .param .u64 gather_rows_param_0,
    .param .u64 gather_rows_param_1,
    .param .u64 gather_rows_param_2,
    .param .u64 gather_rows_param_3
)
{
    .reg .pred %p<2>;
    .reg .f32 %f<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [gather_rows_param_0];
    ld.param.u64 %rd2, [gather_rows_param_1];
    ld.param.u64 %rd3, [gather_rows_param_2];
    ld.param.u64 %rd4, [gather_rows_param_3];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd5, %r4;
    mul.lo.u64 %rd6, %rd3, %rd4;
    setp.ge.u64 %p1, %rd5, %rd6;
    @%p1 ret;
    div.u64 %rd7, %rd5, %rd4;
    rem.u64 %rd8, %rd5, %rd4;
    shl.b64 %rd9, %rd7, 3;
    add.s64 %rd10, %rd2, %rd9;
    ld.u64 %rd11, [%rd10];
    shl.b64 %rd12, %rd8, 2;
    add.s64 %rd13, %rd11, %rd12;
    ld.f32 %f1, [%rd13];
    shl.b64 %rd14, %rd5, 2;
    add.s64 %rd15, %rd1, %rd14;
    st.f32 [%rd15], %f1;
    ret;
}
"""


def main() -> None:
    """Gather the rows some times, as many iterations."""
    path = os.environ.get("CUDA_INJECTION64_PATH")
    recorder = ctypes.CDLL(path) if path else None
    if recorder:
        recorder.transit_recorder_expect_iterations()
    gpu = layers.Gpu(PTX)
    rows = [gpu.alloc(ROW_FLOATS) for _ in range(ROWS)]
    for value, row in enumerate(rows):
        gpu.upload(row, np.full(ROW_FLOATS, value, np.float32))
    pointers = gpu.alloc(ROWS * 2)
    addresses = np.array([row.address for row in rows], np.uint64)
    gpu.upload(pointers, addresses.view(np.float32))
    gathered = gpu.alloc(ROWS, ROW_FLOATS)
    grid = (ROWS * ROW_FLOATS // THREADS, 1)
    arguments = (
        (gathered.address, ctypes.c_void_p),
        (pointers.address, ctypes.c_void_p),
        (ROWS, ctypes.c_size_t),
        (ROW_FLOATS, ctypes.c_size_t),
    )
    for step in range(STEPS):
        for _ in range(LAUNCHES_PER_STEP):
            gpu.launch("gather_rows", grid, (THREADS, 1), *arguments)
        if recorder:
            recorder.transit_recorder_iteration_end(step + 1)
    values = gpu.download(gathered)
    assert all((values[i] == i).all() for i in range(ROWS)), "wrong rows"


if __name__ == "__main__":
    main()
