"""ATen overloads of complex numbers that no operator takes: functions, means, norms, by their parts.

`COMPLEXES` is asked before every other table, and only where a tensor among the arguments is complex; the rules of
fronts.py hold.  Parts are f64, so that what is given as c64 is rounded once.  Cuts and limits are C99's (Annex G) where
a formula below says so; PyTorch's differ between vectors and scalars there.

May import: `.fronting`, `.matrices`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .fronting import Front, Refused, Tensor, axis_of, converted, dtype_name, full, joined, run, tensor
from .matrices import COMPLEX, matrix_norm

__all__ = ["COMPLEXES", "has_complex"]

_KINDS = ("c64", "c128")
_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))


def has_complex(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a tensor or a number among the arguments is complex."""
    return any(
        isinstance(x, complex) or str(getattr(x, "dtype", "")).removeprefix("torch.") in _NAMES
        for x in (*args, *kwargs.values())
    )


_NAMES = {*_KINDS, "complex64", "complex128"}


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """(real, imaginary) in f64; of a real tensor a second part of zeros."""
    if x.dtype not in _KINDS:
        re = converted(x, "f64")
        return re, full(list(x.shape), 0, "f64")
    wide = converted(x, "c128")
    return run("real", wide), run("imag", wide)


def _real_of(dtype: str) -> str:
    return {"c64": "f32", "c128": "f64"}.get(dtype, dtype)


def _joint(re: Tensor, im: Tensor, dtype: str) -> Tensor:
    return converted(run("complex", re, im), dtype)


Parts = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _function(formula: Parts) -> Front:
    """A function of every number, by what it makes of the parts."""

    def front(self: Any) -> Tensor:
        x = tensor(self)
        return _joint(*formula(*_parts(x)), x.dtype)

    return front


def _flipped(sign: Tensor, x: Tensor) -> Tensor:
    return run("copysign", x, sign)


def _neg(x: Tensor) -> Tensor:
    return run("neg", x)


# ---- functions of the parts ----------------------------------------------------------------------------------------


