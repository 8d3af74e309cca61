"""Facts and tables in a terminal, with numbers as people read them."""

from __future__ import annotations

import math
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transit.units import format_bytes, format_ns

PIPED_COLUMNS = 240  # piped output has no width of its own
NAME_COLUMNS = ("name", "gpu")
# Of no interest where all rows are alike.
PLAIN_COLUMNS = ("rank", "device", "windows")


def print_facts(facts: dict[str, Any]) -> None:
    """Print one value a line."""
    width = max(len(_heading(name)) for name in facts) + 2
    for name, value in facts.items():
        print(f"{_heading(name) + ':':{width}}{_cell(name, value)}")


def print_table(title: str, records: list[dict[str, Any]], max_rows: int) -> None:
    """Print records of the same keys, of which the last one takes what width is left.

    Some columns are left out if all rows are alike, as where all is on one GPU.
    """
    if not records:
        return
    hidden = len(records) - max_rows
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=f"and {hidden} more: --rows" if hidden > 0 else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    *names, last = [
        name
        for name in records[0]
        if name not in PLAIN_COLUMNS
        or len({_cell(name, record[name]) for record in records}) > 1
    ]
    for name in names:
        is_text = isinstance(records[0][name], str)
        table.add_column(
            _heading(name, "\n"),
            justify="left" if is_text else "right",
            no_wrap=True,
        )
    table.add_column(_heading(last))
    for record in records[:max_rows]:
        cells = [_cell(name, record[name]) for name in names]
        table.add_row(*map(Text, cells), _last_cell(last, record))
    console = Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    console.print("", table)


def _last_cell(name: str, record: dict[str, Any]) -> Text:
    """Cut a name; break what is prose into lines."""
    text = _cell(name, record[name])
    if name in NAME_COLUMNS:
        return Text(text, no_wrap=True, overflow="ellipsis")
    return Text(text)


def _heading(name: str, space: str = " ") -> str:
    return name.replace("_bytes", "").replace("_ns", "").replace("_", space)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return str(len(value))
    if "bytes" in name:
        return format_bytes(value)
    if "_ns" in name:
        return format_ns(value)
    if name == "recall":
        return f"{math.floor(value * 1000) / 10}%"  # never all but for all
    if name == "share":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else str(value)
