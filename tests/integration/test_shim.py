"""libtransit.so on the simulated GPU: what it places, counts and leaves alone."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from transit.runtime.status import BackendKind, ProcessStatus, ShimState, read_run

MIB = 1 << 20
PIECE = 2 * MIB
RESIDENT, ZERO_COPY = 0, 1
BACKENDS = ["vmm", "uvm"]
LAYERS = Path(__file__).parents[2] / "examples" / "layers.py"

Range = tuple[int, int, int]  # offset, bytes, placement
Planned = tuple[int, int, Sequence[Range]]  # ordinal, bytes, ranges

# What every script of a job starts with.
PRELUDE = """
import ctypes, os, sys, threading
from cuda.bindings import driver as cu

def call(function, *arguments):
    error, *results = function(*arguments)
    assert error == cu.CUresult.CUDA_SUCCESS, (function.__name__, error)
    return results[0] if len(results) == 1 else results

def start():
    call(cu.cuInit, 0)
    device = call(cu.cuDeviceGet, 0)
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, device))

def roundtrip(address, bytes_, seed=1):
    data = bytes((i * seed) % 251 for i in range(997)) * (bytes_ // 997 + 1)
    data = data[:bytes_]
    back = ctypes.create_string_buffer(bytes_)
    call(cu.cuMemcpyHtoD, address, data, bytes_)
    call(cu.cuMemcpyDtoH, ctypes.addressof(back), address, bytes_)
    assert back.raw[:bytes_] == data
"""


def flat_plan(
    planned: Sequence[Planned],
    *,
    addresses: Mapping[int, int] | None = None,
    version: int = 1,
    rank: int = 0,
    device: int = 0,
) -> bytes:
    """A flat plan as runtime/native/flat_plan.h describes it."""
    allocations, ranges = b"", b""
    num_ranges = 0
    for ordinal, size, parts in planned:
        allocations += struct.pack(
            "<iIQQII",
            device,
            ordinal,
            size,
            (addresses or {}).get(ordinal, 2**64 - 1),
            num_ranges,
            len(parts),
        )
        for offset, length, placement in parts:
            ranges += struct.pack("<QQII", offset, length, placement, 0)
        num_ranges += len(parts)
    file_bytes = 48 + len(allocations) + len(ranges)
    header = struct.pack(
        "<8sIIIIIIQQ",
        b"TRNSPLAN",
        version,
        48,
        rank,
        len(planned),
        num_ranges,
        0,
        64 * MIB,
        file_bytes,
    )
    return header + allocations + ranges


def whole(ordinal: int, size: int, placement: int) -> Planned:
    """One allocation in one placement."""
    return ordinal, size, [(0, -(-size // PIECE) * PIECE, placement)]


class Job(Protocol):
    """Runs Python under the shim and returns its process and status files."""

    def __call__(
        self,
        *command: str,
        plan: bytes | None = None,
        backend: str = "vmm",
        env: Mapping[str, str] | None = None,
        exit_code: int = 0,
    ) -> tuple[subprocess.CompletedProcess[str], list[ProcessStatus]]: ...


@pytest.fixture
def job(native_libs: Path, simgpu_env: Mapping[str, str], tmp_path: Path) -> Job:
    def run(
        *command: str,
        plan: bytes | None = None,
        backend: str = "vmm",
        env: Mapping[str, str] | None = None,
        exit_code: int = 0,
    ) -> tuple[subprocess.CompletedProcess[str], list[ProcessStatus]]:
        run_dir = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        run_dir.mkdir()
        preload = [simgpu_env.get("LD_PRELOAD", ""), str(native_libs / "libtransit.so")]
        shimmed = dict(simgpu_env)
        shimmed["LD_PRELOAD"] = ":".join(filter(None, preload))
        shimmed["TRANSIT_RUN_DIR"] = str(run_dir)
        if plan is not None:
            (run_dir / "rank=0.flat").write_bytes(plan)
            shimmed["TRANSIT_PLAN_DIR"] = str(run_dir)
            shimmed["TRANSIT_BACKEND"] = backend
        result = subprocess.run(
            [sys.executable, *command],
            env=shimmed | dict(env or {}),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == exit_code, result.stderr
        return result, read_run(run_dir)

    return run


def script(body: str) -> tuple[str, str]:
    """The command of a job that runs `body` after the prelude."""
    return "-c", PRELUDE + body


def test_without_a_plan_everything_passes_and_is_counted(job: Job) -> None:
    _, [status] = job(
        *script("""
start()
a = call(cu.cuMemAlloc, 3 << 20)
b = call(cu.cuMemAlloc, 100)
roundtrip(a, 3 << 20)
call(cu.cuMemsetD8, b, 7, 100)
stream = call(cu.cuStreamCreate, 0)
call(cu.cuMemsetD32Async, a, 7, 100, stream)
call(cu.cuMemcpyDtoDAsync, b, a, 100, stream)
call(cu.cuStreamSynchronize, stream)
call(cu.cuMemFree, b)
""")
    )
    assert status.state is ShimState.OBSERVING
    assert status.backend is BackendKind.NONE
    assert (status.allocations_seen, status.frees_seen) == (2, 1)
    assert status.resident_bytes == 4 * MIB
    assert status.resident_peak_bytes == 6 * MIB
    assert (status.copies, status.sets) == (3, 2)
    assert status.allocations_matched == status.allocations_unmatched == 0
    assert status.message == ""


def test_a_process_without_cuda_leaves_nothing(job: Job) -> None:
    result, statuses = job("-c", "print('hello')", env={"TRANSIT_LOG": "1"})
    assert (result.stdout, result.stderr, statuses) == ("hello\n", "", [])


def layers_plan() -> tuple[bytes, int, int]:
    """Two layers of width 1024: moments on the host, one gradient half and half."""
    matrix, row = 4 * MIB, 4 * 1024 * 4
    sizes = ([matrix] * 4 + [row] * 4) * 2 + [row] * 3 + [4]
    planned = [whole(i, size, RESIDENT) for i, size in enumerate(sizes)]
    for ordinal in (2, 3, 10, 11):
        planned[ordinal] = whole(ordinal, matrix, ZERO_COPY)
    planned[1] = (1, matrix, [(0, PIECE, RESIDENT), (PIECE, PIECE, ZERO_COPY)])
    zero_copy = 4 * matrix + PIECE
    total = sum(-(-size // PIECE) * PIECE for size in sizes)
    return flat_plan(planned), total - zero_copy, zero_copy


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_job_computes_the_same_numbers(job: Job, backend: str) -> None:
    command = (str(LAYERS), "--layers=2", "--dim=1024", "--batch=4", "--steps=3")
    # OpenBLAS is not built for the thread sanitizer, which sees races in it.
    one_thread = {"OPENBLAS_NUM_THREADS": "1"}
    plain, [observed] = job(*command, env=one_thread)
    plan, resident, zero_copy = layers_plan()
    replayed, [status] = job(*command, plan=plan, backend=backend, env=one_thread)

    def last_line(output: str) -> object:
        return json.loads(output.splitlines()[-1])

    assert last_line(replayed.stdout) == last_line(plain.stdout)
    assert status.state is ShimState.REPLAYING
    assert status.backend is BackendKind[backend.upper()]
    assert status.message == ""
    assert status.placement_failures == 0
    assert status.allocations_matched == status.allocations_seen == 20
    assert status.allocations_unmatched == 0
    assert status.resident_peak_bytes == resident
    assert status.zero_copy_peak_bytes == zero_copy
    assert status.frees_seen == 20
    assert status.resident_bytes == status.zero_copy_bytes == 0
    assert status.kernel_launches == observed.kernel_launches > 0
    assert status.copies == observed.copies
    assert status.sets == observed.sets


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_plan_does_not_know_is_resident(job: Job, backend: str) -> None:
    plan = flat_plan([whole(0, 2 * MIB, ZERO_COPY), whole(2, 5 * MIB, ZERO_COPY)])
    _, [status] = job(
        *script("""
start()
for bytes_ in (2 << 20, 1 << 20, 3 << 20, 2 << 20):
    roundtrip(call(cu.cuMemAlloc, bytes_), bytes_)
"""),
        plan=plan,
        backend=backend,
    )
    assert (status.allocations_matched, status.allocations_unmatched) == (1, 3)
    assert status.zero_copy_bytes == 2 * MIB
    assert status.resident_bytes == (2 + 4 + 2) * MIB
    assert status.placement_failures == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_allocation_in_pieces_looks_like_one(job: Job, backend: str) -> None:
    size = 5 * MIB
    plan = flat_plan(
        [(0, size, [(0, PIECE, ZERO_COPY), (PIECE, PIECE, RESIDENT),
                    (2 * PIECE, PIECE, ZERO_COPY)])]
    )  # fmt: skip
    result, [status] = job(
        *script("""
start()
a = call(cu.cuMemAlloc, 5 << 20)
assert int(a) % (2 << 20) == 0
for offset in (0, 1, (2 << 20) + 5, (5 << 20) - 1):
    base, size = call(cu.cuMemGetAddressRange, int(a) + offset)
    assert (int(base), size) == (int(a), 5 << 20), (int(base), size, offset)
Attribute = cu.CUpointer_attribute
start_attribute = Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
size_attribute = Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE
inside = int(a) + (3 << 20)
assert int(call(cu.cuPointerGetAttribute, start_attribute, inside)) == int(a)
assert call(cu.cuPointerGetAttribute, size_attribute, inside) == 5 << 20
both = call(cu.cuPointerGetAttributes, 2, [start_attribute, size_attribute], inside)
assert [int(value) for value in both] == [int(a), 5 << 20], both
roundtrip(a, 5 << 20)
roundtrip(inside - 100, 1 << 20, seed=3)
error, _ = cu.cuIpcGetMemHandle(a)
assert error == cu.CUresult.CUDA_ERROR_INVALID_VALUE, error
"""),
        plan=plan,
        backend=backend,
    )
    assert (status.resident_bytes, status.zero_copy_bytes) == (PIECE, 2 * PIECE)
    assert "cuIpcGetMemHandle" in status.message
    assert result.stderr.count("transit: cuIpcGetMemHandle") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_of_alloc_and_free_are_the_drivers(job: Job, backend: str) -> None:
    _, [status] = job(
        *script("""
start()
INVALID = cu.CUresult.CUDA_ERROR_INVALID_VALUE
a = call(cu.cuMemAlloc, 2 << 20)
assert cu.cuMemAlloc(0)[0] == INVALID
assert cu.cuMemFree(int(a) + 512)[0] == INVALID
assert cu.cuMemFree(0x1234)[0] == INVALID
call(cu.cuMemFree, a)
assert cu.cuMemFree(a)[0] == INVALID
call(cu.cuMemFree, 0)
"""),
        plan=flat_plan([whole(0, 2 * MIB, ZERO_COPY)]),
        backend=backend,
    )
    assert (status.allocations_seen, status.frees_seen) == (1, 1)
    assert status.zero_copy_peak_bytes == 2 * MIB
    assert status.zero_copy_bytes == 0


GOOD_PLAN = flat_plan([whole(0, 2 * MIB, ZERO_COPY), whole(1, 2 * MIB, ZERO_COPY)])
BAD_PLANS = {
    "empty": (b"", "too short"),
    "truncated header": (GOOD_PLAN[:40], "too short"),
    "truncated": (GOOD_PLAN[:-1], "truncated"),
    "trailing": (GOOD_PLAN + b"x", "contradict"),
    "foreign": (b"PAR1" + GOOD_PLAN[4:], "not a flat plan"),
    "newer": (flat_plan([], version=2), "version 2"),
    "other rank": (flat_plan([], rank=3), "rank 3"),
    "unsorted": (
        flat_plan([whole(1, MIB, RESIDENT), whole(0, MIB, RESIDENT)]),
        "not in order",
    ),
    "twice": (
        flat_plan([whole(1, MIB, RESIDENT), whole(1, MIB, RESIDENT)]),
        "not in order",
    ),
    "overlapping": (
        flat_plan([(0, 3 * MIB, [(0, 2 * PIECE, 0), (PIECE, PIECE, 1)])]),
        "overlap",
    ),
    "gap": (
        flat_plan([(0, 5 * MIB, [(0, PIECE, 0), (2 * PIECE, PIECE, 1)])]),
        "gaps",
    ),
    "not covering": (flat_plan([(0, 5 * MIB, [(0, PIECE, 0)])]), "do not cover"),
    "no ranges": (flat_plan([(0, 5 * MIB, [])]), "do not cover"),
    "odd range": (flat_plan([(0, 2 * MIB, [(0, MIB, 0)])]), "impossible size"),
    "beyond": (flat_plan([(0, 2 * MIB, [(0, 2 * PIECE, 0)])]), "impossible size"),
    "placement": (flat_plan([whole(0, MIB, 7)]), "unknown placement"),
    "zero bytes": (flat_plan([(0, 0, [])]), "impossible size"),
    "hostile bytes": (
        flat_plan([(0, 2**64 - 1, [(0, 2**64 - PIECE, 0)])]),
        "impossible size",
    ),
    "hostile counts": (
        GOOD_PLAN[:20] + b"\xff" * 8 + GOOD_PLAN[28:],
        "contradict",
    ),
    "hostile ranges": (
        GOOD_PLAN[:72] + b"\xff" * 8 + GOOD_PLAN[80:],
        "not there",
    ),
    "hostile address": (
        GOOD_PLAN[:64] + b"\xfe" * 8 + GOOD_PLAN[72:],
        "impossible address",
    ),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_leaves_the_job_running(job: Job, name: str) -> None:
    plan, problem = BAD_PLANS[name]
    body = "start(); roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20); print('done')"
    result, [status] = job(*script(body), plan=plan)
    assert result.stdout == "done\n"
    assert status.state is ShimState.PASS_THROUGH
    assert problem in status.message
    assert f"transit: {status.message}" in result.stderr
    assert status.zero_copy_bytes == 0
    assert status.allocations_seen == 1


def test_a_missing_plan_or_backend_leaves_the_job_running(
    job: Job, tmp_path: Path
) -> None:
    body = script("start(); call(cu.cuMemAlloc, 2 << 20)")
    _, [status] = job(*body, plan=GOOD_PLAN, backend="zswap")
    assert status.state is ShimState.PASS_THROUGH
    assert "TRANSIT_BACKEND" in status.message
    _, [status] = job(*body, plan=GOOD_PLAN, env={"RANK": "5"})
    assert status.rank == 5
    assert "rank=5.flat: No such file" in status.message


def test_strict_ends_a_job_whose_plan_is_bad(job: Job) -> None:
    result, _ = job(
        *script("start(); print('never')"),
        plan=GOOD_PLAN[:-1],
        env={"TRANSIT_STRICT": "1"},
        exit_code=1,
    )
    assert result.stdout == ""
    assert "truncated" in result.stderr


@pytest.mark.parametrize(
    ("backend", "failing"),
    [
        ("vmm", "cuMemCreate"),
        ("vmm", "cuMemMap"),
        ("vmm", "cuMemSetAccess"),
        ("vmm", "cuMemAddressReserve"),
        ("uvm", "cuMemAllocManaged"),
        ("uvm", "cuMemAdvise_v2"),
        ("uvm", "cuMemPrefetchAsync_v2"),
    ],
)
def test_a_placement_that_fails_is_left_to_the_driver(
    job: Job, backend: str, failing: str
) -> None:
    result, [status] = job(
        *script("""
start()
for _ in range(2):
    roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)
