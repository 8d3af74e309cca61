"""The simulated GPU: a driver and a CUPTI for machines that have none."""

from __future__ import annotations

import os
from pathlib import Path

from transit.runtime.preload import find_library

GPU_NAME = "transit simulated GPU"
"""What its driver calls it."""


def library_folder() -> Path:
    """Return the folder of the simulated ``libcuda.so.1`` and ``libcupti.so.13``."""
    return find_library("transit.runtime", "simgpu/lib/libcuda.so.1").parent


def simulated_variables() -> dict[str, str]:
    """Return the variables under which a job finds the simulated GPU.

    They go to the job alone: this process keeps the machine's own libraries.
    """
    folder = library_folder()
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder),
        "TRANSIT_LIBCUPTI": str(folder / "libcupti.so.13"),
    }
