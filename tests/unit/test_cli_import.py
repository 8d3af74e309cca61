from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import transit
from nsys_factory import call, export, kernel

FILE = Path(__file__).parents[1] / "data" / "kineto" / "eight_gpus_2022.json.gz"


def test_imported_trace_is_shown_exported_and_not_compiled(tmp_path: Path) -> None:
    done = transit("import", "kineto", FILE, "-o", "t", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote t: 120 launches, 3 iterations, of 1 process\n" in done.stderr
    assert "not in such files: accesses" in done.stderr

    shown = transit("show", "t", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["ranks"][0]["launches"] == 120

    exported = transit("export", "--perfetto", "t", "-o", "t.gz", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr

    # A percentage would be one of nothing: the reason has to come first.
    for budget in ("80%", "40GiB"):
        refused = transit("compile", "t", "--gpu-memory", budget, cwd=tmp_path)
        assert refused.returncode == 1
        assert "transit record" in refused.stderr
        assert "kernel launches has an access" in refused.stderr


def test_what_a_file_lacks_is_warned_about(tmp_path: Path) -> None:
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(10, 20, 1), kernel(30, 40, 9)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(5, 1)],
    }
    export(tmp_path / "report.sqlite", tables)
    done = transit("import", "nsys", "report.sqlite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: rank 0: 1 launches have no API call" in done.stderr
    assert (tmp_path / "trace" / "manifest.json").is_file()


def test_existing_trace_is_kept_unless_forced(tmp_path: Path) -> None:
    arguments = ["import", "kineto", FILE, "-o", "t"]
    assert transit(*arguments, cwd=tmp_path).returncode == 0
    again = transit(*arguments, cwd=tmp_path)
    assert (again.returncode, "--force" in again.stderr) == (1, True)
    assert transit(*arguments, "--force", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("source", ["nsys", "kineto"])
def test_failure_leaves_nothing_behind(source: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x7fELF")
    done = transit("import", source, "file", "-o", "t", cwd=tmp_path)
    assert done.returncode == 1
    assert "transit: error: file" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
