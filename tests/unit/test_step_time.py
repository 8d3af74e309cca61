from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from status_factory import write_status

from transit.runtime.status import MIN_LAPS, NUM_LAP_TIMES, ProcessStatus
from transit.runtime.step_time import Expected, describe_step, deviation, slowest
from transit.units import format_ns

MS = 1_000_000
MIB = 1 << 20
EXPECTED = Expected(rank=0, step_ns=100 * MS, calls=100, copied_bytes=10 * MIB)
# Twenty laps of a hundred launches, and two before them.
AS_PLANNED = {
    "windowed_peak_bytes": 8 * MIB,
    "laps": 20,
    "h2d_bytes": 20 * 6 * MIB + 8 * MIB,
    "d2h_bytes": 20 * 4 * MIB + 8 * MIB,
    "locks": 1,
    "launches_planned": 2000,
    "launches_unlocked": 200,
    "gates": 500,
    "held_back_ns": 90 * MS,
}
MACHINE = "transit calibrate"


def process(folder: Path, step_ms: int = 150, **changes: Any) -> ProcessStatus:
    values = AS_PLANNED | changes
    times = [step_ms * MS] * NUM_LAP_TIMES
    return write_status(folder, pid=values.pop("pid", 7), lap_ns=times, **values)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, MACHINE),
        ({"launches_unlocked": 2001}, "mostly did something else .*2001 of 4001"),
        ({"launches_unlocked": 1999}, MACHINE),
        ({"launches_inserted": 50, "launches_elsewhere": 60}, "110 of 2110 launches"),
        ({"launches_inserted": 50, "launches_elsewhere": 50}, MACHINE),
        ({"loads_without_room": 3}, "3 chunks .* for lack of room"),
        ({"transfer_failures": 2}, "2 transfers of windows failed"),
        ({"h2d_bytes": 168 * MIB}, "copied 240.00 MiB, .* has 200.00 MiB for as many"),
        # Before the job was found, it needed more.
        (
            {"h2d_bytes": 768 * MIB, "unlocked_copied_bytes": 600 * MIB},
            "copied 240.00 MiB, .* has 200.00 MiB for as many",
        ),
        ({"h2d_bytes": 768 * MIB, "unlocked_copied_bytes": 700 * MIB}, MACHINE),
        # So much more when the job is found thrice.
        ({"h2d_bytes": 168 * MIB, "locks": 3}, MACHINE),
        # Skipped launches make nothing slower.
        ({"launches_skipped": 900}, MACHINE),
        # The first of several.
        ({"transfer_failures": 2, "launches_inserted": 900}, "900 of 2900 launches"),
    ],
)
def test_why_steps_are_longer(
    changes: dict[str, int], reason: str, tmp_path: Path
) -> None:
    text = deviation(process(tmp_path, **changes), EXPECTED)
    assert text is not None
    assert text.startswith(
        "a step is longer than predicted: 150.00 ms measured, 100.00 ms predicted; "
    )
    assert re.search(reason, text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"launches_skipped": 900}, "left out 900 of 2900 launches"),
        ({"launches_skipped": 100}, MACHINE),
        # What makes steps longer is no reason here.
        ({"loads_without_room": 3, "launches_inserted": 900}, MACHINE),
    ],
)
def test_why_steps_are_shorter(
    changes: dict[str, int], reason: str, tmp_path: Path
) -> None:
    text = deviation(process(tmp_path, 80, **changes), EXPECTED)
    assert text is not None
    assert "shorter than predicted: 80.00 ms measured" in text
    assert re.search(reason, text)


@pytest.mark.parametrize("step_ms", [90, 100, 110])
def test_a_tenth_is_no_deviation(step_ms: int, tmp_path: Path) -> None:
    one = process(tmp_path, step_ms, loads_without_room=9)
    assert deviation(one, EXPECTED) is None


def test_nothing_to_compare(tmp_path: Path) -> None:
    assert deviation(process(tmp_path), None) is None
    assert deviation(process(tmp_path, laps=MIN_LAPS - 1), EXPECTED) is None


def test_a_prediction_is_never_told_as_a_measurement(tmp_path: Path) -> None:
    few = describe_step(process(tmp_path, laps=MIN_LAPS - 1))
    assert few.startswith("nothing measured")
    assert f"{MIN_LAPS - 1} times, {MIN_LAPS} are needed" in few
    none = describe_step(process(tmp_path, laps=0, windowed_peak_bytes=0))
    assert none.startswith("nothing measured")
    some = describe_step(process(tmp_path, 150))
    assert some == "150.00 ms measured (median of the last 20 of 20 laps)"
    assert format_ns(EXPECTED.step_ns) not in few + none + some


def test_the_job_is_as_slow_as_its_slowest_process(tmp_path: Path) -> None:
    quick, slow = process(tmp_path, 100), process(tmp_path, 300, pid=8)
    unmeasured = process(tmp_path, 900, pid=9, laps=1)
    assert slowest([quick, slow, unmeasured]) == slow
    assert slowest([unmeasured]) is None
    assert slowest([]) is None
