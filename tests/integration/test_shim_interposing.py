"""How calls and processes come to libtransit.so, and which do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from shim_job import GOOD_PLAN, MIB, PRELUDE, Job, script

from transit.runtime.status import ShimState


def test_a_process_without_cuda_leaves_nothing(job: Job) -> None:
    result, statuses = job("-c", "print('hello')", env={"TRANSIT_LOG": "1"})
    assert (result.stdout, result.stderr, statuses) == ("hello\n", "", [])


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
