"""Measure a benchmark's parts one after another, and save each at once."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from runner import PYTHON, ROOT, PartError, Runner
from table import print_tables

RUN_TIMEOUT_S = 90

Result = dict[str, Any]


class SkippedError(PartError):
    """A part that this machine cannot measure; what was measured elsewhere stays."""


class Benchmark:
    """What the parts of every benchmark need."""

    def __init__(self, args: argparse.Namespace, parts: Result, runner: Runner) -> None:
        self.args = args
        self.parts = parts
        self.runner = runner
        self.work: Path = args.work

    def transit(self, *arguments: str | Path, timeout: float = RUN_TIMEOUT_S) -> str:
        """Run a transit command."""
        command = [PYTHON, "-m", "transit", *map(str, arguments)]
        return self.runner.run(command, timeout=timeout)

    def get(self, part: str) -> Result:
        """Return an earlier part's result."""
        result: Result = self.parts.get(part, {"error": "not measured"})
        if "error" in result:
            raise PartError(f"needs part {part}: {result['error']}")
        return result

    def ask_gpus(self, what: str) -> list[str]:
        """Return one property of each GPU, by its name in nvidia-smi."""
        command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
        return self.runner.run(command, timeout=20).splitlines()

    def refuse_too_much_managed_memory(self, needed_bytes: int | None) -> None:
        """Stay below a quarter of what is free: eviction can hang a shared card."""
        free_bytes = min(int(mebibytes) for mebibytes in self.ask_gpus("memory.free"))
        free_bytes <<= 20
        if not needed_bytes or needed_bytes * 4 >= free_bytes:
            raise PartError(
                f"managed memory not tried: the job needs {needed_bytes} bytes, not "
                f"under a quarter of the {free_bytes} that the GPU has free"
            )

    def machine(self) -> Result:
        """The machine, the versions, and the rates of the link."""
        script = "benchmarks/link_rate.py"
        found = json.loads(self.runner.run([PYTHON, script], timeout=60))
        driver = self.ask_gpus("driver_version")[0]
        version = self.transit("--version").strip()
        return {**found, "driver": driver, "transit": version, "commit": commit()}


BenchmarkT = TypeVar("BenchmarkT", bound=Benchmark)
Parts = Mapping[str, Callable[[BenchmarkT], Result]]


def create_parser(
    description: str | None, parts: Iterable[str], *, minutes: float
) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="JSON result")
    parser.add_argument("--work", type=Path, help="traces and plans (OUTPUT.work)")
    parser.add_argument(
        "--only", metavar="PART,...", help=f"or groups of parts: {', '.join(parts)}"
    )
    parser.add_argument("--minutes", type=float, default=minutes, help="for everything")
    return parser


def parse_arguments(
    parser: argparse.ArgumentParser, parts: Iterable[str]
) -> argparse.Namespace:
    """Return the options, with the chosen parts and whole paths."""
    args = parser.parse_args()
    args.chosen = names = list(parts)
    if args.only:
        wanted = set(args.only.split(","))
        matches = {name: {name, name.partition("/")[0]} & wanted for name in names}
        if unknown := wanted.difference(*matches.values()):
            parser.error(f"no such part: {', '.join(sorted(unknown))}")
        args.chosen = [name for name in names if matches[name]]
    args.output = args.output.absolute()
    args.work = (args.work or args.output.with_suffix(".work")).absolute()
    return args


def measure(
    name: str,
    benchmark: Callable[[argparse.Namespace, Result, Runner], BenchmarkT],
    parts: Parts[BenchmarkT],
    args: argparse.Namespace,
) -> int:
    """Measure the chosen parts, saving after each; 1 if one of them failed."""
    args.work.mkdir(parents=True, exist_ok=True)
    results = load(args.output)
    runner = Runner(deadline=time.monotonic() + args.minutes * 60)
    measured = benchmark(args, results, runner)
    for part in args.chosen:
        started = time.monotonic()
        runner.commands.clear()
        try:
            result = parts[part](measured)
        except SkippedError as reason:
            print(f"{part}: skipped: {reason}", file=sys.stderr, flush=True)
            if part in results and "error" not in results[part]:
                continue
            result = {"skipped": str(reason)}
        except PartError as error:
            print(f"{part}: {error}", file=sys.stderr, flush=True)
            result = {"error": str(error)}
        result["commands"] = list(runner.commands)
        result["seconds"] = round(time.monotonic() - started, 1)
        result["measured"] = datetime.datetime.now(datetime.UTC).isoformat()
        results[part] = result
        save(name, args, results)
    print_tables(name, results)
    return int(any(failed(results[part]) for part in args.chosen))


def load(output: Path) -> Result:
    """Return the parts measured before, if any."""
    if not output.exists():
        return {}
    parts: Result = json.loads(output.read_text())["parts"]
    return parts


def save(name: str, args: argparse.Namespace, parts: Result) -> None:
    """Write the result beside its place, then put it there, without local paths."""
    output: Path = args.output
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.partial")
    result = {"benchmark": name, "version": 1, "parts": parts}
    text = json.dumps(result, indent=1)
    text = text.replace(str(args.work), "WORK").replace(f"{ROOT}/", "")
    temporary.write_text(text + "\n")
    temporary.rename(output)


def failed(part: Result) -> bool:
    """Return whether a part, or a run in it, could not be measured."""
    runs = [run for run in part.values() if isinstance(run, dict)]
    incomplete = "error" in part or part.get("failed")
    return bool(incomplete) or any("error" in run for run in runs)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def commit() -> str | None:
    """Return the commit this checkout is at, where git knows."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
