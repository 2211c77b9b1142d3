"""Overloads that no row says alone: views share memory and are what NumPy says; the rest become the right call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import opwright as ow
from opwright import registry
from opwright.aten import Planned, plan_aten
from opwright.fronts import COMPOSE, PREPARE, VIEWS, Refused, front

from .conftest import registered

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def signature(name: str, inputs: list[str], attrs: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "inputs": [{"name": n, "optional": False, "list": n == "i"} for n in inputs],
        "attrs": [{"name": n, "kind": "ints", "static": False, "optional": True} for n in attrs],
        "outputs": [{"name": "y", "aux": False}],
    }


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signatures and rows as the specs give them; nothing is run, so that there are no kernels."""
    ops = [
        signature("contiguous", ["x"], []),
        signature("index", ["x", "i"], []),
        signature("index_put", ["x", "i", "v"], ["accumulate"]),
        signature("constant_pad", ["x"], ["before", "after", "value"]),
        signature("flip", ["x"], ["flags"]),
        signature("repeat", ["x"], ["times"]),
        signature("slice_scatter", ["x", "s"], ["dim", "start", "step"]),
        signature("rms_norm", ["x", "w"], ["normalized_shape", "eps"]),
        signature("clamp", ["x"], ["lo", "hi"]),
        signature("sort", ["x"], ["dim", "descending"]),
        signature("argmax", ["x"], ["dim", "keepdim"]),
        signature("cast", ["x"], ["dtype"]),
        signature("avg_pool", ["x"], ["kernel", "stride", "padding", "ceil_mode", "count_include_pad"]),
    ]
    rows: dict[str, dict[str, Any]] = {
        "aten.clone.default": {"op": "contiguous", "map": [["self", "x"]]},
        "aten.index.Tensor": {"op": "index", "map": [["self", "x"], ["indices", "i"]]},
        "aten.index_put.default": {
            "op": "index_put",
            "map": [["self", "x"], ["indices", "i"], ["values", "v"], ["accumulate", "accumulate"]],
        },
        "aten.rms_norm.default": {
            "op": "rms_norm",
            "map": [
                ["input", "x"],
                ["normalized_shape", "normalized_shape"],
                ["weight", "w"],
                ["eps", "eps"],
            ],
        },
        "aten.hardtanh.default": {
            "op": "clamp",
            "map": [["self", "x"], ["min_val", "lo"], ["max_val", "hi"]],
        },
        "aten.avg_pool2d.default": {
            "op": "avg_pool",
            "map": [
                ["self", "x"],
                ["kernel_size", "kernel"],
                ["stride", "stride"],
                ["padding", "padding"],
                ["ceil_mode", "ceil_mode"],
                ["count_include_pad", "count_include_pad"],
                ["divisor_override", {"only": None}],
            ],
        },
        "aten.argmax.default": {
            "op": "argmax",
            "map": [["self", "x"], ["dim", "dim"], ["keepdim", "keepdim"]],
        },
        "aten.sort.stable": {
            "op": "sort",
            "map": [["self", "x"], ["stable", {"only": True}], ["dim", "dim"], ["descending", "descending"]],
        },
    }
    with registered(ops):
        monkeypatch.setattr(registry, "_aten", {})
        for overload, row in rows.items():
            registry.register_aten(overload, row)
        yield


