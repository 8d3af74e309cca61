"""Tells the recorder when an iteration of a PyTorch job ends, and what blocks it had.

Lives in the job's process, whose Python may lack transit: the standard library only.
Nothing here may end the job; what fails is said once, and then left alone.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import importlib.abc
import importlib.util
import os
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LIBRARY_NAME = "libtransit_recorder.so"
RECORDING, STOPPED, INSPECTING = 1, 2, 3
ALLOC, FREE, ALIVE = 1, 2, 3
# "free_completed", not "free_requested": until then another stream may use the block.
TRACE_ACTIONS = {"alloc": ALLOC, "free_completed": FREE}
BLOCK = struct.Struct("<QQQIi")  # BlockRecord of native/spool_format.h
MAX_HISTORY_ENTRIES = 10_000_000  # some gigabytes: a recording is a few iterations


def install() -> None:
    """Watch for the import of torch, in a process that is being recorded."""
    library = os.environ.get("CUDA_INJECTION64_PATH", "")
    if os.path.basename(library) == LIBRARY_NAME:
        sys.meta_path.insert(0, TorchFinder(library))


class TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as the others do, and wraps its loader."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._is_searching = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return torch's own specification, with our loader around its loader."""
        if fullname != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = HookingLoader(spec.loader, self, self._library)
        return spec


class HookingLoader(importlib.abc.Loader):
    """Loads a module as its own loader does, then installs the hook into it."""

    def __init__(
        self, loader: importlib.abc.Loader, finder: TorchFinder, library: str
    ) -> None:
        self._loader = loader
        self._finder = finder
        self._library = library

    def __getattr__(self, name: str) -> Any:
        """Offer what else the module's own loader has, ``get_source`` for instance."""
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, leave no trace of this loader, and hook."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            TorchHook(module, load_recorder(self._library)).install()
        except Exception as error:
            complain(error)


def load_recorder(path: str) -> ctypes.CDLL:
    """Return the recorder: the copy that the driver also loads, now or later."""
    library = ctypes.CDLL(path)
    library.transit_recorder_expect_iterations.restype = None
    library.transit_recorder_iteration_end.argtypes = [ctypes.c_uint32]
    library.transit_recorder_iteration_end.restype = None
    library.transit_recorder_blocks.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    library.transit_recorder_blocks.restype = None
    library.transit_recorder_history.argtypes = [
        ctypes.c_int32,
        ctypes.c_uint64,
        ctypes.c_uint64,
    ]
    library.transit_recorder_history.restype = None
    library.transit_recorder_labels.argtypes = [
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
    ]
    library.transit_recorder_labels.restype = None
    library.transit_recorder_complete.argtypes = []
    library.transit_recorder_complete.restype = None
    library.transit_recorder_framework.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.transit_recorder_framework.restype = None
    library.transit_recorder_state.restype = ctypes.c_int
    library.transit_recorder_timestamp_ns.restype = ctypes.c_uint64
    return library


def complain(
    error: Exception, consequence: str = "iterations are no longer marked"
) -> None:
    """Say what failed; the job goes on."""
    print(
        f"transit: {consequence}: {type(error).__name__}: {error}",
        file=sys.stderr,
    )


