"""What is said when directions or an audit were asked for and not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import spool_factory as factory
from inspected_spools import AUDIT, DIRECTION, marks

from transit.traces.caveats import caveats
from transit.traces.manifest import Inspection
from transit.traces.reader import Trace

BOTH: list[Inspection] = ["direction", "audit"]


def told(
    run_dir: Path, mark: factory.Rows, wanted: list[Inspection]
) -> tuple[list[str], list[str]]:
    """Return what the summary and the trace say of two launches with such marks."""
    factory.small_spool(run_dir / "spool-1", mark=mark)
    summary = factory.convert_spools(run_dir, inspections=wanted)
    info = Trace.open(run_dir / "trace").manifest.rank(0)
    assert summary.caveats == [f"rank 0: {sentence}" for sentence in caveats(info)]
    return caveats(info), list(info.checks.missed_inspections)


def test_a_job_without_marks_is_told_how_to_make_some(tmp_path: Path) -> None:
    (sentence,), missed = told(tmp_path, [{"kind": 1}], BOTH)
    assert missed == ["audit", "direction"]
    assert sentence.startswith(
        "what is touched behind pointers and which way memory is touched could not be"
        " looked into"
    )
    assert "none was marked" in sentence
    assert "docs/recording.md" in sentence


def test_a_job_that_ended_before_is_told_to_run_longer(tmp_path: Path) -> None:
    (sentence,), missed = told(tmp_path, marks(1, 2, 0), ["direction"])
    assert missed == ["direction"]
    assert sentence.startswith("which way memory is touched could not be looked into")
    assert "came after the 2 recorded" in sentence
    assert "--iterations" in sentence


def test_an_inspected_iteration_that_was_not_completed_is_missed(
    tmp_path: Path,
) -> None:
    mark = [*marks(1, 1), {"kind": 5, "launch_id": 1, "value": DIRECTION}]
    (sentence,), _ = told(tmp_path, mark, ["direction"])
    assert "came after the 1 recorded" in sentence


@pytest.mark.parametrize(
    ("mark", "wanted"),
    [
        ([{"kind": 1}], []),
        (marks(1, 2, DIRECTION), ["direction"]),
        (marks(1, 2, DIRECTION, AUDIT), BOTH),
    ],
)
def test_nothing_is_said_of_what_was_found_or_not_wanted(
    tmp_path: Path, mark: factory.Rows, wanted: list[Inspection]
) -> None:
    assert told(tmp_path, mark, wanted) == ([], [])


def test_ranks_that_miss_the_same_are_told_at_once(tmp_path: Path) -> None:
    for rank in range(3):
        process = [{"rank": rank, "local_rank": rank, "world_size": 3}]
        mark = marks(1, 2) if rank == 1 else [{"kind": 1}]
        factory.small_spool(tmp_path / f"spool-{rank + 1}", process=process, mark=mark)
    first, second = factory.convert_spools(tmp_path, inspections=["direction"]).caveats
    assert first.startswith("ranks 0, 2: which way")
    assert second.startswith("rank 1: which way")
