from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from command_line import transit
from trace_factory import write_trace

from transit import __version__, cli
from transit.runtime.preload import JOB_VARIABLES

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


@pytest.fixture
def no_libraries(tmp_path: Path) -> str:
    """A folder with empty files in place of the native libraries."""
    for name in (
        "libtransit.so",
        "libtransit_recorder.so",
        "simgpu/lib/libcuda.so.1",
        "simgpu/lib/libcupti.so.13",
    ):
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(tmp_path / "lib")


def test_surface_is_frozen() -> None:
    """A new option is a promise: it is made here, on purpose, and documented."""
    surface = {
        name: sorted(
            option
            for parameter in command.params
            if parameter.param_type_name == "option"
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--")
        )
        for name, command in COMMANDS.items()
    }
    assert surface == {
        "record": [
            "--audit",
            "--directions",
            "--dry-run",
            "--exit-after",
            "--force",
            "--iterations",
            "--no-directions",
            "--output",
            "--recover",
            "--simulated-gpu",
            "--skip",
        ],
        "compile": [
            "--backend",
            "--explain",
            "--force",
            "--gpu-memory",
            "--json",
            "--link-gbps",
            "--machine",
            "--output",
            "--policy",
            "--report",
            "--sweep",
        ],
        "replay": [
            "--any-gpu",
            "--backend",
            "--dry-run",
            "--force",
            "--host-memory",
            "--plan",
            "--simulated-gpu",
            "--status",
            "--strict",
        ],
        "status": ["--interval", "--json", "--watch"],
        "run": [
            "--backend",
            "--dry-run",
            "--force",
            "--gpu-memory",
            "--headroom",
            "--host-memory",
            "--policy",
            "--prefetch",
            "--simulated-gpu",
            "--status",
            "--strict",
        ],
        "show": ["--json", "--rows"],
        "diff": ["--json", "--rows"],
        "export": ["--force", "--output", "--perfetto"],
        "import": ["--force", "--output"],
        "calibrate": ["--device", "--force", "--json", "--output"],
        "doctor": ["--json", "--simulated-gpu"],
        "demo": ["--keep"],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_the_manual_the_options(name: str) -> None:
    command = COMMANDS[name]
    assert f"Example: transit {name}" in (command.help or "")
    manual = (ROOT / "docs" / "cli.md").read_text()
    section = manual.split(f"## transit {name}\n")[1].split("\n## ")[0]
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                assert f"`{option}" in section, option


def test_every_variable_is_documented() -> None:
    text = (ROOT / "docs" / "environment.md").read_text()
    known = JOB_VARIABLES | cli.option_variables(typer.main.get_command(cli.app))
    assert [name for name in sorted(known) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag: str) -> None:
    done = transit(flag)
    assert (done.stdout, done.returncode) == (f"transit {__version__}\n", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["record"], "the job's command is missing"),
        (["replay", "--plan", "p"], "the job's command is missing"),
        (["replay", "--", "true"], "--plan"),
        (["run", "--gpu-memory", "1GiB"], "the job's command is missing"),
        (["run", "--", "true"], "--gpu-memory"),
        (
            ["run", "--gpu-memory", "1GiB", "--policy", "base", "true"],
            "--policy is for --backend uvm",
        ),
        (
            ["run", "--gpu-memory", "1GiB", "--backend", "uvm", "--prefetch", "true"],
            "--policy prefetch",
        ),
        (["compile", "--gpu-memory", "1GiB"], "trace"),
        (["frobnicate"], "frobnicate"),
        (["record", "--iterations", "-1", "--", "true"], "--iterations"),
    ],
)
def test_usage_errors(arguments: list[str], message: str) -> None:
    done = transit(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_misspelt_variable_is_named() -> None:
    done = transit("demo", "-h", TRANSIT_GPU_MEMROY="1", TRANSIT_SIM_GPU_COUNT="1")
    assert done.stderr.splitlines() == [
        "transit: warning: TRANSIT_GPU_MEMROY is set and nothing reads it; "
        "is it misspelt?"
    ]


def test_record_dry_run(no_libraries: str, tmp_path: Path) -> None:
    done = transit(
        *("record", "-o", "t", "--skip", "3", "--dry-run", "--simulated-gpu"),
        *("--", "python", "train.py", "--force", "a b"),
        cwd=tmp_path,
        TRANSIT_LIB_DIR=no_libraries,
        TRANSIT_ITERATIONS="7",
        LD_PRELOAD="",
        LD_LIBRARY_PATH="/first",
    )
    assert done.returncode == 0, done.stderr
    *lines, command = done.stdout.splitlines()
    variables = dict(line.removesuffix(" \\").split("=", 1) for line in lines)
    assert command == "python train.py --force 'a b'"
    assert variables["LD_PRELOAD"] == f"{no_libraries}/libtransit.so"
    assert variables["CUDA_INJECTION64_PATH"] == (
        f"{no_libraries}/libtransit_recorder.so"
    )
    assert variables["LD_LIBRARY_PATH"] == f"{no_libraries}/simgpu/lib:/first"
    assert variables["TRANSIT_ITERATIONS"] == "7"
    assert variables["TRANSIT_SKIP"] == "3"
    assert variables["TRANSIT_DIRECTIONS"] == "1"
    assert variables["TRANSIT_AUDIT"] == "0"
    assert variables["PYTHONPATH"].split(":")[0].endswith("recorder/hook")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lib"]


@pytest.mark.parametrize(
    ("flags", "variable", "expected"),
    [
        (["--no-directions"], None, "0"),
        ([], "0", "0"),
        (["--directions"], "0", "1"),
        (["--no-directions"], "1", "0"),
    ],
)
def test_directions_can_be_left_out(
    flags: list[str], variable: str | None, expected: str, no_libraries: str
) -> None:
    variables = {"TRANSIT_LIB_DIR": no_libraries}
    if variable is not None:
        variables["TRANSIT_DIRECTIONS"] = variable
    done = transit("record", *flags, "--dry-run", "--", "train", **variables)
    assert done.returncode == 0, done.stderr
    assert f"TRANSIT_DIRECTIONS={expected} \\" in done.stdout.splitlines()


def test_what_was_preloaded_stays(no_libraries: str) -> None:
    # An empty item: the loader would complain about a file that is not there.
    arguments = ["record", "--dry-run", "--simulated-gpu", "true"]
    done = transit(*arguments, TRANSIT_LIB_DIR=no_libraries, LD_PRELOAD="libc.so.6")
    assert f"LD_PRELOAD={no_libraries}/libtransit.so:libc.so.6 " in done.stdout


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CUDA_INJECTION64_PATH": "/opt/nsys.so"}, "already set to /opt/nsys.so"),
        ({"TRANSIT_RUN_DIR": "/run"}, "cannot be nested"),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "backend:native, expandable_segments:True"},
            "PYTORCH_CUDA_ALLOC_CONF asks for expandable_segments",
        ),
        (
            {"PYTORCH_ALLOC_CONF": "expandable_segments:true"},
            "PYTORCH_ALLOC_CONF asks for expandable_segments",
        ),
    ],
)
def test_environments_refused(
    variables: dict[str, str], message: str, no_libraries: str, tmp_path: Path
) -> None:
    done = transit(
        *("record", "--", "touch", "started"),
        cwd=tmp_path,
        TRANSIT_LIB_DIR=no_libraries,
        **variables,
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lib"]


@pytest.mark.parametrize("name", ["a b", "a:b"])
def test_library_path_that_cannot_be_preloaded(
    name: str, no_libraries: str, tmp_path: Path
) -> None:
    folder = Path(no_libraries).rename(tmp_path / name)
    done = transit(
        *("record", "--", "touch", "started"),
        cwd=tmp_path,
        TRANSIT_LIB_DIR=str(folder),
    )
    assert done.returncode == 1
    assert "space or a colon" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_missing_library_is_named(tmp_path: Path) -> None:
    done = transit("record", "true", cwd=tmp_path, TRANSIT_LIB_DIR=str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path}/libtransit.so" in done.stderr
    assert not list(tmp_path.iterdir())


def test_show_trace(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace", ranks=2, layers=2, iterations=3)
    done = transit("show", trace, "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["format"] == "transit-trace-description"
    assert [rank["launches"] for rank in shown["ranks"]] == [18, 18]
    kernels = {kernel["name"]: kernel for kernel in shown["kernels"]}
    assert kernels["forward"]["launches"] == 2 * 2 * 3
    assert kernels["forward"]["total_ns"] == 12 * 1_000_000
    assert sum(kernel["share"] for kernel in shown["kernels"]) == pytest.approx(1)
    weight = next(a for a in shown["allocations"] if a["ordinal"] == 0)
    assert weight["accesses"] == 3 * 3

    text = transit("show", trace, "--rows", "1").stdout
    assert "backward" in text  # as long as forward, and first by name
    assert "forward" not in text
    assert "python train.py" in text
    assert "8.00 MiB" not in text  # the first allocation is the 2 MiB workspace
    assert "2.00 MiB" in text
    assert "and 21 more: --rows" in text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing", None, "cannot be read"),
        ("empty.json", b"", "empty"),
        ("program", b"\x7fELF\x01\x02\xff", "not UTF-8"),
        ("other.json", b"{}", "not a transit-plan"),
    ],
)
def test_show_what_is_neither(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = transit("show", tmp_path / name)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_pipe_is_silent(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace")
    command = [sys.executable, "-m", "transit", "show", str(trace)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""


def test_doctor_reports_what_is_broken(tmp_path: Path) -> None:
    done = transit("doctor", "--json", TRANSIT_LIB_DIR=str(tmp_path))
    assert done.returncode == 1
    report = json.loads(done.stdout)
    findings = {f["check"]: f for f in report["findings"]}
    assert findings["libraries"]["verdict"] == "broken"
    assert findings["python"]["verdict"] == "ok"
    assert findings["allocator"]["verdict"] == "ok"
