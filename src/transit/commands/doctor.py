"""``transit doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from transit.commands.options import Json, SimulatedGpu

NEEDED_TO_RECORD = ("libraries", "shim loads", "gpu", "injection", "allocator")


def doctor(simulated_gpu: SimulatedGpu = False, as_json: Json = False) -> None:
    """Check what transit needs on this machine.

    Where there is a GPU, also record a kernel and a page of memory on it.

    Exit code 1 when something is broken.

    Example: transit doctor
    """
    from transit.recorder.self_test import examine_recording
    from transit.runtime.doctor import Verdict, examine

    findings = examine(simulated_gpu=simulated_gpu)
    if all(f.verdict is Verdict.OK for f in findings if f.check in NEEDED_TO_RECORD):
        findings += examine_recording(simulated_gpu=simulated_gpu)
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
