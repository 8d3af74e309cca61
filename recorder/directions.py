"""Which way launches touch what their parameters name.

In one iteration every place that a kernel names is hashed before and after it: what
changed was written. In the audit iteration, a fault for writing says the same. What a
parameter of a launch was found to be there, it is in the same launch of the other
iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.columns import Ints, int64
from transit.recorder.graphs import GraphNodes
from transit.recorder.launches import Launches
from transit.recorder.spool import Records
from transit.recorder.uvm import PAGE_BYTES

UNKNOWN, READ, WRITTEN, BOTH, SHARED = range(5)
CALL, CHECKSUM, FAULT = range(3)
SOURCES = {CALL: "call", CHECKSUM: "checksum", FAULT: "fault"}

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pieces:
    """Ranges of memory that were seen changing, or not, during a launch."""

    launch_id: Ints
    address: Ints
    bytes: Ints
    is_changed: Bools

    @classmethod
    def of_checksums(cls, records: Records) -> Self:
        """Read what was hashed."""
        return cls(
            int64(records["launch_id"], "launch id"),
            int64(records["address"], "address"),
            int64(records["bytes"], "size of a hashed piece"),
            records["is_changed"] != 0,
        )

    @classmethod
    def of_faults(cls, audited: pa.Table, ids: Ints, address: Ints) -> Self:
        """Take the pages that faulted for writing.

        Parameters
        ----------
        audited
            The table of audited touches.
        ids, address
            The allocations, by ascending id.
        """
        wrote = pa.array(["write", "atomic"])
        access = audited["access"].cast(pa.string())
        named = audited["is_explained"].to_numpy()
        rows = audited.filter(pa.array(np.isin(access, wrote) & named))
        row = np.searchsorted(ids, rows["allocation_id"].to_numpy())
        start = np.append(address, 0)[row] + rows["offset"].to_numpy()
        return cls(
            rows["launch_id"].to_numpy(),
            start,
            rows["bytes"].to_numpy(),
            np.ones(len(rows), np.bool_),
        )


@dataclass(frozen=True)
class Named:
    """Places without a known direction that launches name, and where they do."""

    launch_id: Ints
    node: Ints  # -1 outside of graphs
    param_offset: Ints
    address: Ints
    bytes: Ints

    @classmethod
    def joined(cls, *parts: Self) -> Self:
        """Return all of them."""
        names = [field.name for field in fields(cls)]
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
        )

    @property
    def slot(self) -> Ints:
        """Return one number for the node and the parameter."""
        return _slot(self.node, self.param_offset)

    def in_pages(self) -> Self:
        """Return the whole pages that they are in."""
        start = self.address // PAGE_BYTES * PAGE_BYTES
        stop = -(-(self.address + self.bytes) // PAGE_BYTES) * PAGE_BYTES
        return replace(self, address=start, bytes=stop - start)


def _slot(node: Ints, param_offset: npt.NDArray[Any]) -> Ints:
    return ((node + 1) << 32) + param_offset.astype(np.int64)


def judge(named: Named, pieces: Pieces) -> tuple[Ints, Bools]:
    """Return what each place was used for, and whether another of its launch overlaps.

    A place that overlaps a changed piece was written; one that unchanged pieces cover
    from end to end was only read; of others nothing is known.
    """
    real = np.flatnonzero(pieces.bytes > 0)
    launch_id, address = pieces.launch_id[real], pieces.address[real]
    keys = _Keys(
        np.concatenate([address, address + pieces.bytes[real]]),
        np.concatenate([named.address, named.address + named.bytes]),
        np.concatenate([launch_id, named.launch_id]),
    )
    begin = keys(launch_id, address)
    end = keys(launch_id, address + pieces.bytes[real])
    looked_at = _Runs.merge(begin, end)
    is_changed = pieces.is_changed[real]
    changed = _Runs.merge(begin[is_changed], end[is_changed])
    begin = keys(named.launch_id, named.address)
    end = keys(named.launch_id, named.address + named.bytes)
    is_written = changed.overlaps(begin, end)
    is_read = ~is_written & looked_at.cover(begin, end) & (named.bytes > 0)
    verdict = np.where(is_written, WRITTEN, np.where(is_read, READ, UNKNOWN))
    return verdict, _overlap_others(begin, end)


class _Keys:
    """Numbers for places in launches: launch by launch, in the order of addresses."""

    def __init__(self, ours: Ints, theirs: Ints, launch_ids: Ints) -> None:
        self._addresses = np.unique(np.concatenate([ours, theirs]))
        self._launch_ids = np.unique(launch_ids)

    def __call__(self, launch_id: Ints, address: Ints) -> Ints:
        launch = np.searchsorted(self._launch_ids, launch_id)
        place = np.searchsorted(self._addresses, address)
        return launch * len(self._addresses) + place


@dataclass(frozen=True)
class _Runs:
    """Ascending ranges that neither overlap nor touch."""

    begin: Ints
    end: Ints

    @classmethod
    def merge(cls, begin: Ints, end: Ints) -> Self:
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        is_first = np.append(True, begin[1:] > end[:-1])[: len(begin)]
        is_last = np.append(is_first[1:], True)[: len(begin)]
        return cls(begin[is_first], end[is_last])

    def overlaps(self, begin: Ints, end: Ints) -> Bools:
        """Tell which ranges share a byte with a run."""
        last = np.searchsorted(self.begin, end) - 1
        return np.asarray((last >= 0) & (np.append(self.end, 0)[last] > begin))

    def cover(self, begin: Ints, end: Ints) -> Bools:
        """Tell which ranges are inside of one run."""
        last = np.searchsorted(self.begin, begin, "right") - 1
        return np.asarray((last >= 0) & (np.append(self.end, 0)[last] >= end))


def _overlap_others(begin: Ints, end: Ints) -> Bools:
    """Tell which ranges share a byte with another one."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    with_earlier = np.maximum.accumulate(end)[:-1] > begin[1:]
    with_next = end[:-1] > begin[1:]
    result = np.zeros(len(order), np.bool_)
    result[order] = np.append(False, with_earlier)[: len(order)]
    result[order] |= np.append(with_next, False)[: len(order)]
    return result


