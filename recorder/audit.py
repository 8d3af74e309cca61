"""What launches touched in the audit iteration, against what their parameters name.

The iteration begins with all managed memory on the host, and what a launch names goes
back there after it: so each launch's first touch of a page is a fault, which the driver
reports. A touched page that no launch in flight names was reached through pointers that
the recorder cannot see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.columns import Ints, int64, labels, nullable
from transit.recorder.spool import Spool
from transit.recorder.tables import Allocations
from transit.recorder.uvm import FAULT_ACCESSES, GPU_FAULT, PAGE_BYTES
from transit.traces.manifest import AuditInfo
from transit.traces.schema import empty

PIECE_BYTES = 2 << 20
AUDITED_API = 7  # TRANSIT_API_AUDITED
MEM_ALLOC_API = 1
# Faults have the host's time of their handling, kernels the GPU's interpolated one.
# Only used for a fault during which nothing is in flight.
CLOCK_TOLERANCE_NS = 20_000
ACCESSES = {0: "unknown"} | {
    code: text for code, text in FAULT_ACCESSES.items() if text != "prefetch"
}
_CHUNK_FAULTS = 1 << 18

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Audit:
    """The audited touches: a row for each run of pages."""

    table: pa.Table
    info: AuditInfo | None

    @classmethod
    def none(cls) -> Self:
        """Return that of a job that was not audited."""
        return cls(empty("audit"), None)

    @classmethod
    def read(
        cls,
        spool: Spool,
        allocated: Allocations,
        launches: pa.Table,
        accesses: pa.Table,
    ) -> Self:
        """Compare the faults of the audit iteration with its launches.

        Parameters
        ----------
        launches, accesses
            Those of the audit iteration.
        """
        lines, in_flight = _Lines.of(allocated), _InFlight.of(launches)
        faults = _Faults.read(spool, allocated, lines, in_flight)
        named = _Named.read(allocated, lines, launches, accesses)
        rows = _Rows.of(faults, _explain(faults, in_flight, named))
        managed, outside = _memory(spool, allocated, in_flight)
        pages = rows.num_pages
        info = AuditInfo(
            managed_bytes=managed,
            outside_bytes=outside,
            faulted_bytes=int(pages.sum()) * PAGE_BYTES,
            explained_bytes=int(pages[rows.is_explained].sum()) * PAGE_BYTES,
            unexplained_regions=_num_unexplained_regions(rows, lines),
        )
        launch_ids = launches["launch_id"].to_numpy()
        return cls(_table(rows, lines, allocated.ids, launch_ids), info)


@dataclass(frozen=True)
class _Lines:
    """All allocations end to end, in whole pages."""

    start: Ints

    @classmethod
    def of(cls, allocated: Allocations) -> Self:
        pages = -(-allocated.lifetimes.bytes // PAGE_BYTES)
        return cls(np.append(0, np.cumsum(pages)))

    @property
    def num_pages(self) -> int:
        return int(self.start[-1])


@dataclass(frozen=True)
class _InFlight:
    """When each launch of the iteration ran, in the order of their starts."""

    row: Ints  # among the iteration's launches
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def of(cls, launches: pa.Table) -> Self:
        start_ns = launches["start_ns"].fill_null(pa.scalar(-1, pa.int64())).to_numpy()
        end_ns = launches["end_ns"].fill_null(pa.scalar(-1, pa.int64())).to_numpy()
        order = np.argsort(start_ns, kind="stable")
        row = order[start_ns[order] >= 0]
        return cls(row, start_ns[row], end_ns[row])

    def at(self, time_ns: Ints, tolerance_ns: int) -> tuple[Ints, Ints]:
        """Pair each of the ascending times with each launch in flight then."""
        low = np.searchsorted(time_ns, self.start_ns - tolerance_ns, "left")
        high = np.searchsorted(time_ns, self.end_ns + tolerance_ns, "right")
        count = np.maximum(high - low, 0)
        launch = np.repeat(np.arange(len(count)), count)
        first = np.cumsum(count) - count
        return np.arange(len(launch)) - np.repeat(first - low, count), launch


@dataclass(frozen=True)
class _Faults:
    """GPU faults on managed allocations during the iteration, by time."""

    time_ns: Ints
    allocation_row: Ints
    page: Ints  # in the line of all allocations
    access: Ints

    @classmethod
    def read(
        cls,
        spool: Spool,
        allocated: Allocations,
        lines: _Lines,
        in_flight: _InFlight,
    ) -> Self:
        uvm = spool.records["uvm"]
        uvm = uvm[(uvm["counter_kind"] == GPU_FAULT) & (uvm["start_ns"] > 0)]
        time_ns = int64(uvm["start_ns"], "time of a fault")
        begin_ns = in_flight.start_ns.min(initial=np.iinfo(np.int64).max)
        end_ns = in_flight.end_ns.max(initial=0)
        inside = (time_ns >= begin_ns - CLOCK_TOLERANCE_NS) & (
            time_ns <= end_ns + CLOCK_TOLERANCE_NS
        )
        real = np.isin(uvm["flags"], list(ACCESSES))
        uvm, time_ns = uvm[inside & real], time_ns[inside & real]
        address = int64(uvm["address"], "address of a fault")
        row = allocated.lifetimes.find(address, time_ns)
        audited = np.append(_apis(spool, allocated), 0)[row] == AUDITED_API
        keep = np.flatnonzero(audited)
        keep = keep[np.argsort(time_ns[keep], kind="stable")]
        row = row[keep]
        offset = address[keep] - allocated.lifetimes.address[row]
        page = lines.start[row] + offset // PAGE_BYTES
        return cls(time_ns[keep], row, page, uvm["flags"][keep].astype(np.int64))


@dataclass(frozen=True)
class _Named:
    """The pages that each launch names, as keys of a launch and a page."""

    num_pages: int
    begin: Ints
    furthest_end: Ints  # of this and all ranges before

    @classmethod
    def read(
        cls,
        allocated: Allocations,
        lines: _Lines,
        launches: pa.Table,
        accesses: pa.Table,
    ) -> Self:
        launch_ids = launches["launch_id"].to_numpy()
        row = allocated.rows(accesses["allocation_id"].to_numpy())
        launch = np.searchsorted(launch_ids, accesses["launch_id"].to_numpy())
        offset = accesses["offset"].to_numpy()
        stop = offset + accesses["bytes"].to_numpy()
        base = launch * lines.num_pages + lines.start[row]
        begin = base + offset // PAGE_BYTES
        end = base - (-stop // PAGE_BYTES)
        order = np.argsort(begin, kind="stable")
        return cls(lines.num_pages, begin[order], np.maximum.accumulate(end[order]))

    def __call__(self, launch: Ints, page: Ints) -> Bools:
        """Tell which launch names which page."""
        key = launch * self.num_pages + page
        last = np.searchsorted(self.begin, key, "right") - 1
        # Ranges of an earlier launch end before this one's pages begin.
        furthest = np.append(self.furthest_end, -1)[last]
        return np.asarray((last >= 0) & (furthest > key))


def _explain(faults: _Faults, in_flight: _InFlight, named: _Named) -> Ints:
    """Return each fault's launch, -1 for none, and whether that names the page."""
    launch = np.full(len(faults.page), -1, np.int64)
    is_explained = np.zeros(len(launch), np.int64)
    for start in range(0, len(launch), _CHUNK_FAULTS):
        part = slice(start, start + _CHUNK_FAULTS)
        for tolerance_ns in (0, CLOCK_TOLERANCE_NS):
            pairs = in_flight.at(faults.time_ns[part], tolerance_ns)
            keep = launch[part][pairs[0]] < 0
            fault, order = pairs[0][keep], pairs[1][keep]
            row = in_flight.row[order]
            names = named(row, faults.page[part][fault])
            # The last is taken: one that explains it, else the one that started last.
            best = np.lexsort((order, names))
            launch[part][fault[best]] = row[best]
            is_explained[part][fault[best]] = names[best]
    return np.stack([launch, is_explained])


