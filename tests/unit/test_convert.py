"""Conversions as a whole: the manifest, which process is which rank, and failures."""

from __future__ import annotations

from pathlib import Path

import pytest
import spool_factory as factory
from spool_factory import NOW_NS, Rows

from transit.errors import JobError, TraceError
from transit.traces.reader import Trace


def test_the_manifest_describes_the_recording(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1")
    summary = factory.convert_spools(tmp_path, ended="killed", hooks={1: 12, 9: 3})
    manifest = Trace.open(tmp_path / "trace").manifest
    assert manifest.command == ["python", "train.py"]
    assert manifest.ended == "killed"
    (rank,) = manifest.ranks
    assert (rank.pid, rank.launches_seen_by_hooks) == (1, 12)
    assert (rank.cupti_version, rank.driver_version) == (130000, 13000)
    assert rank.clocks.cupti_ns == NOW_NS
    assert rank.torch_version is None
    (device,) = rank.devices
    assert (device.name, device.memory_bytes) == ("Test GPU", 80 << 30)
    assert device.compute_capability == "9.0"
    assert rank.counts["launches"] == 2
    assert str(summary) == (
        "1 rank, 2 launches, 2 of 2 kernel launches with an access, 1 allocation,"
        " 0 marked iterations"
    )


def test_the_manifest_names_the_version_of_torch(tmp_path: Path) -> None:
    names = ["Test GPU", "kernel", "libcudart.so.13", "jax", "0.9", "torch", "2.9.0"]
    trace = factory.trace(
        tmp_path,
        name=[p for i, name in enumerate(names) for p in factory.name_pieces(i, name)],
        framework=[{"name_id": 3, "version_id": 4}, {"name_id": 5, "version_id": 6}],
    )

    assert trace.manifest.ranks[0].torch_version == "2.9.0"


def _process(rank: int) -> Rows:
    return [{"rank": rank, "local_rank": rank, "world_size": 2}]


def test_every_rank_gets_its_folder(tmp_path: Path) -> None:
    launches = [factory.launch(0)]
    factory.small_spool(tmp_path / "spool-8", process=_process(1), launch=launches)
    factory.small_spool(tmp_path / "spool-9", process=_process(0))
    told: list[str] = []
    summary = factory.convert_spools(tmp_path, progress=told.append)
    trace = Trace.open(tmp_path / "trace")
    assert trace.ranks == [0, 1]
    assert [trace.table(rank, "launches").num_rows for rank in (0, 1)] == [2, 1]
    assert [info.pid for info in trace.manifest.ranks] == [9, 8]
    assert summary.launches == 3
    assert told == ["converting rank 0", "converting rank 1"]


def test_of_two_that_claim_a_rank_the_busier_is_it(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-3", launch=[factory.launch(0)])
    factory.small_spool(tmp_path / "spool-4")
    factory.small_spool(tmp_path / "spool-5", launch=[], process=_process(1))
    factory.small_spool(tmp_path / "spool-6", process=[])
    summary = factory.convert_spools(tmp_path)
    manifest = Trace.open(tmp_path / "trace").manifest
    assert [info.pid for info in manifest.ranks] == [4]
    reasons = {process.pid: process.reason for process in manifest.skipped}
    assert "process 4 with more launches (2 against 1)" in reasons[3]
    assert reasons[5] == "rank 1 launched nothing while recording"
    assert reasons[6] == "ended before it could say its rank"
    assert "3 processes left out" in str(summary)


def test_a_torn_spool_is_still_a_trace(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    launches = [factory.launch(index) for index in range(3)]
    path = factory.write_file(folder, "launch", launches, slack_bytes=0)
    path.write_bytes(path.read_bytes()[:-70])
    factory.write_file(folder, "access", [factory.access(0)], num_dropped=5)
    for missing in ("mark", "activity", "device"):
        (folder / f"{missing}.spool").unlink()

    summary = factory.convert_spools(tmp_path, ended="killed")

    trace = Trace.open(tmp_path / "trace")
    assert factory.column(trace, "launches", "launch_id") == [0]
    assert factory.column(trace, "launches", "start_ns") == [None]
    assert factory.losses(trace) == {"dropped": 5, "torn": 2}
    assert "7 records lost" in str(summary)


def test_no_spool_means_no_cuda(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="No process of the job used CUDA"):
        factory.convert_spools(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_recorders_failure_is_the_error(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    (folder / "failure.txt").write_text("CUPTI is held by nsys: stop it first.\n")
    with pytest.raises(JobError, match=r"^CUPTI is held by nsys: stop it first\.$"):
        factory.convert_spools(tmp_path)


def test_a_job_that_ends_while_skipping_is_told_so(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1", launch=[], mark=[])
    with pytest.raises(JobError, match=r"before the steps to skip had passed.*--skip"):
        factory.convert_spools(tmp_path)


def test_a_job_that_launches_nothing_is_told_so(tmp_path: Path) -> None:
    factory.small_spool(tmp_path / "spool-1", launch=[])
    with pytest.raises(JobError, match="launched nothing"):
        factory.convert_spools(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"launch": [factory.launch(0)] * 2}, "a launch is there twice"),
        ({"launch": [factory.launch(0, kind=9)]}, "launch kind 9 does not exist"),
        ({"launch": [factory.launch(0, grid=(2**31, 1, 1))]}, "impossible grid"),
        ({"launch": [{"launch_id": 2**63}]}, "launch id 9223"),
        ({"launch": [factory.launch(0, host_ns=2**63)]}, "launch time 9223"),
        ({"access": [factory.access(0, source=8)]}, "access source 8 does not exist"),
        ({"access": [factory.access(0, direction=4)]}, "direction 4 does not exist"),
        ({"access": [factory.access(0, bytes=2**64 - 1)]}, "access size 1844"),
        ({"access": [{"address": 2**64 - 1}]}, "address 1844"),
        ({"allocation": [factory.allocation(0, api=0)]}, "allocation API 0 does not"),
        ({"allocation": [factory.allocation(0, bytes=2**62)]}, "allocation size 46"),
        (
            {"allocation": [factory.allocation(i, bytes=2**61) for i in range(8)]},
            "its allocations have no end",
        ),
        ({"block": [{"bytes": 2**63, "action": 1}]}, "block bytes 9223"),
    ],
)
def test_damaged_records_are_refused(
    tmp_path: Path, files: dict[str, Rows], message: str
) -> None:
    folder = factory.small_spool(tmp_path / "spool-1", **files)
    with pytest.raises(TraceError, match=f"spool-1 is damaged: .*{message}"):
        factory.convert_spools(tmp_path)
    assert folder.is_dir()
    assert not (tmp_path / "trace").exists()


def test_a_failed_conversion_keeps_the_trace_that_was_there(tmp_path: Path) -> None:
    before = factory.trace(tmp_path).manifest
    with pytest.raises(TraceError, match="exists"):
        factory.convert_spools(tmp_path)
    factory.small_spool(tmp_path / "spool-1", launch=[factory.launch(0, kind=9)])
    with pytest.raises(TraceError, match="damaged"):
        factory.convert_spools(tmp_path, overwrite=True)
    assert Trace.open(tmp_path / "trace").manifest == before
    factory.small_spool(tmp_path / "spool-1")
    factory.convert_spools(tmp_path, overwrite=True, ended="again")
    assert Trace.open(tmp_path / "trace").manifest.ended == "again"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spool-1", "trace"]
