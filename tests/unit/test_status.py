from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from layouts import cpp_layout, numpy_layout
from status_factory import status_bytes

from transit.errors import JobError
from transit.runtime import status
from transit.runtime.status import BackendKind, ShimState

HEADER = "runtime/native/status_file.h"


def test_dtype_mirrors_the_header(tmp_path: Path) -> None:
    fields = status.STATUS_DTYPE.names or ()
    expected = cpp_layout(HEADER, "StatusFile", fields, tmp_path)
    assert numpy_layout(status.STATUS_DTYPE) == expected


def test_codes_mirror_the_header() -> None:
    text = (Path(__file__).parents[2] / HEADER).read_text()
    for state in ShimState:
        camel = state.name.title().replace("_", "")
        assert f"k{camel} = {state.value}," in text
    for backend in BackendKind:
        assert f"k{backend.name.title()} = {backend.value}" in text
    assert f"kStatusVersion = {status.VERSION};" in text
    assert f"kNumLapTimes = {status.NUM_LAP_TIMES};" in text


def test_read(tmp_path: Path) -> None:
    path = tmp_path / "status-7.bin"
    path.write_bytes(
        status_bytes(
            pid=7,
            rank=3,
            state=2,
            backend=1,
            resident_peak_bytes=5 << 40,
            kernel_launches=10,
            graph_launches=1,
            copies=2,
            sets=3,
            message=b"first failure",
        )
    )
    read = status.read_status(path)
    assert (read.pid, read.rank, read.message) == (7, 3, "first failure")
    assert read.state is ShimState.REPLAYING
    assert read.backend is BackendKind.VMM
    assert read.resident_peak_bytes == 5 << 40
    assert read.launches_seen == 16
    assert json.loads(json.dumps(read.to_json()))["state"] == "replaying"


@pytest.mark.parametrize(
    ("laps", "step_ns", "lap_ns"),
    [
        (0, None, ()),
        (2, None, (100, 101)),
        (3, 101, (100, 101, 102)),
        (32, 116, tuple(range(100, 132))),
        # The ring goes around: its first two entries are of the last laps.
        (34, 116, (*range(102, 132), 100, 101)),
    ],
)
def test_laps_are_told_in_turn(
    laps: int, step_ns: int | None, lap_ns: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "status-7.bin"
    path.write_bytes(status_bytes(laps=laps, lap_ns=list(range(100, 132))))
    read = status.read_status(path)
    assert (read.measured_step_ns, read.lap_ns) == (step_ns, lap_ns)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not a complete status file"),
        (status_bytes()[:-1], "not a complete status file"),
        (b"\x7fELF" + status_bytes()[4:], "not a complete status file"),
        (status_bytes(version=1), "version 1; this transit reads version 7"),
        (status_bytes(state=9), "9 is not a valid ShimState"),
        (status_bytes(backend=9), "9 is not a valid BackendKind"),
    ],
)
def test_refused(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "status-1.bin"
    path.write_bytes(content)
    with pytest.raises(JobError, match=expected) as caught:
        status.read_status(path)
    assert str(path) in str(caught.value)


def test_a_run_without_its_damaged_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for pid, rank in ((30, 0), (10, 1), (20, 0)):
        content = status_bytes(pid=pid, rank=rank)
        (tmp_path / f"status-{pid}.bin").write_bytes(content)
    (tmp_path / "status-40.bin").write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        processes = status.read_run(tmp_path)
    assert [(p.rank, p.pid) for p in processes] == [(0, 20), (0, 30), (1, 10)]
    assert "status-40.bin" in caplog.text


def test_report_is_versioned() -> None:
    report = status.report([], exit_code=3)
    assert report == {
        "format": "transit-status",
        "version": 1,
        "exit_code": 3,
        "processes": [],
    }
