"""ATen overloads over signals and pictures: windows, resampling by extents or by a scale of the caller, pools over
windows that are drawn.

`SIGNALS` is a part of `fronts.COMPOSE`, `SAMPLED` of `fronts.PREPARE`; the rules of fronts.py hold.

May import: `.arguments`, `.fronting`.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .arguments import avg_pool, planes
from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    converted,
    dtype_name,
    full,
    ints,
    run,
    stated,
    tensor,
)

__all__ = ["SAMPLED", "SIGNALS"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))


# ---- windows of signals ------------------------------------------------------------------------------------------


def _signal(shape: Callable[..., Callable[[float, int], float]]) -> Front:
    """A window of so many numbers: `shape(…)` gives the value at k of n; periodic ones leave out their last number."""

    def front(
        window_length: int, periodic: bool = True, *more: float, dtype: Any = None, **named: float
    ) -> Tensor:
        kind = "f32" if dtype is None else dtype_name(dtype)
        if window_length < 0 or kind not in _FLOATS:
            raise Refused(f"a length from 0 on and a float type are wanted, not {window_length} and {kind}")
        value = shape(*more, **named)
        if window_length < 2:
            return full([window_length], 1, kind)
        last = window_length - (0 if periodic else 1)
        return stated([value(k, last) for k in range(window_length)], kind)

    return front


def _cosines(*weights: float) -> Callable[[float, int], float]:
    return lambda k, n: sum(w * (-1) ** j * math.cos(2 * math.pi * j * k / n) for j, w in enumerate(weights))


def _bartlett() -> Callable[[float, int], float]:
    return lambda k, n: 1 - abs(2 * k / n - 1)


def _hamming(alpha: float = 0.54, beta: float = 0.46) -> Callable[[float, int], float]:
    return _cosines(alpha, beta)


def _kaiser(beta: float = 12.0) -> Callable[[float, int], float]:
    def bessel(x: float) -> float:
        out = term = 1.0
        k = 1
        while term > out * 2.0**-60:
            term *= (x / (2 * k)) ** 2
            out += term
            k += 1
        return out

    return lambda k, n: bessel(beta * math.sqrt(max(1 - (2 * k / n - 1) ** 2, 0.0))) / bessel(beta)


# ---- resampling: every place of the result is a weighted sum of a few places of the source --------------------------

#: For each place of the result, the places of the source and their weights.
Taps = Sequence[Sequence[tuple[int, float]]]


def _single(x: float) -> float:
    """Rounded to f32."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def _ratio(scale: float | None, have: int, want: int, align: bool, r: Callable[[float], float]) -> float:
    """The step in the source that a step in the result is, as PyTorch computes it in the type of `r`."""
    if align:
        return r(r(have - 1) / r(want - 1)) if want > 1 else 0.0
    return r(1.0 / scale) if scale is not None and scale > 0 else r(r(have) / r(want))


def _nearest(middle: bool, have: int, want: int, scale: float | None, align: bool, r: Any) -> Taps:
    step = _ratio(scale, have, want, False, _single)
    start = 0.5 if middle else 0.0
    return [[(min(math.floor(_single(_single(o + start) * step)), have - 1), 1.0)] for o in range(want)]


def _place(o: int, step: float, align: bool, r: Callable[[float], float]) -> float:
    return r(r(o) * step) if align else r(r(step * (o + 0.5)) - 0.5)


def _linear(have: int, want: int, scale: float | None, align: bool, r: Any) -> Taps:
    step = _ratio(scale, have, want, align, r)
    out = []
    for o in range(want):
        if have == want:
            out.append([(o, 1.0)])
            continue
        p = max(_place(o, step, align, r), 0.0)
        low = min(math.floor(p), have - 1)
        share = min(max(r(p - low), 0.0), 1.0)
        out.append([(low, r(1.0 - share)), (min(low + 1, have - 1), share)])
    return out


