"""Subscripts, read and assigned to: against PyTorch's, and NumPy's where both say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import opwright as ow

SHAPE = (3, 4, 5)


def ones_own(key: Any, what: str) -> Any:
    """The same key for NumPy, torch or ours: positions and masks are drawn as lists of a shape."""
    if isinstance(key, tuple) and key and key[0] == "array":
        array = np.array(key[1], dtype=key[2])
        return {
            "numpy": lambda: array,
            "torch": lambda: torch.tensor(array),
            "ours": lambda: ow.tensor(array),
        }[what]()
    return tuple(ones_own(k, what) for k in key) if isinstance(key, tuple) else key


@st.composite
def parts(draw: st.DrawFn, arrays: bool, steps: bool) -> Any:
    """A key for a tensor of SHAPE: for each axis an int, a slice, positions or a mask; None and ... between."""
    key: list[Any] = []
    joint = draw(st.sampled_from([(2,), (1,), (2, 3)]))
    axis = 0
    while axis < draw(st.integers(0, 3)):
        n = SHAPE[axis]
        kinds = ["int", "slice", "none"] + (["array", "array", "mask"] if arrays else [])
        match draw(st.sampled_from(kinds)):
            case "none":
                key.append(None)
                continue
            case "int":
                key.append(draw(st.integers(-n, n - 1)))
            case "slice":
                ends = st.none() | st.integers(-n - 1, n + 1)
                step = st.sampled_from([None, 1, 2, 3, *([-1, -2] if steps else [])])
                key.append(slice(draw(ends), draw(ends), draw(step)))
            case "array":
                shape = draw(st.sampled_from([joint, joint[-1:], (1,)]))
                flat = draw(
                    st.lists(
                        st.integers(-n, n - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
                    )
                )
                dtype = draw(st.sampled_from(["int64", "int32"]))
                key.append(("array", np.reshape(flat, shape).tolist(), dtype))
            case "mask":
                size = joint[-1]  # as many as the positions beside it
                places = draw(st.permutations(range(n)))[:size]
                key.append(("array", [k in places for k in range(n)], "bool"))
        axis += 1
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    return tuple(key)


def both(key: Any) -> tuple[Any, Any]:
    """What torch gives, and what ours does; an error is its class' name."""
    t = torch.arange(60.0).reshape(SHAPE)
    x = ow.tensor(t.numpy())
    try:
        want: Any = t[ones_own(key, "torch")]
    except IndexError:
        want = "IndexError"
    try:
        got: Any = x[ones_own(key, "ours")]
    except (ow.OpIndexError, ow.OpTypeError, ow.OpValueError):
        got = "IndexError"
    return want, got


@given(parts(arrays=False, steps=True))
def test_views_are_numpys(key: Any) -> None:
    array = np.arange(60.0).reshape(SHAPE)
    x = ow.from_dlpack(array)
    want, got = array[key], x[key]
    np.testing.assert_array_equal(got.numpy(), want)
    if want.size:
        assert np.shares_memory(got.numpy(), array)


@given(parts(arrays=True, steps=False))
def test_positions_and_masks_are_torchs(key: Any) -> None:
    want, got = both(key)
    if isinstance(want, str) or isinstance(got, str):
        assert isinstance(want, str) and isinstance(got, str), (want, got)
        return
    assert got.shape == tuple(want.shape)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@given(
    parts(arrays=True, steps=False),
    st.sampled_from(["number", "broadcast", "whole"]),
    st.sampled_from([torch.float32, torch.int64]),
)
def test_assignment_is_torchs(key: Any, kind: str, dtype: torch.dtype) -> None:
    t = torch.arange(60).reshape(SHAPE).to(torch.float32)
    x = ow.tensor(t.numpy())
    try:
        shape = t[ones_own(key, "torch")].shape
    except IndexError:
        return
    value: Any = 7.5
    if kind != "number":
        value = torch.arange(100, 100 + int(np.prod(shape))).reshape(shape).to(dtype)
        if kind == "broadcast" and shape:
            value = value[..., :1]
    # Where positions repeat, which of the values stays is not said by torch: one value then.
    if any(isinstance(k, tuple) and k[2] != "bool" for k in key) and kind != "number":
        value = torch.full_like(value, 9)
    t[ones_own(key, "torch")] = value if kind == "number" else value.to(t.dtype)  # torch asks for it there
    x[ones_own(key, "ours")] = value if kind == "number" else ow.tensor(value.numpy())
    np.testing.assert_array_equal(x.numpy(), t.numpy())


