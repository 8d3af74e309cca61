"""Finds out what a PyTorch job keeps where: parameters, gradients, optimizer state.

While iterations are recorded only addresses are noted, of the gradients at each step.
Everything else is looked up once, when the recording is over. Lives in the job's
process: the standard library only, and nothing of the job's is kept alive.
"""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

# What wrappers put between a module and the names that its author gave.
WRAPPERS = frozenset(
    {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
MAX_DEPTH = 6  # of state within state


class Gradients(NamedTuple):
    """Where the gradients of an optimizer's parameters were after a step of it."""

    optimizer: weakref.ref[Any]
    host_ns: int
    addresses: array[int]  # in the order of the parameters; 0: none


class Labels:
    """Collects what is where, and tells the recorder.

    Parameters
    ----------
    torch
        The module.
    library
        The recorder.
    """

    def __init__(self, torch: Any, library: Any) -> None:
        self._torch = torch
        self._library = library
        self._plain_types = (torch.Tensor, torch.nn.Parameter)
        self._gradients: list[Gradients] = []

    def note_gradients(self, optimizer: Any) -> None:
        """Remember where gradients are; to be called after a step, as they may move."""
        addresses = array(
            "Q", map(self._address, (p.grad for p in parameters_of(optimizer)))
        )
        host_ns = self._library.transit_recorder_timestamp_ns()
        self._gradients.append(Gradients(weakref.ref(optimizer), host_ns, addresses))

    def push(self) -> None:
        """Tell the recorder all that is known."""
        noted, self._gradients = self._gradients, []
        host_ns = self._library.transit_recorder_timestamp_ns()
        names: dict[int, str] = {}
        kept = []
        roots = module_roots(self._torch.nn.Module)
        for name, tensor in named_tensors(roots):
            if id(tensor) not in names:
                names[id(tensor)] = name
                kept.append((name, self._address(tensor)))
        for optimizer in unique(ref() for ref, *_ in noted):
            kept += self._state(optimizer, names)
        self._tell(host_ns, kept)
        for ref, noted_ns, addresses in noted:
            if (optimizer := ref()) is not None:
                of = parameter_names(optimizer, names)
                gradients = (f"{name}, gradient" for name in of)
                self._tell(noted_ns, zip(gradients, addresses, strict=False))

    def _state(
        self, optimizer: Any, names: dict[int, str]
    ) -> Iterator[tuple[str, int]]:
        """Return what an optimizer keeps, and the parameters that no module has."""
        named = zip(
            parameter_names(optimizer, names), parameters_of(optimizer), strict=True
        )
        for name, parameter in named:
            if id(parameter) not in names:
                yield name, self._address(parameter)
            state = optimizer.state.get(parameter)
            for key, tensor in tensors_in(state, self._torch.Tensor):
                yield f"{name}, {key}", self._address(tensor)

    def _tell(self, host_ns: int, labels: Iterable[tuple[str, int]]) -> None:
        known = [(name, address) for name, address in labels if address]
        addresses = array("Q", (address for _, address in known))
        texts = "".join(f"{name}\0" for name, _ in known)
        self._library.transit_recorder_labels(
            host_ns, addresses.tobytes(), texts.encode(errors="replace"), len(known)
        )

    def _address(self, tensor: Any) -> int:
        """Return where a tensor's data begins, 0 if that is not one place."""
        try:
            if tensor is None:
                return 0
            while type(tensor) not in self._plain_types:
                # A wrapper such as DTensor has no data of its own.
                inner, _ = tensor.__tensor_flatten__()
                tensor = getattr(tensor, inner[0])
            return int(tensor.data_ptr())
        except Exception:  # sparse, fake, not yet made: torch raises what it likes
            return 0


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """Return the parameters of all groups."""
    return (p for group in optimizer.param_groups for p in group["params"])


def parameter_names(optimizer: Any, names: dict[int, str]) -> Iterator[str]:
    """Name an optimizer's parameters as modules do; one that is in none, by place."""
    kind = type(optimizer).__name__
    for index, parameter in enumerate(parameters_of(optimizer)):
        yield names.get(id(parameter)) or f"{kind} parameter {index}"


def tensors_in(
    value: Any, tensor_type: Any, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Return the tensors inside a value, and the way to each."""
    if isinstance(value, tensor_type):
        yield "", value
    if depth == MAX_DEPTH or not isinstance(value, dict | list | tuple):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        for rest, tensor in tensors_in(inner, tensor_type, depth + 1):
            yield (f"{key}.{rest}" if rest else str(key)), tensor


def module_roots(module_type: Any) -> list[Any]:
    """Return the modules that are in no other, those with most tensors first."""
    types = {module_type}
    todo = [module_type]
    while todo:
        below = [cls for cls in todo.pop().__subclasses__() if cls not in types]
        types.update(below)
        todo += below
    # By exact type: `isinstance` would run code of whatever poses as something else.
    modules = [found for found in gc.get_objects() if type(found) in types]
    children = {id(m) for module in modules for m in vars(module)["_modules"].values()}
    roots = [module for module in modules if id(module) not in children]
    sizes = {id(root): sum(1 for _ in named_tensors([root])) for root in roots}
    roots.sort(key=lambda root: (is_traced(root), -sizes[id(root)]))
    return [root for root in roots if sizes[id(root)]]


def is_traced(module: Any) -> bool:
    """Tell whether a module is torch.fx's copy of another: its names are made up."""
    return any(cls.__name__ == "GraphModule" for cls in type(module).__mro__)


def named_tensors(roots: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Return parameters and buffers; outside of the first root, its class leads."""
    seen: set[int] = set()
    for index, root in enumerate(roots):
        prefix = f"{type(root).__name__}." if index else ""
        todo = [(prefix, root)]
        while todo:
            path, module = todo.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            own = vars(module)
            for name, tensor in [*own["_parameters"].items(), *own["_buffers"].items()]:
                if tensor is not None:
                    yield f"{path}{name}", tensor
            below = [(n, m) for n, m in own["_modules"].items() if m is not None]
            todo += [
                (path + child_name(root, module, name), child)
                for name, child in reversed(below)
            ]


def child_name(root: Any, module: Any, name: str) -> str:
    """Return a child's part of the path, empty if its parent only wraps it."""
    own = vars(module)
    is_data_parallel = (
        module is root
        and name == "module"
        and len(own["_modules"]) == 1
        and not own["_parameters"]
    )
    return "" if name in WRAPPERS or is_data_parallel else f"{name}."


def unique(objects: Iterable[Any]) -> list[Any]:
    """Return each object once, but for None."""
    return list({id(found): found for found in objects if found is not None}.values())
