"""The mixture-of-experts example: tokens reach their experts by either product."""

from __future__ import annotations

import math

import pytest
from example_jobs import lines_of

torch = pytest.importorskip("torch")

import train_moe  # noqa: E402
from train_gpt import GPT  # noqa: E402

DIM, EXPERTS = 16, 3


def create_experts(dtype: torch.dtype) -> train_moe.MixtureOfExperts:
    torch.manual_seed(0)
    layer = train_moe.MixtureOfExperts(DIM, experts=EXPERTS, mm=train_moe.looped_mm)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.to(dtype)


def one_token_at_a_time(
    layer: train_moe.MixtureOfExperts, token: torch.Tensor
) -> torch.Tensor:
    """Do what the layer says it does, in the plainest way."""
    normed = layer.norm(token)
    scores = layer.router(normed)
    best = scores.argsort(descending=True)[: train_moe.EXPERTS_PER_TOKEN]
    return sum(
        share
        * (torch.nn.functional.gelu(normed @ layer.up[expert]) @ layer.down[expert])
        for expert, share in zip(best, scores[best].softmax(dim=0), strict=True)
    )


def test_each_token_goes_to_its_two_best_experts() -> None:
    layer = create_experts(torch.float64)
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    expected = [one_token_at_a_time(layer, token) for token in x.flatten(0, 1)]
    torch.testing.assert_close(layer(x).flatten(0, 1), torch.stack(expected))


def test_groups_are_aligned_and_apart() -> None:
    layer = create_experts(torch.float32)
    chosen = torch.tensor([2, 0, 2, 2] * 7)  # the middle one has nothing to do
    place, ends = layer.sort(chosen)
    assert len(set(place.tolist())) == len(chosen)
    starts = [0, *ends.tolist()[:-1]]
    assert all(start % train_moe.ROWS_ALIGNMENT == 0 for start in starts)
    for expert, (start, end) in enumerate(zip(starts, ends.tolist(), strict=True)):
        places = place[chosen == expert]
        assert ((places >= start) & (places < end)).all()


@pytest.mark.skipif(
    not hasattr(torch, "_grouped_mm"), reason="torch has no such product"
)
def test_both_products_give_the_same_gradients() -> None:
    layer = create_experts(torch.bfloat16)
    x = torch.randn(1, 20, DIM).to(torch.bfloat16)
    gradients = []
    for mm in (train_moe.looped_mm, train_moe.grouped_mm):
        layer.mm = mm
        layer.zero_grad()
        layer(x).float().square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    for looped, grouped in zip(*gradients, strict=True):
        torch.testing.assert_close(looped, grouped)


def test_deterministic_runs_agree_say_how_and_learn() -> None:
    options = ("--steps", "6", "--batch", "2", "--deterministic")
    first, second = (lines_of("train_moe.py", *options) for _ in range(2))
    assert first[0] == second[0] == {"experts": 4, "product": "looped_mm"}
    losses = [line["loss"] for line in first[1:]]
    assert losses == [line["loss"] for line in second[1:]]
    assert losses[0] == pytest.approx(math.log(256), rel=0.05)
    assert losses[-1] < losses[0] - 0.5


def test_medium_has_the_size_it_claims() -> None:
    preset = train_moe.PRESETS["medium"]
    with torch.device("meta"):
        model = GPT(preset, train_moe.mixtures(preset, train_moe.looped_mm))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters / 1e9 == pytest.approx(0.57, rel=0.01)
