"""No schedule is faster than the bound; schedules keep to the budget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from model_factory import Touch, make_model

from transit.compiler import bound, planner, schedule, simulator, slots
from transit.compiler.link import CHUNK_PIECES, Link
from transit.compiler.merged import Merged
from transit.compiler.model import Model
from transit.compiler.view import View

LINK = Link(load=0.02, store=0.015, both=0.012, load_fixed_ns=0.0, store_fixed_ns=0.0)
REMAPPING = replace(LINK, map_ns=300.0, unmap_ns=100.0, map_home_ns=900.0)
SLACK = 1e-6
SLOW_TO_BEGIN = replace(LINK, load_fixed_ns=90.0, store_fixed_ns=40.0)
links = st.sampled_from([LINK, REMAPPING, SLOW_TO_BEGIN])


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Make up regions, what launches do to them, and less memory than they need."""
    count = draw(st.integers(2, 10))
    num_regions = draw(st.integers(1, 5))
    touches: list[Touch] = []
    for region in range(num_regions):
        positions = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
        for position in positions:
            touches.append(
                (region, position, draw(st.sampled_from(["r", "w", "rw", "rd", "wd"])))
            )
    model = make_model(
        touches,
        pieces=draw(
            st.lists(st.integers(1, 40), min_size=num_regions, max_size=num_regions)
        ),
        duration_ns=draw(
            st.lists(st.floats(1.0, 5000.0), min_size=count, max_size=count)
        ),
        budget=0,
        fixed=[draw(st.integers(0, 3))] * count,
        link_ns=draw(st.sampled_from([np.inf, 500.0, 3000.0])),
    )
    least = int(model.needed_pieces.max())
    most = int(model.fixed_pieces.max() + model.num_pieces.sum())
    budget = draw(st.integers(least, most))
    return replace(model, budget_pieces=budget)


@st.composite
def models_of_layers(draw: st.DrawFn) -> Model:
    """Make up layers with tensors of a few kinds, touched forward and then backward.

    What an access costs over the link differs, and some cannot be reached in place.
    """
    layers, kinds = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    copies = draw(st.integers(1, 3))
    touches: list[Touch] = []
    for kind in range(kinds):
        forward, backward = draw(
            st.sampled_from([("w", "rd"), ("r", "rw"), ("r", "r")])
        )
        for layer in range(layers):
            for copy in range(copies):
                region = (kind * layers + layer) * copies + copy
                touches.append((region, layer, forward))
                touches.append((region, 2 * layers - 1 - layer, backward))
    num_regions = kinds * layers * copies
    model = make_model(
        touches,
        pieces=draw(
            st.lists(st.integers(1, 20), min_size=num_regions, max_size=num_regions)
        ),
        duration_ns=draw(
            st.lists(st.floats(1.0, 2000.0), min_size=2 * layers, max_size=2 * layers)
        ),
        budget=0,
    )
    costs = st.sampled_from([np.inf, 10.0, 300.0, 2000.0])
    count = len(model.accesses)
    link_ns = np.array(draw(st.lists(costs, min_size=count, max_size=count)))
    least, most = int(model.needed_pieces.max()), int(model.num_pieces.sum())
    return replace(
        model,
        accesses=replace(model.accesses, link_ns=link_ns),
        budget_pieces=draw(st.integers(least, max(least, most))),
    )


def _cuts(model: Model) -> list[slots.Slots]:
    every = np.arange(model.num_launches)
    return [slots.cut(model, every), slots.cut(model, every[::3])]


@settings(max_examples=60, deadline=None)
@given(models(), links)
def test_no_planned_schedule_is_faster_than_any_bound(model: Model, link: Link) -> None:
    try:
        planned = planner.plan(model, link)
    except planner.NothingFitsError:
        return
    assert planned.simulated.peak_pieces <= model.budget_pieces
    for cut in _cuts(model):
        best = bound.solve(model, cut, link)
        assert best is not None
        assert planned.simulated.step_ns >= best.step_ns * (1 - SLACK)


