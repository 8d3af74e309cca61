"""Host memory: what there is to use, and what a job may have of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from transit.units import format_bytes, parse_size

log = logging.getLogger(__name__)

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")  # version 2


def available_bytes() -> int:
    """Return what can be used without swapping, in a container what is left of it."""
    fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    free_bytes = int(fields["MemAvailable"].split()[0]) << 10
    return min([free_bytes, *_left_in_groups()])


def _left_in_groups() -> Iterator[int]:
    """Yield what is left of each limit on this process's control group."""
    own = next((g for g in _groups() if g.startswith("0::/")), "0::/")
    folder = CGROUPS / own.strip().removeprefix("0::/")
    while folder.is_relative_to(CGROUPS):
        limit = _read(folder / "memory.max")
        if limit.isdigit():
            yield max(int(limit) - _used_bytes(folder), 0)
        folder = folder.parent


def _used_bytes(folder: Path) -> int:
    """Return what a group uses, without cached files that can go at any time."""
    used = _read(folder / "memory.current")
    lines = _read(folder / "memory.stat").splitlines()
    cached = next((n for n in lines if n.startswith("inactive_file ")), "inactive 0")
    return int(used or 0) - int(cached.split()[1])


def _groups() -> list[str]:
    return _read(CGROUP).splitlines()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def bound_bytes(option: str | None) -> int:
    """Return what ``--host-memory`` allows; without it, what is available now."""
    available = available_bytes()
    if option is None:
        return available
    asked = parse_size(option).bytes_of(available)
    if asked > available:
        log.warning(
            "--host-memory is %s, and this machine has %s available",
            format_bytes(asked),
            format_bytes(available),
        )
    return asked
