"""The machine profile: the measured rates that costs are reckoned with."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from transit.compiler.files import describe, read_model, write_json
from transit.errors import MachineError

FORMAT = "transit-machine"
VERSION = 2
FILE_NAME = "machine.json"
"""In the folder of a trace: the machine of the trace."""
DEFAULT_NAME = "h200"

Rate = Annotated[float, Field(ge=1e3, le=1e16, allow_inf_nan=False)]
FixedTime = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
MemoryBytes = Annotated[int, Field(gt=0, le=1 << 48)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
BackendName = Literal["vmm", "uvm"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WindowRates(_Model):
    """What one backend needs to move memory in for a window, and out again."""

    load_bytes_per_s: Rate
    """Into the GPU's memory, with whatever the backend does besides copying."""
    store_bytes_per_s: Rate
    """Out of it, with a copy."""
    both_bytes_per_s: Rate
    """Each way, while both run."""
    drop_bytes_per_s: Rate | None = None
    """Out of it, without a copy, as nothing was written; null takes no time."""
    load_fixed_ns: FixedTime
    """What each transfer takes on top, however small."""
    store_fixed_ns: FixedTime
    map_ns: FixedTime = 0.0
    """To map GPU memory for a chunk of at most 32 MiB, while others are copied."""
    unmap_ns: FixedTime = 0.0
    """To take it away again."""
    map_home_ns: FixedTime = 0.0
    """To put host memory there, for launches that reach it in place."""


