"""Which ranks' recordings have equal fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spool_factory as factory
from inspected_spools import AUDIT, DIRECTION, MS, NAMES, fault, marks, parameter, piece
from spool_factory import BASE, MIB, NOW_NS

from transit.recorder import accesses
from transit.traces.coverage import groups_alike
from transit.traces.manifest import Fingerprints
from transit.traces.reader import Trace

ITERATIONS, LENGTH, LAUNCHES = 3, 2, 6


def usual(base: int = BASE, **changes: Any) -> dict[str, Any]:
    """Return the spool of three iterations alike, and one for directions."""
    launches = LAUNCHES + LENGTH
    return {
        "name": NAMES,
        "launch": [factory.launch(i, name_id=1 + i % 2 * 2) for i in range(launches)],
        "activity": [factory.activity(i) for i in range(launches)],
        "allocation": [
            factory.allocation(0, address=base),
            factory.allocation(1, address=base + 64 * MIB, ordinal=-1),
        ],
        "access": [
            parameter(i, i % LENGTH * MIB) | {"address": base + i % LENGTH * MIB}
            for i in range(launches)
        ],
        "mark": marks(LENGTH, launches, 0, 0, 0, DIRECTION),
        "checksum": [
            piece(LAUNCHES + i, i * MIB, 16 * MIB, i) | {"address": base + i * MIB}
            for i in range(LENGTH)
        ],
    } | changes


def fingerprints(folder: Path, files: dict[str, Any]) -> Fingerprints:
    found = factory.trace(folder, **files).manifest.rank(0).fingerprints
    assert found is not None
    return found


def test_addresses_gpus_and_times_make_no_difference(tmp_path: Path) -> None:
    elsewhere = usual(base=BASE + 1024 * MIB)
    for row in (*elsewhere["allocation"], *elsewhere["launch"]):
        row["device"] = 3
    for row in elsewhere["activity"]:
        row["end_ns"] += 100
    assert fingerprints(tmp_path / "a", usual()) == fingerprints(
        tmp_path / "b", elsewhere
    )


def test_how_many_iterations_there_were_makes_no_difference(tmp_path: Path) -> None:
    launches = LAUNCHES + 2 * LENGTH
    longer = usual()
    longer |= {
        "launch": [factory.launch(i, name_id=1 + i % 2 * 2) for i in range(launches)],
        "access": [parameter(i, i % LENGTH * MIB) for i in range(launches)],
        "mark": marks(LENGTH, launches, 0, 0, 0, 0, DIRECTION),
        "checksum": [
            row | {"launch_id": row["launch_id"] + LENGTH} for row in longer["checksum"]
        ],
    }
    assert fingerprints(tmp_path / "a", usual()) == fingerprints(tmp_path / "b", longer)


def changed(name: str, row: int, **fields: Any) -> dict[str, Any]:
    files = usual()
    files[name] = [dict(old) for old in files[name]]
    files[name][row] |= fields
    return files


@pytest.mark.parametrize(
    "files",
    [
        changed("access", 2, address=BASE + 8 * MIB),
        changed("access", 2, bytes=64),
        changed("checksum", 0, is_changed=1),
        changed("allocation", 0, bytes=18 * MIB),
        changed("allocation", 1, bytes=18 * MIB),
        changed("allocation", 0, ordinal=1),
        usual(free=[{"allocation_id": 1, "launch_id": 3, "host_ns": NOW_NS + 3 * MS}]),
    ],
    ids=["place", "size", "direction", "bytes", "unmovable", "ordinal", "freed"],
)
def test_what_a_plan_depends_on_makes_a_difference(
    files: dict[str, Any], tmp_path: Path
) -> None:
    before = fingerprints(tmp_path / "a", usual())
    after = fingerprints(tmp_path / "b", files)
    assert after.memory != before.memory
    assert after.launches == before.launches


def test_other_launches_make_a_difference(tmp_path: Path) -> None:
    other = changed("launch", 0, grid=(1, 1, 1))
    for row in other["launch"][::2]:
        row["grid"] = (1, 1, 1)
    before = fingerprints(tmp_path / "a", usual())
    assert fingerprints(tmp_path / "b", other).launches != before.launches


def test_what_an_audit_cannot_explain_makes_a_difference(tmp_path: Path) -> None:
    def audited(place: int) -> dict[str, Any]:
        allocations = [factory.allocation(0, api=7), factory.allocation(1, ordinal=-1)]
        touch = fault(LAUNCHES, place, 1)
        named = fault(LAUNCHES, 0, 1)
        return usual(
            mark=marks(LENGTH, LAUNCHES + LENGTH, 0, 0, 0, AUDIT),
            allocation=allocations,
            access=[parameter(i, 0) | {"bytes": MIB} for i in range(8)],
            uvm=[named, touch],
        )

    found = [
        fingerprints(tmp_path / str(place), audited(place))
        for place in (4096, 8 * MIB, 12 * MIB)  # the first is of what a launch names
    ]
    assert len({one.memory for one in found}) == 3
    assert len({one.launches for one in found}) == 1


def test_how_much_is_read_at_a_time_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprints(tmp_path / "a", usual())
    monkeypatch.setattr(accesses, "CHUNK_ROWS", 1)
    assert fingerprints(tmp_path / "b", usual()) == before


def test_show_compares_ranks_by_what_was_found_then(tmp_path: Path) -> None:
    for rank, name_id in enumerate((1, 3, 1)):
        factory.small_spool(
            tmp_path / f"spool-{rank + 1}",
            process=[{"rank": rank, "local_rank": rank, "world_size": 3}],
            launch=[factory.launch(i, name_id=name_id) for i in range(2)],
        )
    factory.convert_spools(tmp_path)
    trace = Trace.open(tmp_path / "trace")
    for rank in trace.ranks:  # not read again
        (trace.path / f"rank={rank}" / "launches.parquet").unlink()
    assert groups_alike(trace) == [[0, 2], [1]]
