from __future__ import annotations

import csv
import gzip
import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from command_line import transit
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_lists_factory import HARDWARE, Row, kernel, tensor, write_lists

from transit.compiler import iteration
from transit.compiler.lifetimes import Timeline, job_peak_bytes, read_allocations
from transit.compiler.machine import load
from transit.errors import TraceError
from transit.traces.caveats import caveats
from transit.traces.check import refuse_contradictions
from transit.traces.imports.tensors import import_tensors
from transit.traces.reader import Trace

MIB = 1 << 20
PIECE = 2 * MIB

# The weight stays; tensor 1 is made, updated in place and read; 2 is small, 3 is never
# read.
TENSORS = [
    tensor(0, 4 * MIB, None, None),
    tensor(1, 6 * MIB, 0, 3),
    tensor(2, 4096, 1, 3),
    tensor(3, 2 * MIB, 2, -1),
]
KERNELS = [
    kernel(0, [0], [1]),
    kernel(1, [1], [1, 2], workspace=3 * MIB, times_ns=(500, 500, 900)),
    kernel(2, [1, 2], [0, 3]),
]
REAL_LISTS = os.environ.get("TRANSIT_TEST_TENSOR_LISTS", "")


def imported(folder: Path, tensors: list[Row], kernels: list[Row]) -> Trace:
    import_tensors(write_lists(folder / "lists", tensors, kernels), folder / "trace")
    trace = Trace.open(folder / "trace")
    refuse_contradictions(trace, 0)
    return trace


def test_accesses_are_those_listed(tmp_path: Path) -> None:
    trace = imported(tmp_path, TENSORS, KERNELS)
    labels = {
        (block["allocation_id"], block["offset"]): block["label"]
        for block in trace.table(0, "blocks").to_pylist()
    }
    rows = trace.table(0, "accesses").to_pylist()
    found = {
        (
            row["launch_id"] // 2,
            labels[row["allocation_id"], row["offset"]],
            row["bytes"],
            row["direction"],
        )
        for row in rows
    }
    weight, small = "layer0.out, weight", "layer2.out, activation"
    large, unread = "layer1.out, activation", "layer3.out, activation"
    assert found == {
        (0, weight, 4 * MIB, "read"),
        (0, large, 6 * MIB, "write"),
        (1, large, 6 * MIB, "both"),
        (1, small, 4096, "write"),
        (2, large, 6 * MIB, "read"),
        (2, small, 4096, "read"),
        (2, weight, 4 * MIB, "write"),
        (2, unread, 2 * MIB, "write"),
    }
    known_by = {(row["extent"], row["source"], row["direction_source"]) for row in rows}
    assert known_by == {("exact", "listed", "listed")}


def test_kernels_follow_each_other_and_are_told_apart(tmp_path: Path) -> None:
    again = kernel(3, [0], []) | {"op": "L0"}
    trace = imported(tmp_path, TENSORS, [*KERNELS, again])
    launches = trace.table(0, "launches").to_pylist()
    times = [(row["start_ns"], row["end_ns"]) for row in launches]
    assert [end - start for start, end in times] == [1000, 500, 1000, 1000]
    assert all(end == start for (_, end), (start, _) in pairwise(times))
    signatures = [row["signature"] for row in launches]
    assert len(set(signatures)) == 3
    assert signatures[3] == signatures[0]


def test_the_iteration_can_be_planned(tmp_path: Path) -> None:
    trace = imported(tmp_path, TENSORS, KERNELS)
    steady = iteration.find(trace, 0)
    assert (steady.num_launches, steady.confidence) == (3, 1.0)
    assert steady.duration_ns.tolist() == [1000, 500, 1000]
    assert steady.found_by == "published tensor lists"


def test_only_workspaces_cannot_be_moved(tmp_path: Path) -> None:
    trace = imported(tmp_path, TENSORS, KERNELS)
    rows = trace.table(0, "allocations").to_pylist()
    fixed = [row for row in rows if row["ordinal"] is None]
    assert [(row["bytes"], row["alloc_launch_id"]) for row in fixed] == [(3 * MIB, 2)]
    ordinals = [row["ordinal"] for row in rows if row["ordinal"] is not None]
    assert ordinals == list(range(4))
    assert all(a["address"] + a["bytes"] <= b["address"] for a, b in pairwise(rows))


