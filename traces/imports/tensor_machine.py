"""The machine that published lists of tensors were timed or simulated on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transit.errors import TraceError
from transit.traces.imports.tensor_lists import Bools, Ints, TensorLists

_MAX_FILE_BYTES = 1 << 20
_G10 = "platformxlab/G10"
_CAVEATS = [
    "times are as given, of kernels that run alone, one after the other, with nothing "
    "between them",
]
_G10_CAVEATS = [
    "these are an A100's times as the G10 artifact has them, of single runs: most of "
    "each iteration's time does not depend on the batch size, as if kernels had not "
    "been warmed up. Computation is long against transfers, which hide more easily "
    "behind it than on a warm GPU",
    "most of these times were not measured at this batch size: those of neighbouring "
    "sizes are exact linear combinations of one another (BERT's may be measured)",
    "in the transformers, biases, norms and scalars are stored once per sample of the "
    "batch, so most bytes that are kept from iteration to iteration are no weights; "
    "there is no optimizer state. Good for comparing with what was published for the "
    "same lists, not for what a real training job would need",
]

Bytes = Annotated[int, Field(gt=0, le=1 << 48)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _Gpu(_Part):
    model: Annotated[str, Field(min_length=1, max_length=256)]
    memory_bytes: Bytes


class _Link(_Part):
    gbps_each_way: Annotated[float, Field(ge=1e-3, le=1e5, allow_inf_nan=False)]


class Hardware(_Part):
    """What ``hardware.json`` says; the link is full duplex, in units of 1e9 bytes."""

    source: Annotated[str, Field(min_length=1, max_length=1000)]
    gpu: _Gpu
    pcie: _Link
    host_memory_bytes: Bytes | None = None

    @classmethod
    def find(cls, folder: Path) -> Self:
        """Read the file in `folder`, or the one beside it, which several may share."""
        for path in (folder / "hardware.json", folder.parent / "hardware.json"):
            if path.is_file():
                return cls._read(path)
        raise TraceError(
            f"There is no hardware.json in {folder} or beside it: times and budgets are"
            " those of some machine."
        )

    @classmethod
    def _read(cls, path: Path) -> Self:
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_FILE_BYTES + 1)
            if len(text) > _MAX_FILE_BYTES:
                raise TraceError(f"{path} is larger than 1 MiB; it is not read.")
            return cls.model_validate_json(text)
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}.") from error
        except ValidationError as invalid:
            first = invalid.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the whole file"
            raise TraceError(f"{path}, {where}: {first['msg']}.") from invalid

    @property
    def caveats(self) -> list[str]:
        """What to know before trusting results from these lists."""
        return _CAVEATS + (_G10_CAVEATS if _G10 in self.source else [])

    @property
    def link_bytes_per_s(self) -> float:
        """What crosses the link each way, also while it is used both ways."""
        return self.pcie.gbps_each_way * 1e9

    def profile(self, lists: TensorLists) -> str:
        """Return the machine profile of the lists, a file of the compiler's."""
        link = self.link_bytes_per_s
        faults_in, faults_out = fault_rates(lists, link)
        windows = {
            "load_bytes_per_s": link,
            "store_bytes_per_s": link,
            "both_bytes_per_s": link,
            "load_fixed_ns": 0.0,
            "store_fixed_ns": 0.0,
        }
        profile: dict[str, Any] = {
            "format": "transit-machine",
            "version": 2,
            "name": "as published",
            "gpu_name": self.gpu.model,
            "gpu_memory_bytes": self.gpu.memory_bytes,
            "host_memory_bytes": self.host_memory_bytes,
            "hbm_bytes_per_s": 1.555e12,
            "l2_bytes_per_s": 3.11e12,
            "h2d_bytes_per_s": link,
            "d2h_bytes_per_s": link,
            "duplex_bytes_per_s": link,
            "fault_h2d_bytes_per_s": faults_in,
            "evict_d2h_bytes_per_s": faults_out,
            "launch_overhead_ns": 1.0,
            "backends": {"vmm": windows, "uvm": windows},
            "source": {
                "backends": "assumed: transfers take what the link takes",
                "faults": "derived from the published times of the kernels with all "
                "memory, inputs only, and nothing on the GPU: bytes by the time more, "
                "all kernels together; evict_d2h: from their outputs",
                "hbm, l2": "an A100's data sheet, and twice that; they tell what may "
                "be read in place, which is not possible here",
                "launch_overhead": "none; the smallest that can be given",
                "link, memory": f"published: {self.source}",
            },
        }
        return json.dumps(profile, indent=1) + "\n"


def fault_rates(
    lists: TensorLists, link_bytes_per_s: float
) -> tuple[float | None, float | None]:
    """Return how fast kernels fault their inputs in, and their outputs, in bytes/s.

    The files do not always rise from all resident over inputs resident to nothing
    resident; they are made to. No kernel's faults are faster than the link.
    """
    resident_ns = lists.of_kernels("duration_ns")
    inputs_ns = np.maximum(lists.of_kernels("duration_inputs_resident_ns"), resident_ns)
    nothing_ns = np.maximum(lists.of_kernels("duration_nothing_resident_ns"), inputs_ns)

    def rate(faulting: Bools, more_ns: Ints) -> float | None:
        sizes = lists.tensor_bytes[lists.tensor] * faulting
        moved = np.bincount(lists.kernel, sizes, minlength=len(more_ns))
        at_least_ns = moved / link_bytes_per_s * 1e9
        took_ns = np.maximum(more_ns, at_least_ns)[moved > 0].sum()
        if not took_ns:
            return None
        return min(float(moved.sum() / took_ns * 1e9), link_bytes_per_s)

    return (
        rate(lists.reads, nothing_ns - inputs_ns),
        rate(lists.writes & ~lists.reads, inputs_ns - resident_ns),
    )
