"""From measurements to a machine profile."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from transit._version import __version__
from transit.compiler.files import describe
from transit.compiler.machine import FORMAT, VERSION, MachineProfile
from transit.errors import MachineError
from transit.runtime.calibration.calibrate import Calibration, Measurements
from transit.runtime.calibration.measurement import RUNS, Measurement, split_fixed


def profile_of(found: Calibration) -> MachineProfile:
    """Return the profile of the machine that was measured."""
    h2d, d2h = _rate(found.link["h2d"]), _rate(found.link["d2h"])
    read, write = (_rate(found.zero_copy[way]) for way in ("read", "write"))
    uvm = found.backends.get("uvm")
    figures: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": re.sub(r"[^a-z0-9]+", "-", found.gpu_name.lower()).strip("-"),
        "gpu_name": found.gpu_name,
        "gpu_memory_bytes": found.gpu_memory_bytes,
        "host_memory_bytes": found.host_memory_bytes,
        "hbm_bytes_per_s": _rate(found.memory["hbm"]),
        "l2_bytes_per_s": _rate(found.memory["l2"]),
        "launch_overhead_ns": _figure(found.memory["launch"][0].median_ns),
        "h2d_bytes_per_s": h2d,
        "d2h_bytes_per_s": d2h,
        # What is above the rate of one direction alone, here and below, is noise.
        "duplex_bytes_per_s": min(_rate(found.link["duplex"]), h2d, d2h),
        "zero_copy_read_bytes_per_s": read,
        "zero_copy_write_bytes_per_s": write,
        "zero_copy_both_bytes_per_s": min(_rate(found.zero_copy["both"]), read, write),
        "fault_h2d_bytes_per_s": min(_rate(uvm["faults"]), h2d) if uvm else None,
        "evict_d2h_bytes_per_s": min(_rate(uvm["store"]), d2h) if uvm else None,
        "backends": {
            name: _windows(measured, h2d, d2h)
            for name, measured in found.backends.items()
        },
        "source": _sources(found),
    }
    try:
        return MachineProfile.model_validate(figures)
    except ValidationError as invalid:
        raise MachineError(
            f"what was measured on {found.gpu_name} cannot be: {describe(invalid)}"
        ) from None


def _windows(measured: Measurements, h2d: float, d2h: float) -> dict[str, float]:
    load, load_fixed_ns = _split(measured["load"], h2d)
    store, store_fixed_ns = _split(measured["store"], d2h)
    return {
        "load_bytes_per_s": load,
        "store_bytes_per_s": store,
        "both_bytes_per_s": min(_rate(measured["both"]), load, store),
        "drop_bytes_per_s": _rate(measured["drop"]),
        "load_fixed_ns": load_fixed_ns,
        "store_fixed_ns": store_fixed_ns,
    }


def _split(measured: list[Measurement], limit: float) -> tuple[float, float]:
    rate, fixed_ns = split_fixed(measured[0], measured[-1])
    return min(_figure(rate), limit), _figure(fixed_ns)


def _rate(measured: list[Measurement]) -> float:
    """Return the rate of the largest pieces."""
    return _figure(measured[-1].bytes_per_s)


def _figure(value: float) -> float:
    """Round to what was measured, for those who read it."""
    return float(f"{value:.4g}")


def _sources(found: Calibration) -> dict[str, str]:
    version = found.driver_version
    sources = {
        "measured": f"by transit {__version__} on {datetime.now(UTC).date()}, driver "
        f"for CUDA {version // 1000}.{version % 1000 // 10}, medians of {RUNS} runs",
        "gpu_memory, host_memory": "what was free then",
        "hbm, l2": "measured, a kernel that reads",
        "launch_overhead": "measured, the smallest kernel, behind another one",
        "link": f"measured, copies of {_pieces(found.link['h2d'])} and pinned memory",
        "zero_copy": "measured, kernels on pinned memory",
    }
    for backend, measured in found.backends.items():
        sources[backend] = (
            f"measured, pieces of up to {_pieces(measured['load'])}; fixed times are "
            "what small pieces take beyond their bytes"
        )
    if "uvm" in found.backends:
        sources["faults"] = (
            "fault_h2d: measured, a kernel that reads. evict_d2h: assumed as slow as "
            "storing on uvm; never measured, since eviction can hang a card"
        )
    return sources


def _pieces(measured: list[Measurement]) -> str:
    return f"{measured[-1].piece_bytes >> 20} MiB"