@pytest.mark.parametrize(
    ("overload", "args", "want"),
    [
        ("view", (X, [6, -1]), X.reshape(6, 4)),
        ("permute", (X, [2, 0, 1]), X.transpose(2, 0, 1)),
        ("transpose.int", (X, 0, -1), X.swapaxes(0, 2)),
        ("t", (X[0],), X[0].T),
        ("expand", (X[:, :1], [2, 3, -1]), np.broadcast_to(X[:, :1], (2, 3, 4))),
        ("unsqueeze", (X, -1), X[..., None]),
        ("squeeze", (X[:, :1, None],), X[:, 0]),
        ("squeeze.dim", (X[:, :1], 1), X[:, 0]),
        ("squeeze.dim", (X, 1), X),
        ("squeeze.dims", (X[:1, :1], [0, -1]), X[0, :1]),
        ("slice.Tensor", (X, 1, -2, 2**63 - 1, 1), X[:, -2:]),
        ("slice.Tensor", (X, 2, 1, 99, 2), X[..., 1::2]),
        ("slice.Tensor", (X, 2, 3, 1), X[..., 3:1]),
        ("select.int", (X, 1, -1), X[:, -1]),
        ("alias", (X,), X),
        ("detach", (X,), X),
        ("diagonal", (X, 1, 2, 1), np.diagonal(X, 1, 2, 1)),
        ("diagonal", (X, -1, 0, 1), np.diagonal(X, -1, 0, 1)),
        ("diagonal", (X, 9, 0, 1), np.diagonal(X, 9, 0, 1)),
        ("unfold", (X, 2, 3, 1), np.lib.stride_tricks.sliding_window_view(X, 3, 2)),
        ("unfold", (X, 1, 2, 2), np.lib.stride_tricks.sliding_window_view(X, 2, 1)[:, ::2]),
        ("as_strided", (X, [2, 2], [4, 1], 5), np.array([[5, 6], [9, 10]], np.float32)),
    ],
)  # fmt: skip
def test_views(overload: str, args: tuple[Any, ...], want: Any) -> None:
    name = f"aten.{overload}" if "." in overload else f"aten.{overload}.default"
    got = ow.call_aten(name, *args)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)
    if want.size:
        assert np.shares_memory(got.numpy(), X)


def test_views_in_parts() -> None:
    for overload, args, want in [
        ("aten.split.Tensor", (X, 3, 2), [X[..., :3], X[..., 3:]]),
        ("aten.split_with_sizes.default", (X, [1, 0, 2], 1), [X[:, :1], X[:, 1:1], X[:, 1:]]),
        ("aten.unbind.int", (X,), [X[0], X[1]]),
    ]:
        got = ow.call_aten(overload, *args)
        assert isinstance(got, tuple) and len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize(
    ("overload", "args", "text"),
    [
        ("aten.view.default", (X.swapaxes(0, 2), [24]), "do not allow a view"),
        ("aten.select.int", (X, 3, 0), "dim 3 is out of range"),
        ("aten.split_with_sizes.default", (X, [1, 1], 1), "do not fill an axis of extent 3"),
        ("aten.diagonal.default", (X, 0, 1, 1), "are the same"),
        ("aten.unfold.default", (X, 0, 3, 1), "has no windows of 3"),
        ("aten.view.default", (X,), "missing a required argument: 'size'"),
        ("aten.index.Tensor", (X, [np.zeros(1, np.float32)]), "f32 is no index"),
        ("aten.index.Tensor", (X, [np.zeros(2, np.int64), np.zeros(3, np.int64)]), "do not broadcast"),
        ("aten.index_put.default", (X, [None], X), "there is no index"),
        ("aten.avg_pool2d.default", (X, [2, 2, 2]), "should have 2 entries"),
        ("aten.avg_pool2d.default", (X, [2], [], 0, False, True, 0), "`divisor_override` must not be 0"),
        ("aten.avg_pool2d.default", (X, [43, 43]), "a window of 43 does not fit into 3"),
        ("aten.avg_pool2d.default", (X, [2], [], -1), "`padding` must not be negative"),
        ("aten.avg_pool2d.default", (X[0], [2]), "`self` must have rank 3 or 4"),
        ("aten.constant_pad_nd.default", (X, [1]), "do not pad"),
        ("aten.index_add.default", (X, 0, np.zeros(1, np.int64), X[0]), "source has rank 2, self 3"),
    ],
)
def test_what_a_front_refuses(overload: str, args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ow.OpTypeError, match=text):
        ow.call_aten(overload, *args)


def plan(overload: str, *args: Any, **kwargs: Any) -> Planned:
    out = plan_aten(overload, args, kwargs)
    assert isinstance(out, Planned)
    return out


def test_what_a_mask_takes_is_laid_flat_where_it_has_axes() -> None:
    registry.register_op(signature("masked_scatter", ["x", "m", "src"], []))
    flat = plan("aten.masked_scatter.default", X[0, 0], X[0, 0] > 1, X)
    assert (flat.op, flat.arguments["x"].shape, flat.arguments["src"].shape) == (
        "masked_scatter",
        (4,),
        (24,),
    )
    many = plan("aten.masked_scatter.default", X, X[:, :, :1] > 7, X)
    assert many.arguments["m"].shape == (24,)
    assert many.finish(many.arguments["x"]).shape == X.shape


