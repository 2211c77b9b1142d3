"""A small reader of Bound programs in numpy, on logical layouts (no `at`, no `keep`): what tests compare with.

Every statement is evaluated on the whole grid of its indices; a pack is one grid axis with the coordinates of its axes
beside it.  It shares no code with the oracle, the emitters or the passes under test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from opwright.generator.bound import BoundOp, DimUse, Statement, Tensor
from opwright.generator.expr import (
    And,
    Bin,
    Call,
    Cmp,
    Expr,
    Fold,
    Item,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Select,
    Star,
    Un,
)

Array = npt.NDArray[Any]
Dims = dict[str, int | tuple[int, ...]]

DTYPES = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}

UNARY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
BINARY = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.mod,
    "**": np.power,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "tdiv": lambda a, b: np.trunc(a / b),
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def indexed(t: Tensor) -> list[DimUse]:
    return [d for d in t.dims if not d.keep]


class Interpreter:
    def __init__(
        self, op: BoundOp, inputs: Mapping[str, Array], attrs: Mapping[str, Any] | None = None
    ) -> None:
        self.op, self.attrs = op, dict(attrs or {})
        self.values: dict[str, Array] = {n: np.asarray(v) for n, v in inputs.items()}
        self.tensors = {t.name: t for t in (*op.inputs, *op.outputs, *op.temps)}
        self.dims: Dims = {}
        missing = [t.name for t in op.inputs if t.name not in self.values]
        assert not missing, f"inputs {missing} are not given"
        for d in op.dims:
            self.solve(d.name)
        self.check_inputs()

    # -- extents
    def parts(self, name: str) -> list[tuple[int, ...]]:
        """The axes of an input, cut by its dims; at most one pack may be unknown so far."""
        shape, dims = self.values[name].shape, indexed(self.tensors[name])
        counts: list[int | None] = []
        for d in dims:
            if not d.pack:
                counts.append(1)
                continue
            assert isinstance(d.extent, Name)
            known = self.dims.get(d.extent.id)
            rank = self.op.dim(d.extent.id).rank
            if d.at is not None:
                axes = self.attrs[d.at]
                counts.append(None if axes is None else len(axes))
            elif rank is not None:
                counts.append(int(self.integer(rank)))
            elif self.op.dim(d.extent.id).broadcast or known is None:
                counts.append(None)
            else:
                assert isinstance(known, tuple)
                counts.append(len(known))
        left = len(shape) - sum(c for c in counts if c is not None)
        assert counts.count(None) <= 1, f"{name}: two packs of unknown rank"
        counts = [left if c is None else c for c in counts]
        out: list[tuple[int, ...]] = []
        at = 0
        for c in counts:
            assert c is not None
            out.append(tuple(shape[at : at + c]))
            at += c
        assert at == len(shape), f"{name}: {len(shape)} axes, {at} expected"
        return out

    def solve(self, name: str) -> None:
        d = self.op.dim(name)
        if d.expr is not None:
            assert not d.pack
            self.dims[name] = int(self.integer(d.expr))
            return
        assert d.sources, f"dim {name} has no source"
        for n, k in d.sources:
            if self.tensors[n].expand:  # read, never asked
                continue
            k -= sum(1 for u in self.tensors[n].dims[:k] if u.keep)
            got = self.parts(n)[k]
            if d.pack:
                have = self.dims.get(name)
                assert have is None or isinstance(have, tuple)
                assert have is None or d.broadcast or have == got, f"{name}: {have} and {got}"
                self.dims[name] = got if have is None else np.broadcast_shapes(have, got)
            else:
                assert self.dims.setdefault(name, got[0]) == got[0], f"{name}: {self.dims[name]} and {got[0]}"

    def check_inputs(self) -> None:
        for t in self.op.inputs:
            want = self.shape(t)
            got = self.values[t.name].shape
            loose = t.expand or any(
                d.pack and isinstance(d.extent, Name) and self.op.dim(d.extent.id).broadcast for d in t.dims
            )
            if loose:
                assert np.broadcast_shapes(got, want) == want, (t.name, got, want)
            else:
                assert got == want, (t.name, got, want)

    def integer(self, x: Expr) -> int:
        return int(self.value(x, {}, None))

    def extent(self, x: Expr) -> tuple[int, ...]:
        if isinstance(x, Name) and x.kind == "pack":
            got = self.dims[x.id]
            assert isinstance(got, tuple)
            return got
        return (self.integer(x),)

    def shape(self, t: Tensor) -> tuple[int, ...]:
        if t.like is not None:
            return self.values[t.like].shape
        return tuple(e for d in indexed(t) for e in self.extent(d.extent))

    # -- statements
    def run(self) -> dict[str, Array]:
        k = 0
        while k < len(self.op.body):
            s = self.op.body[k]
            if s.recur is None:
                self.statement(s, None)
                k += 1
                continue
            end = k
            while end < len(self.op.body) and self.op.body[end].recur == s.recur:
                end += 1
            for one in self.op.body[k:end]:
                self.allocate(one.target, one.assign.mode)
            steps = self.extent(s.axis(s.recur).extent)[0]
            for t in range(steps):
                for one in self.op.body[k:end]:
                    self.statement(one, t)
            k = end
        return {t.name: self.values[t.name] for t in self.op.outputs}

    def grid(self, s: Statement, step: int | None) -> dict[str, tuple[Array, ...]]:
        axes = [*s.axes, *(a for _, a in s.reduced)]
        env: dict[str, tuple[Array, ...]] = {}
        for k, a in enumerate(axes):
            shape = self.extent(a.extent)
            if step is not None and a.name == s.recur:
                env[a.name] = (np.full((1,) * len(axes), step),)
                continue
            size = math.prod(shape)
            flat = np.arange(size).reshape([size if n == k else 1 for n in range(len(axes))])
            env[a.name] = tuple(np.unravel_index(flat, shape)) if a.pack and size else (flat,) * len(shape)
            env["#" + a.name] = (flat,)
        return env

    def allocate(self, name: str, mode: str) -> None:
        """Updates without a base start at their identity."""
        if name in self.values:
            return
        t = self.tensors[name]
        start: float = {"=": 0, "+=": 0, "set": 0, "*=": 1, "max": -np.inf, "min": np.inf}[mode]
        if np.isinf(start) and not t.dtype.is_inexact:
            start = t.dtype.min if mode == "max" else t.dtype.max
        self.values[name] = np.full(self.shape(t), start, DTYPES[t.dtype.value])

    def statement(self, s: Statement, step: int | None) -> None:
        a = s.assign
        env = self.grid(s, step)
        sizes = [
            1 if step is not None and x.name == s.recur else math.prod(self.extent(x.extent))
            for x in (*s.axes, *(x for _, x in s.reduced))
        ]
        free = sizes[: len(s.axes)]
        t = self.tensors[a.target.name]
        self.allocate(a.target.name, a.mode)
        with np.errstate(all="ignore"):
            v = a.value
            if isinstance(v, Reduce):
                body = np.broadcast_to(self.value(v.body, env, s), sizes)
                over = tuple(range(len(free), len(sizes)))
                if v.kind in ("max", "min"):
                    got = (
                        body.max(axis=over, initial=-np.inf)
                        if v.kind == "max"
                        else body.min(axis=over, initial=np.inf)
                    )
                else:
                    got = {"sum": np.sum, "prod": np.prod, "any": np.any, "all": np.all}[v.kind](
                        body, axis=over
                    )
                env = {
                    n: tuple(np.asarray(c).reshape(np.asarray(c).shape[: len(free)]) for c in cs)
                    for n, cs in env.items()
                    if n.lstrip("#") in {x.name for x in s.axes}
                }
            else:
                got = np.broadcast_to(self.value(v, env, s), free)
            keep = (
                np.broadcast_to(self.value(a.guard, env, s), free)
                if a.guard is not None
                else np.ones(free, bool)
            )
        where = [
            np.broadcast_to(c, free)[keep] for c in self.coordinates(a.target.index, t, env, s, clip=False)
        ]
        got = np.broadcast_to(got, free)[keep]
        if not where:  # numpy writes a rank-0 array as a whole
            assert got.size <= 1 or a.mode in ("+=", "*=", "max", "min")
            where, target = [np.zeros(got.shape, int)], self.values[t.name].reshape(1)
        else:
            target = self.values[t.name]
        for w, extent in zip(where, target.shape, strict=True):
            assert w.size == 0 or (w.min() >= 0 and w.max() < extent), (
                f"{t.name}: written out of range by {a}"
            )
        spot, out = tuple(where), target
        match a.mode:
            case "=" | "set":
                out[spot] = got
            case "+=":
                np.add.at(out, spot, got)
            case "*=":
                np.multiply.at(out, spot, got)
            case "max":
                np.maximum.at(out, spot, got)
            case "min":
                np.minimum.at(out, spot, got)
            case _:
                raise NotImplementedError(a.mode)

    def coordinates(
        self,
        index: Sequence[Expr],
        t: Tensor,
        env: Mapping[str, tuple[Array, ...]],
        s: Statement | None,
        *,
        clip: bool,
    ) -> list[Array]:
        have = self.values[t.name].shape
        coords: list[Array] = []
        for e, d in zip(index, indexed(t), strict=True):
            if isinstance(e, Star):
                assert isinstance(e.x, Name)
                c = list(env[e.x.id])
                want = len(self.extent(d.extent))
                coords += (
                    c[len(c) - want :]
                    if want <= len(c)
                    else [np.zeros_like(env["#" + e.x.id][0])] * (want - len(c)) + c
                )
            else:
                coords.append(np.asarray(self.value(e, env, s)).astype(np.int64))
        coords = coords[len(coords) - len(have) :]
        loose = t.expand or any(d.pack for d in t.dims)
        coords = [np.zeros_like(c) if loose and n == 1 else c for c, n in zip(coords, have, strict=True)]
        if clip:
            coords = [np.clip(c, 0, max(n - 1, 0)) for c, n in zip(coords, have, strict=True)]
        return coords

    # -- expressions
    def value(self, x: Expr, env: Mapping[str, tuple[Array, ...]], s: Statement | None) -> Any:
        def go(y: Expr) -> Any:
            return self.value(y, env, s)

        match x:
            case Num(value=v):
                return np.asarray(v, DTYPES[x.dtype.value]) if x.dtype is not None else np.asarray(v)
            case Name(id=n, kind="attr"):
                return np.asarray(self.attrs[n])
            case Name(id=n, kind="dim"):
                return np.asarray(self.dims[n])
            case Name(id=n, kind="index"):
                return env[n][0]
            case Item(id=n, lane=k):
                return np.asarray(self.attrs[n][k])
            case Load(tensor=n, index=ix):
                t = self.tensors[n]
                if 0 in self.values[n].shape:
                    return np.zeros((), self.values[n].dtype)
                got = self.values[n][tuple(self.coordinates(ix, t, env, s, clip=True))]
                return np.asarray(got)
            case Call(fn="linear", args=(Star(x=Name(id=n)),)):
                return env["#" + n][0]
            case Call(fn="len", args=(Name(id=n),)):
                return np.asarray(len(self.attrs[n]))
            case Call(fn="rank", args=(Name(id=n),)):
                return np.asarray(len(self.extent(Name(n, kind="pack"))))
            case Call(fn=fn, args=(a,)) if fn in UNARY:
                return UNARY[fn](go(a))
            case Call(fn="max" | "min" as fn, args=args):
                out = go(args[0])
                for a in args[1:]:
                    out = BINARY[fn](out, go(a))
                return out
            case Call(fn=fn, args=(a, b)) if fn in BINARY:
                return BINARY[fn](go(a), go(b))
            case Call(fn=fn, args=(a,)) if fn in DTYPES:
                return np.asarray(go(a)).astype(DTYPES[fn])
            case Un(op="-", x=a):
                return -go(a)
            case Bin(op=op, left=a, right=b):
                return BINARY[op](go(a), go(b))
            case Cmp(op=op, left=a, right=b):
                return BINARY[op](go(a), go(b))
            case And(xs=xs):
                return np.logical_and.reduce(np.broadcast_arrays(*map(go, xs)))
            case Or(xs=xs):
                return np.logical_or.reduce(np.broadcast_arrays(*map(go, xs)))
            case Not(x=a):
                return np.logical_not(go(a))
            case Select(test=t, then=a, other=b):
                return np.where(go(t), go(a), go(b))
            case Fold(kind="prod", body=Name() as n):
                return np.asarray(math.prod(self.extent(n)))
        raise NotImplementedError(repr(x))


def run(op: BoundOp, inputs: Mapping[str, Array], attrs: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Outputs of `op` for inputs in logical layout.  Writes out of range fail; loads out of range are clipped."""
    return Interpreter(op, {n: np.array(v) for n, v in inputs.items()}, attrs).run()