"""),
        plan=GOOD_PLAN,
        backend=backend,
        env={"TRANSIT_SIM_FAIL": f"{failing}:1=2"},
    )
    assert status.state is ShimState.REPLAYING
    assert status.placement_failures == 1
    assert status.allocations_matched == 2
    assert status.resident_bytes == status.zero_copy_bytes == 2 * MIB
    assert failing.removesuffix("_v2") in status.message
    assert "CUDA_ERROR_OUT_OF_MEMORY" in status.message
    assert result.stderr.count("transit:") == 1


def test_no_host_memory_is_said_in_words(job: Job) -> None:
    result, [status] = job(
        *script("start(); call(cu.cuMemAlloc, 2 << 20)"),
        plan=GOOD_PLAN,
        env={"TRANSIT_SIM_FAIL": "cuMemCreate:*=2", "TRANSIT_STRICT": "1"},
        exit_code=1,
    )
    assert "no pinned host memory" in status.message
    assert status.message in result.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_addresses_lie_as_recorded(job: Job, backend: str) -> None:
    sizes = [4 * MIB, 3 * MIB, 2 * MIB, 4 * MIB, 2 * MIB]
    # In falling order, as CUDA gives them; 3 comes back to where 0 was; 4 wants 1's.
    addresses = {0: 40 * MIB, 1: 20 * MIB, 2: 0, 3: 40 * MIB, 4: 22 * MIB}
    _, [status] = job(
        *script("""
