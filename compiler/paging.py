"""What a step takes when nothing is planned: memory comes in as launches touch it.

What is used least recently leaves when the GPU is full. Nobody knows what is dead by
then: it is moved like everything else.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from transit.compiler.model import Model

MAX_STEPS = 8
STEADY = 1e-3


def page(
    model: Model,
    *,
    load_pieces_per_ns: float,
    store_pieces_per_ns: float,
    both_pieces_per_ns: float | None = None,
) -> float | None:
    """Return how long a steady step takes; None if what some launch needs never fits.

    Parameters
    ----------
    model
        What is launched, and the budget.
    load_pieces_per_ns, store_pieces_per_ns
        How fast memory comes in and goes out, while launches wait.
    both_pieces_per_ns
        The rate each way while transfers go both ways. Without it they take turns, as
        page faults and the evictions that make room for them do.
    """
    if model.needed_pieces.max(initial=0) > model.budget_pieces:
        return None
    pager = _Pager(model)
    extra_ns, ideal_ns = np.inf, float(model.duration_ns.sum())
    for _ in range(MAX_STEPS):
        before_ns, extra_ns = extra_ns, 0.0
        for loaded, stored in pager.step():
            shared = min(loaded, stored) if both_pieces_per_ns else 0
            extra_ns += (loaded - shared) / load_pieces_per_ns
            extra_ns += (stored - shared) / store_pieces_per_ns
            extra_ns += shared / (both_pieces_per_ns or np.inf)
        if abs(extra_ns - before_ns) <= STEADY * (ideal_ns + extra_ns):
            break
    return ideal_ns + extra_ns


class _Pager:
    """What is on the GPU, by region, the least recently used first.

    Regions are touched from end to end, so their first pieces are the first to leave,
    and those that came back since the last write, whose copy on the host is good.
    """

    def __init__(self, model: Model) -> None:
        accesses = model.accesses
        order = np.argsort(accesses.position, kind="stable")
        position = accesses.position[order]
        heads = np.flatnonzero(np.diff(position, prepend=-1))
        self._launch_starts = [*heads.tolist(), len(order)]
        room = model.budget_pieces - model.fixed_pieces
        # Between launches that touch something, what is fixed may grow and shrink.
        self._room = (
            np.minimum.reduceat(room, position[heads]).tolist() if len(heads) else []
        )
        if len(heads):
            self._room[-1] = min(
                self._room[-1], int(room[: position[0]].min(initial=self._room[-1]))
            )
        self._region = accesses.region[order].tolist()
        self._writes = accesses.writes[order].tolist()
        self._size = model.num_pieces.tolist()
        self._held: OrderedDict[int, int] = OrderedDict()
        # Pieces whose copy on the host is not good.
        self._dirty: dict[int, int] = {}
        self._used = 0

    def step(self) -> list[tuple[int, int]]:
        """Make one step; return the pieces in and out of the launches that wait."""
        moved = []
        starts = self._launch_starts
        for launch, room in enumerate(self._room):
            loaded = 0
            for access in range(starts[launch], starts[launch + 1]):
                loaded += self._touch(self._region[access], self._writes[access])
            stored = self._evict(room) if self._used > room else 0
            if loaded or stored:
                moved.append((loaded, stored))
        return moved

    def _touch(self, region: int, writes: bool) -> int:
        """Bring a region in whole; what was never touched before comes for nothing."""
        size, held = self._size[region], self._held.get(region, 0)
        self._held[region] = size
        self._held.move_to_end(region)
        self._used += size - held
        is_new = region not in self._dirty
        if is_new or writes:
            self._dirty[region] = size
        return 0 if is_new else size - held

    def _evict(self, room: int) -> int:
        """Make room by the least recently used; return the pieces stored."""
        stored = 0
        while self._used > room and self._held:
            region, held = next(iter(self._held.items()))
            leaving = min(held, self._used - room)
            dirty = self._dirty[region]
            lost = max(0, leaving - (held - dirty))
            stored += lost
            self._dirty[region] = dirty - lost
            self._used -= leaving
            if leaving == held:
                del self._held[region]
            else:
                self._held[region] = held - leaving
        return stored
