"""``transit doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from transit.commands.options import Json, SimulatedGpu


def doctor(simulated_gpu: SimulatedGpu = False, as_json: Json = False) -> None:
    """Check what transit needs on this machine.

    Exit code 1 when something is broken.

    Example: transit doctor
    """
    from transit.runtime.doctor import Verdict, examine

    findings = examine(simulated_gpu=simulated_gpu)
    broken = any(finding.verdict is Verdict.BROKEN for finding in findings)
    if as_json:
        report = {
            "format": "transit-doctor",
            "version": 1,
            "findings": [asdict(finding) for finding in findings],
        }
        print(json.dumps(report))
    else:
        for finding in findings:
            print(f"{finding.verdict:8} {finding.check:14} {finding.detail}")
    raise typer.Exit(1 if broken else 0)
