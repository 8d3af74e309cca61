"""What plans say lies in the memory that they place."""

from __future__ import annotations

from pathlib import Path

from transit.commands.describe import describe_plan
from transit.compiler import machine
from transit.compiler.compiler import compile_trace
from transit.compiler.labels import Labels
from transit.compiler.lifetimes import read_allocations
from transit.traces.reader import Trace

SAMPLES = Path(__file__).parents[2] / "traces" / "samples"
GIB = 1 << 30


def test_the_largest_label_of_a_range_comes_first() -> None:
    trace = Trace.open(SAMPLES / "gpt-medium-audited-h200")
    allocations = read_allocations(trace, 0)
    labels = Labels.read(trace, 0, allocations)
    blocks = trace.table(0, "blocks").to_pylist()
    known = [block for block in blocks if block["label"]]
    for block in known[::50]:
        index = [*allocations.allocation_id].index(block["allocation_id"])
        start = block["offset"]
        stop = start + block["bytes"]
        assert block["label"] in labels.within(index, start, stop)
        everything = labels.within(index, 0, 1 << 48)
        sizes = {
            label: max(
                b["bytes"]
                for b in known
                if (b["allocation_id"], b["label"]) == (block["allocation_id"], label)
            )
            for label in everything
        }
        assert [*sizes.values()] == sorted(sizes.values(), reverse=True)
        assert labels.within(index, stop, stop) == []


def test_a_plan_names_what_it_places_and_totals_do_not_depend_on_it() -> None:
    plan = compile_trace(
        Trace.open(SAMPLES / "gpt-medium-audited-h200"),
        gpu_memory_bytes=9 * GIB,
        policy="reuse",
        machine=machine.load("h200"),
    )
    spilled = [
        placement.why
        for allocation in plan.ranks[0].allocations
        for placement in allocation.placements
        if placement.placement == "zero-copy"
    ]
    named = [why for why in spilled if "; holds blocks." in why]
    assert named
    assert all(why.startswith("costs least on the link: ") for why in spilled)
    totals = describe_plan(plan)["totals"]
    assert not any("holds" in total["why"] for total in totals)
    assert len(totals) < 10
