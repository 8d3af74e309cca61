"""Programs that allocate, map and exhaust device memory."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver as cu
from driver_client import (
    MIB,
    PAGE_BYTES,
    allow,
    call,
    counters,
    create,
    fails_with,
    function,
    launch,
    read,
    start,
    used_bytes,
    write,
)


def memory_is_counted_and_ends() -> None:
    start()
    _, total = call(cu.cuMemGetInfo)
    assert total == 64 * MIB
    before = used_bytes()
    addresses = [int(call(cu.cuMemAlloc, 20 * MIB)) for _ in range(3)]
    assert used_bytes() - before == 60 * MIB
    fails_with("OUT_OF_MEMORY", cu.cuMemAlloc, 20 * MIB)
    fails_with("OUT_OF_MEMORY", cu.cuMemAlloc, 1 << 62)
    fails_with("INVALID_VALUE", cu.cuMemAlloc, 0)
    call(cu.cuMemFree, addresses.pop())
    call(cu.cuMemFree, call(cu.cuMemAlloc, 20 * MIB))
    fails_with("INVALID_VALUE", cu.cuMemFree, addresses[0] + 512)
    for address in addresses:
        call(cu.cuMemFree, address)
    assert used_bytes() == before


def each_device_has_its_own_memory() -> None:
    call(cu.cuInit, 0)
    assert call(cu.cuDeviceGetCount) == 2
    contexts = [call(cu.cuDevicePrimaryCtxRetain, device) for device in range(2)]
    for context in contexts:
        call(cu.cuCtxSetCurrent, context)
        assert used_bytes() == 0
        call(cu.cuMemAlloc, 3 * PAGE_BYTES)
        assert used_bytes() == 3 * PAGE_BYTES
    call(cu.cuDevicePrimaryCtxRelease, 1)
    fails_with("CONTEXT_IS_DESTROYED", cu.cuMemAlloc, 512)
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, 1))
    assert used_bytes() == 0, "the last release frees what the context had"


def one_handle_at_two_addresses_is_one_memory() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, 3 * PAGE_BYTES, 0, 0, 0))
    device, host = create("DEVICE", PAGE_BYTES), create("HOST_NUMA", PAGE_BYTES)
    assert used_bytes() == PAGE_BYTES, "host chunks must not count"
    call(cu.cuMemMap, base, PAGE_BYTES, 0, device, 0)
    call(cu.cuMemMap, base + PAGE_BYTES, PAGE_BYTES, 0, device, 0)
    call(cu.cuMemMap, base + 2 * PAGE_BYTES, PAGE_BYTES, 0, host, 0)
    allow(base, 3 * PAGE_BYTES)
    values = np.arange(PAGE_BYTES // 4, dtype=np.float32)
    write(base, values)
    assert np.array_equal(read(base + PAGE_BYTES, values.size), values)
    # A launch over both kinds of chunk, and the copy of one to the other.
    count = 2 * values.size
    launch(function(b"scale"), 0, (base + PAGE_BYTES, base + PAGE_BYTES, 2.0, count))
    call(cu.cuCtxSynchronize)
    assert np.array_equal(read(base, values.size), 2 * values)
    call(cu.cuMemcpyDtoD, base + 2 * PAGE_BYTES, base, PAGE_BYTES)
    # Remapped to the host chunk, the address holds what was copied there.
    call(cu.cuMemUnmap, base, PAGE_BYTES)
    call(cu.cuMemMap, base, PAGE_BYTES, 0, host, 0)
    allow(base, PAGE_BYTES)
    before = counters().link_read_bytes
    assert np.array_equal(read(base, values.size), 2 * values)
    assert counters().link_read_bytes - before == PAGE_BYTES
    memory_type = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert call(cu.cuPointerGetAttribute, memory_type, base) == 1
    assert call(cu.cuPointerGetAttribute, memory_type, base + PAGE_BYTES) == 2
    call(cu.cuMemUnmap, base, 3 * PAGE_BYTES)
    for handle in (device, host):
        call(cu.cuMemRelease, handle)
    call(cu.cuMemAddressFree, base, 3 * PAGE_BYTES)
    assert used_bytes() == 0


def mapping_is_refused_where_a_gpu_refuses_it() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, 4 * PAGE_BYTES, 0, 0, 0))
    host = create("HOST_NUMA", 2 * PAGE_BYTES)
    map_ = cu.cuMemMap
    fails_with("NOT_SUPPORTED", map_, base, PAGE_BYTES, PAGE_BYTES, host, 0)
    fails_with("INVALID_VALUE", map_, base + 4 * PAGE_BYTES, PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", map_, base, 4 * PAGE_BYTES, 0, host, 0)
    call(map_, base, 2 * PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", map_, base, PAGE_BYTES, 0, host, 0)
    fails_with("INVALID_VALUE", cu.cuMemUnmap, base, PAGE_BYTES)
    fails_with("INVALID_VALUE", cu.cuMemAddressFree, base, 4 * PAGE_BYTES)
    fails_with("INVALID_VALUE", cu.cuIpcGetMemHandle, base)
    call(cu.cuIpcGetMemHandle, call(cu.cuMemAlloc, 512))


def access_before_it_is_set_fails_for_good() -> None:
    start()
    base = int(call(cu.cuMemAddressReserve, PAGE_BYTES, 0, 0, 0))
    call(cu.cuMemMap, base, PAGE_BYTES, 0, create("DEVICE", PAGE_BYTES), 0)
    launch(function(b"fill"), 0, (base, 1.0, 16))
    fails_with("ILLEGAL_ADDRESS", cu.cuCtxSynchronize)
    fails_with("ILLEGAL_ADDRESS", cu.cuMemAlloc, 512)