class TorchHook:
    """Marks the ends of iterations, and passes on the allocator's history.

    An iteration ends when the optimizer that stepped first steps again: a job with
    several has one iteration per round, not per optimizer.
    """

    def __init__(self, torch: Any, library: Any) -> None:
        self._torch = torch
        self._library = library
        self._optimizer: weakref.ref[Any] | None = None
        self._num_steps = 0
        self._is_over = False
        self._history_begin_ns = 0  # 0: not begun
        self._owns_history = False
        self._labels: Any = None

    def install(self) -> None:
        """Register with torch and announce iterations to the recorder."""
        self._library.transit_recorder_expect_iterations()
        version = str(self._torch.__version__).encode()
        self._library.transit_recorder_framework(b"torch", version)
        labels = importlib.import_module("transit_torch_labels")
        self._labels = labels.Labels(self._torch, self._library)
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(self.on_step)
        # The history stays the parent's: at its exit a child would ask CUDA for it.
        os.register_at_fork(after_in_child=self._forget_history)
        # A recording that skips nothing begins with the first context, and so must the
        # history.
        if os.environ.get("TRANSIT_SKIP", "0") in ("", "0"):
            self._torch.cuda._lazy_call(lambda: self._never_fail(self._begin_history))

    def on_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Mark the end of an iteration; torch calls this after each step."""
        # Not unregistered when over: torch is iterating over its hooks.
        if not self._is_over:
            self._label(lambda labels: self._note_gradients(labels, optimizer))
            self._never_fail(lambda: self._end_iteration(optimizer))

    def _never_fail(self, action: Any) -> None:
        try:
            action()
        except Exception as error:
            self._is_over = True
            complain(error)

    def _label(self, action: Any) -> None:
        """Do without labels if that fails: they are for people."""
        if self._labels is None:
            return
        try:
            action(self._labels)
        except Exception as error:
            self._labels = None
            complain(error, "memory is not labelled")

    def _note_gradients(self, labels: Any, optimizer: Any) -> None:
        if self._history_begin_ns:
            labels.note_gradients(optimizer)

    def _end_iteration(self, optimizer: Any) -> None:
        first = self._optimizer() if self._optimizer is not None else None
        if first is None:
            self._optimizer = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        cuda = self._torch.cuda
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return  # a step that is recorded in a graph has not been made
        self._num_steps += 1
        self._library.transit_recorder_iteration_end(self._num_steps)
        self._follow_recorder()

    def _follow_recorder(self) -> None:
        state = self._library.transit_recorder_state()
        if state == STOPPED:
            self._is_over = True
            self._end_history()
            self._library.transit_recorder_complete()
        elif state == INSPECTING:
            self._push_history()  # an inspector needs to know the blocks
        elif (
            state == RECORDING
            and self._history_begin_ns == 0
            and self._torch.cuda.is_initialized()
        ):
            self._begin_history()

    def _begin_history(self) -> None:
        memory = self._torch.cuda.memory
        self._owns_history = not self._torch._C._cuda_isHistoryEnabled()
        if self._owns_history:
            memory._record_memory_history(
                enabled="all",
                context=None,  # no stack traces: they are what costs
                stacks="python",
                max_entries=MAX_HISTORY_ENTRIES,
            )
        self._history_begin_ns = self._library.transit_recorder_timestamp_ns()
        # The job may end before the recording does.
        atexit.register(self._never_fail, self._end_history)
        begin_ns = self._history_begin_ns
        with paused_gc():
            self._push_alive(memory._snapshot(), begin_ns)

    def _end_history(self) -> None:
        if self._history_begin_ns == 0:
            return
        with paused_gc():
            self._label(lambda labels: labels.push())
        self._push_history()
        self._history_begin_ns = 0
        if self._owns_history:
            self._torch.cuda.memory._record_memory_history(enabled=None)

    def _push_history(self) -> None:
        """Pass on what was not yet passed on; the job's own may reach further back."""
        begin_ns = self._history_begin_ns
        begin_us = begin_ns // 1000
        if begin_us == 0:
            return
        with paused_gc():
            self._history_begin_ns = self._library.transit_recorder_timestamp_ns()
            snapshot = self._torch.cuda.memory._snapshot()
            end_ns = self._library.transit_recorder_timestamp_ns()
            traces = snapshot["device_traces"]
            for device, entries in enumerate(traces):
                whole_ns = self._whole_since_ns(entries, begin_ns, end_ns)
                self._library.transit_recorder_history(device, whole_ns, end_ns)
            self._push_alive(snapshot, end_ns)
            self._push(
                BLOCK.pack(
                    entry["time_us"] * 1000,
                    entry["addr"],
                    entry["size"],
                    TRACE_ACTIONS[entry["action"]],
                    device,
                )
                for device, entries in enumerate(traces)
                for entry in entries
                if entry["action"] in TRACE_ACTIONS and entry["time_us"] >= begin_us
            )

    def _whole_since_ns(self, entries: Any, begin_ns: int, end_ns: int) -> int:
        """Return since when no entry is missing: a full history drops its oldest."""
        if not self._torch._C._cuda_isHistoryEnabled():
            return end_ns  # the job ended it, which drops all entries
        if self._owns_history and len(entries) < MAX_HISTORY_ENTRIES:
            return begin_ns
        if not entries:
            return end_ns
        # How many the job's own history keeps is not known.
        return max(begin_ns, int(entries[0]["time_us"]) * 1000)

    def _push_alive(self, snapshot: Any, host_ns: int) -> None:
        self._push(
            BLOCK.pack(host_ns, address, num_bytes, ALIVE, device)
            for device, (address, num_bytes) in alive_blocks(snapshot)
        )

    def _forget_history(self) -> None:
        self._history_begin_ns = 0

    def _push(self, records: Iterable[bytes]) -> None:
        content = b"".join(records)
        self._library.transit_recorder_blocks(content, len(content) // BLOCK.size)


@contextmanager
def paused_gc() -> Iterator[None]:
    """Make a great many objects without their making it scan all the job has."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def alive_blocks(snapshot: Any) -> list[tuple[int, tuple[int, int]]]:
    """Return the device, and the address and bytes, of each block in use.

    A block that awaits its free is in use: a stream may still work on it.
    """
    return [
        (segment["device"], (block["address"], block["size"]))
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"].startswith("active")
    ]
