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


class Dropped(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        f = torch.nn.functional
        flat, one = x.flatten(1), x[0].clone()
        f.dropout(one, 0.5, True, inplace=True)
        return (
            f.dropout(flat, 0.25, True),
            f.dropout2d(x, 0.25, True),
            f.dropout3d(x, 0.25, True),
            f.alpha_dropout(flat, 0.25, True),
            one,
            f.dropout(flat, 0.25, False),
        )


def test_what_is_dropped_is_drawn_and_keeps_its_mean() -> None:
    x = torch.ones(50, 40, 4, 5)
    model = drawing(Model("m", "here", Dropped(), (x,), {}))
    shapes = [tuple(t.shape) for t in model.kwargs["drawn"]]
    assert shapes == [(40, 4, 5), (50, 800), (50, 40, 1, 1), (50, 1, 1, 1), (50, 800)]
    each, channels, samples, alpha, one, none = model.module(x, **model.kwargs)
    for out in (each, channels, samples):
        assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert abs(each.mean() - 1) < 0.03 and abs(channels.mean() - 1) < 0.06
    assert channels.flatten(2).unique(dim=2).shape[2] == 1 and samples.flatten(1).unique(dim=1).shape[1] == 1
    assert set(one.unique().tolist()) == {0.0, 2.0} and torch.equal(none, x.flatten(1))
    want = torch.nn.functional.alpha_dropout(x.flatten(1), 0.25, True).unique()
    torch.testing.assert_close(alpha.unique(), want)