@dataclass(frozen=True)
class _Rows:
    """Runs of pages that one launch touched alike, by allocation and place."""

    allocation_row: Ints
    page: Ints  # in the line of all allocations
    num_pages: Ints
    launch: Ints
    access: Ints
    is_explained: Bools

    @classmethod
    def of(cls, faults: _Faults, verdicts: Ints) -> Self:
        touches = np.stack(
            [*verdicts, faults.access, faults.allocation_row, faults.page]
        )
        touches = np.unique(touches, axis=1)  # sorted by the first row, then the next
        alike = np.all(touches[:-1, 1:] == touches[:-1, :-1], axis=0)
        goes_on = alike & (np.diff(touches[-1]) == 1)
        first = np.flatnonzero(np.append(True, ~goes_on)[: touches.shape[1]])
        num_pages = np.diff(np.append(first, touches.shape[1]))
        launch, explained, access, row, page = touches[:, first]
        order = np.lexsort((launch, page))
        return cls(
            row[order],
            page[order],
            num_pages[order],
            launch[order],
            access[order],
            explained[order] > 0,
        )


def _table(rows: _Rows, lines: _Lines, ids: Ints, launch_ids: Ints) -> pa.Table:
    columns: dict[str, Any] = {
        "allocation_id": ids[rows.allocation_row],
        "offset": (rows.page - lines.start[rows.allocation_row]) * PAGE_BYTES,
        "bytes": rows.num_pages * PAGE_BYTES,
        "access": labels(rows.access, ACCESSES),
        "is_explained": rows.is_explained,
        "launch_id": nullable(np.append(launch_ids, 0)[rows.launch], rows.launch < 0),
    }
    return pa.table(columns)


