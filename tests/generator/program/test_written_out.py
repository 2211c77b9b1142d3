"""Modules that differentiate while they run are exported as the graph of what their derivatives compute."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opwright.generator.program import torch_compat as compat  # noqa: E402
from opwright.generator.program.written_out import differentiates  # noqa: E402


class Field(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        self.register_buffer("calls", torch.zeros(()))

    def one(self, x: Any) -> Any:
        return self.net(x).squeeze(-1)


class Force(Field):
    def forward(self, x: Any) -> Any:
        self.calls += 1
        return {"force": -torch.func.grad(lambda p: self.one(p).sum())(x), "calls": self.calls * 1}


class Slope(Field):
    def forward(self, x: Any) -> Any:
        slope = torch.func.vmap(torch.func.jacrev(self.one))(x)
        return slope, self.one(x)


class Recorded(Field):
    """Asks for no recording of what it differentiates: it is called where that is on."""

    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(self.one(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("kind", [Force, Slope, Recorded])
def test_derivatives_are_written_out_for_any_batch(kind: type) -> None:
    module = kind()
    program = compat.export(module, (torch.randn(4, 3),), {}, [(0,)]).module()
    assert "forward" not in vars(module)
    x = torch.randn(7, 3)
    got = program(x.clone())
    want = compat.called(kind(), (x.clone(),), {})  # the exported program shares the first one's buffer
    for a, b in zip(*(torch.utils._pytree.tree_leaves(t) for t in (got, want)), strict=True):
        torch.testing.assert_close(a, b)


def test_other_failures_are_not_taken_for_it() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as plain:
        fails(1)
    assert not differentiates(plain.value)
    with pytest.raises(ValueError, match="no") as inside:
        torch.func.grad(fails)(torch.ones(()))
    assert differentiates(inside.value)
