"""Control flow and masks leave the exported graph: the graph means what the module does, and what cannot be said is
refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops.associative_scan import associative_scan  # noqa: E402
from torch._higher_order_ops.map import map as hop_map  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

from opwright.generator.program import records  # noqa: E402
from opwright.generator.program import torch_compat as compat  # noqa: E402
from opwright.generator.program.capture import capture  # noqa: E402
from opwright.generator.program.captured import Capture, CaptureError  # noqa: E402


def module(forward: Callable[..., Any]) -> Any:
    class Plain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Linear(4, 4)

    Plain.forward = forward  # type: ignore[method-assign]
    torch.manual_seed(0)
    return Plain().eval()


def cond(self: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: self.w(x).relu(), lambda x: x * 2 - 1, (x,))


def nested(self: Any, x: Any) -> Any:
    def outer(x: Any) -> Any:
        return torch.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    return torch.cond(x.sum() > 0, outer, lambda x: x * 2, (x,))


def scanned(self: Any, x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        c = torch.tanh(self.w(c) + row)
        return c, c * 2

    return scan(step, torch.zeros(4), x, dim=0)


def scanned_backwards(self: Any, x: Any) -> Any:
    return scan(lambda c, row: (c * 0.5 + row, c.sin()), torch.ones(4), x, dim=0, reverse=True)


def mapped(self: Any, x: Any) -> Any:
    return hop_map(lambda row: row.sin() * row.sum(), x)


def associative(self: Any, x: Any) -> Any:
    return associative_scan(lambda a, b: a * b + b, x, dim=0, combine_mode="generic")


def counted(self: Any, x: Any) -> Any:
    _, y = while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5 - 1), (torch.tensor(0), x))
    return y


def masked_read(self: Any, x: Any) -> Any:
    return x[x > 0] * 2, torch.masked_select(x, x < 0.5), x[x[:, 0] > 0]


def masked_write(self: Any, x: Any) -> Any:
    a, b, c = x.clone(), x.clone(), x.clone()
    a[x > 0] = 0.25
    b[x > 0] = x[x > 0] * 3
    c[x[:, 0] > 0] = 7.0
    return a, b, c


CASES = [cond, nested, scanned, scanned_backwards, mapped, associative, counted, masked_read, masked_write]


def made(forward: Callable[..., Any], everything: Any) -> tuple[Any, Capture]:
    m = module(forward)
    return m, capture(m, (torch.randn(3, 4),), {}, everything, name=forward.__name__, source=forward.__name__)


@pytest.mark.parametrize("forward", CASES, ids=lambda f: f.__name__)
def test_the_graph_gives_what_the_module_gives(forward: Callable[..., Any], everything: Any) -> None:
    m, captured = made(forward, everything)
    assert not [c.op for c in captured.program.calls if "higher_order" in c.op or c.missing]
    for seed in range(4):  # both branches, several masks
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        want = records.eager(m, (x,), {})
        have = records.values(captured, {"x": x})
        for b in captured.program.outputs:
            torch.testing.assert_close(have[b.value], want[b.name])


@pytest.mark.parametrize("forward", [cond, scanned, mapped, associative, counted], ids=lambda f: f.__name__)
def test_the_reference_in_f64_is_eager_in_f64(forward: Callable[..., Any]) -> None:
    """Not f32 under another name: what f32 rounds away is there."""
    x = torch.randn(3, 4)
    wide = compat.tensors_of(
        list(records.eager(module(forward), (x,), {}, compat.dtype_of(torch.float64)).values())
    )
    narrow = compat.tensors_of(list(records.eager(module(forward), (x,), {}).values()))
    for a, b in zip(wide, narrow, strict=True):
        assert a.dtype == torch.float64
        torch.testing.assert_close(a.float(), b)
        assert not torch.equal(a, b.double())


def test_a_loop_fixes_the_extent_that_it_walks_and_no_other(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return scan(lambda c, row: (c + row, c * row), torch.zeros(x.shape[1], 4), x, dim=0)

    m = module(forward)
    c = capture(m, (torch.randn(3, 2, 4),), {}, everything, name="m", source="m")
    (value,) = (c.program.values[b.value] for b in c.program.inputs)
    assert value.shape[0].value == 3 and value.shape[1].names()
    assert any("scan runs" in n for n in c.notes)


def test_a_loop_that_data_ends_is_refused_by_name_and_place(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,))

    with pytest.raises(CaptureError, match="while_loop ends when its data says so") as caught:
        capture(module(forward), (torch.rand(3, 4),), {}, everything, name="m", source="m")
    assert caught.value.hint and "mask" in caught.value.hint


def test_a_branch_on_data_is_refused_with_the_line(everything: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        if x.sum() > 0:  # the line
            return x * 2
        return x - 1

    with pytest.raises(CaptureError) as caught:
        capture(module(forward), (torch.randn(3, 4),), {}, everything, name="m", source="m")
    place = caught.value.place
    assert place is not None and place.text is not None and "if x.sum() > 0:  # the line" in place.text
    assert caught.value.hint and "torch.cond" in caught.value.hint


def test_another_cause_gets_another_hint(everything: Any) -> None:
    class Odd:
        pass

    def forward(self: Any, x: Any) -> Any:
        return Odd()

    with pytest.raises(CaptureError) as caught:
        capture(module(forward), (torch.randn(3, 4),), {}, everything, name="m", source="m")
    assert caught.value.hint and "dataclasses" in caught.value.hint


def test_an_extent_of_one_is_allowed_where_it_holds(everything: Any) -> None:
    def forward(self: Any, x: Any, edge: Any) -> Any:
        return x[edge[0]] - x[edge[1]]

    m = module(forward)
    args = (torch.randn(5, 4), torch.randint(0, 5, (2, 7)))
    p = capture(m, args, {}, everything, name="m", source="m").program
    least = {(s.source, s.axis): s.min for s in p.symbols.values()}
    assert least[("edge", 0)] == 2, "the second row must be there"
    assert least[("edge", 1)] == 1 and least[("x", 0)] == 1
