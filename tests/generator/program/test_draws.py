"""Random numbers that a model draws become inputs of its program."""

from __future__ import annotations

from typing import Any

import pytest

from opwright.generator.program.draws import drawing
from opwright.generator.program.models import Model

torch = pytest.importorskip("torch")


class Noisy(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        kinds = torch.randint(5, (x.shape[0],))
        more = torch.randint(low=2, high=4, size=(3,), dtype=torch.int32)
        alike = torch.randint_like(x, 1, 3)
        return x + torch.randn_like(x), kinds, more, alike


def test_integers_are_drawn_from_plain_draws_too() -> None:
    x = torch.zeros(64, 3)
    model = drawing(Model("m", "here", Noisy(), (x,), {}))
    assert [tuple(t.shape) for t in model.kwargs["drawn"]] == [(64,), (3,), (64, 3), (64, 3)]
    y, kinds, more, alike = model.module(x, **model.kwargs)
    assert set(kinds.tolist()) == {0, 1, 2, 3, 4} and kinds.dtype is torch.int64
    assert set(more.tolist()) <= {2, 3} and more.dtype is torch.int32
    assert set(alike.unique().tolist()) == {1.0, 2.0} and alike.dtype is torch.float32
    again = model.module(x, **model.kwargs)
    assert all(torch.equal(a, b) for a, b in zip((y, kinds, more, alike), again, strict=True))


class Chosen(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        hard = torch.nn.functional.gumbel_softmax(x.log(), hard=True)
        return hard, torch.multinomial(x, 2), x[0].multinomial(9, True), torch.randperm(6)


def test_choices_and_orders_are_made_of_plain_draws() -> None:
    x = torch.tensor([0.0, 1.0, 3.0]).repeat(256, 1)
    model = drawing(Model("m", "here", Chosen(), (x,), {}))
    assert [tuple(t.shape) for t in model.kwargs["drawn"]] == [(256, 3), (256, 3), (9,), (6,)]
    hard, twice, often, order = model.module(x, **model.kwargs)
    assert torch.equal(hard.sum(-1), torch.ones(256)) and hard[:, 0].sum() == 0
    assert 0.6 < hard[:, 2].mean() < 0.9  # three of four
    assert set(map(tuple, twice.sort(-1).values.tolist())) == {(1, 2)}
    assert 0.6 < (twice[:, 0] == 2).float().mean() < 0.9
    assert set(often.tolist()) <= {1, 2} and sorted(order.tolist()) == list(range(6))
