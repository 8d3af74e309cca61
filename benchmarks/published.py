"""Plan published iterations on the published machine, beside what was published there.

Needs no GPU: nothing is measured but the time that planning takes. Steps are those that
transit's cost model predicts for its plans. Networks whose lists are not published are
made up, with as many bytes at the peak and as long an iteration.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from conversion import machine
from made_up import squeezing_convolutions, transformer
from networks import Network
from rich.console import Console
from rich.table import Table

from transit.compiler import iteration, planner
from transit.compiler.cost import access_costs
from transit.compiler.lifetimes import read_allocations
from transit.compiler.link import Link
from transit.compiler.liveness import Holders
from transit.compiler.machine import FILE_NAME, MachineProfile, load
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.problem import Problem
from transit.compiler.regions import find_regions
from transit.traces.caveats import caveats
from transit.traces.imports.tensors import import_tensors
from transit.traces.reader import Trace

# What is made up has the peak and the ideal step of these.
MADE_UP: dict[str, Callable[[], Network]] = {
    "vit_1280": transformer,
    "senet154_1024": squeezing_convolutions,
}
# In the published tables: demand paging, and the paper's own planner.
PAGING, BEST = "lru", "prefetch_lru"

Row = dict[str, Any]


def main() -> None:
    """Plan every iteration and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=Path, required=True, help="the data set")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    published = read_published(options.lists / "results.csv")
    with tempfile.TemporaryDirectory() as folder:
        networks = {
            name: plan_lists(lists, Path(folder) / f"{name}.trace")
            | {"made_up": is_made_up, "published": published.get(name, {})}
            for name, lists, is_made_up in find_lists(options.lists, Path(folder))
        }
    result = {
        "command": "python benchmarks/published.py --lists LISTS",
        "machine": machine(),
        "versions": {name: version(name) for name in ("numpy", "scipy")}
        | {"python": platform.python_version()},
        "networks": networks,
    }
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    Console().print(table(networks))


def find_lists(root: Path, folder: Path) -> Iterator[tuple[str, Path, bool]]:
    """Return the published lists by name, then those made up, which are written."""
    for path in sorted(root.glob("*/tensors.csv.gz")):
        yield path.parent.name, path.parent, False
    hardware = json.loads((root / "hardware.json").read_text())
    hardware["source"] = "made up by benchmarks/made_up.py"
    with (root / "summary.csv").open() as file:
        totals = {f"{row['model']}_{row['batch']}": row for row in csv.DictReader(file)}
    for like, make in MADE_UP.items():
        name = f"made up, like {like}"
        make().write(
            folder / name,
            peak_bytes=float(totals[like]["peak_live_bytes"]),
            seconds=float(totals[like]["sum_duration_ns"]) / 1e9,
            hardware=json.dumps(hardware),
        )
        yield name, folder / name, True


def read_published(path: Path) -> dict[str, dict[str, Row]]:
    """Return what was published for each network and policy."""
    found: dict[str, dict[str, Row]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            seconds = row["iteration_s"]
            found.setdefault(f"{row['model']}_{row['batch']}", {})[row["policy"]] = {
                "name": row["paper_name"],
                "step_s": float(seconds) if seconds else None,
            }
    return found


def plan_lists(lists: Path, path: Path) -> Row:
    """Plan one iteration, with the whole published GPU as budget."""
    import_tensors(lists, path)
    trace, profile = Trace.open(path), load(str(path / FILE_NAME))
    began_s = time.monotonic()
    model = build_model(trace, profile)
    planned = planner.plan(model, link_of(profile), many_accesses=np.inf)
    planning_s = time.monotonic() - began_s
    simulated = planned.simulated
    timeline = simulated.timeline
    # What is alive and not on the GPU: the host has no less.
    away = model.live_pieces[timeline.position] - timeline.used_pieces
    on_host = int(away.max(initial=0)) * PIECE_BYTES
    limit = profile.host_memory_bytes
    return {
        "kernels": model.num_launches,
        "peak_bytes": int(model.live_pieces.max()) * PIECE_BYTES,
        "gpu_memory_bytes": profile.gpu_memory_bytes,
        "ideal_s": model.duration_ns.sum() / 1e9,
        "bound_s": planned.bound_ns / 1e9,
        "estimated_step_s": simulated.step_ns / 1e9,
        "estimated_over_bound": simulated.step_ns / planned.bound_ns,
        "estimated_over_ideal": simulated.step_ns / model.duration_ns.sum(),
        "peak_resident_bytes": simulated.peak_pieces * PIECE_BYTES,
        "loaded_bytes": simulated.loaded_pieces * PIECE_BYTES,
        "stored_bytes": simulated.stored_pieces * PIECE_BYTES,
        "on_host_bytes": on_host,
        "published_host_memory_bytes": limit,
        "fits_published_host_memory": limit is None or on_host <= limit,
        "planning_s": round(planning_s, 2),
        "caveats": caveats(trace.manifest.rank(0)),
    }


def build_model(trace: Trace, profile: MachineProfile) -> Model:
    """Return what the planner plans: the trace's only GPU."""
    steady = iteration.find(trace, 0)
    gpu = read_allocations(trace, 0)
    costs = access_costs(steady, profile)
    regions = find_regions(gpu.where(gpu.ordinal >= 0), steady, costs)
    budget = profile.gpu_memory_bytes or 0
    problem = Problem.build(gpu, regions, gpu_memory_bytes=budget)
    return Model.build(problem, steady, Holders.read(trace, 0, problem.allocations))


def link_of(profile: MachineProfile) -> Link:
    """Return the published link."""
    rates = profile.windows("vmm")
    return Link.of(
        rates.load_bytes_per_s,
        rates.store_bytes_per_s,
        rates.both_bytes_per_s,
        rates.load_fixed_ns,
        rates.store_fixed_ns,
    )


def table(networks: dict[str, Row]) -> Table:
    """Return the steps, each over the ideal one, in which nothing has to move."""
    shown = Table(title="Steps over the ideal step: published, bound and planned")
    columns = ("iteration", "peak GiB", "ideal s", "Base UVM", "G10", "bound", "plan",
               "plan / bound", "on the host GiB", "planning s")  # fmt: skip
    for column in columns:
        shown.add_column(column, justify="left" if column == "iteration" else "right")
    for name, row in networks.items():
        over = [
            row["published"].get(policy, {}).get("step_s") for policy in (PAGING, BEST)
        ]
        host = f"{row['on_host_bytes'] / 2**30:.0f}"
        shown.add_row(
            name,
            f"{row['peak_bytes'] / 2**30:.0f}",
            f"{row['ideal_s']:.2f}",
            *(f"{step_s / row['ideal_s']:.4f}" if step_s else "-" for step_s in over),
            f"{row['bound_s'] / row['ideal_s']:.4f}",
            f"{row['estimated_over_ideal']:.4f}",
            f"{row['estimated_over_bound']:.4f}",
            host
            if row["fits_published_host_memory"]
            else f"{host}, more than published",
            f"{row['planning_s']:.1f}",
        )
    return shown


if __name__ == "__main__":
    main()
