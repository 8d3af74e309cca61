"""Train a stack of tanh layers with Adam, on the CUDA driver API alone.

Each tensor is one ``cuMemAlloc``, each operation one kernel of ``kernels.ptx``. The job
prints a JSON line per step, then one with the SHA-256 of its parameters, and compares
its numbers with the same training in NumPy: a lost or stale page shows up. With
``--graph``, the second step is captured into a CUDA graph, which then runs all others.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

Array = npt.NDArray[np.float32]

LEARNING_RATE = 1e-3
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
TARGET_SCALE = 0.5  # the task: learn to halve the input
# float32 sums in another order, amplified by Adam's division by small numbers; a page
# that missed one update is off by far more.
TOLERANCE = 1e-3
CHEAP_CHECK_FLOPS = 2e11  # a few seconds of NumPy


class Gpu:
    """One device: its context, one stream, the kernels, and memory."""

    def __init__(self, ptx: bytes) -> None:
        _call(cu.cuInit, 0)
        self.device = _call(cu.cuDeviceGet, 0)
        _call(cu.cuCtxSetCurrent, _call(cu.cuDevicePrimaryCtxRetain, self.device))
        self.stream = _call(cu.cuStreamCreate, 0)
        self._module = _call(cu.cuModuleLoadData, ptx + b"\0")
        self._functions: dict[str, Any] = {}
        self._allocations: list[int] = []

    def alloc(self, *shape: int) -> Tensor:
        """Allocate an uninitialised float32 tensor of its own."""
        size = int(np.prod(shape))
        address = int(_call(cu.cuMemAlloc, size * 4))
        self._allocations.append(address)
        return Tensor(address, shape, size)

    def upload(self, tensor: Tensor, values: Array) -> None:
        """Copy a C-contiguous host array to the device, in stream order."""
        source = values.ctypes.data
        _call(cu.cuMemcpyHtoDAsync, tensor.address, source, values.nbytes, self.stream)

    def download(self, tensor: Tensor) -> Array:
        """Wait for the stream and return the tensor's values."""
        values = np.empty(tensor.shape, np.float32)
        self.synchronize()
        _call(cu.cuMemcpyDtoH, values.ctypes.data, tensor.address, values.nbytes)
        return values

    def zero(self, tensor: Tensor) -> None:
        """Set every byte to zero, in stream order."""
        _call(cu.cuMemsetD32Async, tensor.address, 0, tensor.size, self.stream)

    def launch(
        self,
        name: str,
        grid: tuple[int, int],
        block: tuple[int, int],
        *arguments: tuple[Any, Any],
    ) -> None:
        """Launch a kernel with ``(value, ctype)`` arguments."""
        parameters = tuple(zip(*arguments, strict=True))
        shape = (*grid, 1, *block, 1, 0, self.stream)
        _call(cu.cuLaunchKernel, self._function(name), *shape, parameters, 0)

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = _call(
                cu.cuModuleGetFunction, self._module, name.encode()
            )
        return self._functions[name]

    def begin_capture(self) -> None:
        """From now on the stream records into a graph, and runs nothing."""
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _call(cu.cuStreamBeginCapture, self.stream, mode)

    def captured_node(self) -> Any:
        """Return the graph node that was recorded last."""
        return _call(cu.cuStreamGetCaptureInfo, self.stream)[3][0]

    def end_capture(self) -> Any:
        """Return what was recorded, ready to run."""
        graph = _call(cu.cuStreamEndCapture, self.stream)
        return _call(cu.cuGraphInstantiate, graph, 0)

    def change(self, graph: Any, node: Any, *arguments: tuple[Any, Any]) -> None:
        """Give a kernel of a graph other arguments from its next launch on."""
        parameters = _call(cu.cuGraphKernelNodeGetParams, node)
        parameters.kernelParams = tuple(zip(*arguments, strict=True))
        _call(cu.cuGraphExecKernelNodeSetParams, graph, node, parameters)

    def run(self, graph: Any) -> None:
        """Launch a graph, in stream order."""
        _call(cu.cuGraphLaunch, graph, self.stream)

    def synchronize(self) -> None:
        """Wait until everything on the stream is done."""
        _call(cu.cuStreamSynchronize, self.stream)

    def close(self) -> None:
        """Free everything, in the reverse order."""
        for address in reversed(self._allocations):
            _call(cu.cuMemFree, address)
        _call(cu.cuModuleUnload, self._module)
        _call(cu.cuStreamDestroy, self.stream)
        _call(cu.cuDevicePrimaryCtxRelease, self.device)


@dataclass(frozen=True)
class Tensor:
    """A float32 tensor on the device."""

    address: int
    shape: tuple[int, ...]
    size: int


def _call(function: Any, *arguments: Any) -> Any:
    """Call the driver; return its result, or end with the name of its error."""
    error, *results = function(*arguments)
    if error != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__} failed: {error.name}")
    return results[0] if len(results) == 1 else results


