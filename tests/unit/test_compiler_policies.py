"""What every plan must hold, whatever the job, the budget and the policy."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from compiler_traces import (
    Chunk,
    Launch,
    Touch,
    jobs,
    make_trace,
    resident_bytes,
    resident_bytes_by_moment,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_factory import MIB, LayeredLoop, write_tables, write_trace

from transit.compiler import iteration, machine
from transit.compiler.compiler import compile_trace
from transit.compiler.cost import access_costs
from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.plan import PIECE_BYTES, Allocation, Plan, dump, load, round_up
from transit.compiler.policies import POLICIES
from transit.compiler.summary import summarize
from transit.errors import BudgetError, TraceError
from transit.traces.reader import Trace

MACHINE = machine.load("h200")
PLENTY = 1 << 40


def compile_(trace: Trace, budget_bytes: int, policy: str = "reuse") -> Plan:
    return compile_trace(
        trace, gpu_memory_bytes=budget_bytes, policy=policy, machine=MACHINE
    )


def compile_above(trace: Trace, slack: float, policy: str) -> Plan:
    """Compile for a budget between the policy's smallest and the job's peak."""
    most = compile_(trace, PLENTY, policy).summary
    spare = most.job_peak_bytes - most.smallest_budget_bytes
    budget_bytes = most.smallest_budget_bytes + int(slack * spare)
    return compile_(trace, max(budget_bytes, PIECE_BYTES), policy)


def zero_copy_bytes(allocation: Allocation) -> int:
    return round_up(allocation.bytes) - resident_bytes(allocation)


JOBS = {"job": jobs(), "slack": st.floats(0, 1.1)}
POLICY = st.sampled_from(sorted(POLICIES))


@settings(deadline=None, max_examples=40)
@given(**JOBS, policy=POLICY)
def test_the_budget_holds_at_every_moment(
    job: tuple[list[Chunk], list[Launch]], slack: float, policy: str
) -> None:
    trace = make_trace(*job)
    plan = compile_above(trace, slack, policy)
    peak = max(resident_bytes_by_moment(plan, job[0]))
    assert peak == plan.summary.peak_resident_bytes
    assert peak <= plan.gpu_memory_bytes


@settings(deadline=None, max_examples=20)
@given(**JOBS, policy=POLICY)
def test_every_movable_allocation_is_placed_whole_and_neighbours_are_merged(
    job: tuple[list[Chunk], list[Launch]], slack: float, policy: str
) -> None:
    plan = compile_above(make_trace(*job), slack, policy)
    sizes = [chunk.size for chunk in job[0] if chunk.movable]
    allocations = plan.ranks[0].allocations
    assert [(a.ordinal, a.bytes) for a in allocations] == list(enumerate(sizes))
    for allocation in allocations:  # that they cover it, the model checks
        kinds = [placement.placement for placement in allocation.placements]
        assert all(a != b for a, b in pairwise(kinds))


@settings(deadline=None, max_examples=30)
@given(**JOBS)
def test_reuse_never_spills_what_kernels_re_read(
    job: tuple[list[Chunk], list[Launch]], slack: float
) -> None:
    trace = make_trace(*job)
    plan = compile_above(trace, slack, "reuse")
    steady = iteration.find(trace, 0)
    rereads = access_costs(steady, MACHINE).rereads
    planned = {a.ordinal: a for a in plan.ranks[0].allocations}
    ordinals = iter(range(len(job[0])))
    by_id = {i: planned[next(ordinals)] for i, c in enumerate(job[0]) if c.movable}
    accesses = steady.accesses
    for index in rereads.nonzero()[0]:
        allocation = by_id.get(int(accesses.allocation_id[index]))
        for placement in allocation.placements if allocation else ():
            if placement.placement == "zero-copy":
                assert (
                    accesses.stop[index] <= placement.offset
                    or accesses.start[index] >= placement.offset + placement.bytes
                )


@settings(deadline=None, max_examples=20)
@given(**JOBS, policy=POLICY)
def test_plans_are_deterministic_and_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    job: tuple[list[Chunk], list[Launch]],
    slack: float,
    policy: str,
) -> None:
    folder = tmp_path_factory.mktemp("plans")
    trace = make_trace(*job)
    plan = compile_above(trace, slack, policy)
    again = compile_above(Trace.open(trace.path), slack, policy)
    dump(plan, folder / "a.json")
    dump(again, folder / "b.json")
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    assert load(folder / "a.json") == plan


@settings(deadline=None, max_examples=20)
@given(job=jobs())
def test_what_fits_stays(job: tuple[list[Chunk], list[Launch]]) -> None:
    trace = make_trace(*job)
    peak_bytes = max(job_peak_bytes(trace), PIECE_BYTES)
    for policy in POLICIES:
        plan = compile_(trace, peak_bytes, policy)
        assert plan.summary.zero_copy_bytes == 0
        assert plan.summary.estimated_extra_ns_per_iteration == 0
        assert summarize(plan)["fits_without_spilling"]


@settings(deadline=None, max_examples=20)
@given(job=jobs(), policy=POLICY)
def test_the_smallest_budget_is_the_smallest(
    job: tuple[list[Chunk], list[Launch]], policy: str
) -> None:
    trace = make_trace(*job)
    smallest = compile_(trace, PLENTY, policy).summary.smallest_budget_bytes
    if smallest:
        compile_(trace, smallest, policy)
        with pytest.raises(BudgetError):
            compile_(trace, smallest - 1, policy)


def test_advise_keeps_allocations_in_the_order_they_are_made() -> None:
    sizes = [4, 3, 6, 2, 1]  # pieces; 8 fit
    chunks = [Chunk(size * PIECE_BYTES) for size in sizes]
    plan = compile_(
        make_trace(chunks, [Launch("a", 1, (Touch(0, 0, 1),))]),
        8 * PIECE_BYTES,
        "advise",
    )
    spilled = [zero_copy_bytes(a) // PIECE_BYTES for a in plan.ranks[0].allocations]
    assert spilled == [0, 0, 6, 2, 0]


def test_advise_uses_room_that_frees_leave() -> None:
    early = Chunk(4 * PIECE_BYTES, born=0, died=1)
    late = Chunk(4 * PIECE_BYTES, born=2)
    trace = make_trace([early, late], [Launch("a", 1, (Touch(0, 0, 1),))])
    assert compile_(trace, 4 * PIECE_BYTES, "advise").summary.zero_copy_bytes == 0


def test_reuse_spills_no_more_than_it_must(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", layers=4, layer_bytes=8 * MIB))
    peak_bytes = job_peak_bytes(trace)
    for spill_bytes in (2 * MIB, 6 * MIB, 34 * MIB, 64 * MIB):
        summary = compile_(trace, peak_bytes - spill_bytes).summary
        assert summary.zero_copy_bytes == spill_bytes
        # The two moments of each layer are streamed once, both ways.
        assert summary.estimated_link_bytes_per_iteration == pytest.approx(
            2 * spill_bytes, rel=0.01
        )


def test_reuse_spills_the_untouched_first_and_the_streamed_next() -> None:
    big = 64 * PIECE_BYTES
    chunks = [Chunk(big) for _ in range(3)]
    stream = Launch("stream", 60_000, (Touch(0, 0, big),))
    multiply = Launch("multiply", 50_000_000, (Touch(2, 0, big),))
    trace = make_trace(chunks, [stream, multiply])

    def spilled(budget_bytes: int) -> list[int]:
        allocations = compile_(trace, budget_bytes).ranks[0].allocations
        return [zero_copy_bytes(a) // PIECE_BYTES for a in allocations]

    assert spilled(2 * big) == [0, 64, 0]
    assert spilled(2 * big - PIECE_BYTES) == [1, 64, 0]
    assert spilled(big) == [64, 64, 0]
    with pytest.raises(BudgetError, match=r"needs at least 128 MiB"):
        spilled(big - 1)


def test_the_plan_says_why(tmp_path: Path) -> None:
    plan = compile_(Trace.open(write_trace(tmp_path / "trace")), 120 * MIB)
    reasons = {
        placement.placement: placement.why
        for allocation in plan.ranks[0].allocations
        for placement in allocation.placements
    }
    assert re.match(r"costs least on the link: streamed, ", reasons["zero-copy"])
    assert "re-read" in " ".join(
        p.why for a in plan.ranks[0].allocations for p in a.placements
    )


def test_a_budget_that_cannot_be_met_names_one_that_can(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", layer_bytes=512 * MIB))
    with pytest.raises(BudgetError) as refused:
        compile_(trace, 1 << 30)
    message = str(refused.value)
    found = re.search(r"needs at least (\d+\.\d\d) GiB", message)
    assert found
    assert "--policy advise" in message
    assert "2 MiB belong to libraries" in message
    compile_(trace, int(float(found[1]) * (1 << 30)))  # what is said is enough


@pytest.mark.parametrize("budget_bytes", [0, -1, 1 << 48])
def test_senseless_budgets_are_refused(tmp_path: Path, budget_bytes: int) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace"))
    with pytest.raises(BudgetError, match="makes no sense"):
        compile_(trace, budget_bytes)


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace"))
    with pytest.raises(BudgetError, match=r"no policy 'magic'; there are reuse"):
        compile_(trace, 1 << 30, "magic")


def test_every_rank_gets_its_placements(tmp_path: Path) -> None:
    small, large = LayeredLoop(layers=2).tables(), LayeredLoop(layers=4).tables()
    trace = Trace.open(write_tables(tmp_path / "trace", {0: small, 3: large}))
    plan = compile_(trace, 120 * MIB)
    assert [rank.ranks for rank in plan.ranks] == [(0,), (3,)]
    assert [len(rank.allocations) for rank in plan.ranks] == [10, 20]
    assert not [a for a in plan.ranks[0].allocations if zero_copy_bytes(a)]
    assert summarize(plan)["iteration_launches"] == 12


def test_ranks_that_do_the_same_share_a_plan(tmp_path: Path) -> None:
    alike, other = LayeredLoop(layers=3).tables(), LayeredLoop(layers=4).tables()
    ranks = {0: alike, 1: other, 2: alike, 3: alike}
    path = write_tables(tmp_path / "trace", ranks)
    manifest = json.loads((path / "manifest.json").read_text())
    for info, (launches, device) in zip(
        manifest["ranks"], [("a", 0), ("b", 0), ("a", 0), ("a", 5)], strict=True
    ):
        info["fingerprints"] = {"launches": launches, "memory": "m"}
        info["devices"][0]["device"] = device
    (path / "manifest.json").write_text(json.dumps(manifest))
    for rank in (2, 3):  # are not read
        for table in ("accesses", "blocks", "allocations"):
            (path / f"rank={rank}" / f"{table}.parquet").write_bytes(b"")
    for policy in ("reuse", "auto"):
        plan = compile_(Trace.open(path), 100 * MIB, policy)
        assert [rank.ranks for rank in plan.ranks] == [(0, 2), (1,), (3,)]
        first, _, last = plan.ranks
        assert {a.device for a in first.allocations} == {0}
        assert {a.device for a in last.allocations} == {5}
        assert [a.placements for a in first.allocations] == [
            a.placements for a in last.allocations
        ]
        total = sum(
            round_up(a.bytes) * len(rank.ranks)
            for rank in plan.ranks
            for a in rank.allocations
        )
        summary = plan.summary
        assert total == (
            summary.resident_bytes + summary.zero_copy_bytes + summary.window_bytes
        )


def test_host_memory_is_not_counted(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", host_bytes=1 << 33))
    assert job_peak_bytes(trace) == 4 * 5 * 8 * MIB + 2 * MIB


def test_a_changed_trace_has_another_fingerprint(tmp_path: Path) -> None:
    prints = {
        compile_(
            Trace.open(write_trace(tmp_path / f"{ns}", compute_ns=ns)), PLENTY
        ).trace.fingerprint
        for ns in (1_000_000, 1_000_001)
    }
    assert len(prints) == 2


def test_a_trace_that_no_plan_can_describe_is_refused(tmp_path: Path) -> None:
    path = write_tables(tmp_path / "trace", {0: LayeredLoop().tables()}, memory_bytes=0)
    with pytest.raises(TraceError, match="gpu_total_bytes: Input should be greater"):
        compile_(Trace.open(path), PLENTY)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace")
    table = path / "rank=0" / "accesses.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    with pytest.raises(TraceError, match=r"accesses\.parquet"):
        compile_(Trace.open(path), PLENTY)


def test_the_summary_has_what_scripts_read(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace"))
    summary = summarize(compile_(trace, 120 * MIB))
    assert summary["gpu_memory_bytes"] == 120 * MIB
    assert summary["peak_resident_bytes"] == 120 * MIB
    assert summary["resident_bytes"] + summary["zero_copy_bytes"] == 160 * MIB
    assert summary["window_bytes"] == 0
    assert summary["policy"] == "reuse"
    assert summary["iteration_launches"] == 12
