"""What a recording of a real GPU knows beyond launches: labels, tensor maps."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import RunTransit

from transit.traces.reader import Trace

pytestmark = pytest.mark.gpu

# No two of the product's three tensors are of the same size.
TRAINED_PRODUCT = """
import torch
model = torch.nn.Linear(4096, 1024, bias=False, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)
for _ in range(6):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""
WEIGHT_BYTES = 4096 * 1024 * 2


@pytest.fixture(scope="module")
def trace(
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Trace:
    """One recording of a small model of PyTorch."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("recorded") / "trace"
    options = ["record", "-o", out, "--skip", "2", "--iterations", "2"]
    job = [sys.executable, "-c", TRAINED_PRODUCT]
    done = run_transit([*options, "--", *job], env=gpu_env)
    assert done.returncode == 0, done.stderr
    return Trace.open(out)


def test_parameters_gradients_and_state_are_labelled(trace: Trace) -> None:
    blocks = trace.table(0, "blocks").to_pylist()
    sizes = {row["label"]: row["bytes"] for row in blocks}
    for label in (
        "weight",
        "weight, gradient",
        "weight, exp_avg",
        "weight, exp_avg_sq",
    ):
        assert sizes[label] == WEIGHT_BYTES
    assert trace.manifest.rank(0).losses.unknown_blocks == 0


def test_a_tensor_map_reaches_from_the_tensors_start_to_its_end(trace: Trace) -> None:
    accesses = trace.table(0, "accesses").to_pylist()
    mapped = [access for access in accesses if access["source"] == "tensor map"]
    if not mapped:
        pytest.skip("no kernel of this job takes a tensor map")
    assert {access["extent"] for access in mapped} == {"exact"}
    (weight,) = {
        (row["allocation_id"], row["offset"], row["bytes"])
        for row in trace.table(0, "blocks").to_pylist()
        if row["label"] == "weight"
    }
    places = {(a["allocation_id"], a["offset"], a["bytes"]) for a in mapped}
    assert weight in places


def test_no_witness_of_a_plain_job_disagrees(trace: Trace) -> None:
    rank = trace.manifest.rank(0)
    assert rank.kernel_launches == rank.kernel_activities > 0
    assert rank.checks.missing_kernel_activities == 0
    assert rank.checks.unseen_allocations == 0
    assert rank.checks.failed_calls == []
    assert rank.checks.missed_inspections == []
    assert rank.checks.hooked_launches == rank.checks.recorded_launches


def test_the_doctor_finds_this_machine_well(
    run_transit: RunTransit, gpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    done = run_transit(["doctor", "--json"], env=gpu_env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    findings = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    for check in ("launches", "kernel times", "managed memory"):
        assert findings[check]["verdict"] == "ok", findings[check]
