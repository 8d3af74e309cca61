"""What libtransit.so knows of memory that no plan moves, and tells an observer."""

from __future__ import annotations

from shim_job import GOOD_PLAN, MIB, ZERO_COPY, Job, flat_plan, script, whole


def test_libraries_keep_their_memory_and_take_no_ordinal(job: Job) -> None:
    plan = flat_plan([whole(0, 2 * MIB, ZERO_COPY)])
    _, [status] = job(
        *script("""
start()
# The binding's own module is the "library"; libffi, for ctypes, is the application.
kept = call(cu.cuMemAlloc, 2 << 20)
driver = ctypes.CDLL("libcuda.so.1")
mine = ctypes.c_uint64()
assert driver.cuMemAlloc_v2(ctypes.byref(mine), ctypes.c_size_t(2 << 20)) == 0
roundtrip(kept, 2 << 20)
roundtrip(mine.value, 2 << 20)
"""),
        plan=plan,
        env={"TRANSIT_KEEP_MODULES": "libsomething,cydriver,_cydriver,driver"},
    )
    assert (status.allocations_seen, status.allocations_passed) == (1, 1)
    assert status.allocations_matched == 1
    assert status.passed_bytes == status.zero_copy_bytes == 2 * MIB


def test_other_apis_are_followed_and_take_no_ordinal(job: Job) -> None:
    _, [status] = job(
        *script("""
start()
managed = call(cu.cuMemAllocManaged, 1 << 20,
               cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
pitched, pitch = call(cu.cuMemAllocPitch, 1000, 10, 4)
host = call(cu.cuMemHostAlloc, 1 << 20, 0)
stream = call(cu.cuStreamCreate, 0)
pooled = call(cu.cuMemAllocAsync, 4 << 20, stream)
movable = call(cu.cuMemAlloc, 2 << 20)
call(cu.cuMemFreeAsync, pooled, stream)
call(cu.cuStreamSynchronize, stream)
call(cu.cuMemFreeHost, host)
call(cu.cuMemFree, managed)
"""),
        plan=flat_plan([whole(0, 2 * MIB, ZERO_COPY)]),
    )
    assert status.allocations_passed == 3
    pitched_bytes = 10 * 1024  # rows of 1000 bytes are rounded up to 512
    assert status.passed_bytes == pitched_bytes
    assert status.passed_peak_bytes == pitched_bytes + 5 * MIB
    assert status.allocations_matched == 1
    assert status.zero_copy_bytes == 2 * MIB


def test_the_jobs_own_mappings_are_observed_and_left_alone(job: Job) -> None:
    _, [status] = job(
        *script("""
start()
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
access = cu.CUmemAccessDesc()
access.location = prop.location
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
address = call(cu.cuMemAddressReserve, 4 << 20, 2 << 20, 0, 0)
for offset in (0, 2 << 20):
    handle = call(cu.cuMemCreate, 2 << 20, prop, 0)
    call(cu.cuMemMap, int(address) + offset, 2 << 20, 0, handle, 0)
    call(cu.cuMemRelease, handle)
call(cu.cuMemSetAccess, address, 4 << 20, [access], 1)
roundtrip(address, 4 << 20)
call(cu.cuMemUnmap, int(address) + (2 << 20), 2 << 20)
"""),
        plan=GOOD_PLAN,
    )
    assert (status.allocations_seen, status.allocations_passed) == (0, 2)
    assert (status.passed_bytes, status.passed_peak_bytes) == (2 * MIB, 4 * MIB)


def test_an_observer_hears_of_every_allocation_in_order(job: Job) -> None:
    result, _ = job(
        *script("""
class Allocation(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("id", ctypes.c_uint32), ("ordinal", ctypes.c_int32),
                ("device", ctypes.c_int32), ("api", ctypes.c_uint32),
                ("caller", ctypes.c_char_p)]

OnAlloc = ctypes.CFUNCTYPE(None, ctypes.POINTER(Allocation))
OnFree = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint32)

class Observer(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("on_alloc", OnAlloc),
                ("on_free", OnFree)]

names = {}
def on_alloc(told):
    a = told.contents
    assert a.address not in names
    names[a.address] = a.id
    print("alloc", a.id, a.ordinal, a.device, a.api, a.bytes, bool(a.caller))
def on_free(address, identity):
    assert names.pop(address) == identity
    print("free", identity)

shim = ctypes.CDLL(None)
observer = Observer(2, OnAlloc(on_alloc), OnFree(on_free))
wrong = Observer(3, OnAlloc(on_alloc), OnFree(on_free))
assert shim.transit_observe(ctypes.byref(wrong)) == -1
start()
a = call(cu.cuMemAlloc, 100)
b = call(cu.cuMemAlloc, 200)
call(cu.cuMemFree, a)
assert shim.transit_observe(ctypes.byref(observer)) == 0
c = call(cu.cuMemAllocManaged, 300, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
d = call(cu.cuMemAlloc, 400)
h = call(cu.cuMemHostAlloc, 500, 0)
call(cu.cuMemFree, b)
call(cu.cuMemFree, c)
call(cu.cuMemFreeHost, h)
call(cu.cuMemsetD8, d, 0, 400)
shim.transit_launches_seen.restype = ctypes.c_uint64
print("launches", shim.transit_launches_seen())
""")
    )
    assert result.stdout.splitlines() == [
        "alloc 1 1 0 1 200 True",
        "alloc 2 -1 0 2 300 True",
        "alloc 3 2 0 1 400 True",
        "alloc 4 -1 0 6 500 True",
        "free 1",
        "free 2",
        "free 4",
        "launches 1",
    ]