def _cubic_share(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _cubic(have: int, want: int, scale: float | None, align: bool, r: Any) -> Taps:
    step = _ratio(scale, have, want, align, r)
    out = []
    for o in range(want):
        p = _place(o, step, align, r)
        low = math.floor(p)
        share = r(p - low)
        out.append(
            [(min(max(low - 1 + k, 0), have - 1), _cubic_share(share + 1 - k, -0.75)) for k in range(4)]
        )
    return out


def _smooth(
    reach: int,
    shape: Callable[[float], float],
    have: int,
    want: int,
    scale: float | None,
    align: bool,
    r: Any,
) -> Taps:
    """A filter as wide as the result's share of the source, its weights' sum one."""
    step = _ratio(scale, have, want, align, r)
    wide = max(step, 1.0)
    out = []
    for o in range(want):
        middle = r(step * (o + 0.5))
        begin = max(int(r(middle - reach * wide + 0.5)), 0)
        end = min(int(r(middle + reach * wide + 0.5)), have)
        weights = [shape((h - middle + 0.5) / wide) for h in range(begin, end)]
        total = sum(weights)
        out.append([(begin + k, w / total) for k, w in enumerate(weights)])
    return out


def _triangle(d: float) -> float:
    return max(1 - abs(d), 0.0)


def _by_taps(x: Tensor, axis: int, taps: Taps) -> Tensor:
    most = max(len(row) for row in taps)
    shape = [len(taps) if k == axis else 1 for k in range(x.ndim)]
    out: Any = None
    for k in range(most):
        row = [t[k] if k < len(t) else (t[0][0], 0.0) for t in taps]
        part = run("index_select", x, stated([i for i, _ in row], "i64"), dim=axis)
        if any(w != 1.0 for _, w in row):
            part = _mul(part, stated([w for _, w in row], x.dtype).reshape(shape))
        out = part if out is None else _add(out, part)
    return out


def _tapped(
    n: int, kind: Callable[..., Taps], exact: bool, x: Tensor, size: Ints, align: bool, scales: Sequence[Any]
) -> Tensor:
    """`exact`: numbers are only moved."""
    if any(not isinstance(e, int) for e in (*x.shape[2:], *size)):
        raise Refused("a scale of its own is taken for extents that are known")
    if not exact and x.dtype not in _FLOATS:
        raise Refused(f"`self` must be of a float type, it is {x.dtype}")
    inner = x if exact or x.dtype == "f64" else converted(x, "f32")
    rounded = float if x.dtype == "f64" else _single
    for k in range(n):
        inner = _by_taps(inner, 2 + k, kind(x.shape[2 + k], size[k], scales[k], align, rounded))
    return inner if exact else converted(inner, x.dtype)


#: Operator → the taps of an axis, whether numbers are only moved, and whether it has `align`.
_KINDS: dict[str, tuple[Callable[..., Taps], bool, bool]] = {
    "upsample_bicubic2d": (_cubic, False, True),
    "upsample_bicubic2d_aa": (partial(_smooth, 2, partial(_cubic_share, a=-0.5)), False, True),
    "upsample_bilinear2d": (_linear, False, True),
    "upsample_bilinear2d_aa": (partial(_smooth, 1, _triangle), False, True),
    "upsample_linear": (_linear, False, True),
    "upsample_nearest": (partial(_nearest, False), True, False),
    "upsample_nearest_exact": (partial(_nearest, True), True, False),
}


def _sized(n: int, op: str, self: Any, size: Ints, align: bool, scales: Sequence[Any]) -> Call | Tensor:
    """The operator, which knows extents only, where a scale says what they say; else sums of a few places."""
    x = tensor(self)
    kind, exact, aligned = _KINDS[op]
    if x.ndim != n + 2 or len(size) != n:
        raise Refused(f"{n} extents and a batch of pictures are wanted, not {list(size)} and {list(x.shape)}")
    own = any(
        s is not None and s > 0 and want != have * s
        for want, have, s in zip(size, x.shape[2:], scales, strict=True)
    )
    if own and not (align and not exact):
        if any(e < 1 for e in (*size, *x.shape[2:])):
            raise Refused(f"extents must be above 0: {list(x.shape[2:])} to {list(size)}")
        return _tapped(n, kind, exact, x, list(size), align, scales)
    out: dict[str, Any] = {"oh": size[0], "ow": size[1]} if op.partition("_aa")[0].endswith("2d") else {}
    return Call(op, {"x": x, **(out or {"out": list(size)}), **({"align": align} if aligned else {})})


def _by_size(n: int, op: str) -> Front:
    def front(self: Any, output_size: Ints, *more: Any, **named: Any) -> Call | Tensor:
        rest = list(more)
        align = False
        if _KINDS[op][2]:
            align = bool(named.pop("align_corners") if "align_corners" in named else rest.pop(0))
        given = ([*rest, *(named.pop(k) for k in _SCALES[n] if k in named)] + [None] * n)[:n]
        if named:
            raise Refused(f"{', '.join(named)} is not taken")
        return _sized(n, op, self, output_size, align, given)

    return front


_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _by_either(n: int, op: str) -> Front:
    """By extents or by scales: PyTorch's `vec`."""

    def either(input: Any, output_size: Any, align: bool, scale_factors: Any) -> Call | Tensor:
        x = tensor(input)
        if (output_size is None) == (scale_factors is None):
            raise Refused("one of `output_size` and `scale_factors` is wanted")
        if output_size is not None:
            return _sized(n, op, x, output_size, align, [None] * n)
        if len(scale_factors) != n or x.ndim != n + 2:
            raise Refused(f"{n} scales and a batch of pictures are wanted, not {list(scale_factors)}")
        size = [math.floor(have * s) for have, s in zip(x.shape[2:], scale_factors, strict=True)]
        return _sized(n, op, x, size, align, scale_factors)

    if _KINDS[op][2]:
        return lambda input, output_size, align_corners, scale_factors=None: either(
            input, output_size, bool(align_corners), scale_factors
        )
    return lambda input, output_size, scale_factors=None: either(input, output_size, False, scale_factors)


#: An overload's name → the operator and the number of its axes.
_RESAMPLED: dict[str, tuple[str, int]] = {
    "_upsample_bicubic2d_aa": ("upsample_bicubic2d_aa", 2),
    "_upsample_bilinear2d_aa": ("upsample_bilinear2d_aa", 2),
    **{f"_upsample_nearest_exact{n}d": ("upsample_nearest_exact", n) for n in (1, 2, 3)},
    "upsample_bicubic2d": ("upsample_bicubic2d", 2),
    "upsample_bilinear2d": ("upsample_bilinear2d", 2),
    "upsample_linear1d": ("upsample_linear", 1),
    **{f"upsample_nearest{n}d": ("upsample_nearest", n) for n in (1, 2, 3)},
    "upsample_trilinear3d": ("upsample_linear", 3),
}


# ---- pictures at given places ----------------------------------------------------------------------------------------

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


def _grid_sampler(
    n: int, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Call | Tensor:
    """The operator, but for mirrored borders and cubic weights: those by the numbers around each place, in f64."""
    given = {"input": input, "grid": grid, "interpolation_mode": interpolation_mode}
    given |= {"padding_mode": padding_mode, "align_corners": align_corners}
    plain = interpolation_mode != _BICUBIC and padding_mode != _REFLECTION
    if plain or interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2):
        return Call(f"aten.grid_sampler_{n}d.default", given)
    x, g = tensor(input), tensor(grid)
    if (
        x.ndim != n + 2
        or g.ndim != n + 2
        or g.shape[0] != x.shape[0]
        or g.shape[-1] != n
        or x.dtype != g.dtype
    ):
        raise Refused(f"`grid` {g.dtype}{list(g.shape)} does not fit `input` {x.dtype}{list(x.shape)}")
    if interpolation_mode == _BICUBIC and n != 2:
        raise Refused("cubic weights are of planes alone")
    if any(isinstance(e, int) and e < 1 for e in x.shape[1:]):
        raise Refused(f"`input` of shape {list(x.shape)} has nothing to sample")
    places = converted(g, "f64")
    batch, channels, *extents = x.shape
    count = math.prod(g.shape[1:-1])
    flat = run("contiguous", x).reshape([batch, channels, math.prod(extents)])
    axes = []  # for each axis of the picture: (index, weight) of every number around
    for k, extent in enumerate(extents):
        at = places[..., n - 1 - k].reshape([batch, count])
        p = (
            _mul(_add(at, 1.0), (extent - 1) / 2)
            if align_corners
            else _mul(_sub(_mul(_add(at, 1.0), float(extent)), 1.0), 0.5)
        )
        axes.append(_around(p, extent, interpolation_mode, padding_mode, align_corners))
    out: Any = None
    for taps in itertools.product(*axes):
        index, weight = taps[0]
        for extent, (other, factor) in zip(extents[1:], taps[1:], strict=True):
            index, weight = _add(_mul(index, extent), other), _mul(weight, factor)
        wide = index.unsqueeze(1).expand([batch, channels, count])
        part = _mul(converted(run("gather", flat, wide, dim=2), "f64"), weight.unsqueeze(1))
        out = part if out is None else _add(out, part)
    return converted(out, x.dtype).reshape([batch, channels, *g.shape[1:-1]])


def _mirrored(p: Tensor, extent: int, align: bool) -> Tensor:
    low, span = (0.0, float(extent - 1)) if align else (-0.5, float(extent))
    if span == 0:
        return _mul(p, 0.0)
    away = run("abs", _sub(p, low))
    turns = run("floor", _mul(away, 1 / span))
    rest = _sub(away, _mul(turns, span))
    even = run("eq", run("remainder", turns, 2.0), 0)
    return _add(_where(even, rest, _sub(span, rest)), low)


def _within(p: Tensor, extent: int, padding: int, align: bool) -> Tensor:
    p = _mirrored(p, extent, align) if padding == _REFLECTION else p
    return run("clamp", p, lo=0.0, hi=float(extent - 1)) if padding != _ZEROS else p


def _around(p: Tensor, extent: int, mode: int, padding: int, align: bool) -> list[tuple[Tensor, Tensor]]:
    """Indices along one axis, each with its weight."""
    if mode != _BICUBIC:
        p = _within(p, extent, padding, align)
    low = run("round", p) if mode == _NEAREST else run("floor", p)
    share = _sub(p, low)
    if mode == _NEAREST:
        found = [(low, _add(_mul(share, 0.0), 1.0))]
    elif mode == _BILINEAR:
        found = [(low, _sub(1.0, share)), (_add(low, 1.0), share)]
    else:
        near, far = (
            [_cubic_near(share), _cubic_near(_sub(1.0, share))],
            [
                _cubic_far(_add(share, 1.0)),
                _cubic_far(_sub(2.0, share)),
            ],
        )
        weights = [far[0], near[0], near[1], far[1]]
        found = [(_within(_add(low, float(k - 1)), extent, padding, align), w) for k, w in enumerate(weights)]
    out = []
    for q, w in found:
        inside = run("logical_and", run("ge", q, 0.0), run("le", q, float(extent - 1)))
        index = run("cast", run("clamp", _where(inside, q, 0.0), lo=0.0, hi=float(extent - 1)), dtype="i64")
        out.append((index, _where(inside, w, 0.0)))
    return out


def _cubic_near(d: Tensor) -> Tensor:
    return _add(_mul(_mul(_sub(_mul(d, 1.25), 2.25), d), d), 1.0)


def _cubic_far(d: Tensor) -> Tensor:
    return _add(_mul(_sub(_mul(_add(_mul(d, -0.75), 3.75), d), 6.0), d), 3.0)


# ---- means of windows by a divisor ---------------------------------------------------------------------------------


def _divided_pool(
    n: int,
    self: Any,
    kernel_size: int | Ints,
    stride: int | Ints = (),
    padding: int | Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Windows over a picture that is padded so far that all of them are whole."""
    x = tensor(self)
    if divisor_override is None:
        raise Refused("")  # the rule has said why
    if divisor_override == 0:
        raise Refused("`divisor_override` must not be 0")
    said = avg_pool(n, lambda t: (t.dtype, tuple(t.shape)), x, kernel_size, stride, padding, ceil_mode)
    k, s, p = ints(kernel_size, n), said["stride"], said["padding"]
    if any(2 * b > a for a, b in zip(k, p, strict=True)):
        raise Refused(f"`padding` {p} must be at most half of `kernel_size` {k}")
    lead, after = x.ndim - n, []
    for d in range(n):
        extent = x.shape[lead + d]
        over = extent + 2 * p[d] - k[d]
        count = (-(-over // s[d]) if ceil_mode else over // s[d]) + 1
        count = count - 1 if ceil_mode and (count - 1) * s[d] >= extent + p[d] else count
        after.append((count - 1) * s[d] + k[d] - extent - p[d])
    none = [0] * lead
    padded = run("constant_pad", x, before=[*none, *p], after=[*none, *after], value=0)
    wide = padded if x.dtype in ("f32", "f64") else converted(padded, "f32")
    means = run("avg_pool", wide, kernel=k, stride=s, padding=[0] * n)
    return converted(_mul(means, math.prod(k) / divisor_override), x.dtype)


# ---- pools over windows that are drawn -----------------------------------------------------------------------------


def _fractional(
    n: int, self: Any, kernel_size: int | Ints, output_size: int | Ints, random_samples: Any
) -> tuple[Tensor, Tensor]:
    """Largest values of windows whose begins are drawn; of axes from the last one backwards (of planes), in order of
    volumes."""
    x, drawn = tensor(self), tensor(random_samples)
    planes(lambda t: (t.dtype, tuple(t.shape)), "self", x, n)
    batch = x if x.ndim == n + 2 else x.unsqueeze(0)
    kernel, out = ints(kernel_size, n), ints(output_size, n)
    extents = list(batch.shape[2:])
    pictures, channels = batch.shape[:2]
    if tuple(drawn.shape) != (pictures, channels, n) or drawn.dtype != x.dtype:
        raise Refused(
            f"`random_samples` must be {x.dtype}{[pictures, channels, n]}, it is {drawn.dtype}{list(drawn.shape)}"
        )
    for e, k, o in zip(extents, kernel, out, strict=True):
        if k < 1 or o < 1 or o + k - 1 > e:
            raise Refused(f"{o} windows of {k} do not lie in an axis of {e}")
    places: Any = full([pictures, channels] + [1] * (2 * n), 0, "i64")
    for axis, (e, k, o) in enumerate(zip(extents, kernel, out, strict=True)):
        share = run("contiguous", drawn[:, :, n - 1 - axis if n == 2 else axis]).unsqueeze(-1)
        if o > 1:
            alpha = _div(full([], float(e - k), x.dtype), float(o - 1))
            steps = run("arange", start=0, end=o, step=1, dtype=x.dtype)
            begin = _sub(_cut(_mul(_add(steps, share), alpha)), _cut(_mul(share, alpha)))
            last = run("eq", steps, o - 1)
            begin = _where(last, e - k, begin)
        else:
            begin = full([pictures, channels, 1], e - k, "i64")
        shape = [pictures, channels] + [o if j == axis else 1 for j in range(n)] + [1] * n
        within = run("arange", start=0, end=k, step=1, dtype="i64")
        inner = [1, 1] + [1] * n + [k if j == axis else 1 for j in range(n)]
        places = _add(_mul(places, e), _add(begin.reshape(shape), within.reshape(inner)))
    count, size = math.prod(out), math.prod(kernel)
    flat = run("contiguous", places).reshape([pictures, channels, count * size])
    source = run("contiguous", batch).reshape([pictures, channels, math.prod(extents)])
    values = run("gather", source, flat, dim=2).reshape([pictures, channels, count, size])
    best, which = run("max_dim", values, dim=-1)
    where = run("gather", flat.reshape([pictures, channels, count, size]), which.unsqueeze(-1), dim=3)
    shape = [*x.shape[: x.ndim - n], *out]
    return best.reshape(shape), run("contiguous", where).reshape(shape)


def _cut(x: Tensor) -> Tensor:
    return run("cast", run("trunc", x), dtype="i64")


#: A part of `fronts.PREPARE`.
SAMPLED: dict[str, Front] = {
    "aten.grid_sampler_2d.default": partial(_grid_sampler, 2),
    "aten.grid_sampler_3d.default": partial(_grid_sampler, 3),
}

SIGNALS: dict[str, Front] = {
    "aten.avg_pool2d.default": partial(_divided_pool, 2),
    "aten.avg_pool3d.default": partial(_divided_pool, 3),
    "aten.bartlett_window.default": _signal(_bartlett),
    "aten.bartlett_window.periodic": _signal(_bartlett),
    "aten.blackman_window.default": _signal(partial(_cosines, 0.42, 0.5, 0.08)),
    "aten.blackman_window.periodic": _signal(partial(_cosines, 0.42, 0.5, 0.08)),
    "aten.fractional_max_pool2d.default": partial(_fractional, 2),
    "aten.fractional_max_pool3d.default": partial(_fractional, 3),
    **{
        f"aten.hamming_window.{which}": _signal(_hamming)
        for which in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
    },
    "aten.hann_window.default": _signal(partial(_cosines, 0.5, 0.5)),
    "aten.hann_window.periodic": _signal(partial(_cosines, 0.5, 0.5)),
    **{f"aten.kaiser_window.{which}": _signal(_kaiser) for which in ("default", "periodic", "beta")},
    **{f"aten.{name}.default": _by_size(n, op) for name, (op, n) in _RESAMPLED.items()},
    **{f"aten.{name}.vec": _by_either(n, op) for name, (op, n) in _RESAMPLED.items()},
}
