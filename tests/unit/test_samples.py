"""The traces that come with the repository compile on any machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import transit

from transit.compiler.plan import load

SAMPLES = Path(__file__).parents[2] / "traces" / "samples"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/manifest.json"))
MAX_BYTES = 1 << 20


@pytest.mark.parametrize("budget", ["10GiB", "80%"])
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_compiles_within_the_budget(
    name: str, budget: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    done = transit(
        *("compile", SAMPLES / name, "--gpu-memory", budget, "--json", "-o", path)
    )
    assert done.returncode == 0, done.stderr
    summary, plan = json.loads(done.stdout), load(path)
    if budget == "10GiB":
        assert summary["gpu_memory_bytes"] == 10 << 30
    else:
        assert summary["gpu_memory_bytes"] == summary["job_peak_bytes"] * 8 // 10
    assert 0 < summary["peak_resident_bytes"] <= summary["gpu_memory_bytes"]
    # Nothing leaves the GPU without need.
    spills = summary["job_peak_bytes"] > summary["gpu_memory_bytes"]
    assert (summary["zero_copy_bytes"] > 0) == spills
    assert summary["zero_copy_bytes"] == plan.total_bytes("zero-copy")
    assert summary["resident_bytes"] == plan.total_bytes("resident")
    assert summary["window_bytes"] == 0
    assert summary["policy"] == plan.policy == "reuse"
    assert summary["iteration_launches"] == plan.ranks[0].iteration.launches > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_small_and_described(name: str) -> None:
    files = [path for path in (SAMPLES / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    assert f"`{name}`" in (SAMPLES / "README.md").read_text()
    command = json.loads((SAMPLES / name / "manifest.json").read_text())["command"]
    assert [part for part in command if part.startswith("/")] == []
