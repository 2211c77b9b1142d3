"""The dispatcher over hand-written kernels: arguments, keys, misses, outputs in place, and errors in words."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opwright as ow
from opwright import registry

from .conftest import SIGNATURES, Hook

pytestmark = pytest.mark.usefixtures("hook")


def test_broadcast_over_any_strides() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 4, 3)), np.arange(4.0).reshape(4, 1)
    np.testing.assert_array_equal(ow.ops.add(a, b).numpy(), a + b)
    np.testing.assert_array_equal(
        ow.ops.add(a[:, ::-1], b.T[:, :3], alpha=2).numpy(), a[:, ::-1] + 2 * b.T[:, :3]
    )
    np.testing.assert_array_equal(
        ow.ops.add(a.swapaxes(0, 2), a.swapaxes(0, 2)).numpy(), 2 * a.swapaxes(0, 2)
    )
    assert ow.ops.add(np.zeros((0, 3)), np.zeros(3)).shape == (0, 3)
    assert ow.ops.add(np.float64(1), np.float64(2)).shape == ()


def test_arguments_by_position_and_name() -> None:
    x = np.ones(2, np.float32)
    for y in (ow.ops.add(x, x, 3), ow.ops.add(x, b=x, alpha=3), ow.ops.add(alpha=3, b=x, a=x)):
        assert y.tolist() == [4, 4]


def test_inputs_of_every_kind() -> None:
    x = np.array([1, 2], np.float32)
    fixed = x.copy()
    fixed.flags.writeable = False
    for given in (x, fixed, ow.from_dlpack(x), memoryview(x), x.astype(ml_dtypes.bfloat16), np.float32(1)):
        assert ow.ops.add(given, 1).dtype == "f32"
    assert ow.ops.add(fixed, fixed).tolist() == [2, 4]


def test_torch_inputs() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert torch.equal(torch.from_dlpack(ow.ops.add(x.T, x.T)), 2 * x.T)
    assert ow.ops.add(x.to(torch.bfloat16), 1).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_casts_at_the_boundary() -> None:
    ints, floats = np.array([1, 2], np.int32), np.array([0.5, 1], np.float32)
    y = ow.ops.add(ints, floats)
    assert y.dtype == "f32" and y.tolist() == [1.5, 3.0]
    assert ow.ops.add(np.array([1, 2]), 2.5).tolist() == [3.5, 4.5]  # a weak float
    assert ow.ops.add(np.array([1, 2]), True).dtype == "i64"


def test_operators() -> None:
    t = ow.tensor([1.0, 2.0])
    assert (t + 1).tolist() == [2, 3]
    assert (1 + t).tolist() == [2, 3]
    assert (np.array([1, 1], np.float32) + t).tolist() == [2, 3]
    assert isinstance(np.array([1, 1], np.float32) + t, ow.Tensor)
    with pytest.raises(TypeError, match="unsupported operand"):
        t + "x"


def test_aux_outputs_are_hidden() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    y = ow.ops.softmax(x)
    assert isinstance(y, ow.Tensor)
    np.testing.assert_allclose(y.numpy().sum(-1), 1, rtol=1e-6)
    y, rows = ow.ops.softmax.all(x, axis=0)
    np.testing.assert_allclose(y.numpy().sum(0), 1, rtol=1e-6)
    assert rows.item() == 5


def test_lists() -> None:
    a, b = np.ones((1, 2), np.float32), np.zeros((2, 2), np.float32)
    assert ow.ops.cat([a, b, a]).shape == (4, 2)
    assert ow.ops.cat((a,)).tolist() == [[1, 1]]
    with pytest.raises(ow.OpTypeError, match="'xs' must be a list of arrays"):
        ow.ops.cat(a)
    with pytest.raises(ow.OpValueError, match=r"'xs\[1\]' has extent 3 along axis 1, 2 is wanted"):
        ow.ops.cat([a, np.ones((1, 3), np.float32)])


def test_an_extent_that_depends_on_data() -> None:
    assert ow.ops.nonzero(np.array([0, 1, 0, 2], np.float32)).tolist() == [1, 3]
    assert ow.ops.nonzero(np.zeros(3, np.float32)).shape == (0,)


def test_workspace_is_given() -> None:
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(ow.ops.reverse(x).numpy(), x[::-1])
    before = ow.memory_stats()["allocated"]
    ow.ops.reverse(x)
    assert ow.memory_stats()["allocated"] == before


def test_what_a_kernel_is_told() -> None:
    x = np.zeros(5, np.float32)
    assert ow.ops.told(x).tolist() == [0, ow.num_threads(), 1, 0, -1]
    assert ow.ops.told(x, x, k=3).tolist() == [0, ow.num_threads(), 1, 1, 1]


# ---- misses ------------------------------------------------------------------------------------------------


def test_each_key_is_asked_for_once(hook: Hook) -> None:
    x, y = np.zeros(3, np.float32), np.zeros(3)
    for _ in range(3):
        ow.ops.add(x, x)
        ow.ops.add(x[None], x, alpha=2)  # shapes, ranks and run-time attributes are no part of the key
    assert len(hook.requests) == 1
    assert hook.requests[0] == {
        "op": "add",
        "inputs": [{"dtype": "f32", "rank": 1, "weak": False}] * 2,
        "attrs": {"alpha": 1},
    }
    ow.ops.add(x, y)
    ow.ops.add(x, 1.0)
    ow.ops.add(x, 1)
    ow.ops.add(x, np.float32(1))  # rank 0 promotes less
    assert len(hook.requests) == 5
    assert [r["inputs"][1] for r in hook.requests[2:]] == [
        {"dtype": "f64", "rank": 0, "weak": True},
        {"dtype": "i64", "rank": 0, "weak": True},
        {"dtype": "f32", "rank": 0, "weak": False},
    ]
    ow.ops.add.forget()
    ow.ops.add(x, x)
    assert len(hook.requests) == 6


def test_static_attributes_and_presence_are_in_the_key(hook: Hook) -> None:
    x = np.zeros(5, np.float32)
    for arguments in ({}, {"mode": "b"}, {"k": 1}, {"k": 2}, {"w": x}, {"mode": "b"}, {"w": x, "k": 1}):
        ow.ops.told(x, **arguments)
    assert [(r["attrs"], r["inputs"][1] is not None) for r in hook.requests] == [
        ({"k": None, "mode": "a"}, False),
        ({"k": None, "mode": "b"}, False),
        ({"k": 1, "mode": "a"}, False),
        ({"k": None, "mode": "a"}, True),
        ({"k": 1, "mode": "a"}, True),
    ]


def test_ranks_are_in_the_key_where_the_row_says_so(hook: Hook) -> None:
    ow.ops.reverse(np.zeros(3, np.float32))
    ow.ops.reverse(np.zeros(4, np.float32))
    assert len(hook.requests) == 1
    ow.ops.reverse(np.zeros((3, 1), np.float32))
    ow.ops.reverse(np.zeros((4, 1), np.float32))
    ow.ops.reverse(np.zeros(5, np.float32))
    assert [r["inputs"][0]["rank"] for r in hook.requests] == [1, 2]


def test_list_lengths_are_in_the_key(hook: Hook) -> None:
    x = np.zeros((1, 2), np.float32)
    for n in (1, 2, 1):
        ow.ops.cat([x] * n)
    assert [len(r["inputs"][0]) for r in hook.requests] == [1, 2]


def test_lengths_of_attributes_are_in_the_key(hook: Hook) -> None:
    """Of `ints`, which a kernel unrolls; not of `axes`, which are a set."""
    registry.register_op(
        {
            "name": "sized",
            "inputs": [{"name": "x"}],
            "attrs": [{"name": "k", "kind": "ints"}, {"name": "over", "kind": "axes", "default": None}],
            "outputs": [{"name": "y"}],
        }
    )
    lengths: list[Any] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        lengths.append((request["attrs"]["k"], request["attrs"]["over"]))
        row = hook.answer({"op": "status", "inputs": request["inputs"], "attrs": {}})
        row["row"]["attrs"] = [{"name": "k", "kind": "ints"}, {"name": "over", "kind": "axes"}]
        return row

    registry.set_miss_hook(answer)
    x = np.zeros(2, np.float32)
    for k, over in [([0], None), ([0, 1], None), ([0], [0]), ([0], [0, 1]), ([0], 1), ([0, 5], None)]:
        ow.ops.sized(x, k, over)
    assert lengths == [([0], None), ([0, 1], None), ([0], [0])]


def test_a_row_may_leave_out_absent_inputs(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    right = hook.answer

    def without(request: dict[str, Any]) -> dict[str, Any]:
        answer = right(request)
        answer["row"]["inputs"] = [
            i for i, given in zip(answer["row"]["inputs"], request["inputs"], strict=True) if given
        ]
        return answer

    monkeypatch.setattr(hook, "answer", without)
    x = np.zeros(5, np.float32)
    assert ow.ops.told(x).tolist()[3] == 0
    assert ow.ops.told(x, x).tolist()[3] == 1


def test_registering_again_forgets(hook: Hook) -> None:
    x = np.zeros(3, np.float32)
    op = ow.ops.add
    op(x, x)
    assert registry.register_op(SIGNATURES[0]) is op
    op(x, x)
    assert len(hook.requests) == 2


def test_without_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._State, "ready", True)
    registry.set_miss_hook(None)
    with pytest.raises(ow.MissingKernelError, match=r"no kernel of `add` for \(f32 of rank 1, i64 scalar\)"):
        ow.ops.add(np.zeros(3, np.float32), 1)


def test_an_error_of_the_hook_passes_through() -> None:
    def refuse(request: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    registry.set_miss_hook(refuse)
    with pytest.raises(KeyboardInterrupt):
        ow.ops.add(1, 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: a.pop("row"), "lacks 'library' or 'row'"),
        (lambda a: a.update(library="/nowhere.so"), "cannot load kernel library /nowhere.so"),
        (lambda a: a["row"].update(symbol="ow_nothing"), "has no symbol ow_nothing"),
        (lambda a: a.update(casts=[None]), "1 casts for 2 inputs"),
        (lambda a: a.update(casts=["f64", None]), "input 'a' is f64, the kernel takes f32"),
        (lambda a: a["row"]["inputs"].pop(), "lacks input 'b', which the call gives"),
        (lambda a: a["row"]["inputs"][1].update(name="z"), "lacks input 'b', which the call gives"),
        (lambda a: a["row"]["attrs"].append({"name": "q", "kind": "int"}), "has no attribute 'q'"),
        (
            lambda a: a["row"]["attrs"].append({"name": "alpha", "kind": "odd"}),
            "unknown attribute kind 'odd'",
        ),
        (lambda a: a["row"].pop("symbol"), "'symbol' is missing"),
    ],
)
def test_a_wrong_answer_is_refused(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, change: Any, text: str
) -> None:
    right = hook.answer

    def wrong(request: dict[str, Any]) -> dict[str, Any]:
        answer = right(request)
        change(answer)
        return answer

    monkeypatch.setattr(hook, "answer", wrong)
    x = np.zeros(3, np.float32)
    with pytest.raises(ow.OpError, match=text):
        ow.ops.add(x, x)
    monkeypatch.setattr(hook, "answer", right)
    assert ow.ops.add(x, x).shape == (3,)  # nothing of the wrong answer was kept


# ---- outputs in place --------------------------------------------------------------------------------------


def test_out() -> None:
    x, y = np.ones((2, 3)), np.zeros((2, 3))
    out = ow.from_dlpack(y)
    assert ow.ops.add(x, x, out=out) is out
    assert y.tolist() == [[2, 2, 2]] * 2
    assert out.version == 1
    ow.ops.add(x, x, alpha=2, out=y.T[::-1].T)  # a NumPy array, any strides
    assert y.tolist() == [[3, 3, 3]] * 2


def test_out_in_place_tells_the_kernel() -> None:
    x = np.zeros(5, np.float32)
    assert ow.ops.told(x, out=x).tolist()[0] == 1
    other = np.ones(5, np.float32)
    ow.ops.told(x, out=other)
    assert other[0] == 0


def test_overlap_gives_what_a_copy_would() -> None:
    for a, b, out in [
        (slice(0, 4), slice(1, 5), slice(0, 4)),  # b is shifted against out
        (slice(1, 5), slice(0, 4), slice(0, 4)),
        (slice(0, 4), slice(0, 4), slice(0, 4)),  # both inputs are the output
        (slice(0, 4), slice(3, None, -1), slice(0, 4)),
        (slice(3, None, -1), slice(0, 4), slice(0, 4)),
    ]:
        x = np.array([1.0, 10, 100, 1000, 10000])
        want = x[a] + x[b]
        ow.ops.add(x[a], x[b], out=x[out])
        np.testing.assert_array_equal(x[out], want)


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (lambda: np.zeros(3, np.float32), ow.OpTypeError, "out 'y' is f32, the result is f64"),
        (lambda: np.zeros(4), ow.OpValueError, r"out 'y' has shape \[4\], the result has \[3\]"),
        (lambda: np.broadcast_to(np.zeros(1), 3), ow.OpValueError, "out 'y' is read-only"),
        (lambda: ow.zeros(1, "f64").expand(3), ow.OpValueError, "out 'y' overlaps itself"),
        (lambda: 3, ow.OpTypeError, "out must be an array, got int"),
        (lambda: (np.zeros(3), np.zeros(3)), ow.OpValueError, "1 outputs wanted in out, got 2"),
    ],
)
def test_out_that_does_not_fit(out: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ow.ops.add(np.zeros(3), np.zeros(3), out=out())


# ---- errors ------------------------------------------------------------------------------------------------


class Refusing:
    """An array that does not give its memory away."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or BufferError("cannot be exported today")

    def __dlpack__(self, **_: object) -> object:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: ow.ops.add(x), ow.OpTypeError, "add: input 'b' is missing"),
        (lambda x: ow.ops.add(x, None), ow.OpTypeError, "add: input 'b' is missing"),
        (lambda x: ow.ops.add(x, x, 1, 2), ow.OpTypeError, "add: takes at most 3 arguments, got 4"),
        (lambda x: ow.ops.add(x, x, a=x), ow.OpTypeError, "add: argument 'a' is given twice"),
        (lambda x: ow.ops.add(x, x, beta=1), ow.OpTypeError, "add: has no argument 'beta'"),
        (
            lambda x: ow.ops.add(x, "no"),
            ow.OpTypeError,
            "add: input 'b' must be an array or a number, got str",
        ),
        (lambda x: ow.ops.add(x, [1, 2]), ow.OpTypeError, r"got list; make one with ow.tensor"),
        (lambda x: ow.ops.add(x, x, alpha="2"), ow.OpTypeError, "attribute 'alpha' must be a float, got str"),
        (lambda x: ow.ops.add(x, x, alpha=None), ow.OpTypeError, "attribute 'alpha' must not be None"),
        (lambda x: ow.ops.softmax(x, axis=1.5), ow.OpTypeError, "attribute 'axis' must be an int, got float"),
        (lambda x: ow.ops.status(x), ow.OpTypeError, "status: attribute 'code' is missing"),
        (lambda x: ow.ops.told(x, mode=3), ow.OpTypeError, "attribute 'mode' must be a string, got int"),
        (
            lambda x: ow.ops.softmax(x, axis=3),
            ow.OpIndexError,
            "softmax: attribute 'axis' = 3 is out of range for rank 2",
        ),
        (
            lambda x: ow.ops.softmax(x[0, 0]),
            ow.OpValueError,
            "softmax: input 'x' has rank 0, at least 1 is wanted",
        ),
        (
            lambda x: ow.ops.add(x, x[:, :2]),
            ow.OpValueError,
            "add: input 'b' has extent 2 along axis 1, 3 is wanted",
        ),
        (
            lambda x: ow.ops.take(x, np.array([0, 9])),
            ow.OpIndexError,
            r"take: index 9 is out of range for extent 2; rule: `0 <= k < N` \(line 12 of the spec\)",
        ),
        (
            lambda x: ow.ops.cat([]),
            ow.OpValueError,
            r"cat: `0 <= k < N` \(line 12 of the spec\) does not hold",
        ),
        (lambda x: ow.ops.status(x, code=1), ow.OpValueError, "`0 <= k < N`.* does not hold"),
        (lambda x: ow.ops.status(x, code=6), ow.OpValueError, "an output overlaps an input"),
        (lambda x: ow.ops.status(x, code=7), ow.OpError, "workspace too small"),
        (lambda x: ow.ops.status(x, code=8), ow.OpValueError, "does not hold for the data"),
        (lambda x: ow.ops.status(x, code=9), ow.OpError, "another call convention"),
        (lambda x: ow.ops.status(x, code=99), ow.OpError, "returned status 99"),
        (
            lambda x: ow.ops.status(x, code=2, axis=1),
            ow.OpValueError,
            "'x' has extent 7 along axis 1, 5 is wanted",
        ),
        (lambda x: ow.ops.status(x, code=2, axis=-1), ow.OpValueError, "'x' has rank 7, at most 5 is wanted"),
        (
            lambda x: ow.ops.status(x, code=2, arg=-1, axis=-1, want=0, got=-3),
            ow.OpValueError,
            "status: these arguments give an extent of -3; 0 or more is wanted",
        ),
        (lambda x: ow.ops.status(x, code=3, got=4), ow.OpValueError, "'x' has rank 4, at least 5 is wanted"),
        (lambda x: ow.ops.status(x, code=3), ow.OpValueError, "'x' has rank 7, at most 5 is wanted"),
        (
            lambda x: ow.ops.status(x, code=3, arg=-1),
            ow.OpValueError,
            "status: the result has rank 7, over the limit of 5",
        ),
        (
            lambda x: ow.ops.status(x, code=4),
            ow.OpIndexError,
            "attribute 'code' = 7 is out of range for rank 5",
        ),
        (
            lambda x: ow.ops.status(x, code=4, got=-5),
            ow.OpValueError,
            "status: attribute 'code' names axis -5 twice",
        ),
        (lambda x: ow.ops.softmax(x, axis=2**63), ow.OpValueError, "softmax: attribute 'axis' does not fit"),
        (
            lambda x: ow.ops.softmax(x, axis=np.arange(2)),
            ow.OpTypeError,
            "softmax: attribute 'axis' must be an int, got numpy.ndarray",
        ),
        (
            lambda x: ow.ops.add(x, 10**30),
            ow.OpValueError,
            "add: input 'b': an integer does not fit in 64 bits",
        ),
        (
            lambda x: ow.ops.add(x, x.astype(">f4")),
            ow.OpTypeError,
            "add: input 'b': the array is not in this",
        ),
        (lambda x: ow.ops.add(x, x.astype("U1")), ow.OpTypeError, "add: input 'b': arrays of dtype <U1"),
        (lambda x: ow.ops.add(x, np.zeros((1,) * 17)), ow.OpValueError, "add: input 'b': rank 17 is over"),
        (lambda x: ow.ops.add(x, Refusing()), ow.OpTypeError, "add: input 'b': cannot be exported today"),
        (
            lambda x: ow.ops.add(x, x, out=Refusing()),
            ow.OpTypeError,
            "add: out 'y': cannot be exported today",
        ),
        (lambda x: ow.ops.cat([x, None]), ow.OpTypeError, r"cat: input 'xs\[1\]' is missing"),
        (
            lambda x: ow.ops.cat([x, "no"]),
            ow.OpTypeError,
            r"cat: input 'xs\[1\]' must be an array or a number",
        ),
        (lambda x: ow.call_aten(5, x), ow.OpTypeError, "call_aten: an overload's name is wanted, got int"),
        (
            lambda x: ow.call_aten("aten.select.int", x, 0, 9),
            ow.OpIndexError,
            "aten.select.int: index 9 is out of range",
        ),
    ],
)
def test_errors_name_op_argument_and_rule(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(np.zeros((2, 3), np.float32))
    assert isinstance(caught.value, ow.OpError)


def test_what_python_raised_is_the_cause() -> None:
    with pytest.raises(ow.OpTypeError) as caught:
        ow.ops.add(np.zeros(2), Refusing())
    assert isinstance(caught.value.__cause__, BufferError)


@pytest.mark.parametrize("passes", [KeyboardInterrupt, MemoryError])
def test_ctrl_c_and_a_lack_of_memory_stay_what_they_are(passes: type[BaseException]) -> None:
    with pytest.raises(passes):
        ow.ops.add(np.zeros(2), Refusing(passes()))


def test_errors_are_pythons_own_too() -> None:
    with pytest.raises(IndexError):
        ow.ops.softmax(np.zeros(3, np.float32), axis=3)
    with pytest.raises(ValueError, match="extent"):
        ow.ops.add(np.zeros(2), np.zeros(3))


def test_an_unknown_op() -> None:
    with pytest.raises(AttributeError, match="there is no op `ad`; did you mean `add`"):
        _ = ow.ops.ad


def test_a_signature_that_is_wrong() -> None:
    for change, text in [
        ({"outputs": []}, "has no outputs"),
        ({"inputs": [{"name": "a"}, {"name": "a"}]}, "'a' appears twice"),
        ({"attrs": [{"name": "k", "kind": "odd"}]}, "unknown attribute kind"),
        ({"attrs": [{"name": "k", "kind": "int", "default": 1.5}]}, "must be an int"),
        ({"name": None}, "'name' is missing"),
    ]:
        with pytest.raises(ow.OpError, match=text):
            registry.register_op({"name": "wrong", "inputs": [], "outputs": [{"name": "y"}]} | change)
    assert "wrong" not in dir(ow.ops)


# ---- the face ----------------------------------------------------------------------------------------------


def test_docs_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._State, "ready", True)
    assert {"add", "softmax"} <= set(dir(ow.ops))
    assert ow.ops.add.__doc__ == "add(a, b, alpha=1) -> y\n\na + alpha * b"
    assert ow.ops.add.__name__ == "add"
    assert ow.ops.told.__doc__ == "told(x, w=None, k=None, mode='a') -> y"
    assert repr(ow.ops.cat) == "<op cat([xs, ...]) -> y>"
    assert ow.ops.add.signature["attrs"] == [
        {"name": "alpha", "kind": "scalar", "static": False, "optional": False, "default": 1}
    ]


