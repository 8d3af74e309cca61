"""What `transit run` makes of a budget, and of what the shim says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from status_factory import write_status

from transit.errors import BudgetError
from transit.runtime.paging import Paged, budget_bytes
from transit.runtime.status import ShimState
from transit.units import parse_size

MIB = 1 << 20
BUDGET_BYTES = 64 * MIB


def paged(folder: Path, **values: Any) -> Paged:
    """Return what is known of a job of one process."""
    values = {"state": ShimState.PAGING, "gpu_peak_bytes": 48 * MIB} | values
    status = write_status(folder, pid=7, **values)
    return Paged(gpu_memory_bytes=BUDGET_BYTES, exit_code=0, processes=[status])


def test_a_job_that_was_paged_has_no_problems(tmp_path: Path) -> None:
    found = paged(tmp_path, gpu_peak_bytes=BUDGET_BYTES)
    assert found.problems() == []
    report = found.to_json()
    assert report["gpu_memory_bytes"] == BUDGET_BYTES
    assert report["processes"][0]["state"] == "paging"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"budget_excesses": 2, "budget_excess_peak_bytes": MIB}, "by up to 1.00 MiB"),
        ({"host_refusals": 4}, "4 allocations were refused"),
        (
            {"budget_bytes": 30, "card_bytes": 32, "card_taken_bytes": 3},
            "does not fit",
        ),
        ({"state": ShimState.PASS_THROUGH}, "not paged"),
        ({"placement_failures": 2}, "2 allocations were left to the driver"),
        ({"transfer_failures": 3}, "3 transfers failed"),
        ({"message": b"cuMemMap said no"}, "cuMemMap said no"),
    ],
)
def test_problems_are_said_of_their_process(
    values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (problem,) = paged(tmp_path, **values).problems()
    assert words in problem
    assert problem.startswith("rank 0, process 7: ")


def test_a_job_without_cuda_was_not_paged() -> None:
    (problem,) = Paged(gpu_memory_bytes=1, exit_code=0, processes=[]).problems()
    assert "nothing was paged" in problem


def test_a_share_is_of_the_smallest_gpu(
    native_libs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSIT_LIB_DIR", str(native_libs))
    monkeypatch.setenv("TRANSIT_SIM_GPU_MEMORY", "2GiB")
    assert budget_bytes(parse_size("25%"), simulated_gpu=True) == 512 * MIB
    for text, words in [("3GiB", "the GPU has"), ("1MiB", "give more")]:
        with pytest.raises(BudgetError, match=words):
            budget_bytes(parse_size(text), simulated_gpu=True)


def test_headroom_is_not_for_the_job(native_libs: Path) -> None:
    size, headroom = parse_size("64MiB"), parse_size("16MiB")
    assert budget_bytes(size, headroom, simulated_gpu=True) == 48 * MIB
    with pytest.raises(BudgetError, match="leaves"):
        budget_bytes(size, size, simulated_gpu=True)