start()
a = call(cu.cuMemAlloc, 4 << 20)
b = call(cu.cuMemAlloc, 3 << 20)
c = call(cu.cuMemAlloc, 2 << 20)
assert (int(a) - int(c), int(b) - int(c)) == (40 << 20, 20 << 20)
roundtrip(a, 4 << 20)
call(cu.cuMemFree, a)
again = call(cu.cuMemAlloc, 4 << 20)
assert int(again) == int(a)
roundtrip(again, 4 << 20, seed=3)
elsewhere = call(cu.cuMemAlloc, 2 << 20)
taken = range(int(b) - (2 << 20) + 1, int(b) + (4 << 20))
assert int(elsewhere) not in taken
roundtrip(b, 3 << 20, seed=5)
roundtrip(elsewhere, 2 << 20, seed=7)
for address in (b, c, again, elsewhere):
    call(cu.cuMemFree, address)
"""),
        plan=flat_plan(
            [whole(i, size, ZERO_COPY) for i, size in enumerate(sizes)],
            addresses=addresses,
        ),
        backend=backend,
    )
    assert (status.allocations_matched, status.placement_failures) == (5, 0)
    assert (status.zero_copy_bytes, status.resident_bytes) == (0, 0)
    assert status.zero_copy_peak_bytes == 12 * MIB


def test_addresses_that_cannot_be_had_are_not_needed(job: Job) -> None:
    _, [status] = job(
        *script("""