def test_call_aten() -> None:
    x = np.array([1, 2], np.float32)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("t::add", {"op": "add", "map": [["self", "a"], ["other", "b"], ["alpha", "alpha"]]}),
        ("t::twice", {"op": "add", "map": [["self", "a"], ["other", "b"]], "set": {"alpha": 2}}),
        (
            "t::soft",
            {
                "op": "softmax",
                "map": [["self", "x"], ["dim", "axis"], ["half", {"only": False}]],
                "returns": ["y", "rows"],
            },
        ),
        ("t::pair", {"op": "add", "map": [["both", ["a", "b"]], ["ignored", None]]}),
        ("t::two", {"op": "add", "map": [["self", "a"], ["other", "b"], ["mode", {"only": "add"}]]}),
        ("t::two", {"op": "take", "map": [["self", "x"], ["other", "i"], ["mode", {"only": "take"}]]}),
    ]
    for overload, row in rows:
        registry.register_aten(overload, row)
        registry.register_aten(overload, dict(row))  # the same again is one entry
    assert ow.call_aten("t::add", x, 1, alpha=3).tolist() == [4, 5]
    assert ow.call_aten("t::add", x, x, device="cpu", layout=None, alpha=None).tolist() == [2, 4]
    assert ow.call_aten("t::twice", x, other=x).tolist() == [3, 6]
    y, count = ow.call_aten("t::soft", x, -1, False)
    assert y.shape == (2,) and count.item() == 1
    assert ow.call_aten("t::pair", [x, x], "anything").tolist() == [2, 4]
    assert ow.call_aten("t::two", x[None], np.array([0]), "take").tolist() == [[1, 2]]
    for call, text in [
        (lambda: ow.call_aten("t::soft", x, -1, True), "`half` must be False, got True"),
        (lambda: ow.call_aten("t::soft", x, -1, 0), "`half` must be False, got 0"),
        (lambda: ow.call_aten("t::add", x, x, 1, 2), "takes 3 arguments, got 4"),
        (lambda: ow.call_aten("t::add", x, x, self=x), "`self` is given twice"),
        (lambda: ow.call_aten("t::add", x, x, beta=1), "`beta` is not taken"),
        (lambda: ow.call_aten("t::pair", [x]), "`both` must have 2 items"),
        (
            lambda: ow.call_aten("t::two", x, x, "sub"),
            "add: `mode` must be 'add'.*; take: `mode` must be 'take'",
        ),
    ]:
        with pytest.raises(ow.OpTypeError, match=text):
            call()
    with pytest.raises(ow.MissingKernelError, match="no op claims t::ad"):
        ow.call_aten("t::ad", x)


