"""Programs whose memory moves between host and device."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver as cu
from driver_client import (
    MIB,
    PAGE_BYTES,
    advise,
    call,
    counters,
    function,
    launch,
    location,
    managed,
    read,
    start,
    used_bytes,
)


def managed_pages_fault_in_and_stay() -> None:
    start()
    address, count = managed(4 * PAGE_BYTES), 4 * PAGE_BYTES // 4
    call(cu.cuMemPrefetchAsync, address, 4 * PAGE_BYTES, location("HOST"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == 0
    launch(function(b"fill"), 0, (address + 3 * PAGE_BYTES // 2, 1.0, PAGE_BYTES // 4))
    call(cu.cuCtxSynchronize)
    seen = counters()
    assert seen.fault_count == 2, seen.fault_count
    assert used_bytes() == seen.migrated_in_bytes == 2 * PAGE_BYTES
    launch(function(b"fill"), 0, (address, 2.0, count))
    launch(function(b"fill"), 0, (address, 3.0, count))
    call(cu.cuCtxSynchronize)
    assert counters().fault_count == 4, "resident pages must not fault"
    assert np.all(read(address, count) == 3)
    call(cu.cuMemFree, address)
    assert used_bytes() == 0


def advised_pages_are_used_in_place() -> None:
    start()
    size = 2 * PAGE_BYTES
    address = managed(size)
    advise(address, size, "SET_PREFERRED_LOCATION", "HOST")
    advise(address, size, "SET_ACCESSED_BY", "DEVICE")
    call(cu.cuMemPrefetchAsync, address, size, location("HOST"), 0, 0)
    launch(function(b"scale"), 0, (address, address, 1.0, size // 4))
    call(cu.cuCtxSynchronize)
    seen = counters()
    assert used_bytes() == seen.fault_count == seen.migrated_in_bytes == 0
    assert seen.link_read_bytes == seen.link_written_bytes == size
    # A prefetch overrides the preference; the way back maps the pages again.
    call(cu.cuMemPrefetchAsync, address, size, location("DEVICE"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == size
    call(cu.cuMemPrefetchAsync, address, size, location("HOST"), 0, 0)
    launch(function(b"fill"), 0, (address, 1.0, size // 4))
    call(cu.cuCtxSynchronize)
    assert used_bytes() == counters().fault_count == 0
    attribute = cu.CUmem_range_attribute
    for name, expected in {
        "PREFERRED_LOCATION": -1,
        "LAST_PREFETCH_LOCATION": -1,
        "READ_MOSTLY": 0,
    }.items():
        which = getattr(attribute, f"CU_MEM_RANGE_ATTRIBUTE_{name}")
        found = call(cu.cuMemRangeGetAttribute, 4, which, address, size)
        assert found == expected, (name, found)


def read_mostly_pages_are_duplicated() -> None:
    start()
    address = managed(PAGE_BYTES)
    call(cu.cuMemPrefetchAsync, address, PAGE_BYTES, location("HOST"), 0, 0)
    call(cu.cuCtxSynchronize)
    advise(address, PAGE_BYTES, "SET_READ_MOSTLY", "DEVICE")
    call(cu.cuMemPrefetchAsync, address, PAGE_BYTES, location("DEVICE"), 0, 0)
    call(cu.cuCtxSynchronize)
    assert used_bytes() == PAGE_BYTES
    advise(address, PAGE_BYTES, "UNSET_READ_MOSTLY", "DEVICE")
    assert used_bytes() == 0
    assert counters().migrated_out_bytes == 0, "a duplicate needs no copy back"


def the_least_recently_used_pages_leave_a_full_card() -> None:
    start()
    size = 24 * MIB
    fill = function(b"fill")
    first, second, third = (managed(size) for _ in range(3))
    for address, value in ((first, 1.0), (second, 2.0), (first, 3.0), (third, 4.0)):
        launch(fill, 0, (address, value, size // 4))
    call(cu.cuCtxSynchronize)
    assert used_bytes() <= 64 * MIB
    assert counters().evicted_bytes == 3 * size - 64 * MIB
    faults = counters().fault_count
    launch(fill, 0, (first, 5.0, size // 4))
    call(cu.cuCtxSynchronize)
    assert counters().fault_count == faults, "the second was older than the first"
    for address, value in ((first, 5), (second, 2), (third, 4)):
        assert np.all(read(address, size // 4) == value)
    # Other memory pushes managed pages out too.
    call(cu.cuMemAlloc, 60 * MIB)
    assert used_bytes() <= 64 * MIB
