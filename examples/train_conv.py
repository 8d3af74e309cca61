"""Train a residual convolutional network to tell how stripes in a picture lie.

Plain PyTorch, channels last, with batch norm; the pictures are made up. Prints one JSON
line per step:

    python train_conv.py --preset small --steps 5
    python train_conv.py --preset medium --steps 20 --deterministic
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import create_parser, positive, repeatable, resize, run_steps

CLASSES = 10
EXPANSION = 4  # of channels, at the end of a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One size of network and how it is trained."""

    width: int
    blocks: tuple[int, ...]  # in each stage
    resolution: int
    batch: int
    pictures: int
    amp: bool


PRESETS = {
    # Seconds on a CPU.
    "small": Preset(
        width=8, blocks=(1, 1), resolution=32, batch=32, pictures=256, amp=False
    ),
    # 24 M parameters, as ResNet-50.
    "medium": Preset(
        width=64, blocks=(3, 4, 6, 3), resolution=224, batch=64, pictures=256, amp=True
    ),
}


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with the batch norm behind it."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """Three convolutions, the middle one on fewer channels, around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = conv(inputs, width, 1)
        self.spread = conv(width, width, 3, stride)
        self.expand = conv(width, outputs, 1)
        is_alike = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if is_alike else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = F.relu(self.reduce(x))
        y = F.relu(self.spread(y))
        return F.relu(self.expand(y) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem that shrinks the picture, stages of bottlenecks, one linear layer."""

    def __init__(self, preset: Preset) -> None:
        super().__init__()
        width = preset.width
        self.stem = nn.Sequential(
            conv(3, width, 7, stride=2), nn.ReLU(), conv(width, width, 3, stride=2)
        )
        blocks: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(preset.blocks):
            for place in range(count):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(Bottleneck(channels, width << stage, stride))
                channels = (width << stage) * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of guessing ``labels``."""
        x = self.blocks(F.relu(self.stem(pictures)))
        # Not adaptive pooling, whose backward pass is not deterministic.
        return F.cross_entropy(self.head(x.mean(dim=(2, 3))).float(), labels)


def make_pictures(count: int, resolution: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy stripes as 8-bit RGB, and which way those of each picture lie."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angle = (labels * (math.pi / CLASSES))[:, None, None]
    phase = torch.rand(count, 1, 1, generator=generator) * 2 * math.pi
    y, x = torch.meshgrid(
        *(torch.linspace(0, 16 * math.pi, resolution) for _ in "yx"), indexing="ij"
    )
    waves = torch.sin(x * angle.cos() + y * angle.sin() + phase)
    color = torch.rand(count, 3, 1, 1, generator=generator)
    noise = torch.randn(count, 1, resolution, resolution, generator=generator)
    pictures = 128 + 64 * waves[:, None] * color + 16 * noise
    return pictures.clamp(0, 255).to(torch.uint8), labels


def batches(preset: Preset, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random ones of the pictures with their labels."""
    pictures, labels = make_pictures(preset.pictures, preset.resolution, seed)
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(labels), (preset.batch,), generator=generator)
        yield pictures[chosen], labels[chosen]


def train(args: argparse.Namespace, preset: Preset) -> None:
    """Run ``args.steps`` optimizer steps, printing each."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    with device:
        model = ResNet(preset)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4
    )
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=preset.amp)
    data = batches(preset, args.seed)

    def step() -> Tensor:
        pictures, labels = (part.to(device) for part in next(data))
        pictures = pictures.to(torch.float32, memory_format=torch.channels_last)
        with autocast:
            loss = model(pictures / 128 - 1, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    run_steps(args.steps, device, step)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = create_parser(__doc__, PRESETS)
    parser.add_argument("--batch", type=positive, help="pictures per step")
    parser.add_argument(
        "--amp",
        action=argparse.BooleanOptionalAction,
        help="compute in bfloat16 where PyTorch finds it safe",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Train as the command line says."""
    args = parse_arguments()
    with repeatable(wanted=args.deterministic):
        train(args, resize(PRESETS[args.preset], args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
