"""What libtransit_recorder.so says of CUDA graphs, on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from recorder_jobs import (
    COPY,
    FROM_COPY,
    FROM_PARAMETER,
    FROM_SET,
    GRAPH,
    KERNEL,
    READ,
    SET,
    UNKNOWN,
    WRITE,
    Jobs,
)

from transit.recorder.spool import Spool

GRAPHS = """
def capture(gpu, work):
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    call(cu.cuStreamBeginCapture, gpu.stream, mode)
    work()
    return call(cu.cuStreamEndCapture, gpu.stream)

def run(gpu, executable):
    call(cu.cuGraphLaunch, executable, gpu.stream)
    gpu.synchronize()

def nodes(graph):
    return cu.cuGraphGetNodes(graph, cu.cuGraphGetNodes(graph)[2])[1]

def change(executable, node, y, x, factor=2.0):
    parameters = call(cu.cuGraphKernelNodeGetParams, node)
    parameters.kernelParams = ((y, x, factor, 64), (
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t))
    call(cu.cuGraphExecKernelNodeSetParams, executable, node, parameters)

gpu = open_gpu()
x, y, z = (gpu.alloc(64).address for _ in range(3))
"""


def states(spool: Spool) -> list[int]:
    """Return which state of a graph each graph launch ran, launch by launch."""
    records = spool.records["graph_launch"]
    launches = spool.records["launch"]
    graphs = launches["launch_id"][launches["kind"] == GRAPH]
    assert records["launch_id"].tolist() == graphs.tolist()
    return list(records["graph"].tolist())


def touched(spool: Spool, graph: int) -> list[set[tuple[int, ...]]]:
    """Return (address, bytes, direction, source) of each access of each node."""
    nodes = spool.records["graph_node"]
    accesses = spool.records["graph_access"]
    found = []
    for node in nodes["node"][nodes["graph"] == graph].tolist():
        own = accesses[accesses["launch_id"] == graph << 32 | node]
        found.append(set(own[["address", "bytes", "direction", "source"]].tolist()))
    return found


def from_kernel(*addresses: int) -> set[tuple[int, ...]]:
    return {(address, 0, UNKNOWN, FROM_PARAMETER) for address in addresses}


def test_nodes_and_what_they_touch(jobs: Jobs) -> None:
    x, y = jobs.run(
        GRAPHS
        + """
def work():
    call(cu.cuMemsetD16Async, y + 32, 7, 50, gpu.stream)
    scale(gpu, y + 8, x, 10)
    call(cu.cuMemcpyDtoDAsync, x, y, 128, gpu.stream)

executable = call(cu.cuGraphInstantiate, capture(gpu, work), 0)
for _ in range(2):
    run(gpu, executable)
print(json.dumps([x, y]))
"""
    )
    spool = jobs.spool()
    nodes, activities = spool.records["graph_node"], spool.records["activity"]

    assert states(spool) == [1, 1]
    assert nodes["graph"].tolist() == [1, 1, 1]
    assert nodes["node"].tolist() == [0, 1, 2]
    assert nodes["kind"].tolist() == [SET, KERNEL, COPY]
    names: Any = spool.names(nodes["name_id"])
    assert names.to_pylist() == ["memset node", "scale", "memcpy node"]
    assert nodes["grid"].tolist() == [[0, 0, 0], [10, 1, 1], [0, 0, 0]]
    assert nodes["block"].tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert touched(spool, 1) == [
        {(y + 32, 100, WRITE, FROM_SET)},
        from_kernel(y + 8, x),
        {(y, 128, READ, FROM_COPY), (x, 128, WRITE, FROM_COPY)},
    ]
    kernel = spool.records["graph_access"][spool.records["graph_access"]["source"] == 1]
    assert kernel["param_offset"].tolist() == [0, 8]
    for correlation_id in spool.records["launch"]["correlation_id"]:
        own = activities[activities["correlation_id"] == correlation_id]
        assert own["graph_node_id"].tolist() == nodes["node_id"].tolist()
    assert len(spool.records["access"]) == 0


def test_a_changed_graph_is_another_state(jobs: Jobs) -> None:
    x, y, z = jobs.run(
        GRAPHS
        + """
