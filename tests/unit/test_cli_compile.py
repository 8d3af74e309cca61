from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import transit
from trace_factory import LayeredLoop, write_tables, write_trace

from transit.commands.compile import Policy
from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.plan import load
from transit.compiler.policies import AUTO, POLICIES
from transit.traces import schema
from transit.traces.reader import Trace


def test_the_policies_on_the_command_line_are_those_there_are() -> None:
    assert set(Policy) == {*POLICIES, AUTO}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace")


def test_percentages_are_of_what_the_plan_calls_the_peak(trace: Path) -> None:
    done = transit("compile", trace, "--gpu-memory", "80%", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["job_peak_bytes"] == job_peak_bytes(Trace.open(trace))
    assert summary["gpu_memory_bytes"] == int(summary["job_peak_bytes"] * 0.8)
    assert 0 < summary["peak_resident_bytes"] <= summary["gpu_memory_bytes"]
    assert summary["zero_copy_bytes"] > 0
    assert summary["window_bytes"] == 0
    assert summary["policy"] == "reuse"
    assert summary["iteration_launches"] == 12
    assert "estimated, not measured" in done.stderr
    assert summary["estimated_extra_ns_per_iteration"] is None
    assert "profile h200 is of another GPU" in done.stderr


def test_an_estimate_of_time_is_for_the_gpu_of_the_profile(
    trace: Path, tmp_path: Path
) -> None:
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    profile["gpu_name"] = Trace.open(trace).manifest.ranks[0].devices[0].name
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps(profile))
    options = ["--gpu-memory", "80%", "--machine", machine, "--json"]
    done = transit("compile", trace, *options)
    assert json.loads(done.stdout)["estimated_extra_ns_per_iteration"] > 0
    assert re.search(r"per iteration, which adds \d+\.\d\d us", done.stderr)


def test_the_trace_folder_may_say_what_machine_it_is_of(trace: Path) -> None:
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    gpu = {"name": "theirs", "gpu_memory_bytes": 40 << 30}
    (trace / "machine.json").write_text(json.dumps(profile | gpu))
    summary = json.loads(transit("compile", trace, "--json").stdout)
    assert summary["machine"] == "theirs"
    assert summary["gpu_memory_bytes"] == 40 << 30
    named = transit("compile", trace, "--machine", "h200", "--json")
    assert named.returncode == 1
    assert "--gpu-memory is missing" in named.stderr
    other = ["--machine", "h200", "--gpu-memory", "80%", "--json"]
    assert json.loads(transit("compile", trace, *other).stdout)["machine"] == "h200"


def test_a_slower_link_takes_longer(trace: Path) -> None:
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    profile["gpu_name"] = Trace.open(trace).manifest.ranks[0].devices[0].name
    (trace / "machine.json").write_text(json.dumps(profile))

    def extra_ns(*options: str) -> int:
        done = transit("compile", trace, "--gpu-memory", "80%", "--json", *options)
        value: int = json.loads(done.stdout)["estimated_extra_ns_per_iteration"]
        return value

    assert extra_ns("--link-gbps", "5.54") > 5 * extra_ns()


def test_a_machine_without_zero_copy_cannot_spill(trace: Path) -> None:
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    for way in ("read", "write", "both"):
        del profile[f"zero_copy_{way}_bytes_per_s"]
    (trace / "machine.json").write_text(json.dumps(profile))
    done = transit("compile", trace, "--gpu-memory", "80%")
    assert done.returncode == 1
    assert "kernels cannot reach host memory" in done.stderr


def of_this_gpu(trace: Path, **other: object) -> None:
    """Let the rates that the plan is made with be those of the recorded GPU."""
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    profile["gpu_name"] = Trace.open(trace).manifest.ranks[0].devices[0].name
    (trace / "machine.json").write_text(json.dumps(profile | other))


def test_auto_lets_memory_come_and_go(trace: Path, tmp_path: Path) -> None:
    of_this_gpu(trace)
    path = tmp_path / "plan.json"
    arguments = ["--gpu-memory", "30%", "--policy", "auto", "--json", "-o", path]
    done = transit("compile", trace, *arguments)
    assert done.returncode == 0, done.stderr
    summary, plan = json.loads(done.stdout), load(path)
    assert summary["window_bytes"] == plan.total_bytes("windowed") > 0
    assert 0 < summary["peak_resident_bytes"] <= summary["gpu_memory_bytes"]
    assert summary["ideal_step_ms"] <= summary["bound_step_ms"]
    assert summary["bound_step_ms"] <= summary["predicted_step_ms"]
    gap = summary["predicted_step_ms"] / summary["bound_step_ms"] - 1
    assert summary["gap_percent"] == pytest.approx(gap * 100, abs=0.01)
    assert summary["h2d_bytes"] > 0
    assert re.search(r"predicted: \d+\.\d\d ms .* the gap is", done.stderr)
    assert f"next: transit replay --plan {path} -- COMMAND" in done.stderr

    job = ("touch", tmp_path / "ran")
    replayed = transit("replay", "--plan", path, "--backend", "uvm", "--", *job)
    assert replayed.returncode == 1
    assert "replay with --backend vmm" in replayed.stderr
    assert not (tmp_path / "ran").exists()


