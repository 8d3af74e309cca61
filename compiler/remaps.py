"""How often addresses change what they mean, in the linear program.

One thread does it, one chunk after the other: a step takes at least as long as all of
that. To leave memory to what is dead costs none, where there is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Floats, Ints
from transit.compiler.linear import LinearProgram, Term
from transit.compiler.link import CHUNK_PIECES, Link
from transit.compiler.slots import Gaps

MS = 1e6  # in ns


@dataclass(frozen=True)
class Columns:
    """Variables of the program that remaps follow from, by gap and by run."""

    absent: Ints
    kept: Ints
    in_place: Ints
    written_in_place: Ints


def add(
    program: LinearProgram,
    gaps: Gaps,
    pieces: Ints,
    link: Link,
    columns: Columns,
    *,
    step: Ints,
    weight: float,
) -> tuple[Ints, Floats]:
    """Add what remapping takes to a program.

    Parameters
    ----------
    pieces
        Of each gap's region.
    step
        The columns of the slots' times, in ms.
    weight
        The cost of a ms of remapping, beside that of the step.

    Returns
    -------
    columns, ms
        What is remapped, and how long all of each takes.
    """
    count = len(gaps)
    dead, live = np.flatnonzero(gaps.dead), np.flatnonzero(~gaps.dead)
    chunks = pieces / CHUNK_PIECES
    ms = np.concatenate(
        [chunks * ns / MS for ns in (link.map_ns, link.unmap_ns, link.map_home_ns)]
    )
    remapped = program.columns(3 * count, cost=weight * ms)
    enters, leaves, homes = np.split(remapped, 3)
    before, after = gaps.run_before, gaps.run_after
    for changes, run in ((enters, after), (leaves, before)):
        # What is away in a live gap, or not kept in a dead one, and not so beside it.
        for those, away, sign, side in (
            (live, columns.absent, 1.0, 0.0),
            (dead, columns.kept, -1.0, -1.0),
        ):
            rows = np.arange(len(those))
            program.at_most(
                np.full(len(those), side),
                Term(rows, away[those], sign),
                Term(rows, columns.written_in_place[run[those]], -1.0),
                Term(rows, changes[those], -1.0),
            )
    rows = np.arange(count)
    program.at_most(
        np.zeros(count),
        Term(rows, columns.in_place[after], 1.0),
        Term(rows, columns.written_in_place[before], -1.0),
        Term(rows, homes, -1.0),
    )
    rows = np.arange(len(dead))
    for run in (before, after):
        program.at_most(
            np.ones(len(dead)),
            Term(rows, columns.kept[dead], 1.0),
            Term(rows, columns.in_place[run[dead]], 1.0),
        )
    program.at_most(
        np.zeros(1),
        Term(np.zeros_like(remapped), remapped, ms),
        Term(np.zeros_like(step), step, -1.0),
    )
    return remapped, ms