class MachineProfile(_Model):
    """Rates of one kind of machine (see docs/machine-profiles.md)."""

    format: Literal["transit-machine"]
    version: Literal[1, 2]
    name: Annotated[str, Field(min_length=1, max_length=100)]
    gpu_name: Annotated[str, Field(min_length=1, max_length=256)]
    gpu_memory_bytes: MemoryBytes | None = None
    """What a job can take up on the GPU: the budget, unless another is named."""
    host_memory_bytes: MemoryBytes | None = None
    """What can be moved to the host at most; null sets no limit."""
    hbm_bytes_per_s: Rate
    l2_bytes_per_s: Rate
    h2d_bytes_per_s: Rate
    d2h_bytes_per_s: Rate
    duplex_bytes_per_s: Rate
    zero_copy_read_bytes_per_s: Rate | None = None
    """Null, as its two companions: kernels cannot reach host memory there."""
    zero_copy_write_bytes_per_s: Rate | None = None
    zero_copy_both_bytes_per_s: Rate | None = None
    fault_h2d_bytes_per_s: Rate | None = None
    """What page faults bring in; null: there are none, or nobody knows."""
    evict_d2h_bytes_per_s: Rate | None = None
    """What the driver pushes out of a full GPU to make room."""
    launch_overhead_ns: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    backends: dict[BackendName, WindowRates] = {}
    """By backend; without one, no windows can be planned for it."""
    source: dict[Text, Text] = {}
    """Where each group of figures is from."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        zero_copy = [getattr(self, name) for name in _ZERO_COPY]
        if None in zero_copy and any(zero_copy):
            raise ValueError(f"{', '.join(_ZERO_COPY)}: give all, or none")
        for name, limit in _LIMITS:
            rate, most = getattr(self, name), getattr(self, limit)
            _refuse_above(name, rate, limit, most)
        for backend, rates in self.backends.items():
            for name, limit in _WINDOW_LIMITS:
                rate = getattr(rates, name)
                most = getattr(rates if hasattr(rates, limit) else self, limit)
                _refuse_above(f"backends.{backend}.{name}", rate, limit, most)
        return self

    @property
    def fingerprint(self) -> str:
        """A hash of every figure, so that a plan says what it was made with."""
        figures = self.model_dump_json(exclude={"source"})
        return hashlib.sha256(figures.encode()).hexdigest()

    @property
    def has_zero_copy(self) -> bool:
        """Whether kernels can read and write host memory in place."""
        return self.zero_copy_both_bytes_per_s is not None

    def windows(self, backend: BackendName) -> WindowRates:
        """Return what windows cost on a backend.

        Raises
        ------
        MachineError
            If the profile does not say.
        """
        if backend not in self.backends:
            raise MachineError(
                f"machine profile {self.name} does not say what the {backend} backend "
                f"needs to move memory (backends.{backend}); `transit calibrate` "
                "measures it"
            )
        return self.backends[backend]

    def with_link(self, h2d_bytes_per_s: float) -> MachineProfile:
        """Return the profile as it may be with another link: a what-if.

        All that crosses the link scales alike. Page faults and evictions are bound by
        the driver's work, not by the link, until the link is slower than they are.
        """
        scale = h2d_bytes_per_s / self.h2d_bytes_per_s
        changed = self.model_dump()
        for name in _ON_THE_LINK:
            if changed[name] is not None:
                changed[name] *= scale
        for name, limit in _BY_THE_DRIVER:
            if changed[name] is not None:
                changed[name] = min(changed[name], changed[limit])
        for rates in changed["backends"].values():
            for name in _WINDOW_ON_THE_LINK:
                rates[name] *= scale
        changed["name"] += f" at {h2d_bytes_per_s / 1e9:g} GB/s"
        changed["source"]["what-if"] = "what crosses the link is scaled, not measured"
        try:
            return MachineProfile.model_validate(changed)
        except ValidationError as invalid:
            raise MachineError(
                f"machine profile {self.name} with a link of "
                f"{h2d_bytes_per_s / 1e9:g} GB/s: {describe(invalid)}"
            ) from None


_ZERO_COPY = (
    "zero_copy_read_bytes_per_s",
    "zero_copy_write_bytes_per_s",
    "zero_copy_both_bytes_per_s",
)
_ON_THE_LINK = ("h2d_bytes_per_s", "d2h_bytes_per_s", "duplex_bytes_per_s", *_ZERO_COPY)
_BY_THE_DRIVER = (
    ("fault_h2d_bytes_per_s", "h2d_bytes_per_s"),
    ("evict_d2h_bytes_per_s", "d2h_bytes_per_s"),
)
# No rate can be above the other: both are of one link, in one direction.
_LIMITS = (
    ("h2d_bytes_per_s", "hbm_bytes_per_s"),
    ("d2h_bytes_per_s", "hbm_bytes_per_s"),
    ("duplex_bytes_per_s", "h2d_bytes_per_s"),
    ("duplex_bytes_per_s", "d2h_bytes_per_s"),
    ("zero_copy_both_bytes_per_s", "zero_copy_read_bytes_per_s"),
    ("zero_copy_both_bytes_per_s", "zero_copy_write_bytes_per_s"),
    *_BY_THE_DRIVER,
)
_WINDOW_ON_THE_LINK = ("load_bytes_per_s", "store_bytes_per_s", "both_bytes_per_s")
_WINDOW_LIMITS = (
    ("load_bytes_per_s", "h2d_bytes_per_s"),
    ("store_bytes_per_s", "d2h_bytes_per_s"),
    ("both_bytes_per_s", "load_bytes_per_s"),
    ("both_bytes_per_s", "store_bytes_per_s"),
)


def _refuse_above(
    name: str, rate: float | None, limit: str, most: float | None
) -> None:
    if rate is not None and most is not None and rate > most:
        raise ValueError(f"{name} ({rate:g}) cannot be above {limit} ({most:g})")


def built_in() -> list[str]:
    """Names of the profiles that come with transit."""
    folder = files("transit.compiler") / "machines"
    return sorted(
        entry.name.removesuffix(".json")
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
    )


def load(name_or_path: str) -> MachineProfile:
    """Read a machine profile by its built-in name or from a file."""
    path = Path(name_or_path)
    if name_or_path in built_in():
        path = Path(str(files("transit.compiler") / "machines" / f"{path}.json"))
    elif not path.exists():
        raise MachineError(
            f"{name_or_path}: no such machine profile; built in are "
            f"{', '.join(built_in())}, or give the path of a profile; "
            "`transit calibrate` measures one"
        )
    return read_model(
        MachineProfile, path, format=FORMAT, version=VERSION, error=MachineError
    )


def default(trace_folder: Path, gpu_name: str | None) -> MachineProfile:
    """Return the profile to use for a trace when none is named.

    That is the one in the trace's own folder, else a built-in one of the GPU that was
    recorded, else `DEFAULT_NAME`, whose rates then are of another GPU.
    """
    own = trace_folder / FILE_NAME
    if own.exists():
        return load(str(own))
    profiles = {name: load(name) for name in built_in()}
    of_this_gpu = [p for p in profiles.values() if p.gpu_name == gpu_name]
    return of_this_gpu[0] if of_this_gpu else profiles[DEFAULT_NAME]


def dump(profile: MachineProfile, path: Path, *, force: bool) -> None:
    """Write a profile; what is at ``path`` is kept unless ``force``."""
    value = profile.model_dump(mode="json")
    write_json(value, path, force=force, error=MachineError)
