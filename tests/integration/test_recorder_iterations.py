"""What libtransit_recorder.so records of a job's iterations and its allocator."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest
from recorder_jobs import COMPLETE, ITERATION_END, STARTED, STOPPED, Jobs


def test_skipped_iterations_are_not_recorded(jobs: Jobs) -> None:
    states = jobs.run(
        """
recorder.transit_recorder_expect_iterations()
gpu = open_gpu()
x = gpu.alloc(64).address
states = []
for step in range(1, 8):
    for _ in range(step):
        scale(gpu, x, x, 10)
    recorder.transit_recorder_iteration_end(step)
    states.append(recorder.transit_recorder_state())
y = gpu.alloc(64)
print(json.dumps(states))
""",
        TRANSIT_SKIP="2",
        TRANSIT_ITERATIONS="3",
    )
    spool = jobs.spool()

    assert states == [0, 1, 1, 1, 2, 2, 2]
    assert spool.records["mark"][["kind", "launch_id", "value"]].tolist() == [
        (STARTED, 0, 2),
        (ITERATION_END, 3, 3),
        (ITERATION_END, 7, 4),
        (ITERATION_END, 12, 5),
        (STOPPED, 12, 5),
    ]
    correlation_ids = spool.records["launch"]["correlation_id"].tolist()
    assert len(correlation_ids) == 12
    # There may be more: kernels that were in flight when the recording began.
    assert set(correlation_ids) <= set(spool.records["activity"]["correlation_id"])
    assert len(spool.records["allocation"]) == 1, "the recording was over"


def test_optimizer_steps_become_marks(jobs: Jobs) -> None:
    pytest.importorskip("torch")
    hook = str(files("transit.recorder").joinpath("hook"))
    version = jobs.run(
        """
import torch
gpu = open_gpu()
x = gpu.alloc(64).address
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(6):
    scale(gpu, x, x, 10)
    optimizer.step()
print(json.dumps(torch.__version__))
""",
        PYTHONPATH=f"{hook}:{jobs.python_path}",
        TRANSIT_SKIP="2",
        TRANSIT_ITERATIONS="3",
    )

    spool = jobs.spool()
    (framework,) = spool.records["framework"]
    told = spool.names(np.array([framework["name_id"], framework["version_id"]]))
    assert told.to_pylist() == ["torch", version]
    assert spool.records["mark"][["kind", "launch_id", "value"]].tolist() == [
        (STARTED, 0, 2),
        (ITERATION_END, 1, 3),
        (ITERATION_END, 2, 4),
        (ITERATION_END, 3, 5),
        (STOPPED, 3, 5),
        (COMPLETE, 3, 0),
    ]


def test_blocks_come_from_the_allocators_history(jobs: Jobs) -> None:
    hook = str(files("transit.recorder").joinpath("hook"))
    told = jobs.run(
        f"""
sys.path.insert(0, {hook!r})
from types import SimpleNamespace as Record
import transit_torch_hook
gpu = open_gpu()
library = transit_torch_hook.load_recorder(os.environ["CUDA_INJECTION64_PATH"])
now_us = library.transit_recorder_timestamp_ns() // 1000 + 1
settings, snapshots = [], [
    dict(segments=[dict(device=0, blocks=[
        dict(address=1000, size=64, state="active_allocated"),
        dict(address=1064, size=64, state="inactive")])], device_traces=[[]]),
    dict(segments=[], device_traces=[[
        dict(action="alloc", addr=5, size=512, time_us=now_us - 60_000_000),
        dict(action="alloc", addr=2000, size=512, time_us=now_us + 1_000_000),
        dict(action="free_requested", addr=1000, size=64, time_us=now_us + 2_000_000),
        dict(action="free_completed", addr=1000, size=64, time_us=now_us + 3_000_000),
        dict(action="segment_alloc", addr=7, size=9, time_us=now_us + 3_000_000)]])]
memory = Record(_record_memory_history=lambda **kw: settings.append(kw["enabled"]),
                _snapshot=lambda: snapshots.pop(0))
torch = Record(_C=Record(_cuda_isHistoryEnabled=lambda: False), cuda=Record(
    memory=memory, is_initialized=lambda: True,
    is_current_stream_capturing=lambda: False))
hook = transit_torch_hook.TorchHook(torch, library)
class Optimizer: pass
optimizer = Optimizer()
for _ in range(2):
    hook.on_step(optimizer, (), {{}})
    x = gpu.alloc(64)
print(json.dumps(dict(now_us=now_us, settings=settings)))
""",
        TRANSIT_ITERATIONS="2",
    )
    us = 1000 * told["now_us"]
    blocks = jobs.spool().records["block"]

    assert told["settings"] == ["all", None]
    assert blocks[["action", "address", "bytes", "device"]].tolist() == [
        (3, 1000, 64, 0),
        (1, 2000, 512, 0),
        (2, 1000, 64, 0),
    ]
    assert blocks["host_ns"][1:].tolist() == [us + 10**9, us + 3 * 10**9]