def test_small_tensors_lie_in_pages_of_one_allocation(tmp_path: Path) -> None:
    small = [tensor(0, 4097, 0, 1), tensor(1, 1, None, None), tensor(2, 9, 0, 1)]
    trace = imported(tmp_path, small, [kernel(0, [0, 1, 2], [])])
    assert trace.table(0, "allocations")["bytes"].to_pylist() == [4 * 4096]
    assert trace.table(0, "allocations")["free_launch_id"].to_pylist() == [None]
    blocks = trace.table(0, "blocks")
    assert blocks["offset"].to_pylist() == [0, 8192, 12288]
    assert blocks["free_launch_id"].to_pylist() == [1, None, 1]


def live_bytes(
    tensors: list[Row], kernels: list[Row], granularity: int
) -> npt.NDArray[np.int64]:
    """Count live bytes at each kernel: the lists' rule, straightforwardly."""
    live = np.zeros(len(kernels), np.int64)
    for row in tensors:
        occupied = -(-row["bytes"] // granularity) * granularity
        if row["is_global"]:
            live += occupied
        elif row["death_kernel"] == -1:
            live[row["first_kernel"]] += occupied
        else:
            live[row["first_kernel"] : row["death_kernel"]] += occupied
    for row in kernels:
        live[row["kernel_id"]] += (
            -(-row["workspace_bytes"] // granularity) * granularity
        )
    return live


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    num_kernels = draw(st.integers(1, 6))
    tensors = []
    for index in range(draw(st.integers(1, 8))):
        size = draw(st.integers(PIECE, 5 * PIECE))
        first = draw(st.none() | st.integers(0, num_kernels - 1))
        death = first
        if first is not None:
            death = draw(st.just(-1) | st.integers(first + 1, num_kernels))
        tensors.append(tensor(index, size, first, death))
    touched = [tensors[0]["first_kernel"] or 0, 0]
    kernels = [
        kernel(
            index,
            [0] if index == touched[0] else [],
            [],
            workspace=draw(st.sampled_from([0, 1, PIECE, PIECE + 1])),
        )
        for index in range(num_kernels)
    ]
    return tensors, kernels


@settings(max_examples=40, deadline=None)
@given(lists())
def test_memory_is_taken_up_when_tensors_are_alive(
    case: tuple[list[Row], list[Row]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = imported(Path(folder), *case)
        gpu = read_allocations(trace, 0)
    timeline = Timeline(gpu)
    pieces = timeline.total(gpu.num_pieces)
    # What is there at a moment holds until the next.
    begins = np.unique(
        np.r_[gpu.first_launch_id, gpu.last_launch_id[gpu.last_launch_id < 1 << 62] + 1]
    )
    launch_ids = 2 * np.arange(len(case[1]))
    at = np.searchsorted(begins, launch_ids, side="right") - 1
    found = np.where(at >= 0, pieces[at], 0) * PIECE
    assert found.tolist() == live_bytes(*case, PIECE).tolist()


def test_machine_is_the_published_one(tmp_path: Path) -> None:
    imported(tmp_path, TENSORS, KERNELS)
    machine = load(str(tmp_path / "trace" / "machine.json"))
    assert machine.gpu_name == HARDWARE["gpu"]["model"]
    assert machine.gpu_memory_bytes == 64 << 20
    assert machine.host_memory_bytes == 1 << 30
    assert machine.duplex_bytes_per_s == machine.h2d_bytes_per_s == 16e9
    assert not machine.has_zero_copy


def fault_rates(tmp_path: Path, kernels: list[Row]) -> tuple[Any, Any]:
    tensors = [tensor(0, 4 * MIB, None, None), tensor(1, 8 * MIB, None, None)]
    imported(tmp_path, tensors, kernels)
    machine = json.loads((tmp_path / "trace" / "machine.json").read_text())
    return machine["fault_h2d_bytes_per_s"], machine["evict_d2h_bytes_per_s"]


def test_fault_rates_are_bytes_by_the_time_they_took(tmp_path: Path) -> None:
    kernels = [
        kernel(0, [0], [1], times_ns=(1_000_000, 3_000_000, 4_000_000)),
        kernel(1, [1, 0], [0], times_ns=(1_000_000, 9_000_000, 14_000_000)),
    ]
    faults_in, faults_out = fault_rates(tmp_path, kernels)
    assert faults_in == pytest.approx((4 + 8 + 4) * MIB / 6e-3)
    assert faults_out == pytest.approx(8 * MIB / 2e-3)  # what is read too came in


def test_faults_are_no_faster_than_the_link(tmp_path: Path) -> None:
    # Nothing resident was the fastest of the three.
    kernels = [kernel(0, [0], [1], times_ns=(1_000_000, 1_000_001, 900_000))]
    assert fault_rates(tmp_path, kernels) == (16e9, 16e9)


def test_unknown_fault_rates_are_not_invented(tmp_path: Path) -> None:
    assert fault_rates(tmp_path, [kernel(0, [0], [])])[1] is None


def test_caveats_say_what_the_times_are(tmp_path: Path) -> None:
    folder = write_lists(tmp_path / "lists", TENSORS, KERNELS)
    for source, expected in (("mine", 1), ("platformxlab/G10 de2c8c6, defaults", 4)):
        (folder / "hardware.json").write_text(json.dumps(HARDWARE | {"source": source}))
        summary = import_tensors(folder, tmp_path / "trace", overwrite=True)
        trace = Trace.open(tmp_path / "trace")
        assert caveats(trace.manifest.rank(0)) == summary.notes
        assert len(summary.notes) == expected
        assert trace.manifest.ended.startswith("not recorded: imported from")


def test_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff lists")
    import_tensors(write_lists(folder, TENSORS, KERNELS), tmp_path / "trace")
    assert Trace.open(tmp_path / "trace").manifest.ended.endswith(" lists")


def test_hardware_may_lie_beside_several_folders(tmp_path: Path) -> None:
    folder = write_lists(tmp_path / "lists", TENSORS, KERNELS)
    (folder / "hardware.json").rename(tmp_path / "hardware.json")
    import_tensors(folder, tmp_path / "trace")
    (tmp_path / "hardware.json").unlink()
    refused(folder, tmp_path, "no hardware.json")


def refused(folder: Path, tmp_path: Path, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        import_tensors(folder, tmp_path / "t")
    assert why in str(caught.value)
    assert not (tmp_path / "t").exists()
    assert not list(tmp_path.glob(".t*"))


@pytest.mark.parametrize(
    ("of_tensor", "of_kernel", "why"),
    [
        ({"bytes": 0}, {}, "a tensor has no bytes"),
        ({"bytes": -4096}, {}, "a tensor has no bytes"),
        ({"bytes": 1 << 62}, {}, "any GPU's address space"),
        ({"bytes": 1 << 64}, {}, "tensors.csv.gz is damaged"),
        ({"bytes": 1.5}, {}, "tensors.csv.gz is damaged"),
        ({"bytes": ""}, {}, "column bytes has missing values"),
        ({"tensor_id": 7}, {}, "tensor_id does not count from 0"),
        ({"first_kernel": 2, "death_kernel": 1}, {}, "lifetime of tensor 1"),
        ({"death_kernel": 4}, {}, "lifetime of tensor 1"),
        ({"first_kernel": ""}, {}, "lifetime of tensor 1"),
        ({"is_global": True}, {}, "lifetime of tensor 1"),
        ({"is_global": "perhaps"}, {}, "tensors.csv.gz is damaged"),
        ({"first_kernel": 1}, {}, "kernel 0 touches tensor 1"),
        ({"death_kernel": 1}, {}, "kernel 1 touches tensor 1"),
        ({}, {"read_tensor_ids": "4"}, "kernel 1 lists tensor 4"),
        ({}, {"read_tensor_ids": "-1"}, "kernel 1 lists tensor -1"),
        ({}, {"read_tensor_ids": "1;;2"}, "read_tensor_ids"),
        ({}, {"write_tensor_ids": "one"}, "write_tensor_ids"),
        ({}, {"workspace_bytes": -1}, "a workspace has fewer"),
        ({}, {"workspace_bytes": 1 << 62}, "any GPU's address space"),
        ({}, {"duration_ns": -1}, "time is negative"),
        ({}, {"duration_nothing_resident_ns": 1 << 62}, "take longer"),
        ({}, {"kernel_id": 0}, "kernel_id does not count from 0"),
    ],
)
def test_impossible_lists_are_refused(
    of_tensor: Row, of_kernel: Row, why: str, tmp_path: Path
) -> None:
    tensors = [row | of_tensor if i == 1 else row for i, row in enumerate(TENSORS)]
    kernels = [row | of_kernel if i == 1 else row for i, row in enumerate(KERNELS)]
    refused(write_lists(tmp_path / "lists", tensors, kernels), tmp_path, why)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "absent", tmp_path, "no folder with tensors.csv.gz")
    folder = write_lists(tmp_path / "lists", TENSORS, KERNELS)
    path = folder / "kernels.csv.gz"
    whole = path.read_bytes()
    whole_text = gzip.decompress(whole)
    lacking = whole_text.replace(b"duration_ns", b"duration_us")
    for content, why in (
        (whole[:-20], "cannot be read"),
        (whole[:40] + bytes(20) + whole[60:], "cannot be read"),
        (b"kernel_id\n0\n", "cannot be read"),
        (gzip.compress(b""), "damaged"),
        (gzip.compress(b"\xff\xfe\x00"), "damaged"),
        (gzip.compress(lacking), "duration_ns"),
        (gzip.compress(whole_text.split(b"\n")[0] + b"\n"), "lists nothing"),
    ):
        path.write_bytes(content)
        refused(folder, tmp_path, why)


@pytest.mark.parametrize(
    ("hardware", "why"),
    [
        ({}, "source"),
        (HARDWARE | {"pcie": {"gbps_each_way": 0}}, "pcie.gbps_each_way"),
        (
            HARDWARE | {"gpu": {"model": "A100", "memory_bytes": "40GiB"}},
            "memory_bytes",
        ),
        (HARDWARE | {"host_memory_bytes": -1}, "host_memory_bytes"),
    ],
)
def test_impossible_hardware_is_refused(
    hardware: dict[str, Any], why: str, tmp_path: Path
) -> None:
    folder = write_lists(tmp_path / "lists", TENSORS, KERNELS, hardware)
    refused(folder, tmp_path, why)
    (folder / "hardware.json").write_bytes(b"\xff{")
    refused(folder, tmp_path, "hardware.json")


def test_command_says_what_the_lists_are_and_what_comes_next(tmp_path: Path) -> None:
    folder = write_lists(tmp_path / "lists", TENSORS, KERNELS)
    done = transit("import", "tensors", folder, "-o", "t", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "warning: times are as given" in done.stderr
    assert "wrote t: 3 launches, 8 accesses, 5 allocations" in done.stderr
    assert "next: transit compile t --policy auto -o plan.json" in done.stderr
    again = transit("import", "tensors", folder, "-o", "t", cwd=tmp_path)
    assert (again.returncode, "--force" in again.stderr) == (1, True)
    shown = json.loads(transit("show", "t", "--json", cwd=tmp_path).stdout)
    assert "times are as given" in shown["caveats"][0]["caveat"]
    compiled = transit("compile", "t", cwd=tmp_path)
    assert "warning: rank 0: times are as given" in compiled.stderr


@pytest.mark.skipif(not REAL_LISTS, reason="TRANSIT_TEST_TENSOR_LISTS is not set")
def test_peaks_of_published_lists(tmp_path: Path) -> None:
    root = Path(REAL_LISTS)
    with (root / "summary.csv").open() as file:
        peaks = {
            f"{row['model']}_{row['batch']}": int(row["peak_live_bytes"])
            for row in csv.DictReader(file)
        }
    folders = sorted(path.parent for path in root.glob("*/tensors.csv.gz"))
    assert folders
    for folder in folders:
        import_tensors(folder, tmp_path / folder.name)
        trace = Trace.open(tmp_path / folder.name)
        allocations = read_allocations(trace, 0)
        # Each tensor is rounded up, and small ones do not give way to each other.
        most = PIECE * len(allocations) + int(allocations.bytes[0])
        assert 0 <= job_peak_bytes(trace) - peaks[folder.name] <= most