def _exp(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    size = run("exp", a)
    flat = run("eq", b, 0)  # a real one stays real, also where e^a is infinite
    low = run("eq", a, -math.inf)
    calm = _where(low, _where(run("isfinite", b), b, 0.0), b)
    return _mul(size, run("cos", calm)), _where(flat, b, _mul(size, run("sin", calm)))


def _log(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _log_size(a, b), run("atan2", b, a)


def _log_size(a: Tensor, b: Tensor) -> Tensor:
    """log |z|, also near |z| = 1, where the square of the larger part less one is exact enough."""
    x, y = run("abs", a), run("abs", b)
    big, small = run("fmax", x, y), run("fmin", x, y)
    near = run("logical_and", run("gt", big, 0.5), run("lt", big, 2.0))
    safe = _where(near, big, 1.0)
    low = _where(near, small, 0.0)
    close = _mul(run("log1p", _add(_mul(_sub(safe, 1.0), _add(safe, 1.0)), _mul(low, low))), 0.5)
    return _where(near, close, run("log", run("hypot", a, b)))


def _log_by(base: float) -> Parts:
    def formula(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        re, im = _log(a, b)
        return _div(re, math.log(base)), _div(im, math.log(base))

    return formula


def _log1p(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """log |1 + z| = log1p(a (2 + a) + b b) / 2 near zero"""
    near = run("lt", run("hypot", a, b), 0.5)
    safe, side = _where(near, a, 0.0), _where(near, b, 0.0)
    close = _mul(run("log1p", _add(_mul(safe, _add(safe, 2.0)), _mul(side, side))), 0.5)
    one = _add(a, 1.0)
    return _where(near, close, _log_size(one, b)), run("atan2", b, one)


def _expm1(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    half = run("sin", _mul(b, 0.5))
    re = _sub(_mul(run("expm1", a), run("cos", b)), _mul(_mul(half, half), 2.0))
    return re, _exp(a, b)[1]


def _sqrt(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    # Halved twice, so that the size does not overflow.
    size = run("hypot", _mul(a, 0.25), _mul(b, 0.25))
    root = _mul(run("sqrt", _mul(_add(size, run("abs", _mul(a, 0.25))), 0.5)), 2.0)
    other = _div(run("abs", b), _mul(_where(run("eq", root, 0), 1.0, root), 2.0))
    back = run("signbit", a)
    re, im = _where(back, other, root), _where(back, root, other)
    ends = run("isinf", b)
    re, im = _where(ends, math.inf, re), _where(ends, math.inf, im)
    far = run("logical_and", run("isinf", a), run("isfinite", b))
    re = _where(far, _where(back, 0.0, math.inf), re)
    im = _where(far, _where(back, math.inf, 0.0), im)
    return re, _flipped(b, im)


def _reciprocal(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _quotient(full((), 1.0, "f64"), full((), 0.0, "f64"), a, b)


def _quotient(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """(a + i b) / (c + i d) by Smith's way."""
    wide = run("ge", run("abs", c), run("abs", d))
    p, q = _where(wide, c, d), _where(wide, d, c)
    r = _div(q, p)
    down = _add(p, _mul(q, r))
    re = _where(wide, _add(a, _mul(b, r)), _add(_mul(a, r), b))
    im = _where(wide, _sub(b, _mul(a, r)), _sub(_mul(b, r), a))
    return _div(re, down), _div(im, down)


def _product(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return _sub(_mul(a, c), _mul(b, d)), _add(_mul(a, d), _mul(b, c))


def _then(*formulas: Parts) -> Parts:
    def formula(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        for f in formulas:
            a, b = f(a, b)
        return a, b

    return formula


def _turned(inner: Parts) -> Parts:
    """f(z) = -i g(i z): the circular function of a hyperbolic one that is odd."""

    def formula(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        re, im = inner(_neg(b), a)
        return im, _neg(re)

    return formula


def _sinh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    flat = run("eq", b, 0)
    re = _mul(run("sinh", a), run("cos", b))
    return _where(run("eq", a, 0), a, re), _where(flat, b, _mul(run("cosh", a), run("sin", b)))


def _cosh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    none = run("logical_or", run("eq", a, 0), run("eq", b, 0))
    im = _mul(run("sinh", a), run("sin", b))
    zero = _mul(run("copysign", 1.0, a), run("copysign", 0.0, b))
    return _mul(run("cosh", a), run("cos", b)), _where(none, zero, im)


def _cos(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _cosh(_neg(b), a)


def _tanh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(sinh a cosh a + i sin b cos b) / (sinh² a + cos² b), and its limit where cosh is too large."""
    far = run("gt", run("abs", a), 20.0)
    x = _where(far, 1.0, a)
    s, c = run("sinh", x), run("cos", b)
    down = _add(_mul(s, s), _mul(c, c))
    re = _div(_mul(s, run("cosh", x)), down)
    im = _div(_mul(run("sin", b), c), down)
    tail = _mul(_mul(_mul(run("sin", b), c), 4.0), run("exp", _mul(run("abs", a), -2.0)))
    tail = _where(run("isfinite", b), tail, _flipped(b, full((), 0.0, "f64")))
    return _where(far, run("copysign", 1.0, a), re), _where(far, tail, _where(run("eq", b, 0), b, im))


def _sigmoid(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """1 / (1 + e^-z)"""
    re, im = _exp(_neg(a), _neg(b))
    far = run("lt", a, -700.0)
    out = _reciprocal(_add(re, 1.0), im)
    near = _exp(a, b)
    return _where(far, near[0], out[0]), _where(far, near[1], out[1])


def _asinh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Hull and others: by the square roots of 1 - i z and 1 + i z."""
    p, q = _sqrt(_add(b, 1.0), _neg(a))  # sqrt(1 - i z)
    r, s = _sqrt(_sub(1.0, b), a)  # sqrt(1 + i z)
    im = run("atan2", b, _sub(_mul(p, r), _mul(q, s)))
    re = run("asinh", _sub(_mul(r, q), _mul(s, p)))
    big = run("gt", run("hypot", a, b), 1e150)
    log = _log_size(_mul(a, 0.5), _mul(b, 0.5))
    far = _add(log, 2 * math.log(2.0))
    re = _where(big, far, run("abs", re))
    return _flipped(a, re), _where(big, run("atan2", b, run("abs", a)), im)


def _acos(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Kahan: 2 atan2(Re √(1-z), Re √(1+z)) and asinh Im(conj √(1+z) √(1-z))"""
    p, q = _sqrt(_add(a, 1.0), b)
    r, s = _sqrt(_sub(1.0, a), _neg(b))
    re = _mul(run("atan2", r, p), 2.0)
    im = run("asinh", _sub(_mul(p, s), _mul(q, r)))
    big = run("gt", run("hypot", a, b), 1e150)
    far = _add(_log_size(_mul(a, 0.5), _mul(b, 0.5)), 2 * math.log(2.0))
    im = _where(big, _flipped(_neg(b), far), im)
    return _where(big, run("atan2", run("abs", b), a), re), im


def _acosh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    re, im = _acos(a, b)
    return run("abs", im), _flipped(b, re)


def _atanh(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """log1p(4 a / ((1 - a)² + b²)) / 4, and the angle of (1 - z)(1 + conj z) halved"""
    size = run("abs", a)
    down = _add(_mul(_sub(1.0, size), _sub(1.0, size)), _mul(b, b))
    re = _mul(run("log1p", _div(_mul(size, 4.0), down)), 0.25)
    huge = run("gt", run("hypot", a, b), 1e100)
    tiny = _div(_div(size, run("hypot", a, b)), run("hypot", a, b))
    re = _where(huge, _where(run("isfinite", run("hypot", a, b)), tiny, 0.0), re)
    top = _sub(_mul(_sub(1.0, a), _add(a, 1.0)), _mul(b, b))
    im = _mul(run("atan2", _mul(b, 2.0), top), 0.5)
    im = _where(huge, _flipped(b, full((), math.pi / 2, "f64")), im)
    return _flipped(a, re), im


def _sinc(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    x, y = _mul(a, math.pi), _mul(b, math.pi)
    none = run("logical_and", run("eq", a, 0), run("eq", b, 0))
    re, im = _quotient(*_turned(_sinh)(x, y), _where(none, 1.0, x), y)
    return _where(none, 1.0, re), _where(none, 0.0, im)


def _silu(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _product(a, b, *_sigmoid(a, b))


def _square(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _product(a, b, a, b)


def _sgn(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    size = run("hypot", a, b)
    none = run("eq", size, 0)
    safe = _where(none, 1.0, size)
    return _where(none, 0.0, _div(a, safe)), _where(none, 0.0, _div(b, safe))


def _abs(self: Any) -> Tensor:
    x = tensor(self)
    return converted(run("hypot", *_parts(x)), _real_of(x.dtype))


# ---- powers --------------------------------------------------------------------------------------------------------


def _number(x: Any) -> Tensor:
    if not isinstance(x, bool | int | float | complex):
        return tensor(x)
    return full((), complex(x), "c128")


def _result(*xs: Any) -> str:
    """The dtype of complex and other arguments together; numbers of Python change nothing, and tensors of rank 0
    nothing beside a tensor with axes that is no integer."""
    given = [tensor(x) for x in xs if not isinstance(x, bool | int | float | complex)]
    heavy = [x.dtype for x in given if x.ndim and x.dtype in ("f16", "bf16", "f32", "f64", "c64", "c128")]
    kinds = heavy or [x.dtype for x in given]
    return "c128" if any(k in ("c128", "f64") for k in kinds) else "c64"


def _pow(self: Any, exponent: Any, dtype: str = "") -> Tensor:
    kind = dtype or _result(self, exponent)
    if isinstance(exponent, bool | int | float):
        if exponent == 2:
            return _joint(*_square(*_parts(_number(self))), kind)
        if exponent == 0.5:
            return _joint(*_sqrt(*_parts(_number(self))), kind)
        if isinstance(exponent, int) and abs(exponent) <= 8 and exponent:
            return _joint(*_integer_power(*_parts(_number(self)), exponent), kind)
    x, y = joined(_number(self), _number(exponent))
    a, b = _parts(x)
    c, d = _parts(y)
    p, q = _log(a, b)
    re, im = _exp(*_product(p, q, c, d))
    none = run("logical_and", run("eq", a, 0), run("eq", b, 0))
    rest = run("logical_and", run("eq", c, 0), run("eq", d, 0))
    up = run("gt", c, 0)
    zero = run("logical_and", none, up)
    re, im = _where(zero, 0.0, re), _where(zero, 0.0, im)
    return _joint(_where(rest, 1.0, re), _where(rest, 0.0, im), kind)


def _integer_power(a: Tensor, b: Tensor, n: int) -> tuple[Tensor, Tensor]:
    out: tuple[Tensor, Tensor] | None = None
    p, q, left = a, b, abs(n)
    while left:
        if left & 1:
            out = (p, q) if out is None else _product(*out, p, q)
        left >>= 1
        if left:
            p, q = _square(p, q)
    assert out is not None
    return out if n > 0 else _reciprocal(*out)


def _float_power(self: Any, exponent: Any) -> Tensor:
    return _pow(self, exponent, "c128")


# ---- tests ---------------------------------------------------------------------------------------------------------


def _either(op: str, how: str) -> Front:
    def front(self: Any) -> Tensor:
        a, b = _parts(tensor(self))
        return run(how, run(op, a), run(op, b))

    return front


def _compared(op: str, how: str, self: Any, other: Any) -> Tensor:
    (a, b), (c, d) = (_parts(_number(x)) for x in (self, other))
    return run(how, run(op, a, c), run(op, b, d))


_eq, _ne = partial(_compared, "eq", "logical_and"), partial(_compared, "ne", "logical_or")


def _isreal(self: Any) -> Tensor:
    return run("eq", _parts(tensor(self))[1], 0)


def _isclose(
    self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    x, y = joined(self, other)
    a, b = _parts(x)
    c, d = _parts(y)
    same = run("logical_and", run("eq", a, c), run("eq", b, d))
    if equal_nan:
        lost = [run("logical_or", run("isnan", p), run("isnan", q)) for p, q in ((a, b), (c, d))]
        same = run("logical_or", same, run("logical_and", *lost))
    apart = run("hypot", _sub(a, c), _sub(b, d))
    limit = _add(_mul(run("hypot", c, d), rtol), atol)
    near = run("logical_and", run("isfinite", apart), run("le", apart, limit))
    return run("logical_or", same, near)


def _allclose(self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    return bool(run("all", _isclose(self, other, rtol, atol, equal_nan)).item())


def _some(x: Any) -> Any:
    """Where a number is not zero; what is not complex stays."""
    if isinstance(x, bool | int | float | complex):
        return bool(x)
    t = tensor(x)
    return _ne(t, 0) if t.dtype in _KINDS else t


def _logical(op: str, *xs: Any) -> Tensor:
    return run(op, *map(_some, xs))


def _two(op: str, self: Any, other: Any) -> Tensor:
    return _logical(op, self, other)


def _tested(op: str) -> dict[str, Front]:
    def whole(self: Any) -> Tensor:
        return run(op, _some(self))

    def along(self: Any, dim: int, keepdim: bool = False) -> Tensor:
        x = _some(self)
        return run(op, x, dim=[dim], keepdim=keepdim) if x.ndim else run("contiguous", x)

    def over(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = _some(self)
        return x if dim is not None and not dim else run(op, x, dim=_over(x, dim), keepdim=keepdim)

    return {f"aten.{op}.default": whole, f"aten.{op}.dim": along, f"aten.{op}.dims": over}


def _equal(self: Any, other: Any) -> bool:
    a, b = tensor(self), tensor(other)
    return tuple(a.shape) == tuple(b.shape) and bool(run("all", _eq(a, b)).item())


def _nonzero(self: Any) -> Tensor:
    x = _some(self)
    return run("nonzero", x) if x.ndim else run("nonzero", x.reshape([1]))[:, :0]


def _count_nonzero(self: Any, dim: Any = None) -> Tensor:
    x = _some(self)
    return converted(run("sum", x, dim=_over(x, dim)), "i64") if x.ndim else converted(x, "i64")


def _filled(size: Any, value: complex, dtype: str) -> Tensor:
    """A tensor of one complex number, by its parts; a real tensor takes one that is real."""
    z = complex(value)
    if dtype not in _KINDS:
        if z.imag:
            raise Refused(f"a complex number does not fit into {dtype}")
        return full(list(size), z.real, dtype)
    return _joint(full((), z.real, "f64"), full((), z.imag, "f64"), dtype).expand(list(size))


def _full(size: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    kind = "c64" if dtype is None else dtype_name(dtype)
    return run("contiguous", _filled(size, fill_value, kind))


def _full_like(self: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    x = tensor(self)
    return _full(x.shape, _value(fill_value), x.dtype if dtype is None else dtype)


def _value(x: Any) -> Any:
    return x if isinstance(x, bool | int | float | complex) else tensor(x).item()


def _fill(self: Any, value: Any) -> Tensor:
    return _full_like(self, value)


def _new_full(self: Any, size: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    return _full(size, fill_value, tensor(self).dtype if dtype is None else dtype)


def _masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
    x, m = joined(self, mask)
    return _where(m, _filled([], _value(value), x.dtype), x)


def _constant_pad(self: Any, pad: Any, value: Any = 0) -> Tensor:
    """By its parts, of each a constant of its own."""
    x, z = tensor(self), complex(value)
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise Refused(f"{len(pad)} amounts do not pad a tensor of rank {x.ndim}")
    if x.dtype not in _KINDS and z.imag:
        raise Refused(f"a complex number does not fit into {x.dtype}")
    more = [0] * (x.ndim - len(pad) // 2)
    sides = {"before": [*more, *pad[-2::-2]], "after": [*more, *pad[::-2]]}
    if x.dtype not in _KINDS:
        return run("constant_pad", x, value=z.real, **sides)
    re, im = (
        run("constant_pad", part, value=c, **sides)
        for part, c in zip(_parts(x), (z.real, z.imag), strict=True)
    )
    return _joint(re, im, x.dtype)


def _ldexp(self: Any, other: Any) -> Tensor:
    """self · 2^other"""
    x, e = tensor(self), tensor(other)
    a, b = _parts(e)
    power = (
        _joint(*_exp(_mul(a, math.log(2.0)), _mul(b, math.log(2.0))), "c128")
        if e.dtype in _KINDS
        else run("exp2", a)
    )
    return converted(_mul(converted(x, "c128"), power), _result(x, e))


def _l1_loss(self: Any, target: Any, reduction: int = 1) -> Tensor:
    d = _abs(_sub(self, target))
    return d if reduction == 0 else run("mean" if reduction == 1 else "sum", d)


def _scaled(x: Any, by: Any) -> Tensor:
    t = tensor(x)
    return t if by == 1 else _mul(t, by)


def _addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    a, b = tensor(mat1), tensor(mat2)
    if a.ndim != 2 or b.ndim != 2:
        raise Refused("two matrices are wanted")
    return _plus(self, beta, run("matmul", a, b), alpha)


def _plus(self: Any, beta: Any, product: Tensor, alpha: Any) -> Tensor:
    more = _scaled(product, alpha)
    return _add(_scaled(self, beta), more) if beta != 0 else more


def _baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    a, b = tensor(batch1), tensor(batch2)
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise Refused("two batches of matrices are wanted")
    return _plus(self, beta, run("matmul", a, b), alpha)


def _addbmm(self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _plus(self, beta, run("sum", _baddbmm(0, batch1, batch2, 0), dim=[0]), alpha)


def _addr(self: Any, vec1: Any, vec2: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _plus(self, beta, _mul(tensor(vec1).unsqueeze(1), tensor(vec2).unsqueeze(0)), alpha)


# ---- over axes -----------------------------------------------------------------------------------------------------


def _axes(dim: Any) -> list[int] | None:
    return None if dim is None else [dim] if isinstance(dim, int) else list(dim)


def _over(x: Tensor, dim: Any) -> list[int]:
    axes = _axes(dim)
    return list(range(x.ndim)) if not axes else [axis_of(d, x.ndim) for d in axes]


def _to(self: Any, dtype: Any) -> Tensor:
    x = tensor(self)
    return x if dtype is None else converted(x, dtype_name(dtype))


def _mean(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    x = _to(self, dtype)
    axes = _over(x, dim)
    if not x.ndim:
        return run("contiguous", x)
    count = math.prod(x.shape[k] for k in axes)
    out = run("sum", converted(x, "c128"), dim=axes, keepdim=keepdim)
    return converted(_div(out, float(count) if count else full((), 0.0, "f64")), x.dtype)


def _variance(
    self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Of both parts together, and the mean."""
    x = tensor(self)
    axes = _over(x, dim)
    by = {"dim": axes, "correction": 1 if correction is None else correction, "keepdim": keepdim}
    a, b = _parts(x)
    if not x.ndim:
        a, b, by = a.reshape([1]), b.reshape([1]), by | {"dim": [0]}
    found = _add(run("var", a, **by), run("var", b, **by))
    return found if x.ndim else found.reshape([]), _mean(x, dim, keepdim)


def _moment(root: bool, both: bool, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    kind = _real_of(tensor(self).dtype)
    found, mean = _variance(self, dim, correction, keepdim)
    found = converted(run("sqrt", found) if root else found, kind)
    return (found, mean) if both else found


def _moments(name: str) -> dict[str, Front]:
    root, both = name.startswith("std"), name.endswith("mean")
    made = partial(_moment, root, both)
    return {
        f"aten.{name}.default": lambda self, unbiased=True: made(self, None, int(unbiased), False),
        f"aten.{name}.dim": lambda self, dim, unbiased=True, keepdim=False: made(
            self, dim, int(unbiased), keepdim
        ),
        f"aten.{name}.correction": lambda self, dim=None, correction=None, keepdim=False: made(
            self, dim, correction, keepdim
        ),
    }


def _vector_norm(
    self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    x = _to(self, dtype)
    order = {"fro": 2, None: 2}.get(ord, ord)
    if isinstance(order, str):
        raise Refused(f"the norm {order} is not known")
    sizes = run("hypot", *_parts(x))
    if not x.ndim:
        out = run("vector_norm", sizes.reshape([1]), ord=float(order), dim=[0]).reshape([])
    else:
        out = run("vector_norm", sizes, ord=float(order), dim=_over(x, dim), keepdim=keepdim)
    return converted(out, _real_of(x.dtype))


def _norm_by(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    return _vector_norm(self, p, dim, keepdim, dtype)


def _linalg_norm(
    self: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    axes = _axes(dim)
    count = tensor(self).ndim if axes is None else len(axes)
    if ord is not None and count == 2 and ord != "fro":
        return matrix_norm(self, ord, (-2, -1) if axes is None else axes, keepdim, dtype)
    return _vector_norm(self, ord, axes, keepdim, dtype)


def _dist(self: Any, other: Any, p: Any = 2) -> Tensor:
    return _vector_norm(run("sub", self, other), p)


def _logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Tensor:
    x = tensor(self)
    if not x.ndim:
        return run("contiguous", x)
    axes = _over(x, dim)
    a, b = _parts(x)
    if 0 in (x.shape[k] for k in axes):
        raise Refused("an axis of no numbers has no such sum")
    most = run("amax", a, dim=axes, keepdim=True)
    most = _where(run("isfinite", most), most, 0.0)
    p, q = (run("sum", part, dim=axes, keepdim=True) for part in _exp(_sub(a, most), b))
    re, im = _log(p, q)
    out = _joint(_add(re, most), im, x.dtype)
    if keepdim:
        return out
    return out.reshape([n for k, n in enumerate(x.shape) if k not in axes])


def _logaddexp(self: Any, other: Any) -> Tensor:
    x, y = joined(self, other)
    a, b = _parts(x)
    c, d = _parts(y)
    # Of the larger real part, so that the angle is PyTorch's: it is not brought back to the principal one.
    second = run("lt", a, c)
    re, im = _where(second, c, a), _where(second, d, b)
    lesser, angle = _where(second, a, c), _where(second, b, d)
    ended = run("logical_and", run("isinf", re), run("eq", re, lesser))
    p, q = _log1p(*_exp(_where(ended, 0.0, _sub(lesser, re)), _sub(angle, im)))
    return _joint(_where(ended, re, _add(p, re)), _where(ended, im, _add(q, im)), _result(x, y))


def _lerp(self: Any, end: Any, weight: Any) -> Tensor:
    x, y = tensor(self), tensor(end)
    w = (
        full((), complex(weight), "c128")
        if isinstance(weight, bool | int | float | complex)
        else tensor(weight)
    )
    kind = _result(x, y)
    p, q, t = (converted(v, "c128") for v in (x, y, w))
    return converted(_add(p, _mul(t, _sub(q, p))), kind)


def _mse(self: Any, target: Any, reduction: int = 1) -> Tensor:
    d = _sub(self, target)
    out = _mul(d, d)
    return out if reduction == 0 else _mean(out) if reduction == 1 else run("sum", out)


def _nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    x = tensor(self)
    kind = _real_of(x.dtype)
    top = 3.4028234663852886e38 if kind == "f32" else 1.7976931348623157e308
    ends = {"posinf": top if posinf is None else posinf, "neginf": -top if neginf is None else neginf}
    a, b = (run("nan_to_num", run(part, x), instead=nan or 0.0, **ends) for part in ("real", "imag"))
    return _joint(a, b, x.dtype)


COMPLEXES: dict[str, Front] = {
    **{
        f"aten.{name}.default": _function(formula)
        for name, formula in {
            "acos": _acos,
            "acosh": _acosh,
            "asin": _turned(_asinh),
            "asinh": _asinh,
            "atan": _turned(_atanh),
            "atanh": _atanh,
            "cos": _cos,
            "cosh": _cosh,
            "exp": _exp,
            "exp2": lambda a, b: _exp(_mul(a, math.log(2.0)), _mul(b, math.log(2.0))),
            "expm1": _expm1,
            "log": _log,
            "log10": _log_by(10.0),
            "log1p": _log1p,
            "log2": _log_by(2.0),
            "reciprocal": _reciprocal,
            "rsqrt": _then(_sqrt, _reciprocal),
            "sgn": _sgn,
            "sigmoid": _sigmoid,
            "silu": _silu,
            "sin": _turned(_sinh),
            "sinc": _sinc,
            "sinh": _sinh,
            "sqrt": _sqrt,
            "square": _square,
            "tan": _turned(_tanh),
            "tanh": _tanh,
        }.items()
    },
    "aten.abs.default": _abs,
    "aten.allclose.default": _allclose,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.dist.default": _dist,
    "aten.equal.default": _equal,
    "aten.l1_loss.default": _l1_loss,
    "aten.ldexp.Tensor": _ldexp,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    **{f"aten.float_power.{which}": _float_power for which in ("Scalar", "Tensor_Scalar", "Tensor_Tensor")},
    **COMPLEX,
    **{f"aten.{name}.{w}": f for name, f in (("eq", _eq), ("ne", _ne)) for w in ("Scalar", "Tensor")},
    **{f"aten.logical_{op}.default": partial(_two, f"logical_{op}") for op in ("and", "or", "xor")},
    "aten.logical_not.default": lambda self: _logical("logical_not", self),
    **_tested("any"),
    **_tested("all"),
    "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero,
    "aten.nonzero.default": _nonzero,
    "aten.addbmm.default": _addbmm,
    "aten.addmm.default": _addmm,
    "aten.addr.default": _addr,
    "aten.baddbmm.default": _baddbmm,
    "aten.fill.Scalar": _fill,
    "aten.full.default": _full,
    "aten.full_like.default": _full_like,
    "aten.new_full.default": _new_full,
    "aten.isclose.default": _isclose,
    "aten.isfinite.default": _either("isfinite", "logical_and"),
    "aten.isinf.default": _either("isinf", "logical_or"),
    "aten.isnan.default": _either("isnan", "logical_or"),
    "aten.isreal.default": _isreal,
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.linalg_norm.default": _linalg_norm,
    "aten.linalg_norm.ord_str": _linalg_norm,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.logaddexp.default": _logaddexp,
    "aten.logsumexp.default": _logsumexp,
    "aten.mean.default": lambda self, dtype=None: _mean(self, None, False, dtype),
    "aten.mean.dim": _mean,
    "aten.mse_loss.default": _mse,
    "aten.nan_to_num.default": _nan_to_num,
    "aten.norm.Scalar": lambda self, p=2: _vector_norm(self, p),
    "aten.norm.ScalarOpt_dim": lambda self, p, dim, keepdim=False: _vector_norm(self, p, dim, keepdim),
    "aten.norm.ScalarOpt_dim_dtype": _norm_by,
    "aten.norm.ScalarOpt_dtype": lambda self, p, dtype: _vector_norm(self, p, None, False, dtype),
    **{f"aten.pow.{which}": _pow for which in ("Scalar", "Tensor_Scalar", "Tensor_Tensor")},
    **{k: v for name in ("std", "std_mean", "var", "var_mean") for k, v in _moments(name).items()},
}