class Directions:
    """The directions that were found, by launch, graph node and parameter."""

    def __init__(
        self, counterpart: Ints, slots: Ints, keys: Ints, direction: Ints, source: Ints
    ) -> None:
        self._counterpart = counterpart
        self._slots = slots
        self._keys = keys
        self._direction = np.append(direction, UNKNOWN)
        self._source = np.append(source, CALL)

    @classmethod
    def none(cls) -> Self:
        """Return those of a job of which no iteration was looked at."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing)

    @classmethod
    def find(
        cls,
        launched: Launches,
        nodes: GraphNodes,
        iterations: pa.Table,
        checked: tuple[Named, Pieces],
        audited: tuple[Named, Pieces],
    ) -> Self:
        """Find them.

        Parameters
        ----------
        iterations
            With the purpose of each.
        checked, audited
            What the launches of the iteration for directions and of the audit name,
            and what was seen changing then.
        """
        purposes = iterations["purpose"].to_pylist()
        looked_at = [p for p in ("direction", "audit") if p in purposes]
        if not looked_at:
            return cls.none()
        first = iterations["first_launch_id"].to_numpy()
        # What comes after the last iteration belongs to none.
        after = iterations["last_launch_id"].to_numpy()[-1:] + 1
        counterpart = _counterparts(
            launched, np.append(first, after), purposes.index(looked_at[0])
        )
        return cls._of(launched, nodes, counterpart, checked, audited)

    @classmethod
    def _of(
        cls,
        launched: Launches,
        nodes: GraphNodes,
        counterpart: Ints,
        checked: tuple[Named, Pieces],
        audited: tuple[Named, Pieces],
    ) -> Self:
        seen, faulted = judge(*checked), judge(audited[0].in_pages(), audited[1])
        verdict = np.concatenate([seen[0], faulted[0]])
        overlaps = np.concatenate([seen[1], faulted[1]])
        source = np.repeat([CHECKSUM, FAULT], [len(seen[0]), len(faulted[0])])
        named = Named.joined(checked[0], audited[0])
        # All nodes of a graph ran between two looks; a page holds more than one place.
        is_vague = overlaps & ((named.node >= 0) | (source == FAULT))
        verdict[is_vague & (verdict == WRITTEN)] = SHARED
        slots = np.unique(named.slot)
        row = np.searchsorted(launched.ids, named.launch_id)
        key = counterpart[row] * len(slots) + np.searchsorted(slots, named.slot)
        key[counterpart[row] < 0] = -1
        function = _functions(launched, nodes, named)
        # What one launch leaves as it was, another of the same kernel may change.
        writing = _writing(function, named, verdict == WRITTEN, overlaps)
        verdict[(verdict == READ) & np.isin(function, writing)] = BOTH
        return cls(counterpart, slots, *_strongest(key, verdict, source))

    def __len__(self) -> int:
        """Return the number of parameters of launches of which something is known."""
        return len(self._keys)

    def of(self, launch_row: Ints, node: Ints, param_offset: Ints) -> tuple[Ints, Ints]:
        """Return the direction, and how it is known, of what parameters name."""
        slot = _slot(node, param_offset)
        place = np.searchsorted(self._slots, slot)
        known = np.append(self._slots, -1)[place] == slot
        wanted = self._counterpart[launch_row] * len(self._slots) + place
        known &= self._counterpart[launch_row] >= 0
        at = np.searchsorted(self._keys, wanted)
        known &= np.append(self._keys, -1)[at] == wanted
        at[~known] = len(self._keys)
        return self._direction[at], self._source[at]


def _writing(function: Ints, named: Named, is_written: Bools, overlaps: Bools) -> Ints:
    """Return the functions' parameters that write what they name.

    A kernel that works in place is given one address as its input and as its output. If
    it is known from elsewhere to write through the one, nothing is said of the other.
    """
    known = np.unique(function[is_written & ~overlaps])
    row = np.flatnonzero(is_written & overlaps)
    is_known = np.isin(function[row], known)
    place = np.stack([named.launch_id[row], named.node[row], named.address[row]])
    _, place = np.unique(place, axis=1, return_inverse=True)
    is_explained = np.isin(place, place[is_known])
    return np.union1d(known, function[row[~is_explained]])


def _strongest(key: Ints, verdict: Ints, source: Ints) -> tuple[Ints, Ints, Ints]:
    """Keep of each parameter what says most: who saw a write is right."""
    strength = np.zeros(SHARED + 1, np.int64)
    strength[[READ, SHARED, BOTH, WRITTEN]] = 1, 2, 3, 4
    rank = strength[verdict]
    # A place that was not hashed is not one that faults have said nothing of.
    rank[(verdict == UNKNOWN) & (source == CHECKSUM)] = strength[SHARED]
    kept = np.flatnonzero((key >= 0) & (rank > 0))
    order = kept[np.lexsort((source[kept], -rank[kept], key[kept]))]
    _, first = np.unique(key[order], return_index=True)
    best = order[first]
    verdict = np.where(rank[best] == strength[SHARED], UNKNOWN, verdict[best])
    return key[best], verdict, source[best]


def _counterparts(launched: Launches, bounds: Ints, wanted: int) -> Ints:
    """Return the row of each launch's counterpart in one iteration, -1 for none.

    It is the n-th launch of the same signature there, if both have as many of it.

    Parameters
    ----------
    bounds
        The first launch of each iteration, and the one after the last.
    wanted
        The iteration.
    """
    signature = launched.table["signature"].to_numpy()
    kinds, kind = np.unique(signature, return_inverse=True)
    # Before the first iteration is a segment, too.
    segment = np.searchsorted(bounds, launched.ids, "right")
    key = segment * len(kinds) + kind
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begin = np.searchsorted(ordered, ordered)
    count = np.searchsorted(ordered, ordered, "right") - begin
    there = (wanted + 1) * len(kinds) + ordered % max(len(kinds), 1)
    begin_there = np.searchsorted(ordered, there)
    count_there = np.searchsorted(ordered, there, "right") - begin_there
    same = np.flatnonzero(count == count_there)
    counterpart = np.full(len(order), -1)
    there = begin_there + np.arange(len(order)) - begin
    counterpart[order[same]] = order[there[same]]
    return counterpart


def _functions(launched: Launches, nodes: GraphNodes, named: Named) -> Ints:
    """Return one number for the kernel and the parameter that name each place."""
    name = _name_codes(launched.table["name"])
    code = name[np.searchsorted(launched.ids, named.launch_id)]
    of_nodes = np.flatnonzero(named.node >= 0)
    if len(of_nodes):
        node_key = (nodes.launch_ids << 32) + nodes.records["node"].astype(np.int64)
        wanted = (named.launch_id[of_nodes] << 32) + named.node[of_nodes]
        at = np.searchsorted(node_key, wanted)
        code[of_nodes] = np.append(nodes.names.indices.to_numpy(), -1)[at]
    return (code << 32) + named.param_offset


def _name_codes(names: Any) -> Ints:
    (chunk,) = names.chunks
    return np.asarray(chunk.indices.to_numpy(), np.int64)
