"""Methods and operators of Tensor against PyTorch's of the same name, and Python's own questions to an object."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import opwright as ow
from opwright import methods

DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16,
          "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64}  # fmt: skip
NAMES = {v: k for k, v in DTYPES.items()} | {torch.complex128: "c128"}


def pair(dtype: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> tuple[Any, Any]:
    """The same numbers as ours and as torch's; between 0 and 1 where they are not whole."""
    rng = np.random.default_rng(seed)
    values = (
        rng.integers(1, 5, shape) if dtype in ("bool", "u8", "i32", "i64") else rng.random(shape) * 0.8 + 0.1
    )
    t = torch.tensor(values).to(DTYPES[dtype])
    return ow.from_dlpack(t.clone()), t


def check(got: Any, want: Any, *, exact: bool = False) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check(g, w)
        return
    if not isinstance(want, torch.Tensor):
        assert got == want and isinstance(got, type(want))
        return
    assert got.dtype == NAMES[want.dtype] and got.shape == tuple(want.shape)
    tol = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "c64": 1e-5}.get(got.dtype, 1e-12)
    torch.testing.assert_close(
        torch.from_dlpack(got), want, rtol=0 if exact else tol, atol=0 if exact else tol, equal_nan=True
    )


def tried(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (RuntimeError, TypeError, ow.OpError) as error:
        return type(error)


OPERATORS = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and_",
    "or_",
    "xor",
)


def by_day(name: str, dtype: str) -> object:
    """A quarter of the pairs by day, each operator and each dtype among them: each compiles a dozen kernels."""
    day = (OPERATORS.index(name) + PROMOTED.index(dtype)) % 4 == 0
    return pytest.param(name, dtype, marks=() if day else pytest.mark.nightly)


PROMOTED = ("bool", "u8", "i32", "i64", "f16", "f32", "f64", "c64")


@pytest.mark.parametrize(("name", "dtype"), [by_day(n, d) for d in PROMOTED for n in OPERATORS])
def test_operators_promote_as_torchs(name: str, dtype: str) -> None:
    """Beside tensors of other dtypes, tensors of rank 0 and numbers, which are weak; either way round."""
    f = getattr(operator, name)
    x, t = pair(dtype)
    others = [pair(d, seed=1) for d in ("bool", "i32", "i64", "f32", "f64")] + [
        pair("f64", (), 2),
        pair("i64", (4,), 3),
    ]
    for y, u in [*others, (2, 2), (2.5, 2.5), (True, True)]:
        for a, b in ((x, y), (y, x)):
            ours = (a, b)
            theirs = tuple(t if v is x else u for v in ours)
            want = tried(f, *theirs)
            got = tried(f, *ours)
            if isinstance(want, type) or (name, want.dtype) == ("pow", torch.bool):
                continue  # what torch refuses ours may give
            assert not isinstance(got, type), (name, dtype, getattr(y, "dtype", y), got)
            check(got, want)


@pytest.mark.parametrize(
    "name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"]
)
@pytest.mark.parametrize("dtype", ["bool", "i32", "i64", "f32", "f64"])
def test_in_place_operators_keep_memory_and_dtype(name: str, dtype: str) -> None:
    f = getattr(operator, name)
    for other in ("bool", "i32", "f32", "f64", 2, 2.5, True):
        (x, t), (y, u) = pair(dtype), pair(other, (4,), 1) if isinstance(other, str) else (other, other)
        where = x.data_ptr()
        want, got = tried(f, t, u), tried(f, x, y)
        if isinstance(want, type):  # ours may give it, but for another kind of number
            assert isinstance(got, type) or got is x
        elif (name, dtype) != ("ipow", "bool"):
            assert got is x and x.data_ptr() == where
            check(got, want)


