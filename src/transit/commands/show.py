"""``transit show``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from transit.commands.options import Json
from transit.units import format_bytes, format_ns


def show(
    path: Annotated[
        Path, typer.Argument(help="A trace folder or a plan.", show_default=False)
    ],
    rows: Annotated[
        int, typer.Option(min=1, envvar="TRANSIT_ROWS", help="Rows per table.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Show what is in a trace or a plan.

    Example: transit show trace/
    """
    description = describe(path)
    if as_json:
        print(json.dumps(description))
        return
    _print_facts(description)
    for title in ("ranks", "kernels", "allocations", "placements"):
        if title in description:
            _print_table(title, description[title], max_rows=rows)


def describe(path: Path) -> dict[str, Any]:
    """Return what is in a trace or a plan as plain values."""
    if path.is_dir():
        from transit.commands.describe import describe_trace
        from transit.traces.reader import Trace

        return describe_trace(Trace.open(path))
    from transit.commands.describe import describe_plan
    from transit.compiler.plan import load

    return describe_plan(load(path))


def _print_facts(description: dict[str, Any]) -> None:
    print(f"command: {shlex.join(description['command'])}")
    facts = {**description, **description.get("summary", {})}
    for name, value in facts.items():
        if isinstance(value, str | int) and name not in ("format", "version"):
            print(f"{_heading(name)}: {_cell(name, value)}")


def _print_table(title: str, records: list[dict[str, Any]], *, max_rows: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not records:
        return
    hidden = len(records) - max_rows
    table = Table(
        title=title,
        title_justify="left",
        caption=f"and {hidden} more: --rows" if hidden > 0 else None,
        caption_justify="left",
    )
    for name, value in records[0].items():
        is_text = isinstance(value, str)
        table.add_column(
            _heading(name),
            justify="left" if is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for record in records[:max_rows]:
        cells = (Text(_cell(name, value)) for name, value in record.items())
        table.add_row(*cells)
    # Piped output has no width of its own: nothing is cut there.
    Console(width=None if sys.stdout.isatty() else 240).print(table)


def _heading(name: str) -> str:
    return name.replace("_bytes", "").replace("_ns", "").replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if "bytes" in name:
        return format_bytes(value)
    if "_ns" in name:
        return format_ns(value)
    if name == "share":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else str(value)