def test_bootstrap_runs_once_and_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def loader() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("not yet")
        registry.register_op({"name": "late", "inputs": [{"name": "x"}], "outputs": [{"name": "y"}]})

    registry.set_bootstrap(loader)
    try:
        with pytest.raises(RuntimeError, match="not yet"):
            _ = ow.ops.late
        assert ow.ops.late.__name__ == "late"
        assert "late" in dir(ow.ops)
        assert len(runs) == 2
    finally:
        registry.set_bootstrap(None)
        monkeypatch.setattr(registry._State, "ready", True)


def test_entry_points_are_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of each, however often it is installed; one that cannot be loaded says which."""
    from importlib import metadata

    runs: list[str] = []
    monkeypatch.setattr(registry, "_test_loader", lambda: runs.append("run"), raising=False)
    points = [
        metadata.EntryPoint(name, "opwright.registry:_test_loader", registry.ENTRY_POINTS)
        for name in ("a", "b")
    ]
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else []
    )
    monkeypatch.setattr(registry._State, "bootstrap", None)
    monkeypatch.setattr(registry._State, "ready", False)
    with pytest.raises(AttributeError, match="there is no op `nobody`"):
        _ = ow.ops.nobody
    assert runs == ["run"] and registry.is_ready()
    points.append(metadata.EntryPoint("c", "opwright.nowhere:loader", registry.ENTRY_POINTS))
    monkeypatch.setattr(registry._State, "ready", False)
    with pytest.raises(ow.OpError, match=r"the bootstrap opwright.nowhere:loader cannot be loaded"):
        registry.names()


def test_threads_of_python_call_at_once() -> None:
    x = np.random.default_rng(0).normal(size=(64, 100)).astype(np.float32)
    want = ow.ops.softmax(x).numpy().copy()
    wrong: list[int] = []

    def work() -> None:
        for k in range(50):
            if not np.array_equal(ow.ops.softmax(x).numpy(), want):
                wrong.append(k)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_calls_leak_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    ow.ops.add(x, x.astype(np.float64))
    before = ow.memory_stats()["allocated"]
    for _ in range(20):
        ow.ops.add(x, x.astype(np.float64), out=np.zeros((8, 8)))
        with pytest.raises(ow.OpValueError):
            ow.ops.add(x, x[:, :3])
        with pytest.raises(ow.OpError):
            ow.ops.status(x, code=99)
    assert ow.memory_stats()["allocated"] == before
