"""Short calls (runtime/src/py_fast.h) give what the general way gives; what they remember is never another call's."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opwright as ow

from .conftest import SIGNATURES, Hook


def slow(op: Any, *args: Any, **attrs: Any) -> Any:
    """The same call, the general way: a NumPy array is no short argument."""
    return op(*(a.numpy() if isinstance(a, ow.Tensor) else a for a in args), **attrs)


def same(a: Any, b: Any) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(np.array_equal(a.numpy(), b.numpy(), equal_nan=True))
    )


def agree(op: Any, *args: Any, **attrs: Any) -> None:
    """Both ways, twice, give the same result or the same error."""
    want = tried(slow, op, *args, **attrs)
    for _ in range(2):
        got = tried(op, *args, **attrs)
        assert got == want if isinstance(want, tuple) else same(got, want)


def tried(function: Any, *args: Any, **attrs: Any) -> Any:
    try:
        return function(*args, **attrs)
    except ow.OpError as error:
        return type(error), str(error)


DTYPES = ("bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64")
shapes = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (2, 1), (4, 2, 3), (40, 40)])


def made(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    values = np.random.default_rng(seed).integers(0, 5, shape)
    return ow.tensor(values).to(dtype) if shape != () else ow.tensor(int(values)).to(dtype)


@given(
    st.sampled_from(["add", "mul", "maximum", "eq", "lt"]),
    st.lists(
        st.tuples(shapes, st.sampled_from(DTYPES), shapes, st.sampled_from((*DTYPES, 2, 2.5, True))),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 9),
)
def test_two_inputs(name: str, calls: list[Any], seed: int) -> None:
    """Dtypes, extents and numbers one after the other: what is remembered of a call is not taken for the next."""
    op = getattr(ow.ops, name)
    for shape, dtype, other_shape, other in calls:
        a = made(shape, dtype, seed)
        b = made(other_shape, other, seed + 1) if isinstance(other, str) else other
        agree(op, a, b)


@given(
    st.lists(
        st.tuples(
            shapes,
            st.sampled_from(["f32", "i64"]),
            st.sampled_from([None, 0, 1, -1, (0, 1), (), 7]),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_attributes(calls: list[Any]) -> None:
    for shape, dtype, dim, keepdim in calls:
        x = made(shape, dtype, 3)
        for op, attrs in ((ow.ops.sum, {"dim": dim, "keepdim": keepdim}), (ow.ops.amax, {"dim": dim})):
            agree(op, x, **attrs)


@given(
    st.sampled_from(["add", "mul", "floor_divide", "maximum", "lt"]),
    st.sampled_from(["a", "b", "c", "row", "turned", "wide", "frozen"]),
    st.sampled_from(["f32", "i64"]),
    st.booleans(),
)
def test_what_is_written_to(name: str, into: str, dtype: str, flipped: bool) -> None:
    """`out=` that is an input, a part of one, of another layout, dtype or shape: as the general way has it."""
    op = getattr(ow.ops, name)
    frozen = np.zeros((3, 3), {"f32": np.float32, "i64": np.int64}[dtype])
    frozen.flags.writeable = False
    results = []
    for way in (op, lambda *args, **attrs: slow(op, *args, **attrs)):
        base = made((4, 3), dtype, 5) + 1
        a, b = base[:3], made((3, 3), dtype, 6) + 1
        out = {
            "a": a, "b": b, "c": ow.zeros((3, 3), dtype), "row": base[1:], "turned": ow.zeros((3, 3), dtype).T,
            "wide": ow.zeros((2, 3, 3), dtype), "frozen": ow.from_dlpack(frozen),
        }[into]  # fmt: skip
        got = tried(way, *((b, a) if flipped else (a, b)), out=out)
        results.append(
            (got if isinstance(got, tuple) else got is out, base.tolist(), b.tolist(), out.tolist())
        )
    assert results[0] == results[1]


def test_writing_counts_versions_and_errors_happen_once(hook: Hook) -> None:
    x, out = ow.tensor([1.0, 2.0]), ow.zeros(2)
    assert ow.ops.add(x, x, out=out) is out and out.version == 1
    assert ow.ops.add(out, x, out=out) is out and out.version == 2 and out.tolist() == [3, 6]
    asked = ow.zeros(3)
    with pytest.raises(ow.OpError, match="status: the kernel returned status 99"):
        ow.ops.status(asked, code=99, out=asked)
    assert asked.version == 1


def test_scalar_attributes_keep_their_category() -> None:
    x = ow.tensor([1, 2])
    assert [ow.ops.add(x, x, alpha=a).tolist() for a in (1, 2, 1)] == [[2, 4], [3, 6], [2, 4]]
    y = ow.tensor([1.0, 2.0])
    assert [ow.ops.add(y, y, alpha=a).tolist() for a in (0.5, 2, 0.5)] == [[1.5, 3], [3, 6], [1.5, 3]]


def test_extents_of_data_are_asked_for_each_time() -> None:
    x = ow.tensor([0, 1, 2])
    assert ow.ops.nonzero(x).tolist() == [[1], [2]]
    x.copy_(ow.tensor([3, 0, 0]))
    assert ow.ops.nonzero(x).tolist() == [[0]]
    times = ow.tensor([1, 2])
    assert ow.ops.repeat_interleave(times).tolist() == [0, 1, 1]
    times.copy_(ow.tensor([2, 2]))
    assert ow.ops.repeat_interleave(times).tolist() == [0, 0, 1, 1]


def test_the_number_of_threads_is_part_of_what_is_remembered() -> None:
    x = ow.tensor(np.random.default_rng(0).normal(size=(30, 30)))
    before, want = ow.num_threads(), slow(ow.ops.matmul, x, x)
    try:
        for threads in (1, 3, 2):
            ow.set_num_threads(threads)
            assert same(ow.ops.matmul(x, x), want)
    finally:
        ow.set_num_threads(before)


def test_a_signature_that_is_replaced_is_read_again(hook: Hook) -> None:
    x = ow.tensor([1.0, 2.0])
    assert ow.ops.add(x, x).tolist() == [2, 4]
    asked = len(hook.requests)
    assert ow.ops.add(x, x).tolist() == [2, 4] and len(hook.requests) == asked
    ow.ops.add.forget()
    assert ow.ops.add(x, x).tolist() == [2, 4] and len(hook.requests) == asked + 1
    signature = next(s for s in SIGNATURES if s["name"] == "add")
    ow.registry.register_op({**signature, "attrs": [{"name": "alpha", "kind": "scalar", "default": 10}]})
    assert ow.ops.add(x, x).tolist() == [11, 22]


def test_errors_of_a_run_are_the_general_ways(hook: Hook) -> None:
    x = ow.zeros(3)
    with pytest.raises(ow.OpError, match="status: the kernel returned status 99"):
        ow.ops.status(x, code=99)
    rows, places = ow.zeros((2, 3)), ow.tensor([0, 1])
    assert ow.ops.take(rows, places).shape == (2, 3)
    places.copy_(ow.tensor([0, 5]))
    with pytest.raises(ow.OpIndexError, match="index 5 is out of range for extent 2"):
        ow.ops.take(rows, places)


# ---- memory that is taken again -----------------------------------------------------------------------------------


def test_a_result_that_someone_holds_is_nobody_elses() -> None:
    x = ow.tensor(np.arange(8.0))
    kept = [x + k for k in range(50)]
    views = [(x * k)[2:] for k in range(50)]
    arrays = [(x - k).numpy() for k in range(50)]
    for _ in range(100):
        _ = x + 100
    assert all(np.array_equal(t.numpy(), np.arange(8.0) + k) for k, t in enumerate(kept))
    assert all(np.array_equal(t.numpy(), np.arange(2.0, 8) * k) for k, t in enumerate(views))
    assert all(np.array_equal(a, np.arange(8.0) - k) for k, a in enumerate(arrays))


def test_memory_of_another_extent_is_as_long_as_it_says() -> None:
    for n in (1, 15, 3, 16, 9):  # f32 in one size class
        y = ow.tensor(np.ones(n, "f")) + 1
        assert y.tolist() == [2.0] * n
        assert y.as_strided([n], [1], 0).tolist() == [2.0] * n
        with pytest.raises(ow.OpValueError, match="leaves the storage"):
            y.as_strided([n + 1], [1], 0)


def test_what_is_taken_again_has_another_version() -> None:
    """Who remembers what was made of a memory does so by its version."""
    x, seen = ow.tensor(np.arange(8.0)), set()
    ow.memory_stats()  # gives back what waits: from here on these alone do
    for _ in range(20):
        y = x + 1
        assert (y.data_ptr(), y.version) not in seen
        seen.add((y.data_ptr(), y.version))
        del y


def test_nothing_that_waits_counts_as_used() -> None:
    x = ow.tensor(np.arange(8.0))
    _ = x + 1
    before = ow.memory_stats()["allocated"]
    kept = [x + k for k in range(20)]
    assert ow.memory_stats()["allocated"] > before
    del kept
    assert ow.memory_stats()["allocated"] == before


def test_weak_references_end_with_the_tensor() -> None:
    import weakref

    ended: list[str] = []
    y = ow.tensor([1.0]) + 1
    watch = weakref.ref(y, lambda _: ended.append("y"))
    assert watch() is y
    del y
    gc.collect()
    assert watch() is None and ended == ["y"]
    again = ow.tensor([1.0]) + 2
    assert watch() is None and again.tolist() == [3.0]


# ---- the GIL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [True, False])
def test_no_op_holds_the_gil_while_it_runs(hook: Hook, short: bool) -> None:
    """The kernel ends when another thread of Python writes: with the GIL held it would give up after 20 seconds."""
    array = np.zeros(5000, np.float32)
    x = ow.from_dlpack(array) if short else array
    first = np.ones(5000, np.float32)
    ow.ops.wait(ow.from_dlpack(first) if short else first)  # the kernel is known from here on
    began = threading.Event()

    def write() -> None:
        began.wait(10)
        array[0] = 1

    writer = threading.Thread(target=write)
    writer.start()
    began.set()
    assert ow.ops.wait(x).shape == (5000,)
    writer.join()


def test_threads_call_short_calls_at_once() -> None:
    x = ow.tensor(np.random.default_rng(0).normal(size=(50, 60)))
    want = {k: (x * k).numpy().copy() for k in range(4)}
    wrong: list[int] = []

    def work(k: int) -> None:
        rows = x[: 10 * (k + 1)]
        for _ in range(200):
            if not np.array_equal((x * k).numpy(), want[k]) or (rows + k).shape[0] != 10 * (k + 1):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
