"""A PyTorch job of operations of which it is known what they read and write.

Each iteration gives the inputs new values, then makes every operation once, with a
launch ahead of each that fills the marker. It prints where the tensors were.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

STEPS = 8
SIZE = 512  # a square matrix of floats is a MiB

READ = {"read"}
BOTH = {"both"}  # in place, or over what was there: it may have been read before
NEW = {"write"}  # memory that nothing was in
COPIED = {"write", "both"}  # by a call that says so, or by a kernel
# In one launch or in several: a later one finds what another wrote, and one that leaves
# its part elsewhere is given the result's address as well.
PRODUCT = {"read", "write", "both"}

Operation = Callable[[Any, Any, float], dict[str, Any]]
# Of each operation what it does to which tensors, and the directions that are right.
# `t` has the tensors that stay, `n` is the number of the iteration.
OPERATIONS: dict[str, tuple[Operation, dict[str, set[str]]]] = {
    "mul": (
        lambda torch, t, n: {"a": t.a, "b": t.b, "out": t.a * t.b},
        {"a": READ, "b": READ, "out": NEW},
    ),
    "add into": (
        lambda torch, t, n: {"a": t.a, "kept": torch.add(t.a, t.b, out=t.kept)},
        {"a": READ, "kept": BOTH},
    ),
    "fill_": (lambda torch, t, n: {"kept": t.kept.fill_(n)}, {"kept": BOTH}),
    # What it writes is there already: other launches of its kernel betray it.
    "fill_ with the same": (
        lambda torch, t, n: {"same": t.same.fill_(7.0)},
        {"same": BOTH},
    ),
    "full": (
        lambda torch, t, n: {"out": torch.full_like(t.a, n)},
        {"out": NEW},
    ),
    "add_": (
        lambda torch, t, n: {"kept": t.kept.add_(t.a), "a": t.a},
        {"kept": BOTH, "a": READ},
    ),
    "mul_ by 2": (lambda torch, t, n: {"kept": t.kept.mul_(2.0)}, {"kept": BOTH}),
    "mul_ by 1": (lambda torch, t, n: {"same": t.same.mul_(1.0)}, {"same": BOTH}),
    "add_ to a row": (
        lambda torch, t, n: {"row": t.kept[SIZE // 2].add_(n)},
        {"row": BOTH},
    ),
    "copy_": (
        lambda torch, t, n: {"kept": t.kept.copy_(t.a), "a": t.a},
        {"kept": COPIED, "a": READ},
    ),
    "copy_ to half": (
        lambda torch, t, n: {"half": t.half.copy_(t.a), "a": t.a},
        {"half": BOTH, "a": READ},
    ),
    "cat": (
        lambda torch, t, n: {"a": t.a, "b": t.b, "out": torch.cat([t.a, t.b])},
        {"a": READ, "b": READ, "out": NEW},
    ),
    "foreach_add_": (
        lambda torch, t, n: (
            torch._foreach_add_([t.kept, t.kept_too], n),
            {"kept": t.kept, "kept too": t.kept_too},
        )[1],
        {"kept": BOTH, "kept too": BOTH},
    ),
    "masked_fill_": (
        lambda torch, t, n: {"kept": t.kept.masked_fill_(t.mask, -n), "mask": t.mask},
        {"kept": BOTH, "mask": READ},
    ),
    "index_add_": (
        lambda torch, t, n: {
            "kept": t.kept.index_add_(0, t.rows, t.a),
            "rows": t.rows,
            "a": t.a,
        },
        {"kept": BOTH, "rows": READ, "a": READ},
    ),
    "index_select": (
        lambda torch, t, n: {
            "a": t.a,
            "rows": t.rows,
            "out": torch.index_select(t.a, 0, t.rows),
        },
        {"a": READ, "rows": READ, "out": NEW},
    ),
    "softmax": (
        lambda torch, t, n: {"a": t.a, "out": torch.softmax(t.a, 1)},
        {"a": READ, "out": NEW},
    ),
    "layer_norm": (
        lambda torch, t, n: {
            "a": t.a,
            "weight": t.weight,
            "bias": t.bias,
            "out": torch.nn.functional.layer_norm(t.a, (SIZE,), t.weight, t.bias),
        },
        {"a": READ, "weight": READ, "bias": READ, "out": NEW},
    ),
    "addmm": (
        lambda torch, t, n: {
            "a": t.a,
            "b": t.b,
            "bias": t.bias,
            "out": torch.addmm(t.bias, t.a, t.b),
        },
        {"a": READ, "b": READ, "bias": READ, "out": PRODUCT},
    ),
    "matmul in bfloat16": (
        lambda torch, t, n: {"left": t.left, "right": t.right, "out": t.left @ t.right},
        {"left": READ, "right": READ, "out": PRODUCT},
    ),
    "fused AdamW": (
        lambda torch, t, n: (
            t.optimizer.step(),
            {"parameter": t.parameter, "grad": t.parameter.grad}
            | {k: v for k, v in t.optimizer.state[t.parameter].items() if k != "step"},
        )[1],
        {"parameter": BOTH, "grad": READ, "exp_avg": BOTH, "exp_avg_sq": BOTH},
    ),
}


def tensors(torch: Any, device: str) -> SimpleNamespace:
    """Return those that stay, and their optimizer."""

    def zeros(*shape: int, dtype: str = "float32") -> Any:
        return torch.zeros(*shape, device=device, dtype=getattr(torch, dtype))

    parameter = torch.nn.Parameter(zeros(SIZE, SIZE))
    parameter.grad = zeros(SIZE, SIZE)
    return SimpleNamespace(
        a=zeros(SIZE, SIZE),
        b=zeros(SIZE, SIZE),
        kept=zeros(SIZE, SIZE),
        kept_too=zeros(SIZE, SIZE),
        same=zeros(SIZE, SIZE).fill_(7.0),
        half=zeros(SIZE, SIZE, dtype="float16"),
        left=zeros(SIZE, SIZE, dtype="bfloat16"),
        right=zeros(SIZE, SIZE, dtype="bfloat16"),
        weight=zeros(SIZE),
        bias=zeros(SIZE),
        rows=torch.arange(SIZE - 1, -1, -1, device=device),
        mask=torch.eye(SIZE, dtype=torch.bool, device=device),
        marker=zeros(SIZE),
        parameter=parameter,
        optimizer=torch.optim.AdamW([parameter], fused=True),
    )


def make_all(torch: Any, t: SimpleNamespace, number: int) -> dict[str, dict[str, Any]]:
    """Make every operation; return the tensors of each, so that they stay alive."""
    for tensor in (t.a, t.b, t.left, t.right, t.weight, t.bias):
        tensor.normal_()
    for tensor in (t.kept, t.kept_too, t.parameter.grad):
        tensor.uniform_(1.0, 2.0)
    made = {}
    for index, (name, (operate, _)) in enumerate(OPERATIONS.items()):
        t.marker.fill_(float(number * len(OPERATIONS) + index))
        made[name] = operate(torch, t, float(number))
    return made


def main(device: str = "cuda") -> None:
    """Make some iterations, and print where each tensor was."""
    import torch

    t = tensors(torch, device)
    with torch.no_grad():
        for number in range(1, STEPS + 1):
            made = make_all(torch, t, number)
            places = {
                operation: {
                    name: (tensor.data_ptr(), tensor.nbytes)
                    for name, tensor in of.items()
                }
                for operation, of in made.items()
            }
            line = {"marker": t.marker.data_ptr(), "places": places}
            print(json.dumps({"iteration": number, **line}), flush=True)
            del made


if __name__ == "__main__":
    main()
