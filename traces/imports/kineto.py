"""Reads Kineto traces: the JSON that PyTorch's profiler exports."""

from __future__ import annotations

import gzip
import io
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, TypeAdapter, ValidationError

from transit.errors import TraceError
from transit.traces.imports.json_stream import JsonStream
from transit.traces.imports.profile import (
    ACTIVITIES,
    CALLS,
    MAX_NS,
    STEPS,
    Process,
    Profile,
    describe_missing_devices,
    is_step,
    shifted,
    used_devices,
)
from transit.traces.imports.rows import Rows
from transit.traces.manifest import Count, DeviceInfo

_ACTIVITY_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
_CALL_CATEGORIES = ("cuda_runtime", "cuda_driver")
_NO_SHAPE = (0, 0, 0)
_GZIP_MAGIC = b"\x1f\x8b"


class _Distributed(BaseModel):
    rank: Count = 0
    world_size: Count = 1


class _Device(BaseModel):
    id: Count
    name: str
    totalGlobalMem: Count
    computeMajor: Count
    computeMinor: Count
    numSms: Count


def read(path: Path) -> Profile:
    """Read a Kineto trace, plain or gzipped.

    Raises
    ------
    TraceError
        The file cannot be read, is no Kineto trace, is damaged, or has no GPU work.
    """
    reader = _Reader(str(path))
    try:
        with path.open("rb") as file:
            text = io.TextIOWrapper(_unpacked(file), encoding="utf-8")
            for key, value in JsonStream(text, str(path)).members("traceEvents"):
                reader.take(key, value)
    except EOFError as error:
        raise TraceError(f"{path} is truncated: its gzip data ends early.") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: damaged gzip data: {error}.") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not JSON: it is not UTF-8 text.") from error
    except OSError as error:
        raise TraceError(f"Cannot read {path}: {error.strerror}.") from error
    return reader.profile()


def _unpacked(file: BinaryIO) -> Any:
    is_gzip = file.read(2) == _GZIP_MAGIC
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if is_gzip else file


class _Reader:
    """Keeps what is of use of each event."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._about: dict[str, Any] = {}
        self._num_events = 0
        self._pid = 0
        self._activities = Rows(ACTIVITIES, where)
        self._calls = Rows(CALLS, where)
        self._steps = Rows(STEPS, where)

    def take(self, key: str, value: Any) -> None:
        """Take one event, or one of the facts beside the events."""
        if key != "traceEvents":
            self._about[key] = value
            return
        self._num_events += 1
        try:
            self._take_event(value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceError(
                f"{self._where}: event {self._num_events:,} is not as Kineto writes"
                f" it: {error!r}."
            ) from error

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["ph"] != "X":
            return
        category, name = event.get("cat"), event["name"]
        if category in _ACTIVITY_KINDS:
            self._activities.add(_activity(event, _ACTIVITY_KINDS[category]))
        elif category in _CALL_CATEGORIES:
            pid = event.get("pid")
            self._pid = pid if isinstance(pid, int) and 0 <= pid < 1 << 32 else 0
            correlation = event["args"].get("correlation", 0)
            self._calls.add((correlation, _ns(event["ts"]), name, None))
        elif category == "user_annotation" and is_step(name):
            start_ns = _ns(event["ts"])
            self._steps.add((start_ns, start_ns + _ns(event["dur"]), name, None))

    def profile(self) -> Profile:
        """Return everything that was taken."""
        activities = self._activities.table()
        if not self._num_events:
            raise TraceError(f"{self._where} is no Kineto trace: it has no events.")
        if not activities.num_rows:
            raise TraceError(
                f"{self._where} has no GPU work among {self._num_events:,} events:"
                " profile with ProfilerActivity.CUDA."
            )
        base_ns = self._fact("baseTimeNanoseconds", Count, 0)
        calls, steps = self._calls.table(), self._steps.table()
        job = self._fact(
            "distributedInfo", _Distributed, _Distributed.model_validate({})
        )
        devices = self._devices(used_devices(activities))
        process = Process(
            rank=job.rank,
            world_size=job.world_size,
            pid=self._pid,
            devices=devices,
            activities=shifted(activities, base_ns, self._where),
            calls=shifted(calls, base_ns, self._where),
            steps=shifted(steps, base_ns, self._where),
        )
        return Profile(
            source="Kineto",
            processes=[process],
            missing="accesses, allocations and unified-memory events",
            notes=describe_missing_devices([process]),
        )

    def _devices(self, used: set[int]) -> list[DeviceInfo]:
        found: list[_Device] = self._fact("deviceProperties", list[_Device], [])
        return [
            DeviceInfo(
                device=device.id,
                name=device.name,
                memory_bytes=device.totalGlobalMem,
                compute_capability=f"{device.computeMajor}.{device.computeMinor}",
                num_multiprocessors=device.numSms,
            )
            for device in found
            if device.id in used
        ]

    def _fact(self, key: str, kind: Any, default: Any) -> Any:
        if key not in self._about:
            return default
        try:
            return TypeAdapter(kind).validate_python(self._about[key], strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise TraceError(f"{self._where}, {key}: {problem}.") from error


def _activity(event: dict[str, Any], kind: str) -> tuple[Any, ...]:
    args = event["args"]
    start_ns = _ns(event["ts"])
    return (
        kind,
        event["name"],
        # A copy between two GPUs says where it ran in another way.
        args["device"] if "device" in args else args["inDevice"],
        args["stream"],
        args["correlation"],
        start_ns,
        start_ns + _ns(event["dur"]),
        *_shape(args.get("grid", _NO_SHAPE)),
        *_shape(args.get("block", _NO_SHAPE)),
        None,
        None,
        None,
    )


def _shape(extents: Any) -> tuple[int, int, int]:
    x, y, z = extents
    return x, y, z


def _ns(microseconds: Any) -> int:
    if not isinstance(microseconds, int | Decimal):
        raise TypeError(f"{microseconds!r} is no time")
    if not -MAX_NS < microseconds * 1000 < MAX_NS:
        raise ValueError(f"{microseconds} us is an impossible time")
    return int(microseconds * 1000)
