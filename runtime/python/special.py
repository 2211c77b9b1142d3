"""ATen overloads of special functions that no operator is: orthogonal polynomials, incomplete gamma functions, zeta,
Bessel functions of a few kinds, the scaled error function.

`SPECIAL` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.  All is computed in f64 and rounded once: by
recurrences, series and continued fractions to the last term that counts, or by the trapezoidal rule, which is as
exact as f64 for what is periodic or falls off doubly exponentially.

May import: `.fronting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from .fronting import Front, Refused, Tensor, converted, full, joined, run, stated, tensor

__all__ = ["SPECIAL"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))
_and, _or = partial(run, "logical_and"), partial(run, "logical_or")
#: Terms of a recurrence, a series or a sum that are walked at most.
_MOST = 5000


def _f64(x: Any) -> tuple[Tensor, str]:
    """A real tensor in f64, and the dtype of a result."""
    t = full((), x, "f64") if isinstance(x, bool | int | float) else tensor(x)
    if t.dtype in ("c64", "c128"):
        raise Refused(f"real numbers are wanted, not {t.dtype}")
    return converted(t, "f64"), t.dtype if t.dtype in _FLOATS else "f32"


def _two(x: Any, y: Any) -> tuple[Tensor, Tensor, str]:
    """Two of them in the shape that they have together; numbers of Python have no say in the dtype."""
    kinds = [tensor(v).dtype for v in (x, y) if not isinstance(v, bool | int | float)]
    real = [k for k in kinds if k in _FLOATS]
    dtype = real[0] if real else "f32"
    for k in real[1:]:
        dtype = run("add", full((), 0, dtype), full((), 0, k)).dtype
    a, b = joined(_f64(x)[0], _f64(y)[0])
    return a, b, dtype


def _greatest(x: Tensor) -> float:
    return float(run("amax", x).item()) if x.size else 0.0


# ---- orthogonal polynomials --------------------------------------------------------------------------------------

Step = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _polynomial(first: Callable[[Tensor], Tensor], step: Step, x: Any, n: Any) -> Tensor:
    """Of degree n (0 for a degree below 0), by its recurrence."""
    a, degrees, dtype = _two(x, n)
    degrees = run("trunc", degrees)
    top = _greatest(degrees)
    if not top <= _MOST:
        raise Refused(f"degrees up to {_MOST} are known, not {top}")
    p, q = full(list(a.shape), 1.0, "f64"), first(a)
    out = _where(run("eq", degrees, 0), 1.0, _where(run("eq", degrees, 1), q, 0.0))
    for k in range(1, int(top)):
        p, q = q, step(a, q, p, k)
        out = _where(run("eq", degrees, k + 1), q, out)
    return converted(out, dtype)


def _doubled(x: Tensor, q: Tensor, p: Tensor, k: int) -> Tensor:
    return _sub(_mul(_mul(x, 2), q), p)


def _legendre(x: Tensor, q: Tensor, p: Tensor, k: int) -> Tensor:
    return _div(_sub(_mul(_mul(x, q), 2 * k + 1), _mul(p, k)), k + 1)


def _laguerre(x: Tensor, q: Tensor, p: Tensor, k: int) -> Tensor:
    return _div(_sub(_mul(_sub(2 * k + 1, x), q), _mul(p, k)), k + 1)


def _shifted(first: Callable[[Tensor], Tensor]) -> Front:
    def polynomial(x: Any, n: Any) -> Tensor:
        """In 2 x - 1, which f64 holds better than x's own dtype."""
        a, degrees, dtype = _two(x, n)
        return converted(_polynomial(first, _doubled, _sub(_mul(a, 2), 1), degrees), dtype)

    return polynomial


def _same(x: Tensor) -> Tensor:
    return x


_CHEBYSHEV: dict[str, Callable[[Tensor], Tensor]] = {
    "t": _same,
    "u": lambda x: _mul(x, 2),
    "v": lambda x: _sub(_mul(x, 2), 1),
    "w": lambda x: _add(_mul(x, 2), 1),
}
_POLYNOMIALS: dict[str, Front] = {
    **{f"chebyshev_polynomial_{k}": partial(_polynomial, f, _doubled) for k, f in _CHEBYSHEV.items()},
    **{f"shifted_chebyshev_polynomial_{k}": _shifted(f) for k, f in _CHEBYSHEV.items()},
    "hermite_polynomial_h": partial(
        _polynomial,
        lambda x: _mul(x, 2),
        lambda x, q, p, k: _sub(_mul(_mul(x, 2), q), _mul(p, 2 * k)),
    ),
    "hermite_polynomial_he": partial(_polynomial, _same, lambda x, q, p, k: _sub(_mul(x, q), _mul(p, k))),
    "laguerre_polynomial_l": partial(_polynomial, lambda x: _sub(1, x), _laguerre),
    "legendre_polynomial_p": partial(_polynomial, _same, _legendre),
}


