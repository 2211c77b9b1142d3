"""ATen overloads over whole matrices: factors, solutions, inverses, determinants, singular and eigenvalues, norms.

`MATRICES` is a part of `fronts.COMPOSE`; the rules of fronts.py hold.  Every one is written in steps of operators over
a column (or a pair of columns) of all matrices of a batch at once, in f64 or c128, and rounded once at the end: what is
given in f32 is as good as exact.  Conventions are LAPACK's: pivots count from 1, reflectors are v with a leading one.

    _eliminated    L and U by rows                 (`lu`, `det`, `solve`, `inv`)
    _reflected     Q and R by Householder          (`qr`, `geqrf`, `ormqr`)
    _diagonalised  eigenvalues of Hermitian ones   Jacobi's rotations of disjoint pairs, a round of them a step
    _singular      singular values                 the same of columns (Hestenes)
    _triangular    Schur's form of any             QR steps with Wilkinson's shift, a matrix at a time

May import: `.exceptions`, `.fronting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from .exceptions import OpValueError
from .fronting import (
    Front,
    Ints,
    Refused,
    Tensor,
    axis_of,
    broadcast,
    conjugate,
    converted,
    door,
    dtype_name,
    full,
    run,
    stated,
    tensor,
)

__all__ = ["COMPLEX", "MATRICES", "matrix_norm"]

_WIDE = {"f32": "f64", "f64": "f64", "c64": "c128", "c128": "c128"}
_REAL = {"f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64"}
_COMPLEX = {"f32": "c64", "f64": "c128", "c64": "c64", "c128": "c128"}
_UNIT = {"f32": 2.0**-23, "f64": 2.0**-52, "c64": 2.0**-23, "c128": 2.0**-52}
#: Rounds of rotations over all pairs; six to ten are enough for what converges at all.
_SWEEPS = 40
#: As many as a program writes out, which cannot see whether it is done, and for how many columns.
_BLIND_SWEEPS, _BLIND_COLUMNS = 7, 12

_add, _sub, _mul, _div, _where = (partial(run, op) for op in ("add", "sub", "mul", "div", "where"))


# ---- what steps are written with ---------------------------------------------------------------------------------


def _batch(name: str, x: Any, square: bool = False) -> tuple[Tensor, list[int]]:
    """Matrices as (batch, rows, columns) in the wide dtype, and the batch's extents."""
    t = tensor(x)
    if t.dtype not in _WIDE:
        raise Refused(f"`{name}` must be f32, f64, c64 or c128, it is {t.dtype}")
    if t.ndim < 2:
        raise Refused(f"`{name}` must have at least two axes, it has {t.ndim}")
    rows, columns = t.shape[-2:]
    if square and rows != columns:
        raise Refused(f"`{name}` must be square, its matrices are {rows} x {columns}")
    lead = list(t.shape[:-2])
    return converted(t, _WIDE[t.dtype]).reshape([math.prod(lead), rows, columns]), lead


def _given(x: Tensor, lead: Ints, dtype: str) -> Tensor:
    """What was found, rounded, with the batch's extents."""
    return converted(x, dtype).reshape([*lead, *x.shape[1:]])


def _complex(x: Tensor) -> bool:
    return x.dtype in ("c64", "c128")


def _adjoint(x: Tensor) -> Tensor:
    return conjugate(x).transpose(-1, -2)


def _re(x: Tensor) -> Tensor:
    return run("real", x) if _complex(x) else x


def _size(x: Tensor) -> Tensor:
    return run("hypot", run("real", x), run("imag", x)) if _complex(x) else run("abs", x)


def _squares(x: Tensor) -> Tensor:
    """|x|^2"""
    if not _complex(x):
        return _mul(x, x)
    re, im = run("real", x), run("imag", x)
    return _add(_mul(re, re), _mul(im, im))


def _zero(x: Tensor) -> Tensor:
    """Where it is zero."""
    if not _complex(x):
        return run("eq", x, 0)
    return run("logical_and", *(run("eq", run(part, x), 0) for part in ("real", "imag")))


