"""Tensor: makers, views, conversions, numbers, printing."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opwright as ow
from opwright.generator.types import DType
from opwright.validators.values import to_integer

DTYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip


def test_makers() -> None:
    assert ow.zeros((2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert ow.ones(2, "i8").tolist() == [1, 1]
    assert ow.full((), 2.5).item() == 2.5
    assert ow.full(2, True).dtype == "bool"
    assert ow.empty((0, 4), "bf16").shape == (0, 4)
    assert ow.tensor([[1, 2], [3, 4]]).dtype == "i64"
    assert ow.tensor([1, 2.0]).dtype == "f32"
    assert ow.tensor([True, False]).dtype == "bool"
    assert ow.tensor(1j).tolist() == 1j
    assert ow.tensor([]).shape == (0,)
    assert ow.tensor([[], []]).shape == (2, 0)
    assert ow.tensor(np.arange(3), dtype="f16").tolist() == [0.0, 1.0, 2.0]
    assert ow.tensor([np.float32(1.5), ow.tensor(2)]).tolist() == [1.5, 2.0]


def test_makers_of_the_standard() -> None:
    x = ow.ones((2, 3), "i8")
    assert ow.arange(3).tolist() == [0, 1, 2] and ow.arange(1, 2, 0.5).tolist() == [1, 1.5]
    assert ow.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and ow.eye(2, k=1).tolist() == [[0, 1], [0, 0]]
    for made, value in ((ow.zeros_like(x), 0), (ow.ones_like(x), 1), (ow.full_like(x, 7), 7)):
        assert made.dtype == "i8" and made.tolist() == [[value] * 3] * 2
    assert ow.empty_like(x, dtype="f64").shape == (2, 3) and ow.asarray(x) is x


@pytest.mark.parametrize("data", [[[1], [2, 3]], [1, [2]], [[1], 2], [[], [1]]])
def test_ragged_lists_are_refused(data: Any) -> None:
    with pytest.raises(ow.OpValueError, match="ragged"):
        ow.tensor(data)


def test_bad_makers() -> None:
    with pytest.raises(ow.OpTypeError, match="unknown dtype 'u16'"):
        ow.empty(2, "u16")
    with pytest.raises(ow.OpValueError, match="negative extent"):
        ow.empty((2, -1))
    with pytest.raises(ow.OpValueError, match="does not fit in memory"):
        ow.empty((2**40, 2**40))
    with pytest.raises(ow.OpTypeError, match="cannot make a tensor of str"):
        ow.tensor("abc")
    with pytest.raises(TypeError):
        ow.Tensor()


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES)))
def test_casts_match_numpy(source: str, target: str) -> None:
    values = (
        np.array([0, 1, 2, 7, 100, 3.5, 0.25])
        if source not in ("bool", "u8")
        else np.array([0, 1, 2, 7, 100])
    )
    x = values.astype(DTYPES[source])
    got = ow.tensor(x).to(target)
    assert got.dtype == target
    want = (
        x.real.astype(DTYPES[target])
        if np.iscomplexobj(x) and not target.startswith("c")
        else x.astype(DTYPES[target])
    )
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", ["bool", "u8", "i8", "i16", "i32", "i64"])
def test_float_to_integer_is_defined_everywhere(source: str, target: str) -> None:
    """As the oracle converts: NaN and what does not fit give the lowest i32 or i64, cut to the narrower types."""
    numbers = [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 2.0**63, -(2.0**63), 2.0**31]
    numbers += [2.0**31 - 1, -(2.0**31) - 0.5, 300.7, -300.7, 255.9, 256.0, 127.5, -128.9, -0.9]
    x = ow.tensor(numbers, source)
    stored = x.numpy().astype(np.float64)
    assert x.to(target).tolist() == to_integer(stored, DType(target)).tolist()


def test_float_to_integer_by_example() -> None:
    x = ow.tensor([float("nan"), float("inf"), -1e30, 300.7, -300.7], "f64")
    assert x.to("i64").tolist() == [-(2**63), -(2**63), -(2**63), 300, -300]
    assert x.to("i32").tolist() == [-(2**31), -(2**31), -(2**31), 300, -300]
    assert x.to("i8").tolist() == [0, 0, 0, 44, -44]
    assert x.to("u8").tolist() == [0, 0, 0, 44, 212]
    assert x.to("bool").tolist() == [True] * 5


@pytest.mark.filterwarnings("ignore:invalid value")
def test_half_rounds_to_nearest_even() -> None:
    everything = np.arange(2**16, dtype=np.uint16)
    for name, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        exact = everything.view(kind).astype(np.float32)
        between = exact * np.float32(1 + 2**-12)
        for values in (exact, between, np.nextafter(exact, np.float32(np.inf))):
            with np.errstate(over="ignore"):
                want = values.astype(kind)
            got = ow.tensor(values).to(name).numpy()
            same = (got.view(np.uint16) == want.view(np.uint16)) | (np.isnan(values))
            assert same.all(), values[~same][:5]
            assert np.isnan(got[np.isnan(values)].astype(np.float32)).all()


def test_views_share_memory() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    t = ow.from_dlpack(x)
    for view, want in [
        (t[1], x[1]), (t[-1, ..., 0], x[-1, ..., 0]), (t[:, ::2], x[:, ::2]), (t[:, ::-1, 1:3], x[:, ::-1, 1:3]),
        (t[None, :, None], x[None, :, None]), (t[..., None], x[..., None]), (t[5:], x[5:]), (t[0, 0, 0], x[0, 0, 0]),
        (t.permute(2, 0, 1), x.transpose(2, 0, 1)), (t.permute((0, -1, 1)), x.transpose(0, 2, 1)), (t.T, x.T),
        (t.transpose(0, 2), x.swapaxes(0, 2)), (t.reshape(6, 4), x.reshape(6, 4)), (t.reshape((-1,)), x.reshape(-1)),
        (t.reshape(2, 1, 12), x.reshape(2, 1, 12)), (t[:, :1].expand(2, 3, 4), np.broadcast_to(x[:, :1], (2, 3, 4))),
        (t[0].expand(5, -1, -1), np.broadcast_to(x[0], (5, 3, 4))), (t.unsqueeze(-1), x[..., None]),
        (t[:, 1].reshape(2, 2, 2), x[:, 1].reshape(2, 2, 2)), (t[1:1], x[1:1]),
    ]:  # fmt: skip
        assert view.shape == want.shape
        np.testing.assert_array_equal(view.numpy(), want)
        if want.size:
            assert np.shares_memory(view.numpy(), x)


def test_as_strided_is_any_layout_within_the_storage() -> None:
    t = ow.tensor(np.arange(12.0)).reshape(3, 4)
    assert t[1].as_strided([2, 2], [4, 1]).tolist() == [[4, 5], [8, 9]]
    assert t[1].as_strided([3], [-4], 8).tolist() == [8, 4, 0]
    assert t.as_strided([0, 5], [99, 99], 77).shape == (0, 5)
    x = np.arange(12.0)
    inside = ow.from_dlpack(x[2:8])  # of memory that is not ours only what was handed over
    assert inside.as_strided([3], [2], 0).tolist() == [2, 4, 6]
    with pytest.raises(ow.OpValueError, match="leaves the storage, which holds elements 0 to 5"):
        inside.as_strided([3], [3], 0)


def test_reshape_copies_only_where_it_must() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    t = ow.from_dlpack(x)
    joined = t.transpose(0, 1).reshape(-1)
    np.testing.assert_array_equal(joined.numpy(), x.swapaxes(0, 1).reshape(-1))
    assert not np.shares_memory(joined.numpy(), x)
    for a, b, c in itertools.permutations(range(3)):
        view = t.permute(a, b, c)[:, ::2]
        for shape in ((-1,), (view.shape[0], -1), (1, *view.shape, 1), (-1, view.shape[2])):
            np.testing.assert_array_equal(view.reshape(shape).numpy(), view.numpy().reshape(shape))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda t: t.reshape(5), ow.OpValueError, r"shape \[5\] does not hold the 6 elements of \[2, 3\]"),
        (lambda t: t.reshape(-1, -1), ow.OpValueError, "only one extent may be -1"),
        (lambda t: t.reshape(4, -1), ow.OpValueError, "does not hold"),
        (lambda t: t.reshape(0, -1), ow.OpValueError, "does not hold"),
        (lambda t: t.permute(0, 0), ow.OpValueError, "appears twice"),
        (lambda t: t.permute(0), ow.OpValueError, "1 axes given for rank 2"),
        (lambda t: t.transpose(0, 2), ow.OpIndexError, "axis 2 is out of range for rank 2"),
        (lambda t: t.expand(2, 4), ow.OpValueError, "cannot expand"),
        (lambda t: t[2], ow.OpIndexError, "index 2 is out of range for axis 0 of extent 2"),
        (lambda t: t[0, 0, 0], ow.OpIndexError, "too many indices"),
        (lambda t: t[..., ...], ow.OpIndexError, "more than once"),
        (lambda t: t.item(), ow.OpValueError, "only a tensor of one element"),
        (lambda t: bool(t), ow.OpValueError, "only a tensor of one element"),
        (lambda t: t.unsqueeze(3), ow.OpIndexError, "out of range"),
        (lambda t: t.transpose(0), ow.OpTypeError, "missing 'b'"),
        (
            lambda t: t.as_strided([2], [5], 1),
            ow.OpValueError,
            "leaves the storage, which holds elements 0 to 5",
        ),
        (lambda t: t.as_strided([2], [-1], 0), ow.OpValueError, "leaves the storage"),
        (lambda t: t.as_strided([2, 2], [1]), ow.OpTypeError, "of one length"),
        (lambda t: t.as_strided([2], [2**62], 0), ow.OpValueError, "leaves the storage"),
        (lambda t: t.as_strided([3], [2**62], 0), ow.OpValueError, "leaves the storage"),
    ],
)
def test_wrong_views_say_why(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(ow.zeros((2, 3)))


def test_numbers_and_sequences() -> None:
    t = ow.tensor([3, 4])
    assert len(t) == 2
    assert [int(item) for item in t] == [3, 4]
    assert float(t[0]) == 3.0 and list(range(5))[t[0]] == 3 and bool(t[0])
    assert not ow.tensor(0.0)
    with pytest.raises(TypeError):
        len(t[0])
    with pytest.raises(TypeError, match="rank 0 has no items"):
        list(t[0])
    with pytest.raises(ow.OpTypeError, match="no index"):
        list(range(5))[ow.tensor(1.0)]
    assert hash(t) == hash(t)


def test_copy_writes_through_and_counts_versions() -> None:
    x = np.zeros((2, 3))
    t = ow.from_dlpack(x)
    t[:, 1].copy_(ow.tensor([1, 2]))
    t[0].copy_(5)
    assert x.tolist() == [[5, 5, 5], [0, 2, 0]]
    assert t.version == 2
    t.copy_(t[::-1])  # overlaps: as if the source were copied first
    assert x.tolist() == [[0, 2, 0], [5, 5, 5]]
    with pytest.raises(ow.OpValueError, match="overlaps itself"):
        ow.zeros((1, 3)).expand(2, 3).copy_(1)


def test_large_copies_and_casts_are_whole() -> None:
    """Cut among threads, with a tail."""
    for n in (65536, 65537, 200_003):
        x = np.arange(n, dtype=np.int64)
        np.testing.assert_array_equal(ow.tensor(x).to("f64").numpy(), x.astype(np.float64))
        np.testing.assert_array_equal(ow.from_dlpack(x)[::-1].clone().numpy(), x[::-1])
    x = np.arange(600 * 500).reshape(600, 500)
    np.testing.assert_array_equal(ow.from_dlpack(x).T.contiguous().numpy(), x.T)


def test_dtypes_by_other_names() -> None:
    assert (
        ow.empty(1, np.float32).dtype
        == ow.empty(1, np.dtype("float32")).dtype
        == ow.empty(1, "float32").dtype
        == "f32"
    )
    assert ow.empty(1, ml_dtypes.bfloat16).dtype == "bf16"
    assert ow.empty(1, bool).dtype == "bool"


def test_memory_stats_follow_tensors() -> None:
    ow.empty_cache()
    ow.reset_peak_memory()
    before = ow.memory_stats()
    t = ow.empty(1000, "f32")
    during = ow.memory_stats()
    assert during["allocated"] - before["allocated"] == 4032  # rounded up to 64 bytes
    assert t.data_ptr() % 64 == 0
    address = t.data_ptr()
    del t
    after = ow.memory_stats()
    assert after["allocated"] == before["allocated"]
    assert after["reserved"] == during["reserved"]
    assert after["peak"] >= during["allocated"]
    again = ow.empty(1001, "f32")  # the same size class: the cached block
    assert again.data_ptr() == address
    assert ow.memory_stats()["cache_hits"] == after["cache_hits"] + 1
    del again
    alone = ow.empty(3 << 20, "u8")  # a segment of its own
    held = ow.memory_stats()["reserved"]
    del alone
    ow.empty_cache()
    assert ow.memory_stats()["reserved"] < held


def test_poison_shows_unset_memory() -> None:
    from opwright.load import core

    core.set_poison(True)
    try:
        assert np.isnan(ow.empty(7).numpy()).all()
        assert np.isnan(ow.empty(7, "f64").numpy()).all()
    finally:
        core.set_poison(False)
