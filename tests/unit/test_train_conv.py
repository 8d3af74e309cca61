"""The convolutional example: its numbers repeat, it learns, and it is what it says."""

from __future__ import annotations

from functools import partial

import pytest
from example_jobs import steps_of

torch = pytest.importorskip("torch")

import train_conv  # noqa: E402

train = partial(steps_of, "train_conv.py")


def test_deterministic_runs_agree_and_learn() -> None:
    first, second = (train("--steps", "12", "--deterministic") for _ in range(2))
    losses = [line["loss"] for line in first]
    assert losses == [line["loss"] for line in second]
    assert losses[-1] < losses[0] - 0.5


def test_precision_changes_the_numbers() -> None:
    losses = {train("--steps", "1", amp)[0]["loss"] for amp in ("--amp", "--no-amp")}
    assert len(losses) == 2


def test_medium_is_a_resnet_50() -> None:
    with torch.device("meta"):
        model = train_conv.ResNet(train_conv.PRESETS["medium"])
    # ResNet-50 without its 1000 classes has 23.5 M.
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters / 1e6 == pytest.approx(23.5, rel=0.01)
    x = torch.empty(1, 3, 224, 224, device="meta")
    assert model.blocks(model.stem(x)).shape == (1, 2048, 7, 7)


def test_pictures_differ_by_how_their_stripes_lie() -> None:
    pictures, labels = train_conv.make_pictures(64, 32, seed=0)
    assert pictures.dtype == torch.uint8
    assert pictures.shape == (64, 3, 32, 32)
    upright = pictures[labels == 0].float()  # label 0: all rows are alike
    by_column, by_row = (upright.mean(dim=dim).std() for dim in (2, 3))
    assert by_column > 2 * by_row
