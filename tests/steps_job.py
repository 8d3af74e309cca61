"""A job that does what a JSON file says, and prints what its memory held.

See `transit`'s tests of windows: ``windowed_plans.py`` writes the file. Steps are done
in order, each on one of two streams; those of ``together`` by a thread each.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from transit.examples import layers
from transit.examples.layers import Gpu, Tensor

PIECE = 2 << 20
BUFFER_POINTER, BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_...
Step = dict[str, Any]


class Job:
    """Buffers of whole pieces, and what can be done with them."""

    def __init__(self, pieces: list[int], num_allocated: int) -> None:
        kernels = Path(layers.__file__).with_name("kernels.ptx").read_bytes()
        self.gpus = [Gpu(kernels), Gpu(kernels)]  # a stream each
        self.digests: list[str] = []
        self.pieces = pieces
        self.kept: list[Any] = []  # what copies read until they are done
        self.buffers: dict[int, int] = {}
        for buffer in range(num_allocated):
            self.alloc(buffer)

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            getattr(self, step["op"])(**{k: v for k, v in step.items() if k != "op"})

    def alloc(self, buffer: int) -> None:
        size = self.pieces[buffer] * PIECE
        self.buffers[buffer] = self.gpus[0].alloc(size // 4).address
        self.upload([buffer, 0, self.pieces[buffer]], buffer)

    def free(self, buffer: int) -> None:
        (error,) = cu.cuMemFree(self.buffers.pop(buffer))
        assert error == cu.CUresult.CUDA_SUCCESS

    def scale(
        self,
        to: list[int],
        source: list[int],
        value: float,
        stream: int = 0,
        stale: list[int] | None = None,
    ) -> None:
        y, x = self._tensor(to), self._tensor(source)
        if stale:
            words = y.address, x.address, value, y.size, self._tensor(stale).address
            self._launch_scale(struct.pack("<QQfxxxxQQ", *words), stream)
            return
        self.gpus[stream].launch(
            *("scale", (1, 1), (1, 1)),
            *((y.address, ctypes.c_void_p), (x.address, ctypes.c_void_p)),
            *((value, ctypes.c_float), (y.size, ctypes.c_size_t)),
        )

    def _launch_scale(self, parameters: bytes, stream: int) -> None:
        """Launch it with a block of parameters, which may be longer than they are."""
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        size = ctypes.c_size_t(len(parameters))
        extra = (ctypes.c_void_p * 5)(
            *(BUFFER_POINTER, ctypes.addressof(buffer)),
            *(BUFFER_SIZE, ctypes.addressof(size), 0),
        )
        gpu = self.gpus[stream]
        shape = 1, 1, 1, 1, 1, 1, 0, gpu.stream, 0, ctypes.addressof(extra)
        (error,) = cu.cuLaunchKernel(gpu._function("scale"), *shape)
        assert error == cu.CUresult.CUDA_SUCCESS, error

    def fill(self, to: list[int], value: float, stream: int = 0) -> None:
        y = self._tensor(to)
        self.gpus[stream].launch(
            *("fill", (1, 1), (1, 1), (y.address, ctypes.c_void_p)),
            *((value, ctypes.c_float), (y.size, ctypes.c_size_t)),
        )

    def zero(self, to: list[int], stream: int = 0) -> None:
        self.gpus[stream].zero(self._tensor(to))

    def upload(self, to: list[int], seed: int, stream: int = 0) -> None:
        tensor = self._tensor(to)
        random = np.random.default_rng(seed).random(tensor.size, np.float32)
        self.kept.append(random)
        self.gpus[stream].upload(tensor, random)

    def copy(self, to: list[int], source: list[int], stream: int = 0) -> None:
        y, x = self._tensor(to), self._tensor(source)
        handle = self.gpus[stream].stream
        (error,) = cu.cuMemcpyDtoDAsync(y.address, x.address, y.size * 4, handle)
        assert error == cu.CUresult.CUDA_SUCCESS, error

    def download(self, source: list[int], stream: int = 0) -> None:
        values = self.gpus[stream].download(self._tensor(source))
        self.digests.append(hashlib.sha256(values.tobytes()).hexdigest()[:16])

    def ask(self, of: list[int], in_one_call: bool) -> None:
        """Ask what frameworks ask of an address before a launch that names it."""
        address = self._tensor(of).address
        kinds = [
            cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ]
        if in_one_call:
            error, told = cu.cuPointerGetAttributes(len(kinds), kinds, address)
            assert error == cu.CUresult.CUDA_SUCCESS, error
        else:
            answers = [cu.cuPointerGetAttribute(kind, address) for kind in kinds]
            assert all(error == cu.CUresult.CUDA_SUCCESS for error, _ in answers)
            told = [value for _, value in answers]
        device_memory = int(cu.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        assert [int(value) for value in told] == [address, device_memory, 0], told

    def synchronize(self) -> None:
        for gpu in self.gpus:
            gpu.synchronize()
        self.kept.clear()

    def order(self, stream: int) -> None:
        """Let what a stream does from now on wait for what the other one has to do."""
        error, event = cu.cuEventCreate(0)
        assert error == cu.CUresult.CUDA_SUCCESS, error
        (error,) = cu.cuEventRecord(event, self.gpus[1 - stream].stream)
        assert error == cu.CUresult.CUDA_SUCCESS, error
        (error,) = cu.cuStreamWaitEvent(self.gpus[stream].stream, event, 0)
        assert error == cu.CUresult.CUDA_SUCCESS, error
        (error,) = cu.cuEventDestroy(event)
        assert error == cu.CUresult.CUDA_SUCCESS, error

    def repeat(self, count: int, steps: list[Step]) -> None:
        for _ in range(count):
            self.run(steps)

    def print_memory(self) -> None:
        """Say how much memory the process has that is its alone."""
        (line,) = (
            line
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("RssAnon:")
        )
        print(line, file=sys.stderr)

    def print_counters(self) -> None:
        """Say what the simulated GPU counted: its `Counters`, in turn."""
        counters = (ctypes.c_uint64 * 16)()
        self.synchronize()
        ctypes.CDLL("libcuda.so.1").simgpu_get_counters(counters)
        print("counters:", *counters, file=sys.stderr)

    def capture(self, steps: list[Step]) -> None:
        """Record a graph, and launch it."""
        self.gpus[0].begin_capture()
        self.run(steps)
        self.gpus[0].run(self.gpus[0].end_capture())

    def renew_stream(self) -> None:
        """Destroy the second stream with its work on the way, and make another."""
        gpu = self.gpus[1]
        (error,) = cu.cuStreamDestroy(gpu.stream)
        assert error == cu.CUresult.CUDA_SUCCESS
        error, gpu.stream = cu.cuStreamCreate(0)
        assert error == cu.CUresult.CUDA_SUCCESS

    def together(self, threads: list[list[Step]]) -> None:
        failures: list[BaseException] = []
        _, context = cu.cuCtxGetCurrent()

        def work(steps: list[Step]) -> None:
            try:
                cu.cuCtxSetCurrent(context)
                self.run(steps)
            except BaseException as error:
                failures.append(error)

        started = [threading.Thread(target=work, args=[steps]) for steps in threads]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        assert not failures, failures

    def _tensor(self, part: list[int]) -> Tensor:
        buffer, first_piece, num_pieces = part
        size = num_pieces * PIECE // 4
        address = self.buffers[buffer] + first_piece * PIECE
        return Tensor(address, (size,), size)


def main() -> None:
    """Do all steps, then read every buffer."""
    description = json.loads(Path(sys.argv[1]).read_text())
    job = Job(description["pieces"], description["allocated"])
    job.run(description["steps"])
    job.synchronize()
    for buffer in sorted(job.buffers):
        job.download([buffer, 0, job.pieces[buffer]])
    print(json.dumps(job.digests))


if __name__ == "__main__":
    main()
