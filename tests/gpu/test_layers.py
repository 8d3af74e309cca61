"""The small cuda-python job on a real GPU: the PTX the simulated GPU also runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from transit.traces.reader import Trace

pytestmark = pytest.mark.gpu

LAYERS = [sys.executable, str(files("transit.examples") / "layers.py")]
RunTransit = Callable[..., subprocess.CompletedProcess[str]]


def last_line(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("options", [[], ["--graph"]])
def test_layers_train_the_same_under_zero_copy(
    backend: str,
    options: list[str],
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    plain = subprocess.run(
        LAYERS, env=gpu_env, capture_output=True, text=True, timeout=120
    )
    assert plain.returncode == 0, plain.stderr
    job = [*LAYERS, *options]
    trace, plan = tmp_path / "trace", tmp_path / "plan.json"
    record = run_transit(["record", "-o", trace, "--", *job], env=gpu_env)
    assert record.returncode == 0, record.stderr
    assert last_line(record.stdout) == last_line(plain.stdout)
    budget = ["--gpu-memory", "80%", "--policy", "advise", "--json"]
    compiled = run_transit(["compile", trace, *budget, "-o", plan], env=gpu_env)
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["zero_copy_bytes"] > 0
    replay = run_transit(
        ["replay", "--plan", plan, "--backend", backend, "--strict", "--", *job],
        env=gpu_env,
    )
    assert replay.returncode == 0, replay.stderr
    assert last_line(replay.stdout) == last_line(plain.stdout)


def test_every_node_of_a_graph_has_its_time_and_accesses(
    run_transit: RunTransit, gpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    job = [*LAYERS, "--graph", "--layers", "2", "--steps", "4"]
    record = run_transit(["record", "-o", trace, "--", *job], env=gpu_env)
    assert record.returncode == 0, record.stderr
    nodes = Trace.open(trace).table(0, "graph_nodes").to_pylist()
    assert len(nodes) == 3 * 16
    assert all(node["start_ns"] < node["end_ns"] for node in nodes)
    accesses = Trace.open(trace).table(0, "accesses").to_pylist()
    named = {(access["launch_id"], access["graph_node"]) for access in accesses}
    assert {(node["launch_id"], node["graph_node"]) for node in nodes} <= named


TORCH_GRAPH = """
import torch
model = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
x = torch.randn(64, 512, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(5):
    graph.replay()
torch.cuda.synchronize()
"""


def test_a_graph_of_torch_is_recorded_by_its_nodes(
    run_transit: RunTransit, gpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    trace = tmp_path / "trace"
    job = [sys.executable, "-c", TORCH_GRAPH]
    record = run_transit(["record", "-o", trace, "--", *job], env=gpu_env)
    assert record.returncode == 0, record.stderr
    launches = Trace.open(trace).table(0, "launches").to_pylist()
    graphs = [launch for launch in launches if launch["kind"] == "graph"]
    assert len({launch["signature"] for launch in graphs}) == 1
    nodes = Trace.open(trace).table(0, "graph_nodes").to_pylist()
    assert len(graphs) == 5
    assert len(nodes) > 5 * 5
    assert all(node["start_ns"] is not None for node in nodes)
    assert Trace.open(trace).manifest.ranks[0].losses.unmatched_activities == 0
