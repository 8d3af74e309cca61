"""A CUPTI client in ctypes: what test_simcupti.py runs in jobs of their own."""

from __future__ import annotations

import ctypes
import struct
import threading
from ctypes import CFUNCTYPE, POINTER, byref, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

SUCCESS, INVALID_PARAMETER, MAX_LIMIT_REACHED = 0, 1, 12
NOT_READY, NOT_COMPATIBLE, NOT_INITIALIZED, MULTIPLE_SUBSCRIBERS = 13, 14, 15, 39
MEMCPY, MEMSET, KERNEL, UNIFIED_MEMORY_COUNTER, MEMORY2 = 1, 2, 10, 25, 49
DRIVER_API, RESOURCE = 1, 3
CBID_LAUNCH_KERNEL, CBID_MEM_GET_INFO, CBID_CONTEXT_CREATED = 307, 242, 1
CBID_GRAPH_NODE_CLONED = 20

RequestFunc = CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
CompleteFunc = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)
CallbackFunc = CFUNCTYPE(None, c_void_p, ctypes.c_int, c_uint32, c_void_p)

_STREAM_WORK = {"start": (16, "Q"), "end": (24, "Q")}
# Members of CUDA 13.0's records, where cupti_activity.h puts them.
LAYOUTS: dict[int, dict[str, tuple[int, str]]] = {
    KERNEL: _STREAM_WORK
    | {
        "device": (40, "I"),
        "stream": (48, "I"),
        "grid_x": (52, "i"),
        "block_x": (64, "i"),
        "correlation_id": (92, "I"),
        "name": (104, "Q"),
        "graph_node": (144, "Q"),
        "graph": (156, "I"),
    },
    MEMCPY: _STREAM_WORK
    | {"copy_kind": (4, "B"), "bytes": (8, "Q"), "correlation_id": (44, "I")}
    | {"graph_node": (64, "Q"), "graph": (72, "I")},
    MEMSET: _STREAM_WORK
    | {"value": (4, "I"), "bytes": (8, "Q"), "correlation_id": (44, "I")}
    | {"graph_node": (64, "Q"), "graph": (72, "I")},
    UNIFIED_MEMORY_COUNTER: _STREAM_WORK
    | {"counter": (4, "I"), "value": (8, "Q"), "address": (32, "Q")},
    MEMORY2: {
        "operation": (4, "I"),
        "memory_kind": (8, "I"),
        "address": (16, "Q"),
        "bytes": (24, "Q"),
    },
}


class SubscriberParams(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("name", ctypes.c_char_p),
        ("old_name", c_void_p),
        ("old_name_bytes", c_size_t),
    )


