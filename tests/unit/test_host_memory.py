"""What host memory there is, and what a job may have of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from transit.errors import BudgetError
from transit.runtime import host_memory
from transit.runtime.budget import check_host_memory

GIB = 1 << 30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control groups of a process in `outer/inner`; 4 GiB are available."""
    meminfo, own, folder = (tmp_path / name for name in ("meminfo", "own", "groups"))
    meminfo.write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nHuge: 0\n")
    own.write_text("0::/outer/inner\n")
    (folder / "outer" / "inner").mkdir(parents=True)
    monkeypatch.setattr(host_memory, "MEMINFO", meminfo)
    monkeypatch.setattr(host_memory, "CGROUP", own)
    monkeypatch.setattr(host_memory, "CGROUPS", folder)
    return folder


@pytest.mark.parametrize("group", ["", "outer", "outer/inner"])
@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max\n", 4 * GIB), (f"{2 * GIB}\n", GIB * 3 // 2), ("9" * 19, 4 * GIB)],
)
def test_a_group_has_what_is_left_of_its_limit(
    group: str, limit: str, expected: int, groups: Path
) -> None:
    folder = groups / group
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text(f"{GIB}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 2}\n")
    assert host_memory.available_bytes() == expected


def test_without_groups_there_is_what_the_machine_has(groups: Path) -> None:
    host_memory.CGROUP.unlink()
    assert host_memory.available_bytes() == 4 * GIB


@pytest.mark.parametrize(
    ("option", "expected"), [(None, 4 * GIB), ("25%", GIB), ("3GiB", 3 * GIB)]
)
def test_a_bound_is_what_is_available_unless_given(
    option: str | None, expected: int, groups: Path
) -> None:
    assert host_memory.bound_bytes(option) == expected


def test_a_bound_above_what_is_available_is_warned_of(
    groups: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert host_memory.bound_bytes("5GiB") == 5 * GIB
    assert "4.00 GiB available" in caplog.text


def test_a_plan_that_needs_more_is_refused() -> None:
    assert check_host_memory([], 1) is None
    assert check_host_memory([3, 3], 6) is None
    assert "all run here" in (check_host_memory([3, 3], 5) or "")
    with pytest.raises(BudgetError, match="--host-memory"):
        check_host_memory([1, 6], 5)
