"""What the shim reads from launches: as the trace of the same launches says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import build

from transit.traces.signatures import signatures

PIECE = 2 << 20
LOWEST = 5 * PIECE
MASK = (1 << 64) - 1
KERNEL = 1
SOURCES = [
    "runtime/native/interpose/describe_work",
    "runtime/native/windows/functions",
    "runtime/native/windows/named_addresses",
    "runtime/native/windows/signature",
]


@dataclass(frozen=True)
class Kernel:
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: list[tuple[int, int]]  # offset, bytes
    words: list[int]

    def text(self) -> str:
        shape = [*self.grid, *self.block]
        layout = [len(self.parameters), *(n for pair in self.parameters for n in pair)]
        return " ".join(
            map(
                str,
                ["kernel", self.name, *shape, *layout, len(self.words), *self.words],
            )
        )

    def signature(self) -> int:
        names = pa.array([self.name]).dictionary_encode()
        numbers = [KERNEL, *self.grid, *self.block]
        return int(signatures(names, [np.array([n]) for n in numbers])[0])

    def named(self) -> list[int]:
        """Return the words that can be addresses: aligned, and within a parameter."""
        return [
            self.words[place]
            for offset, size in self.parameters
            for place in range(-(-offset // 8), (offset + size) // 8)
        ]


@dataclass(frozen=True)
class Filter:
    span_bytes: int
    live_pieces: set[int]

    def text(self) -> str:
        bits = sum(1 << piece for piece in self.live_pieces)
        num_words = self.span_bytes // PIECE // 64 + 1
        words = [bits >> 64 * i & MASK for i in range(num_words)]
        return " ".join(map(str, ["filter", LOWEST, self.span_bytes, *words]))

    def addresses(self, words: Iterable[int]) -> set[int]:
        return {
            word
            for word in words
            if 0 <= word - LOWEST < self.span_bytes
            and (word - LOWEST) // PIECE in self.live_pieces
        }

    def hash(self, addresses: set[int]) -> int:
        return sum(mix(a - LOWEST) for a in addresses) & MASK


def mix(x: int) -> int:
    x = x + 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("describe_work", SOURCES, tmp_path_factory.mktemp("native"))


def run(program: Path, text: str) -> list[list[str]]:
    done = subprocess.run(
        [program], input=text, text=True, check=True, capture_output=True
    )
    return [line.split() for line in done.stdout.splitlines()]


words = st.one_of(
    st.integers(0, MASK),
    st.integers(LOWEST - 8, LOWEST + 140 * PIECE),
    st.sampled_from([LOWEST, LOWEST + 1, LOWEST + 3 * PIECE, LOWEST + 130 * PIECE - 1]),
)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    name = draw(st.text("abcXYZ_09$é", min_size=1, max_size=20))
    sizes = st.tuples(*[st.integers(0, 2**31 - 1)] * 3)
    parameters, end = [], 0
    for size in draw(st.lists(st.integers(1, 200), max_size=8)):
        offset = end + draw(st.integers(0, 9))
        parameters.append((offset, size))
        end = offset + size
    count = -(-end // 8)
    block = draw(st.lists(words, min_size=count, max_size=count))
    return Kernel(name, draw(sizes), draw(sizes), parameters, block)


filters = st.builds(
    Filter,
    st.integers(1, 130).map(lambda pieces: pieces * PIECE),
    st.sets(st.integers(0, 129)),
)


@given(st.lists(kernels(), min_size=1, max_size=10), filters)
@settings(max_examples=60, deadline=None)
def test_signatures_and_addresses_are_those_of_the_trace(
    program: Path, launched: list[Kernel], accepted: Filter
) -> None:
    lines = run(program, "\n".join([accepted.text(), *(k.text() for k in launched)]))
    for kernel, by_parameter, in_buffer in zip(
        launched, lines[::2], lines[1::2], strict=False
    ):
        for line, named in ((by_parameter, kernel.named()), (in_buffer, kernel.words)):
            expected = accepted.addresses(named)
            signature, digest, is_whole, *found = map(int, line)
            assert signature == kernel.signature()
            assert len(found) == len(expected)
            assert set(found) == expected
            assert digest == accepted.hash(expected)
            assert is_whole


def test_what_names_more_than_can_be_kept_is_not_whole(program: Path) -> None:
    accepted = Filter(130 * PIECE, set(range(130)))
    many = [LOWEST + 8 * i for i in range(5000)]
    kernel = Kernel("k", (1, 1, 1), (1, 1, 1), [(0, 8 * len(many))], many)
    signature, _, is_whole, *found = map(
        int, run(program, f"{accepted.text()}\n{kernel.text()}")[0]
    )
    assert signature == kernel.signature()
    assert not is_whole
    assert found == many[:4096]


def test_boxes_reach_from_their_first_byte_to_their_last(program: Path) -> None:
    slices = {("9000", str((2 * 5 + 3) * 32 + 10)),
              (str(1000 + (8 + 2) * 64 + 3), str((2 * 8 + 3) * 64 + 10))}  # fmt: skip
    rows = (str(1000 + 2 * 64 + 3), str(3 * 64 + 10))
    found: dict[str, set[tuple[str, str]]] = {}
    for name, address, size in run(program, ""):
        found.setdefault(name, set()).add((address, size))
    assert found == {
        "rows": {rows, ("9000", str(3 * 32 + 10))},
        "from": {rows},
        "slices": slices,
        "peers": slices,
        "set": {("1000", str(3 * 64 + 10))},
    }
