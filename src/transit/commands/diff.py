"""``transit diff``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from transit.commands.options import Json, Rows
from transit.units import format_bytes, format_ns

log = logging.getLogger(__name__)


def diff(
    before: Annotated[Path, typer.Argument(help="A plan.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Another plan.", show_default=False)],
    rows: Rows = 20,
    as_json: Json = False,
) -> None:
    """Show what differs between two plans.

    The exit code is 0 whether they differ or not.

    Example: transit diff before.json after.json
    """
    from transit.commands.tables import print_table
    from transit.compiler.diff import diff as diff_plans
    from transit.compiler.plan import load

    found = diff_plans(load(before), load(after))
    if not found["same_trace"]:
        log.warning(
            "the plans are of different traces: an ordinal need not be the same memory"
        )
    if as_json:
        print(json.dumps(found))
    elif not any(found[part] for part in ("options", "predictions", "allocations")):
        print("the plans do not differ")
    else:
        print_table("options", _readable(found["options"]), rows)
        title = "predicted, not measured"
        print_table(title, _readable(found["predictions"]), rows)
        print_table("allocations", [*map(_row, found["allocations"])], rows)
    log.info("next: transit show %s", after)


def _readable(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: _text(change["name"], value) for key, value in change.items()}
        for change in changes
    ]


def _text(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "bytes" in name:
            return format_bytes(value)
        if "_ns" in name:
            return format_ns(value)
        if name == "gap":
            return f"{value:.2%}"
    return "-" if value is None else str(value)


def _row(allocation: dict[str, Any]) -> dict[str, Any]:
    """Write each total of an allocation as what it was and what it is."""
    before, after = allocation["before"], allocation["after"]
    kept = ("rank", "device", "ordinal", "bytes", "changed_bytes")
    names = (after or before).keys()
    return {name: allocation[name] for name in kept} | {
        name.removesuffix("_bytes"): _step(name, before, after) for name in names
    }


def _step(
    name: str, before: dict[str, int] | None, after: dict[str, int] | None
) -> str:
    texts = [_text(name, side and side[name]) for side in (before, after)]
    return texts[0] if texts[0] == texts[1] else " > ".join(texts)
