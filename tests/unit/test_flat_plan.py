from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import cpp_layout, numpy_layout

from transit.compiler.plan import Allocation, Iteration, Placement, RankPlan, Window
from transit.compiler.sequence import Sequence
from transit.runtime import flat_plan

MIB = 1 << 20
HEADER = "runtime/native/flat_plan.h"
ITERATION = Iteration(launches=1, signature="0" * 64, found_by="mark", confidence=1.0)


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        ("FlatPlanHeader", flat_plan.HEADER_DTYPE),
        ("FlatAllocation", flat_plan.ALLOCATION_DTYPE),
        ("FlatRange", flat_plan.RANGE_DTYPE),
        ("FlatWindow", flat_plan.WINDOW_DTYPE),
        ("FlatLaunch", flat_plan.LAUNCH_DTYPE),
        ("FlatKernel", flat_plan.KERNEL_DTYPE),
    ],
)
def test_dtypes_mirror_the_header(
    struct: str, dtype: np.dtype[Any], tmp_path: Path
) -> None:
    fields = dtype.names or ()
    assert numpy_layout(dtype) == cpp_layout(HEADER, struct, fields, tmp_path)


def test_constants_mirror_the_header() -> None:
    text = (Path(__file__).parents[2] / HEADER).read_text()
    letters = ", ".join(f"'{chr(byte)}'" for byte in flat_plan.MAGIC)
    assert f"{{{letters}}}" in text
    assert f"kFlatPlanVersion = {flat_plan.VERSION};" in text
    assert "kResident = 0, kZeroCopy = 1, kWindowed = 2 }" in text
    assert flat_plan.PLACEMENT_CODES == {"resident": 0, "zero-copy": 1, "windowed": 2}


@st.composite
def allocations(draw: st.DrawFn) -> list[Allocation]:
    keys = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=12))
    return [
        draw(one_allocation(device=device, ordinal=ordinal))
        for device, ordinal in sorted(keys)
    ]


@st.composite
def one_allocation(draw: st.DrawFn, *, device: int, ordinal: int) -> Allocation:
    pieces = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    kinds = st.sampled_from(["resident", "zero-copy"])
    offset, placements = 0, []
    for piece in pieces:
        placements.append(
            Placement(
                offset=offset, bytes=piece * 2 * MIB, placement=draw(kinds), why=""
            )
        )
        offset += piece * 2 * MIB
    address = draw(st.none() | st.integers(0, 1 << 20).map(lambda n: n * 2 * MIB))
    short = draw(st.integers(0, 2 * MIB - 1))
    return Allocation(
        device=device,
        ordinal=ordinal,
        bytes=offset - short,
        address_offset=address,
        placements=tuple(placements),
    )


@given(planned=allocations(), rank=st.integers(0, 1000))
def test_every_placement_comes_through(planned: list[Allocation], rank: int) -> None:
    flat = flat_plan.lower(
        RankPlan(ranks=(rank,), iteration=ITERATION, allocations=tuple(planned)),
        rank,
        gpu_memory_bytes=3 << 30,
    )
    header = np.frombuffer(flat, flat_plan.HEADER_DTYPE, 1)[0]
    assert header["magic"] == flat_plan.MAGIC
    assert header["rank"] == rank
    assert header["gpu_memory_bytes"] == 3 << 30
    assert header["file_bytes"] == len(flat)
    start = int(header["header_bytes"])
    rows = np.frombuffer(
        flat, flat_plan.ALLOCATION_DTYPE, header["num_allocations"], start
    )
    ranges = np.frombuffer(
        flat, flat_plan.RANGE_DTYPE, header["num_ranges"], start + rows.nbytes
    )
    assert start + rows.nbytes + ranges.nbytes == len(flat)
    found = [
        (
            int(row["device"]),
            int(row["ordinal"]),
            int(row["bytes"]),
            int(row["address_offset"]),
            [
                (int(r["offset"]), int(r["bytes"]), int(r["placement"]))
                for r in ranges[row["first_range"] :][: row["num_ranges"]]
            ],
        )
        for row in rows
    ]
    assert found == [
        (
            a.device,
            a.ordinal,
            a.bytes,
            2**64 - 1 if a.address_offset is None else a.address_offset,
            [
                (p.offset, p.bytes, flat_plan.PLACEMENT_CODES[p.placement])
                for p in a.placements
            ],
        )
        for a in planned
    ]


