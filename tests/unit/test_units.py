from __future__ import annotations

import pytest

from transit.errors import BudgetError
from transit.units import format_bytes, format_ns, parse_size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("40GiB", 40 * GIB),
        ("10.5GiB", 21 * GIB // 2),
        (" 512 mib ", GIB // 2),
        ("2GB", 2 * 10**9),
        ("4096", 4096),
        ("1TiB", 1024 * GIB),
        ("80%", 8 * GIB),
        ("12.5%", 10 * GIB // 8),
    ],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert parse_size(text).bytes_of(10 * GIB) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "0", "0%", "4 apples", "1e3", "inf", "nan%", "1000TiB"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(BudgetError, match=r"GiB|possible"):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 * GIB, "3.00 GiB")],
)
def test_format_bytes(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(999, "999 ns"), (1500, "1.50 us"), (2e6, "2.00 ms"), (3.25e9, "3.25 s")],
)
def test_format_ns(duration_ns: float, text: str) -> None:
    assert format_ns(duration_ns) == text
