"""CPU kernels against NumPy: odd shapes, strides, dtypes, ranks 0..5, sizes 0 and 1, edge values, any number
of threads.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernels import NP, Bench, Case, Refused

import specs

rng = np.random.default_rng(7)
BF16 = ml_dtypes.bfloat16


def randn(*shape: int, dtype: str = "f32") -> np.ndarray:
    a = rng.standard_normal(shape) * 3
    if dtype in ("c64", "c128"):
        a = a + 1j * rng.standard_normal(shape)
    return np.asarray(a).astype(NP[dtype])


def ints(*shape: int, lo: int = -9, hi: int = 10, dtype: str = "i64") -> np.ndarray:
    return np.asarray(rng.integers(lo, hi, shape)).astype(NP[dtype])


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.complex128 if np.iscomplexobj(a) else np.float64)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    x = wide(x)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


CASES: list[Case] = []


def case(
    name: str, spec: str, inputs: dict, attrs: dict, *want: np.ndarray, tol: float = 0.0, **kw: object
) -> None:
    CASES.append(Case(spec, inputs, attrs, list(want), tol, name, **kw))  # type: ignore[arg-type]


def add_cases() -> None:
    for dt in ("f32", "f64", "i64", "i32", "i16", "i8", "u8", "bf16", "f16", "c64", "c128"):
        a, b = (
            (ints(3, 5, dtype=dt), ints(3, 5, dtype=dt))
            if dt[0] in "iu"
            else (randn(3, 5, dtype=dt), randn(3, 5, dtype=dt))
        )
        acc = np.float32 if dt in ("bf16", "f16") else a.dtype
        want = (a.astype(acc) + b.astype(acc)).astype(a.dtype)
        case(f"add {dt}", specs.ADD, {"a": a, "b": b}, {}, want, tol=1e-6 if dt[0] == "c" else 0)
    x = randn(4, 1, 3)
    for other in [(6, 1), (3,), (), (1, 1, 1, 1), (2, 4, 6, 3), (4, 6, 3)]:
        y = randn(*other)
        case(f"add broadcast {other}", specs.ADD, {"a": x, "b": y}, {}, x + y)
        case(f"add broadcast swapped {other}", specs.ADD, {"a": y, "b": x}, {}, y + x)
    for shape in [(), (1,), (0,), (0, 3), (2, 0, 4), (2, 3, 4, 5, 2), (129,), (7, 33)]:
        a, b = randn(*shape), randn(*shape)
        case(f"add {shape}", specs.ADD, {"a": a, "b": b}, {"alpha": 2}, np.asarray(a + 2 * b))
    z = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40], np.float32)
    case("add edges", specs.ADD, {"a": z, "b": z[::-1].copy()}, {}, z + z[::-1])
    big = np.array([2**63 - 1, -(2**63)], np.int64)
    with np.errstate(over="ignore"):
        case(
            "add wraps", specs.ADD, {"a": big, "b": np.array([1, -1], np.int64)}, {}, big + np.array([1, -1])
        )


def row_cases() -> None:
    for dt, tol in (("f32", 2e-6), ("f64", 1e-14), ("bf16", 8e-3), ("f16", 1e-3)):
        for shape, axis in [
            ((3, 5), -1),
            ((2, 4, 33), -1),
            ((4, 3, 5), 0),
            ((4, 3, 5), 1),
            ((2, 1), -1),
            ((7,), 0),
        ]:
            x = randn(*shape, dtype=dt)
            case(
                f"softmax {dt} {shape} {axis}",
                specs.SOFTMAX,
                {"x": x},
                {"axis": axis},
                softmax(x, axis),
                tol=tol,
            )
    for shape, axis in [((0, 4), -1), ((3, 0), 1), ((2, 8193), -1), ((5, 64), -1)]:
        x = randn(*shape)
        case(f"softmax {shape}", specs.SOFTMAX, {"x": x}, {"axis": axis}, softmax(x, axis), tol=4e-6)
    x = np.array([[0, 0, -np.inf], [-np.inf] * 3, [1, np.nan, 2], [1e30, 1e30, 0]], np.float32)
    case("softmax edges", specs.SOFTMAX, {"x": x}, {}, softmax(x), tol=1e-6)
    for dt, tol in (("f32", 2e-6), ("bf16", 8e-3), ("f64", 1e-14)):
        x, w = randn(2, 3, 257, dtype=dt), randn(257, dtype=dt)
        r = 1 / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6)
        case(f"rms_norm {dt}", specs.RMS_NORM, {"x": x, "w": w}, {}, wide(x) * r * wide(w), tol=tol)
        case(f"rms_norm {dt} no weight", specs.RMS_NORM, {"x": x, "w": None}, {}, wide(x) * r, tol=tol)
    for shape, k in [((2, 3, 5, 7), 2), ((4, 33), 1), ((3, 2), 2)]:
        x = randn(*shape)
        axes = tuple(range(len(shape) - k, len(shape)))
        w, b = randn(*shape[-k:]), randn(*shape[-k:])
        u = wide(x).mean(axes, keepdims=True)
        v = wide(x).var(axes, keepdims=True)
        r = 1 / np.sqrt(v + 1e-5)
        case(
            f"layer_norm {shape} {k}",
            specs.LAYER_NORM,
            {"x": x, "w": w, "b": b},
            {"normalized_shape": shape[-k:]},
            (wide(x) - u) * r * w + b,
            u,
            r,
            tol=2e-5,
        )
    for dt in ("f32", "i64", "i32", "f64"):
        x = ints(3, 17, dtype=dt)
        case(f"cumsum {dt}", specs.CUMSUM, {"x": x}, {"dim": 1}, np.cumsum(x, 1).astype(x.dtype))
        case(f"cumsum {dt} dim 0", specs.CUMSUM, {"x": x}, {"dim": -2}, np.cumsum(x, 0).astype(x.dtype))


def column_cases() -> None:
    """Rows that lie across memory: many are taken at once (`columns.py`), with tails of every kind."""
    for dt in ("f32", "bf16", "f64", "i64", "u8"):
        for shape in [(37, 16), (37, 45), (300, 130), (2, 37, 33)]:
            x = ints(*shape, lo=0, hi=9, dtype=dt)
            axis = len(shape) - 2
            out = x.dtype if dt in ("f32", "bf16", "f64") else np.int64
            want = wide(x).sum(axis).astype(out)
            case(f"columns sum {dt} {shape}", specs.SUM, {"x": x}, {"dim": (axis,)}, want)
            x = ints(*shape, lo=0, hi=99, dtype=dt)
            want = np.argmax(wide(x), axis)
            case(f"columns argmax {dt} {shape}", specs.ARGMAX, {"x": x}, {"dim": axis}, want)
            case(f"columns amax {dt} {shape}", specs.AMAX, {"x": x}, {"dim": (axis,)}, x.max(axis))
            x = ints(*shape, lo=0, hi=3, dtype=dt)
            want = np.cumsum(wide(x), axis).astype(x.dtype)
            case(f"columns cumsum {dt} {shape}", specs.CUMSUM, {"x": x}, {"dim": axis}, want)
    x = np.abs(randn(5, 40, 4, 33))
    case(
        "columns sum of two axes",
        specs.SUM,
        {"x": x},
        {"dim": (0, 2)},
        wide(x).sum((0, 2)).astype(x.dtype),
        tol=2e-6,
    )
    for shape in [
        (40, 5),
        (40, 33),
        (2, 70, 530),
        (9000, 20),
        (9000, 3),
    ]:  # row buffers side by side, or too large for it
        for dt in ("f32", "bf16"):
            x = randn(*shape, dtype=dt)
            axis = len(shape) - 2
            case(
                f"columns softmax {dt} {shape}",
                specs.SOFTMAX,
                {"x": x},
                {"axis": axis},
                softmax(x, axis),
                tol=2e-2 if dt == "bf16" else 1e-6,
            )
    x = np.abs(randn(70, 50))
    x[3, ::2], x[60, ::3] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        case("columns argmax nan", specs.ARGMAX, {"x": x}, {"dim": 0}, np.argmax(x, 0))
        case("columns amax nan", specs.AMAX, {"x": x}, {"dim": (0,)}, x.max(0))
        case(
            "columns cumsum nan",
            specs.CUMSUM,
            {"x": x},
            {"dim": 0},
            np.cumsum(wide(x), 0).astype(x.dtype),
            tol=2e-6,
        )
        case(
            "rows cumsum nan",
            specs.CUMSUM,
            {"x": x},
            {"dim": 1},
            np.cumsum(wide(x), 1).astype(x.dtype),
            tol=2e-6,
        )
    for n in (31, 32, 63, 64, 65, 200, 1000):  # argmax: lanes, steps, tails; the first of equals
        x = np.abs(randn(3, n))
        case(
            f"cumsum of {n}",
            specs.CUMSUM,
            {"x": x},
            {"dim": 1},
            np.cumsum(wide(x), 1).astype(x.dtype),
            tol=1e-6,
        )
        x = x.copy()
        x[0, n // 3], x[1, n // 2], x[2, n // 2] = np.inf, np.nan, -np.inf
        want = np.cumsum(wide(x), 1).astype(x.dtype)
        case(f"cumsum inf of {n}", specs.CUMSUM, {"x": x}, {"dim": 1}, want, tol=1e-6)
        x = ints(3, n, lo=0, hi=4, dtype="f32")
        case(f"argmax of {n}", specs.ARGMAX, {"x": x}, {}, np.argmax(x, 1))
        x = x.copy()
        x[1, n // 2 :] = np.nan
        case(f"argmax nan of {n}", specs.ARGMAX, {"x": x}, {}, np.argmax(x, 1))
        case(f"amax nan of {n}", specs.AMAX, {"x": x}, {"dim": (1,)}, x.max(1))


def reduce_cases() -> None:
    for dt in ("f32", "i32", "bool", "f64", "bf16", "c64"):
        for shape in [(2, 3, 4, 5), (70, 3)]:
            x = ints(*shape, lo=0, hi=2, dtype=dt) if dt != "c64" else randn(*shape, dtype=dt)
            for dim in [None, (), (0,), (-1,), (0, 1), (-1, 0)]:
                axes = dim or tuple(range(len(shape)))
                for keep in (False, True):
                    want = wide(x).sum(axes, keepdims=keep)
                    out = {"i32": np.int64, "bool": np.int64}.get(dt, x.dtype)
                    case(
                        f"sum {dt} {shape} {dim} {keep}",
                        specs.SUM,
                        {"x": x},
                        {"dim": dim, "keepdim": keep},
                        np.asarray(want).astype(out),
                        tol=2e-5 if dt == "c64" else 0,
                    )
    x = np.ones(100_001, np.float32) * 0.1
    case("sum long", specs.SUM, {"x": x}, {}, np.asarray(wide(x).sum()), tol=2e-6)
    case("sum ones bf16", specs.SUM, {"x": np.ones(1000, BF16)}, {}, np.asarray(1000.0, BF16))
    case("sum empty", specs.SUM, {"x": np.ones((0, 3), np.float32)}, {"dim": (0,)}, np.zeros(3, np.float32))
    for dt in ("f32", "i64", "u8", "bool", "bf16"):
        x = ints(3, 4, 5, lo=0, hi=99, dtype=dt) if dt != "bool" else ints(3, 4, 5, lo=0, hi=2, dtype=dt)
        case(
            f"amax {dt}", specs.AMAX, {"x": x}, {"dim": (0, 2), "keepdim": True}, x.max((0, 2), keepdims=True)
        )
        if dt != "bool":
            case(f"argmax {dt}", specs.ARGMAX, {"x": x}, {"dim": 1}, np.argmax(x.astype(np.float64), 1))
    x = np.array([[np.nan, 6, 8], [np.inf, np.nan, 1], [1, 7, 7], [-np.inf, -np.inf, -np.inf]], np.float32)
    case("argmax nan", specs.ARGMAX, {"x": x}, {}, np.array([0, 1, 1, 0]))
    case("amax nan", specs.AMAX, {"x": x}, {"dim": (1,)}, np.array([np.nan, np.nan, 7, -np.inf], np.float32))
    case(
        "argmax of nothing",
        specs.ARGMAX,
        {"x": np.zeros((2, 0), np.float32)},
        {},
        refused="REQUIRE",
        fields={"which": 0},
    )


def contract_cases() -> None:
    for dt, tol in (("f32", 3e-5), ("f64", 1e-12), ("bf16", 2e-2)):
        for sa, sb in [
            ((3, 4), (4, 5)),
            ((17, 31), (31, 129)),
            ((2, 1, 64), (64, 1)),
            ((3, 1, 5, 7), (2, 7, 6)),
            ((1, 300), (300, 65)),
        ]:
            a, b = ints(*sa, lo=-4, hi=5, dtype=dt), ints(*sb, lo=-4, hi=5, dtype=dt)
            case(
                f"matmul {dt} {sa} {sb}",
                specs.MATMUL,
                {"a": a, "b": b},
                {},
                (wide(a) @ wide(b)).astype(a.dtype),
                tol=tol if dt == "bf16" else 0,
            )
    case("matmul K 0", specs.MATMUL, {"a": randn(2, 4, 0), "b": randn(0, 4)}, {}, np.zeros((2, 4, 4)))
    case("matmul N 0", specs.MATMUL, {"a": randn(4, 2), "b": randn(2, 0)}, {}, np.zeros((4, 0)))
    case(
        "matmul shapes",
        specs.MATMUL,
        {"a": randn(4, 2), "b": randn(3, 4)},
        {},
        refused="SHAPE",
        fields={"arg": 1, "axis": 0, "want": 2, "got": 3},
    )
    case("matmul batches", specs.MATMUL, {"a": randn(2, 4, 2), "b": randn(3, 2, 4)}, {}, refused="SHAPE")

    for causal, (H, G, L, S, E, F), dt in [
        (False, (4, 4, 7, 7, 8, 8), "f32"),
        (True, (4, 2, 5, 9, 16, 4), "f32"),
        (True, (1, 1, 3, 2, 4, 4), "f32"),
        (True, (2, 1, 70, 130, 8, 66), "f32"),
        (False, (2, 2, 4, 6, 8, 3), "bf16"),
        (True, (2, 2, 5, 5, 4, 4), "f64"),
    ]:
        q, k, v = randn(2, H, L, E, dtype=dt), randn(2, G, S, E, dtype=dt), randn(2, G, S, F, dtype=dt)
        kk, vv = (np.repeat(wide(t), H // G, axis=1) for t in (k, v))
        s = wide(q) @ kk.swapaxes(-1, -2) * E**-0.5
        if causal:
            s = np.where(np.arange(S) <= np.arange(L)[:, None] + S - L, s, -np.inf)
        m = np.maximum(s.max(-1, keepdims=True), -1e30)
        p = np.exp(s - m)
        z = p.sum(-1, keepdims=True)
        y = p @ vv / np.maximum(z, 1e-30)
        with np.errstate(divide="ignore"):
            lse = (m + np.log(z))[..., 0]
        case(
            f"attention {causal} {(H, G, L, S, E, F)} {dt}",
            specs.ATTENTION,
            {"q": q, "k": k, "v": v},
            {"causal": causal},
            y,
            lse,
            tol=3e-2 if dt == "bf16" else 5e-4 if dt == "f32" else 1e-9,
        )
    case(
        "attention heads",
        specs.ATTENTION,
        {"q": randn(3, 2, 4), "k": randn(2, 5, 4), "v": randn(2, 5, 4)},
        {},
        refused="REQUIRE",
        fields={"which": 0},
    )


def conv(
    x: np.ndarray, w: np.ndarray, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> np.ndarray:
    nd = x.ndim - 2
    xp = np.pad(wide(x), [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(xp.shape[2 + d] - dilation[d] * (w.shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(nd)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per = w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // per
        for pos in np.ndindex(*out):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d)
                for p, s, d, k in zip(pos, stride, dilation, w.shape[2:], strict=True)
            )
            part = xp[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *window)]
            y[(slice(None), o, *pos)] = (part * wide(w[o])).reshape(x.shape[0], -1).sum(1)
    return y


def window_cases() -> None:
    for nd, groups, stride, padding, dilation in [
        (1, 1, 1, 0, 1),
        (2, 2, 2, 1, 1),
        (2, 1, 1, 2, 2),
        (3, 1, 2, 1, 1),
    ]:
        x, w = (
            ints(2, 4, *(6 + d for d in range(nd))).astype(np.float32),
            ints(6, 4 // groups, *([3] * nd)).astype(np.float32),
        )
        b = ints(6).astype(np.float32)
        args = [[v] * nd for v in (stride, padding, dilation)]
        y = conv(x, w, *args, groups) + b.reshape(1, -1, *([1] * nd))
        case(
            f"conv{nd}d groups {groups}",
            specs.CONV,
            {"x": x, "w": w, "b": b},
            {"stride": args[0], "padding": args[1], "dilation": args[2], "groups": groups},
            y,
        )
    case(
        "conv groups",
        specs.CONV,
        {"x": randn(1, 3, 5), "w": randn(4, 2, 3), "b": None},
        {"stride": [1], "padding": [0], "dilation": [1], "groups": 2},
        refused="REQUIRE",
        fields={"which": 0},
    )


def index_cases() -> None:
    for dt in ("f32", "i8", "bool", "bf16", "c128"):
        xs = [randn(2, n, 3, dtype=dt) if dt != "bool" else randn(2, n, 3) > 0 for n in (1, 0, 4)]
        case(f"cat {dt}", specs.CAT, {"xs": xs}, {"dim": 1}, np.concatenate(xs, 1))
    xs = [randn(2, 3), randn(2, 2)]
    case("cat last", specs.CAT, {"xs": xs}, {"dim": -1}, np.concatenate(xs, -1))
    x, idx = randn(5, 4), ints(3, 4, lo=0, hi=5)
    case("gather", specs.GATHER, {"x": x, "idx": idx}, {}, np.take_along_axis(x, idx, 0))
    case(
        "gather fewer columns",
        specs.GATHER,
        {"x": x, "idx": idx[:, :2].copy()},
        {},
        np.take_along_axis(x[:, :2], idx[:, :2], 0),
    )
    case(
        "gather more columns",
        specs.GATHER,
        {"x": x[:, :2].copy(), "idx": idx},
        {},
        refused="INDEX",
        fields={"want": 2, "got": 3},
    )
    bad = idx.copy()
    bad[1, 2] = 5
    case(
        "gather out of range",
        specs.GATHER,
        {"x": x, "idx": bad},
        {},
        refused="INDEX",
        fields={"want": 5, "got": 5},
    )
    w, i = randn(9, 33), ints(2, 3, lo=0, hi=9, dtype="i32")
    case("embedding", specs.EMBEDDING, {"w": w, "i": i}, {}, w[i])
    case(
        "embedding bf16",
        specs.EMBEDDING,
        {"w": w.astype(BF16), "i": i.astype(np.int64)},
        {},
        w.astype(BF16)[i],
    )
    case("embedding rank 0", specs.EMBEDDING, {"w": w, "i": np.array(4)}, {}, w[4])
    case(
        "embedding negative",
        specs.EMBEDDING,
        {"w": w, "i": np.array([1, -1])},
        {},
        refused="INDEX",
        fields={"want": 9, "got": -1},
    )
    case(
        "embedding of nothing",
        specs.EMBEDDING,
        {"w": randn(0, 3), "i": np.zeros((0,), np.int64)},
        {},
        np.zeros((0, 3)),
    )
    case(
        "embedding in nothing",
        specs.EMBEDDING,
        {"w": randn(0, 3), "i": np.zeros((1,), np.int64)},
        {},
        refused="INDEX",
    )
    x, v = randn(6, 2, 3), randn(4, 2, 3)
    i = np.array([0, -1, 2, 0])
    want = x.copy()
    want[i] = v
    want[0] = v[3]
    case("index_put last wins", specs.INDEX_PUT, {"x": x, "i": i, "v": v}, {}, want)
    for dt in ("f32", "bf16", "i32"):
        xx, vv = ints(6, 5, dtype=dt), ints(4, 5, dtype=dt)
        want = wide(xx)
        np.add.at(want, i, wide(vv))
        case(
            f"index_put adds {dt}",
            specs.INDEX_PUT,
            {"x": xx, "i": i, "v": vv},
            {"accumulate": True},
            want.astype(xx.dtype),
        )
    ones = np.ones(5, np.int64)
    case(
        "index_put duplicates",
        specs.INDEX_PUT,
        {"x": ones, "i": np.array([0, 4, 2, 2, 4]), "v": ones},
        {"accumulate": True},
        np.array([2, 1, 3, 1, 3]),
    )
    many = np.ones(1000, BF16)
    case(
        "index_put accumulates wide",
        specs.INDEX_PUT,
        {"x": np.zeros(2, BF16), "i": np.zeros(1000, np.int64), "v": many},
        {"accumulate": True},
        np.array([1000, 0], BF16),
    )
    for x in (
        ints(3, 4, lo=0, hi=2),
        ints(2, 2, 3, lo=0, hi=2),
        np.array(1),
        np.array(0),
        np.zeros((0, 2), np.int64),
    ):
        want = np.argwhere(x).reshape(np.count_nonzero(x), x.ndim)
        case(f"nonzero {x.shape} {x.sum()}", specs.NONZERO, {"x": x}, {}, want)
    x, r = randn(4, 3), np.array([2, 0, 3, 1])
    far = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    for name, beyond in [("padding", (2**62, 1)), ("padding", (2**63 - 1, 1)), ("dilation", (1, 2**62 + 1))]:
        case(
            f"extent beyond 64 bits by {name} {beyond[0]}",
            specs.CONV,
            {"x": randn(1, 1, 6, 6), "w": randn(1, 1, 5, 5), "b": None},
            far | {name: beyond},
            refused="SHAPE",
            fields={"got": -(2**63)},
        )
    case("repeat", specs.REPEAT, {"x": x, "r": r}, {}, np.repeat(x, r, 0))
    case(
        "repeat negative",
        specs.REPEAT,
        {"x": x, "r": np.array([2, 0, -3, 1])},
        {},
        refused="DATA",
        fields={"which": 0},
    )
    x = np.array([[3, 1, 2, 1], [0, -0.0, np.nan, -np.inf]], np.float32)
    order = np.argsort(x, axis=1, kind="stable")
    case("sort", specs.SORT, {"x": x}, {}, np.take_along_axis(x, order, 1), order)
    x = randn(5, 6)
    case("sort dim 0", specs.SORT, {"x": x}, {"dim": 0}, np.sort(x, 0), np.argsort(x, 0, kind="stable"))
    x = ints(20, lo=0, hi=5, dtype="i32")
    case("bincount", specs.BINCOUNT, {"x": x}, {"minlength": 7}, np.bincount(x, minlength=7))
    case("bincount nothing", specs.BINCOUNT, {"x": x[:0].copy()}, {}, np.zeros(0, np.int64))
    case("bincount negative", specs.BINCOUNT, {"x": np.array([1, -2], np.int32)}, {}, refused="DATA")


def other_cases() -> None:
    x = np.array([-2, -1, 0, 1, 2, np.nan, np.inf, -np.inf], np.float32)
    case("clamp", specs.CLAMP, {"x": x}, {"lo": -1, "hi": 1.5}, np.clip(x, -1, np.float32(1.5)))
    case("clamp low", specs.CLAMP, {"x": x}, {"lo": 0}, np.maximum(x, 0))
    x = ints(3, 4)
    case("clamp ints", specs.CLAMP, {"x": x}, {"lo": -2, "hi": 3}, np.clip(x, -2, 3))
    for dt, tol in (("f32", 2e-5), ("f64", 1e-12)):
        B, L, E, F = 2, 6, 3, 5
        q, k, v = randn(B, L, E, dtype=dt), randn(B, L, E, dtype=dt) / 4, randn(B, L, F, dtype=dt)
        g, beta = -np.abs(randn(B, L, dtype=dt)), np.abs(randn(B, L, dtype=dt)) / 4
        k, g, beta = (t.astype(NP[dt]) for t in (k, g, beta))
        for s0 in (None, randn(B, E, F, dtype=dt)):
            state = np.zeros((B, E, F)) if s0 is None else wide(s0)
            ys, ss = [], []
            for t in range(L):
                decayed = np.exp(wide(g[:, t]))[:, None, None] * state
                left = wide(v[:, t]) - np.einsum("blj,bl->bj", decayed, wide(k[:, t]))
                state = decayed + np.einsum("bi,bj->bij", wide(k[:, t]) * wide(beta[:, t])[:, None], left)
                ss.append(state)
                ys.append(np.einsum("bi,bij->bj", wide(q[:, t]), state))
            case(
                f"delta rule {dt} {s0 is not None}",
                specs.DELTA,
                {"q": q, "k": k, "v": v, "g": g, "beta": beta, "s0": s0},
                {},
                np.stack(ys, 1),
                np.stack(ss, 1),
                tol=tol * 20,
            )


UNARY = """op: of_angles
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B]", w: "T[*B]"}
outputs: {y: "T[*B]", c: "T[*B]", z: "T[*B]"}
compute: |
  y[*B] = T(sin(A(x[*B]) * 2))
  c[*B] = T(cos(A(x[*B])))
  z[*B] = x[*B] if x[*B] > 0 else T(A(w[*B]) * A(x[*B]))
