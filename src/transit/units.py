"""Sizes as people write and read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from transit.errors import BudgetError

UNITS_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SPELLING = {unit.lower(): unit for unit in UNITS_BYTES}
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>%|[a-z]*)", re.IGNORECASE)
MAX_BYTES = 1 << 48  # beyond any address a GPU can have


@dataclass(frozen=True, slots=True)
class MemorySize:
    """An amount of memory: in bytes, or as a share of a peak known later."""

    number: float
    unit: str

    def bytes_of(self, peak_bytes: int) -> int:
        """Return the bytes, taking a percentage of `peak_bytes`."""
        if self.unit == "%":
            return int(peak_bytes * self.number / 100)
        return int(self.number * UNITS_BYTES[self.unit])


def parse_size(text: str) -> MemorySize:
    """Parse ``40GiB``, ``10.5 GiB``, ``80%`` or a number of bytes.

    Raises
    ------
    BudgetError
        The text is none of these, or is no sane amount.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match and (
        "%" if match["unit"] == "%" else _SPELLING.get(match["unit"].lower() or "b")
    )
    if not match or not unit:
        raise BudgetError(f"{text!r} is not a size; write 40GiB, 512MiB or 80%")
    size = MemorySize(float(match["number"]), unit)
    if not 0 < size.bytes_of(MAX_BYTES) <= MAX_BYTES:
        raise BudgetError(f"{text!r} is not a possible amount of memory")
    return size


def format_bytes(num_bytes: float) -> str:
    """Return a size in the largest binary unit that leaves a number of at least 1."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(num_bytes) >= UNITS_BYTES[unit]:
            return f"{num_bytes / UNITS_BYTES[unit]:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def format_ns(duration_ns: float) -> str:
    """Return a duration in a readable unit."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(duration_ns) >= scale:
            return f"{duration_ns / scale:.2f} {unit}"
    return f"{duration_ns:.0f} ns"
