"""What libtransit_recorder.so says of tensor maps, on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from recorder_jobs import FROM_PARAMETER, FROM_TENSOR_MAP, UNKNOWN, Jobs, accesses_of

FLOAT32, U4, U6 = 7, 13, 15

TENSORS = """
PTX = b'''.version 9.0 .target sm_90 .address_size 64
.visible .entry scale_tensor(.param .f32 a, .param .align 128 .b8 tensor[128]) { ret; }
\\0'''
driver = ctypes.CDLL("libcuda.so.1")

class Arguments:
    "A parameter block: a float, and at byte 128 the 128 of a tensor map."
    def __init__(self):
        self.memory = ctypes.create_string_buffer(384)
        self.start = -(-ctypes.addressof(self.memory) // 128) * 128
        self.factor = ctypes.c_float(2.0)

    def encode(self, address, dims, strides, kind=7, interleave=0):
        ones = (ctypes.c_uint32 * 5)(*[1] * 5)
        result = driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.start), kind, len(dims), ctypes.c_void_p(address),
            (ctypes.c_uint64 * 5)(*dims), (ctypes.c_uint64 * 5)(*strides), ones, ones,
            interleave, 0, 0, 0)
        assert result == 0, result

    def replace(self, address):
        assert driver.cuTensorMapReplaceAddress(
            ctypes.c_void_p(self.start), ctypes.c_void_p(address)) == 0

    def pointers(self):
        return (ctypes.c_void_p * 2)(ctypes.addressof(self.factor), self.start)

    def launch(self, gpu, function):
        pointers = self.pointers()
        call(cu.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu.stream,
             ctypes.addressof(pointers), 0)

gpu = open_gpu()
module = call(cu.cuModuleLoadData, PTX)
function = call(cu.cuModuleGetFunction, module, b"scale_tensor")
"""


def tensor(address: int, size: int) -> set[tuple[int, ...]]:
    return {(address, size, UNKNOWN, FROM_TENSOR_MAP)}


def test_a_tensor_map_is_one_access_of_exact_extent(jobs: Jobs) -> None:
    x, y = jobs.run(
        TENSORS
        + """
x, y = (gpu.alloc(4096) for _ in range(2))
gpu.upload(x, np.ones(4096, np.float32))
gpu.upload(y, np.ones(4096, np.float32))
arguments = Arguments()
arguments.encode(x.address + 16, (10, 3), (64,))
arguments.launch(gpu, function)
arguments.replace(y.address)
arguments.launch(gpu, function)
values = gpu.download(x)
assert values[4:14].tolist() == [2.0] * 10 and values[14:20].tolist() == [1.0] * 6
assert gpu.download(y)[:10].tolist() == [2.0] * 10
print(json.dumps([x.address, y.address]))
"""
    )
    spool = jobs.spool()
    kernels = spool.records["launch"]["launch_id"][2:4].tolist()

    num_bytes = 2 * 64 + 40
    assert accesses_of(spool, kernels[0]) == tensor(x + 16, num_bytes)
    assert accesses_of(spool, kernels[1]) == tensor(y, num_bytes)
    own = np.isin(spool.records["access"]["launch_id"], kernels)
    assert set(spool.records["access"]["param_offset"][own]) == {128}


def test_a_launch_that_is_made_again_knows_new_tensor_maps(jobs: Jobs) -> None:
    x = jobs.run(
        TENSORS
        + """
x = gpu.alloc(64).address
arguments, same = Arguments(), Arguments()
arguments.encode(x, (16,), ())
ctypes.c_uint64.from_address(arguments.start + 24).value = 8  # its size: nobody's now
arguments.launch(gpu, function)
same.encode(x, (8,), ())
assert ctypes.string_at(same.start, 128) == ctypes.string_at(arguments.start, 128)
arguments.launch(gpu, function)
gpu.synchronize()
print(json.dumps(x))
"""
    )
    spool = jobs.spool()

    assert accesses_of(spool, 0) == set()
    assert accesses_of(spool, 1) == tensor(x, 32)


def test_threads_encode_tensor_maps_while_others_launch(jobs: Jobs) -> None:
    places = jobs.run(
        TENSORS
        + """
