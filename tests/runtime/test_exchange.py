"""Arrays of others without a copy, and ours for them: NumPy, buffers, DLPack, torch."""

from __future__ import annotations

import array
import gc
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opwright as ow

NUMPY_DTYPES = [
    np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64,
    np.complex128, ml_dtypes.bfloat16,
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_round_trip_shares_memory(dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    t = ow.from_dlpack(x)
    back = t.numpy()
    assert back.dtype == x.dtype
    assert np.shares_memory(back, x)
    np.testing.assert_array_equal(np.asarray(t), x)
    np.testing.assert_array_equal(t.T.numpy(), x.T)
    assert np.asarray(t).dtype == x.dtype


@pytest.mark.parametrize("dtype", [d for d in NUMPY_DTYPES if d is not ml_dtypes.bfloat16])
def test_numpy_reads_our_dlpack(dtype: Any) -> None:
    t = ow.tensor(np.arange(12).reshape(3, 4).astype(dtype))
    back = np.from_dlpack(t)
    assert back.dtype == dtype
    back[0, 0] = 1
    assert t[0, 0].item() == 1


def test_array_protocol_takes_dtype_and_copy() -> None:
    t = ow.tensor([1.5, 2.5])
    assert np.asarray(t, dtype=np.int64).tolist() == [1, 2]
    copied = np.array(t, copy=True)
    copied[0] = 9
    assert t[0].item() == 1.5


def test_read_only_stays_read_only() -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    t = ow.from_dlpack(x)
    assert t.readonly and t[1:].readonly
    assert not t.numpy().flags.writeable
    with pytest.raises(ow.OpValueError, match="read-only"):
        t.copy_(1)
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert "dltensor_versioned" in repr(t.__dlpack__(max_version=(1, 0)))
    assert not np.from_dlpack(t).flags.writeable


def test_strange_layouts() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for view in (x[::-1], x[:, ::2, ::-1], np.broadcast_to(x[0], (5, 3, 4)), x[:0], np.asfortranarray(x)):
        t = ow.from_dlpack(view)
        np.testing.assert_array_equal(t.numpy(), view)
        np.testing.assert_array_equal(t.clone().numpy(), view)
    record = np.zeros(
        3, dtype=[("a", "i1"), ("b", "f8")]
    )  # b is neither aligned nor a whole number of strides away
    record["b"] = [1, 2, 3]
    assert ow.from_dlpack(record["b"]).tolist() == [1, 2, 3]
    assert ow.tensor(np.float32(2.5)).item() == 2.5


def test_buffers() -> None:
    data = array.array("f", [1, 2, 3])
    t = ow.zeros(3)
    t.copy_(data)
    assert t.tolist() == [1, 2, 3]
    t.copy_(memoryview(bytearray(b"\x01\x02\x03")))
    assert t.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ow.from_dlpack(np.zeros(2, np.uint32)), "dtype uint32 are not supported"),
        (lambda: ow.from_dlpack(np.zeros(2, "M8[s]")), "datetime64"),
        (lambda: ow.from_dlpack(np.zeros(2, ">f4")), "byte order"),
        (lambda: ow.from_dlpack(np.zeros(2, object)), "dtype object"),
        (lambda: ow.from_dlpack([1, 2]), "list has no __dlpack__"),
        (lambda: ow.zeros(2).copy_(array.array("I", [1, 2])), "'I' are not supported"),
        (lambda: ow.zeros(2).copy_({}), "dict is no array"),
    ],
)
def test_what_cannot_be_taken(make: Any, text: str) -> None:
    with pytest.raises(ow.OpTypeError, match=text):
        make()


def test_rank_over_the_limit() -> None:
    with pytest.raises(ow.OpValueError, match="rank 17 is over the limit of 16"):
        ow.from_dlpack(np.zeros((1,) * 17))


def test_the_exporter_lives_as_long_as_needed() -> None:
    class Array(np.ndarray):
        pass

    x = np.arange(4.0).view(Array)
    gone = weakref.ref(x)
    t = ow.from_dlpack(x)
    view = t[1:]
    del x, t
    gc.collect()
    assert gone() is not None
    assert view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert gone() is None


def test_our_memory_outlives_the_tensor() -> None:
    before = ow.memory_stats()["allocated"]
    t = ow.tensor(np.arange(1000.0))
    array_ = t.numpy()
    capsule = t.__dlpack__()
    del t
    assert array_[999] == 999
    assert ow.memory_stats()["allocated"] > before
    del array_
    back = ow.from_dlpack(capsule)
    del capsule
    assert back[999].item() == 999
    del back
    assert ow.memory_stats()["allocated"] == before


def test_a_capsule_is_consumed_once() -> None:
    capsule = ow.zeros(2).__dlpack__(max_version=(1, 0))
    ow.from_dlpack(capsule)
    with pytest.raises(ow.OpValueError, match="consumed before"):
        ow.from_dlpack(capsule)
    unused = ow.zeros(2).__dlpack__()
    del unused  # its destructor frees


def test_dlpack_arguments() -> None:
    t = ow.zeros(2)
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        t.__dlpack__(dl_device=(2, 0))
    copied = ow.from_dlpack(t.__dlpack__(copy=True))
    copied.copy_(1)
    assert t.tolist() == [0, 0]


def test_an_old_exporter_without_max_version() -> None:
    class Old:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __dlpack__(self, stream: Any = None) -> Any:
            return self.inner.__dlpack__()

    assert ow.from_dlpack(Old(ow.ones(2))).tolist() == [1, 1]


def test_references_are_balanced() -> None:
    x = np.zeros(3)
    before = sys.getrefcount(x)
    for _ in range(10):
        ow.from_dlpack(x).numpy()
    gc.collect()
    assert sys.getrefcount(x) == before


# ---- torch -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def test_torch_round_trip(torch: Any) -> None:
    for name in (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ):
        x = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
        t = ow.from_dlpack(x)
        assert t.data_ptr() == x.data_ptr()
        assert ow.empty(1, x.dtype).dtype == t.dtype
        back = torch.from_dlpack(t)
        assert back.dtype == x.dtype and back.data_ptr() == x.data_ptr() and torch.equal(back, x)
        assert ow.from_dlpack(x.T).shape == (3, 2)


def test_torch_owned_memory_outlives_torch_tensor(torch: Any) -> None:
    t = ow.from_dlpack(torch.arange(1000, dtype=torch.float32))
    gc.collect()
    assert t[999].item() == 999


def test_torch_tensor_that_requires_grad_says_so(torch: Any) -> None:
    with pytest.raises(BufferError, match="detach"):
        ow.from_dlpack(torch.ones(2, requires_grad=True))


def test_torch_empty_tensor(torch: Any) -> None:
    t = ow.from_dlpack(torch.empty(0, 3))
    assert t.shape == (0, 3)
    assert t.numpy().shape == (0, 3)
    assert torch.from_dlpack(ow.empty((0, 3))).shape == (0, 3)


def test_torch_negative_bit_is_not_lost(torch: Any) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j]).conj().imag
    assert x.is_neg()
    with pytest.raises(ow.OpTypeError, match=r"negative bit.*resolve_neg"):
        ow.from_dlpack(x)
    assert ow.from_dlpack(x.resolve_neg()).tolist() == [-2, 1]


def test_a_mask_is_not_lost() -> None:
    x = np.ma.masked_array(np.arange(3.0), mask=[False, True, False])
    with pytest.raises(ow.OpTypeError, match="masked array"):
        ow.from_dlpack(x)
    assert ow.from_dlpack(x.filled(-1)).tolist() == [0, -1, 2]
