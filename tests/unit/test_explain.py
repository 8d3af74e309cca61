"""``transit compile --explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import transit
from trace_factory import write_trace

from transit.compiler import iteration, machine
from transit.compiler.compiler import Options, compile_trace
from transit.compiler.explain import explain
from transit.compiler.plan import Plan
from transit.errors import TraceError
from transit.traces.reader import Trace

SAMPLE = Path(__file__).parents[2] / "traces" / "samples" / "gpt-medium-audited-h200"
MIB = 1 << 20
H200 = machine.load("h200")


def explained(
    trace: Trace, policy: str, mib: int, name: str
) -> tuple[Plan, list[dict[str, Any]]]:
    plan = compile_trace(
        trace, gpu_memory_bytes=mib * MIB, policy=policy, machine=H200, compare=False
    )
    options = Options(mib * MIB, policy, H200, "vmm", compare=False)
    return plan, explain(trace, plan, options, name)


@pytest.mark.parametrize("policy", ["reuse", "advise", "auto"])
def test_accesses_and_gaps_make_up_the_iteration(tmp_path: Path, policy: str) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace"))
    total_ns = iteration.find(trace, 0).busy_ns[-1]
    for ordinal in range(20):
        plan, [found] = explained(trace, policy, 120, str(ordinal))
        assert found["ordinal"] == ordinal
        placed = plan.ranks[0].allocations[ordinal].placements
        ranges = found["ranges"]
        assert sum(part["bytes"] for part in ranges) == sum(p.bytes for p in placed)
        for part in ranges:
            passed = sum(a["launch_ns"] + a["gap_ns"] for a in part["accesses"])
            assert passed == pytest.approx(total_ns, abs=len(part["accesses"]))


def test_what_is_said_of_windows_is_what_the_plan_has(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace"))
    rates = H200.windows("vmm")
    seen = 0
    for ordinal in range(20):
        plan, [found] = explained(trace, "auto", 60, str(ordinal))
        placed = plan.ranks[0].allocations[ordinal].placements
        for part in found["ranges"]:
            [windows] = [
                p.windows
                for p in placed
                if p.offset <= part["offset_bytes"] < p.offset + p.bytes
            ]
            left = [a for a in part["accesses"] if a["gap"] == "leaves"]
            assert {a["launch"] for a in left} == {w.last for w in windows}
            loads = [a["load_ns"] for a in part["accesses"] if a["load_ns"]]
            stores = [a["store_ns"] for a in left if a["store_ns"]]
            assert len(loads) == sum(w.load for w in windows)
            assert len(stores) == sum(w.write_back for w in windows)
            load_ns = part["bytes"] / rates.load_bytes_per_s * 1e9 + rates.load_fixed_ns
            assert loads == pytest.approx([load_ns] * len(loads), abs=1)
            seen += len(windows)
    assert seen


def test_a_weight_is_not_read_in_place_as_kernels_re_read_it() -> None:
    trace = Trace.open(SAMPLE)
    _, [found] = explained(trace, "reuse", 9 << 10, "blocks.3.mlp.up.weight")
    assert found["labels"] == ["blocks.3.mlp.up.weight"]
    [part] = found["ranges"]
    assert part["placement"] == "resident"
    forward, backward, update = part["accesses"]
    assert [a["direction"] for a in part["accesses"]] == ["read", "read", "both"]
    for product in (forward, backward):
        assert product["rereads"]
        assert product["passes"] > 5
        assert product["zero_copy_ns"] > product["launch_ns"]
    assert not update["rereads"]
    assert forward["launch"] < backward["launch"] < update["launch"]


@pytest.mark.parametrize("name", ["999", "blocks.3.mlp.up.wieght", ""])
def test_an_unknown_allocation_is_refused_naming_some(name: str) -> None:
    with pytest.raises(TraceError, match="ordinals 0 to") as refused:
        explained(Trace.open(SAMPLE), "reuse", 9 << 10, name)
    assert ("blocks.3.mlp.up.weight" in str(refused.value)) == name.startswith("blocks")


def test_the_command_tells_in_words_and_in_json() -> None:
    arguments = ["compile", SAMPLE, "--gpu-memory", "9GiB", "--explain", "3"]
    told = transit(*arguments)
    assert told.returncode == 0, told.stderr
    assert "ordinal 3: 32.00 MiB, holds blocks.0.mlp.up.weight" in told.stdout
    assert "not measured" in told.stdout
    assert "659 to 692" in told.stdout
    data = json.loads(transit(*arguments, "--json").stdout)
    assert [row["ordinal"] for row in data["explained"]] == [3]
