"""What the witnesses of a recording say of each other, and the words for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spool_factory as factory
from spool_factory import MIB, NOW_NS

from transit.traces.caveats import caveats
from transit.traces.manifest import Checks

SECOND_NS = 1_000_000_000
GPU, HOST, MANAGED = 3, 2, 5


def told(tmp_path: Path, **files: factory.Rows) -> tuple[Checks, list[str]]:
    """Return what is found in a `small_spool` with some files replaced."""
    info = factory.trace(tmp_path, **files).manifest.rank(0)
    return info.checks, caveats(info)


def sample(seconds: float, hooked: int, recorded: int, captured: int = 0) -> Any:
    return {
        "realtime_ns": NOW_NS + int(seconds * SECOND_NS),
        "monotonic_ns": int(seconds * SECOND_NS) + 5,
        "hooked_launches": hooked,
        "recorded_launches": recorded,
        "captured_launches": captured,
    }


def test_a_whole_recording_has_no_caveats(tmp_path: Path) -> None:
    checks, sentences = told(
        tmp_path, sample=[sample(0, 1000, 0), sample(1, 1102, 2, 100)]
    )

    assert sentences == []
    assert (checks.hooked_launches, checks.recorded_launches) == (102, 2)
    assert checks.captured_launches == 100


def test_launches_that_cupti_missed_are_said(tmp_path: Path) -> None:
    _, (sentence,) = told(tmp_path, sample=[sample(0, 0, 0), sample(1, 500, 2)])

    assert "the shim saw 500 launches and CUPTI 2" in sentence


def test_launches_of_a_closer_inspection_are_not_compared(tmp_path: Path) -> None:
    checks, sentences = told(
        tmp_path,
        mark=[
            {"host_ns": NOW_NS, "kind": 1},
            {"host_ns": NOW_NS, "kind": 5, "launch_id": 2, "value": 1},
        ],
        sample=[sample(0, 0, 0), sample(1, 2, 2), sample(2, 9000, 3)],
    )

    assert (checks.hooked_launches, sentences) == (2, [])


def test_kernels_without_an_activity_are_counted_those_of_graphs_too(
    tmp_path: Path,
) -> None:
    graph, kernel = 4, 1
    checks, (sentence,) = told(
        tmp_path,
        launch=[factory.launch(i) for i in range(40)]
        + [factory.launch(i, kind=graph) for i in (40, 41)],
        activity=[factory.activity(i) for i in range(10)],
        graph_launch=[{"launch_id": i, "graph": 1} for i in (40, 41)],
        graph_node=[
            {"graph": 1, "node": 0, "kind": kernel, "name_id": 1},
            {"graph": 1, "node": 1, "kind": kernel, "name_id": 1},
            {"graph": 1, "node": 2, "kind": 3, "name_id": 1},
        ],
    )

    assert checks.missing_kernel_activities == 30 + 2 * 2
    assert "34 of 44 kernels have no time" in sentence


def test_no_kernel_at_all_points_at_the_version(tmp_path: Path) -> None:
    _, (sentence,) = told(tmp_path, activity=[])

    assert "too old for this GPU" in sentence


def test_times_lost_are_put_down_to_the_full_gpu(tmp_path: Path) -> None:
    _, (sentence,) = told(
        tmp_path, activity=[factory.activity(i, start_ns=0, end_ns=0) for i in (0, 1)]
    )

    assert "no device memory" in sentence


def test_allocations_that_only_cupti_saw(tmp_path: Path) -> None:
    def memory(address: int, size: int, kind: int = GPU, operation: int = 1) -> Any:
        return {
            "address": address,
            "bytes": size,
            "memory_kind": kind,
            "operation": operation,
        }

    own = factory.allocation(0)["address"]
    elsewhere = own + 32 * MIB
    checks, (sentence,) = told(
        tmp_path,
        memory=[
            memory(own, 16 * MIB),
            memory(own + MIB, MIB),
            memory(elsewhere, 3 * MIB),
            memory(elsewhere, MIB, MANAGED),
            memory(elsewhere, 5 * MIB, HOST),
            memory(elsewhere, 3 * MIB, operation=2),
        ],
    )

    assert checks.unseen_allocations == 2
    assert checks.unseen_allocation_bytes == 4 * MIB
    assert "2 allocations on the GPU (4.00 MiB)" in sentence


@pytest.mark.parametrize("step_s", [-300, 120, -0.01])
def test_a_clock_that_was_set_is_counted_and_said(
    tmp_path: Path, step_s: float
) -> None:
    samples = [sample(second, second, second) for second in range(6)]
    for later in samples[3:]:
        later["realtime_ns"] += int(step_s * SECOND_NS)
    step_ns = int(step_s * SECOND_NS)
    trace = factory.trace(tmp_path, sample=samples)
    info = trace.manifest.rank(0)

    assert info.checks.clock_steps_ns == [step_ns]
    assert info.losses.clock_steps == 1
    assert f"by {step_s:+.3f} s" in " ".join(caveats(info))


def test_a_slewed_clock_is_not_a_step(tmp_path: Path) -> None:
    samples = [sample(i / 5, i, i) for i in range(6)]
    for i, later in enumerate(samples):
        later["realtime_ns"] += i * 100_000  # 500 ppm
    assert told(tmp_path, sample=samples)[1] == []


def test_what_the_disk_had_no_room_for_is_named(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    factory.write_file(folder, "uvm", [], num_dropped=7, pid=1)
    summary = factory.convert_spools(tmp_path)

    (sentence,) = summary.caveats
    assert sentence.startswith("rank 0: the disk had no room")
    assert "7 of uvm" in sentence


def test_failed_calls_are_added_up(tmp_path: Path) -> None:
    error = {"host_ns": NOW_NS, "count": 3, "what_name_id": 7, "reason_name_id": 8}
    names = [*factory.name_pieces(7, "flush"), *factory.name_pieces(8, "BROKEN (9)")]
    _, (sentence,) = told(tmp_path, error=[error, error], name=names)

    assert sentence == "flush failed 6 times: BROKEN (9)"


def test_a_cupti_that_reads_another_clock_is_said(tmp_path: Path) -> None:
    process = {"world_size": 1, "clock_realtime_ns": NOW_NS, "clock_cupti_ns": 5}
    _, (sentence,) = told(tmp_path, process=[process])

    assert "CUPTI's clock" in sentence


@pytest.mark.parametrize(
    "files",
    [
        {"sample": [sample(0, 0, 0), sample(1, 1 << 63, 2)]},
        {"sample": [{"realtime_ns": 1 << 63}]},
        {"memory": [{"address": 1 << 63, "operation": 1, "memory_kind": GPU}]},
    ],
)
def test_impossible_numbers_are_refused(
    tmp_path: Path, files: dict[str, factory.Rows]
) -> None:
    from transit.errors import TraceError

    with pytest.raises(TraceError, match="is damaged: impossible"):
        told(tmp_path, **files)


def test_hostile_counts_do_not_break_the_manifest(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    error = {"count": 2**64 - 1, "what_name_id": 1, "reason_name_id": 1}
    factory.write_file(folder, "error", [error, error], pid=1)
    factory.write_file(folder, "uvm", [], num_dropped=2**64 - 1, pid=1)

    assert len(factory.convert_spools(tmp_path).caveats) == 2
