from __future__ import annotations

import pytest

from transit.commands import tables
from transit.commands.tables import print_facts, print_table

LAUNCHES = {"rank": 0, "launches": 123_456, "total_ns": 4_500_000, "share": 0.25}


@pytest.mark.parametrize("width", [40, 80, 240])
def test_names_give_way_to_numbers(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "PIPED_COLUMNS", width)
    name = "kernel" * 30
    print_table("kernels", [{**LAUNCHES, "name": name}], 1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    row = lines[-1]
    assert row.split()[:4] == ["123,456", "4.50", "ms", "25.0%"]
    assert row.split()[4] == name if width == 240 else row.endswith("…")


def test_prose_is_broken_into_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "PIPED_COLUMNS", 30)
    print_table("placements", [{"bytes": 1 << 30, "why": "first " * 5 + "last"}], 1)
    shown = capsys.readouterr().out
    assert "1.00 GiB" in shown
    assert "last" in shown


def test_a_place_is_told_only_where_places_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = {"rank": 0, "device": 0, "bytes": 1, "why": "because"}
    print_table("placements", [record, record], 2)
    assert "rank" not in capsys.readouterr().out
    print_table("placements", [record, {**record, "rank": 1}], 1)
    shown = capsys.readouterr().out
    assert "rank" in shown
    assert "device" not in shown
    assert "and 1 more: --rows" in shown


def test_facts_stand_in_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"gpu_memory_bytes": 9_843_192_627, "policy": "reuse"})
    assert capsys.readouterr().out == "gpu memory: 9.17 GiB\npolicy:     reuse\n"
