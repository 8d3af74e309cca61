"""Train a byte-level GPT on the Python standard library's own sources.

Plain PyTorch, one process, nothing to download. Prints one JSON line per step:

    python train_gpt.py --preset small --steps 5
    python train_gpt.py --preset medium --steps 20 --deterministic
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

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


class Block(nn.Module):
    """Attention and MLP, each behind a norm and a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp_norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for ``x`` of (batch, sequence, dim)."""
        batch, sequence, dim = x.shape
        qkv = self.qkv(self.attention_norm(x))
        qkv = qkv.view(batch, sequence, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, dim))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class GPT(nn.Module):
    """A decoder-only transformer over bytes."""

    def __init__(self, preset: Preset) -> None:
        super().__init__()
        self.checkpointing = preset.checkpointing
        self.token = nn.Embedding(VOCABULARY, preset.dim)
        self.position = nn.Parameter(torch.empty(preset.sequence, preset.dim))
        self.blocks = nn.ModuleList(
            Block(preset.dim, preset.heads) for _ in range(preset.layers)
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


def create_model(preset: Preset, device: torch.device) -> GPT:
    """Build the model in place on ``device``, with no copy in another type."""
    with torch.device("meta"):
        model = GPT(preset)
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


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Make every step repeat bit for bit, or raise where PyTorch cannot.

    cuBLAS needs fixed workspaces, named before CUDA starts. Of the fused
    attention kernels, flash has a deterministic backward pass (cuDNN has none in
    PyTorch); math is the fallback for types and devices without flash.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


def train(args: argparse.Namespace, preset: Preset) -> None:
    """Run ``args.steps`` optimizer steps, printing each."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    model = create_model(preset, device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=preset.learning_rate, fused=True
    )
    forward = torch.compile(model) if args.compile else model
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=preset.autocast)
    batch = args.batch or preset.batch
    micro_batches = args.micro_batches or preset.micro_batches
    data = batches(read_corpus(), batch, preset.sequence, args.seed)

    for step in range(args.steps):
        synchronize(device)
        start = time.perf_counter()
        total = torch.zeros((), device=device)
        for _ in range(micro_batches):
            tokens, targets = (part.to(device) for part in next(data))
            with autocast:
                loss = forward(tokens, targets) / micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # The wall clock from an idle device to an idle device: the whole step as
        # its user waits for it, host time included.
        synchronize(device)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        report(step, total.item(), elapsed_ms, device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def report(step: int, loss: float, elapsed_ms: float, device: torch.device) -> None:
    """Print one step; ``loss_hex`` is exact, memory is the most so far."""
    on_gpu = device.type == "cuda"
    line = {
        "step": step,
        "loss": loss,
        "loss_hex": loss.hex(),
        "ms": round(elapsed_ms, 3),
        "peak_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
        "reserved_bytes": torch.cuda.max_memory_reserved(device) if on_gpu else None,
    }
    print(json.dumps(line), flush=True)


def positive(text: str) -> int:
    """Parse a positive integer for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=PRESETS, default="small")
    parser.add_argument("--steps", type=positive, default=10)
    parser.add_argument("--batch", type=positive, help="sequences per micro-batch")
    parser.add_argument(
        "--micro-batches", type=positive, help="gradients summed per step"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="same numbers in every run"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Train as the command line says."""
    args = parse_arguments()
    with deterministic() if args.deterministic else contextlib.nullcontext():
        train(args, PRESETS[args.preset])
    return 0


if __name__ == "__main__":
    sys.exit(main())