def test_calls_on_other_memory_are_warned_of(tmp_path: Path) -> None:
    loop = LayeredLoop()
    made = loop.tables()
    rows = made["accesses"].to_pylist()
    for row in rows:
        odd = row["launch_id"] // loop.launches_per_iteration % 2
        row["offset"] += 256 * odd
        row["bytes"] -= 256 * odd
    accesses = pa.Table.from_pylist(rows, schema.TABLES["accesses"])
    trace = write_tables(tmp_path / "t", {0: made | {"accesses": accesses}})
    of_this_gpu(trace)
    done = transit("compile", trace, "--gpu-memory", "30%", "--policy", "auto")
    assert done.returncode == 0, done.stderr
    count = loop.launches_per_iteration
    assert f"rank 0: {count} of the iteration's {count} calls" in done.stderr


def test_auto_gives_the_same_bytes_again(trace: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        arguments = ["--gpu-memory", "40%", "--policy", "auto", "-o", path]
        assert transit("compile", trace, *arguments).returncode == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_auto_moves_nothing_of_a_job_that_fits(trace: Path) -> None:
    of_this_gpu(trace)
    done = transit("compile", trace, "--gpu-memory=100%", "--policy=auto", "--json")
    summary = json.loads(done.stdout)
    assert summary["window_bytes"] == summary["zero_copy_bytes"] == 0
    assert summary["predicted_step_ms"] == summary["ideal_step_ms"]
    assert "the job fits" in done.stderr


NO_ZERO_COPY = {
    f"zero_copy_{way}_bytes_per_s": None for way in ("read", "write", "both")
}


@pytest.mark.parametrize("without", [True, False])
def test_auto_names_the_least_that_a_launch_needs(trace: Path, without: bool) -> None:
    of_this_gpu(trace, **(NO_ZERO_COPY if without else {}))
    small = transit("compile", trace, "--gpu-memory", "20MiB", "--policy", "auto")
    assert small.returncode == 1
    found = re.search(r"needs at least (\d+) MiB", small.stderr)
    assert found
    enough = ["--gpu-memory", f"{found[1]}MiB", "--policy", "auto"]
    assert transit("compile", trace, *enough).returncode == 0


def test_auto_wants_the_rates_of_the_backend(trace: Path) -> None:
    of_this_gpu(trace, backends={})
    done = transit("compile", trace, "--gpu-memory", "80%", "--policy", "auto")
    assert done.returncode == 1
    assert "what the vmm backend needs to move memory" in done.stderr


def test_plan_is_written_once(trace: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    arguments = ["compile", trace, "--gpu-memory", "80%", "-o", plan]
    done = transit(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"next: transit replay --plan {plan}" in done.stderr
    before = plan.read_bytes()

    shown = json.loads(transit("show", plan, "--json").stdout)
    assert sum(total["bytes"] for total in shown["totals"]) == sum(
        placement["bytes"] for placement in shown["placements"]
    )
    assert sum(total["share"] for total in shown["totals"]) == pytest.approx(1)
    assert "launches per iteration" not in str(shown["totals"])
    assert "costs least on the link" in transit("show", plan).stdout

    again = transit(*arguments, "--policy", "advise")
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert plan.read_bytes() == before

    forced = transit(*arguments, "--policy", "advise", "--force")
    assert forced.returncode == 0, forced.stderr
    assert load(plan).policy == "advise"


def test_larger_budget_than_the_job(trace: Path) -> None:
    done = transit("compile", trace, "--gpu-memory", "40GiB", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["zero_copy_bytes"] == 0
    assert "the job fits" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu-memory", "1MiB"], "needs at least"),
        (["--gpu-memory", "lots"], "not a size"),
        (["--gpu-memory", "0"], "not a possible amount"),
        (["--gpu-memory", "80%", "--machine", "abacus"], "abacus"),
        (["--gpu-memory", "80%", "--link-gbps", "0"], "a link of 0 GB/s"),
        (["--gpu-memory", "80%", "--link-gbps", "nan"], "a link of nan GB/s"),
    ],
)
def test_what_cannot_be_compiled(
    arguments: list[str], message: str, trace: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    done = transit("compile", trace, *arguments, "-o", plan)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not plan.exists()
