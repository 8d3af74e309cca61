"""Status files as the shim writes them, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from transit.runtime import status
from transit.runtime.status import ProcessStatus, read_status


def status_bytes(**values: Any) -> bytes:
    """A status file: nothing but what is given happened."""
    record = np.zeros((), status.STATUS_DTYPE)
    record["magic"] = status.MAGIC
    record["version"] = status.VERSION
    record["file_bytes"] = status.STATUS_DTYPE.itemsize
    record["steps_per_lap"] = 1
    for name, value in values.items():
        record[name] = value
    return record.tobytes()


def write_status(folder: Path, *, pid: int, **values: Any) -> ProcessStatus:
    """Write a process's status file; return what is read from it."""
    path = folder / f"status-{pid}.bin"
    path.write_bytes(status_bytes(pid=pid, **values))
    return read_status(path)
