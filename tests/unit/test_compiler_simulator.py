"""What a schedule's step takes, by arithmetic on models small enough for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from model_factory import Touch, make_model

from transit.compiler import schedule, simulator, slots
from transit.compiler.bound import Fractions
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.schedule import Schedule
from transit.compiler.simulator import Simulated

# Pieces take 10 ns in and 20 ns out.
LINK = Link(load=0.1, store=0.05, both=0.05, load_fixed_ns=7.0, store_fixed_ns=5.0)
PIECES = 8  # of each region: a transfer is one chunk


def two_regions(first: str, second: str) -> Model:
    """Two regions in turn, of which only one has room."""
    touches: list[Touch] = [(0, 0, first), (1, 1, second)]
    return make_model(
        touches, pieces=[PIECES] * 2, duration_ns=[1000.0, 1000.0], budget=PIECES
    )


def all_absent(model: Model) -> Schedule:
    """Let every region leave in each of its gaps."""
    cut = slots.cut(model, np.arange(model.num_launches))
    count = len(cut.gaps)
    nothing = np.zeros(count)
    choice = Fractions(0.0, np.ones(count), nothing, nothing)
    return schedule.round_off(model, cut, choice)


def simulate(model: Model, link: Link = LINK) -> Simulated:
    return simulator.simulate(model, all_absent(model), link)


def test_clean_windows_cost_their_loads_alone() -> None:
    took = simulate(two_regions("r", "r"))
    assert took.step_ns == pytest.approx(2 * (1000 + 7 + 10 * PIECES))
    assert (took.loaded_pieces, took.stored_pieces) == (2 * PIECES, 0)


def test_a_dirty_window_is_stored_before_its_memory_is_used() -> None:
    took = simulate(two_regions("w", "r"))
    load_ns, store_ns = 7 + 10 * PIECES, 5 + 20 * PIECES
    assert took.step_ns == pytest.approx(2 * (1000 + load_ns) + store_ns)
    assert (took.loaded_pieces, took.stored_pieces) == (2 * PIECES, PIECES)
    assert took.peak_pieces == PIECES


def test_what_is_dead_is_neither_stored_nor_loaded() -> None:
    took = simulate(two_regions("wd", "wd"))
    assert took.step_ns == pytest.approx(2000)
    assert (took.loaded_pieces, took.stored_pieces) == (0, 0)


def test_addresses_change_one_chunk_after_the_other() -> None:
    link = replace(LINK, map_ns=30.0, unmap_ns=11.0)
    took = simulate(two_regions("wd", "wd"), link)
    assert took.step_ns == pytest.approx(2 * (1000 + 30 + 11))
    took = simulate(two_regions("r", "r"), link)
    assert took.step_ns == pytest.approx(2 * (1000 + 30 + 11 + 7 + 10 * PIECES))


def test_with_room_memory_is_mapped_ahead() -> None:
    link = replace(LINK, map_ns=30.0, unmap_ns=11.0)
    roomy = replace(two_regions("wd", "r"), budget_pieces=2 * PIECES)
    assert simulate(roomy, link).step_ns == pytest.approx(2000)


def test_memory_of_what_is_dead_for_a_short_time_is_kept() -> None:
    model = replace(two_regions("wd", "wd"), budget_pieces=2 * PIECES)
    cut = slots.cut(model, np.arange(model.num_launches))
    count = len(cut.gaps)
    choice = Fractions(0.0, np.ones(count), np.zeros(count), np.zeros(count))

    def resident(budget: int, keep_ns: float) -> int:
        tight = replace(model, budget_pieces=budget)
        kept = schedule.round_off(tight, cut, choice, keep_ns=keep_ns)
        assert schedule.needed_pieces(model, kept).max() <= budget
        return int(np.count_nonzero(kept.resident))

    assert resident(2 * PIECES, np.inf) == 2
    assert resident(2 * PIECES - 1, np.inf) == 0
    assert resident(2 * PIECES, 1000.0) == 0


def test_with_room_loads_hide_behind_launches() -> None:
    roomy = replace(two_regions("r", "r"), budget_pieces=2 * PIECES)
    assert simulate(roomy).step_ns == pytest.approx(2000)


def test_a_budget_that_is_too_small_for_a_launch_is_stuck() -> None:
    model = replace(two_regions("r", "r"), budget_pieces=PIECES - 1)
    with pytest.raises(simulator.StuckError):
        simulate(model)


def test_windows_of_a_cut_region_cover_its_accesses() -> None:
    model = two_regions("w", "r")
    windows = all_absent(model).windows
    assert windows.first.tolist() == windows.last.tolist() == [0, 1]
    assert windows.load.tolist() == [True, True]
    assert windows.store.tolist() == [True, False]
    assert schedule.needed_pieces(model, all_absent(model)).tolist() == [PIECES] * 2
