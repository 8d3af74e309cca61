"""What is written to memory that nothing can have been read from."""

from __future__ import annotations

from pathlib import Path

import spool_factory as factory
from inspected_spools import (
    DIRECTION,
    MS,
    block,
    directions,
    marks,
    parameter,
    piece,
    record,
)
from spool_factory import MIB, NOW_NS, access


def test_the_first_access_of_a_new_block_that_changes_it_only_writes(
    tmp_path: Path,
) -> None:
    new, named_before, old, reused, alive = (MIB * index for index in range(5))
    kernels = [factory.launch(index, name_id=1) for index in range(6)]
    trace = record(
        tmp_path,
        6,
        launch=kernels,
        mark=marks(6, 6, DIRECTION),
        block=[
            block(1, 0.5, new),
            block(1, 0.5, named_before),
            block(3, -1, old),
            block(3, -1, reused),
            block(2, 2.5, reused),
            block(1, 2.95, reused),  # the launch at 2 ms was of the one before
            block(1, 5.01, alive),  # after the launch, though the clocks may differ
        ],
        access=[
            *(parameter(1, new), parameter(2, new)),
            access(1, named_before + 8, source=3, direction=2, bytes=64),
            parameter(2, named_before, 1),
            parameter(2, old, 2),
            *(parameter(2, reused, 3), parameter(4, reused, 4)),
            parameter(5, alive, 5),
        ],
        checksum=[piece(launch, 0, 5 * MIB, 1) for launch in range(6)],
    )
    found = {key: value[0] for key, value in directions(trace).items()}
    assert found == {
        (1, new): "write",
        (2, new): "both",
        (1, named_before + 8): "write",  # of the call
        (2, named_before): "both",
        (2, old): "both",
        (2, reused): "both",
        (4, reused): "write",
        (5, alive): "both",
    }


def test_a_block_of_which_no_birth_was_seen_may_have_been_read(tmp_path: Path) -> None:
    begin_ns = NOW_NS + MS // 2
    trace = record(
        tmp_path,
        2,
        mark=marks(2, 2, DIRECTION),
        history=[{"device": 0, "begin_ns": begin_ns, "end_ns": 2 * NOW_NS}],
        block=[block(3, 0.5, 0)],
        access=[parameter(1, 0)],
        checksum=[piece(1, 0, MIB, 1)],
    )
    assert directions(trace) == {(1, 0): ("both", "checksum")}
