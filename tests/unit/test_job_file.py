"""What a run folder says of its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from transit.errors import TraceError
from transit.recorder.job_file import RecordedJob


def test_what_is_written_is_read(tmp_path: Path) -> None:
    job = RecordedJob(command=["python", "a b.py"], inspections=["audit"])
    job.write(tmp_path)
    assert RecordedJob.read(tmp_path) == job


def test_nothing_was_wanted_of_an_older_recording(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"command": ["train"]}')
    assert RecordedJob.read(tmp_path).inspections == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"command": "train"}',
        '{"command": [1]}',
        '{"inspections": []}',
        '{"command": ["train"], "inspections": ["colours"]}',
        '{"command": ["\\ud800"]}',
    ],
)
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(TraceError, match=r"job\.json is missing or damaged"):
        RecordedJob.read(tmp_path)
