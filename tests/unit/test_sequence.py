"""The sequence of calls in a plan: what is encoded comes back, and nothing else."""

from __future__ import annotations

import base64
import zlib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.compiler import sequence
from transit.compiler.arrays import mix
from transit.compiler.sequence import ANY_ADDRESSES, Sequence

words = st.integers(0, 2**64 - 1)
# signature, number of positions, whether it is a graph, addresses
Call = tuple[int, int, bool, list[int]]
named = st.lists(words, max_size=4, unique=True).map(sorted)
known_words = st.dictionaries(
    words, st.lists(st.integers(0, 2**32 - 1), max_size=3, unique=True).map(sorted)
)
calls = st.lists(
    st.tuples(words, st.integers(1, 9), st.just(False), named)
    | st.tuples(words, st.integers(1, 9), st.just(True), st.just(list[int]())),
    min_size=1,
)


def make(*rows: Call, words: dict[int, list[int]] | None = None) -> Sequence:
    kernels = sorted((words or {}).items())
    signature, num_positions, is_graph, named = zip(*rows, strict=True)
    return Sequence(
        np.array(signature, np.uint64),
        np.array(num_positions, np.int64),
        np.array([len(own) for own in named], np.int64),
        np.array(is_graph, np.bool_),
        np.array([address for own in named for address in own], np.uint64),
        np.array([kernel for kernel, _ in kernels], np.uint64),
        np.array([len(own) for _, own in kernels], np.int64),
        np.array([word for _, own in kernels for word in own], np.int64),
    )


def short(*num_positions: int) -> Sequence:
    """Return calls that name nothing."""
    return make(*((1, count, False, []) for count in num_positions))


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@given(calls, known_words)
def test_what_is_encoded_comes_back(
    rows: list[Call], words: dict[int, list[int]]
) -> None:
    encoded = make(*rows, words=words)
    launches = sum(row[1] for row in rows)
    text = encoded.encode()
    found = Sequence.decode(text, launches=launches)
    for field in fields(Sequence):
        name = field.name
        assert getattr(found, name).tolist() == getattr(encoded, name).tolist()
    assert found.encode() == text
    expected = [call for call, row in enumerate(rows) for _ in range(row[1])]
    assert found.call_at.tolist() == expected
    assert found.begins.tolist() == [expected.index(call) for call in range(len(rows))]


@given(calls)
def test_addresses_are_hashed_as_a_set(rows: list[Call]) -> None:
    expected = [
        ANY_ADDRESSES if is_graph else sum(map(hashed, addresses)) % 2**64
        for _, _, is_graph, addresses in rows
    ]
    assert make(*rows).addresses.tolist() == expected


def hashed(address: int) -> int:
    return int(mix(np.array([address], np.uint64))[0])


def test_the_bytes_are_as_documented() -> None:
    calls = (1, 3, False, [6, 7]), (4, 5, True, [])
    text = make(*calls, words={9: [8, 16]}).encode()
    numbers = [(2, 4), (2, 4), (1, 4), (2, 4)]
    numbers += [(1, 8), (4, 8), (3, 4), (5, 4), (2, 4), (0, 4), (0, 1), (1, 1)]
    numbers += [(6, 8), (7, 8), (9, 8), (2, 4), (8, 4), (16, 4)]
    data = b"".join(value.to_bytes(size, "little") for value, size in numbers)
    assert zlib.decompress(base64.b64decode(text)) == data


@given(calls, st.data())
def test_damage_is_refused(rows: list[Call], data: st.DataObject) -> None:
    text = make(*rows).encode()
    launches = sum(row[1] for row in rows)
    at = data.draw(st.integers(0, len(text) - 1))
    kept = data.draw(st.integers(0, len(text) - 1))
    for bad in (text[:kept], text[:at] + "é" + text[at:], text + text):
        with pytest.raises(ValueError, match="the sequence"):
            Sequence.decode(bad, launches=launches)


@pytest.mark.parametrize("launches", [1, 9, 11])
def test_the_launches_add_up(launches: int) -> None:
    text = short(3, 7).encode()
    with pytest.raises(ValueError, match="launches"):
        Sequence.decode(text, launches=launches)


def test_counts_that_overflow_or_are_zero_are_refused() -> None:
    for counts in ([2**32 - 1, 5], [0, 4], [4, 0]):
        text = short(*counts).encode()
        with pytest.raises(ValueError, match="the iteration of 4"):
            Sequence.decode(text, launches=4)


@pytest.mark.parametrize("wrong", [[5, 5], [6, 5]])
def test_what_is_out_of_order_is_refused(wrong: list[int]) -> None:
    text = make((1, 4, False, wrong)).encode()
    with pytest.raises(ValueError, match="out of order"):
        Sequence.decode(text, launches=4)
    text = make((1, 4, False, []), words={9: wrong}).encode()
    with pytest.raises(ValueError, match="out of order"):
        Sequence.decode(text, launches=4)
    kernels = make((1, 4, False, []), words={5: [], 6: []})
    text = replace(kernels, kernel=np.array(wrong, np.uint64)).encode()
    with pytest.raises(ValueError, match="out of order"):
        Sequence.decode(text, launches=4)


@pytest.mark.parametrize("num_named", [0, 1, 3, 2**32 - 1])
def test_addresses_that_do_not_add_up_are_refused(num_named: int) -> None:
    damaged = replace(
        make((1, 4, False, [5, 6])), num_named=np.array([num_named], np.int64)
    )
    with pytest.raises(ValueError, match="too few entries"):
        Sequence.decode(damaged.encode(), launches=4)


def test_a_bomb_does_not_go_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "MAX_BYTES", 1000)
    text = short(*[1] * 1000).encode()
    with pytest.raises(ValueError, match="too long"):
        Sequence.decode(text, launches=1000)
    with pytest.raises(ValueError, match="the sequence"):
        Sequence.decode(pack(bytes(100)), launches=1000)
