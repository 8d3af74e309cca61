"""A job that runs a CUDA graph is recorded, compiled and replayed as any other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from simulated_job import layers, parameter_hash, plain_hash

from transit.traces.reader import Trace

LAYERS, STEPS = 3, 6
NODES = [
    *["memset node"] * LAYERS,
    *["matmul", "tanh_forward"] * LAYERS,
    *["scale", "mse_gradient"],
    *["tanh_backward", "matmul", "matmul"] * LAYERS,
    *["adam"] * LAYERS,
]


@dataclass(frozen=True)
class Recorded:
    trace: Path
    job: list[str]
    plain_hash: str


@pytest.fixture(scope="module")
def recorded(
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    eager = layers(steps=STEPS)
    plain = plain_hash(eager, simgpu_env)
    job = [*eager, "--graph"]
    traces = {"graph": job, "eager": eager}
    for name, command in traces.items():
        options = ["-o", folder / name, "--simulated-gpu"]
        done = run_transit(["record", *options, "--", *command])
        assert done.returncode == 0, done.stderr
        assert parameter_hash(done.stdout) == plain
    return Recorded(folder / "graph", job, plain)


def rows(recorded: Recorded, table: str) -> list[dict[str, Any]]:
    return Trace.open(recorded.trace).table(0, table).to_pylist()


def test_every_step_but_the_first_is_one_launch(recorded: Recorded) -> None:
    launches = rows(recorded, "launches")
    graphs = [launch for launch in launches if launch["kind"] == "graph"]
    assert len(graphs) == STEPS - 1
    assert len({launch["signature"] for launch in graphs}) == 1
    assert len({launch["correlation_id"] for launch in graphs}) == STEPS - 1
    first_graph = launches.index(graphs[0])
    assert sum(launch["kind"] == "kernel" for launch in launches[first_graph:]) == 0


def test_the_nodes_are_the_step(recorded: Recorded) -> None:
    launches = {launch["launch_id"]: launch for launch in rows(recorded, "launches")}
    nodes = rows(recorded, "graph_nodes")
    eager = [
        launch["signature"] for launch in launches.values() if launch["name"] == "adam"
    ]
    for start in range(0, len(nodes), len(NODES)):
        step = nodes[start : start + len(NODES)]
        launch = launches[step[0]["launch_id"]]
        assert [node["name"] for node in step] == NODES
        assert [node["graph_node"] for node in step] == list(range(len(NODES)))
        assert launch["graph_id"] is not None
        assert launch["start_ns"] == step[0]["start_ns"]
        assert launch["end_ns"] == step[-1]["end_ns"]
        for before, after in pairwise(step):
            assert before["start_ns"] < before["end_ns"] <= after["start_ns"]
        assert [node["signature"] for node in step[-LAYERS:]] == eager
    assert len(nodes) == len(NODES) * (STEPS - 1)


def test_accesses_are_those_of_the_eager_step(recorded: Recorded) -> None:
    def touched(trace: Path, step: slice) -> list[tuple[Any, ...]]:
        """Return allocation, bytes and direction in the order of the step."""
        accesses = Trace.open(trace).table(0, "accesses").to_pylist()
        launches = Trace.open(trace).table(0, "launches").to_pylist()
        order = [launch["launch_id"] for launch in launches][step]
        return sorted(
            (
                order.index(access["launch_id"]) + (access["graph_node"] or 0),
                access["allocation_id"],
                access["bytes"],
                access["direction"],
            )
            for access in accesses
            if access["launch_id"] in order
        )

    graphs = [
        r["launch_id"] for r in rows(recorded, "launches") if r["kind"] == "graph"
    ]
    found = touched(recorded.trace, slice(graphs[1], graphs[1] + 1))
    eager = recorded.trace.with_name("eager")
    # An upload before each step, a download after it.
    end = graphs[0] + len(NODES)
    assert found == touched(eager, slice(graphs[0], end))


def test_show_counts_the_kernels_in_graphs(
    recorded: Recorded, run_transit: RunTransit
) -> None:
    done = run_transit(["show", recorded.trace, "--json"])
    assert done.returncode == 0, done.stderr
    kernels = {row["name"]: row for row in json.loads(done.stdout)["kernels"]}
    assert kernels["adam"]["launches"] == LAYERS * STEPS
    assert kernels["matmul"]["total_ns"] > 0
    assert "cuGraphLaunch" not in kernels


@pytest.mark.parametrize("backend", ["vmm", "uvm"])
def test_replay_enacts_the_plan_and_keeps_the_numbers(
    backend: str, recorded: Recorded, run_transit: RunTransit, tmp_path: Path
) -> None:
    placements = {}
    for name in ("eager", "graph"):
        plan = tmp_path / f"{name}.json"
        trace = recorded.trace.with_name(name)
        done = run_transit(["compile", trace, "-o", plan, "--gpu-memory", "70%"])
        assert done.returncode == 0, done.stderr
        (rank,) = json.loads(plan.read_text())["ranks"]
        placements[name] = [a["placements"] for a in rank["allocations"]]
    # Each node counts with its own time and accesses, as its kernel does alone.
    assert placements["graph"] == placements["eager"]

    status = tmp_path / "status.json"
    options = ["--plan", plan, "--backend", backend, "--status", status, "--strict"]
    done = run_transit(["replay", *options, "--simulated-gpu", "--", *recorded.job])
    assert done.returncode == 0, done.stderr
    assert parameter_hash(done.stdout) == recorded.plain_hash
    (process,) = json.loads(status.read_text())["processes"]
    assert process["graph_launches"] == STEPS - 1
    assert process["zero_copy_peak_bytes"] > 0
    assert process["allocations_unmatched"] == 0
