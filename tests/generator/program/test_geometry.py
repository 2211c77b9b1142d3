"""Geometry becomes constants of the module, and what an exporter asks of it is Python's number."""

from __future__ import annotations

from typing import Any

import pytest

from opwright.generator.program import geometry
from opwright.generator.program import torch_compat as compat
from opwright.generator.program.known import knowing

torch = pytest.importorskip("torch")


class Packed(torch.nn.Module):  # type: ignore[misc]
    """Two images' patches in a row, each cut out by numbers that a tensor holds."""

    config = None

    def forward(self, patches: Any, grid_thw: Any) -> Any:
        out, at = [], 0
        for t, h, w in grid_thw:
            n = int(t * h * w)
            out.append(patches[at : at + n].mean(0, keepdim=True).repeat(t, 1) + torch.arange(h).sum())
            at += n
        if (grid_thw[:, 1] == 4).all():
            out.append(patches.new_zeros(1, patches.shape[1]))
        return torch.cat(out)


INPUTS = {
    "patches": torch.linspace(-1, 1, 96).reshape(32, 3),
    "grid_thw": torch.tensor([[1, 4, 4], [1, 2, 8]]),
}


def test_the_geometry_is_held_and_the_rest_is_given() -> None:
    module, inputs, given = geometry.placed(Packed(), INPUTS)
    assert list(inputs) == ["patches"]
    assert given == {"grid_thw": [[1, 4, 4], [1, 2, 8]]}
    assert torch.equal(module(**inputs), Packed()(**INPUTS))


def test_what_holds_no_geometry_stays_itself() -> None:
    module, inputs = Packed(), {"patches": INPUTS["patches"]}
    assert geometry.placed(module, inputs) == (module, inputs, {})


def test_an_export_of_it_asks_the_data_nothing() -> None:
    module, inputs, _ = geometry.placed(Packed(), INPUTS)
    ep = torch.export.export(module, (), inputs, strict=False)
    asked = [n for n in ep.graph.nodes if "local_scalar" in str(n.target) or "nonzero" in str(n.target)]
    assert not asked
    assert torch.equal(ep.module()(**inputs), Packed()(**INPUTS))


def test_what_something_unknown_was_written_to_is_unknown() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    real = torch.tensor([3, 4])
    value = real.clone()
    x, data = (mode.from_tensor(t) for t in (real, torch.tensor([5, 6])))
    with mode, knowing({x: value}):
        assert (x + 1).tolist() == [4, 5]
        y = x * 2
        y[0] = 9
        assert y.tolist() == [9, 8]
        y[1] = data[0]
        with pytest.raises(Exception, match=r"_local_scalar_dense"):
            y.tolist()


class Chooses(torch.nn.Module):  # type: ignore[misc]
    """What is done depends on what a buffer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("on", torch.tensor([1.0, 0.0]))

    def forward(self, x: Any) -> Any:
        return x * 2 if self.on[0] > 0 and not self.on[1] > 0 else x


def test_a_choice_by_a_buffer_is_known() -> None:
    module = Chooses()
    ep = compat.export(module, (torch.ones(2, 3),), {}, [(0,)])
    assert torch.equal(ep.module()(torch.ones(5, 3)), torch.full((5, 3), 2.0))
    assert "forward" not in vars(module)


class Makes(torch.nn.Module):  # type: ignore[misc]
    """A tensor is made of numbers, and read."""

    def forward(self, x: Any) -> Any:
        times, wide = torch.tensor([2, x.shape[1]]).tolist()
        return x.repeat(times, 1) * wide


def test_numbers_that_were_made_are_not_read() -> None:
    ep = compat.export(Makes(), (torch.ones(2, 3),), {}, [(0,)])
    assert not compat._reads(ep)
    assert torch.equal(ep.module()(torch.ones(5, 3)), torch.full((10, 3), 3.0))