@pytest.mark.parametrize(
    "key",
    [
        (np.array([1, 0]),), (None, np.array([2, 0, 1])), (None, np.array([2, 0, 1]), np.array([[0], [3]])),
        (np.array([1, 0]), None, np.array([3, -1])), (None, None, np.array([[1, 2], [0, 3]])),
    ],
)  # fmt: skip
def test_index_puts_indexed_axes_first_and_the_result_where_numpy_has_it(key: Any) -> None:
    want = X[tuple(slice(None) if k is None else k for k in key)]
    planned = plan("aten.index.Tensor", X, list(key))
    x, i = planned.arguments["x"].numpy(), tuple(t.numpy() for t in planned.arguments["i"])
    assert len({t.shape for t in i}) == 1
    assert planned.finish is not None
    np.testing.assert_array_equal(planned.finish(ow.from_dlpack(x[i])).numpy(), want)

    values = np.arange(want.size, dtype=np.float32).reshape(want.shape) + 100
    put = plan("aten.index_put.default", X, list(key), values)
    y = put.arguments["x"].numpy().copy()
    y[tuple(t.numpy() for t in put.arguments["i"])] = put.arguments["v"].numpy()
    direct = X.copy()
    direct[tuple(slice(None) if k is None else k for k in key)] = values
    assert put.finish is not None
    np.testing.assert_array_equal(put.finish(ow.from_dlpack(y)).numpy(), direct)


def test_calls_of_another_operator() -> None:
    pad = plan("aten.constant_pad_nd.default", X, [1, 2, 3, -1], 7)
    assert pad.op == "constant_pad" and pad.arguments["value"] == 7
    assert (pad.arguments["before"], pad.arguments["after"]) == ([0, 3, 1], [0, -1, 2])
    assert plan("aten.flip.default", X, [0, -1]).arguments["flags"] == [1, 0, 1]
    with pytest.raises(ow.OpTypeError, match="an axis appears twice"):
        plan("aten.flip.default", X, [0, -X.ndim])
    tiled = plan("aten.repeat.default", X, [2, 1, 1, 3])
    assert tiled.arguments["x"].shape == (1, 2, 3, 4) and tiled.arguments["times"] == [2, 1, 1, 3]
    placed = plan("aten.slice_scatter.default", X, X[:, :1], 1, -1)
    assert (placed.op, placed.arguments["start"], placed.arguments["s"].shape) == (
        "slice_scatter",
        -1,
        (2, 1, 4),
    )
    assert plan("aten._to_copy.default", X, dtype="float32").op == "contiguous"
    cast = plan("aten._to_copy.default", X, dtype=np.float64, device="cpu", non_blocking=False)
    assert (cast.op, cast.arguments["dtype"]) == ("cast", "f64")
    pool = plan("aten.avg_pool2d.default", X, [2])
    assert (pool.arguments["kernel"], pool.arguments["stride"], pool.arguments["padding"]) == (
        [2, 2],
        [2, 2],
        [0, 0],
    )
    beyond = (X.shape[-2] + 40, X.shape[-1] + 2 + 40)  # what is left of a window that is rounded up
    for size, ceil_mode, kernel in (
        (beyond, True, [X.shape[-2], X.shape[-1] + 2]),
        ((2, X.shape[-1] + 2), True, [2, X.shape[-1] + 2]),
    ):
        pool = plan("aten.avg_pool2d.default", X, list(size), [], [0, 1], ceil_mode)
        assert pool.arguments["kernel"] == kernel and pool.arguments["stride"] == list(size)


def test_defaults_that_depend_on_the_dtype() -> None:
    half, double = X.astype(np.float16), X.astype(np.float64)
    for x, eps in ((half, 2.0**-23), (X, 2.0**-23), (double, 2.0**-52)):
        assert plan("aten.rms_norm.default", x, [4]).arguments["eps"] == eps
        assert plan("aten.rms_norm.default", x, [4], None, 0.5).arguments["eps"] == 0.5
    ends = plan("aten.hardtanh.default", X.astype(np.int64), -1.5, 2.5).arguments
    assert (ends["lo"], ends["hi"]) == (-1, 2) and isinstance(ends["lo"], int)
    assert plan("aten.hardtanh.default", X).arguments["lo"] == -1
    assert plan("aten.sort.stable", X, stable=False).arguments["dim"] == -1