@settings(max_examples=60, deadline=None)
@given(st.one_of(models(), models_of_layers()), links)
def test_no_planned_schedule_is_faster_than_the_bound_of_merged_regions(
    model: Model, link: Link
) -> None:
    steps_ns: list[float] = []
    for plan in (planner.plan, planner.plan_merged):
        with suppress(planner.NothingFitsError):
            planned = plan(model, link)
            steps_ns += [planned.simulated.step_ns] if planned else []
    for cut in _cuts(model):
        best = bound.solve_view(Merged.of(View.of(model, cut)).view, link)
        assert best is not None
        assert all(step_ns >= best.step_ns * (1 - SLACK) for step_ns in steps_ns)


@settings(max_examples=40, deadline=None)
@given(st.one_of(models(), models_of_layers()), links)
def test_merging_regions_never_raises_the_bound(model: Model, link: Link) -> None:
    for cut in _cuts(model):
        view = View.of(model, cut)
        exact = bound.solve(model, cut, link)
        together = bound.solve_view(Merged.of(view).view, link)
        assert exact is not None
        assert together is not None
        # What is returned may be below the optimum by the weight of its traffic.
        weight = 3 * bound.TRAFFIC_WEIGHT
        assert together.step_ns <= exact.step_ns * (1 + weight + SLACK)


@settings(max_examples=60, deadline=None)
@given(models(), links)
def test_planning_alike_regions_together_keeps_to_the_budget(
    model: Model, link: Link
) -> None:
    planned = planner.plan_merged(model, link)
    if planned is None:
        return
    needed = schedule.needed_pieces(model, planned.schedule)
    assert needed.max() <= model.budget_pieces
    assert planned.simulated.peak_pieces <= model.budget_pieces
    assert planned.simulated.step_ns >= planned.bound_ns * (1 - SLACK)


def test_a_region_can_leave_though_its_longest_gap_is_not_looked_at() -> None:
    model = make_model(
        [(0, 1, "r"), (0, 3, "r"), (1, 0, "r"), (1, 4, "r")],
        pieces=[1, 1],
        duration_ns=[1.0, 1.0, 100.0, 1.0, 1.0],
        budget=1,
    )
    checkpoint = np.array([0, 4])
    used = planner.longest_gaps(model, checkpoint, 1)
    cut = slots.cut(model, checkpoint, used)
    assert np.unique(cut.gaps.region).tolist() == [0, 1]


def test_alike_regions_leave_one_after_the_other() -> None:
    touches = [(region, at, "rw") for region in range(3) for at in (0, 9)]
    model = make_model(
        [*touches, (3, 4, "r")],
        pieces=[10, 20, 10, 25],
        duration_ns=[1e5] * 10,
        budget=45,
    )
    planned = planner.plan_merged(model, LINK)
    assert planned is not None
    parts = planned.schedule.parts
    away = planned.schedule.parts.num_pieces[~planned.schedule.resident]
    assert away[parts.region[~planned.schedule.resident] < 3].sum() >= 20
    cut = slots.cut(model, np.arange(10))
    together = Merged.of(View.of(model, cut))
    assert len(together.view.gaps) < len(cut.gaps)
    assert together.view.num_pieces.max() == 40
    first_piece = dict(zip(cut.gaps.region, together.first_piece, strict=True))
    assert first_piece == {0: 0, 1: 10, 2: 30, 3: 0}


@settings(max_examples=60, deadline=None)
@given(models())
def test_a_finer_cut_never_lowers_the_bound(model: Model) -> None:
    fine, coarse = (bound.solve(model, cut, LINK) for cut in _cuts(model))
    if fine is None or coarse is None:
        assert coarse is not None or fine is None
        return
    assert fine.step_ns >= coarse.step_ns * (1 - 3 * bound.TRAFFIC_WEIGHT - SLACK)