start()
a = call(cu.cuMemAlloc, 4 << 20)
b = call(cu.cuMemAlloc, 4 << 20)
roundtrip(a, 4 << 20)
roundtrip(b, 4 << 20, seed=3)
"""),
        plan=flat_plan(
            [whole(0, 4 * MIB, ZERO_COPY), whole(1, 4 * MIB, RESIDENT)],
            addresses={0: 0, 1: 1 << 48},
        ),
    )
    assert (status.allocations_matched, status.placement_failures) == (2, 0)


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
    assert status.passed_bytes == 2 * MIB  # the pitched one
    assert status.passed_peak_bytes == 8 * MIB
    assert status.allocations_matched == 1
    assert status.zero_copy_bytes == 2 * MIB


def test_a_fork_child_is_inert(job: Job) -> None:
    _, statuses = job(
        *script("""
start()
a = call(cu.cuMemAlloc, 2 << 20)
child = os.fork()
if child == 0:
    errors = [cu.cuMemAlloc(2 << 20)[0], cu.cuMemFree(a)[0]]
    os._exit(0 if cu.CUresult.CUDA_SUCCESS not in errors else 1)
assert os.waitpid(child, 0)[1] == 0
roundtrip(a, 2 << 20)
"""),
        plan=GOOD_PLAN,
    )
    [status] = statuses
    assert (status.allocations_seen, status.frees_seen) == (1, 0)
    assert status.zero_copy_bytes == 2 * MIB


def test_a_child_forked_before_cuda_is_shimmed(job: Job) -> None:
    _, [status] = job(
        *script("""
