"""What paging remembers of the work that a job did."""

from __future__ import annotations

import subprocess
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import build

NUM_REMEMBERED = 1 << 16
NUM_ADDRESSES = NUM_REMEMBERED * 8

Piece = tuple[int, list[int]]  # key, the addresses that it names
Found = tuple[int, list[int]]  # when the job last was there, what it named next
Remember = Callable[[list[Piece]], list[Found]]


@pytest.fixture(scope="module")
def remember(tmp_path_factory: pytest.TempPathFactory) -> Remember:
    folder = tmp_path_factory.mktemp("native")
    program = build("remember_past", ["runtime/native/paging/past"], folder)

    def run(pieces: list[Piece]) -> list[Found]:
        words = array("Q")
        for key, named in pieces:
            words.extend([key, len(named), *named])
        done = subprocess.run(
            [program], input=words.tobytes(), check=True, capture_output=True
        )
        lines = [list(map(int, line.split())) for line in done.stdout.splitlines()]
        return [(then, named) for then, *named in lines]

    return run


pieces = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.integers(1, 9), max_size=3)), max_size=60
)


@settings(deadline=None, max_examples=40)
@given(pieces)
def test_then_was_at_the_same_work(remember: Remember, done: list[Piece]) -> None:
    keys = [key for key, _ in done]
    before = 0
    for now, (then, named) in enumerate(remember(done), 1):
        if keys[now - 1] not in keys[: now - 1]:
            assert then == 0
        else:
            assert keys[then - 1] == keys[now - 1]
            assert then < now
            goes_on = 0 < before < now - 1 and keys[before] == keys[now - 1]
            assert not goes_on or then == before + 1
            assert named == done[then][1]
        before = then


def test_in_a_cycle_then_is_a_lap_ago(remember: Remember) -> None:
    """Also where the same work comes several times."""
    lap: list[Piece] = [(key, [key]) for key in (1, 2, 2, 2, 3, 2, 2, 4)]
    found = remember(lap * 4)
    length = len(lap)
    for now in range(2 * length + 1, 4 * length + 1):
        then, named = found[now - 1]
        if lap[(now - 1) % length][0] in (1, 3, 4):
            assert then == now - length
            assert named == lap[now % length][1]


def test_what_is_long_ago_is_forgotten(remember: Remember) -> None:
    many: list[Piece] = [(key, []) for key in range(10, NUM_REMEMBERED + 10)]
    found = remember([(1, [5]), (2, [6]), *many, (1, [5]), (2, [6])])
    assert found[-2:] == [(0, []), (0, [])]
    found = remember([(1, [5]), (2, [6]), *many[:-3], (1, [5]), (2, [6])])
    assert [then for then, _ in found[-2:]] == [1, 2]


def test_addresses_are_forgotten_before_the_work(remember: Remember) -> None:
    num_named = 16
    named = list(range(num_named))
    many: list[Piece] = [(key, named) for key in range(10, NUM_ADDRESSES // num_named)]
    start: list[Piece] = [(1, [5]), (2, [6])]
    assert remember([*start, *many, (1, [5])])[-1] == (1, [6])
    overwritten: list[Piece] = [(key, named) for key in range(-9 % 2**64, 2**64)]
    found = remember([*start, *many, *overwritten, *overwritten, (1, [5])])
    assert found[-1] == (1, [])