def _num_unexplained_regions(rows: _Rows, lines: _Lines) -> int:
    """Count the runs of pieces of 2 MiB that hold an unexplained page."""
    odd = ~rows.is_explained
    row = rows.allocation_row[odd]
    offset = (rows.page[odd] - lines.start[row]) * PAGE_BYTES
    first = offset // PIECE_BYTES
    last = (offset + rows.num_pages[odd] * PAGE_BYTES - 1) // PIECE_BYTES
    regions, reached = 0, (-1, -1)
    for place in sorted(zip(row.tolist(), first.tolist(), last.tolist(), strict=True)):
        allocation, begin, end = place
        if allocation != reached[0] or begin > reached[1] + 1:
            regions += 1
            reached = (allocation, end)
        reached = (allocation, max(end, reached[1]))
    return regions


def summarize_audits(audits: list[AuditInfo]) -> str:
    """Return one line for people; empty without an audit."""
    if not audits:
        return ""
    faulted = sum(info.faulted_bytes for info in audits)
    if not faulted:
        return "audit: no touch of a page was reported, so nothing is known"
    share = sum(info.explained_bytes for info in audits) / faulted
    regions = sum(info.unexplained_regions for info in audits)
    outside = sum(info.outside_bytes for info in audits)
    line = (
        f"audit: {math.floor(share * 10000) / 100:.2f} % of the touched pages are"
        f" explained by the launches; regions that are not: {regions}"
    )
    if outside:
        line += f"; {outside:,} bytes were outside of the audit"
    return line


def _memory(spool: Spool, allocated: Allocations, in_flight: _InFlight) -> list[int]:
    """Return the bytes alive meanwhile that were audited, and that were not."""
    lifetimes = allocated.lifetimes
    alive = (lifetimes.born_ns <= in_flight.end_ns.max(initial=0)) & (
        lifetimes.died_ns >= in_flight.start_ns.min(initial=0)
    )
    api = _apis(spool, allocated)
    return [
        int(lifetimes.bytes[alive & (api == wanted)].sum())
        for wanted in (AUDITED_API, MEM_ALLOC_API)
    ]


def _apis(spool: Spool, allocated: Allocations) -> Ints:
    records = spool.records["allocation"]
    ids, first = np.unique(records["allocation_id"], return_index=True)
    return records["api"][first][np.searchsorted(ids, allocated.ids)].astype(np.int64)
