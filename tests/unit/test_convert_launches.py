"""Launches in a converted trace: their times, signatures and iterations."""

from __future__ import annotations

from pathlib import Path

import pytest
import spool_factory as factory
from spool_factory import NOW_NS, Rows


def test_launches_get_their_times_from_the_gpu(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=[factory.launch(1, name_id=0), factory.launch(0), factory.launch(2)],
        activity=[
            factory.activity(2, start_ns=0, end_ns=0),
            factory.activity(1, start_ns=NOW_NS + 7, end_ns=NOW_NS + 9),
            factory.activity(55),
        ],
    )
    rows = trace.table(0, "launches").to_pylist()
    assert [row["launch_id"] for row in rows] == [0, 1, 2]
    assert [row["name"] for row in rows] == ["kernel", "Test GPU", "kernel"]
    assert [row["start_ns"] for row in rows] == [None, NOW_NS + 7, None]
    assert [row["end_ns"] for row in rows] == [None, NOW_NS + 9, None]
    assert rows[1]["host_ns"] == NOW_NS + 1_000_000
    assert rows[1]["grid_x"] == 132
    assert rows[1]["block_x"] == 256
    assert factory.losses(trace) == {"untimed_activities": 1, "unmatched_activities": 1}
    rank = trace.manifest.ranks[0]
    assert rank.kernel_launches == rank.launches_seen_by_cupti == 3
    assert rank.kernel_launches_with_access == 2
    assert rank.kernel_activities == 3


def test_signatures_are_those_of_the_format(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=[
            factory.launch(0),
            factory.launch(1),
            factory.launch(2, grid=(133, 1, 1)),
            factory.launch(3, grid=(1, 132, 1)),
            factory.launch(4, name_id=0),
            factory.launch(5, kind=2),
        ],
    )
    found = factory.column(trace, "launches", "signature")
    expected = 0xCBF29CE484222325
    for step in [*b"kernel", 1, 132, 1, 1, 256, 1, 1]:
        expected = (expected ^ step) * 0x100000001B3 % 2**64
    assert found[0] == found[1] == expected
    assert len(set(found)) == 5


def test_a_clock_set_back_is_counted(tmp_path: Path) -> None:
    launches = [
        factory.launch(0),
        factory.launch(1, host_ns=NOW_NS - 5_000_000),
        factory.launch(2, host_ns=NOW_NS - 5_000_100),  # two threads, no step
    ]
    trace = factory.trace(tmp_path, launch=launches)
    assert factory.losses(trace)["clock_steps"] == 1


def _marks(first_step: int, *ends: int) -> Rows:
    steps: Rows = [
        {"kind": 2, "value": first_step + index, "launch_id": end}
        for index, end in enumerate(ends)
    ]
    return [{"kind": 1, "launch_id": 0}, *steps, {"kind": 3, "launch_id": 99}]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        # Two steps were skipped: the recording starts where the second ended.
        (_marks(3, 2, 5, 8), [(3, 0, 1), (4, 2, 4), (5, 5, 7)]),
        # None was: what comes before the first end is more than an iteration.
        (_marks(1, 2, 5, 8), [(2, 2, 4), (3, 5, 7)]),
        (_marks(1, 2, 2, 8), [(3, 2, 7)]),  # a step that launched nothing
        (_marks(1), []),
        (_marks(1, 4), []),
    ],
)
def test_iterations_lie_between_ends_of_steps(
    tmp_path: Path, marks: Rows, expected: list[tuple[int, int, int]]
) -> None:
    launches = [factory.launch(index) for index in range(8)]
    trace = factory.trace(tmp_path, launch=launches, mark=marks)
    rows = [tuple(row.values()) for row in trace.table(0, "iterations").to_pylist()]
    assert rows == [(*bounds, "optimizer step", "timing") for bounds in expected]


def test_an_inspected_iteration_has_another_purpose(tmp_path: Path) -> None:
    marks = _marks(3, 2, 5, 8)
    marks.insert(3, {"kind": 5, "value": 1, "launch_id": 5})
    launches = [factory.launch(index) for index in range(8)]
    trace = factory.trace(tmp_path, launch=launches, mark=marks)
    assert factory.column(trace, "iterations", "purpose") == [
        "timing",
        "timing",
        "direction",
    ]


def test_overhead_and_drops_are_kept(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        overhead=[
            {"start_ns": 5, "end_ns": 9, "kind": 1 << 16, "dropped_records": 4},
            {"start_ns": 1, "end_ns": 2},
        ],
    )
    rows = [tuple(row.values()) for row in trace.table(0, "overhead").to_pylist()]
    assert rows == [("transit", 1, 2, 0), ("buffer flush", 5, 9, 4)]
    assert factory.losses(trace) == {"dropped": 4}
