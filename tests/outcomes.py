"""What holds of whatever was refused, and of whatever was recorded all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

from transit.traces.reader import Trace


def assert_refused(
    done: subprocess.CompletedProcess[str], *words: str, code: int = 1
) -> None:
    """Check for a message of ours with the given words, and no traceback."""
    assert done.returncode == code, done.stderr
    assert "transit: error: " in done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_usable(trace: Path, ended: str) -> None:
    opened = Trace.open(trace)
    assert opened.manifest.ended == ended
    launches = opened.table(0, "launches", ["launch_id"])
    assert launches.num_rows > 3 * 10  # three steps of a few layers
    assert opened.manifest.rank(0).kernel_launches_with_access > 0