child = os.fork()
if child == 0:
    start()
    roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""),
        plan=GOOD_PLAN,
    )
    assert status.zero_copy_bytes == 2 * MIB


def test_executed_children_are_shimmed(job: Job) -> None:
    body = PRELUDE + "start(); roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)"
    _, statuses = job(
        *script(f"""
import subprocess
start()
call(cu.cuMemAlloc, 2 << 20)
subprocess.run([sys.executable, "-c", {body!r}], check=True)
"""),
        plan=GOOD_PLAN,
    )
    assert [status.zero_copy_bytes for status in statuses] == [2 * MIB] * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL", "RELAXED"])
def test_placing_and_freeing_leave_a_capture_alone(
    job: Job, backend: str, mode: str
) -> None:
    _, [status] = job(
        *script(f"""
start()
MODE = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_{mode}
first = call(cu.cuMemAlloc, 2 << 20)
target = call(cu.cuMemAlloc, 4 << 20)
stream = call(cu.cuStreamCreate,
              cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
call(cu.cuStreamBeginCapture, stream, MODE)
call(cu.cuMemsetD8Async, target, 9, 100, stream)
second = call(cu.cuMemAlloc, 2 << 20)
call(cu.cuMemFree, first)
call(cu.cuMemsetD8Async, second, 5, 100, stream)
graph = call(cu.cuStreamEndCapture, stream)
executable = call(cu.cuGraphInstantiate, graph, 0)
call(cu.cuGraphLaunch, executable, stream)
call(cu.cuStreamSynchronize, stream)
for address, value in ((target, 9), (second, 5)):
    back = ctypes.create_string_buffer(100)
    call(cu.cuMemcpyDtoH, ctypes.addressof(back), address, 100)
    assert back.raw == bytes([value]) * 100, back.raw
call(cu.cuMemFree, second)
"""),
        plan=flat_plan([whole(0, 2 * MIB, ZERO_COPY), whole(2, 2 * MIB, ZERO_COPY)]),
        backend=backend,
    )
    assert status.graph_launches == 1
    assert status.frees_seen == 2
    assert status.zero_copy_bytes == 0
    assert status.zero_copy_peak_bytes == 4 * MIB
    assert status.placement_failures == 0


