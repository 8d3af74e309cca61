from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import cpp_layout, numpy_layout

from transit.compiler.plan import Allocation, Iteration, Placement, RankPlan
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