# ---- incomplete gamma functions ----------------------------------------------------------------------------------


def _gamma(upper: bool, self: Any, other: Any) -> Tensor:
    """The share of the gamma function's integral below (above) `other`."""
    a, x, dtype = _two(self, other)
    inner = _and(run("gt", a, 0), _and(run("gt", x, 0), _and(run("isfinite", a), run("isfinite", x))))
    p, y = _where(inner, a, 1.0), _where(inner, x, 1.0)
    near = run("lt", y, _add(p, 1.0))
    head = run("exp", _sub(_sub(_mul(p, run("log", y)), y), run("lgamma", p)))
    low = _mul(head, _series(p, _where(near, y, 0.5)))
    high = _mul(head, _fraction(p, _where(near, _add(p, 2.0), y)))
    out = _where(near, _sub(1.0, low) if upper else low, high if upper else _sub(1.0, high))
    ends = [  # (where, share below)
        (_or(run("lt", a, 0), run("lt", x, 0)), math.nan),
        (_and(run("eq", a, 0), run("gt", x, 0)), 1.0),
        (_and(run("gt", a, 0), run("eq", x, 0)), 0.0),
        (_and(run("isinf", a), run("isfinite", x)), 0.0),
        (_and(run("isfinite", a), run("isinf", x)), 1.0),
    ]
    share = full((), math.nan, "f64")
    for where, value in reversed(ends):
        share = _where(where, 1 - value if upper else value, share)
    return converted(_where(inner, out, share), dtype)


def _series(a: Tensor, x: Tensor) -> Tensor:
    """Σ x^n / (a (a + 1) … (a + n))"""
    term = _div(1.0, a)
    out = term
    for n in range(1, _MOST):
        term = _mul(term, _div(x, _add(a, n)))
        out = _add(out, term)
        if n % 16 == 0 and not _greatest(_sub(term, _mul(out, 2.0**-54))) > 0:
            return out
    raise Refused("the first argument is too large for the series")


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …)) by Lentz's way"""
    b = _add(_sub(x, a), 1.0)
    c, d = full(list(b.shape), 1e300, "f64"), _div(1.0, b)
    out = d
    for n in range(1, _MOST):
        by = _mul(_sub(a, n), n)
        b = _add(b, 2.0)
        d = _div(1.0, _add(_mul(by, d), b))
        c = _add(b, _div(by, c))
        step = _mul(c, d)
        out = _mul(out, step)
        if n % 16 == 0 and not _greatest(run("abs", _sub(step, 1.0))) > 2.0**-52:
            return out
    raise Refused("the arguments are too large for the fraction")


# ---- zeta --------------------------------------------------------------------------------------------------------

#: (2 k)! / B(2 k)
_EULER = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
    -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17,
    -7.1661652561756670113e18,
)  # fmt: skip


def _zeta(self: Any, other: Any) -> Tensor:
    """Hurwitz's: the sum of (q + k)^-s, its tail by Euler and Maclaurin."""
    s, q, dtype = _two(self, other)
    low = -(_greatest(run("neg", q)) if q.size else 0.0)
    begin = 10 + (math.ceil(-low) if math.isfinite(low) and low < 0 else 0)
    if begin > _MOST:
        raise Refused(f"`other` must lie above -{_MOST}")
    out = full(list(s.shape), 0.0, "f64")
    for k in range(begin):
        out = _add(out, run("pow", _add(q, k), run("neg", s)))
    w = _add(q, begin)
    last = run("pow", w, run("neg", s))
    out = _add(out, _add(_div(_mul(last, w), _sub(s, 1.0)), _mul(last, 0.5)))
    rising = full(list(s.shape), 1.0, "f64")
    for k, number in enumerate(_EULER):
        rising = (
            _mul(rising, _add(s, 2 * k)) if k == 0 else _mul(rising, _mul(_add(s, 2 * k - 1), _add(s, 2 * k)))
        )
        last = _div(last, w) if k == 0 else _div(last, _mul(w, w))
        out = _add(out, _div(_mul(rising, last), number))
    whole_q, whole_s = run("eq", run("floor", q), q), run("eq", run("floor", s), s)
    below = run("le", q, 0)
    out = _where(_and(below, run("logical_not", whole_s)), math.nan, out)
    out = _where(_and(below, whole_q), math.inf, out)
    out = _where(run("eq", s, 1), math.inf, _where(run("lt", s, 1), math.nan, out))
    return converted(out, dtype)


