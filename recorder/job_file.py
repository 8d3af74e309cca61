"""``job.json`` in a run folder: what its spools do not say of the job."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from transit.errors import TraceError
from transit.traces.manifest import Inspection

FILE_NAME = "job.json"


class RecordedJob(BaseModel):
    """A job, and what was to be found out about it."""

    model_config = ConfigDict(strict=True, frozen=True)

    command: list[str]
    inspections: list[Inspection] = []

    def write(self, run_dir: Path) -> None:
        """Leave it for a recovery."""
        (run_dir / FILE_NAME).write_text(self.model_dump_json())

    @classmethod
    def read(cls, run_dir: Path) -> RecordedJob:
        """Read that of a run folder."""
        try:
            return cls.model_validate_json((run_dir / FILE_NAME).read_bytes())
        except (OSError, ValidationError) as error:
            raise TraceError(
                f"{run_dir}: not a spool folder of transit's: {FILE_NAME} is missing or"
                " damaged"
            ) from error