def test_resolvers_return_the_hooks_of_the_version_asked_for(job: Job) -> None:
    _, [status] = job(
        *script("""
driver = ctypes.CDLL("libcuda.so.1")
shim = ctypes.CDLL(None)

def address_of(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value

def resolve(name, version, flags=0, resolver=driver.cuGetProcAddress_v2):
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    arguments = [name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags)]
    if resolver is not driver.cuGetProcAddress:
        arguments.append(ctypes.byref(status))
    return resolver(*arguments), found.value, status.value

LEGACY, PER_THREAD = 1, 2
hooks = {}
for name, version, flags, symbol in [
    ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 13000, PER_THREAD, "cuMemAlloc_v2"),
    ("cuLaunchKernel", 13000, 0, "cuLaunchKernel"),
    ("cuLaunchKernel", 13000, LEGACY, "cuLaunchKernel"),
    ("cuLaunchKernel", 13000, PER_THREAD, "cuLaunchKernel_ptsz"),
    ("cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 13000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 11080, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ("cuGetProcAddress", 13000, 0, "cuGetProcAddress_v2"),
]:
    result, found, status = resolve(name, version, flags)
    assert (result, status) == (0, 0), (name, version, result, status)
    assert found == address_of(driver, symbol), (name, version, flags)
    # The hook is the shim's: the same as the process-wide symbol.
    assert found == address_of(shim, symbol), (name, version, flags)
    v1 = resolve(name, version, flags, driver.cuGetProcAddress)
    assert v1[:2] == (0, found), (name, version, flags)

# Not hooked, unknown, or before its time: the driver's own answer.
assert resolve("cuDeviceGet", 13000)[0] == 0
result, found, status = resolve("cuNoSuchThing", 13000)
assert not found
assert address_of(driver, "cuDeviceGet") == resolve("cuDeviceGet", 13000)[1]
start()
""")
    )
    assert status.state is ShimState.OBSERVING


def test_a_driver_opened_twice_or_locally_is_still_hooked(job: Job) -> None:
    _, [status] = job(
        *script("""
path = os.path.join(os.environ["LD_LIBRARY_PATH"].split(":")[0], "libcuda.so.1")
local = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
again = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LOCAL | os.RTLD_LAZY)
start()
for library in (local, again):
    address = ctypes.c_uint64()
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
    assert library.cuMemsetD8_v2(address, 1, ctypes.c_size_t(4096)) == 0
""")
    )
    assert (status.allocations_seen, status.sets) == (2, 2)


