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
