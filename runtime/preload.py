"""Where the native libraries are, and the environment that puts them into a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from transit.errors import JobError

# Variables the native libraries read; docs/environment.md says what they mean. Those
# of the command line are known to the command line.
JOB_VARIABLES = frozenset(
    {
        "TRANSIT_AUDIT",
        "TRANSIT_AUDIT_GIB",
        "TRANSIT_BACKEND",
        "TRANSIT_DIRECTIONS",
        "TRANSIT_HOST_MEMORY_BYTES",
        "TRANSIT_ITERATIONS",
        "TRANSIT_KEEP_MODULES",
        "TRANSIT_LIBCUPTI",
        "TRANSIT_LIB_DIR",
        "TRANSIT_LOG",
        "TRANSIT_PAGING_AHEAD",
        "TRANSIT_PAGING_BYTES",
        "TRANSIT_PAGING_POLICY",
        "TRANSIT_PLAN_DIR",
        "TRANSIT_RUN_DIR",
        "TRANSIT_SKIP",
        "TRANSIT_STRICT",
    }
)
SIMULATED_GPU_PREFIX = "TRANSIT_SIM_"
ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def shim_library() -> Path:
    """Return the path of ``libtransit.so``."""
    return find_library("transit.runtime", "libtransit.so")


def recorder_library() -> Path:
    """Return the path of ``libtransit_recorder.so``."""
    return find_library("transit.recorder", "libtransit_recorder.so")


def find_library(package: str, name: str) -> Path:
    """Return the path of a native file of `package`.

    ``TRANSIT_LIB_DIR`` names a folder that holds all of them instead.
    """
    build = os.environ.get("TRANSIT_LIB_DIR")
    # By importlib, never __file__: an editable install keeps .py and .so apart.
    resource = resources.files(package).joinpath(name)
    path = Path(build, name).absolute() if build else Path(str(resource))
    if not path.exists():
        raise JobError(
            f"{path}: transit's native library is missing; reinstall transit-gpu, or "
            "set TRANSIT_LIB_DIR to a folder that holds it"
        )
    return path


def shim_variables(run_dir: Path) -> dict[str, str]:
    """Return the variables that put the shim into a job.

    Parameters
    ----------
    run_dir
        Where each process of the job leaves its status file.
    """
    refuse_nesting(os.environ)
    refuse_expandable_segments(os.environ)
    before = os.environ.get("LD_PRELOAD")
    shim = preloadable(shim_library())
    return {
        "LD_PRELOAD": f"{shim}:{before}" if before else shim,
        "TRANSIT_RUN_DIR": str(run_dir),
    }


def preloadable(library: Path) -> str:
    """Return a path as ``LD_PRELOAD`` can take it.

    The loader splits ``LD_PRELOAD`` at spaces and colons, and goes on without the
    library after a warning: the job would run as if transit were not there.
    """
    text = str(library)
    if any(character.isspace() or character == ":" for character in text):
        raise JobError(
            f"{text!r}: the dynamic loader cannot preload a library whose path holds a "
            "space or a colon; install transit in a folder without them"
        )
    return text


def refuse_nesting(environment: Mapping[str, str]) -> None:
    """Refuse to start a job from within a job of transit's."""
    if "TRANSIT_RUN_DIR" in environment:
        raise JobError(
            "TRANSIT_RUN_DIR is set: this is already a job of transit's, and they "
            "cannot be nested; start the inner command without transit"
        )


def refuse_expandable_segments(environment: Mapping[str, str]) -> None:
    """Refuse PyTorch's allocator mode whose memory cannot be moved."""
    for variable in ALLOCATOR_VARIABLES:
        settings = environment.get(variable, "").replace(" ", "").lower().split(",")
        if "expandable_segments:true" in settings:
            raise JobError(
                f"{variable} asks for expandable_segments:True: PyTorch then maps "
                "device memory itself, which transit cannot place; remove that setting"
            )


def unknown_variables(environment: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the ``TRANSIT_*`` variables that nothing reads."""
    readable = JOB_VARIABLES.union(known)
    return sorted(
        name
        for name in environment
        if name.startswith("TRANSIT_")
        and not name.startswith(SIMULATED_GPU_PREFIX)
        and name not in readable
    )
