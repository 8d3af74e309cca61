"""The sequence of calls in a plan: what is encoded comes back, and nothing else."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.compiler import sequence
from transit.compiler.sequence import ANY_ADDRESSES, Sequence

words = st.integers(0, 2**64 - 1)
calls = st.lists(st.tuples(words, words, st.integers(1, 9)), min_size=1)


def make(*rows: tuple[int, int, int]) -> Sequence:
    signature, addresses, num_positions = zip(*rows, strict=True)
    return Sequence(
        np.array(signature, np.uint64),
        np.array(addresses, np.uint64),
        np.array(num_positions, np.int64),
    )


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@given(calls)
def test_what_is_encoded_comes_back(rows: list[tuple[int, int, int]]) -> None:
    encoded = make(*rows)
    launches = sum(row[2] for row in rows)
    text = encoded.encode()
    found = Sequence.decode(text, launches=launches)
    for name in ("signature", "addresses", "num_positions"):
        assert getattr(found, name).tolist() == getattr(encoded, name).tolist()
    assert found.encode() == text
    expected = [call for call, row in enumerate(rows) for _ in range(row[2])]
    assert found.call_at.tolist() == expected
    assert found.begins.tolist() == [expected.index(call) for call in range(len(rows))]


def test_the_bytes_are_as_documented() -> None:
    text = make((1, 2, 3), (4, ANY_ADDRESSES, 5)).encode()
    number = [*((n, 8) for n in (1, 4, 2, ANY_ADDRESSES)), (3, 4), (5, 4)]
    data = b"".join(value.to_bytes(size, "little") for value, size in number)
    assert zlib.decompress(base64.b64decode(text)) == data


@given(calls, st.data())
def test_damage_is_refused(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    text = make(*rows).encode()
    launches = sum(row[2] for row in rows)
    at = data.draw(st.integers(0, len(text) - 1))
    kept = data.draw(st.integers(0, len(text) - 1))
    for bad in (text[:kept], text[:at] + "é" + text[at:], text + text):
        with pytest.raises(ValueError, match="the sequence"):
            Sequence.decode(bad, launches=launches)


@pytest.mark.parametrize("launches", [1, 9, 11])
def test_the_launches_add_up(launches: int) -> None:
    text = make((1, 2, 3), (4, 5, 7)).encode()
    with pytest.raises(ValueError, match=r"launches|too long"):
        Sequence.decode(text, launches=launches)


def test_counts_that_overflow_or_are_zero_are_refused() -> None:
    for counts in ([2**32 - 1, 5], [0, 4], [4, 0]):
        text = make(*((1, 2, count) for count in counts)).encode()
        with pytest.raises(ValueError, match="the iteration of 4"):
            Sequence.decode(text, launches=4)


def test_a_bomb_does_not_go_off(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pack(bytes(1 << 20))
    with pytest.raises(ValueError, match="too long"):
        Sequence.decode(text, launches=100)
    monkeypatch.setattr(sequence, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="too long"):
        Sequence.decode(text, launches=2**31 - 1)