@st.composite
def windowed(draw: st.DrawFn) -> tuple[Sequence, tuple[Window, ...]]:
    """Calls of a few launches each, and windows of one range."""
    num_positions = draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    count = len(num_positions)
    words = st.integers(0, 2**64 - 1)
    signatures = draw(st.lists(words, min_size=count, max_size=count))
    named = [draw(st.lists(words, max_size=3, unique=True)) for _ in num_positions]
    calls = Sequence(
        np.array(signatures, np.uint64),
        np.array(num_positions, np.int64),
        np.array([len(own) for own in named], np.int64),
        np.zeros(count, np.bool_),
        np.array([word for own in named for word in sorted(own)], np.uint64),
        np.unique(np.array(signatures, np.uint64))[:2],
        np.array([1, 2][: len(set(signatures))], np.int64),
        np.array([8, 0, 24][: 2 * len(set(signatures)) - 1][:3], np.int64),
    )
    ends = sorted(draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True)))
    # Each call that was drawn ends a window; the next one begins after it.
    bounds = [
        (ends[i - 1] + 1, (end - ends[i - 1] - 1) % count) for i, end in enumerate(ends)
    ]
    begins, launches = calls.begins.tolist(), sum(num_positions)
    windows = []
    for (earliest, room), end in zip(bounds, ends, strict=True):
        start = draw(st.integers(0, room))
        first, last = begins[(earliest + start) % count], begins[end]
        before = begins[(earliest - 1) % count]
        ahead = (first - before - 1) % launches
        windows.append(
            Window(
                issue=(first - draw(st.integers(0, ahead))) % launches,
                first=first,
                last=last,
                written=last,
                load=draw(st.booleans()),
                write_back=draw(st.booleans()),
            )
        )
    return calls, tuple(sorted(windows, key=lambda window: window.first))


@given(windowed())
def test_windows_are_lowered_to_calls(
    drawn: tuple[Sequence, tuple[Window, ...]],
) -> None:
    calls, windows = drawn
    launches, count = len(calls.call_at), len(calls.signature)
    placed = Placement(
        offset=0, bytes=2 * MIB, placement="windowed", why="", windows=windows
    )
    flat = flat_plan.lower(
        RankPlan(
            ranks=(0,),
            iteration=ITERATION.model_copy(
                update={"launches": launches, "sequence": calls.encode()}
            ),
            allocations=(
                Allocation(
                    device=0,
                    ordinal=0,
                    bytes=2 * MIB,
                    address_offset=0,
                    placements=(placed,),
                ),
            ),
        ),
        0,
        gpu_memory_bytes=3 << 30,
    )
    header = np.frombuffer(flat, flat_plan.HEADER_DTYPE, 1)[0]
    assert header["num_launches"] == count
    kernels, words = calls.kernel, calls.words
    words_at = len(flat) - len(words) * flat_plan.WORD_DTYPE.itemsize
    kernels_at = words_at - len(kernels) * flat_plan.KERNEL_DTYPE.itemsize
    addresses = kernels_at - calls.named.nbytes
    found = np.frombuffer(flat, flat_plan.KERNEL_DTYPE, len(kernels), kernels_at)
    assert header["num_kernels"] == len(kernels)
    assert found["signature"].tolist() == kernels.tolist()
    assert found["first_word"].tolist() == [0, 1][: len(kernels)]
    assert found["num_words"].tolist() == calls.num_words.tolist()
    found = np.frombuffer(flat, flat_plan.WORD_DTYPE, len(words), words_at)
    assert header["num_words"] == len(words)
    assert found.tolist() == words.tolist()
    end = addresses - count * flat_plan.LAUNCH_DTYPE.itemsize
    named = np.frombuffer(flat, flat_plan.ADDRESS_DTYPE, len(calls.named), addresses)
    assert header["num_addresses"] == len(named)
    assert named.tolist() == calls.named.tolist()
    sequence = np.frombuffer(flat, flat_plan.LAUNCH_DTYPE, count, end)
    assert sequence["num_addresses"].tolist() == calls.num_named.tolist()
    ends = sequence["first_address"] + sequence["num_addresses"]
    assert ends.tolist() == np.cumsum(calls.num_named).tolist()
    assert sequence["signature"].tolist() == calls.signature.tolist()
    assert sequence["addresses"].tolist() == calls.addresses.tolist()
    start = end - len(windows) * flat_plan.WINDOW_DTYPE.itemsize
    rows = np.frombuffer(flat, flat_plan.WINDOW_DTYPE, len(windows), start)
    for position in range(launches):
        call = int(calls.call_at[position])
        begin = int(calls.begins[call])
        for row, window in zip(rows, windows, strict=True):
            assert is_between(row["first"], call, row["last"]) == window.covers(begin)
    for index, (row, window) in enumerate(zip(rows, windows, strict=True)):
        before = int(rows[index - 1]["last"])
        after = (before + 1) % count
        assert is_between(after, int(row["issue"]), int(row["first"]))
        assert row["written"] == row["last"]
        if calls.call_at[window.issue] != before:
            assert row["issue"] == calls.call_at[window.issue]
        assert row["flags"] == window.load + 2 * window.write_back


def is_between(first: int, position: int, last: int) -> bool:
    if first <= last:
        return bool(first <= position <= last)
    return bool(position >= first or position <= last)