def _pointers(*tensors: Tensor) -> list[tuple[Any, Any]]:
    return [(tensor.address, ctypes.c_void_p) for tensor in tensors]


def _ints(*values: int) -> list[tuple[Any, Any]]:
    return [(value, ctypes.c_int) for value in values]


def _floats(*values: float) -> list[tuple[Any, Any]]:
    return [(value, ctypes.c_float) for value in values]


def _size(tensor: Tensor) -> tuple[Any, Any]:
    return (tensor.size, ctypes.c_size_t)


def _elementwise(gpu: Gpu, name: str, size: int, *arguments: tuple[Any, Any]) -> None:
    block = 256
    gpu.launch(name, (-(-size // block), 1), (block, 1), *arguments)


def _matmul(
    gpu: Gpu,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    accumulate: bool = False,
) -> None:
    (m, n), tile = c.shape, 16
    k = a.shape[0] if trans_a else a.shape[1]
    gpu.launch(
        "matmul",
        (-(-n // tile), -(-m // tile)),
        (tile, tile),
        *_pointers(c, a, b),
        *_ints(m, n, k, trans_a, trans_b, accumulate),
    )


class Layer:
    """``y = tanh(x @ weight)``, with the state Adam keeps for the weight."""

    def __init__(self, gpu: Gpu, weight: Array, batch: int) -> None:
        dim = weight.shape[0]
        self.gpu = gpu
        self.weight, self.gradient, self.m, self.v = (
            gpu.alloc(dim, dim) for _ in range(4)
        )
        self.z, self.y, self.dz, self.dx = (gpu.alloc(batch, dim) for _ in range(4))
        gpu.upload(self.weight, weight)
        for moment in (self.m, self.v):
            arguments = *_pointers(moment), *_floats(0.0), _size(moment)
            _elementwise(gpu, "fill", moment.size, *arguments)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        _matmul(self.gpu, self.z, x, self.weight)
        arguments = *_pointers(self.y, self.z), _size(self.y)
        _elementwise(self.gpu, "tanh_forward", self.y.size, *arguments)
        return self.y

    def backward(self, x: Tensor, dy: Tensor) -> Tensor:
        """Add to the weight's gradient and return the input's."""
        arguments = *_pointers(self.dz, self.y, dy), _size(self.y)
        _elementwise(self.gpu, "tanh_backward", self.y.size, *arguments)
        _matmul(self.gpu, self.gradient, x, self.dz, trans_a=True, accumulate=True)
        _matmul(self.gpu, self.dx, self.dz, self.weight, trans_b=True)
        return self.dx

    def update(self, step: int) -> None:
        """Make Adam's step number ``step`` (from 1)."""
        _elementwise(self.gpu, "adam", self.weight.size, *self.adam_arguments(step))

    def adam_arguments(self, step: int) -> list[tuple[Any, Any]]:
        """Return the arguments of `update`'s kernel."""
        return [
            *_pointers(self.weight, self.gradient, self.m, self.v),
            _size(self.weight),
            *_floats(LEARNING_RATE, BETA1, BETA2, EPS),
            *_floats(1 - BETA1**step, 1 - BETA2**step),
        ]


class Network:
    """The layers, and the buffers around them."""

    def __init__(self, gpu: Gpu, weights: list[Array], batch: int) -> None:
        dim = weights[0].shape[0]
        self.gpu = gpu
        self.layers = [Layer(gpu, weight, batch) for weight in weights]
        self.x, self.target, self.dy = (gpu.alloc(batch, dim) for _ in range(3))
        self.loss = gpu.alloc(1)

        self._graph: Any = None
        self._updates: list[Any] = []  # the graph's nodes, by layer

    def train(self, step: int, inputs: Array, *, graph: bool = False) -> float:
        """Make one step and return its loss."""
        self.gpu.upload(self.x, inputs)
        # The first step loads the kernels, which a capture must not.
        if graph and step > 1:
            self._run_graph(step)
        else:
            self._find_gradients()
            for layer in self.layers:
                layer.update(step)
        return float(self.gpu.download(self.loss)[0])

    def _run_graph(self, step: int) -> None:
        if self._graph is None:
            self._capture(step)
        for layer, node in zip(self.layers, self._updates, strict=True):
            self.gpu.change(self._graph, node, *layer.adam_arguments(step))
        self.gpu.run(self._graph)

    def _capture(self, step: int) -> None:
        self.gpu.begin_capture()
        self._find_gradients()
        for layer in self.layers:
            layer.update(step)
            self._updates.append(self.gpu.captured_node())
        self._graph = self.gpu.end_capture()

    def _find_gradients(self) -> None:
        for layer in self.layers:
            self.gpu.zero(layer.gradient)
        activations = [self.x]
        for layer in self.layers:
            activations.append(layer.forward(activations[-1]))
        dy = self._loss_gradient(activations.pop())
        for layer in reversed(self.layers):
            dy = layer.backward(activations.pop(), dy)

    def _loss_gradient(self, y: Tensor) -> Tensor:
        target = *_pointers(self.target, self.x), *_floats(TARGET_SCALE), _size(y)
        _elementwise(self.gpu, "scale", y.size, *target)
        gradient = *_pointers(self.dy, y, self.target, self.loss), _size(y)
        self.gpu.launch("mse_gradient", (1, 1), (256, 1), *gradient)
        return self.dy

    def state(self) -> list[Array]:
        """Return every weight and both of its moments, layer by layer."""
        tensors = [t for layer in self.layers for t in (layer.weight, layer.m, layer.v)]
        return [self.gpu.download(tensor) for tensor in tensors]


def reference(weights: list[Array], batches: list[Array]) -> tuple[list[float], Any]:
    """Train the same network in NumPy; return the losses, and as `Network.state`."""
    weights = [weight.copy() for weight in weights]
    ms, vs = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    losses = []
    for step, x in enumerate(batches, start=1):
        activations = [x]
        for weight in weights:
            activations.append(np.tanh(activations[-1] @ weight))
        difference = activations[-1] - np.float32(TARGET_SCALE) * x
        losses.append(float(np.mean(difference * difference)))
        dy = 2 * difference / np.float32(x.size)
        gradients: list[npt.NDArray[Any]] = []
        layers = list(zip(weights, activations[:-1], activations[1:], strict=True))
        for weight, x_in, y in reversed(layers):
            dz = (1 - y * y) * dy
            gradients.insert(0, x_in.T @ dz)
            dy = dz @ weight.T
        for weight, g, m, v in zip(weights, gradients, ms, vs, strict=True):
            m += (1 - BETA1) * (g - m)
            v += (1 - BETA2) * (g * g - v)
            m_hat, v_hat = m / (1 - BETA1**step), v / (1 - BETA2**step)
            weight -= LEARNING_RATE * m_hat / (np.sqrt(v_hat) + EPS)
    return losses, [t for state in zip(weights, ms, vs, strict=True) for t in state]


def mismatch(
    weights: list[Array], batches: list[Array], losses: list[float], state: list[Array]
) -> str | None:
    """Say how a run differs from NumPy's, beyond float32 rounding."""
    expected_losses, expected_state = reference(weights, batches)
    for step, (loss, expected) in enumerate(zip(losses, expected_losses, strict=True)):
        if not abs(loss - expected) <= TOLERANCE * abs(expected):
            return f"step {step}: loss {loss}, NumPy says {expected}"
    for index, (tensor, expected_tensor) in enumerate(
        zip(state, expected_state, strict=True)
    ):
        layer, kind = divmod(index, 3)
        # Of a weight only what training changed is compared: the rest is the larger
        # part, and would hide an update that was lost.
        start = weights[layer] if kind == 0 else np.float32(0)
        error = np.linalg.norm(tensor - expected_tensor)
        change = np.linalg.norm(expected_tensor - start)
        if not error <= TOLERANCE * change:
            name = ("weight", "first moment", "second moment")[kind]
            return f"layer {layer}: {name} is off by {error / change:.3g} (relative)"
    return None


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=1024, help="width of a layer")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--graph", action="store_true", help="use a CUDA graph")
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="compare with NumPy (default: where that takes seconds)",
    )
    arguments = parser.parse_args()
    for name in ("layers", "dim", "batch", "steps"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if arguments.check is None:
        flops = 6 * arguments.layers * arguments.dim**2
        flops *= arguments.batch * arguments.steps
        arguments.check = flops <= CHEAP_CHECK_FLOPS
    return arguments


def main() -> int:
    """Train, print, check; return the exit code."""
    arguments = _parse_arguments()
    dim, rng = arguments.dim, np.random.default_rng(0)
    weights = [
        rng.standard_normal((dim, dim), np.float32) / np.float32(np.sqrt(dim))
        for _ in range(arguments.layers)
    ]
    batches = [
        rng.standard_normal((arguments.batch, dim), np.float32)
        for _ in range(arguments.steps)
    ]

    gpu = Gpu(Path(__file__).with_name("kernels.ptx").read_bytes())
    network = Network(gpu, weights, arguments.batch)
    losses: list[float] = []
    for step, inputs in enumerate(batches):
        start = time.perf_counter()
        losses.append(network.train(step + 1, inputs, graph=arguments.graph))
        ms = round((time.perf_counter() - start) * 1e3, 3)
        print(json.dumps({"step": step, "loss": losses[-1], "ms": ms}), flush=True)
    state = network.state()
    gpu.close()

    parameters = hashlib.sha256(b"".join(weight.tobytes() for weight in state[::3]))
    problem = mismatch(weights, batches, losses, state) if arguments.check else None
    checked = arguments.check and problem is None
    print(json.dumps({"sha256": parameters.hexdigest(), "checked": checked}))
    if problem is not None:
        print(f"layers: wrong numbers: {problem}", file=sys.stderr)
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