def test_rank_zero_is_one_element_along_dim_0() -> None:
    registry.register_op(
        {
            "name": "sort",
            "inputs": [{"name": "x"}],
            "attrs": [{"name": "dim", "kind": "axis", "default": -1}, {"name": "descending", "kind": "bool"}],
            "outputs": [{"name": "y"}],
        }
    )
    planned = plan("aten.sort.stable", X[0, 0, 0].reshape(()))
    assert planned.arguments["x"].shape == (1,) and planned.finish is not None
    assert planned.finish(planned.arguments["x"]).shape == ()
    assert plan("aten.sort.stable", X).finish is None


def test_a_view_is_in_one_table() -> None:
    assert not set(VIEWS) & {*PREPARE, *COMPOSE}
    for each in (VIEWS, PREPARE, COMPOSE):
        assert list(each) == sorted(each)


def test_a_place_among_all_elements_is_one_of_a_row() -> None:
    for dim in ({}, {"dim": None}):
        planned = plan("aten.argmax.default", X, **dim)
        assert planned.arguments["x"].shape == (X.size,)
        assert planned.arguments["dim"] == 0
        assert planned.finish is None
    kept = plan("aten.argmax.default", X, None, True)
    assert kept.arguments["keepdim"] is False
    assert np.asarray(kept.finish(np.array(3))).shape == (1,) * X.ndim
    assert plan("aten.argmax.default", X, 1).arguments["dim"] == 1


A = np.arange(3)


@pytest.mark.parametrize(
    ("overload", "args", "says"),
    [
        ("aten.mm.default", (A, A), "`self` must have rank 2, it has 1"),
        ("aten.bmm.default", (np.ones((1, 2, 2)), np.ones((2, 2))), "`mat2` must have rank 3, it has 2"),
        ("aten.bmm.default", (np.ones((1, 2, 2)), np.ones((3, 2, 2))), "a batch of 1, `mat2` of 3"),
    ],
)
def test_rules_refuse_what_the_overload_does(overload: str, args: tuple[Any, ...], says: str) -> None:
    with pytest.raises(Refused, match=says):
        front(PREPARE, overload, args, {})


def test_rules_leave_what_is_right() -> None:
    call = front(PREPARE, "aten.bmm.default", (np.ones((3, 1, 2)), np.ones((3, 2, 4))), {})
    assert call.to == "aten.bmm.default"
    assert front(PREPARE, "aten.scalar_tensor.default", (3,), {}).arguments["dtype"] == "f32"
    assert front(PREPARE, "aten.scalar_tensor.default", (3,), {"dtype": "i64"}).arguments["dtype"] == "i64"


@pytest.mark.parametrize(
    ("overload", "args"),
    [
        ("aten.stack.default", ([], -1)),
        ("aten.roll.default", (X, [-3, [1]], [0, 1])),
        ("aten.permute.default", (X, "abc")),
        ("aten.view.default", (X, None)),
        ("aten.select.int", (X, None, 0)),
        ("aten.expand.default", (X, [2, 3, 2**70])),
    ],
)
def test_a_front_says_every_bad_argument_of_its_overload(overload: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(ow.OpError, match=rf"^{overload}"):
        plan_aten(overload, args, {})


@pytest.mark.parametrize("kwargs", [{"device": "cuda"}, {"device": "meta"}, {"layout": "torch.sparse_coo"}])
def test_a_tensor_elsewhere_is_not_given_here(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ow.OpTypeError, match=rf"`{next(iter(kwargs))}` must be"):
        plan_aten("aten.clone.default", (X,), kwargs)
    assert (
        plan_aten("aten.clone.default", (X,), {"device": "cpu:0", "layout": "torch.strided"}).op
        == "contiguous"
    )


@pytest.mark.parametrize("overload", ["aten.index_add.default", "aten.index_copy.default"])
@pytest.mark.parametrize("shape", [(2, 1, 4), (2, 3, 4), (1, 2, 4)])
def test_a_source_has_a_row_for_each_index(overload: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ow.OpTypeError, match="a row for each index"):
        plan_aten(overload, (X, 1, np.asarray([0, 2]), np.ones(shape, np.float32)), {})
    good = plan_aten(overload, (X, 1, np.asarray([0, 2]), np.ones((2, 2, 4), np.float32)), {})
    assert good.op == "index_put"
