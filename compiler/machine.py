"""The machine profile: the measured rates that costs are reckoned with."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from transit.compiler.files import read_model
from transit.errors import MachineError

FORMAT = "transit-machine"
VERSION = 1

Rate = Annotated[float, Field(ge=1e3, le=1e16, allow_inf_nan=False)]


class MachineProfile(BaseModel):
    """Rates of one kind of machine (see docs/plan-format.md for their sources)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["transit-machine"]
    version: Literal[1]
    name: Annotated[str, Field(min_length=1, max_length=100)]
    gpu_name: Annotated[str, Field(min_length=1, max_length=256)]
    hbm_bytes_per_s: Rate
    l2_bytes_per_s: Rate
    h2d_bytes_per_s: Rate
    d2h_bytes_per_s: Rate
    duplex_bytes_per_s: Rate
    zero_copy_read_bytes_per_s: Rate
    zero_copy_write_bytes_per_s: Rate
    zero_copy_both_bytes_per_s: Rate
    launch_overhead_ns: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]

    @property
    def fingerprint(self) -> str:
        """A hash of every figure, so that a plan says what it was made with."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


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
            f"{', '.join(built_in())}, or give the path of a profile"
        )
    return read_model(
        MachineProfile, path, format=FORMAT, version=VERSION, error=MachineError
    )
