"""What a recording came to, in a few lines for people."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from transit.recorder.audit import summarize_audits
from transit.traces.caveats import caveats
from transit.traces.manifest import RankInfo, SkippedProcess


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a trace holds, summed over its ranks."""

    ranks: int
    launches: int
    kernel_launches: int
    kernel_launches_with_access: int
    accesses: int
    allocations: int
    iterations: int
    dropped: int
    torn: int
    skipped: list[SkippedProcess] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    directions: str = ""
    audit: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        parts = [
            _count(self.ranks, "rank"),
            _count(self.launches, "launch", "launches"),
            f"{self.kernel_launches_with_access:,} of {self.kernel_launches:,} kernel"
            " launches with an access",
            _count(self.allocations, "allocation"),
            _count(self.iterations, "marked iteration"),
        ]
        if lost := self.dropped + self.torn:
            parts.append(f"{_count(lost, 'record')} lost")
        if self.skipped:
            parts.append(
                f"{_count(len(self.skipped), 'process', 'processes')} left out"
            )
        return ", ".join(parts)


def summarize(
    ranks: list[RankInfo],
    skipped: list[SkippedProcess],
    bytes_by_source: Counter[str | None],
) -> Summary:
    """Sum up what the ranks hold.

    Parameters
    ----------
    bytes_by_source
        Bytes accessed, by how the direction is known; None where it is not.
    """

    def rows(table: str) -> int:
        return sum(info.counts[table] for info in ranks)

    return Summary(
        ranks=len(ranks),
        launches=rows("launches"),
        kernel_launches=sum(info.kernel_launches for info in ranks),
        kernel_launches_with_access=sum(
            info.kernel_launches_with_access for info in ranks
        ),
        accesses=rows("accesses"),
        allocations=rows("allocations"),
        iterations=rows("iterations"),
        dropped=sum(info.losses.dropped for info in ranks),
        torn=sum(info.losses.torn for info in ranks),
        skipped=skipped,
        directions=_summarize_directions(bytes_by_source),
        audit=summarize_audits([info.audit for info in ranks if info.audit]),
        caveats=_summarize_caveats(ranks),
    )


def _summarize_caveats(ranks: list[RankInfo]) -> list[str]:
    """Return each sentence once, with the ranks that it is about."""
    about: dict[str, list[int]] = {}
    for info in ranks:
        for caveat in caveats(info):
            about.setdefault(caveat, []).append(info.rank)
    return [
        f"{'rank' if len(those) == 1 else 'ranks'} {', '.join(map(str, those))}:"
        f" {caveat}"
        for caveat, those in about.items()
    ]


def _summarize_directions(bytes_by_source: Counter[str | None]) -> str:
    """Return one line for people; empty if nothing was accessed."""
    total = bytes_by_source.total()
    if not total:
        return ""
    known = [(n, source) for source, n in bytes_by_source.items() if source]
    shares = [f"{source} {_percent(n / total)}" for n, source in sorted(known)[::-1]]
    share = _percent(sum(n for n, _ in known) / total)
    line = f"direction known for {share} of the accessed bytes"
    return f"{line} ({', '.join(shares)})" if shares else line


def _percent(share: float) -> str:
    return f"{math.floor(share * 1000) / 10} %"  # all is said of all only


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
