"""What moving data between host and GPU costs, as a plan's cost model sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transit.compiler.machine import WindowRates
from transit.compiler.plan import PIECE_BYTES

# Windows are moved in chunks of this many pieces.
CHUNK_PIECES = 16


@dataclass(frozen=True)
class Link:
    """Rates in pieces of 2 MiB per ns, and what each transfer costs besides.

    `both` is the rate each way while transfers run both ways. Besides, a thread changes
    what addresses mean, one chunk after the other: it maps memory of the GPU, takes it
    away, or puts host memory there.
    """

    load: float
    store: float
    both: float
    load_fixed_ns: float
    store_fixed_ns: float
    map_ns: float = 0.0
    unmap_ns: float = 0.0
    map_home_ns: float = 0.0

    @property
    def takes_time_to_map(self) -> bool:
        """Whether it matters how often addresses change."""
        return self.map_ns + self.unmap_ns > 0

    @classmethod
    def of(
        cls,
        load_bytes_per_s: float,
        store_bytes_per_s: float,
        both_bytes_per_s: float,
        load_fixed_ns: float = 0.0,
        store_fixed_ns: float = 0.0,
    ) -> Link:
        """Convert from bytes per second."""
        scale = 1e-9 / PIECE_BYTES
        return cls(
            load_bytes_per_s * scale,
            store_bytes_per_s * scale,
            both_bytes_per_s * scale,
            load_fixed_ns,
            store_fixed_ns,
        )

    @classmethod
    def of_windows(cls, rates: WindowRates) -> Link:
        """Take what a machine profile says of a backend's windows."""
        link = cls.of(
            rates.load_bytes_per_s,
            rates.store_bytes_per_s,
            rates.both_bytes_per_s,
            rates.load_fixed_ns,
            rates.store_fixed_ns,
        )
        return replace(
            link,
            map_ns=rates.map_ns,
            unmap_ns=rates.unmap_ns,
            map_home_ns=rates.map_home_ns,
        )
