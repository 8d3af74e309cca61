"""What a profile makes of measurements."""

from __future__ import annotations

import pytest

from transit.errors import MachineError
from transit.runtime.calibration.calibrate import Calibration, Measurements
from transit.runtime.calibration.measurement import Measurement, measure, split_fixed
from transit.runtime.calibration.profile import profile_of

MIB = 1 << 20


def moved(
    bytes_per_s: float, *, piece_mib: int = 32, pieces: int = 8, fixed_ns: float = 0.0
) -> Measurement:
    """Return what moving pieces at a rate takes, and each a fixed time on top."""
    size = piece_mib * MIB * pieces
    time_ns = size / bytes_per_s * 1e9 + pieces * fixed_ns
    return Measurement(
        what="moving", times_ns=(time_ns,) * 3, moved_bytes=size, pieces=pieces
    )


def windows(load: float, store: float, both: float) -> Measurements:
    return {
        "load": [
            moved(load, piece_mib=2, fixed_ns=20e3),
            moved(load, fixed_ns=20e3),
        ],
        "store": [
            moved(store, piece_mib=2, fixed_ns=30e3),
            moved(store, fixed_ns=30e3),
        ],
        "both": [moved(both)],
        "drop": [moved(60e9)],
        "faults": [moved(7e9)],
        "advice": [moved(20e9)],
    }


def calibration(**changes: object) -> Calibration:
    values = {
        "gpu_name": "NVIDIA X (80GB)",
        "driver_version": 12080,
        "gpu_memory_bytes": 79 << 30,
        "host_memory_bytes": 100 << 30,
        "memory": {
            "hbm": [moved(3e12)],
            "l2": [moved(6e12)],
            "launch": [Measurement(what="kernel", times_ns=(4000.0, 4100.0, 9000.0))],
        },
        "link": {
            "h2d": [moved(10e9, piece_mib=2), moved(55e9)],
            "d2h": [moved(9e9, piece_mib=2), moved(54e9)],
            "duplex": [moved(8e9, piece_mib=2), moved(50e9)],
        },
        "zero_copy": {
            "read": [moved(51e9)],
            "write": [moved(52e9)],
            "both": [moved(41e9)],
        },
        "backends": {
            "vmm": windows(50e9, 40e9, 38e9),
            "uvm": windows(48e9, 12e9, 9e9),
        },
    }
    return Calibration(**(values | changes))  # type: ignore[arg-type]


def test_a_profile_has_what_was_measured() -> None:
    profile = profile_of(calibration())
    assert profile.name == "nvidia-x-80gb"
    assert profile.gpu_memory_bytes == 79 << 30
    assert profile.h2d_bytes_per_s == pytest.approx(55e9)
    assert profile.duplex_bytes_per_s == pytest.approx(50e9)
    assert profile.launch_overhead_ns == 4100.0
    assert profile.zero_copy_both_bytes_per_s == pytest.approx(41e9)
    assert profile.fault_h2d_bytes_per_s == pytest.approx(7e9)
    vmm = profile.windows("vmm")
    assert vmm.load_bytes_per_s == pytest.approx(50e9)
    assert vmm.load_fixed_ns == pytest.approx(20e3, rel=1e-3)
    assert vmm.store_bytes_per_s == pytest.approx(40e9)
    assert vmm.store_fixed_ns == pytest.approx(30e3, rel=1e-3)
    assert vmm.both_bytes_per_s == pytest.approx(38e9)
    assert vmm.drop_bytes_per_s == pytest.approx(60e9)


def test_what_was_never_provoked_is_said_to_be_assumed() -> None:
    profile = profile_of(calibration())
    assert profile.evict_d2h_bytes_per_s == pytest.approx(12e9, rel=0.1)
    assert "assumed" in profile.source["faults"]


def test_noise_does_not_make_a_profile_impossible() -> None:
    link = calibration().link | {"duplex": [moved(54.5e9)]}
    backends = {"vmm": windows(56e9, 40e9, 41e9)}
    profile = profile_of(calibration(link=link, backends=backends))
    assert profile.duplex_bytes_per_s == profile.d2h_bytes_per_s
    assert profile.windows("vmm").load_bytes_per_s == profile.h2d_bytes_per_s
    assert profile.windows("vmm").both_bytes_per_s == pytest.approx(40e9)


def test_a_backend_that_was_not_measured_is_not_there() -> None:
    profile = profile_of(calibration(backends={"vmm": windows(50e9, 40e9, 38e9)}))
    assert profile.fault_h2d_bytes_per_s is None
    assert profile.evict_d2h_bytes_per_s is None
    with pytest.raises(MachineError, match="uvm backend"):
        profile.windows("uvm")


def test_what_cannot_be_is_no_profile() -> None:
    memory = calibration().memory | {"hbm": [moved(20e9)]}
    with pytest.raises(MachineError, match=r"NVIDIA X.*cannot be: .*hbm_bytes_per_s"):
        profile_of(calibration(memory=memory))


def test_small_pieces_that_are_no_slower_cost_nothing_extra() -> None:
    faster = moved(60e9, piece_mib=2)
    assert split_fixed(faster, moved(50e9)) == (pytest.approx(50e9), 0.0)
    one_size = moved(50e9, fixed_ns=1e6)
    assert split_fixed(one_size, one_size) == (one_size.bytes_per_s, 0.0)


def test_the_first_run_does_not_count() -> None:
    times_ns = iter([900.0, 100.0, 300.0, 200.0, 200.0, 200.0])
    prepared: list[int] = []
    measurement = measure(
        "something",
        lambda: next(times_ns),
        prepare=lambda: prepared.append(1),
        moved_bytes=400,
        pieces=4,
    )
    assert measurement.median_ns == 200.0
    assert measurement.bytes_per_s == 2e9
    assert (measurement.piece_bytes, measurement.piece_ns) == (100, 50.0)
    assert measurement.spread == 1.0
    assert len(prepared) == 6