def _sum(x: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    return run("sum", x, dim=[axis], keepdim=keepdim)


def _places(n: int) -> Tensor:
    return run("arange", start=0, end=n, step=1, dtype="i64")


def _unit(like: Tensor, rows: int, columns: int) -> Tensor:
    """The identity for every matrix of the batch."""
    return run("eye", rows=rows, columns=columns, dtype=like.dtype).expand([like.shape[0], rows, columns])


def _column(x: Tensor) -> Tensor:
    return x.unsqueeze(2)


def _row(x: Tensor) -> Tensor:
    return x.unsqueeze(1)


def _diagonal(x: Tensor) -> Tensor:
    """The main diagonals: a view."""
    b, m, n = x.shape
    s, r, c = x.strides
    return x.as_strided([b, min(m, n)], [s, r + c], x.offset)


def _triangle(x: Tensor, upper: bool, k: int = 0) -> Tensor:
    """One triangle, from the k-th diagonal on; the rest is zeros."""
    rows, columns = _places(x.shape[1]).unsqueeze(1), _places(x.shape[2]).unsqueeze(0)
    return _where(run("ge" if upper else "le", run("sub", columns, rows), k), x, 0)


def _times(a: Tensor, b: Tensor) -> Tensor:
    return run("matmul", a, b)


def _raised(why: str, rule: str) -> OpValueError:
    return OpValueError(why, hint=rule)


# ---- L and U -----------------------------------------------------------------------------------------------------


def _eliminated(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L below and U on and above the diagonal, pivots (from 0), and where every row came from."""
    b, m, n = x.shape
    rows, columns = _places(m).unsqueeze(0), _places(n).unsqueeze(0)
    order = rows.expand([b, m])
    pivots = []
    for k in range(min(m, n)):
        tail = x[:, k:, k]
        sizes = (
            _add(*(run("abs", run(p, tail)) for p in ("real", "imag"))) if _complex(x) else run("abs", tail)
        )
        p = _add(run("max_dim", sizes, dim=1)[1], k).unsqueeze(1)
        pivots.append(p)
        swap = _swap(rows, p, k)
        x = run("gather", x, _column(swap).expand([b, m, n]), dim=1)
        order = run("gather", order, swap, dim=1)
        pivot = x[:, k, k]
        factor = _where(run("gt", rows, k), _div(x[:, :, k], _where(_zero(pivot), 1, pivot).unsqueeze(1)), 0)
        right = _where(run("gt", columns, k), x[:, k, :], 0)
        x = _sub(x, _mul(_column(factor), _row(right)))
        here = run("logical_and", _column(run("gt", rows, k)), _row(run("eq", columns, k)))
        x = _where(here, _column(factor), x)
    return x, run("cat", pivots, dim=1) if pivots else full((b, 0), 0, "i64"), order


def _swap(rows: Tensor, p: Tensor, k: int) -> Tensor:
    """Row numbers with k and p exchanged."""
    return _where(run("eq", rows, k), p, _where(run("eq", rows, p), k, rows))


def _order(pivots: Tensor, rows: int) -> Tensor:
    """Where every row came from, by LAPACK's pivots (from 1)."""
    b, count = pivots.shape
    here = _places(rows).unsqueeze(0)
    out = here.expand([b, rows])
    given = _sub(converted(pivots, "i64"), 1)
    for k in range(count):
        out = run("gather", out, _swap(here, given[:, k : k + 1], k), dim=1)
    return out


def _substituted(a: Tensor, b: Tensor, upper: bool, unit: bool = False) -> Tensor:
    """x with a x = b, for a triangle of a."""
    n = a.shape[1]
    rows = _places(n).unsqueeze(0)
    for k in reversed(range(n)) if upper else range(n):
        found = b[:, k, :] if unit else _div(b[:, k, :], a[:, k, k].unsqueeze(1))
        rest = _where(run("lt" if upper else "gt", rows, k), a[:, :, k], 0)
        b = _where(_column(run("eq", rows, k)), _row(found), _sub(b, _mul(_column(rest), _row(found))))
    return b


def _by_factors(packed: Tensor, order: Tensor, b: Tensor) -> Tensor:
    moved = run("gather", b, _column(order).expand(b.shape), dim=1)
    return _substituted(packed, _substituted(packed, moved, False, True), True)


def _by_turned_factors(turned: Tensor, order: Tensor, b: Tensor) -> Tensor:
    """The same of the transposed matrix; `turned`: its factors, transposed."""
    y = _substituted(turned, _substituted(turned, b, False), True, True)
    back = run("sort", order, dim=1)[1]
    return run("gather", y, _column(back).expand(y.shape), dim=1)


def _spread(x: Tensor, lead: Ints, both: Ints) -> Tensor:
    """What belongs to a batch, for a batch that it is broadcast to."""
    wide = x.reshape([*lead, *x.shape[1:]]).expand([*both, *x.shape[1:]])
    return wide.reshape([math.prod(both), *x.shape[1:]])


def _first(bad: Tensor) -> Tensor:
    """From a mark for every step: the number (from 1) of the first that is bad, or 0."""
    b, n = bad.shape
    if not n:
        return full((b,), 0, "i32")
    numbers = _where(bad, _add(_places(n), 1).unsqueeze(0), n + 1)
    least = run("amin", numbers, dim=[1])
    return converted(_where(run("eq", least, n + 1), 0, least), "i32")


def _contiguous(x: Tensor) -> bool:
    step = 1
    for n, s in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def _lu_factor_ex(A: Any, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    if not pivot:
        raise Refused("`pivot` must be True: LAPACK has no other")
    x, lead = _batch("A", A)
    packed, pivots, _ = _eliminated(x)
    info = _first(_zero(_diagonal(packed)))
    if check_errors:
        _whole(info, "a pivot is zero")
    dtype = tensor(A).dtype
    return _given(packed, lead, dtype), _given(_add(pivots, 1), lead, "i32"), info.reshape(lead)


def _whole(info: Tensor, why: str) -> None:
    if info.size and int(run("amax", info).item()) > 0:
        raise _raised(
            f"a matrix has no such factor or inverse: {why}", "the overload `_ex` says of which, and goes on"
        )


def _lu_factor(A: Any, pivot: bool = True) -> tuple[Tensor, ...]:
    return _lu_factor_ex(A, pivot)[:2]


def _unpacked(packed: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U with P L U = a."""
    _, m, n = packed.shape
    k = min(m, n)
    places = _places(m)
    p = converted(run("eq", places.unsqueeze(1).unsqueeze(0), _row(order)), packed.dtype)
    low = _add(_triangle(packed[:, :, :k], False, -1), _unit(packed, m, k))
    return p, low, _triangle(packed[:, :k, :], True)


def _lu(A: Any, pivot: bool = True) -> tuple[Tensor, ...]:
    if not pivot:
        raise Refused("`pivot` must be True: LAPACK has no other")
    x, lead = _batch("A", A)
    packed, _, order = _eliminated(x)
    return tuple(_given(y, lead, tensor(A).dtype) for y in _unpacked(packed, order))


def _lu_unpack(
    LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, ...]:
    x, lead = _batch("LU_data", LU_data)
    dtype = tensor(LU_data).dtype
    pivots = tensor(LU_pivots)
    none = full((0,), 0, dtype)
    found = _unpacked(x, _order(pivots.reshape([x.shape[0], pivots.shape[-1]]), x.shape[1]))
    p, low, high = (_given(y, lead, dtype) for y in found)
    return p if unpack_pivots else none, low if unpack_data else none, high if unpack_data else none


def _lu_solve(LU: Any, pivots: Any, B: Any, left: bool = True, adjoint: bool = False) -> Tensor:
    a, b, dtype = tensor(LU), tensor(B), tensor(B).dtype
    if not left:  # x a = b is a^H x^H = b^H
        return _conj_of(_lu_solve(a, pivots, _conj_of(b), True, not adjoint))
    p = tensor(pivots)
    lead = list(broadcast([a.shape[:-2], b.shape[:-2]]))
    x, _ = _batch("LU", a.expand([*lead, *a.shape[-2:]]), True)
    y, _ = _batch("B", b.expand([*lead, *b.shape[-2:]]))
    order = _order(p.expand([*lead, p.shape[-1]]).reshape([x.shape[0], p.shape[-1]]), x.shape[1])
    if not adjoint:
        return _given(_by_factors(x, order, y), lead, dtype)
    return _given(_by_turned_factors(_adjoint(x), order, y), lead, dtype)


def _conj_of(x: Tensor) -> Tensor:
    return _adjoint(tensor(x))


def _factored(A: Any) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """As PyTorch factors it for determinants and solutions: a real matrix that is contiguous by its columns."""
    t = tensor(A)
    x, lead = _batch("A", A, True)
    turn = not _complex(t) and _contiguous(t)
    return (*_eliminated(x.transpose(1, 2) if turn else x), lead)


def _parity(pivots: Tensor) -> Tensor:
    """1, or -1 for an odd number of exchanges."""
    moved = run("ne", pivots, _places(pivots.shape[1]).unsqueeze(0))
    return _sub(1, _mul(run("remainder", run("sum", moved, dim=[1]), 2), 2))


def _det_and(A: Any) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, _, lead = _factored(A)
    dtype = tensor(A).dtype
    out = _mul(run("prod", _diagonal(packed), dim=1), _parity(pivots))
    return _given(out, lead, dtype), _given(packed, lead, dtype), _given(_add(pivots, 1), lead, "i32")


def _slogdet_and(A: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    packed, pivots, _, lead = _factored(A)
    dtype = tensor(A).dtype
    line = _diagonal(packed)
    sizes = _size(line)
    # Each sign is a number of size one, so that no product over- or underflows.
    signs = _div(line, _where(run("eq", sizes, 0), 1, sizes))
    sign = _mul(run("prod", signs, dim=1), _parity(pivots))
    log = run("sum", run("log", sizes), dim=[1])
    return (
        _given(sign, lead, dtype),
        _given(log, lead, _REAL[dtype]),
        _given(packed, lead, dtype),
        _given(_add(pivots, 1), lead, "i32"),
    )


def _logdet(self: Any) -> Tensor:
    sign, log = _slogdet_and(self)[:2]
    if _complex(sign):  # a number of size one has no more than an angle
        re, im = (converted(run(part, sign), "f64") for part in ("real", "imag"))
        return converted(run("complex", converted(log, "f64"), run("atan2", im, re)), sign.dtype)
    return _add(log, run("log", sign))


def _vector_side(a: Tensor, b: Tensor) -> bool:
    """Whether a right side is one vector for every matrix."""
    return bool(b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1])))


def _solve_ex(A: Any, B: Any, left: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    """(solution, LU, pivots, info)"""
    a, b = tensor(A), tensor(B)
    if a.dtype != b.dtype:
        raise Refused(f"`A` is {a.dtype}, `B` is {b.dtype}")
    if a.ndim < 2 or not b.ndim:
        raise Refused("a matrix and a right side are wanted")
    vector = _vector_side(a, b)
    side = b.unsqueeze(-1) if vector else b
    if not left and not vector:
        side = side.transpose(-1, -2)
    if side.shape[-2] != a.shape[-1]:
        raise Refused(f"matrices {list(a.shape)} and right sides {list(b.shape)} do not fit")
    x, lead = _batch("A", a, True)
    packed, pivots, order = _eliminated(x)
    info = _first(_zero(_diagonal(packed)))
    if check_errors:
        _whole(info, "it is singular")
    both = list(broadcast([lead, side.shape[:-2]]))
    y, _ = _batch("B", side.expand([*both, *side.shape[-2:]]))
    spread, moves = _spread(packed, lead, both), _spread(order, lead, both)
    turn = not left and not vector
    found = _by_turned_factors(spread.transpose(1, 2), moves, y) if turn else _by_factors(spread, moves, y)
    out = _given(found, both, a.dtype)
    out = out[..., 0] if vector else out.transpose(-1, -2) if turn else out
    return out, _given(packed, lead, a.dtype), _given(_add(pivots, 1), lead, "i32"), info.reshape(lead)


def _solve(A: Any, B: Any, left: bool = True) -> Tensor:
    return _solve_ex(A, B, left, True)[0]


def _solve_info(A: Any, B: Any, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    out = _solve_ex(A, B, left, check_errors)
    return out[0], out[3]


def _inverse_ex(A: Any, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    x, lead = _batch("A", A, True)
    packed, _, order = _eliminated(x)
    info = _first(_zero(_diagonal(packed)))
    if check_errors:
        _whole(info, "it is singular")
    out = _by_factors(packed, order, _unit(x, x.shape[1], x.shape[1]))
    return _given(out, lead, tensor(A).dtype), info.reshape(lead)


def _inverse(A: Any) -> Tensor:
    return _inverse_ex(A, True)[0]


def _tensorinv(self: Any, ind: int = 2) -> Tensor:
    x = tensor(self)
    if ind <= 0:
        raise Refused("`ind` must be positive")
    first, rest = list(x.shape[:ind]), list(x.shape[ind:])
    if math.prod(first) != math.prod(rest):
        raise Refused(f"{first} and {rest} hold different numbers of elements")
    return _inverse(x.reshape([math.prod(first), math.prod(rest)])).reshape([*rest, *first])


def _tensorsolve(self: Any, other: Any, dims: Ints | None = None) -> Tensor:
    a, b = tensor(self), tensor(other)
    if dims is not None:
        gone = [axis_of(d, a.ndim) for d in dims]
        a = a.permute([*(k for k in range(a.ndim) if k not in gone), *gone])
    rest = list(a.shape[b.ndim :])
    n = math.prod(rest)
    if math.prod(b.shape) != n:
        raise Refused(f"{list(b.shape)} and {rest} hold different numbers of elements")
    return _solve(a.reshape([n, n]), b.reshape([n])).reshape(rest)


# ---- triangles ---------------------------------------------------------------------------------------------------


def _solve_triangular(
    self: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    a, b = tensor(self), tensor(B)
    if a.dtype != b.dtype:
        raise Refused(f"`self` is {a.dtype}, `B` is {b.dtype}")
    if not left:
        turned = _solve_triangular(a.transpose(-1, -2), b.transpose(-1, -2), not upper, True, unitriangular)
        return turned.transpose(-1, -2)
    lead = list(broadcast([a.shape[:-2], b.shape[:-2]]))
    x, _ = _batch("self", a.expand([*lead, *a.shape[-2:]]), True)
    y, _ = _batch("B", b.expand([*lead, *b.shape[-2:]]))
    if x.shape[1] != y.shape[1]:
        raise Refused(f"matrices {list(a.shape)} and right sides {list(b.shape)} do not fit")
    return _given(_substituted(x, y, upper, unitriangular), lead, a.dtype)


def _triangular_solve(
    self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    a, b = tensor(A), tensor(self)
    lead = list(broadcast([a.shape[:-2], b.shape[:-2]]))
    given = a.transpose(-1, -2) if transpose else a
    out = _solve_triangular(given, b, upper != transpose, True, unitriangular)
    return out, run("contiguous", a.expand([*lead, *a.shape[-2:]]))


def _rooted(x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower L with L L^H = x, of which only the lower triangle is read, and marks of pivots not positive."""
    n = x.shape[1]
    rows = _places(n).unsqueeze(0)
    columns, bad = [], []
    for k in range(n):
        d = _re(x[:, k, k])
        bad.append(run("logical_not", run("gt", d, 0)).unsqueeze(1))
        root = run("sqrt", d).unsqueeze(1)
        column = _where(run("gt", rows, k), _div(x[:, :, k], root), 0)
        column = _add(column, _mul(converted(run("eq", rows, k), root.dtype), root))
        columns.append(_column(column))
        x = _sub(x, _mul(_column(column), _row(conjugate(column))))
    return (
        (run("cat", columns, dim=2), run("cat", bad, dim=1))
        if columns
        else (x, full((x.shape[0], 0), 0, "bool"))
    )


def _cholesky_ex(self: Any, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    x, lead = _batch("self", self, True)
    low, bad = _rooted(_adjoint(x) if upper else x)
    info = _first(bad)
    if check_errors:
        _whole(info, "it is not positive definite")
    return _given(_adjoint(low) if upper else low, lead, tensor(self).dtype), info.reshape(lead)


def _cholesky(self: Any, upper: bool = False) -> Tensor:
    return _cholesky_ex(self, upper, True)[0]


def _cholesky_solve(self: Any, input2: Any, upper: bool = False) -> Tensor:
    b, a = tensor(self), tensor(input2)
    lead = list(broadcast([a.shape[:-2], b.shape[:-2]]))
    x, _ = _batch("input2", a.expand([*lead, *a.shape[-2:]]), True)
    y, _ = _batch("self", b.expand([*lead, *b.shape[-2:]]))
    low = _adjoint(x) if upper else x
    return _given(_substituted(_adjoint(low), _substituted(low, y, False), True), lead, b.dtype)


def _cholesky_inverse(self: Any, upper: bool = False) -> Tensor:
    x, lead = _batch("self", self, True)
    n = x.shape[1]
    low = _adjoint(x) if upper else x
    out = _substituted(_adjoint(low), _substituted(low, _unit(x, n, n), False), True)
    return _given(out, lead, tensor(self).dtype)


# ---- Q and R -----------------------------------------------------------------------------------------------------


def _reflected(x: Tensor) -> tuple[Tensor, Tensor]:
    """R on and above the diagonal, reflectors below it, and their factors tau."""
    b, m, n = x.shape
    rows = _places(m).unsqueeze(0)
    taus = []
    for k in range(min(m, n)):
        alpha, column = x[:, k, k], x[:, :, k]
        below = run("gt", rows, k)
        tail = _sum(_where(below, _squares(column), 0), 1)
        norm = run("sqrt", _add(_squares(alpha), tail))
        beta = _where(run("lt", _re(alpha), 0), norm, run("neg", norm))
        idle = run("eq", tail, 0)
        if _complex(x):
            idle = run("logical_and", idle, run("eq", run("imag", alpha), 0))
        beta = _where(idle, 1, beta)  # not to divide by zero; it is not used
        tau = _where(idle, 0, _div(_sub(beta, alpha), beta))
        taus.append(tau.unsqueeze(1))
        lead = _where(idle, 1, _sub(alpha, beta)).unsqueeze(1)
        v = _where(run("eq", rows, k), 1, _where(below, _div(column, lead), 0))
        here = _where(run("eq", rows, k), _where(idle, alpha, beta).unsqueeze(1), _where(below, v, column))
        x = run("cat", [x[:, :, :k], _column(here), _mirrored(x[:, :, k + 1 :], v, conjugate(tau))], dim=2)
    return x, run("cat", taus, dim=1) if taus else full((b, 0), 0, x.dtype)


def _mirrored(x: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """(1 - tau v v^H) x"""
    along = _sum(_mul(_column(conjugate(v)), x), 1)
    return _sub(x, _mul(_column(_mul(tau.unsqueeze(1), v)), _row(along)))


def _unfolded(packed: Tensor, taus: Tensor, columns: int) -> Tensor:
    """The first columns of the product of the reflectors."""
    m = packed.shape[1]
    rows = _places(m).unsqueeze(0)
    q = _unit(packed, m, columns)
    for k in reversed(range(taus.shape[1])):
        v = _where(run("eq", rows, k), 1, _where(run("gt", rows, k), packed[:, :, k], 0))
        q = _mirrored(q, v, taus[:, k])
    return q


def _qr(A: Any, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    x, lead = _batch("A", A)
    dtype = tensor(A).dtype
    _, m, n = x.shape
    if mode not in ("reduced", "complete", "r"):
        raise Refused(f"`mode` must be reduced, complete or r, it is {mode}")
    packed, taus = _reflected(x)
    k = m if mode == "complete" else min(m, n)
    r = _given(_triangle(packed[:, :k, :], True), lead, dtype)
    if mode == "r":
        return full((0,), 0, dtype), r
    return _given(_unfolded(packed, taus, k), lead, dtype), r


def _qr_some(self: Any, some: bool = True) -> tuple[Tensor, Tensor]:
    return _qr(self, "reduced" if some else "complete")


def _geqrf(self: Any) -> tuple[Tensor, Tensor]:
    x, lead = _batch("self", self)
    packed, taus = _reflected(x)
    return _given(packed, lead, tensor(self).dtype), _given(taus, lead, tensor(self).dtype)


def _taken(name: str, tau: Any, x: Tensor) -> Tensor:
    t = tensor(tau)
    if not t.ndim or t.dtype not in _WIDE:
        raise Refused(f"`{name}` must be vectors of numbers")
    return converted(t, x.dtype).reshape([x.shape[0], t.shape[-1]])


def _householder_product(input: Any, tau: Any) -> Tensor:
    x, lead = _batch("input", input)
    if x.shape[1] < x.shape[2] or tensor(tau).shape[-1] > x.shape[2]:
        raise Refused(
            "`input` must have at least as many rows as columns, and no fewer columns than there are `tau`"
        )
    return _given(_unfolded(x, _taken("tau", tau, x), x.shape[2]), lead, tensor(input).dtype)


def _ormqr(self: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Tensor:
    x, lead = _batch("self", self)
    other, _ = _batch("input3", input3)
    q = _unfolded(x, _taken("input2", input2, x), x.shape[1])
    q = _adjoint(q) if transpose else q
    return _given(_times(q, other) if left else _times(other, q), lead, tensor(input3).dtype)


# ---- rotations ---------------------------------------------------------------------------------------------------


def _rounds(n: int) -> list[list[int]]:
    """A tournament: in each round every column's partner (itself: it rests); every two meet once."""
    seats = list(range(n + n % 2))
    out = []
    for _ in range(len(seats) - 1):
        partner = list(range(n))
        for a, b in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True):
            if a < n and b < n:
                partner[a], partner[b] = b, a
        out.append(partner)
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return out


def _rotation(mine: Tensor, theirs: Tensor, across: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """For every column, what it and what its partner give to the column that replaces it, so that the entry `across`
    between them becomes zero.

    mine, theirs  the diagonal entries of the column and of its partner (real)
    across        the entry (first, second) of the pair, for both of them
    first         whether the column is the pair's first
    """
    size = _size(across)
    idle = run("eq", size, 0)
    safe = _where(idle, 1, size)
    gap = _where(first, _sub(theirs, mine), _sub(mine, theirs))
    ratio = _div(gap, _mul(safe, 2))
    t = _div(_where(run("lt", ratio, 0), -1.0, 1.0), _add(run("abs", ratio), run("hypot", ratio, 1.0)))
    t = _where(idle, 0.0, t)
    c = _div(1.0, run("hypot", t, 1.0))
    s = _mul(c, t)
    phase = _where(idle, 1, _div(conjugate(across), safe))
    return (
        _where(first, c, _mul(phase, c)),
        _where(first, run("neg", _mul(phase, s)), s),
    )


def _mixed(x: Tensor, partner: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Columns rotated with their partners."""
    return _add(_mul(x, _row(own)), _mul(run("index_select", x, partner, dim=2), _row(other)))


def _nowhere(x: Tensor) -> bool:
    """Whether it holds nowhere, as far as that is known: a program is written before there are numbers."""
    return not door().blind and not bool(run("any", x).item())


def _sweeps(x: Tensor) -> range:
    """Sweeps over the columns of x: until all is done, or a constant number of them."""
    b, n = x.shape[0], x.shape[-1]
    if n <= 1 or not b:
        return range(0)
    if not door().blind:
        return range(_SWEEPS)
    if n > _BLIND_COLUMNS:
        raise Refused(f"rotations are written out for at most {_BLIND_COLUMNS} columns, not {n}")
    return range(_BLIND_SWEEPS)


def _diagonalised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of Hermitian matrices from the least on, and their vectors as columns."""
    b, n, _ = x.shape
    v = _unit(x, n, n)
    rounds = [(stated(p, "i64"), stated([int(p[k] > k) for k in range(n)], "bool")) for p in _rounds(n)]
    places = _places(n)
    apart = run("ne", places.unsqueeze(1), places.unsqueeze(0))
    for _ in _sweeps(x):
        line = _re(_diagonal(x))
        off = _sum(_sum(_where(apart, _squares(x), 0), 2), 1)
        # What is left is too small to be seen in any eigenvalue.
        seen = run("gt", off, _mul(_sum(_mul(line, line), 1), 1e-36))
        if _nowhere(seen):
            break
        for partner, first in rounds:
            line = _re(_diagonal(x))
            place = partner.unsqueeze(0).unsqueeze(2).expand([b, n, 1])
            cross = run("gather", x, place, dim=2)[:, :, 0]  # (k, partner of k)
            alone = run("eq", partner, places)
            cross = _where(alone, 0, _where(first, cross, conjugate(cross)))
            own, other = _rotation(line, run("index_select", line, partner, dim=1), cross, first)
            x = _mixed(x, partner, own, other)
            x = _adjoint(_mixed(_adjoint(x), partner, own, other))
            v = _mixed(v, partner, own, other)
    values, order = run("sort", run("contiguous", _re(_diagonal(x))), dim=1)
    return values, run("gather", v, _row(order).expand([b, n, n]), dim=2)


def _half(x: Tensor, name: str) -> Tensor:
    """The Hermitian matrix that one triangle says."""
    if name.upper() not in ("L", "U"):
        raise Refused(f"`UPLO` must be L or U, it is {name}")
    upper = name.upper() == "U"
    strict = _triangle(x, upper, 1 if upper else -1)
    n = x.shape[1]
    line = _mul(_unit(x, n, n), _row(_re(run("contiguous", _diagonal(x)))))
    return _add(_add(strict, _adjoint(strict)), line)


def _eigh(A: Any, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    x, lead = _batch("A", A, True)
    dtype = tensor(A).dtype
    values, vectors = _diagonalised(_half(x, UPLO))
    found = _given(values, lead, _REAL[dtype])
    return found, _given(vectors, lead, dtype) if compute_v else full((0,), 0, dtype)


def _singular(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(u s, s, v) of matrices that are no wider than high, s from the greatest on."""
    b, m, n = x.shape
    v = _unit(x, n, n)
    rounds = [(stated(p, "i64"), stated([int(p[k] > k) for k in range(n)], "bool")) for p in _rounds(n)]
    places = _places(n)
    for _ in _sweeps(x):
        turned = False
        for partner, first in rounds:
            norms = _sum(_squares(x), 1)
            theirs = run("index_select", norms, partner, dim=1)
            cross = _sum(_mul(conjugate(x), run("index_select", x, partner, dim=2)), 1)
            alone = run("eq", partner, places)
            cross = _where(alone, 0, _where(first, cross, conjugate(cross)))
            seen = run("gt", _squares(cross), _mul(_mul(norms, theirs), 1e-31))
            if _nowhere(seen):
                continue
            turned = True
            own, other = _rotation(norms, theirs, cross, first)
            x, v = _mixed(x, partner, own, other), _mixed(v, partner, own, other)
        if not turned:
            break
    values, order = run("sort", run("sqrt", _sum(_squares(x), 1)), dim=1, descending=True)
    return (
        run("gather", x, _row(order).expand([b, m, n]), dim=2),
        values,
        run("gather", v, _row(order).expand([b, n, n]), dim=2),
    )


def _decomposed(x: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(U, s, V^H); `whole`: with all columns."""
    _, m, n = x.shape
    if m < n:
        u, s, vh = _decomposed(_adjoint(x), whole)
        return _adjoint(vh), s, _adjoint(u)
    us, s, v = _singular(x)
    # What has no length has no direction of its own: Householder's Q completes the others.
    most = run("amax", s, dim=[1], keepdim=True) if n else s
    live = run("gt", s, _mul(most, 2.0**-52 * max(m, 1)))
    u = _div(us, _row(_where(live, s, 1)))
    packed, taus = _reflected(_where(_row(live), u, 0))
    q = _unfolded(packed, taus, m if whole else n)
    if n:
        lines = _diagonal(packed)
        phase = _where(live, _div(lines, _where(run("eq", _size(lines), 0), 1, _size(lines))), 1)
        first = _where(_row(live), u, _mul(q[:, :, :n], _row(phase)))
        q = run("cat", [first, q[:, :, n:]], dim=2) if q.shape[2] > n else first
    return q, s, _adjoint(v)


def _svd(
    A: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Tensor, ...]:
    x, lead = _batch("A", A)
    dtype = tensor(A).dtype
    if not compute_uv:
        none = full((0,), 0, dtype)
        return none, _svdvals(A), none
    u, s, vh = _decomposed(x, full_matrices)
    return _given(u, lead, dtype), _given(s, lead, _REAL[dtype]), _given(vh, lead, dtype)


def _svd_full(A: Any, full_matrices: bool = True, driver: str | None = None) -> tuple[Tensor, ...]:
    return _svd(A, full_matrices)


def _svd_some(self: Any, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, ...]:
    x = tensor(self)
    if compute_uv:
        u, s, vh = _svd(x, not some)
        return u, s, run("contiguous", _adjoint(vh))
    lead, (m, n) = list(x.shape[:-2]), x.shape[-2:]
    return full([*lead, m, m], 0, x.dtype), _svdvals(x), full([*lead, n, n], 0, x.dtype)


def _values(x: Tensor) -> Tensor:
    return _singular(x if x.shape[1] >= x.shape[2] else _adjoint(x))[1]


def _svdvals(A: Any, driver: str | None = None) -> Tensor:
    x, lead = _batch("A", A)
    return _given(_values(x), lead, _REAL[tensor(A).dtype])


# ---- by singular values ------------------------------------------------------------------------------------------


def _least(x: Tensor, s: Tensor, dtype: str, extents: Sequence[int], atol: Any, rtol: Any) -> Tensor:
    """For every matrix (batch, 1): singular values up to it count as zero."""

    def number(given: Any) -> Any:
        if given is None or isinstance(given, bool | int | float):
            return given
        t = converted(tensor(given), "f64")
        return t.expand(list(extents)).reshape([math.prod(extents)]).unsqueeze(1)

    most = run("amax", s, dim=[1], keepdim=True) if s.shape[1] else full((x.shape[0], 1), 0, "f64")
    absolute, relative = number(atol), number(rtol)
    if relative is None:
        usual = _UNIT[dtype] * max(x.shape[1:])
        if absolute is None or isinstance(absolute, bool | int | float):
            relative = 0.0 if absolute else usual
        else:
            relative = _where(run("gt", absolute, 0), 0.0, usual)
    return run("maximum", _mul(most, relative), 0.0 if absolute is None else absolute)


def _wider(self: Any, *limits: Any) -> Tensor:
    """Matrices for every limit too, where limits are tensors."""
    x = tensor(self)
    shapes = [tensor(v).shape for v in limits if v is not None and not isinstance(v, bool | int | float)]
    return x.expand([*broadcast([x.shape[:-2], *shapes]), *x.shape[-2:]]) if shapes and x.ndim > 1 else x


def _pinv(self: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    given = tensor(self)
    dtype = given.dtype
    if 0 in given.shape and given.ndim > 1:
        return full([*given.shape[:-2], given.shape[-1], given.shape[-2]], 0, dtype)
    x, lead = _batch("self", _wider(given, atol, rtol), hermitian)
    if hermitian:
        values, v = _diagonalised(_half(x, "L"))
        live = run("gt", run("abs", values), _least(x, run("abs", values), dtype, lead, atol, rtol))
        left, right = v, _adjoint(v)
    else:
        u, values, vh = _decomposed(x, False)
        live = run("gt", values, _least(x, values, dtype, lead, atol, rtol))
        left, right = _adjoint(vh), _adjoint(u)
    inverse = _where(live, _div(1.0, _where(live, values, 1)), 0.0)
    return _given(_times(_mul(left, _row(inverse)), right), lead, dtype)


def _pinv_by(self: Any, rcond: Any = 1e-15, hermitian: bool = False) -> Tensor:
    return _pinv(self, 0.0, rcond, hermitian)


def _matrix_rank(self: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    x, lead = _batch("self", _wider(self, atol, rtol))
    if 0 in x.shape:
        return full(lead, 0, "i64")
    values = run("abs", _diagonalised(_half(x, "L"))[0]) if hermitian else _values(x)
    live = run("gt", values, _least(x, values, tensor(self).dtype, lead, atol, rtol))
    return run("sum", live, dim=[1]).reshape(lead)


def _matrix_rank_by(self: Any, tol: Any = None, hermitian: bool = False) -> Tensor:
    return _matrix_rank(self, tol, 0.0 if tol is not None else None, hermitian)


def _lstsq(
    self: Any, b: Any, rcond: float | None = None, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution of the least length, residuals, rank, singular values), of which the last two by the driver."""
    a, side = tensor(self), tensor(b)
    if a.dtype != side.dtype:
        raise Refused(f"`self` is {a.dtype}, `b` is {side.dtype}")
    if a.ndim < 2 or not side.ndim:
        raise Refused("a matrix and a right side are wanted")
    name = driver or "gelsy"
    if name not in ("gels", "gelsy", "gelsd", "gelss"):
        raise Refused(f"`driver` must be gels, gelsy, gelsd or gelss, it is {name}")
    vector = a.ndim - 1 == side.ndim and tuple(side.shape) == tuple(a.shape[:-1])
    side = side.unsqueeze(-1) if vector else side
    lead = list(broadcast([a.shape[:-2], side.shape[:-2]]))
    x, _ = _batch("self", a.expand([*lead, *a.shape[-2:]]))
    y, _ = _batch("b", side.expand([*lead, *side.shape[-2:]]))
    _, m, n = x.shape
    if y.shape[1] != m:
        raise Refused(f"matrices {list(a.shape)} and right sides {list(side.shape)} do not fit")
    real = _REAL[a.dtype]
    if m and n:
        u, s, vh = _decomposed(x, False)
        cut = _UNIT[a.dtype] * max(m, n) if rcond is None else rcond
        live = run("gt", s, _mul(run("amax", s, dim=[1], keepdim=True), cut))
        inverse = _where(live, _div(1.0, _where(live, s, 1)), 0.0)
        out = _times(_mul(_adjoint(vh), _row(inverse)), _times(_adjoint(u), y))
        ranks = run("sum", live, dim=[1])
    else:
        out, s = full((x.shape[0], n, y.shape[2]), 0, x.dtype), full((x.shape[0], 0), 0, "f64")
        ranks = full((x.shape[0],), 0, "i64")
    solution = _given(out, lead, a.dtype)
    left = full((0,), 0, real)
    if m > n and (name == "gels" or (name != "gelsy" and bool(run("all", run("eq", ranks, n)).item()))):
        left = _given(_sum(_squares(_sub(_times(x, out), y)), 1), lead, real)
    rank = full((0,), 0, "i64") if name == "gels" else ranks.reshape(list(a.shape[:-2]))
    shown = _given(s, lead, real) if name in ("gelsd", "gelss") else full((0,), 0, real)
    return (
        solution[..., 0] if vector else solution,
        left[..., 0] if vector and left.ndim > 1 else left,
        rank,
        shown,
    )


# ---- norms -------------------------------------------------------------------------------------------------------


def matrix_norm(
    self: Any, ord: Any = "fro", dim: Ints = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """Of matrices along any two axes: fro, nuc, and 1, 2, inf of either sign."""
    x = tensor(self)
    if dtype is not None:
        x = converted(x, dtype_name(dtype))
    axes = [axis_of(d, x.ndim) for d in dim]
    if len(axes) != 2 or axes[0] == axes[1]:
        raise Refused(f"two different axes are wanted, got {list(dim)}")
    rest = [k for k in range(x.ndim) if k not in axes]
    known = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
    if ord not in known:
        raise Refused(f"the matrix norm {ord} is not known: {known} are")
    half = x.dtype in ("f16", "bf16")
    if half and ord in ("nuc", 2, -2):
        raise Refused(f"the matrix norm {ord} is of f32, f64, c64 or c128, not of {x.dtype}")
    wide = converted(x, "f32") if half else x
    m, _ = _batch("self", wide.permute([*rest, *axes]))
    kind = x.dtype if half else _REAL[x.dtype]
    if ord in ("nuc", 2, -2):
        s = _values(m)
        out = _sum(s, 1) if ord == "nuc" else run("amax" if ord > 0 else "amin", s, dim=[1])
    elif ord == "fro":
        out = run("sqrt", _sum(_sum(_squares(m), 2), 1))
    else:
        sums = _sum(_size(m), 1 if abs(ord) == 1 else 2)
        out = run("amax" if ord > 0 else "amin", sums, dim=[1])
    shape = [1 if k in axes else n for k, n in enumerate(x.shape)] if keepdim else [x.shape[k] for k in rest]
    return converted(out, kind).reshape(shape)


def _cond(self: Any, p: Any = None) -> Tensor:
    x, lead = _batch("self", self, p not in (None, 2, -2))
    dtype = tensor(self).dtype
    if p in (None, 2, -2):
        s = _values(x)
        high, low = run("amax", s, dim=[1]), run("amin", s, dim=[1])
        return _given(_div(low, high) if p == -2 else _div(high, low), lead, _REAL[dtype])
    if not x.size:
        return full(lead, 0, _REAL[dtype])
    inverse, info = _inverse_ex(x)
    product = _mul(matrix_norm(x, p), matrix_norm(inverse, p))
    return _given(_where(run("eq", info, 0), product, math.inf), lead, _REAL[dtype])


# ---- any matrix --------------------------------------------------------------------------------------------------


def _triangular(x: Tensor) -> tuple[Tensor, Tensor]:
    """(t, q): q t q^H = x with t upper triangular, for one complex matrix (1, n, n)."""
    n = x.shape[1]
    q = _unit(x, n, n)
    last, tries = n, 0
    while last > 1:
        edge = _size(x[0, last - 1, : last - 1])
        around = max(
            float(_size(x[0, last - 1, last - 1]).item()), float(_size(x[0, last - 2, last - 2]).item())
        )
        if not float(run("amax", edge).item()) > 2.0**-53 * (around or float(run("amax", _size(x)).item())):
            rows = _places(n)
            gone = run(
                "logical_and", run("eq", rows, last - 1).unsqueeze(1), run("lt", rows, last - 1).unsqueeze(0)
            )
            x = _where(gone.unsqueeze(0), 0, x)
            last, tries = last - 1, 0
            continue
        tries += 1
        if tries > 60:
            raise _raised("the eigenvalues of a matrix were not found", "is every number of it finite?")
        a, b, c, d = (
            complex(x[0, last - 2 + i, last - 2 + j].item()) for i, j in ((0, 0), (0, 1), (1, 0), (1, 1))
        )
        half, root = (a + d) / 2, ((a - d) ** 2 / 4 + b * c) ** 0.5
        shift = min(half + root, half - root, key=lambda z: abs(z - d))
        if tries % 11 == 10:  # out of a circle
            shift = complex(abs(d) + abs(c), abs(b))
        if shift != shift:
            raise _raised("the eigenvalues of a matrix were not found", "every number of it must be finite")
        part = _sub(x[:, :last, :last], _mul(_unit(x, last, last), shift))
        packed, taus = _reflected(part)
        turn = _unfolded(packed, taus, last)
        if last < n:
            corner = run("cat", [turn, full((1, n - last, last), 0, x.dtype)], dim=1)
            turn = run(
                "cat", [corner, run("eye", rows=n, columns=n, dtype=x.dtype)[:, last:].unsqueeze(0)], dim=2
            )
        x, q = _times(_times(_adjoint(turn), x), turn), _times(q, turn)
    return x, q


def _eig(self: Any) -> tuple[Tensor, Tensor]:
    x, lead = _batch("self", self, True)
    dtype = _COMPLEX[tensor(self).dtype]
    b, n, _ = x.shape
    x = converted(x, "c128")
    if not b or not n:
        return full([*lead, n], 0, dtype), full([*lead, n, n], 0, dtype)
    if not bool(run("all", run("isfinite", _size(x))).item()):
        raise _raised("the eigenvalues of a matrix were not found", "every number of it must be finite")
    values, vectors = [], []
    for k in range(b):
        t, q = _triangular(x[k : k + 1])
        line = run("contiguous", _diagonal(t))
        values.append(line)
        least = max(float(run("amax", _size(t)).item()) * 2.0**-52, 2.0**-1000)
        found = []
        for j in range(n):  # (t - λ) v = 0 with v[j] = 1
            v = [full((1, n), 0, "c128")[:, j + 1 :], full((1, 1), 1, "c128")]
            if j:
                part = _sub(t[:, :j, :j], _mul(_unit(t, j, j), line[0, j].item()))
                d = _diagonal(part)
                near = run("lt", _size(d), least)
                part = _add(part, _mul(_unit(t, j, j), _row(_where(near, _sub(least, d), 0))))
                v.append(run("neg", _substituted(part, t[:, :j, j : j + 1], True))[:, :, 0])
            column = run("matmul", q, _column(run("cat", v[::-1], dim=1)))
            found.append(_div(column, run("sqrt", _sum(_squares(column), 1, True))))
        vectors.append(run("cat", found, dim=2))
    return _given(run("cat", values, dim=0), lead, dtype), _given(run("cat", vectors, dim=0), lead, dtype)


def _eigvals(self: Any) -> Tensor:
    x, lead = _batch("self", self, True)
    dtype = _COMPLEX[tensor(self).dtype]
    if not x.size:
        return full([*lead, x.shape[1]], 0, dtype)
    if not bool(run("all", run("isfinite", _size(x))).item()):
        raise _raised("the eigenvalues of a matrix were not found", "every number of it must be finite")
    wide = converted(x, "c128")
    lines = [run("contiguous", _diagonal(_triangular(wide[k : k + 1])[0])) for k in range(x.shape[0])]
    return _given(run("cat", lines, dim=0), lead, dtype)


def _exponential(self: Any) -> Tensor:
    """By the series of x / 2^k, squared k times; k is the matrix's own."""
    x, lead = _batch("self", self, True)
    dtype = tensor(self).dtype
    b, n, _ = x.shape
    one = _unit(x, n, n)
    if not b or not n:
        return run("contiguous", tensor(self))
    sizes = run("amax", _sum(_size(x), 1), dim=[1])  # the 1-norm
    k = run("clamp", run("ceil", run("log2", run("maximum", _mul(sizes, 2), 1.0))), lo=0, hi=1100)
    top = float(run("amax", k).item())
    if top != top:
        top = 0.0
    term = x = _mul(x, run("exp2", run("neg", k)).unsqueeze(1).unsqueeze(2))
    out = _add(one, x)
    for order in range(2, 18):
        term = _div(_times(term, x), order)
        out = _add(out, term)
    for step in range(int(top)):
        out = _where(run("gt", k, step).unsqueeze(1).unsqueeze(2), _times(out, out), out)
    return _given(out, lead, dtype)


def _matrix_power(self: Any, n: int) -> Tensor:
    x = tensor(self)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise Refused(f"`self` must be square matrices, it is {list(x.shape)}")
    if n == 0:
        return run(
            "contiguous",
            run("eye", rows=x.shape[-1], columns=x.shape[-1], dtype=x.dtype).expand(list(x.shape)),
        )
    if n < 0:
        x, n = _inverse(x), -n
    out = None
    while n:
        if n & 1:
            out = x if out is None else _times(out, x)
        n >>= 1
        x = _times(x, x) if n else x
    return run("contiguous", out)


def _multi_dot(tensors: Sequence[Any]) -> Tensor:
    """The product of two or more, in the order that takes the fewest multiplications."""
    xs = [tensor(x) for x in tensors]
    if len(xs) < 2:
        raise Refused("at least two tensors are wanted")
    first, last = xs[0].ndim == 1, xs[-1].ndim == 1
    xs[0] = xs[0].unsqueeze(0) if first else xs[0]
    xs[-1] = xs[-1].unsqueeze(1) if last else xs[-1]
    if any(x.ndim != 2 for x in xs):
        raise Refused("matrices are wanted, and vectors at the ends")
    n = len(xs)
    sides = [xs[0].shape[0], *(x.shape[1] for x in xs)]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(n)}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sides[i] * sides[k + 1] * sides[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        return xs[i] if i == j else _times(product(i, best[i, j][1]), product(best[i, j][1] + 1, j))

    out = product(0, n - 1)
    out = out[:, 0] if last else out
    return out[0] if first else out


def _vander(x: Any, N: int | None = None) -> Tensor:
    t = tensor(x)
    if not t.ndim and N is None:
        raise Refused("of a single number, `N` is wanted")
    t = t if t.ndim else t.reshape([1])
    n = t.shape[-1] if N is None else N
    if n < 1:
        raise Refused("at least one column is wanted")
    t = t if t.dtype in ("f16", "bf16", *_WIDE) else converted(t, "i64")
    ones = full([*t.shape, 1], 1, t.dtype)
    if n == 1:
        return ones
    rest = run("cumprod", t.unsqueeze(-1).expand([*t.shape, n - 1]), dim=-1)
    return run("cat", [ones, converted(rest, t.dtype)], dim=-1)


#: What rows of the table take of reals.
COMPLEX: dict[str, Front] = {
    "aten.linalg_cholesky.default": _cholesky,
    "aten.linalg_solve_triangular.default": _solve_triangular,
}

MATRICES: dict[str, Front] = {
    "aten._linalg_check_errors.default": lambda info, api_name, is_matrix: _whole(tensor(info), api_name),
    "aten._linalg_det.default": _det_and,
    "aten._linalg_eigh.default": _eigh,
    "aten._linalg_slogdet.default": _slogdet_and,
    "aten._linalg_solve_ex.default": _solve_ex,
    "aten._linalg_svd.default": _svd,
    "aten.cholesky.default": _cholesky,
    "aten.cholesky_inverse.default": _cholesky_inverse,
    "aten.cholesky_solve.default": _cholesky_solve,
    "aten.geqrf.default": _geqrf,
    "aten.linalg_cholesky.default": _cholesky,
    "aten.linalg_cholesky_ex.default": _cholesky_ex,
    "aten.linalg_cond.default": _cond,
    "aten.linalg_cond.p_str": _cond,
    "aten.linalg_det.default": lambda A: _det_and(A)[0],
    "aten.linalg_eig.default": _eig,
    "aten.linalg_eigh.default": lambda self, UPLO="L": _eigh(self, UPLO),
    "aten.linalg_eigvals.default": _eigvals,
    "aten.linalg_eigvalsh.default": lambda self, UPLO="L": _eigh(self, UPLO, False)[0],
    "aten.linalg_householder_product.default": _householder_product,
    "aten.linalg_inv.default": _inverse,
    "aten.linalg_inv_ex.default": _inverse_ex,
    "aten.linalg_lstsq.default": _lstsq,
    "aten.linalg_lu.default": _lu,
    "aten.linalg_lu_factor.default": _lu_factor,
    "aten.linalg_lu_factor_ex.default": _lu_factor_ex,
    "aten.linalg_lu_solve.default": _lu_solve,
    "aten.linalg_matrix_exp.default": _exponential,
    "aten.linalg_matrix_norm.default": lambda self, ord, dim=(-2, -1), keepdim=False, dtype=None: matrix_norm(
        self, ord, dim, keepdim, dtype
    ),
    "aten.linalg_matrix_norm.str_ord": matrix_norm,
    "aten.linalg_matrix_power.default": _matrix_power,
    "aten.linalg_matrix_rank.atol_rtol_float": _matrix_rank,
    "aten.linalg_matrix_rank.atol_rtol_tensor": lambda input, atol=None, rtol=None, hermitian=False: (
        _matrix_rank(input, atol, rtol, hermitian)
    ),
    "aten.linalg_matrix_rank.default": _matrix_rank_by,
    "aten.linalg_matrix_rank.tol_tensor": lambda input, tol, hermitian=False: _matrix_rank_by(
        input, tol, hermitian
    ),
    "aten.linalg_multi_dot.default": _multi_dot,
    "aten.linalg_pinv.atol_rtol_float": _pinv,
    "aten.linalg_pinv.atol_rtol_tensor": _pinv,
    "aten.linalg_pinv.default": lambda self, rcond, hermitian=False: _pinv_by(self, rcond, hermitian),
    "aten.linalg_pinv.rcond_tensor": lambda self, rcond, hermitian=False: _pinv_by(self, rcond, hermitian),
    "aten.linalg_qr.default": _qr,
    "aten.linalg_slogdet.default": lambda A: _slogdet_and(A)[:2],
    "aten.linalg_solve.default": _solve,
    "aten.linalg_solve_ex.default": _solve_info,
    "aten.linalg_solve_triangular.default": _solve_triangular,
    "aten.linalg_svd.default": _svd_full,
    "aten.linalg_svdvals.default": _svdvals,
    "aten.linalg_tensorinv.default": _tensorinv,
    "aten.linalg_tensorsolve.default": _tensorsolve,
    "aten.linalg_vander.default": _vander,
    "aten.logdet.default": _logdet,
    "aten.lu_solve.default": lambda self, LU_data, LU_pivots: _lu_solve(LU_data, LU_pivots, self),
    "aten.lu_unpack.default": _lu_unpack,
    "aten.orgqr.default": _householder_product,
    "aten.ormqr.default": _ormqr,
    "aten.pinverse.default": _pinv_by,
    "aten.qr.default": _qr_some,
    "aten.svd.default": _svd_some,
    "aten.triangular_solve.default": _triangular_solve,
}