def test_in_place_says_what_does_not_fit() -> None:
    x = ow.tensor([1, 2])
    with pytest.raises(ow.OpTypeError, match="a result of f32 cannot be written in place as i64"):
        x /= 2
    with pytest.raises(ow.OpValueError, match=r"result of shape \[3, 2\] does not fit into \[2\]"):
        x += ow.zeros((3, 2), "i32")
    with pytest.raises(TypeError):
        x += "a"
    assert x.tolist() == [1, 2]
    y = ow.zeros((3, 4))
    row = y[1]
    row += 1
    assert y.tolist()[1] == [1] * 4 and y.sum().item() == 4


def test_shifts_divmod_and_reflected_numbers() -> None:
    x = ow.tensor([1, 6])
    assert (x << 2).tolist() == [4, 24] and (x >> 1).tolist() == [0, 3] and (1 << x).tolist() == [2, 64]
    assert [t.tolist() for t in divmod(x, 4)] == [[0, 1], [1, 2]] and [t.tolist() for t in divmod(7, x)] == [
        [7, 1],
        [0, 1],
    ]
    assert (2 - x).tolist() == [1, -4] and (2**x).tolist() == [2, 64] and (~x).tolist() == [-2, -7]
    x <<= 1
    assert x.tolist() == [2, 12] and 12 in x and 7 not in x and "a" not in x
    a = np.arange(2)
    assert isinstance(a + x, ow.Tensor) and (a @ x).item() == 12
    with pytest.raises(TypeError):
        _ = x + [1, 2]
    assert (x == None) is False and (x != "a") is True  # noqa: E711


@pytest.mark.parametrize("name", [n for n in methods.UNARY if hasattr(torch.Tensor, n)])
@pytest.mark.parametrize("dtypes", [("f32",), pytest.param(("f64", "i64"), marks=pytest.mark.nightly)])
def test_unary(name: str, dtypes: tuple[str, ...]) -> None:
    for dtype in dtypes:
        x, t = pair(dtype)
        want = tried(getattr(torch.Tensor, name), t)
        if not isinstance(want, type):
            check(getattr(x, name)(), want)
    if f"{name}_" in dir(ow.Tensor) and hasattr(torch.Tensor, f"{name}_"):
        x, t = pair("f32")
        want = tried(getattr(t, f"{name}_"))
        if not isinstance(want, type):
            got = getattr(x, f"{name}_")()
            assert got is x
            check(got, want)


