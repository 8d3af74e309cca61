"""Directions by the faults of an audit."""

from __future__ import annotations

from pathlib import Path

import spool_factory as factory
from inspected_spools import (
    AUDIT,
    DIRECTION,
    UNKNOWN,
    directions,
    fault,
    marks,
    parameter,
    piece,
    record,
)
from spool_factory import MIB

READ_FAULT, WRITE_FAULT, ATOMIC_FAULT = 1, 2, 3


def test_faults_tell_of_writes_that_change_nothing(tmp_path: Path) -> None:
    """In the audit iteration, the second here; the first was hashed."""
    loaded, stored, added, mixed = (4 * MIB * index for index in range(4))
    places = (loaded, stored, added, mixed, mixed + 512)
    trace = record(
        tmp_path,
        2,
        mark=marks(1, 2, DIRECTION, AUDIT),
        allocation=[factory.allocation(0, api=7)],
        access=[
            parameter(launch, offset, slot)
            for launch in (0, 1)
            for slot, offset in enumerate(places)
        ],
        checksum=[piece(0, 0, 16 * MIB, 0)],
        uvm=[
            fault(1, loaded, READ_FAULT),
            fault(1, stored + 8192, WRITE_FAULT),
            fault(1, added, ATOMIC_FAULT),
            fault(1, mixed, WRITE_FAULT),  # one of the two in the page
        ],
    )
    read = ("read", "checksum")
    both = ("both", "fault")
    for launch in (0, 1):
        found = directions(trace)
        assert [found[launch, offset] for offset in places] == [
            *(read, both, both),
            *(UNKNOWN, UNKNOWN),
        ]


def test_an_audit_alone_tells_what_is_written(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        2,
        mark=marks(1, 2, 0, AUDIT),
        allocation=[factory.allocation(0, api=7)],
        access=[parameter(i, 8 * MIB * slot, slot) for i in (0, 1) for slot in (0, 1)],
        uvm=[fault(1, 0, READ_FAULT), fault(1, 8 * MIB, WRITE_FAULT)],
    )
    found = directions(trace)
    for launch in (0, 1):
        assert found[launch, 0] == UNKNOWN
        assert found[launch, 8 * MIB] == ("both", "fault")
