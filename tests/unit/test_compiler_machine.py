"""Machine profiles: the shipped one is sane, and damaged ones are refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from transit.compiler import machine
from transit.errors import MachineError


def shipped() -> dict[str, Any]:
    text = (files("transit.compiler") / "machines" / "h200.json").read_text()
    value: dict[str, Any] = json.loads(text)
    return value


@pytest.mark.parametrize("name", machine.built_in())
def test_built_in_profiles_load_under_their_own_name(name: str) -> None:
    profile = machine.load(name)
    assert profile.name == name
    assert profile.zero_copy_read_bytes_per_s < profile.hbm_bytes_per_s


def test_a_profile_can_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(shipped() | {"name": "mine"}))
    profile = machine.load(str(path))
    assert profile.name == "mine"
    assert profile.fingerprint != machine.load("h200").fingerprint


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(MachineError, match=r"h100: no such machine profile.*h200"):
        machine.load("h100")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hbm_bytes_per_s": 0.0}, "hbm_bytes_per_s: "),
        ({"hbm_bytes_per_s": -1.0}, "hbm_bytes_per_s: "),
        ({"h2d_bytes_per_s": float("inf")}, "h2d_bytes_per_s: "),
        ({"h2d_bytes_per_s": float("nan")}, "h2d_bytes_per_s: "),
        ({"l2_bytes_per_s": "fast"}, "l2_bytes_per_s: "),
        ({"launch_overhead_ns": True}, "launch_overhead_ns: "),
        ({"format": "transit-plan"}, "not a transit-machine file"),
        ({"version": 2}, "version 2 is newer than version 1"),
        ({"turbo": 1.0}, "turbo: Extra inputs"),
    ],
)
def test_impossible_profiles_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(shipped() | change))
    with pytest.raises(MachineError) as refused:
        machine.load(str(path))
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


def test_a_missing_rate_is_named(tmp_path: Path) -> None:
    value = shipped()
    del value["duplex_bytes_per_s"]
    path = tmp_path / "short.json"
    path.write_text(json.dumps(value))
    with pytest.raises(MachineError, match="duplex_bytes_per_s: Field required"):
        machine.load(str(path))