def test_keys_of_other_kinds() -> None:
    x = ow.tensor(np.arange(12.0).reshape(3, 4))
    a = x.numpy().copy()
    for key in ([0, 2], np.array([1, 1]), [True, False, True], np.array([[0], [2]]), range(2), np.int64(1), True, False,
                ([0, 1], [2, 3]), (slice(None), [0, -1]), ow.tensor([0, 2], "u8").numpy(), []):  # fmt: skip
        listed = isinstance(key, range) or (isinstance(key, list) and not key)
        want = a[np.array(key, dtype=int) if listed else key]
        np.testing.assert_array_equal(x[key].numpy(), want)
    np.testing.assert_array_equal(x[ow.tensor([0, 2], "u8")].numpy(), a[[0, 2]])  # no mask, as in NumPy
    assert x[ow.tensor(2)].tolist() == a[2].tolist() and x[ow.tensor(2), 1].item() == a[2, 1]
    np.testing.assert_array_equal(x[x > 5].numpy(), a[a > 5])


def test_ints_beside_positions_are_torchs_not_numpys() -> None:
    """x[0, :, i]: an int makes a view, so that the axes of `i` stay where they stand."""
    x = ow.zeros((2, 3, 4))
    assert x[0, :, [0, 1]].shape == (3, 2)
    assert x[[0, 1], :, [0, 1]].shape == (2, 3)  # apart: in front, as in both


def test_assignment_converts_and_broadcasts() -> None:
    x = ow.zeros((2, 3), "i32")
    x[0] = 2.9
    x[1, 1:] = [4, 5]
    x[:, 0] = np.array([[7, 8]])  # leading axes of extent 1 are dropped
    x[x == 2] = ow.tensor(1.0)
    assert x.tolist() == [[7, 1, 1], [8, 4, 5]]
    y = ow.tensor([1.0, 2.0, 3.0])
    y[::-1] = y  # as if it had been copied first
    assert y.tolist() == [3, 2, 1]
    y[...] = 0
    y[[0, 0]] = 1
    y[0] += 2
    assert y.tolist() == [3, 0, 0]


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ([0.5], ow.OpTypeError, "a tensor of f32 is no index"),
        ("a", ow.OpTypeError, "str is no index"),
        ([[0, 1], [5, 0]], ow.OpIndexError, "index 5 is out of range for extent 2"),
        (([0], [0], [0]), ow.OpIndexError, "too many indices: 3 for rank 2"),
        ((..., [0], ...), ow.OpIndexError, "more than once"),
        ([True, False, True], ow.OpTypeError, "does not cover"),
        (([0, 1], [0, 1, 2]), ow.OpTypeError, "do not broadcast"),
        ([3], ow.OpIndexError, "out of range"),
    ],
)
def test_wrong_keys_say_why(key: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ow.zeros((2, 3))[key]


def test_wrong_assignments_say_why() -> None:
    x = ow.zeros((2, 3))
    with pytest.raises(ow.OpValueError, match="cannot expand"):
        x[0] = [1, 2]
    with pytest.raises(ow.OpTypeError, match="cannot be deleted"):
        del x[0]
    with pytest.raises(ow.OpTypeError, match="c64"):
        x[0] = 1j
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ow.OpValueError, match="read-only"):
        ow.from_dlpack(frozen)[0] = 1
