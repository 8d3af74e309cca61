"""Which regions hold something that is needed again; launches 10 to 19 by hand."""

from __future__ import annotations

import numpy as np

from transit.compiler.lifetimes import FOREVER
from transit.compiler.liveness import BEFORE, Liveness


def _liveness(*held: tuple[int, int, int]) -> Liveness:
    region, first, stop = (np.array(c, np.int64) for c in zip(*held, strict=True))
    return Liveness(region, first, stop, 10, 19)


def _survives(liveness: Liveness, region: int, after: int, until: int) -> bool:
    answer = liveness.survives(np.array([region]), np.array([after]), np.array([until]))
    return bool(answer[0])


def _holds(liveness: Liveness, region: int, launch_id: int) -> bool:
    return bool(liveness.holds(np.array([region]), np.array([launch_id]))[0])


def test_a_block_that_stays_survives_everything() -> None:
    stays = _liveness((0, BEFORE, FOREVER))
    assert _survives(stays, 0, 10, 19)
    assert _survives(stays, 0, 19, 10)
    assert _survives(stays, 0, 12, 12)


def test_a_block_is_gone_once_it_is_freed() -> None:
    freed = _liveness((0, 12, 15))
    assert [_holds(freed, 0, i) for i in (11, 12, 14, 15)] == [False, True, True, False]
    assert _survives(freed, 0, 12, 14)
    assert not _survives(freed, 0, 14, 16)
    assert not _survives(freed, 0, 14, 12)


def test_freed_and_made_again_between_two_launches_does_not_survive() -> None:
    again = _liveness((0, 10, 15), (0, 15, 20))
    assert _holds(again, 0, 14)
    assert _holds(again, 0, 15)
    assert not _survives(again, 0, 14, 15)
    assert _survives(again, 0, 15, 19)


def test_another_block_beside_it_keeps_a_region_alive() -> None:
    beside = _liveness((0, 10, 15), (0, 15, 20), (0, 13, 17))
    assert _survives(beside, 0, 14, 15)
    assert not _survives(beside, 1, 14, 15)


def test_around_the_end_it_has_to_be_there_at_the_beginning_too() -> None:
    carried = _liveness((0, 18, FOREVER), (0, BEFORE, 13))
    assert _survives(carried, 0, 18, 12)
    assert not _survives(carried, 0, 18, 14)
    assert not _survives(carried, 0, 17, 12)


def test_nothing_known_holds_nothing() -> None:
    unknown = _liveness((0, 10, 20))
    assert not _holds(unknown, 1, 12)
    assert not _survives(unknown, 1, 12, 13)
