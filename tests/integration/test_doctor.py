"""What ``transit doctor`` finds out by a recording of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from conftest import RunTransit


@pytest.fixture
def findings(run_transit: RunTransit, simgpu_env: Mapping[str, str]) -> Any:
    def run(**variables: str) -> dict[str, tuple[str, str]]:
        arguments = ["doctor", "--json", "--simulated-gpu"]
        done = run_transit(arguments, env={**simgpu_env, **variables})
        assert done.returncode == 0, done.stderr
        return {
            finding["check"]: (finding["verdict"], finding["detail"])
            for finding in json.loads(done.stdout)["findings"]
        }

    return run


def test_a_recording_that_works(findings: Any) -> None:
    found = findings()
    for check in ("launches", "kernel times", "managed memory"):
        assert found[check][0] == "ok", found[check]


@pytest.mark.parametrize(
    ("variables", "check", "word"),
    [
        ({"TRANSIT_SIM_CUPTI_LOSES": "records"}, "kernel times", "older than this GPU"),
        ({"TRANSIT_SIM_CUPTI_LOSES": "times"}, "kernel times", "GPU full"),
        ({"TRANSIT_SIM_CUPTI_LOSES": "migrations"}, "managed memory", "host to device"),
        (
            {"TRANSIT_SIM_FAIL": "cuMemAllocManaged:1=801"},
            "managed memory",
            "NOT_SUPPORTED",
        ),
        (
            {"TRANSIT_SIM_FAIL": "cuptiActivityEnable:1=35"},
            "recording",
            "INSUFFICIENT_PRIVILEGES",
        ),
        pytest.param(
            {"TRANSIT_SIM_CUPTI_HELD": "nsys"},
            "recording",
            "held by nsys",
            id="held_by_another",  # left out under the thread sanitizer
        ),
        ({"TRANSIT_SIM_FAIL": "cuLaunchKernel:1=700"}, "recording", "ILLEGAL_ADDRESS"),
    ],
)
def test_what_cupti_keeps_to_itself(
    findings: Any, variables: dict[str, str], check: str, word: str
) -> None:
    verdict, detail = findings(**variables)[check]
    assert verdict == "warning"
    assert word in detail


def test_nothing_is_recorded_where_there_is_no_gpu(findings: Any) -> None:
    found = findings(TRANSIT_SIM_GPU_COUNT="0")
    assert "gpu" in found
    assert not {"recording", "launches", "kernel times"} & set(found)
