"""Checks of the machine: what transit needs, and what would get in its way."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from transit.errors import TransitError
from transit.runtime import job
from transit.runtime.devices import PROBE_TIMEOUT_S, visible_devices
from transit.runtime.preload import (
    preloadable,
    recorder_library,
    refuse_expandable_segments,
    shim_library,
)
from transit.runtime.simulated import simulated_variables
from transit.units import format_bytes

SHIM_PROBE = """
import ctypes
ctypes.CDLL(None).transit_launches_seen
"""
CUPTI_PROBE = """
import ctypes, os, sys
path = os.environ.get("TRANSIT_LIBCUPTI")
if path is None:
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    try:
        path = load_nvidia_dynamic_lib("cupti").abs_path
    except DynamicLibNotFoundError:
        sys.exit("not found")
try:
    cupti = ctypes.CDLL(path)
except OSError as error:
    sys.exit(str(error))
version, subscriber = ctypes.c_uint32(), ctypes.c_void_p()
cupti.cuptiGetVersion(ctypes.byref(version))
callback = ctypes.CFUNCTYPE(None)(lambda: None)
code = cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None)
if code:
    text = ctypes.c_char_p()
    cupti.cuptiGetResultString(code, ctypes.byref(text))
    sys.exit(f"{path}: cannot subscribe: {(text.value or b'?').decode()}")
cupti.cuptiUnsubscribe(subscriber)
print(f"{path}, version {version.value}, no other subscriber")
"""


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"  # some commands cannot work
    BROKEN = "broken"  # transit cannot work


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: Verdict
    detail: str


def examine(*, simulated_gpu: bool = False) -> list[Finding]:
    """Run every check, each on its own."""
    checks: list[Callable[[Mapping[str, str]], Finding]] = [
        _python,
        _libraries,
        _shim_loads,
        _gpus,
        _cupti,
        _injection,
        _allocator,
        _locked_memory,
    ]
    variables = simulated_variables() if simulated_gpu else {}
    environment = job.full_environment(variables)
    return [check(environment) for check in checks]


def _python(_: Mapping[str, str]) -> Finding:
    return Finding(
        "python", Verdict.OK, f"{platform.python_version()} ({sys.executable})"
    )


def _libraries(_: Mapping[str, str]) -> Finding:
    try:
        recorder_library()
        return Finding("libraries", Verdict.OK, preloadable(shim_library()))
    except TransitError as error:
        return Finding("libraries", Verdict.BROKEN, str(error))


def _shim_loads(environment: Mapping[str, str]) -> Finding:
    try:
        preload = {"LD_PRELOAD": preloadable(shim_library())}
    except TransitError:
        return Finding("shim loads", Verdict.BROKEN, "there is none to load")
    error = _probe(SHIM_PROBE, {**environment, **preload})[1]
    if error:
        return Finding("shim loads", Verdict.BROKEN, error)
    return Finding("shim loads", Verdict.OK, "preloaded into a new process")


def _gpus(environment: Mapping[str, str]) -> Finding:
    devices = visible_devices(environment)
    if not devices:
        detail = "no GPU or no driver: only compile, show and demo work here"
        return Finding("gpu", Verdict.WARNING, detail)
    version = devices[0].driver_version
    names = ", ".join(f"{d.name} {format_bytes(d.memory_bytes)}" for d in devices)
    detail = f"{names}; driver for CUDA {version // 1000}.{version % 1000 // 10}"
    return Finding("gpu", Verdict.OK, detail)


def _cupti(environment: Mapping[str, str]) -> Finding:
    output, error = _probe(CUPTI_PROBE, environment)
    if error:
        return Finding("cupti", Verdict.WARNING, f"record will not work: {error}")
    return Finding("cupti", Verdict.OK, output)


def _injection(environment: Mapping[str, str]) -> Finding:
    if tool := environment.get("CUDA_INJECTION64_PATH"):
        detail = f"CUDA_INJECTION64_PATH is {tool}: record will refuse to start"
        return Finding("injection", Verdict.WARNING, detail)
    return Finding("injection", Verdict.OK, "no other tool is injected")


def _allocator(environment: Mapping[str, str]) -> Finding:
    try:
        refuse_expandable_segments(environment)
    except TransitError as error:
        return Finding("allocator", Verdict.BROKEN, str(error))
    return Finding("allocator", Verdict.OK, "expandable_segments is off")


def _locked_memory(_: Mapping[str, str]) -> Finding:
    limit, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return Finding("locked memory", Verdict.OK, "unlimited")
    detail = (
        f"limited to {format_bytes(limit)}; if pinned host memory is refused, "
        "raise it: ulimit -l unlimited"
    )
    return Finding("locked memory", Verdict.WARNING, detail)


def _probe(script: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Run Python code in a process of its own; return its output and its error."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {PROBE_TIMEOUT_S} s"
    last_line = done.stderr.strip().splitlines()[-1:]
    if done.returncode == 0:
        return done.stdout.strip(), ""
    return "", last_line[0] if last_line else job.describe_exit(done.returncode)
