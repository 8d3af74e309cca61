"""Runs in every Python process of a recorded job, before the job's own code.

Being first on ``PYTHONPATH``, this file hides a ``sitecustomize`` of the job's, so it
runs that one too, as if it had been found in its place.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def install_torch_hook() -> None:
    """Arrange for iterations to be marked when the job imports torch."""
    try:
        importlib.import_module("transit_torch_hook").install()
    except Exception as error:  # the job comes first
        print(f"transit: no iterations will be marked: {error}", file=sys.stderr)


def run_hidden_sitecustomize() -> None:
    """Run the ``sitecustomize`` that Python would have found without this one."""
    here = Path(__file__).resolve().parent
    path = [entry for entry in sys.path if Path(entry).resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    # The import that brought us here leaves whatever stands in this place.
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


install_torch_hook()
run_hidden_sitecustomize()