class CallbackData(ctypes.Structure):
    _fields_ = (
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("params", c_void_p),
        ("return_value", c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("context", c_void_p),
        ("context_uid", c_uint32),
        ("correlation_data", POINTER(ctypes.c_uint64)),
        ("correlation_id", c_uint32),
    )


class Client:
    """Lends buffers, keeps the records that come back in them and the callbacks."""

    def __init__(
        self, *, buffer_bytes: int = 1 << 16, max_records: int = 0, lend: bool = True
    ) -> None:
        self.lib = ctypes.CDLL("libcupti.so.13")
        self.records: list[dict[str, Any]] = []
        self.callbacks: list[dict[str, Any]] = []
        self.delivery_threads: set[int] = set()
        self.num_requested = self.num_completed = 0
        self.on_callback: Any = None
        self._buffer_bytes, self._max_records = buffer_bytes, max_records
        self._lend = lend
        self._buffers: dict[int, Any] = {}
        self._subscriber = c_void_p()
        self._functions = (
            RequestFunc(self._request),
            CompleteFunc(self._complete),
            CallbackFunc(self._callback),
        )

    def subscribe(self, name: bytes | None) -> tuple[int, str]:
        """Return the result, and who was there before."""
        old = ctypes.create_string_buffer(64)
        params = SubscriberParams(32, name, ctypes.addressof(old), len(old))
        handle = c_void_p()
        result = self.lib.cuptiSubscribe_v2(
            byref(handle), self._functions[2], None, byref(params)
        )
        if result == SUCCESS:
            self._subscriber = handle
        return result, old.value.decode()

    def unsubscribe(self) -> int:
        return int(self.lib.cuptiUnsubscribe(self._subscriber))

    def enable_callback(self, domain: int, cbid: int) -> int:
        return int(self.lib.cuptiEnableCallback(1, self._subscriber, domain, cbid))

    def register(self) -> int:
        request, complete, _ = self._functions
        return int(self.lib.cuptiActivityRegisterCallbacks(request, complete))

    def enable(self, *kinds: int) -> list[int]:
        return [self.lib.cuptiActivityEnable(kind) for kind in kinds]

    def configure_counters(self) -> int:
        configs = b"".join(struct.pack("=IIII", 1, kind, 0, 1) for kind in range(1, 9))
        return int(self.lib.cuptiActivityConfigureUnifiedMemoryCounter(configs, 8))

    def flush(self) -> int:
        return int(self.lib.cuptiActivityFlushAll(0))

    def num_dropped(self) -> int:
        dropped = c_size_t()
        assert not self.lib.cuptiActivityGetNumDroppedRecords(None, 0, byref(dropped))
        return dropped.value

    def of_kind(self, kind: int) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == kind]

    def _request(self, buffer: Any, size: Any, max_records: Any) -> None:
        self.num_requested += 1
        if not self._lend:
            buffer[0] = None
            return
        mine = ctypes.create_string_buffer(self._buffer_bytes)
        self._buffers[ctypes.addressof(mine)] = mine
        buffer[0], size[0] = ctypes.addressof(mine), self._buffer_bytes
        max_records[0] = self._max_records

    def _complete(
        self, context: Any, stream: int, buffer: int, size: int, valid: int
    ) -> None:
        self.num_completed += 1
        self.delivery_threads.add(threading.get_ident())
        record = c_void_p()
        next_record = self.lib.cuptiActivityGetNextRecord
        address, length = c_void_p(buffer), c_size_t(valid)
        while (result := next_record(address, length, byref(record))) == SUCCESS:
            assert record.value is not None
            self.records.append(_decode(record.value))
        assert result == MAX_LIMIT_REACHED, result
        del self._buffers[buffer]

    def _callback(self, userdata: Any, domain: int, cbid: int, data: int) -> None:
        entry: dict[str, Any] = {
            "domain": domain,
            "cbid": cbid,
            "thread": threading.get_ident(),
        }
        if domain == DRIVER_API:
            call = CallbackData.from_address(data)
            entry |= {
                "site": call.site,
                "function": call.function_name.decode(),
                "symbol": call.symbol_name and call.symbol_name.decode(),
                "context_uid": call.context_uid,
                "correlation_id": call.correlation_id,
                "correlation_data": call.correlation_data[0],
                "first_param": c_void_p.from_address(call.params).value
                if call.params
                else None,
            }
            if call.site == 0:
                call.correlation_data[0] = call.correlation_id
        if (domain, cbid) == (RESOURCE, CBID_GRAPH_NODE_CLONED):
            graph_data = c_void_p.from_address(data + 16).value or 0
            for name, offset in ("node", 16), ("original", 24):
                entry[name] = c_void_p.from_address(graph_data + offset)
        self.callbacks.append(entry)
        if self.on_callback is not None:
            self.on_callback(entry)


def _decode(address: int) -> dict[str, Any]:
    kind = c_uint32.from_address(address).value
    record: dict[str, Any] = {"kind": kind}
    for name, (offset, code) in LAYOUTS.get(kind, {}).items():
        raw = ctypes.string_at(address + offset, struct.calcsize(code))
        (record[name],) = struct.unpack(code, raw)
    if "name" in record:
        record["name"] = ctypes.string_at(record["name"]).decode()
    return record


class Job:
    """A context, a stream, and the `fill` kernel of the examples."""

    def __init__(self) -> None:
        self.device = call(cu.cuDeviceGet, 0)
        self.context = call(cu.cuDevicePrimaryCtxRetain, self.device)
        call(cu.cuCtxSetCurrent, self.context)
        self.stream = call(cu.cuStreamCreate, 0)
        ptx = Path(__file__).parents[2] / "examples" / "kernels.ptx"
        self.module = call(cu.cuModuleLoadData, ptx.read_bytes() + b"\0")
        self.fill_function = call(cu.cuModuleGetFunction, self.module, b"fill")

    def fill(self, address: int, value: float, size: int) -> None:
        values = (address, value, size)
        types = (c_void_p, ctypes.c_float, c_size_t)
        grid, block = (-(-size // 64), 1, 1), (64, 1, 1)
        call(
            cu.cuLaunchKernel,
            self.fill_function,
            *grid,
            *block,
            0,
            self.stream,
            (values, types),
            0,
        )

    def synchronize(self) -> None:
        call(cu.cuStreamSynchronize, self.stream)


def call(function: Any, *arguments: Any) -> Any:
    error, *results = function(*arguments)
    assert error == cu.CUresult.CUDA_SUCCESS, (function.__name__, error)
    return results[0] if results else None
