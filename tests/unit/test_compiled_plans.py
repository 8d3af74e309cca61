"""What holds for every plan of the policy auto, recomputed from its JSON alone."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trace_factory import MIB, LayeredLoop, Tables, write_tables

from transit.compiler import machine, plan
from transit.compiler.compiler import compile_trace
from transit.compiler.machine import MachineProfile
from transit.errors import BudgetError
from transit.traces import schema
from transit.traces.reader import Trace

PIECE = 2 * MIB
DIRECTIONS = ("read", "write", "both", "unknown")
Json = dict[str, Any]

loops = st.builds(
    LayeredLoop,
    layers=st.integers(1, 4),
    layer_bytes=st.integers(1, 24 * MIB),
    iterations=st.integers(4, 5),
    workspace_bytes=st.sampled_from([0, 5, 3 * MIB]),
    compute_ns=st.sampled_from([0, 1, 20_000, 1_000_000]),
)


@given(
    loop=loops,
    directions=st.lists(st.sampled_from(DIRECTIONS), min_size=1, max_size=7),
    extent=st.sampled_from(["exact", "block"]),
    share=st.floats(0.05, 1.1),
    has_zero_copy=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_plans_keep_to_the_budget_and_serve_every_access(
    loop: LayeredLoop,
    directions: list[str],
    extent: str,
    share: float,
    has_zero_copy: bool,
) -> None:
    tables = loop.tables()
    tables["accesses"] = _directed(tables, loop, directions, extent)
    job_bytes = sum(-(-row["bytes"] // PIECE) * PIECE for row in _allocations(tables))
    budget_bytes = max(int(job_bytes * share), PIECE)
    profile = _profile(has_zero_copy=has_zero_copy)
    with TemporaryDirectory() as folder:
        path = write_tables(Path(folder) / "trace", {0: tables})
        try:
            texts = [
                _compiled(path, Path(folder) / name, budget_bytes, profile)
                for name in ("a.json", "b.json")
            ]
        except BudgetError:
            return  # a budget too small for it is no plan at all
    assert texts[0] == texts[1]
    made = json.loads(texts[0])
    assert made["version"] == plan.VERSION
    _assert_well_formed(made)
    _assert_fits(made, tables, budget_bytes)
    _assert_serves(made, tables, has_zero_copy=has_zero_copy)
    prediction = made["prediction"]
    assert prediction["step_ns"] >= prediction["bound_step_ns"] * (1 - 1e-6) - 1
    assert prediction["step_ns"] >= prediction["ideal_step_ns"] - 1


def _compiled(
    trace: Path, output: Path, budget_bytes: int, profile: MachineProfile
) -> str:
    made = compile_trace(
        Trace.open(trace),
        gpu_memory_bytes=budget_bytes,
        policy="auto",
        machine=profile,
    )
    plan.dump(made, output)
    assert plan.load(output) == made
    return output.read_text()


def _profile(*, has_zero_copy: bool) -> MachineProfile:
    figures = machine.load("h200").model_dump() | {"gpu_name": "Test GPU"}
    if not has_zero_copy:
        figures |= {f"zero_copy_{x}_bytes_per_s": None for x in ("read", "write")}
        figures["zero_copy_both_bytes_per_s"] = None
    return MachineProfile.model_validate(figures)


def _directed(
    tables: Tables, loop: LayeredLoop, directions: list[str], extent: str
) -> pa.Table:
    """Give accesses directions that are the same in every iteration."""
    rows = tables["accesses"].to_pylist()
    for row in rows:
        position = row["launch_id"] % loop.launches_per_iteration
        nth = 3 * position + row["allocation_id"]
        row |= {"direction": directions[nth % len(directions)], "extent": extent}
    return pa.Table.from_pylist(rows, schema=schema.TABLES["accesses"])


def _allocations(tables: Tables) -> list[Json]:
    return [row for row in tables["allocations"].to_pylist() if row["api"] != "host"]


def _placements(made: Json) -> dict[int, list[Json]]:
    (rank,) = made["ranks"]
    return {a["ordinal"]: a["placements"] for a in rank["allocations"]}


def _held(window: Json, count: int) -> list[int]:
    length = (window["last"] - window["first"]) % count + 1
    return [(window["first"] + nth) % count for nth in range(length)]


def _assert_well_formed(made: Json) -> None:
    count = made["ranks"][0]["iteration"]["launches"]
    for placements in _placements(made).values():
        for placement in placements:
            windows = placement.get("windows", [])
            assert bool(windows) == (placement["placement"] == "windowed")
            held = [position for w in windows for position in _held(w, count)]
            assert len(held) == len(set(held)) <= count
            for window in windows:
                assert 0 <= window["issue"] < count
                assert window["written"] in _held(window, count)
                # From its issue to its first launch it is in no other window.
                ahead = (window["first"] - window["issue"]) % count
                before = {(window["issue"] + nth) % count for nth in range(ahead)}
                others = {p for w in windows if w != window for p in _held(w, count)}
                assert not before & others


def _assert_fits(made: Json, tables: Tables, budget_bytes: int) -> None:
    count = made["ranks"][0]["iteration"]["launches"]
    unmovable = sum(
        row["bytes"] for row in _allocations(tables) if row["ordinal"] is None
    )
    always = -(-unmovable // PIECE) * PIECE
    held: dict[int, int] = defaultdict(int)
    for placements in _placements(made).values():
        for placement in placements:
            always += placement["bytes"] * (placement["placement"] == "resident")
            for window in placement.get("windows", []):
                for position in _held(window, count):
                    held[position] += placement["bytes"]
    peak = always + max(held.values(), default=0)
    assert peak <= made["summary"]["peak_resident_bytes"] <= budget_bytes


def _assert_serves(made: Json, tables: Tables, *, has_zero_copy: bool) -> None:
    """Every accessed byte is placed, and on the GPU if kernels reach nothing else."""
    count = made["ranks"][0]["iteration"]["launches"]
    ordinals = {row["allocation_id"]: row["ordinal"] for row in _allocations(tables)}
    by_ordinal = _placements(made)
    for access in tables["accesses"].to_pylist():
        position = access["launch_id"] % count
        stop = access["offset"] + access["bytes"]
        reached = access["offset"]
        for placement in by_ordinal[ordinals[access["allocation_id"]]]:
            begin, end = placement["offset"], placement["offset"] + placement["bytes"]
            if end <= access["offset"] or begin >= stop:
                continue
            assert begin <= reached
            reached = end
            is_held = placement["placement"] == "resident" or any(
                position in _held(w, count) for w in placement.get("windows", [])
            )
            assert is_held or has_zero_copy
        assert reached >= stop
