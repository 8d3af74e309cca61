"""Steps without a plan: memory comes in when touched; the least recent leaves."""

from __future__ import annotations

import numpy as np
import pytest
from model_factory import make_model

from transit.compiler.model import Model
from transit.compiler.paging import page


def _turns(first: str, second: str, budget: int) -> Model:
    return make_model(
        [(0, 0, first), (1, 1, second)],
        pieces=[4, 4],
        duration_ns=[10.0, 10.0],
        budget=budget,
    )


def test_what_fits_takes_no_time() -> None:
    model = _turns("rw", "rw", budget=8)
    assert page(model, load_pieces_per_ns=1.0, store_pieces_per_ns=1.0) == 20


def test_none_where_a_launch_needs_more_than_there_is() -> None:
    model = _turns("r", "r", budget=3)
    assert page(model, load_pieces_per_ns=1.0, store_pieces_per_ns=1.0) is None


def test_clean_memory_is_stored_only_once() -> None:
    model = _turns("r", "r", budget=4)
    assert page(model, load_pieces_per_ns=2.0, store_pieces_per_ns=1.0) == 20 + 2 * 2


@pytest.mark.parametrize("what", ["w", "wd"])
def test_written_memory_is_stored_though_it_is_dead(what: str) -> None:
    model = _turns(what, what, budget=4)
    took_ns = page(model, load_pieces_per_ns=2.0, store_pieces_per_ns=1.0)
    assert took_ns == 20 + 2 * (2 + 4)


def test_transfers_both_ways_overlap() -> None:
    took_ns = page(
        _turns("w", "r", budget=4),
        load_pieces_per_ns=2.0,
        store_pieces_per_ns=1.0,
        both_pieces_per_ns=0.5,
    )
    assert took_ns == 20 + 4 / 0.5 + 4 / 2.0


def test_only_what_room_is_short_of_leaves() -> None:
    model = _turns("r", "r", budget=6)
    assert page(model, load_pieces_per_ns=1.0, store_pieces_per_ns=1.0) == 20 + 2 + 2


def test_least_recently_used_leaves_first() -> None:
    model = make_model(
        [(0, 0, "r"), (1, 1, "r"), (0, 2, "r"), (2, 3, "r")],
        pieces=[4, 4, 4],
        duration_ns=np.full(4, 10.0).tolist(),
        budget=8,
    )
    # Regions 1 and 2 push each other out; 0 is always the more recent one.
    assert page(model, load_pieces_per_ns=1.0, store_pieces_per_ns=1.0) == 40 + 8


def test_what_libraries_take_pushes_out() -> None:
    model = make_model(
        [(0, 0, "r")],
        pieces=[4],
        duration_ns=[10.0, 10.0],
        budget=4,
        fixed=[0, 3],
    )
    took_ns = page(model, load_pieces_per_ns=1.0, store_pieces_per_ns=1.0)
    assert took_ns == 20 + 3