from threading import Thread
context = call(cu.cuCtxGetCurrent)
places = [gpu.alloc(4096).address for _ in range(4)]

def work(place):
    call(cu.cuCtxSetCurrent, context)
    arguments = Arguments()
    for i in range(200):
        arguments.encode(place + 16 * i, (4,), ())
        arguments.launch(gpu, function)

threads = [Thread(target=work, args=(place,)) for place in places]
for thread in threads: thread.start()
for thread in threads: thread.join()
gpu.synchronize()
print(json.dumps(places))
"""
    )
    accesses = jobs.spool().records["access"]

    fields = accesses[["address", "bytes", "direction", "source"]].tolist()
    assert sorted(fields) == sorted(
        field
        for place in places
        for i in range(200)
        for field in tensor(place + 16 * i, 16)
    )


def test_the_extent_follows_from_type_and_strides(jobs: Jobs) -> None:
    shapes: list[tuple[Any, ...]] = [
        ((100,), (), FLOAT32, 0, 400),
        ((8, 4, 2), (64, 4096), FLOAT32, 0, 32 + 3 * 64 + 4096),
        ((7, 2), (16,), U4, 0, 4 + 16),
        ((128,), (), U6, 0, 96),
        ((8, 4, 2), (64, 4096), FLOAT32, 1, 0),  # interleaved: not known
        ((8,), (), 99, 0, 0),  # a type from the future
        ((2, 1, 1 << 32), (16, 1 << 39), FLOAT32, 0, 0),  # beyond 64 bits
    ]
    x = jobs.run(
        TENSORS
        + f"""
x = gpu.alloc(1 << 18).address
for dims, strides, kind, interleave, _ in {shapes!r}:
    arguments = Arguments()
    arguments.encode(x, dims, strides, kind, interleave)
    arguments.launch(gpu, function)
    gpu.synchronize()
print(json.dumps(x))
"""
    )
    spool = jobs.spool()

    for launch_id, shape in enumerate(shapes):
        assert accesses_of(spool, launch_id) == tensor(x, shape[-1]), shape


def test_a_tensor_map_in_a_graph_is_known(jobs: Jobs) -> None:
    x = jobs.run(
        TENSORS
        + """
x = gpu.alloc(64).address
arguments = Arguments()
arguments.encode(x, (8,), ())
mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
call(cu.cuStreamBeginCapture, gpu.stream, mode)
arguments.launch(gpu, function)
graph = call(cu.cuStreamEndCapture, gpu.stream)
call(cu.cuGraphLaunch, call(cu.cuGraphInstantiate, graph, 0), gpu.stream)
gpu.synchronize()
print(json.dumps(x))
"""
    )
    accesses = jobs.spool().records["graph_access"]

    fields = accesses[["address", "bytes", "direction", "source"]].tolist()
    assert set(fields) == tensor(x, 32)


def test_bytes_that_nobody_encoded_are_scanned_as_words(jobs: Jobs) -> None:
    x = jobs.run(
        TENSORS
        + """
x = gpu.alloc(64).address
arguments = Arguments()
arguments.encode(x, (8,), ())
ctypes.c_uint64.from_address(arguments.start + 120).value = x + 8
arguments.launch(gpu, function)
arguments.encode(0x10000, (1,), ())  # in no memory of the job
cu.cuStreamSynchronize(gpu.stream)
arguments.launch(gpu, function)
cu.cuStreamSynchronize(gpu.stream)
print(json.dumps(x))
"""
    )
    spool = jobs.spool()

    assert accesses_of(spool, 0) == {(x + 8, 0, UNKNOWN, FROM_PARAMETER)}
    assert accesses_of(spool, 1) == set()
