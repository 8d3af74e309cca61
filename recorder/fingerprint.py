"""What of a rank's recording a plan depends on, as a hash: equal ranks share a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transit.recorder.columns import Ints
from transit.recorder.launches import Launches
from transit.recorder.tables import Allocations
from transit.traces.fingerprints import UsualIteration, new_hash
from transit.traces.manifest import Fingerprints

_NOTHING = np.empty(0, np.int64)


class Fingerprint:
    """Hashes the usual iterations of a rank while its accesses are written.

    Parameters
    ----------
    iterations
        Those recorded for their times are compared.
    """

    def __init__(
        self, launched: Launches, allocated: Allocations, iterations: pa.Table
    ) -> None:
        timed = iterations.filter(pc.equal(iterations["purpose"], pa.scalar("timing")))
        self._usual = UsualIteration.find(
            launched.ids,
            launched.table["signature"].to_numpy(),
            timed["first_launch_id"].to_numpy(),
            timed["last_launch_id"].to_numpy(),
        )
        self._launch_ids = launched.ids
        self._allocated = allocated
        self._places = _places(allocated.table)
        self._hashes = [new_hash(_NOTHING) for _ in self._usual.rows]

    def watch(self, accesses: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Pass on the parts of the table of accesses, and note what is in them."""
        for part in accesses:
            self._add(part)
            yield part

    def _add(self, accesses: pa.Table) -> None:
        row = np.searchsorted(self._launch_ids, _column(accesses, "launch_id"))
        allocation_row = self._allocated.rows(_column(accesses, "allocation_id"))
        direction: Any = accesses["direction"].combine_chunks()
        columns = [
            row,
            self._places[allocation_row],
            *(_column(accesses, name) for name in ("offset", "bytes", "graph_node")),
            direction.indices.to_numpy(),  # of the same texts in all parts
        ]
        touched = np.stack(columns, axis=1)
        for bounds, hashed in zip(self._usual.rows, self._hashes, strict=True):
            first, last = np.searchsorted(row, bounds)
            own = touched[first:last] - (bounds[0], 0, 0, 0, 0, 0)
            hashed.update(own[own[:, 1] >= 0].tobytes())

    def finish(self, audit: pa.Table, blocks: pa.Table) -> Fingerprints:
        """Return the fingerprints, once all accesses have passed.

        Parameters
        ----------
        audit
            The table of audited touches: what no launch explains is never moved.
        blocks
            The table of blocks: what they held is dead between their lives.
        """
        memory = new_hash(_lifetimes(self._allocated.table, self._places))
        memory.update(self._block_lives(blocks).tobytes())
        odd = audit.filter(pc.invert(audit["is_explained"]))
        row = self._allocated.rows(_column(odd, "allocation_id"))
        memory.update(self._places[row].tobytes())
        memory.update(_column(odd, "offset").tobytes())
        memory.update(_column(odd, "bytes").tobytes())
        # How often an iteration came makes no difference.
        for found in sorted({hashed.digest() for hashed in self._hashes}):
            memory.update(found)
        return Fingerprints(launches=self._usual.digest, memory=memory.hexdigest())

    def _block_lives(self, blocks: pa.Table) -> Ints:
        row = self._allocated.rows(_column(blocks, "allocation_id"))
        names = ("offset", "bytes", "alloc_launch_id", "free_launch_id")
        columns = [self._places[row], *(_column(blocks, name) for name in names)]
        lives = np.stack(columns, axis=1)
        lives = lives[lives[:, 0] >= 0]
        return np.asarray(lives[np.lexsort(lives.T[::-1])])


def _places(allocations: pa.Table) -> Ints:
    """Number the allocations as a plan does; -1 for what no plan moves.

    By the GPUs' order in the process: every rank may use another one.
    """
    _, gpu = np.unique(_column(allocations, "device"), return_inverse=True)
    ordinal = _column(allocations, "ordinal")
    return np.where(ordinal >= 0, (gpu << 32) + ordinal, -1)


def _lifetimes(allocations: pa.Table, places: Ints) -> Ints:
    """Return what is on the GPUs, and when."""
    names = ("bytes", "alloc_launch_id", "free_launch_id")
    columns = [places, *(_column(allocations, name) for name in names)]
    on_gpu = np.asarray(pc.not_equal(allocations["api"], pa.scalar("host")))
    return np.asarray(np.stack(columns, axis=1)[on_gpu])


def _column(table: pa.Table, name: str) -> Ints:
    """Return whole numbers, -1 for nulls."""
    values: Any = table[name]
    return np.asarray(values.fill_null(-1).to_numpy(), np.int64)