@settings(max_examples=30, deadline=None)
@given(models())
def test_with_room_for_everything_a_step_is_ideal(model: Model) -> None:
    roomy = replace(model, budget_pieces=1 << 20)
    took = simulator.simulate(roomy, schedule.all_resident(roomy), LINK)
    assert np.isclose(took.step_ns, model.duration_ns.sum())
    best = bound.solve(roomy, _cuts(roomy)[0], LINK)
    assert best is not None
    assert np.isclose(best.step_ns, model.duration_ns.sum())


@settings(max_examples=40, deadline=None)
@given(models())
def test_windows_load_only_what_is_needed_and_store_only_what_is_written(
    model: Model,
) -> None:
    try:
        found = planner.plan(model, LINK).schedule
    except planner.NothingFitsError:
        return
    windows, accesses = found.windows, model.accesses
    for part, first, last, load, store in zip(
        found.parts.region[windows.part],
        windows.first,
        windows.last,
        windows.load,
        windows.store,
        strict=True,
    ):
        own = np.flatnonzero(accesses.region == part)
        at = accesses.position[own]
        begin, end = own[at == first], own[at == last]
        assert len(begin) == len(end) == 1
        before = own[accesses.following[own] == begin]
        assert load == (not accesses.dead[before[0]])
        assert not (store and accesses.dead[end[0]])
        assert not store or accesses.writes[own].any()


@settings(max_examples=30, deadline=None)
@given(models())
def test_every_access_finds_its_memory(model: Model) -> None:
    try:
        found = planner.plan(model, LINK).schedule
    except planner.NothingFitsError:
        return
    windows, parts, accesses = found.windows, found.parts, model.accesses
    for index in range(len(accesses)):
        region, position = accesses.region[index], accesses.position[index]
        around = (position - windows.first) % model.num_launches
        covers = around <= (windows.last - windows.first) % model.num_launches
        serving = windows.part[covers & (parts.region[windows.part] == region)]
        assert len(np.unique(serving)) == len(serving), "windows of a part overlap"
        resident = found.resident & (parts.region == region)
        served = parts.num_pieces[serving].sum() + parts.num_pieces[resident].sum()
        assert served + found.in_place[index] == model.num_pieces[region]


def test_memory_of_what_is_dead_is_kept_while_there_is_enough() -> None:
    touches: list[Touch] = [
        (region, at, kind) for region in (0, 1) for at, kind in ((0, "wd"), (2, "r"))
    ]
    model = make_model(
        [*touches, (2, 4, "wd")],
        pieces=[16, 16, 16],
        duration_ns=[1e5] * 6,
        budget=48,
    )
    # What leaves does so for as much else.
    for budget, kept_pieces in ((48, 48), (47, 46), (32, 16)):
        tight = replace(model, budget_pieces=budget)
        best = bound.solve(tight, _cuts(model)[0], REMAPPING, whole_runs=True)
        planned = planner.plan(tight, REMAPPING)
        assert best is not None
        assert planned.simulated.step_ns == planned.bound_ns == 6e5
        found = planned.schedule
        assert found.parts.num_pieces[found.resident].sum() == kept_pieces


def test_a_step_takes_as_long_as_its_remaps() -> None:
    slow = replace(LINK, map_ns=4e5, unmap_ns=2e5)
    touches: list[Touch] = [(0, 0, "wd"), (1, 1, "wd")]
    model = make_model(touches, pieces=[16, 16], duration_ns=[1e5] * 2, budget=16)
    best = bound.solve(model, _cuts(model)[0], slow)
    assert best is not None
    assert np.isclose(best.step_ns, 2 * 6e5, rtol=1e-3)


def test_remaps_of_large_windows_take_no_less_time() -> None:
    pieces = simulator.MAX_CHUNKS * CHUNK_PIECES
    model = make_model(
        [(0, 0, "wd"), (1, 1, "wd")],
        pieces=[pieces] * 2,
        duration_ns=[1e5] * 2,
        budget=pieces * 5 // 4,
    )
    planned = planner.plan_merged(model, REMAPPING)
    assert planned is not None
    assert planned.bound_ns > 1e6
    assert planned.simulated.step_ns >= planned.bound_ns * (1 - SLACK)