graph = capture(gpu, lambda: [scale(gpu, y, x, 64) for _ in range(2)])
executable = call(cu.cuGraphInstantiate, graph, 0)
first, second = nodes(graph)
run(gpu, executable)
change(executable, second, y, x, factor=5.0)
run(gpu, executable)
change(executable, second, z, x)
run(gpu, executable)
other = capture(gpu, lambda: [scale(gpu, x, z, 64) for _ in range(2)])
call(cu.cuGraphExecUpdate, executable, other)
run(gpu, executable)
shorter = capture(gpu, lambda: scale(gpu, x, x, 64))
assert cu.cuGraphExecUpdate(executable, shorter)[0] != 0
run(gpu, executable)
print(json.dumps([x, y, z]))
"""
    )
    spool = jobs.spool()

    assert states(spool) == [1, 1, 2, 3, 3]
    assert touched(spool, 1) == [from_kernel(y, x), from_kernel(y, x)]
    assert touched(spool, 2) == [from_kernel(y, x), from_kernel(z, x)]
    assert touched(spool, 3) == [from_kernel(x, z), from_kernel(x, z)]
    nodes = spool.records["graph_node"]
    ids = [nodes["node_id"][nodes["graph"] == graph].tolist() for graph in (1, 2, 3)]
    assert ids[0] == ids[1] == ids[2]
    assert set(ids[0]) == set(spool.records["activity"]["graph_node_id"].tolist())


def test_two_graphs_from_one_have_their_own_nodes(jobs: Jobs) -> None:
    jobs.run(
        GRAPHS
        + """
graph = capture(gpu, lambda: scale(gpu, y, x, 64))
executables = [call(cu.cuGraphInstantiate, graph, 0) for _ in range(2)]
call(cu.cuGraphDestroy, graph)
for executable in executables:
    run(gpu, executable)
call(cu.cuGraphExecDestroy, executables[0])
again = call(cu.cuGraphInstantiate, capture(gpu, lambda: scale(gpu, z, x, 64)), 0)
run(gpu, again)
"""
    )
    spool = jobs.spool()

    assert states(spool) == [1, 2, 3]
    ids = spool.records["graph_node"]["node_id"].tolist()
    assert len(set(ids)) == 3
    assert spool.records["activity"]["graph_node_id"].tolist() == ids


def test_nodes_of_child_graphs_are_nodes(jobs: Jobs) -> None:
    x, y, z = jobs.run(
        GRAPHS
        + """
inner = capture(gpu, lambda: [scale(gpu, y, x, 64), scale(gpu, z, y, 64)])
outer = call(cu.cuGraphCreate, 0)
child = call(cu.cuGraphAddChildGraphNode, outer, None, 0, inner)
call(cu.cuGraphAddChildGraphNode, outer, [child], 1, inner)
run(gpu, call(cu.cuGraphInstantiate, outer, 0))
print(json.dumps([x, y, z]))
"""
    )
    spool = jobs.spool()

    assert touched(spool, 1) == [from_kernel(y, x), from_kernel(z, y)] * 2
    ids = spool.records["graph_node"]["node_id"].tolist()
    assert spool.records["activity"]["graph_node_id"].tolist() == ids
    assert len(set(ids)) == 4
    assert {node_id >> 32 for node_id in ids} == {
        spool.records["activity"]["graph_id"][0]
    }


def test_a_graph_from_before_the_recording_is_known(jobs: Jobs) -> None:
    jobs.run(
        """
recorder.transit_recorder_expect_iterations()
"""
        + GRAPHS
        + """
executable = call(cu.cuGraphInstantiate, capture(gpu, lambda: scale(gpu, y, x, 64)), 0)
for step in range(1, 6):
    run(gpu, executable)
    recorder.transit_recorder_iteration_end(step)
""",
        TRANSIT_SKIP="2",
        TRANSIT_ITERATIONS="2",
    )
    spool = jobs.spool()

    assert states(spool) == [1, 1]
    assert len(touched(spool, 1)[0]) == 2
    assert np.all(spool.records["graph_node"]["node_id"] > 0)
