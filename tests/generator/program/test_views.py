"""Stride rules against torch's own, on drawn shapes; and over symbols, against the same rule on numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwright.generator.program import views
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.views import Layout

torch = pytest.importorskip("torch")

of = IntExpr.of


def ints(xs: Any) -> tuple[IntExpr, ...]:
    return tuple(of(int(x)) for x in xs)


def same(layout: Layout, want: Any, base: Any) -> None:
    """Whether the layout over `base` shows exactly the tensor `want`."""
    shape = [n.value for n in layout.shape]
    assert shape == list(want.shape)
    got = torch.as_strided(base, shape, [n.value for n in layout.strides], layout.offset.value)
    assert torch.equal(got, want)
    for n, have, stride in zip(shape, layout.strides, want.stride(), strict=True):
        if n > 1 and want.numel():  # torch's own strides, wherever a stride can be seen
            assert have.value == stride


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, tuple[Any, ...]]]]:
    """A shape and a chain of views that torch accepts."""
    shape = draw(
        st.lists(st.integers(0, 4) if draw(st.integers(0, 9)) == 0 else st.integers(1, 4), max_size=4)
    )
    x = torch.zeros(shape)
    steps: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(draw(st.integers(1, 5))):
        step = draw(one_step(x))
        y = apply_torch(x, step)
        if y.dim() <= 6:
            x = y
            steps.append(step)
    return shape, steps


@st.composite
def one_step(draw: st.DrawFn, x: Any) -> tuple[str, tuple[Any, ...]]:
    rank = x.dim()
    kinds = ["permute", "unsqueeze", "squeeze", "expand"]
    if rank:
        kinds += ["transpose", "slice", "split", "unfold"]
        if any(x.shape):
            kinds += ["select"]
    if rank > 1:
        kinds += ["diagonal"]
    kind = draw(st.sampled_from(kinds))
    dim = draw(st.integers(-rank, rank - 1)) if rank else 0
    match kind:
        case "permute":
            return kind, (draw(st.permutations(range(rank))),)
        case "transpose":
            return kind, (dim, draw(st.integers(-rank, rank - 1)))
        case "unsqueeze":
            return kind, (draw(st.integers(-rank - 1, rank)),)
        case "squeeze":
            return kind, (
                draw(
                    st.one_of(
                        st.none(),
                        st.lists(st.integers(0, rank - 1), unique=True, max_size=2) if rank else st.none(),
                    )
                ),
            )
        case "expand":
            lead = draw(st.lists(st.integers(1, 3), max_size=2))
            return kind, (
                [
                    *lead,
                    *(draw(st.sampled_from([n, -1])) if n != 1 else draw(st.integers(1, 3)) for n in x.shape),
                ],
            )
        case "slice":
            bound = st.integers(-6, 6)
            return kind, (dim, draw(bound), draw(bound), draw(st.integers(1, 3)))
        case "split":
            n = x.shape[dim]
            at = draw(st.integers(0, n))
            return kind, (dim, (at, n - at), draw(st.integers(0, 1)))
        case "unfold":
            n = x.shape[dim]
            return kind, (dim, draw(st.integers(0, n)), draw(st.integers(1, 3)))
        case "select":
            dims = [d for d in range(rank) if x.shape[d]]
            d = draw(st.sampled_from(dims))
            return kind, (d, draw(st.integers(-x.shape[d], x.shape[d] - 1)))
    dims2 = draw(st.permutations(range(rank)))
    return "diagonal", (draw(st.integers(-2, 2)), dims2[0], dims2[1])


def apply_torch(x: Any, step: tuple[str, tuple[Any, ...]]) -> Any:
    kind, args = step
    match kind:
        case "slice":
            return torch.ops.aten.slice.Tensor(x, *args)
        case "split":
            return torch.split(x, list(args[1]), args[0])[args[2]]
        case "squeeze":
            return x.squeeze() if args[0] is None else x.squeeze(args[0])
        case "expand":
            return x.expand(args[0])
    return getattr(x, kind)(*args)


def apply_ours(x: Layout, step: tuple[str, tuple[Any, ...]], length: bool, want: Any) -> Layout:
    kind, args = step
    match kind:
        case "permute":
            return views.permute(x, args[0])
        case "expand":
            return views.expand(x, ints(args[0]))
        case "select":
            return views.select(x, args[0], of(args[1]))
        case "slice":
            known = of(want.shape[args[0]]) if length else None
            return views.slice_dim(x, args[0], of(args[1]), of(args[2]), args[3], length=known)
        case "split":
            return views.split(x, args[0], ints(args[1]))[args[2]]
        case "diagonal":
            return views.diagonal(x, *args)
        case "unfold":
            return views.unfold(x, *args)
        case "transpose":
            return views.transpose(x, *args)
        case "unsqueeze":
            return views.unsqueeze(x, *args)
    return views.squeeze(x, args[0])


@given(chains(), st.booleans())
def test_chains_of_views_read_what_torch_reads(
    chain: tuple[list[int], list[tuple[str, tuple[Any, ...]]]], length: bool
) -> None:
    shape, steps = chain
    base = torch.arange(max(int(torch.zeros(shape).numel()), 1), dtype=torch.int64)
    x = base[: torch.zeros(shape).numel()].reshape(shape)
    layout = views.contiguous(ints(shape))
    for step in steps:
        y = apply_torch(x, step)
        layout = apply_ours(layout, step, length, y)
        if y.numel():
            same(layout, y, base)
        else:
            assert [n.value for n in layout.shape] == list(y.shape)
        x = y


@given(chains(), st.data())
def test_reshape_where_torch_can(
    chain: tuple[list[int], list[tuple[str, tuple[Any, ...]]]], data: st.DataObject
) -> None:
    """None exactly where torch refuses to view."""
    shape, steps = chain
    base = torch.arange(max(int(torch.zeros(shape).numel()), 1), dtype=torch.int64)
    x = base[: torch.zeros(shape).numel()].reshape(shape)
    layout = views.contiguous(ints(shape))
    for step in steps:
        x = apply_torch(x, step)
        layout = apply_ours(layout, step, False, x)
    if not x.numel():
        return
    new = factors(x.numel(), data)
    try:
        want = x.view(new)
    except RuntimeError:
        assert views.reshape(layout, ints(new)) is None
        return
    got = views.reshape(layout, ints(new))
    assert got is not None
    same(got, want, base)


def factors(n: int, data: st.DataObject) -> list[int]:
    out: list[int] = []
    while n > 1:
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        d = data.draw(st.sampled_from(divisors))
        out.append(d)
        n //= d
        if len(out) > 5:
            break
    out.append(n)
    return data.draw(st.permutations(out))


@given(st.integers(1, 4), st.integers(1, 5))
def test_symbols_agree_with_numbers(b: int, s: int) -> None:
    """Heads split and merged, as attention does it, over symbols."""
    env = {"b": b, "s": s}
    B, S = of("b"), of("s")
    x = views.contiguous((B * S, of(12)))
    split = views.reshape(x, (B, S, of(3), of(4)))
    assert split is not None
    heads = views.permute(split, (0, 2, 1, 3))
    assert views.reshape(heads, (B * 3, S, of(4))) is None
    back = views.reshape(views.permute(heads, (0, 2, 1, 3)), (B, S, of(12)))
    assert back is not None and views.is_contiguous(back)
    base = torch.arange(b * s * 12)
    want = base.reshape(b, s, 3, 4).permute(0, 2, 1, 3)
    got = torch.as_strided(
        base, [n.evaluate(env) for n in heads.shape], [n.evaluate(env) for n in heads.strides]
    )
    assert torch.equal(got, want)


def test_expanded_dims_merge_only_where_all_are_broadcast() -> None:
    B = of("b")
    x = views.expand(views.contiguous((of(1), of(1), of(8))), (B, of(3), of(8)))
    assert views.reshape(x, (B * 3, of(8))) is not None
    assert views.reshape(x, (B, of(24))) is None


def test_slice_of_a_symbol_keeps_the_proven_extent() -> None:
    S = of("s")
    table = views.contiguous((of(1), of(64)))
    assert views.slice_dim(table, 1, of(0), S, length=S).shape == (of(1), S)
    tail = views.slice_dim(views.contiguous((S,)), 0, of(-1), of(2**63 - 1), length=of(1))
    assert tail.offset == S - 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: views.permute(x, (0, 0)), ValueError),
        (lambda x: views.select(x, 2, of(0)), IndexError),
        (lambda x: views.slice_dim(x, 0, of(0), of(1), 0), ValueError),
        (lambda x: views.expand(x, ints((2, 5))), ValueError),
        (lambda x: views.expand(x, ints((5,))), ValueError),
        (lambda x: views.diagonal(x, 0, 1, 1), ValueError),
        (lambda x: views.unfold(x, 0, 1, 0), ValueError),
    ],
)
def test_what_torch_refuses_is_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(views.contiguous(ints((2, 3))))
