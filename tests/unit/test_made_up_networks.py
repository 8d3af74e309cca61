from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_up import squeezing_convolutions, transformer
from networks import Network
from tensor_lists_factory import HARDWARE

from transit.compiler import iteration
from transit.compiler.lifetimes import job_peak_bytes
from transit.traces.imports import tensor_lists
from transit.traces.imports.tensors import import_tensors
from transit.traces.reader import Trace

MIB = 1 << 20
NETWORKS = {
    "transformer": transformer(batch=2, layers=2),
    "convolutions": squeezing_convolutions(batch=2, blocks=(2, 1)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_peak_and_duration_are_as_asked_for(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    hardware = json.dumps(HARDWARE)
    peak = 64 << 30  # so that no tensor that counts is small
    network.write(tmp_path / "lists", peak_bytes=peak, seconds=2.0, hardware=hardware)
    import_tensors(tmp_path / "lists", tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert job_peak_bytes(trace) == pytest.approx(peak, rel=0.02)
    assert iteration.find(trace, 0).duration_ns.sum() == pytest.approx(2e9, rel=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_is_read_before_it_is_written(name: str, tmp_path: Path) -> None:
    network: Network = NETWORKS[name]
    network.write(tmp_path / "x", peak_bytes=1 << 30, seconds=1.0, hardware="{}")
    lists = tensor_lists.read(tmp_path / "x")
    roles = np.array(lists.tensors["role"].to_pylist())
    writes = lists.kernel[lists.writes], lists.tensor[lists.writes]
    written_at = np.full(len(roles), len(network.kernels))
    np.minimum.at(written_at, writes[1], writes[0])
    reads = lists.kernel[lists.reads], lists.tensor[lists.reads]
    made = np.isin(roles[reads[1]], ["weight", "input"], invert=True)
    assert (written_at[reads[1]] <= reads[0])[made].all()
    # Every weight is updated by its gradient, at the end.
    updates = [kernel for kernel in network.kernels if kernel.name == "Update"]
    assert network.kernels[-len(updates) :] == updates
    updated = {kernel.writes[0].index for kernel in updates}
    assert updated == set(np.flatnonzero(roles == "weight").tolist())
