"""Programs on the simulated driver, one function each; ``test_simgpu`` runs them.

Usage: ``python simgpu_programs TOPIC NAME``, for a module of this folder and a
function of it. A program ends with exit code 0, or an assertion says what was wrong.
"""

from __future__ import annotations

import sys
from importlib import import_module

topic, name = sys.argv[1:]
getattr(import_module(topic), name)()
