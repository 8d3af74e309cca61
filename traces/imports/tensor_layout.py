"""Where tensors lie: the allocations that published lists of tensors stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from transit.traces.imports.tensor_lists import NEVER, Bools, Ints, TensorLists

PIECE_BYTES = 2 << 20  # what an allocation is a multiple of on the GPU
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class Layout:
    """Allocations in the order of their birth, and what lies where in them.

    A tensor has an allocation of its own, but those that are smaller than a piece share
    one, which is always there. A workspace is an allocation that cannot be moved.
    """

    bytes: Ints
    first: Ints  # the kernels from first to before stop; NEVER: always
    stop: Ints
    movable: Bools
    of_tensor: Ints
    offset: Ints
    of_workspace: Ints

    @classmethod
    def of(cls, lists: TensorLists) -> Self:
        """Lay out the tensors and workspaces of an iteration."""
        sizes, workspaces = lists.tensor_bytes, lists.of_kernels("workspace_bytes")
        is_small = sizes < PIECE_BYTES
        large, small = np.flatnonzero(~is_small), np.flatnonzero(is_small)
        at = np.flatnonzero(workspaces)
        ends = np.cumsum(-(-sizes[small] // _PAGE_BYTES) * _PAGE_BYTES)
        shared = ends[-1:]  # of no length if no tensor is small
        first = np.r_[np.zeros_like(shared), lists.first[large], at]
        stop = np.r_[np.full_like(shared, NEVER), lists.stop[large], at + 1]
        born = np.argsort(first, kind="stable")
        index = np.argsort(born)
        of_shared, of_large, of_workspace = np.split(
            index, [len(shared), len(shared) + len(large)]
        )
        of_tensor, offset = np.zeros_like(sizes), np.zeros_like(sizes)
        of_tensor[large] = of_large
        of_tensor[small] = np.repeat(of_shared, len(small))
        offset[small[1:]] = ends[:-1]
        movable = np.ones(len(born), np.bool_)
        movable[of_workspace] = False
        return cls(
            bytes=np.r_[shared, sizes[large], workspaces[at]][born],
            first=first[born],
            stop=stop[born],
            movable=movable,
            of_tensor=of_tensor,
            offset=offset,
            of_workspace=of_workspace,
        )
