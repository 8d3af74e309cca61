"""Small models, written down or made up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transit.compiler.model import Accesses, Model

Touch = tuple[int, int, str]
"""Region, position, and what is done: r, w or rw, with d if it is dead afterwards.

What follows something dead is written in any case.
"""


def make_model(
    touches: Sequence[Touch],
    *,
    pieces: Sequence[int],
    duration_ns: Sequence[float],
    budget: int,
    fixed: Sequence[int] | None = None,
    link_ns: float = np.inf,
) -> Model:
    """Make a model; `link_ns` is what each access costs over the link."""
    rows = sorted(touches)
    region = np.array([row[0] for row in rows], np.int64)
    following = np.arange(1, len(rows) + 1)
    for owner in set(region.tolist()):
        own = np.flatnonzero(region == owner)
        following[own[-1]] = own[0]
    dead = np.array(["d" in row[2] for row in rows], np.bool_)
    writes = np.array(["w" in row[2] for row in rows], np.bool_)
    writes[following[dead]] = True
    return Model(
        duration_ns=np.array(duration_ns, float),
        fixed_pieces=np.array(fixed or [0] * len(duration_ns), np.int64),
        budget_pieces=budget,
        num_pieces=np.array(pieces, np.int64),
        accesses=Accesses(
            region=region,
            position=np.array([row[1] for row in rows], np.int64),
            reads=np.array(["r" in row[2] for row in rows], np.bool_),
            writes=writes,
            rereads=np.zeros(len(rows), np.bool_),
            link_bytes=np.zeros(len(rows)),
            link_ns=np.full(len(rows), float(link_ns)),
            following=following,
            dead=dead,
        ),
    )
