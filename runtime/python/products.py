"""ATen overloads over products, windows and statistics that models call by name: matmul, einsum, conv2d, layer_norm,
max_pool1d, lstm, fft_fft, var_mean …, as the operators that mean them.

`PRODUCTS` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.

May import: `.fronting`, `.arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .arguments import Rule, avg_pool, max_pool, planes, shorter
from .fronting import (
    Call,
    Front,
    Ints,
    Refused,
    Tensor,
    axis_of,
    broadcast,
    converted,
    dtype_name,
    full,
    ints,
    run,
    tensor,
)

__all__ = ["PRODUCTS", "attention_scores", "fft_axes", "fftn_scale", "fitted", "wide"]

# ---- products ----------------------------------------------------------------------------------------------------


def attention_scores(q: Tensor, k: Tensor, mask: Any, *, causal: bool, scale: float | None) -> Tensor:
    """What attention takes the softmax of: -inf where a place is not seen; `mask` says where, or what is added."""
    by = q.shape[-1] ** -0.5 if scale is None else scale
    scores: Tensor = run("mul", run("matmul", q, k.transpose(-1, -2)), by)
    if causal:
        seen = run("tril", full([q.shape[-2], k.shape[-2]], True, "bool"))
        scores = run("where", seen, scores, -math.inf)
    if mask is not None:
        m = tensor(mask)
        scores = run("where", m, scores, -math.inf) if m.dtype == "bool" else run("add", scores, m)
    return scores


def _matmul(self: Any, other: Any) -> Call:
    a, b = tensor(self), tensor(other)
    if a.ndim == 0 or b.ndim == 0:
        raise Refused("both need at least one axis")
    row, column = a.ndim == 1, b.ndim == 1
    a = a.unsqueeze(0) if row else a
    b = b.unsqueeze(-1) if column else b

    def finish(y: Any) -> Any:
        y = y[..., 0] if column else y
        return y[0] if row and column else y[..., 0, :] if row else y

    if b.ndim == 2 and a.ndim > 2:  # one matrix for all rows
        m, n = math.prod(a.shape[:-1]), b.shape[1]
        shape = [*a.shape[:-1], n]
        return Call("matmul", {"a": a.reshape([m, a.shape[-1]]), "b": b}, lambda y: finish(y.reshape(shape)))
    return Call("matmul", {"a": a, "b": b}, finish if row or column else None)


def _outer(self: Any, vec2: Any) -> Call:
    a, b = tensor(self), tensor(vec2)
    if a.ndim != 1 or b.ndim != 1:
        raise Refused("two vectors are wanted")
    return Call("mul", {"a": a.unsqueeze(1), "b": b.unsqueeze(0)})


def _inner(self: Any, other: Any) -> Call | Tensor:
    a, b = tensor(self), tensor(other)
    if a.ndim == 0 or b.ndim == 0:
        return Call("mul", {"a": a, "b": b})
    return _tensordot(a, b, [a.ndim - 1], [b.ndim - 1])


def _vdot(self: Any, other: Any) -> Call:
    a = tensor(self)
    a = run("conj_physical", a) if a.dtype in ("c64", "c128") else a
    return _matmul(a, other)


def _vecdot(x: Any, y: Any, dim: int = -1) -> Call:
    a = tensor(x)
    a = run("conj_physical", a) if a.dtype in ("c64", "c128") else a
    product = run("mul", a, tensor(y))
    return Call("sum", {"x": product, "dim": [axis_of(dim, product.ndim)]})


def _tensordot(self: Any, other: Any, dims_self: Ints, dims_other: Ints) -> Call:
    a, b = tensor(self), tensor(other)
    da, db = [axis_of(d, a.ndim) for d in dims_self], [axis_of(d, b.ndim) for d in dims_other]
    if [a.shape[d] for d in da] != [b.shape[d] for d in db]:
        raise Refused(f"axes {list(dims_self)} and {list(dims_other)} differ in extents")
    fa, fb = ([k for k in range(t.ndim) if k not in d] for t, d in ((a, da), (b, db)))
    shape = [*(a.shape[k] for k in fa), *(b.shape[k] for k in fb)]
    depth = math.prod(a.shape[d] for d in da)
    left = a.permute([*fa, *da]).reshape([math.prod(a.shape[k] for k in fa), depth])
    right = b.permute([*db, *fb]).reshape([depth, math.prod(b.shape[k] for k in fb)])
    return Call("matmul", {"a": left, "b": right}, lambda y: y.reshape(shape))


def _kron(self: Any, other: Any) -> Call:
    a, b = tensor(self), tensor(other)
    rank = max(a.ndim, b.ndim)
    p, q = ([1] * (rank - t.ndim) + list(t.shape) for t in (a, b))
    left = a.reshape([n for e in p for n in (e, 1)])
    right = b.reshape([n for e in q for n in (1, e)])
    shape = [m * n for m, n in zip(p, q, strict=True)]
    return Call("mul", {"a": left, "b": right}, lambda y: y.reshape(shape))


def _trace(self: Any) -> Call:
    x = tensor(self)
    if x.ndim != 2:
        raise Refused("a matrix is wanted")
    line = x.as_strided([min(x.shape)], [x.strides[0] + x.strides[1]], x.offset)
    return Call("sum", {"x": line})


def _cross(self: Any, other: Any, dim: int | None = -1) -> Call:
    a, b = tensor(self), tensor(other)
    if a.ndim != b.ndim:
        raise Refused(f"`self` has rank {a.ndim}, `other` {b.ndim}")
    shape = list(broadcast([a.shape, b.shape]))
    if dim is None:
        dim = next((k for k, n in enumerate(shape) if n == 3), -1)
    axis = axis_of(dim, a.ndim)
    if a.ndim == 0 or a.shape[axis] != 3 or b.shape[axis] != 3:
        raise Refused(f"3 entries are wanted along dim {dim}, in {list(a.shape)} and {list(b.shape)}")
    return Call("linalg_cross", {"a": a.expand(shape), "b": b.expand(shape), "dim": dim})


def _einsum(equation: str, tensors: Sequence[Any], path: Any = None) -> Any:
    """Operands two at a time: letters that no later one needs are summed, then a batch of matrix products."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    xs = [tensor(x) for x in tensors]
    if len(parts) != len(xs):
        raise Refused(f"{len(parts)} terms for {len(xs)} tensors")
    dots = max(
        (x.ndim - len(p.replace("...", "")) for p, x in zip(parts, xs, strict=True) if "..." in p), default=0
    )
    # Axes behind the dots get letters of their own, aligned right.
    spare = [chr(0x100 + k) for k in range(dots)]
    terms = []
    for p, x in zip(parts, xs, strict=True):
        hidden = x.ndim - len(p.replace("...", "")) if "..." in p else 0
        terms.append(p.replace("...", "".join(spare[dots - hidden :])))
    if not arrow:
        seen = "".join(terms)
        right = "..." + "".join(sorted(c for c in set(seen) if seen.count(c) == 1 and c not in spare))
    right = right.replace("...", "".join(spare))
    unknown = [c for c in right if not any(c in t for t in terms)]
    if unknown or len(set(right)) < len(right):
        raise Refused(f"`{right}` has a letter that no term has, or one twice")
    pairs = [_diagonals(x, t) for x, t in zip(xs, terms, strict=True)]
    done, letters = pairs[0]
    for k, (x, t) in enumerate(pairs[1:], start=1):
        later = set(right).union(*(set(u) for _, u in pairs[k + 1 :]))
        done, letters = _contract(done, letters, x, t, later)
    gone = [k for k, c in enumerate(letters) if c not in right]
    if gone:
        done = run("sum", done, dim=gone)
        letters = "".join(c for c in letters if c in right)
    return run("contiguous", done.permute([letters.index(c) for c in right])) if letters != right else done