@pytest.mark.parametrize("name", methods.BINARY)
def test_binary(name: str) -> None:
    for dtype in ("f32", "i64"):
        (x, t), (y, u) = pair(dtype, (4, 4)), pair(dtype, (4, 4), 1)
        want = tried(getattr(t, name), u)
        if not isinstance(want, type):
            check(getattr(x, name)(y), want)


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((n, a, k) for n in ("sum", "mean", "amax", "amin", "all", "any", "var", "std")
      for a, k in (((), {}), ((0,), {}), ((-1,), {"keepdim": True}), (((0, 1),), {}))
      if not (n in ("all", "any") and a == ((0, 1),))),
    ("sum", (), {"dtype": torch.float64}), ("prod", (), {}), ("prod", (1,), {}), ("max", (), {}),
    ("max", (1,), {}), ("min", (0, True), {}),
    ("argmax", (), {}), ("argmax", (1,), {}), ("argmin", (0,), {"keepdim": True}), ("norm", (), {}),
    ("norm", (1, 0), {}),
    ("logsumexp", (1,), {}), ("median", (), {}), ("median", (1,), {}), ("count_nonzero", (), {}),
    ("count_nonzero", (1,), {}),
    ("cumsum", (1,), {}), ("cumprod", (0,), {}), ("softmax", (-1,), {}), ("log_softmax", (0,), {}),
    ("sort", (), {}),
    ("sort", (0, True), {}), ("argsort", (1,), {}), ("topk", (1,), {}), ("round", (), {}),
    ("round", (), {"decimals": 1}),
    ("square", (), {}), ("clamp", (0.3,), {}), ("clamp", (0.3, 0.6), {}), ("clip", (None, 0.5), {}),
    ("logit", (), {}),
    ("numel", (), {}), ("dim", (), {}), ("stride", (), {}), ("stride", (1,), {}), ("element_size", (), {}),
    ("storage_offset", (), {}),
    ("is_floating_point", (), {}), ("is_complex", (), {}), ("view", (2, 6), {}), ("view", ((4, -1),), {}),
    ("flatten", (), {}),
    ("ravel", (), {}), ("squeeze", (), {}), ("unsqueeze", (0,), {}), ("swapaxes", (0, 1), {}),
    ("t", (), {}), ("movedim", (0, 1), {}),
    ("broadcast_to", ((2, 3, 4),), {}), ("diagonal", (), {}), ("diagonal", (1,), {}),
    ("repeat", (2, 1), {}), ("tile", (2,), {}),
    ("flip", (0,), {}), ("roll", (1, 0), {}), ("roll", (2,), {}), ("triu", (), {}), ("tril", (1,), {}),
    ("split", (2, 1), {}),
    ("chunk", (2,), {}), ("unbind", (1,), {}), ("select", (1, 2), {}), ("narrow", (1, 1, 2), {}),
    ("nonzero", (), {}),
    ("diff", (), {}), ("cummax", (1,), {}), ("unflatten", (1, (2, 2)), {}), ("double", (), {}),
    ("half", (), {}), ("long", (), {}),
    ("bool", (), {}), ("bfloat16", (), {}), ("repeat_interleave", (2,), {"dim": 1}),
    ("new_zeros", (2, 3), {}), ("new_ones", ((2,),), {}),
    ("new_full", ((2,), 3), {}), ("expand", (2, 3, 4), {}), ("conj", (), {}), ("unfold", (1, 2, 1), {}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
@pytest.mark.parametrize(
    "dtype", ["f32", *(pytest.param(d, marks=pytest.mark.nightly) for d in ("i64", "c64"))]
)
def test_methods(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: str) -> None:
    x, t = pair(dtype)
    want = tried(lambda: getattr(t, name)(*args, **kwargs))
    if isinstance(want, type):
        return
    if name in ("topk", "sort", "argsort", "argmax", "argmin", "median", "max", "min") and dtype == "i64":
        x, t = ow.tensor(np.arange(12)[::-1].reshape(3, 4)), torch.arange(12).flip(0).reshape(3, 4)  # no ties
        want = getattr(t, name)(*args, **kwargs)
    check(getattr(x, name)(*args, **kwargs), want)


def test_every_method_is_reached() -> None:
    """What is put on the class can be looked up, says what it does, and the names of the tables stand for something."""
    for name, member in methods.members().items():
        assert callable(getattr(ow.Tensor, name)) and (member.__doc__ or name.startswith("__"))
    for overload in methods.BY_ATEN.values():
        assert ow.registry.aten_overloads() and overload.startswith("aten.")


def test_methods_with_other_tensors() -> None:
    (x, t), (y, u) = pair("f32"), pair("f32", seed=1)
    index, mask = ow.tensor([[0, 1, 0, 2]]), x > y
    i, m = torch.from_dlpack(index), t > u
    for got, want in [
        (x.where(mask, y), t.where(m, u)), (x.masked_fill(mask, 2), t.masked_fill(m, 2)),
        (x.gather(0, index), t.gather(0, i)),
        (x.scatter(0, index, y), t.scatter(0, i, u)), (x.scatter(0, index, 1.5), t.scatter(0, i, 1.5)),
        (x.scatter_add(0, index, y), t.scatter_add(0, i, u)), (x.lerp(y, 0.5), t.lerp(u, 0.5)),
        (x.max(y), t.max(u)), (x.min(y), t.min(u)),
        (x.clamp(y, None), t.clamp(u, None)),
        (x.clamp(min=0.2, max=y), t.clamp(torch.full_like(u, 0.2), u)), (x.isclose(y), t.isclose(u)),
        (x.index_select(1, index[0]), t.index_select(1, i[0])), (x.take(index), t.take(i)),
        (x.masked_select(mask), t.masked_select(m)),
        (x.mm(y.T), t.mm(u.T)), (x.mv(y[0]), t.mv(u[0])), (x[0].dot(y[0]), t[0].dot(u[0])),
        (x[0].outer(y[0]), t[0].outer(u[0])),
        (x.div(y, rounding_mode="floor"), t.div(u, rounding_mode="floor")),
        (x.div(y, rounding_mode="trunc"), t.div(u, rounding_mode="trunc")),
        (x.expand_as(y), t.expand_as(u)), (x.reshape_as(y.T), t.reshape_as(u.T)), (x.mT, t.mT), (x.T, t.T),
        (x.type_as(index), t.type_as(i)),
        (x.add(y, alpha=2), t.add(u, alpha=2)), (x.unique(), t.unique()),
    ]:  # fmt: skip
        check(got, want)
    assert x.equal(x.clone()) and not x.equal(y) and not x.equal(x[0]) and x.allclose(x + 1e-9)


def test_extremes_are_named() -> None:
    values, indices = ow.tensor([[3, 1], [2, 5]]).max(dim=1)
    assert values.tolist() == [3, 5] and indices.tolist() == [0, 1]
    assert ow.tensor([3, 1, 2]).sort().indices.tolist() == [1, 2, 0]


def test_rank_0_may_name_its_one_axis() -> None:
    x = ow.tensor(3.0)
    assert x.sum(0).item() == 3 and x.amax(-1).item() == 3 and x.all(0).item() is True
    with pytest.raises(ow.OpIndexError, match="axis 1 is out of range for rank 0"):
        x.sum(1)


def test_in_place_methods_write_over_the_tensor() -> None:
    x = ow.zeros((2, 2))
    assert x.add_(3) is x and x.mul_(x).tolist() == [[9, 9], [9, 9]]
    assert x[0].zero_().tolist() == [0, 0] and x.fill_(2.5).clamp_(max=2).tolist() == [[2, 2], [2, 2]]
    assert x.div_(4).masked_fill_(ow.tensor([True, False]), 7).tolist() == [[7, 0.5], [7, 0.5]]
    with pytest.raises(ow.OpTypeError, match="f32 cannot be written in place as i64"):
        ow.tensor([1]).exp_()


def test_conversions() -> None:
    x = ow.tensor([1.5, 2.5])
    assert (
        x.to("i64").tolist() == [1, 2]
        and x.to(np.float64).dtype == "f64"
        and x.to(dtype=torch.bfloat16).dtype == "bf16"
    )
    assert x.to("f32") is x and x.to("cpu") is x and x.cpu() is x and x.to(ow.tensor([1])).dtype == "i64"
    assert x.to("f32", copy=True).data_ptr() != x.data_ptr() and x.astype("f32").data_ptr() != x.data_ptr()
    assert x.astype("f32", copy=False) is x and x.detach().data_ptr() == x.data_ptr()
    with pytest.raises(ow.OpValueError, match="the device must be cpu, got cuda"):
        x.to(device="cuda")
    with pytest.raises(ow.OpTypeError, match="unknown dtype"):
        x.to("f31")


def test_numpys_functions_find_the_methods() -> None:
    x = ow.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (
        np.sum(x, axis=0).tolist() == [4, 6]
        and np.mean(x).item() == 2.5
        and x.sum(axis=1, keepdims=True).shape == (2, 1)
    )


def test_what_python_asks_of_an_object() -> None:
    x = ow.tensor([[1.5, 2.0], [3.0, 4.0]])
    assert f"{x.sum():.2f}" == "10.50" and f"{x}" == repr(x) and complex(x[0, 0]) == 1.5
    for dtype in ("f32", "bf16", "c64", "bool", "i8"):
        y = x.to(dtype)
        for other in (
            copy.copy(y),
            copy.deepcopy([y])[0],
            pickle.loads(pickle.dumps(y)),
            pickle.loads(pickle.dumps(y.T)).T,
        ):
            assert other.equal(y) and other.dtype == dtype and other.data_ptr() != y.data_ptr()
    shared = [x, x]
    a, b = copy.deepcopy(shared)
    assert a is b
