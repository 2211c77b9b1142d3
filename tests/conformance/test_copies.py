"""Overloads that are another's with a copy, answers for Python, and statistics that are kept: as PyTorch says."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import opwright as ow  # noqa: E402
from opwright.exceptions import OpTypeError  # noqa: E402

pytestmark = pytest.mark.conformance


def random(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, Y = random(4, 5), random(3, 4, 5)
MASKED = X.masked_fill(torch.arange(4)[:, None] == 1, -float("inf"))
MEAN, VAR = random(4), random(4).abs() + 0.5
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "_chunk_cat.default": [([X, random(3, 5)], 0, 2)],
    "_pdist_forward.default": [(X,), (X, 1.0), (X[:1],)],
    "_safe_softmax.default": [(MASKED, 1), (MASKED, 0)],
    "_trilinear.default": [(random(3, 2), random(4, 2, 5), random(3, 5), [1, 3], [0], [1, 2], [2, 3])],
    "alias_copy.default": [(X,)],
    "allclose.default": [(X, X + 1e-9), (X, X + 1)],
    "as_strided_copy.default": [(X, [2, 2], [1, 2], 1)],
    "as_strided_scatter.default": [(X, random(2, 2), [2, 2], [1, 2], 1)],
    "diagonal_copy.default": [(X, 1)],
    "diagonal_scatter.default": [(X, random(2), -2), (X, random(4)), (X, random(2), 3), (X, random(0), 9)],
    "equal.default": [(X, X), (X, X + 1), (X, X[:1])],
    "expand_copy.default": [(X[:1], [3, 5])],
    "isin.Tensor_Tensor": [
        (torch.arange(6).reshape(2, 3), torch.tensor([1, 4])),
        (torch.arange(6), torch.tensor([5])),
        (torch.arange(3), torch.tensor([], dtype=torch.int64)),
    ],
    "linspace.Tensor_Scalar": [(torch.tensor(1.0), 3.0, 5)],
    "log_sigmoid_forward.default": [(X,)],
    "logspace.default": [(0.0, 3.0, 5, 2.0)],
    "logspace.Scalar_Tensor": [(0.0, torch.tensor(3.0), 5, 2.0)],
    "mvlgamma.default": [(X.abs() + 3, 1), (X.abs() + 3, 4)],
    "narrow_copy.default": [(X, 0, 1, 2)],
    "native_batch_norm.default": [
        (Y, random(4), random(4), MEAN, VAR, training, 0.1, 1e-5) for training in (True, False)
    ],
    "permute_copy.default": [(X, [1, 0])],
    "sgn.default": [(X,)],
    "split_with_sizes_copy.default": [(X, [1, 3])],
    "squeeze_copy.dim": [(X[:1], 0)],
    "zero.default": [(X,)],
}


def copied(args: tuple[Any, ...]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch_says(name: str) -> None:
    packet, overload = name.split(".")
    for args in CALLS[name]:
        ours, theirs = copied(args), copied(args)
        want = getattr(getattr(torch.ops.aten, packet), overload)(*theirs)
        got = ow.call_aten(f"aten.{name}", *ours)
        pairs = list(zip(want, got, strict=True)) if isinstance(want, tuple | list) else [(want, got)]
        for w, g in [*pairs, *zip(theirs, ours, strict=True)]:  # and what was given is changed alike
            if isinstance(w, torch.Tensor):
                g = g if isinstance(g, torch.Tensor) else torch.from_numpy(g.numpy())
                torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)
            else:
                assert g == w


def test_running_statistics_move_in_place() -> None:
    mean, var = MEAN.clone(), VAR.clone()
    ow.call_aten("aten.native_batch_norm.default", Y, None, None, mean, var, True, 0.3, 1e-5)
    torch.testing.assert_close(mean, 0.7 * MEAN + 0.3 * Y.mean((0, 2)))
    torch.testing.assert_close(var, 0.7 * VAR + 0.3 * Y.transpose(0, 1).reshape(4, -1).var(1))


def test_a_copy_shares_nothing() -> None:
    x = ow.from_dlpack(X.clone())
    assert ow.call_aten("aten.alias_copy.default", x).data_ptr() != x.data_ptr()
    assert ow.call_aten("aten.alias.default", x).data_ptr() == x.data_ptr()


def test_what_is_not_among_the_others() -> None:
    found = ow.call_aten("aten.isin.Tensor_Tensor", torch.arange(4), torch.tensor([1, 3]), invert=True)
    assert found.tolist() == [True, False, True, False]


def test_strides_that_were_asked_for() -> None:
    assert ow.call_aten("aten.empty_permuted.default", [2, 3, 4], [2, 0, 1]).strides == (3, 1, 6)
    assert ow.call_aten("aten.empty_strided.default", [2, 3], [1, 2]).strides == (1, 2)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OpTypeError, match=r"a source of shape \[3\] for a window of shape \[4\]"):
        ow.call_aten("aten.diagonal_scatter.default", X, random(3))
    with pytest.raises(OpTypeError, match="there are no running statistics"):
        ow.call_aten("aten.native_batch_norm.default", Y, None, None, None, None, False, 0.1, 1e-5)