def _diagonals(x: Tensor, letters: str) -> tuple[Tensor, str]:
    """A view in which every letter stands once."""
    if len(letters) != x.ndim:
        raise Refused(f"`{letters}` for a tensor of rank {x.ndim}")
    names = list(dict.fromkeys(letters))
    shape = [x.shape[letters.index(c)] for c in names]
    strides = [sum(s for s, d in zip(x.strides, letters, strict=True) if d == c) for c in names]
    return x.as_strided(shape, strides, x.offset), "".join(names)


def _contract(a: Tensor, s: str, b: Tensor, t: str, later: set[str]) -> tuple[Tensor, str]:
    """The product of two terms, without the letters that nobody needs."""
    size = {c: n for term, x in ((s, a), (t, b)) for c, n in zip(term, x.shape, strict=True)}
    size |= {c: n for term, x in ((s, a), (t, b)) for c, n in zip(term, x.shape, strict=True) if n != 1}
    for x, term, other in ((a, s, t), (b, t, s)):
        alone = [k for k, c in enumerate(term) if c not in other and c not in later]
        if alone:
            x, term = run("sum", x, dim=alone), "".join(c for c in term if c in other or c in later)
            a, s, b, t = (x, term, b, t) if other is t else (a, s, x, term)
    both = [c for c in s if c in t]
    batch, inner = [c for c in both if c in later], [c for c in both if c not in later]
    rows, columns = [c for c in s if c not in t], [c for c in t if c not in s]

    def matrix(x: Tensor, term: str, first: list[str], second: list[str]) -> Tensor:
        order = [*batch, *first, *second]
        wide = x.permute([term.index(c) for c in order]).expand([size[c] for c in order])
        return wide.reshape([math.prod(size[c] for c in part) for part in (batch, first, second)])

    left, right = matrix(a, s, rows, inner), matrix(b, t, inner, columns)
    out = run("matmul", left, right)
    names = [*batch, *rows, *columns]
    return out.reshape([size[c] for c in names]), "".join(names)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Call:
    x = tensor(v)
    over = [k for k in range(x.ndim) if k != axis_of(dim, x.ndim)]
    return Call("mul", {"a": x, "b": run("div", tensor(g), run("vector_norm", x, dim=over, keepdim=True))})


