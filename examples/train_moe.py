"""Train a byte-level transformer with a mixture of experts in each block.

Each token goes to the two experts that the router likes best. Plain PyTorch, nothing to
download. Says which matrix product it uses, then prints one JSON line per step:

    python train_moe.py --preset small --steps 5
    python train_moe.py --preset medium --steps 20 --deterministic
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from train_gpt import Preset, train
from training import create_parser, positive, repeatable, resize

EXPERTS_PER_TOKEN = 2
# Grouped products want every group to begin at 16 bytes: 8 rows of bfloat16.
ROWS_ALIGNMENT = 8

GroupedMM = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEPreset(Preset):
    """One size of model and how it is trained."""

    experts: int


PRESETS = {
    # 1.3 M parameters: seconds on a CPU.
    "small": MoEPreset(
        layers=2,
        dim=128,
        heads=4,
        experts=4,
        sequence=128,
        batch=4,
        learning_rate=1e-3,
        weights=torch.float32,
    ),
    # 0.57 B parameters, everything in bf16.
    "medium": MoEPreset(
        layers=8,
        dim=1024,
        heads=8,
        experts=8,
        sequence=1024,
        batch=8,
        learning_rate=1e-4,
        weights=torch.bfloat16,
    ),
}


def looped_mm(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group of rows of ``x``, which end at ``ends``, by its weight."""
    groups = x.tensor_split(ends.tolist())  # and what is behind the last one
    return torch.cat(
        [rows @ weight for rows, weight in zip(groups, weights, strict=False)]
    )


def grouped_mm(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Do as `looped_mm` in one kernel; rows behind the last group are undefined."""
    return torch._grouped_mm(x, weights, offs=ends)


def choose_mm(device: torch.device, dtype: torch.dtype) -> GroupedMM:
    """Return the one kernel where PyTorch has it: bf16 on Hopper and newer."""
    is_available = (
        hasattr(torch, "_grouped_mm")
        and dtype == torch.bfloat16
        and device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (9, 0)
    )
    return grouped_mm if is_available else looped_mm


class MixtureOfExperts(nn.Module):
    """As many MLPs as there are experts, and a router, behind a norm."""

    def __init__(self, dim: int, *, experts: int, mm: GroupedMM) -> None:
        super().__init__()
        self.mm = mm
        self.norm = nn.RMSNorm(dim)
        self.router = nn.Linear(dim, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, dim, 4 * dim))
        self.down = nn.Parameter(torch.empty(experts, 4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return what to add to ``x`` of (batch, sequence, dim)."""
        tokens = self.norm(x).flatten(0, 1)
        scores, chosen = self.router(tokens).topk(EXPERTS_PER_TOKEN)
        place, ends = self.sort(chosen.flatten())
        copies = tokens.repeat_interleave(EXPERTS_PER_TOKEN, dim=0)
        rows = len(place) + len(self.up) * ROWS_ALIGNMENT  # enough, however they fall
        grouped = tokens.new_zeros(rows, x.shape[-1]).index_copy(0, place, copies)
        hidden = F.gelu(self.mm(grouped, self.up, ends))
        outputs = self.mm(hidden, self.down, ends)[place]
        share = scores.softmax(dim=-1).flatten()[:, None]
        combined = (outputs * share).unflatten(0, (-1, EXPERTS_PER_TOKEN)).sum(dim=1)
        return combined.view_as(x)

    def sort(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's place among the rows by expert, and where those end.

        Nothing is read back: the host does not wait for the device.
        """
        experts = torch.arange(len(self.up), device=chosen.device)
        is_chosen = chosen[:, None] == experts
        rank = is_chosen.cumsum(dim=0).gather(1, chosen[:, None])[:, 0] - 1
        counts = is_chosen.sum(dim=0)
        padded = (counts + ROWS_ALIGNMENT - 1) // ROWS_ALIGNMENT * ROWS_ALIGNMENT
        ends = padded.cumsum(dim=0)
        return (ends - padded)[chosen] + rank, ends.to(torch.int32)


def mixtures(preset: MoEPreset, mm: GroupedMM) -> Callable[[int], MixtureOfExperts]:
    """Return what makes the layer that takes the place of each block's MLP."""
    return partial(MixtureOfExperts, experts=preset.experts, mm=mm)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = create_parser(__doc__, PRESETS)
    parser.add_argument("--batch", type=positive, help="sequences per step")
    parser.add_argument("--sequence", type=positive, help="tokens per sequence")
    parser.set_defaults(compile=False, fsdp=False)
    return parser.parse_args(arguments)


def main() -> int:
    """Train as the command line says."""
    args = parse_arguments()
    preset = resize(PRESETS[args.preset], args)
    mm = choose_mm(torch.device(args.device), preset.weights)
    print(json.dumps({"experts": preset.experts, "product": mm.__name__}), flush=True)
    with repeatable(wanted=args.deterministic):
        train(args, preset, mixtures(preset, mm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
