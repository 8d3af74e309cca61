"""A linear program put together from arrays, solved by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from transit.compiler.arrays import Floats, Ints

INFEASIBLE = 2


@dataclass(frozen=True)
class Term:
    """Coefficients of some columns in some of the rows that are being added."""

    row: Ints
    column: Ints
    value: float | Floats


class LinearProgram:
    """Minimises a cost over variables that are at least 0."""

    def __init__(self) -> None:
        self._costs: list[Floats] = []
        self._uppers: list[Floats] = []
        self._num_columns = 0
        self._terms: dict[bool, list[Term]] = {False: [], True: []}
        self._sides: dict[bool, list[Floats]] = {False: [], True: []}

    def columns(
        self, count: int, *, cost: float | Floats = 0.0, upper: float | Floats = np.inf
    ) -> Ints:
        """Add variables; return their numbers."""
        first = self._num_columns
        self._num_columns += count
        self._costs.append(np.broadcast_to(np.asarray(cost, float), count))
        self._uppers.append(np.broadcast_to(np.asarray(upper, float), count))
        return np.arange(first, self._num_columns)

    def at_most(self, side: Floats, *terms: Term) -> None:
        """Add rows: the sum of the terms is at most `side`."""
        self._add(False, side, terms)

    def equal(self, side: Floats, *terms: Term) -> None:
        """Add rows: the sum of the terms is `side`."""
        self._add(True, side, terms)

    def ordered(self, smaller: Ints, larger: Ints) -> None:
        """Add rows: each of some columns is at most that beside it."""
        rows = np.arange(len(smaller))
        differ = smaller != larger
        self.at_most(
            np.zeros(len(rows)),
            Term(rows[differ], smaller[differ], 1.0),
            Term(rows[differ], larger[differ], -1.0),
        )

    def sum_around(
        self, totals: Ints, first: Ints, covered: Ints, column: Ints, weight: Floats
    ) -> None:
        """Let columns `totals`, around a circle, be sums of others.

        Each is had from the one before it, which takes far fewer coefficients.

        Parameters
        ----------
        first, covered
            Each of `column` counts, by its weight, in `covered` totals from `first` on.
        """
        count = len(totals)
        stop = first + covered  # one turn after `first` at most
        later = np.arange(1, count)
        partly = (covered > 0) & (covered < count)
        begins, ends = partly & (first > 0), partly & (stop % count > 0)
        self.equal(
            np.zeros(count - 1),
            Term(later - 1, totals[later], 1.0),
            Term(later - 1, totals[later - 1], -1.0),
            Term(first[begins] - 1, column[begins], -weight[begins]),
            Term(stop[ends] % count - 1, column[ends], weight[ends]),
        )
        chosen = np.flatnonzero((covered > 0) & ((first == 0) | (stop > count)))
        self.equal(
            np.zeros(1),
            Term(np.zeros(1, np.int64), totals[:1], 1.0),
            Term(np.zeros_like(chosen), column[chosen], -weight[chosen]),
        )

    def _add(self, is_equal: bool, side: Floats, terms: tuple[Term, ...]) -> None:
        first = sum(len(rows) for rows in self._sides[is_equal])
        self._sides[is_equal].append(np.asarray(side, float))
        self._terms[is_equal] += [Term(t.row + first, t.column, t.value) for t in terms]

    def solve(self) -> Floats | None:
        """Return the best values of all variables; None if there are none."""
        most, most_side = self._matrix(False)
        equal, equal_side = self._matrix(True)
        solved = linprog(
            np.concatenate(self._costs),
            A_ub=most,
            b_ub=most_side,
            A_eq=equal,
            b_eq=equal_side,
            bounds=np.c_[np.zeros(self._num_columns), np.concatenate(self._uppers)],
            method="highs",
        )
        if solved.status == INFEASIBLE:
            return None
        if solved.x is None:
            raise RuntimeError(f"HiGHS: {solved.message}")
        return np.asarray(solved.x)

    def _matrix(self, is_equal: bool) -> tuple[sparse.csr_array | None, Floats | None]:
        terms, sides = self._terms[is_equal], self._sides[is_equal]
        if not sides:
            return None, None
        side = np.concatenate(sides)
        row = np.concatenate([t.row for t in terms])
        column = np.concatenate([t.column for t in terms])
        value = np.concatenate(
            [np.broadcast_to(np.asarray(t.value, float), len(t.row)) for t in terms]
        )
        shape = (len(side), self._num_columns)
        return sparse.csr_array((value, (row, column)), shape), side