def _batched(n: int, op: Any, input: Any) -> tuple[Tensor, Any]:
    """An input without a batch axis gets one."""
    x = tensor(input)
    return (x, None) if x.ndim == n + 2 else (x.unsqueeze(0), lambda y: y[0])


def _conv(
    n: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Ints = 1,
    padding: int | Ints | str = 0,
    dilation: int | Ints = 1,
    groups: int = 1,
) -> Call:
    x, finish = _batched(n, None, input)
    kernel, d = list(tensor(weight).shape[2:]), ints(dilation, n)
    if isinstance(padding, str):
        total = [e * (k - 1) if padding == "same" else 0 for k, e in zip(kernel, d, strict=True)]
        if padding not in ("same", "valid"):
            raise Refused(f"padding {padding} is not known")
        if any(t % 2 for t in total):
            after = [t % 2 for t in total]
            x = run("constant_pad", x, before=[0] * (n + 2), after=[0, 0, *after])
        padding = [t // 2 for t in total]
    attrs = {"stride": ints(stride, n), "padding": ints(padding, n), "dilation": d, "groups": groups}
    return Call("convolution", {"x": x, "w": weight, "b": bias, **attrs}, finish)


def _conv_transpose(
    n: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Ints = 1,
    padding: int | Ints = 0,
    output_padding: int | Ints = 0,
    groups: int = 1,
    dilation: int | Ints = 1,
) -> Call:
    x, finish = _batched(n, None, input)
    lists = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    attrs = {name: ints(value, n) for name, value in lists.items()}
    shorter(attrs["output_padding"], attrs["stride"], attrs["dilation"])
    return Call("conv_transpose", {"x": x, "w": weight, "b": bias, **attrs, "groups": groups}, finish)


# ---- windows -----------------------------------------------------------------------------------------------------


def _pool(rule: Rule, op: str, first: bool, *args: Any, **kwargs: Any) -> Call:
    """The operator itself, where no row takes the overload; `first`: of its results."""
    said = rule(lambda x: (tensor(x).dtype, tuple(tensor(x).shape)), *args, **kwargs)
    said.pop("divisor_override", None)  # None: the rule refuses any other
    named = {"x": said.pop("self"), "kernel": said.pop("kernel_size"), **said}
    return Call(op, named, (lambda y: y[0]) if first else None)


def _adaptive_avg(n: int, self: Any, output_size: int | Ints) -> Call:
    x = tensor(self)
    planes(lambda t: (t.dtype, tuple(t.shape)), "self", x, n)
    out = [x.shape[x.ndim - n + k] if s is None else s for k, s in enumerate(ints(output_size, n))]
    return Call("adaptive_avg_pool", {"x": x, "out": out})


def _adaptive_max(n: int, self: Any, output_size: int | Ints) -> Call:
    x = tensor(self)
    planes(lambda t: (t.dtype, tuple(t.shape)), "self", x, n)
    return Call("adaptive_max_pool", {"x": x, "out": ints(output_size, n)})


def _affine_grid(theta: Any, size: Ints, align_corners: bool) -> Call:
    if len(size) != 4:
        raise Refused("grids of planes are wanted")
    return Call("affine_grid_2d", {"m": theta, "h": size[2], "w": size[3], "align": align_corners})


# ---- normalisation -----------------------------------------------------------------------------------------------


def _layer_norm(
    input: Any,
    normalized_shape: Ints,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Call:
    given = {"input": input, "normalized_shape": list(normalized_shape), "weight": weight, "bias": bias}
    return Call("aten.native_layer_norm.default", {**given, "eps": eps}, lambda y: y[0])


def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Call:
    given = {"x": input, "w": weight, "b": bias, "groups": num_groups, "eps": eps}
    return Call("native_group_norm", given, lambda y: y[0])


# ---- statistics --------------------------------------------------------------------------------------------------


def _axes(dim: int | Ints | None) -> list[int] | None:
    return None if dim is None else [dim] if isinstance(dim, int) else list(dim)


def _moment(op: str, self: Any, unbiased: bool = True) -> Call:
    return Call(op, {"x": self, "correction": int(unbiased)})


def _moment_dim(op: str, self: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Call:
    return Call(op, {"x": self, "dim": _axes(dim), "correction": int(unbiased), "keepdim": keepdim})


def _moment_by(op: str, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Call:
    by = 1 if correction is None else correction
    return Call(op, {"x": self, "dim": _axes(dim), "correction": by, "keepdim": keepdim})


def _norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Call:
    order = {"fro": 2, None: 2}.get(p, p)
    if isinstance(order, str):
        raise Refused(f"norm {order} is not known")
    kind = None if dtype is None else dtype_name(dtype)
    return Call(
        "vector_norm", {"x": self, "ord": float(order), "dim": _axes(dim), "keepdim": keepdim, "dtype": kind}
    )


def _linalg_norm(
    self: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Call:
    """Of vectors, and the Frobenius norm."""
    x = tensor(self)
    over = _axes(dim)
    matrix = (len(over) if over is not None else x.ndim) == 2
    if ord is None or (ord == "fro" and matrix) or not matrix:
        return _norm(x, ord, over, keepdim, dtype)
    raise Refused(f"the matrix norm {ord} is not known")


def _dist(self: Any, other: Any, p: float = 2) -> Call:
    return _norm(run("sub", self, other), p)


def _whole(op: str, self: Any) -> Call | Tensor:
    """Over all values as one row, without where they are."""
    x = tensor(self)
    if not x.size and x.dtype in ("f16", "bf16", "f32", "f64"):
        return full((), math.nan, x.dtype)
    return Call(op, {"x": x.reshape([x.size]), "dim": 0}, lambda y: y[0])


def _prod(self: Any, dtype: Any = None) -> Call:
    x = tensor(self)
    kind = None if dtype is None else dtype_name(dtype)
    return Call("prod", {"x": x.reshape([x.size]), "dim": 0, "dtype": kind})


def _argsort(self: Any, dim: int = -1, descending: bool = False) -> Call:
    return Call("aten.sort.default", {"self": self, "dim": dim, "descending": descending}, lambda y: y[1])


def _argsort_stable(self: Any, stable: bool, dim: int = -1, descending: bool = False) -> Call:
    return _argsort(self, dim, descending)


def _msort(self: Any) -> Call:
    return Call("aten.sort.default", {"self": self, "dim": 0}, lambda y: y[0])


def _nanmean(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Call:
    kind = None if dtype is None else dtype_name(dtype)
    return Call("nanmean", {"x": self, "dim": _axes(dim), "keepdim": keepdim, "dtype": kind})


def _diff(self: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = tensor(self)
    axis = axis_of(dim, x.ndim)
    if x.ndim == 0:
        raise Refused("a tensor of at least one axis is wanted")
    if n < 0:
        raise Refused(f"`n` must not be negative, it is {n}")
    parts = [tensor(p) for p in (prepend, x, append) if p is not None]
    x = run("cat", parts, dim=axis) if len(parts) > 1 else x
    op = "logical_xor" if x.dtype == "bool" else "sub"
    for _ in range(min(n, x.shape[axis])):
        m = x.shape[axis]
        low, high = (
            x[tuple(slice(a, b) if k == axis else slice(None) for k in range(x.ndim))]
            for a, b in ((0, m - 1), (1, m))
        )
        x = run(op, high, low)
    return x


def _trapezoid(dx: Any, y: Any, dim: int = -1) -> Any:
    t = tensor(y)
    axis = axis_of(dim, t.ndim)
    m = t.shape[axis]
    low, high = (
        t[tuple(slice(a, b) if k == axis else slice(None) for k in range(t.ndim))]
        for a, b in ((0, max(m - 1, 0)), (min(1, m), m))
    )
    return run("div", run("mul", run("sum", run("add", low, high), dim=[axis]), dx), 2)


# ---- recurrent layers --------------------------------------------------------------------------------------------


def _rnn(
    op: str,
    input: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    """All layers and directions; weights as PyTorch has them: input, state, and their biases, for each in turn."""
    if train and dropout > 0 and num_layers > 1:
        raise Refused("`dropout` draws random numbers")
    given = tensor(input)
    x = given.transpose(0, 1) if batch_first else given
    states = [tensor(h) for h in (hx if isinstance(hx, list | tuple) else [hx])]
    ways, per = (2 if bidirectional else 1), (4 if has_biases else 2)
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(num_layers):
        outs = []
        for way in range(ways):
            k = layer * ways + way
            weights = [tensor(p) for p in params[per * k : per * (k + 1)]]
            steps = run("flip", x, flags=[1, 0, 0]) if way else x
            given_states = (s[k] for s in states)
            y, *ends = run(op, steps, *given_states, *weights)
            outs.append(run("flip", y, flags=[1, 0, 0]) if way else y)
            for into, end in zip(last, ends, strict=True):
                into.append(end.unsqueeze(0))
        x = run("cat", outs, dim=2) if ways > 1 else outs[0]
    x = run("contiguous", x.transpose(0, 1)) if batch_first else x
    return (x, *(run("cat", ends, dim=0) if len(ends) > 1 else ends[0] for ends in last))


# ---- Fourier -----------------------------------------------------------------------------------------------------

_COMPLEX = {"f32": "c64", "f64": "c128", "c64": "c64", "c128": "c128"}


def fftn_scale(norm: str | None, n: int, forward: bool) -> float:
    match norm:
        case None | "backward":
            return 1.0 if forward else 1 / n
        case "ortho":
            return 1 / math.sqrt(n)
        case "forward":
            return 1 / n if forward else 1.0
    raise Refused(f"norm {norm} is not known")


def _by(mode: int, n: int) -> float:
    return {0: 1.0, 1: 1 / math.sqrt(n), 2: 1 / n}[mode]


def wide(x: Tensor, complex_too: bool) -> Tensor:
    """As f32 or f64, or the complex dtype of it."""
    if not x.ndim:
        raise Refused("a transform goes along an axis, and a single number has none")
    kind = x.dtype if x.dtype in _COMPLEX else "f32"
    kind = _COMPLEX[kind] if complex_too else kind
    return converted(x, kind)


def fitted(x: Tensor, axis: int, n: int | None) -> Tensor:
    """Cut off or filled up with zeros at the end."""
    if n is None or n == x.shape[axis]:
        return x
    if n < 1:
        raise Refused("at least one term is wanted")
    after = [n - x.shape[axis] if k == axis else 0 for k in range(x.ndim)]
    return run("constant_pad", x, before=[0] * x.ndim, after=after)


def fft_axes(x: Tensor, axes: Ints, forward: bool, scale: float) -> Tensor:
    for k, axis in enumerate(axes):
        x = run("fft", x, dim=axis, scale=scale if k == 0 else 1.0, forward=forward)
    return x


def _fft_c2c(self: Any, dim: Ints, normalization: int, forward: bool) -> Tensor:
    x = tensor(self)
    axes = [axis_of(d, x.ndim) for d in dim]
    return fft_axes(x, axes, forward, _by(normalization, math.prod(x.shape[a] for a in axes)))


def _fft_r2c(self: Any, dim: Ints, normalization: int, onesided: bool) -> Tensor:
    x = tensor(self)
    axes = [axis_of(d, x.ndim) for d in dim]
    scale = _by(normalization, math.prod(x.shape[a] for a in axes))
    if not onesided:
        return fft_axes(wide(x, True), axes, True, scale)
    return fft_axes(run("rfft", x, dim=axes[-1], scale=scale), axes[:-1], True, 1.0)


def _fft_c2r(self: Any, dim: Ints, normalization: int, last_dim_size: int) -> Tensor:
    x = tensor(self)
    axes = [axis_of(d, x.ndim) for d in dim]
    extents = [*(x.shape[a] for a in axes[:-1]), last_dim_size]
    x = fft_axes(x, axes[:-1], False, 1.0)
    half = fitted(x, axes[-1], last_dim_size // 2 + 1)
    return run(
        "irfft", half, dim=axes[-1], length=last_dim_size, scale=_by(normalization, math.prod(extents))
    )


def _fft(forward: bool, self: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Call:
    x = wide(tensor(self), True)
    axis = axis_of(dim, x.ndim)
    x = fitted(x, axis, n)
    return Call(
        "fft", {"x": x, "dim": axis, "forward": forward, "scale": fftn_scale(norm, x.shape[axis], forward)}
    )


def _rfft(self: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Call:
    x = wide(tensor(self), False)
    if x.dtype in ("c64", "c128"):
        raise Refused("reals are wanted")
    axis = axis_of(dim, x.ndim)
    x = fitted(x, axis, n)
    return Call("rfft", {"x": x, "dim": axis, "scale": fftn_scale(norm, x.shape[axis], True)})


def _irfft(self: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Call:
    x = wide(tensor(self), True)
    axis = axis_of(dim, x.ndim)
    length = 2 * (x.shape[axis] - 1) if n is None else n
    half = fitted(x, axis, length // 2 + 1)
    return Call("irfft", {"x": half, "dim": axis, "length": length, "scale": fftn_scale(norm, length, False)})


def _fftn(
    forward: bool, self: Any, s: Ints | None = None, dim: Ints | None = None, norm: str | None = None
) -> Tensor:
    x = wide(tensor(self), True)
    s, dim = _axes(s), _axes(dim)
    if dim is None:
        dim = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = [axis_of(d, x.ndim) for d in dim]
    for axis, n in zip(axes, s or (), strict=False):
        x = fitted(x, axis, None if n == -1 else n)
    return fft_axes(x, axes, forward, fftn_scale(norm, math.prod(x.shape[a] for a in axes), forward))


def _fft2(
    forward: bool, self: Any, s: Ints | None = None, dim: Ints = (-2, -1), norm: str | None = None
) -> Tensor:
    return _fftn(forward, self, s, dim, norm)


def _shifted(way: int, self: Any, dim: Ints | None = None) -> Call:
    x = tensor(self)
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    chosen = {axis_of(d, x.ndim) for d in axes}
    half = [(n // 2 if way > 0 else -(n // 2)) if k in chosen else 0 for k, n in enumerate(x.shape)]
    return Call("roll", {"x": x, "shifts": half})


def _fftfreq(real: bool, n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    kind = "f32" if dtype is None else dtype_name(dtype)
    count, low = (n // 2 + 1, 0) if real else (n, -(n // 2))
    steps = run("arange", start=low, end=low + count, dtype=kind)
    if not real:
        steps = run("roll", steps, shifts=[-(n // 2)])
    return run("div", steps, full((), n * d, kind))


PRODUCTS: dict[str, Front] = {
    "aten._adaptive_avg_pool3d.default": partial(_adaptive_avg, 3),
    "aten._fft_c2c.default": _fft_c2c,
    "aten._fft_c2r.default": _fft_c2r,
    "aten._fft_r2c.default": _fft_r2c,
    "aten._weight_norm.default": _weight_norm,
    "aten.adaptive_avg_pool1d.default": partial(_adaptive_avg, 1),
    "aten.adaptive_avg_pool2d.default": partial(_adaptive_avg, 2),
    "aten.adaptive_avg_pool3d.default": partial(_adaptive_avg, 3),
    "aten.adaptive_max_pool1d.default": partial(_adaptive_max, 1),
    "aten.adaptive_max_pool2d.default": partial(_adaptive_max, 2),
    "aten.adaptive_max_pool3d.default": partial(_adaptive_max, 3),
    "aten.avg_pool1d.default": partial(_pool, partial(avg_pool, 1), "avg_pool", False),
    "aten.affine_grid_generator.default": _affine_grid,
    "aten.argsort.default": _argsort,
    "aten.argsort.stable": _argsort_stable,
    "aten.conv1d.default": partial(_conv, 1),
    "aten.conv1d.padding": partial(_conv, 1),
    "aten.conv2d.default": partial(_conv, 2),
    "aten.conv2d.padding": partial(_conv, 2),
    "aten.conv3d.default": partial(_conv, 3),
    "aten.conv3d.padding": partial(_conv, 3),
    "aten.conv_transpose1d.default": partial(_conv_transpose, 1),
    "aten.conv_transpose2d.input": partial(_conv_transpose, 2),
    "aten.conv_transpose3d.input": partial(_conv_transpose, 3),
    "aten.cross.default": lambda self, other, dim=None: _cross(self, other, dim),
    "aten.diff.default": _diff,
    "aten.dist.default": _dist,
    "aten.einsum.default": _einsum,
    "aten.fft_fft.default": partial(_fft, True),
    "aten.fft_fft2.default": partial(_fft2, True),
    "aten.fft_fftfreq.default": partial(_fftfreq, False),
    "aten.fft_fftn.default": partial(_fftn, True),
    "aten.fft_fftshift.default": partial(_shifted, 1),
    "aten.fft_ifft.default": partial(_fft, False),
    "aten.fft_ifft2.default": partial(_fft2, False),
    "aten.fft_ifftn.default": partial(_fftn, False),
    "aten.fft_ifftshift.default": partial(_shifted, -1),
    "aten.fft_irfft.default": _irfft,
    "aten.fft_rfft.default": _rfft,
    "aten.fft_rfftfreq.default": partial(_fftfreq, True),
    "aten.group_norm.default": _group_norm,
    "aten.gru.input": partial(_rnn, "gru"),
    "aten.inner.default": _inner,
    "aten.kron.default": _kron,
    "aten.layer_norm.default": _layer_norm,
    "aten.linalg_cross.default": _cross,
    "aten.linalg_norm.default": _linalg_norm,
    "aten.linalg_norm.ord_str": _linalg_norm,
    "aten.linalg_vecdot.default": _vecdot,
    "aten.lstm.input": partial(_rnn, "lstm"),
    "aten.matmul.default": _matmul,
    **{
        f"aten.max_pool{n}d.default": partial(_pool, partial(max_pool, n), "max_pool_with_indices", True)
        for n in (1, 2, 3)
    },
    "aten.max_pool1d_with_indices.default": partial(
        _pool, partial(max_pool, 1), "max_pool_with_indices", False
    ),
    "aten.median.default": partial(_whole, "median"),
    "aten.msort.default": _msort,
    "aten.nanmean.default": _nanmean,
    "aten.nanmedian.default": partial(_whole, "nanmedian"),
    "aten.norm.Scalar": _norm,
    "aten.norm.ScalarOpt_dim": _norm,
    "aten.norm.ScalarOpt_dim_dtype": _norm,
    "aten.norm.ScalarOpt_dtype": lambda self, p, dtype: _norm(self, p, None, False, dtype),
    "aten.outer.default": _outer,
    "aten.prod.default": _prod,
    "aten.rnn_relu.input": partial(_rnn, "rnn_relu"),
    "aten.rnn_tanh.input": partial(_rnn, "rnn_tanh"),
    "aten.std.correction": partial(_moment_by, "std"),
    "aten.std.default": partial(_moment, "std"),
    "aten.std.dim": partial(_moment_dim, "std"),
    "aten.std_mean.correction": partial(_moment_by, "std_mean"),
    "aten.std_mean.default": partial(_moment, "std_mean"),
    "aten.std_mean.dim": partial(_moment_dim, "std_mean"),
    "aten.tensordot.default": _tensordot,
    "aten.trace.default": _trace,
    "aten.trapezoid.dx": lambda y, dx=1, dim=-1: _trapezoid(dx, y, dim),
    "aten.var.default": partial(_moment, "var"),
    "aten.var.dim": partial(_moment_dim, "var"),
    "aten.var_mean.correction": partial(_moment_by, "var_mean"),
    "aten.var_mean.default": partial(_moment, "var_mean"),
    "aten.var_mean.dim": partial(_moment_dim, "var_mean"),
    "aten.vdot.default": _vdot,
}
