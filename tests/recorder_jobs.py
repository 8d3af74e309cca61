"""Runs jobs under libtransit_recorder.so, and reads what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transit.recorder.spool import Spool

KERNEL, COPY, SET, GRAPH = 1, 2, 3, 4
UNKNOWN, READ, WRITE = 0, 1, 2
FROM_PARAMETER, FROM_COPY, FROM_SET, FROM_TENSOR_MAP = 1, 2, 3, 4
STARTED, ITERATION_END, STOPPED, COMPLETE = 1, 2, 3, 4
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # CUPTI's counter kinds of migrations

PRELOADED = os.environ.get("LD_PRELOAD", "")
# What every job below begins with: a context, memory, the example's kernels.
PRELUDE = """
import ctypes, json, os, sys
import numpy as np
from cuda.bindings import driver as cu
from transit.examples import layers
from pathlib import Path

def call(function, *arguments):
    error, *results = function(*arguments)
    assert error == 0, (function.__name__, error)
    return results[0] if results else None

def open_gpu():
    return layers.Gpu(Path(layers.__file__).with_name("kernels.ptx").read_bytes())

recorder = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])

def scale(gpu, y, x, size):
    gpu.launch("scale", (size, 1), (1, 1), (y, ctypes.c_void_p), (x, ctypes.c_void_p),
               (2.0, ctypes.c_float), (size, ctypes.c_size_t))
"""


class Jobs:
    """Runs Python jobs under the recorder."""

    def __init__(self, libraries: Path, env: Mapping[str, str], run_dir: Path) -> None:
        self.run_dir = run_dir
        self.python_path = env["PYTHONPATH"]
        self._env = dict(env) | {
            # A sanitizer's runtime, where there is one, stays.
            "LD_PRELOAD": f"{libraries / 'libtransit.so'} {PRELOADED}",
            "CUDA_INJECTION64_PATH": str(libraries / "libtransit_recorder.so"),
            "TRANSIT_RUN_DIR": str(run_dir),
        }

    def start(self, code: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            env={k: v for k, v in (self._env | variables).items() if v},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, **variables: str) -> Any:
        """Run to the end and return what the job printed as JSON, if anything."""
        job = self.start(code, **variables)
        stdout, stderr = job.communicate(timeout=120)
        assert job.returncode == 0, stderr
        return json.loads(stdout) if stdout else None

    def spool_folders(self) -> list[Path]:
        return sorted(self.run_dir.glob("spool-*"))

    def spool(self) -> Spool:
        (folder,) = self.spool_folders()
        return Spool.open(folder)


def names(spool: Spool, record_type: str) -> list[Any]:
    ids = spool.records[record_type]["name_id"]
    return [name.as_py() for name in spool.names(ids)]


def accesses_of(spool: Spool, launch_id: int) -> set[tuple[int, ...]]:
    """Return (address, bytes, direction, source) of each access of a launch."""
    accesses = spool.records["access"]
    own = accesses[accesses["launch_id"] == launch_id]
    fields = own[["address", "bytes", "direction", "source"]].tolist()
    assert len(np.unique(own)) == len(own), "recorded twice"
    return set(fields)