# ---- of one number -----------------------------------------------------------------------------------------------


def _of_one(formula: Callable[[Tensor], Tensor]) -> Front:
    def front(self: Any) -> Tensor:
        x, dtype = _f64(self)
        return converted(formula(x), dtype)

    return front


def _erfcx(x: Tensor) -> Tensor:
    """e^(x²) erfc(x): by its fraction from 2 on."""
    far = run("gt", x, 2.0)
    z, y = _where(far, x, 3.0), _where(far, 0.0, x)
    tail = z
    for k in range(120, 0, -1):
        tail = _add(z, _div(k / 2, tail))
    return _where(far, _div(1 / math.sqrt(math.pi), tail), _mul(run("exp", _mul(y, y)), run("erfc", y)))


def _log_ndtr(x: Tensor) -> Tensor:
    t = _mul(x, math.sqrt(0.5))
    far = run("lt", x, -1.0)
    z = _where(far, t, -1.0)
    low = _sub(run("log", _mul(_erfcx(run("neg", z)), 0.5)), _mul(z, z))
    return _where(far, low, run("log1p", _mul(run("erfc", _where(far, 0.0, t)), -0.5)))


#: From here on the expansion in 1 / x holds to the last place.
_FAR, _FAR_TERMS = 26.0, 14


def _waves(order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """J and Y of a large argument, by Hankel's expansion."""
    y = _div(1.0, x)
    p, q = full(list(x.shape), 0.0, "f64"), full(list(x.shape), 0.0, "f64")
    factor, power = 1.0, full(list(x.shape), 1.0, "f64")
    for k in range(_FAR_TERMS):
        signed = _mul(power, factor if k % 4 < 2 else -factor)
        p, q = (_add(p, signed), q) if k % 2 == 0 else (p, _add(q, signed))
        factor *= (4 * order * order - (2 * k + 1) ** 2) / (8 * (k + 1))
        power = _mul(power, y)
    turn = _sub(x, (2 * order + 1) * math.pi / 4)
    c, s = run("cos", turn), run("sin", turn)
    size = run("sqrt", _mul(y, 2 / math.pi))
    return _mul(size, _sub(_mul(p, c), _mul(q, s))), _mul(size, _add(_mul(p, s), _mul(q, c)))


def _period(n: int) -> tuple[Tensor, list[float]]:
    return _mul(run("arange", start=0, end=n, step=1, dtype="f64"), 2 * math.pi / n), [
        2 * math.pi * k / n for k in range(n)
    ]


def _mean(x: Tensor) -> Tensor:
    return run("mean", x, dim=[x.ndim - 1])


def _bessel_j(order: int, x: Tensor) -> Tensor:
    """The mean of cos(n t - x sin t) over a period."""
    size = run("abs", x)
    far = run("gt", size, _FAR)
    t, _ = _period(108)
    calm = _where(_or(far, run("isnan", x)), 0.0, x).unsqueeze(x.ndim)
    near = _mean(run("cos", _sub(_mul(t, order), _mul(calm, run("sin", t)))))
    wave = _waves(order, _where(_and(far, run("isfinite", x)), size, _FAR))[0]
    wave = _mul(wave, run("sign", x)) if order == 1 else wave
    out = _where(far, wave, near)
    return _where(run("isfinite", x), out, math.nan)


def _bessel_y(order: int, x: Tensor) -> Tensor:
    """Neumann's series over J of even orders, summed under the mean over a period."""
    far = run("gt", x, _FAR)
    good = _and(run("gt", x, 0), run("logical_not", far))
    z = _where(good, x, 1.0)
    t, places = _period(296)
    sums = [sum((-1) ** k * math.cos(2 * k * p) / k for k in range(1, 56)) for p in places]
    sines = run("sin", t)
    turns = _mul(z.unsqueeze(x.ndim), sines)
    log = _add(run("log", _mul(z, 0.5)), 0.57721566490153286061)
    j0, weights = _mean(run("cos", turns)), stated(sums, "f64")
    if order == 0:
        rest = _mean(_mul(weights, run("cos", turns)))
        near = _mul(_sub(_mul(log, j0), _mul(rest, 2.0)), 2 / math.pi)
    else:
        j1 = _mean(run("cos", _sub(t, turns)))
        rest = _mean(_mul(_mul(weights, sines), run("sin", turns)))
        near = _mul(_sub(_sub(_mul(log, j1), _div(j0, z)), _mul(rest, 2.0)), 2 / math.pi)
    wave = _waves(order, _where(_and(far, run("isfinite", x)), x, _FAR))[1]
    out = _where(far, _where(run("isinf", x), math.nan, wave), near)
    ends = _where(run("eq", x, 0), -math.inf, math.nan)
    return _where(_or(good, far), out, ends)


def _bessel_k(order: int, scaled: bool, x: Tensor) -> Tensor:
    """∫ e^(-x (cosh t - 1)) cosh(n t) dt from 0 on"""
    good = _and(run("gt", x, 0), run("isfinite", x))
    z = _where(good, x, 1.0).unsqueeze(x.ndim)
    end = run("acosh", _add(_div(60.0 if order == 0 else 90.0, z), 2.0))
    n = 600
    t = _mul(_div(end, float(n)), run("arange", start=0, end=n + 1, step=1, dtype="f64"))
    half = run("sinh", _mul(t, 0.5))
    values = _mul(run("exp", _mul(_mul(_mul(half, half), z), -2.0)), run("cosh", _mul(t, order)))
    total = _sub(run("sum", values, dim=[values.ndim - 1]), 0.5)
    out = _mul(total, _div(end, float(n)).reshape(list(x.shape)))
    out = out if scaled else _mul(out, run("exp", run("neg", _where(good, x, 1.0))))
    return _where(good, out, _where(run("eq", x, 0), math.inf, _where(run("gt", x, 0), 0.0, math.nan)))


def _spherical_j0(x: Tensor) -> Tensor:
    none = run("eq", x, 0)
    safe = _where(none, 1.0, x)
    ends = run("isinf", x)
    return _where(none, 1.0, _where(ends, 0.0, _div(run("sin", _where(ends, 0.0, safe)), safe)))


def _polygamma(n: int, self: Any) -> Tensor:
    """(-1)^(n + 1) n! zeta(n + 1, x)"""
    if n < 0:
        raise Refused(f"order {n} is not known")
    x, dtype = _f64(self)
    if n < 2:
        return converted(run("trigamma" if n else "digamma", x), dtype)
    return converted(_mul(_zeta(float(n + 1), x), (-1.0) ** (n + 1) * math.factorial(n)), dtype)


SPECIAL: dict[str, Front] = {
    "aten.igamma.default": partial(_gamma, False),
    "aten.igammac.default": partial(_gamma, True),
    "aten.polygamma.default": _polygamma,
    "aten.special_bessel_j0.default": _of_one(partial(_bessel_j, 0)),
    "aten.special_bessel_j1.default": _of_one(partial(_bessel_j, 1)),
    "aten.special_bessel_y0.default": _of_one(partial(_bessel_y, 0)),
    "aten.special_bessel_y1.default": _of_one(partial(_bessel_y, 1)),
    "aten.special_erfcx.default": _of_one(_erfcx),
    "aten.special_log_ndtr.default": _of_one(_log_ndtr),
    "aten.special_modified_bessel_i0.default": _of_one(partial(run, "i0")),
    "aten.special_modified_bessel_i1.default": _of_one(partial(run, "special_i1")),
    "aten.special_modified_bessel_k0.default": _of_one(partial(_bessel_k, 0, False)),
    "aten.special_modified_bessel_k1.default": _of_one(partial(_bessel_k, 1, False)),
    "aten.special_scaled_modified_bessel_k0.default": _of_one(partial(_bessel_k, 0, True)),
    "aten.special_scaled_modified_bessel_k1.default": _of_one(partial(_bessel_k, 1, True)),
    "aten.special_spherical_bessel_j0.default": _of_one(_spherical_j0),
    **{f"aten.special_zeta.{which}": _zeta for which in ("default", "other_scalar", "self_scalar")},
    **{
        f"aten.special_{name}.{which}": polynomial
        for name, polynomial in _POLYNOMIALS.items()
        for which in ("default", "n_scalar", "x_scalar")
    },
}
