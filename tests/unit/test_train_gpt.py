"""The training example: its numbers repeat, it learns, and it is what it says."""

from __future__ import annotations

import math
from functools import partial

import pytest
from example_jobs import steps_of

torch = pytest.importorskip("torch")

import train_gpt  # noqa: E402
from training import resize  # noqa: E402

train = partial(steps_of, "train_gpt.py")


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


@pytest.mark.parametrize(
    "option", ["--steps", "--batch", "--sequence", "--micro-batches"]
)
def test_nonsense_sizes_are_refused(option: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        train_gpt.parse_arguments([option, "0"])
    assert stopped.value.code == 2


def test_options_change_the_preset_and_nothing_else_does() -> None:
    preset = train_gpt.PRESETS["small"]
    assert resize(preset, train_gpt.parse_arguments([])) == preset
    resized = resize(preset, train_gpt.parse_arguments(["--sequence", "16"]))
    assert (resized.sequence, resized.batch) == (16, preset.batch)
    model = train_gpt.create_model(resized, torch.device("cpu"))
    assert model.position.shape == (16, preset.dim)


def test_sharding_over_ranks_changes_who_holds_what_only() -> None:
    alone = train("--steps", "2", "--deterministic")
    sharded = train("--steps", "2", "--deterministic", "--fsdp", processes=1)
    assert [line["loss"] for line in sharded] == pytest.approx(
        [line["loss"] for line in alone], rel=1e-4
    )
    # Two ranks, on other data each: the first one prints, once per step.
    both = train("--steps", "2", "--fsdp", processes=2)
    assert [line["step"] for line in both] == [0, 1]
    assert both[0]["loss"] == pytest.approx(math.log(256), rel=0.05)
    assert both[0]["loss"] != alone[0]["loss"]


def test_sharding_without_torchrun_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(SystemExit):
        train_gpt.parse_arguments(["--fsdp"])
    assert "torchrun" in capsys.readouterr().err


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
