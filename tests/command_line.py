"""Run ``transit`` on its own, as a user without settings would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def transit(
    *arguments: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRANSIT_")}
    return subprocess.run(
        [sys.executable, "-m", "transit", *map(str, arguments)],
        env={**inherited, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
