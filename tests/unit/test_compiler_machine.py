"""Machine profiles: what they say, which one is used, and which are refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from transit.compiler import machine
from transit.errors import MachineError

VERSION_1 = {
    "format": "transit-machine",
    "version": 1,
    "name": "old",
    "gpu_name": "NVIDIA A100",
    "hbm_bytes_per_s": 1.5e12,
    "l2_bytes_per_s": 3e12,
    "h2d_bytes_per_s": 25e9,
    "d2h_bytes_per_s": 26e9,
    "duplex_bytes_per_s": 20e9,
    "zero_copy_read_bytes_per_s": 24e9,
    "zero_copy_write_bytes_per_s": 25e9,
    "zero_copy_both_bytes_per_s": 19e9,
    "launch_overhead_ns": 5000.0,
}


def shipped() -> dict[str, Any]:
    text = (files("transit.compiler") / "machines" / "h200.json").read_text()
    value: dict[str, Any] = json.loads(text)
    return value


def windows(**rates: float | None) -> dict[str, Any]:
    """Return the shipped backends with other rates for vmm's windows."""
    backends: dict[str, Any] = shipped()["backends"]
    return {"backends": backends | {"vmm": backends["vmm"] | rates}}


def write(path: Path, value: dict[str, Any]) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("name", machine.built_in())
def test_built_in_profiles_load_under_their_own_name(name: str) -> None:
    profile = machine.load(name)
    assert profile.name == name
    assert profile.zero_copy_read_bytes_per_s < profile.hbm_bytes_per_s


def test_a_profile_can_come_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", shipped() | {"name": "mine"})
    profile = machine.load(str(path))
    assert profile.name == "mine"
    assert profile.fingerprint != machine.load("h200").fingerprint


def test_a_hash_is_of_the_figures(tmp_path: Path) -> None:
    """Words on where they are from may change; no rate may, of windows least."""
    before = machine.load("h200").fingerprint
    words = write(tmp_path / "words.json", shipped() | {"source": {"link": "measured"}})
    assert machine.load(str(words)).fingerprint == before
    rates = windows(store_fixed_ns=1.0)
    faster = write(tmp_path / "faster.json", shipped() | rates)
    assert machine.load(str(faster)).fingerprint != before


def test_every_shipped_figure_has_a_source() -> None:
    source = set(machine.load("h200").source)
    groups = {"hbm", "l2", "link", "zero_copy", "faults", "launch_overhead"}
    assert source == groups | set(machine.load("h200").backends)


def test_version_1_is_read_and_knows_no_windows(tmp_path: Path) -> None:
    profile = machine.load(str(write(tmp_path / "old.json", VERSION_1)))
    assert profile.zero_copy_both_bytes_per_s == 19e9
    assert profile.gpu_memory_bytes is None
    with pytest.raises(MachineError, match=r"old.*vmm backend.*transit calibrate"):
        profile.windows("vmm")


def test_a_profile_survives_being_written(tmp_path: Path) -> None:
    profile = machine.load("h200")
    machine.dump(profile, tmp_path / "copy.json", force=False)
    assert machine.load(str(tmp_path / "copy.json")) == profile
    with pytest.raises(MachineError, match="--force"):
        machine.dump(profile, tmp_path / "copy.json", force=False)


def test_the_profile_of_a_trace_is_its_own_else_that_of_its_gpu(tmp_path: Path) -> None:
    assert machine.default(tmp_path, "NVIDIA H200").name == "h200"
    assert machine.default(tmp_path, "NVIDIA A100").name == "h200"
    assert machine.default(tmp_path, None).name == "h200"
    write(tmp_path / "machine.json", VERSION_1)
    assert machine.default(tmp_path, "NVIDIA H200").name == "old"


def test_another_link_scales_what_crosses_it() -> None:
    before = machine.load("h200")
    after = before.with_link(before.h2d_bytes_per_s / 2)
    halved = ("h2d", "d2h", "duplex", "zero_copy_read", "zero_copy_both")
    for name in halved:
        rate = f"{name}_bytes_per_s"
        assert getattr(after, rate) == getattr(before, rate) / 2
    for name in ("hbm_bytes_per_s", "l2_bytes_per_s", "launch_overhead_ns"):
        assert getattr(after, name) == getattr(before, name)
    vmm, vmm_before = after.windows("vmm"), before.windows("vmm")
    assert vmm.both_bytes_per_s == vmm_before.both_bytes_per_s / 2
    assert vmm.store_fixed_ns == vmm_before.store_fixed_ns
    assert vmm.drop_bytes_per_s == vmm_before.drop_bytes_per_s
    assert after.name == "h200 at 27.7 GB/s"
    assert "not measured" in after.source["what-if"]


def test_faults_are_no_faster_than_the_link() -> None:
    before = machine.load("h200")
    assert before.with_link(32e9).fault_h2d_bytes_per_s == before.fault_h2d_bytes_per_s
    slow = before.with_link(4e9)
    assert slow.fault_h2d_bytes_per_s == slow.h2d_bytes_per_s == pytest.approx(4e9)


@pytest.mark.parametrize("rate", [0.0, -32e9, 1e14, float("inf"), float("nan")])
def test_no_link_is_that_fast(rate: float) -> None:
    with pytest.raises(MachineError, match=r"h200 with a link of .* GB/s: "):
        machine.load("h200").with_link(rate)


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
        ({"version": 3}, "version 3 is newer than version 2"),
        ({"turbo": 1.0}, "turbo: Extra inputs"),
        ({"duplex_bytes_per_s": 55.3e9}, "duplex_bytes_per_s (5.53e+10) cannot be abo"),
        ({"h2d_bytes_per_s": 5e12}, "cannot be above hbm_bytes_per_s"),
        ({"zero_copy_both_bytes_per_s": 52e9}, "above zero_copy_read_bytes_per_s"),
        ({"zero_copy_write_bytes_per_s": None}, "give all, or none"),
        ({"evict_d2h_bytes_per_s": 56e9}, "cannot be above d2h_bytes_per_s"),
        ({"gpu_memory_bytes": 0}, "gpu_memory_bytes: "),
        ({"gpu_memory_bytes": 4e10}, "gpu_memory_bytes: "),
        ({"host_memory_bytes": 1 << 60}, "host_memory_bytes: "),
        ({"source": {"link": 55}}, "source.link: "),
        ({"backends": {"cuda": {}}}, "backends.cuda"),
        (windows(both_bytes_per_s=56e9), "backends.vmm.both_bytes_per_s (5.6e+10)"),
        (
            windows(load_bytes_per_s=28e9),
            "both_bytes_per_s (4.7e+10) cannot be above load_bytes_per_s (2.8e+10)",
        ),
        (windows(load_bytes_per_s=56e9), "cannot be above h2d_bytes_per_s"),
        (windows(store_bytes_per_s=None), "backends.vmm.store_bytes_per_s: "),
        (windows(load_fixed_ns=-1.0), "backends.vmm.load_fixed_ns: "),
        (windows(drop_bytes_per_s=0.0), "backends.vmm.drop_bytes_per_s: "),
    ],
)
def test_impossible_profiles_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "bad.json", shipped() | change)
    with pytest.raises(MachineError) as refused:
        machine.load(str(path))
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


def test_a_missing_rate_is_named(tmp_path: Path) -> None:
    value = shipped()
    del value["duplex_bytes_per_s"]
    path = write(tmp_path / "short.json", value)
    with pytest.raises(MachineError, match="duplex_bytes_per_s: Field required"):
        machine.load(str(path))