def test_the_shim_does_not_pretend_there_is_a_driver(job: Job) -> None:
    job(
        "-c",
        "import ctypes\n"
        "for name in ('cuInit', 'cuMemAlloc_v2', 'cuLaunchKernel'):\n"
        "    assert not hasattr(ctypes.CDLL(None), name), name",
    )


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
observer = Observer(1, OnAlloc(on_alloc), OnFree(on_free))
wrong = Observer(2, OnAlloc(on_alloc), OnFree(on_free))
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_allocate_and_free_at_once(job: Job, backend: str) -> None:
    rounds, num_threads = 20, 4
    plan = flat_plan(
        [whole(i, 4096, i % 2) for i in range(0, rounds * num_threads, 2)]
        + [whole(10_000, 4096, RESIDENT)]
    )
    _, [status] = job(
        *script(f"""
start()
context = call(cu.cuCtxGetCurrent)
failures = []
def work(seed):
    try:
        call(cu.cuCtxSetCurrent, context)
        for _ in range({rounds}):
            address = call(cu.cuMemAlloc, 4096)
            roundtrip(address, 4096, seed)
            call(cu.cuMemFree, address)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(i + 1,)) for i in range({num_threads})]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
"""),
        plan=plan,
        backend=backend,
    )
    total = rounds * num_threads
    assert status.allocations_seen == status.frees_seen == total
    assert status.allocations_matched == status.allocations_unmatched == total // 2
    assert status.resident_bytes == status.zero_copy_bytes == 0
    assert status.copies == 2 * total


def test_an_unwritable_run_folder_is_said_and_survived(job: Job) -> None:
    result, statuses = job(
        *script("start(); roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)"),
        env={"TRANSIT_RUN_DIR": "/nonexistent"},
    )
    assert statuses == []
    assert "cannot write /nonexistent/status-" in result.stderr


def test_the_log_names_every_placement(job: Job) -> None:
    result, _ = job(
        *script("start(); call(cu.cuMemAlloc, 2 << 20); call(cu.cuMemAlloc, 100)"),
        plan=GOOD_PLAN,
        env={"TRANSIT_LOG": "1"},
    )
    lines = [line for line in result.stderr.splitlines() if "transit: " in line]
    assert "replaying" in lines[0]
    assert lines[1].endswith("2097152 bytes, placed")
    assert lines[2].endswith("100 bytes, left to the driver")


@pytest.fixture
def compile_c(tmp_path: Path) -> Callable[..., Path]:
    """Compile C source; the further arguments go to the compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def compile_(source: str, *arguments: str | Path) -> Path:
        output = tmp_path / "compiled"
        command = [compiler, "-x", "c", "-", "-o", output, "-x", "none", *arguments]
        subprocess.run(command, input=source, text=True, check=True)
        return output

    return compile_


def test_a_program_linked_against_the_driver_is_seen(
    job: Job, compile_c: Callable[..., Path], native_libs: Path
) -> None:
    program = compile_c(
        """
        #include <stddef.h>
        int cuInit(unsigned), cuDeviceGet(int*, int), cuCtxSetCurrent(void*);
        int cuDevicePrimaryCtxRetain(void**, int);
        int cuMemAlloc_v2(unsigned long long*, size_t);
        int cuMemsetD8_v2(unsigned long long, unsigned char, size_t);
        int main(void) {
          int device;
          void* context;
          unsigned long long address;
          return cuInit(0) || cuDeviceGet(&device, 0) ||
                 cuDevicePrimaryCtxRetain(&context, device) ||
                 cuCtxSetCurrent(context) || cuMemAlloc_v2(&address, 2 << 20) ||
                 cuMemsetD8_v2(address, 1, 2 << 20);
        }
        """,
        native_libs / "simgpu" / "lib" / "libcuda.so.1",
    )
    run = f"import os; os.execv({str(program)!r}, [{str(program)!r}])"
    _, [status] = job("-c", run, plan=GOOD_PLAN)
    assert (status.allocations_matched, status.sets) == (1, 1)
    assert status.zero_copy_bytes == 2 * MIB


@pytest.mark.parametrize("first", ["shim", "other"])
def test_another_preloaded_library_finds_the_next_function(
    job: Job,
    compile_c: Callable[..., Path],
    native_libs: Path,
    simgpu_env: Mapping[str, str],
    first: str,
) -> None:
    other = compile_c(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        pid_t getppid(void) {
          pid_t (*next)(void) = dlsym(RTLD_NEXT, "getppid");
          return -next();
        }
        """,
        "-shared",
        "-fPIC",
    )
    both = [native_libs / "libtransit.so", other]
    order = both if first == "shim" else both[::-1]
    preload = [simgpu_env.get("LD_PRELOAD", ""), *map(str, order)]
    result, _ = job(
        "-c",
        "import os; print(os.getppid())",
        env={"LD_PRELOAD": ":".join(filter(None, preload))},
    )
    assert int(result.stdout) == -os.getpid()
