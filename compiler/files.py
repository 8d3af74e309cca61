"""Read and write the compiler's JSON files: strictly, and never losing one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from transit.errors import TransitError
from transit.files import write_text

MAX_FILE_BYTES = 256 << 20
MAX_ERRORS_SHOWN = 3

Model = TypeVar("Model", bound=BaseModel)
MakeError = Callable[[str], TransitError]
Upgrade = Callable[[dict[str, Any]], None]


def read_model(
    model: type[Model],
    path: Path,
    *,
    format: str,
    version: int,
    error: MakeError,
    upgrade: Upgrade | None = None,
) -> Model:
    """Read a versioned JSON file into a model, or raise what ``error`` makes.

    Parameters
    ----------
    upgrade
        Turns what an older version wrote into what this one does, in place.
    """
    text = _read_text(path, error)
    value = _check_version(_parse(text, path, error), path, format, version, error)
    if upgrade and value["version"] < version:
        # What is damaged is found below.
        with suppress(LookupError, TypeError, AttributeError):
            upgrade(value)
        text = json.dumps(value)
    try:
        return model.model_validate_json(text)
    except ValidationError as invalid:
        raise error(f"{path}: {describe(invalid)}") from None


def write_json(value: object, path: Path, *, force: bool, error: MakeError) -> None:
    """Write deterministic JSON; what is at ``path`` is kept unless ``force``."""
    text = json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n"
    target = path.resolve()  # a link stays a link
    if target.exists() and not target.is_file():
        raise error(f"{path}: exists and is not a regular file; choose another name")
    if target.exists() and not force:
        raise error(f"{path}: exists already; pass --force to replace it")
    try:
        write_text(target, text)
    except OSError as failed:
        raise error(f"{path}: cannot be written: {failed.strerror}") from None


def _read_text(path: Path, error: MakeError) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise error(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; not read")
        return path.read_text(encoding="utf-8")
    except OSError as failed:
        raise error(f"{path}: cannot be read: {failed.strerror}") from None
    except UnicodeDecodeError:
        raise error(f"{path}: not JSON: it is not UTF-8 text") from None


def _parse(text: str, path: Path, error: MakeError) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise error(f"{path}: not usable: nested too deeply") from None
    except ValueError as invalid:
        what = "empty" if not text.strip() else f"not JSON, or cut short: {invalid}"
        raise error(f"{path}: {what}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("one key is given twice in an object")
    return result


def _check_version(
    value: object, path: Path, format: str, version: int, error: MakeError
) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("format") != format:
        raise error(f'{path}: not a {format} file (its "format" is not "{format}")')
    found = value.get("version")
    if type(found) is not int or found < 1:
        raise error(f"{path}: damaged: version is {found!r}, not a positive integer")
    if found > version:
        raise error(
            f"{path}: {format} version {found} is newer than version {version}, "
            "the newest this transit reads; update transit"
        )
    return value


def describe(invalid: ValidationError) -> str:
    """Name the first places that are wrong, and how."""
    errors = invalid.errors(include_url=False, include_input=False)
    lines = [
        f"{_location(item['loc'])}: {item['msg'].removeprefix('Value error, ')}"
        for item in errors[:MAX_ERRORS_SHOWN]
    ]
    if len(errors) > MAX_ERRORS_SHOWN:
        lines.append(f"and {len(errors) - MAX_ERRORS_SHOWN} more")
    return "; ".join(lines)


def _location(parts: tuple[int | str, ...]) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)
    return text.removeprefix(".") or "the whole file"
