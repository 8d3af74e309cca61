"""What ``transit compile --explain`` prints."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from transit.units import format_bytes, format_ns

MAX_RANGES = 12
MAX_LABELS = 3


def print_explained(allocations: list[dict[str, Any]]) -> None:
    """Print each range of each allocation with its accesses and what is between."""
    from transit.commands.tables import print_table

    for allocation in allocations:
        print(_heading(allocation))
        ranges = allocation["ranges"]
        for part in ranges[:MAX_RANGES]:
            groups = groupby(part["accesses"], key=_likeness)
            rows = [_row(list(group)) for _, group in groups]
            print_table(_title(part), rows, len(rows))
            if not rows:
                print(f"\n{_title(part)}")
        if len(ranges) > MAX_RANGES:
            print(f"\nand {len(ranges) - MAX_RANGES} more ranges: --json has them all")


def _heading(allocation: dict[str, Any]) -> str:
    labels = allocation["labels"]
    others = [f"{len(labels) - MAX_LABELS} more"] * (len(labels) > MAX_LABELS)
    holds = "; ".join(labels[:MAX_LABELS] + others)
    return (
        f"rank {allocation['rank']}, GPU {allocation['device']}, ordinal "
        f"{allocation['ordinal']}: {format_bytes(allocation['bytes'])}"
        f"{', holds ' + holds if holds else ''}; times are estimates, not measured"
    )


def _title(part: dict[str, Any]) -> str:
    offset = format_bytes(part["offset_bytes"])
    size = format_bytes(part["bytes"])
    return f"{size} from {offset} on: {part['placement']}, {part['why']}"


def _likeness(access: dict[str, Any]) -> tuple[object, ...]:
    """Tell what is alike, as the launches of an optimizer are, until it leaves."""
    launch = access["launch"] if access["gap"] == "leaves" else None
    same = ("kernel", "direction", "rereads", "gap", "load_ns", "is_dead")
    return launch, *(access[name] for name in same)


def _row(alike: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up launches that follow each other; the gap is the one after the last."""
    from transit.kernel_names import demangle, shorten

    first, access = alike[0], alike[-1]
    launches = [str(first["launch"]), str(access["launch"])][: len(alike)]
    return {
        "launches": " to ".join(launches),
        "take_ns": sum(each["launch_ns"] for each in alike),
        "direction": access["direction"],
        "in_place": _in_place(alike),
        "then_unused_ns": access["gap_ns"],
        "holds": "nothing needed" if access["is_dead"] else "data",
        "and": _gap(access),
        "name": shorten(demangle(access["kernel"])),
    }


def _in_place(alike: list[dict[str, Any]]) -> str:
    """Say what zero-copy would cost, and why it is not had."""
    costs_ns = [access["zero_copy_ns"] for access in alike]
    if None in costs_ns:
        return "out of reach"
    cost, passes = format_ns(sum(costs_ns)), sum(each["passes"] for each in alike)
    return f"{cost}, re-read {passes:.3g} x" if alike[0]["rereads"] else cost


def _gap(access: dict[str, Any]) -> str:
    """Say what the plan does until the next access."""
    if access["gap"] == "stays":
        return "stays"
    steps = [access["gap"]]
    if access["store_ns"] is not None:
        steps.append(f"{format_ns(access['store_ns'])} to store")
    elif access["gap"] == "leaves":
        steps.append("no copy")
    if access["load_ns"] is not None:
        steps.append(f"{format_ns(access['load_ns'])} to load")
    return ", ".join(steps)
