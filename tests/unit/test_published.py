"""The benchmark that plans published iterations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up import transformer
from published import find_lists, plan_lists, read_published
from tensor_lists_factory import HARDWARE, kernel, tensor, write_lists

GIB = 1 << 30


def planned(tmp_path: Path, host_memory_bytes: int) -> dict[str, float]:
    hardware = HARDWARE | {
        "gpu": {"model": "A100 of a paper", "memory_bytes": 40 * GIB},
        "host_memory_bytes": host_memory_bytes,
    }
    network = transformer(batch=2, layers=2)
    network.write(
        tmp_path / "lists",
        peak_bytes=48 * GIB,
        seconds=4.0,
        hardware=json.dumps(hardware),
    )
    return plan_lists(tmp_path / "lists", tmp_path / "trace")


def test_plan_is_held_against_bound_and_ideal(tmp_path: Path) -> None:
    row = planned(tmp_path, 100 * GIB)
    assert row["ideal_s"] == pytest.approx(4.0, rel=1e-6)
    assert row["ideal_s"] <= row["bound_s"] * 1.000001
    assert row["bound_s"] <= row["estimated_step_s"] * 1.000001
    assert row["peak_resident_bytes"] <= 40 * GIB
    assert 7 * GIB < row["on_host_bytes"] < 48 * GIB
    assert row["loaded_bytes"] > 7 * GIB
    assert row["fits_published_host_memory"]


def test_too_little_host_memory_is_told(tmp_path: Path) -> None:
    assert not planned(tmp_path, 1 * GIB)["fits_published_host_memory"]


def test_published_steps_are_read_by_network_and_policy(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(
        "model,batch,policy,paper_name,iteration_s\n"
        "bert,256,lru,Base UVM,19.5\nbert,256,FlashNeuron,FlashNeuron,\n"
    )
    assert read_published(tmp_path / "results.csv") == {
        "bert_256": {
            "lru": {"name": "Base UVM", "step_s": 19.5},
            "FlashNeuron": {"name": "FlashNeuron", "step_s": None},
        }
    }


def test_only_made_up_lists_say_so(tmp_path: Path) -> None:
    one = write_lists(
        tmp_path / "net_8", [tensor(0, 4096, None, None)], [kernel(0, [0], [])], None
    )
    (tmp_path / "hardware.json").write_text(json.dumps(HARDWARE))
    (tmp_path / "summary.csv").write_text(
        "model,batch,peak_live_bytes,sum_duration_ns\n"
        "vit,1280,61626544128,3715951615\nsenet154,1024,369443475456,132870476119\n"
    )
    found = list(find_lists(tmp_path, tmp_path))
    assert found[0] == ("net_8", one, False)
    for name, path, is_made_up in found[1:]:
        assert (is_made_up, "made up" in name) == (True, True)
        source = json.loads((path / "hardware.json").read_text())["source"]
        assert "made up" in source
    assert len(found) == 3
