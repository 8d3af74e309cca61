"""Directions that a recording finds, against operations of which they are known."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import known_directions_job
import numpy as np
import pytest
from conftest import RunTransit
from known_directions_job import OPERATIONS, READ

from transit.traces.reader import Trace

pytestmark = pytest.mark.gpu

# By iteration, operation and tensor: the directions of all its accesses.
Found = dict[int, dict[str, dict[str, set[str]]]]


@pytest.fixture(scope="module")
def recorded(
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Trace, list[dict[str, Any]]]:
    """The trace, and what the job said of its iterations."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("recorded") / "trace"
    options = ["record", "-o", out, "--skip", "2", "--iterations", "3"]
    job = [sys.executable, known_directions_job.__file__]
    done = run_transit([*options, "--", *job], env=gpu_env)
    assert done.returncode == 0, done.stderr
    said = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    return Trace.open(out), said


@pytest.fixture(scope="module")
def found(recorded: tuple[Trace, list[dict[str, Any]]]) -> Found:
    trace, said = recorded
    by_number = {line["iteration"]: line for line in said}
    return {
        row["iteration"]: directions(trace, row, by_number[row["iteration"]])
        for row in trace.table(0, "iterations").to_pylist()
    }


def directions(
    trace: Trace, iteration: dict[str, Any], said: dict[str, Any]
) -> dict[str, dict[str, set[str]]]:
    """Return the directions of each operation's tensors in one iteration."""
    bases = {
        row["allocation_id"]: row["address"]
        for row in trace.table(0, "allocations").to_pylist()
    }
    columns = ["launch_id", "allocation_id", "offset", "direction"]
    accesses = trace.table(0, "accesses", columns).to_pandas()
    inside = accesses["launch_id"].between(
        iteration["first_launch_id"], iteration["last_launch_id"]
    )
    accesses = accesses[inside]
    address = accesses["allocation_id"].map(bases).astype("int64") + accesses["offset"]
    # By its name as well: parameters of other kernels hold left-over addresses.
    launches = trace.table(0, "launches", ["launch_id", "name"]).to_pandas()
    fills = launches["launch_id"][launches["name"].str.contains("FillFunctor")]
    marks = np.intersect1d(
        accesses["launch_id"][address == said["marker"]], fills.to_numpy()
    )
    assert len(marks) == len(OPERATIONS)
    operation = np.searchsorted(marks, accesses["launch_id"]) - 1
    is_mark = accesses["launch_id"].isin(marks)
    return {
        name: {
            tensor: set(
                accesses["direction"][
                    (operation == index)
                    & ~is_mark
                    & (address >= start)
                    & (address < start + size)
                ]
            )
            for tensor, (start, size) in said["places"][name].items()
        }
        for index, name in enumerate(OPERATIONS)
    }


def test_all_kinds_of_iterations_are_there(
    recorded: tuple[Trace, list[dict[str, Any]]],
) -> None:
    purposes = recorded[0].table(0, "iterations")["purpose"].to_pylist()
    assert purposes == ["timing"] * 3 + ["direction"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_known_by_construction_is_found(operation: str, found: Found) -> None:
    _, truth = OPERATIONS[operation]
    for iteration, operations in found.items():
        for tensor, right in truth.items():
            directions = operations[operation][tensor]
            assert directions, (iteration, tensor, "no access was seen")
            assert directions <= right, (iteration, tensor, directions)
            assert right == READ or directions != READ, (iteration, tensor)


def test_it_is_known_by_hashes_for_nearly_all(
    recorded: tuple[Trace, list[dict[str, Any]]],
) -> None:
    accesses = recorded[0].table(0, "accesses").to_pandas()
    of_kernels = accesses[accesses["source"].isin(["parameter", "tensor map"])]
    by_source = of_kernels.groupby("direction_source", observed=True)["bytes"].sum()
    assert by_source.get("checksum", 0) >= 0.95 * of_kernels["bytes"].sum()
