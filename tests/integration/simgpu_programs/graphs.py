"""Programs that capture, change and launch graphs."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from driver_client import (
    PAGE_BYTES,
    call,
    fails_with,
    function,
    launch,
    managed,
    read,
    start,
    write,
)


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