"""


def angle_cases() -> None:
    for dt in ("f32", "bf16", "f64"):
        x, w = randn(3, 1500, dtype=dt), randn(3, 1500, dtype=dt)
        x[0, 700] = 3e9  # far from 0: only some pieces of a run have the longer text
        x[2, :3] = [-1e30, -0.0, 70000]
        y, c = (v.astype(x.dtype) for v in (np.sin(wide(x) * 2), np.cos(wide(x))))
        acc = np.float64 if dt == "f64" else np.float32
        z = np.where(x > 0, x, (w.astype(acc) * x.astype(acc)).astype(x.dtype))
        tol = {"f32": 1e-6, "bf16": 8e-3, "f64": 1e-15}[dt]  # nothing cancels: a few units of each function
        case(f"sin, cos and a choice {dt}", UNARY, {"x": x, "w": w}, {}, y, c, z, tol=tol)


add_cases()
angle_cases()
row_cases()
column_cases()
reduce_cases()
contract_cases()
window_cases()
index_cases()
other_cases()
GOOD = [c for c in CASES if not c.refused]
BAD = [c for c in CASES if c.refused]


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(CASES, "test_cpu")


@pytest.mark.parametrize("c", GOOD, ids=[c.name for c in GOOD])
def test_values_in_every_layout(bench: Bench, c: Case) -> None:
    plain = bench.check(c)
    for layout in c.layouts[1:]:
        bench.check(c, layout)
    split = bench.check(c, threads=2)
    for a, b in zip(plain, split, strict=True):
        assert a.tobytes() == b.tobytes(), "the number of threads changed the bits"


@pytest.mark.parametrize("c", BAD, ids=[c.name for c in BAD])
def test_refusals(bench: Bench, c: Case) -> None:
    with pytest.raises(Refused) as e:
        bench.run(c)
    assert e.value.name == c.refused
    for k, v in c.fields.items():
        assert e.value.fields[k] == v, e.value.fields
