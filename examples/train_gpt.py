"""Train a byte-level GPT on the Python standard library's own sources.

Plain PyTorch, nothing to download. Prints one JSON line per step:

    python train_gpt.py --preset small --steps 5
    python train_gpt.py --preset medium --steps 20 --deterministic
    torchrun --nproc-per-node 2 train_gpt.py --preset medium --fsdp
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from training import create_parser, positive, repeatable, resize, run_steps

VOCABULARY = 256  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One size of model and how it is trained."""

    layers: int
    dim: int
    heads: int
    sequence: int
    batch: int
    micro_batches: int = 1
    learning_rate: float
    weights: torch.dtype
    autocast: bool = False
    checkpointing: bool = False


PRESETS = {
    # 0.5 M parameters: seconds on a CPU.
    "small": Preset(
        layers=2,
        dim=128,
        heads=4,
        sequence=128,
        batch=4,
        learning_rate=1e-3,
        weights=torch.float32,
    ),
    # 0.7 B parameters, everything in bf16.
    "medium": Preset(
        layers=14,
        dim=2048,
        heads=16,
        sequence=1024,
        batch=8,
        learning_rate=1e-4,
        weights=torch.bfloat16,
    ),
    # 2.7 B parameters, float32 weights and AdamW state, bf16 compute.
    "large": Preset(
        layers=34,
        dim=2560,
        heads=20,
        sequence=2048,
        batch=4,
        micro_batches=8,
        learning_rate=1e-4,
        weights=torch.float32,
        autocast=True,
        checkpointing=True,
    ),
}


class Attention(nn.Module):
    """Causal self-attention behind a norm."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what to add to ``x`` of (batch, sequence, dim)."""
        batch, sequence, dim = x.shape
        qkv = self.qkv(self.norm(x))
        qkv = qkv.view(batch, sequence, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, sequence, dim))


class MLP(nn.Module):
    """Two linear layers behind a norm."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what to add to ``x``."""
        return self.down(F.gelu(self.up(self.norm(x))))


class Block(nn.Module):
    """Attention and MLP, each with a residual connection."""

    def __init__(self, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for ``x`` of (batch, sequence, dim)."""
        x = x + self.attention(x)
        return x + self.mlp(x)


MakeMLP = Callable[[int], nn.Module]


class GPT(nn.Module):
    """A decoder-only transformer over bytes."""

    def __init__(self, preset: Preset, make_mlp: MakeMLP = MLP) -> None:
        super().__init__()
        self.checkpointing = preset.checkpointing
        self.token = nn.Embedding(VOCABULARY, preset.dim)
        self.position = nn.Parameter(torch.empty(preset.sequence, preset.dim))
        self.blocks = nn.ModuleList(
            Block(Attention(preset.dim, preset.heads), make_mlp(preset.dim))
            for _ in range(preset.layers)
        )
        self.norm = nn.RMSNorm(preset.dim)
        self.head = nn.Linear(preset.dim, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of predicting ``targets``."""
        x = self.token(tokens) + self.position
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def create_model(preset: Preset, device: torch.device, make_mlp: MakeMLP = MLP) -> GPT:
    """Build the model in place on ``device``, with no copy in another type."""
    with torch.device("meta"):
        model = GPT(preset, make_mlp)
    model.to(preset.weights).to_empty(device=device)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=0.02)
    return model


def read_corpus() -> Tensor:
    """Return the standard library's top-level modules as one tensor of bytes."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def batches(
    corpus: Tensor, batch: int, sequence: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (tokens, targets) from random places, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(sequence + 1)
    while True:
        starts = torch.randint(len(corpus) - sequence, (batch, 1), generator=generator)
        text = corpus[starts + window].long()
        yield text[:, :-1], text[:, 1:]


def shard(model: GPT) -> None:
    """Leave each rank a part of every parameter, gathered block by block."""
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)


@contextlib.contextmanager
def process_group(device_type: str) -> Iterator[None]:
    """Join the other processes that torchrun has started."""
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def train(args: argparse.Namespace, preset: Preset, make_mlp: MakeMLP = MLP) -> None:
    """Run ``args.steps`` optimizer steps, printing each."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    model = create_model(preset, device, make_mlp)
    rank = 0
    if args.fsdp:
        shard(model)
        rank = dist.get_rank()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=preset.learning_rate, fused=True
    )
    forward = torch.compile(model) if args.compile else model
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=preset.autocast)
    data = batches(read_corpus(), preset.batch, preset.sequence, args.seed + rank)

    def step() -> Tensor:
        total = torch.zeros((), device=device)
        for _ in range(preset.micro_batches):
            tokens, targets = (part.to(device) for part in next(data))
            with autocast:
                loss = forward(tokens, targets) / preset.micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if args.fsdp:
            dist.all_reduce(total)
            total /= dist.get_world_size()
        return total

    run_steps(args.steps, device, step)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a language model's training."""
    parser.add_argument("--batch", type=positive, help="sequences per micro-batch")
    parser.add_argument("--sequence", type=positive, help="tokens per sequence")
    parser.add_argument(
        "--micro-batches", type=positive, help="gradients summed per step"
    )
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument(
        "--fsdp", action="store_true", help="shard over the ranks of torchrun"
    )


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = create_parser(__doc__, PRESETS)
    add_options(parser)
    args = parser.parse_args(arguments)
    if args.fsdp and "LOCAL_RANK" not in os.environ:
        parser.error("--fsdp needs torchrun to start the processes")
    return args


def main() -> int:
    """Train as the command line says."""
    args = parse_arguments()
    group = process_group(args.device) if args.fsdp else contextlib.nullcontext()
    with repeatable(wanted=args.deterministic), group:
        train(args, resize(PRESETS[args.preset], args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
