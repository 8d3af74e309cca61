"""Find the iterations of a recording from its sequence of launch signatures alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transit.compiler.arrays import Hashes, Ints, SegmentHasher, mix

MIN_REPEATS = 3
MIN_CONFIDENCE = 0.9
# The repeats must be most of what was recorded: loops over layers are periods too.
MIN_COVERAGE = 0.5
# Stretches of which this share is equal count as alike.
NEARLY_EQUAL = 0.99
ANCHOR_LAUNCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Repeats:
    """Stretches of launches that are all alike, of `compared` that were looked at.

    The confidence is the share that is alike, or nearly.
    """

    starts: Ints
    launches: int
    confidence: float
    compared: int


def most_common(signatures: Hashes, starts: Ints, stops: Ints) -> Repeats:
    """Keep the stretches that are equal to the most frequent one.

    Those that differ from it by a few launches in one place (a loss is copied to the
    host every tenth step) are left out, and not held against it.
    """
    _, which, counts = np.unique(
        SegmentHasher(signatures)(starts, stops),
        return_inverse=True,
        return_counts=True,
    )
    usual = np.argmax(counts)
    kept = starts[which == usual]
    launches = int((stops - starts)[which == usual][0])
    pattern = signatures[kept[0] : kept[0] + launches]
    alike = len(kept) + sum(
        _nearly_equal(pattern, signatures[start:stop])
        for start, stop in zip(
            starts[which != usual], stops[which != usual], strict=True
        )
    )
    return Repeats(kept, launches, alike / len(starts), len(starts))


def _nearly_equal(pattern: Hashes, stretch: Hashes) -> bool:
    """Tell whether most is equal but for one place."""
    shorter = min(len(pattern), len(stretch))
    differs = pattern[:shorter] != stretch[:shorter]
    prefix = int(np.argmax(np.append(differs, True)))
    differs = pattern[::-1][:shorter] != stretch[::-1][:shorter]
    suffix = int(np.argmax(np.append(differs, True)))
    longer = max(len(pattern), len(stretch))
    return min(prefix + suffix, shorter) >= NEARLY_EQUAL * longer


def find_repeats(signatures: Hashes) -> Repeats | None:
    """Find the longest period that explains most launches, or None.

    An *anchor* is a short sequence of launches that happens once per iteration: the
    stretches from each of its occurrences to the next are the iterations. Every
    sequence of a few lengths is tried. A warm-up before the first full iteration, an
    unfinished one at the end, and a rare odd one in between (an evaluation, a
    checkpoint) are left out.

    The longest, as loops over layers or micro-batches are inside the iteration. No
    multiple of the true period is found: every anchor in it happens in each period.
    """
    hasher = SegmentHasher(signatures)
    candidates = [
        found
        for anchor_launches in ANCHOR_LAUNCHES
        if (found := _best_anchor(hasher, signatures, anchor_launches))
    ]
    return max(candidates, key=_preference, default=None)


def join(repeats: Repeats, count: int) -> Repeats | None:
    """Return stretches of so many, one right after the other, if there are any.

    They begin whole stretches away from each other.
    """
    starts = np.sort(repeats.starts)
    firsts, lasts = starts[: len(starts) - count + 1], starts[count - 1 :]
    launches = count * repeats.launches
    firsts = firsts[lasts - firsts == launches - repeats.launches]
    if not len(firsts):
        return None
    kept = firsts[(firsts[-1] - firsts) % launches == 0]
    return replace(repeats, starts=kept, launches=launches)


def share_alike(signatures: Hashes, repeats: Repeats) -> float:
    """Return the share of launches that are as in the first stretch."""
    rows = repeats.starts[:, None] + np.arange(repeats.launches)
    return float(np.mean(signatures[rows] == signatures[rows[0]]))


def _preference(repeats: Repeats) -> tuple[float, ...]:
    if repeats.confidence < MIN_CONFIDENCE:
        return (0, repeats.confidence)
    return (1, repeats.launches, len(repeats.starts), -int(repeats.starts[0]))


def _best_anchor(
    hasher: SegmentHasher, signatures: Hashes, anchor_launches: int
) -> Repeats | None:
    """Return the best stretches between anchors of one length."""
    num_launches = len(signatures)
    count = num_launches - anchor_launches + 1
    if count <= MIN_REPEATS:
        return None
    at = np.arange(count, dtype=np.int64)
    anchors = hasher(at, at + anchor_launches)
    order = np.argsort(anchors, kind="stable")
    same = anchors[order][1:] == anchors[order][:-1]
    starts, stops = order[:-1][same], order[1:][same]
    if len(starts) < MIN_REPEATS:
        return None
    # Stretches of one anchor with equal content are a group.
    contents = mix(anchors[starts] ^ mix(hasher(starts, stops)))
    _, first, which, repeats = np.unique(
        contents, return_index=True, return_inverse=True, return_counts=True
    )
    last = np.zeros(len(first), np.int64)
    last[which] = np.arange(len(which))  # the last assignment stays
    # All of an anchor's stretches lie side by side, those of other content included.
    compared = last - first + 1
    confidence = repeats / compared
    launches = (stops - starts)[first]
    enough = (repeats >= MIN_REPEATS) & (
        repeats * launches >= MIN_COVERAGE * num_launches
    )
    if not enough.any():
        return None
    steady = enough & (confidence >= MIN_CONFIDENCE)
    score = np.where(steady, launches, confidence * enough)
    best = np.lexsort((starts[first], -repeats, -score))[0]
    if not steady[best]:  # unless what differs does so by a few launches only
        anchor = slice(first[best], last[best] + 1)
        return most_common(signatures, starts[anchor], stops[anchor])
    return Repeats(
        starts[which == best],
        int(launches[best]),
        float(confidence[best]),
        int(compared[best]),
    )
