"""What host memory there is to use."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # "max", if there is none


def available_bytes() -> int:
    """Return what can be used without swapping, in a container its limit at most."""
    fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    free_bytes = int(fields["MemAvailable"].split()[0]) << 10
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return min(free_bytes, int(limit)) if limit.isdigit() else free_bytes
