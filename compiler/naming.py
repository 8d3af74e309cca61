"""Which addresses the calls of an iteration name each time, and in which words.

Unused words of a launch's parameters hold what was there before: whole addresses, or
halves of one beside a small number, which are one a little above a multiple of 4 GiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from transit.compiler.arrays import Bools, Hashes, Ints, column, is_one_of, mix
from transit.compiler.marks import MIN_MARKED_TO_DROP_FIRST, rows_outside
from transit.traces.reader import Trace

MAX_UNSTEADY = 0.1  # of the calls; replay takes no more for the plan's
WORD_BYTES = 8
_MAP_BYTES = 128  # of a tensor map
_HALF_BITS = 32
_SMALL = 1 << 20  # above nearly all numbers that are left over in half a word


@dataclass(frozen=True)
class Naming:
    """Places that the calls of an iteration name, a row for each time it was recorded.

    Nodes of graphs are not among them, and neither is the audit: memory lies elsewhere
    then. `starts` are the rows of the launches that begin each. `word` is where it
    stands in the parameters, in bytes, and -1 if that is not known, or it does not.
    """

    signature: Hashes  # of each call
    starts: Ints
    iteration: Ints
    call: Ints
    allocation_id: Ints
    offset: Ints
    address: Ints
    word: Ints
    in_parameters: Bools
    is_map: Bools

    @classmethod
    def read(cls, trace: Trace, rank: int, launch_ids: Ints) -> Self:
        """Find them.

        Parameters
        ----------
        launch_ids
            The calls of one of the iterations.
        """
        launches = trace.table(rank, "launches", ["launch_id", "signature"])
        ids, signature = column(launches, "launch_id"), column(launches, "signature")
        calls = signature[np.searchsorted(ids, launch_ids)]
        starts = _repeats(signature, calls, int(np.searchsorted(ids, launch_ids[0])))
        marks = trace.table(rank, "iterations")
        audited = marks.filter(is_one_of(marks, "purpose", "audit"))
        starts = starts[rows_outside(audited, ids[starts])]
        # As for times: memory may have come in the first one.
        starts = starts[len(starts) >= MIN_MARKED_TO_DROP_FIRST :]
        names = ("launch_id", "allocation_id", "offset", "source")
        table = trace.table(
            rank, "accesses", [*names, "parameter_offset", "graph_node"]
        )
        row = np.searchsorted(ids, column(table, "launch_id"))
        iteration = np.searchsorted(starts, row, side="right") - 1
        call = row - starts[iteration]
        inside = (iteration >= 0) & (call < len(calls))
        inside &= column(table, "graph_node") < 0
        kept = np.flatnonzero(inside)
        table = table.take(kept)
        return cls(
            calls,
            starts,
            iteration[kept],
            call[kept],
            allocation_id := column(table, "allocation_id"),
            offset := column(table, "offset"),
            _bases(trace, rank, allocation_id) + offset,
            column(table, "parameter_offset"),
            is_one_of(table, "source", "parameter", "tensor map"),
            is_one_of(table, "source", "tensor map"),
        )

    @property
    def num_iterations(self) -> int:
        """How often the iteration was recorded."""
        return len(self.starts)

    def period(self) -> int:
        """Return after how many iterations the calls name the same memory again.

        1 if it is not seen that they do: that takes twice as many.
        """
        hashes, calls = self._hashes, len(self.signature)
        for period in range(1, self.num_iterations // 2 + 1):
            apart = self.starts[period:] - self.starts[:-period]
            is_next = apart == period * calls
            differs = (hashes[period:] != hashes[:-period])[is_next]
            if differs.size and differs.mean() <= MAX_UNSTEADY:
                return period
        return 1

    @cached_property
    def _hashes(self) -> Hashes:
        """Return one for the set of addresses of each call of each iteration."""
        rows = np.flatnonzero(self.counts)
        named = np.stack([self.iteration[rows], self.call[rows], self.address[rows]])
        iteration, call, address = np.unique(named, axis=1)
        hashes = np.zeros((self.num_iterations, len(self.signature)), np.uint64)
        np.add.at(hashes, (iteration, call), mix(address.astype(np.uint64)))
        return hashes

    @cached_property
    def kernel(self) -> Hashes:
        """The signature of the call of each row."""
        return self.signature[self.call]

    @cached_property
    def words(self) -> tuple[Hashes, Ints]:
        """Kernels, and words of theirs that are addresses, in order.

        A word is one if it was one each time in some launch of the iteration. Else
        these have run without: they do not use it.
        """
        rows = np.flatnonzero(self.in_parameters & ~self._is_left_over)
        found = np.stack([self.call[rows], self.word[rows], self.iteration[rows]])
        call, word, is_always = self._pairs(found)
        call, word = call[is_always], word[is_always]
        kernel, which = np.unique(self.signature, return_inverse=True)
        which, word = np.unique(np.stack([which[call], word]), axis=1)
        return kernel[which], word

    @cached_property
    def _is_left_over(self) -> Bools:
        """Tell which rows are of words that were never more than half an address."""
        is_half = self.address % (1 << _HALF_BITS) < _SMALL
        _, kernel = np.unique(self.kernel, return_inverse=True)
        keys, key = np.unique(
            np.stack([kernel, self.word]), axis=1, return_inverse=True
        )
        is_whole = np.bincount(key, ~is_half, keys.shape[1]) > 0
        return np.asarray(~is_whole[key] & self.in_parameters & (self.word >= 0))

    @cached_property
    def counts(self) -> Bools:
        """Tell which rows are of addresses, and not of words that hold others."""
        kernel, word = self.words
        _, which = np.unique(np.r_[kernel, self.kernel], return_inverse=True)
        keys = which * (1 << _HALF_BITS) + np.r_[word, self.word]
        return ~self.in_parameters | np.isin(keys[len(word) :], keys[: len(word)])

    def named(self, place: Ints) -> tuple[Ints, Ints, Bools]:
        """Return calls, the places that each names, in order, and whether every time.

        Parameters
        ----------
        place
            Of each row; those below zero do not count.
        """
        rows = np.flatnonzero(self.counts & (place >= 0))
        return self._pairs(
            np.stack([self.call[rows], place[rows], self.iteration[rows]])
        )

    def _pairs(self, found: Ints) -> tuple[Ints, Ints, Bools]:
        (call, what), times = np.unique(
            np.unique(found, axis=1)[:2], axis=1, return_counts=True
        )
        return call, what, times == self.num_iterations

    def words_in_replay(self, is_kernel: Bools) -> tuple[Hashes, Ints, Ints]:
        """Return kernels, rising, how many words each has, and these, rising.

        A kernel of which it is not known is not among them.

        Parameters
        ----------
        is_kernel
            Of each call.
        """
        unknown = self.kernel[self.in_parameters & (self.word < 0)]
        kernels = np.setdiff1d(self.signature[is_kernel], unknown)
        kernel, word = self.words
        is_map = np.unique(self.kernel[self.is_map]), np.unique(self.word[self.is_map])
        # Which words of a descriptor hold the address is the driver's business.
        steps = np.where(
            np.isin(kernel, is_map[0]) & np.isin(word, is_map[1]),
            _MAP_BYTES // WORD_BYTES,
            1,
        )
        row = np.repeat(np.arange(len(word)), steps)
        step = np.arange(len(row)) - np.repeat(np.cumsum(steps) - steps, steps)
        kept = np.isin(kernel[row], kernels)
        row, step = row[kept], step[kept]
        which = np.searchsorted(kernels, kernel[row])
        which, words = np.unique(
            np.stack([which, word[row] + WORD_BYTES * step]), axis=1
        )
        return kernels, np.bincount(which, minlength=len(kernels)), words


def _bases(trace: Trace, rank: int, allocation_id: Ints) -> Ints:
    table = trace.table(rank, "allocations", ["allocation_id", "address"])
    row = np.searchsorted(column(table, "allocation_id"), allocation_id)
    return column(table, "address").astype(np.int64)[row]


def _repeats(signature: Hashes, calls: Hashes, one: int) -> Ints:
    """Return where these calls come one after the other, without overlaps.

    Parameters
    ----------
    one
        A row where they do.
    """
    values, first, count = np.unique(calls, return_index=True, return_counts=True)
    rarest = np.argmin(count)
    candidates = np.flatnonzero(signature == values[rarest]) - first[rarest]
    found = [
        start
        for start in candidates[candidates >= 0].tolist()
        if np.array_equal(signature[start : start + len(calls)], calls)
    ]
    starts = [one]
    for start in reversed(found):
        if start <= starts[0] - len(calls):
            starts.insert(0, start)
    for start in found:
        if start >= starts[-1] + len(calls):
            starts.append(start)
    return np.array(starts, np.int64)
