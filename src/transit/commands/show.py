"""``transit show``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from transit.commands.options import Json, Rows
from transit.kernel_names import shorten


def show(
    path: Annotated[
        Path, typer.Argument(help="A trace folder or a plan.", show_default=False)
    ],
    rows: Rows = 20,
    as_json: Json = False,
) -> None:
    """Show what is in a trace or a plan.

    Example: transit show trace/
    """
    from transit.commands.tables import print_facts, print_table

    description = describe(path)
    if as_json:
        print(json.dumps(description))
        return
    print_facts(_facts(description))
    for caveat in description.get("caveats", []):
        print(f"\nrank {caveat['rank']}: {caveat['caveat']}")
    for title in ("ranks", "kernels", "allocations", "audit", "totals", "placements"):
        records = description.get(title, [])
        if title != "ranks" or len(records) > 1:  # one is among the facts
            print_table(title, [_readable(record) for record in records], rows)


def describe(path: Path) -> dict[str, Any]:
    """Return what is in a trace or a plan as plain values."""
    if path.is_dir():
        from transit.commands.describe import describe_trace
        from transit.traces.reader import Trace

        return describe_trace(Trace.open(path))
    from transit.commands.describe import describe_plan
    from transit.compiler.plan import load

    return describe_plan(load(path))


def _facts(description: dict[str, Any]) -> dict[str, Any]:
    """Return the single values of a description."""
    facts = {**description, **description.get("summary", {})}
    facts["command"] = shlex.join(description["command"])
    if len(description.get("ranks", [])) == 1:
        facts |= description["ranks"][0]
    return {
        name: value
        for name, value in facts.items()
        if isinstance(value, str | int) and name not in ("format", "version")
    }


def _readable(record: dict[str, Any]) -> dict[str, Any]:
    """Replace a kernel's two long names and its kind by a short name."""
    if "function" not in record:
        return record
    kept = ("launches", "total_ns", "share")
    return {key: record[key] for key in kept} | {"name": shorten(record["function"])}
