"""Find the iterations of a recording from its sequence of launch signatures alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Hashes, Ints, SegmentHasher, mix

MIN_REPEATS = 3
MIN_CONFIDENCE = 0.9
# The repeats must be most of what was recorded: loops over layers are periods too.
MIN_COVERAGE = 0.5
ANCHOR_LAUNCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Repeats:
    """Stretches of launches that are all alike."""

    starts: Ints
    launches: int
    confidence: float

    @property
    def covered(self) -> int:
        """Launches in the stretches together."""
        return len(self.starts) * self.launches


def most_common(starts: Ints, stops: Ints, hasher: SegmentHasher) -> Repeats:
    """Keep the stretches that are equal to the most frequent one."""
    _, which, counts = np.unique(
        hasher(starts, stops), return_inverse=True, return_counts=True
    )
    alike = which == np.argmax(counts)
    kept = starts[alike]
    launches = int((stops - starts)[alike][0])
    return Repeats(kept, launches, len(kept) / len(starts))


def find_repeats(signatures: Hashes) -> Repeats | None:
    """Find the period that explains most launches, or None.

    An *anchor* is a short sequence of launches that happens once per iteration: the
    stretches from each of its occurrences to the next are the iterations. Every
    sequence of a few lengths is tried. A warm-up before the first full iteration, an
    unfinished one at the end, and a rare odd one in between (an evaluation, a
    checkpoint) are left out.
    """
    hasher = SegmentHasher(signatures)
    best: Repeats | None = None
    for anchor_launches in ANCHOR_LAUNCHES:
        for found in _best_anchors(hasher, len(signatures), anchor_launches):
            if best is None or _rank(found) > _rank(best):
                best = found
    return best


def _rank(repeats: Repeats) -> tuple[bool, int, int, int]:
    steady = repeats.confidence >= MIN_CONFIDENCE
    return steady, repeats.covered, -repeats.launches, -int(repeats.starts[0])


def _best_anchors(
    hasher: SegmentHasher, num_launches: int, anchor_launches: int, keep: int = 8
) -> list[Repeats]:
    """Return the few anchors of one length whose stretches cover most."""
    count = num_launches - anchor_launches + 1
    if count <= MIN_REPEATS:
        return []
    at = np.arange(count, dtype=np.int64)
    anchors = hasher(at, at + anchor_launches)
    order = np.argsort(anchors, kind="stable")
    same = anchors[order][1:] == anchors[order][:-1]
    starts, stops = order[:-1][same], order[1:][same]
    if len(starts) < MIN_REPEATS:
        return []
    # Group the stretches of each anchor by content; a group's cover is its score.
    contents = hasher(starts, stops)
    groups, which, repeats = np.unique(
        mix(anchors[starts] ^ mix(contents)), return_inverse=True, return_counts=True
    )
    lengths = np.zeros(len(groups), np.int64)
    lengths[which] = stops - starts
    covered = np.where(repeats >= MIN_REPEATS, repeats * lengths, 0)
    covered[covered < MIN_COVERAGE * num_launches] = 0
    best = np.argsort(-covered, kind="stable")[:keep]
    return [
        _between(starts[which == group], starts, anchors, int(lengths[group]))
        for group in best
        if covered[group]
    ]


def _between(alike: Ints, starts: Ints, anchors: Hashes, launches: int) -> Repeats:
    """Judge equal stretches against all of their anchor's, first to last."""
    alike = np.sort(alike)
    of_anchor = starts[anchors[starts] == anchors[alike[0]]]
    inside = (of_anchor >= alike[0]) & (of_anchor <= alike[-1])
    return Repeats(alike, launches, len(alike) / int(inside.sum()))
