"""Names of kernels as people can read them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache

MAX_NESTING = 2  # templates within templates that a short name still shows
_LITERAL = re.compile(r"(\(.*\))?-?\d+[a-z]*|true|false")
_OPENING, _CLOSING = "<([{", ">)]}"


@cache
def demangle(name: str) -> str:
    """Return the C++ declaration that a symbol stands for, or else the name itself."""
    library = _runtime_library()
    if library is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


def shorten(declaration: str) -> str:
    """Return a function's own name, with the types and functors it is made for.

    Namespaces, parameters, numbers and what repeats are left out, and a lambda goes by
    the function that it is in: ``vectorized_elementwise_kernel<FillFunctor<float>>``.
    """
    if not declaration.endswith(")"):
        return declaration
    plain = declaration.replace("(anonymous namespace)::", "")
    head = _until_parameters(plain.replace("::operator()", ""))
    *_returned, name = _split(head, " ")
    return _shorten_type(name, MAX_NESTING) or declaration


@cache
def _runtime_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library


def _shorten_type(text: str, nesting: int) -> str:
    *_, name = _split(_until_parameters(text), "::")
    start, end = name.find("<"), name.rfind(">")
    if start <= 0 or end < start:
        return name
    arguments = [
        _shorten_type(argument.strip(), nesting - 1)
        for argument in _split(name[start + 1 : end], ",")
        if nesting and not _LITERAL.fullmatch(argument.strip())
    ]
    shown = ", ".join(dict.fromkeys(arguments))
    return name[:start] + (f"<{shown}>" if shown else "") + name[end + 1 :]


def _until_parameters(text: str) -> str:
    return next(iter(_split(text, "(")))


def _split(text: str, separator: str) -> Iterator[str]:
    """Split where no bracket is open."""
    depth = start = 0
    for index, character in enumerate(text):
        if not depth and text.startswith(separator, index):
            yield text[start:index]
            start = index + len(separator)
        depth += character in _OPENING
        depth -= character in _CLOSING
    yield text[start:]
