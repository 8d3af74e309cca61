"""The training example: its numbers repeat, it learns, and it is what it says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib import resources
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from transit.examples import train_gpt  # noqa: E402

SCRIPT = str(resources.files("transit.examples") / "train_gpt.py")


def train(*options: str) -> list[dict[str, Any]]:
    command = [sys.executable, SCRIPT, "--device", "cpu", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_deterministic_runs_agree_to_the_last_bit_and_learn() -> None:
    first, second = (train("--steps", "8", "--deterministic") for _ in range(2))
    assert [line["loss_hex"] for line in first] == [line["loss_hex"] for line in second]
    assert first[0]["loss"] == pytest.approx(math.log(256), rel=0.05)
    assert first[-1]["loss"] < first[0]["loss"] - 1
    assert [line["step"] for line in first] == list(range(8))
    assert all(float.fromhex(line["loss_hex"]) == line["loss"] for line in first)


def test_seed_changes_the_run() -> None:
    losses = {train("--steps", "1", "--seed", seed)[0]["loss"] for seed in ("1", "2")}
    assert len(losses) == 2


def test_memory_is_not_invented_on_a_cpu() -> None:
    (line,) = train("--steps", "1", "--batch", "1", "--micro-batches", "2")
    assert line["peak_bytes"] is None
    assert line["reserved_bytes"] is None


@pytest.mark.parametrize("option", ["--steps", "--batch", "--micro-batches"])
def test_nonsense_sizes_are_refused(option: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        train_gpt.parse_arguments([option, "0"])
    assert stopped.value.code == 2


@pytest.mark.parametrize(("preset", "billions"), [("medium", 0.7), ("large", 2.7)])
def test_presets_have_the_size_they_claim(preset: str, billions: float) -> None:
    with torch.device("meta"):
        model = train_gpt.GPT(train_gpt.PRESETS[preset])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_checkpointing_changes_memory_not_gradients() -> None:
    preset = train_gpt.PRESETS["small"]
    torch.manual_seed(0)
    model = train_gpt.create_model(preset, torch.device("cpu"))
    tokens, targets = next(
        train_gpt.batches(train_gpt.read_corpus(), 2, preset.sequence, seed=0)
    )
    gradients = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        model.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_targets_are_the_next_bytes() -> None:
    corpus = torch.arange(256, dtype=torch.uint8).repeat(4)
    tokens, targets = next(train_gpt.batches(corpus, 3, 16, seed=0))
    assert tokens.shape == targets.shape == (3, 16)
    assert torch.equal((tokens + 1) % 256, targets)
