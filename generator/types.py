"""Dtypes: names, sizes, rounding units, promotion, and the rules that a spec's `types:` may name.

May import: the standard library only.  To add a dtype: one row in `_ROWS`; to add a type rule: one function in
`RULES` (a spec then says `types: {R: my_rule(T)}`).
Sources: PyTorch's documented promotion lattice (torch.promote_types); unit roundoffs from IEEE 754.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CATEGORIES",
    "HALVES",
    "RULES",
    "DType",
    "Operand",
    "accum",
    "category",
    "complex_of",
    "default_dtype",
    "exact_in",
    "in_category",
    "promote",
    "promote_operands",
    "real_of",
    "rounded",
    "sum_type",
]


class DType(enum.Enum):
    """An element type; `.value` is its name in specs, keys, JSON and tables."""

    BOOL = "bool"
    U8 = "u8"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    C128 = "c128"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return self.value

    @property
    def row(self) -> Row:
        return _ROWS[self]

    @property
    def bytes(self) -> int:
        """Size of one element."""
        return self.row.bytes

    @property
    def kind(self) -> str:
        """One of `bool int uint float complex`."""
        return self.row.kind

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        return self.kind in ("float", "complex")

    @property
    def is_integer(self) -> bool:
        """Integers, bool left out."""
        return self.kind in ("int", "uint")

    @property
    def u(self) -> float:
        """Unit roundoff of one correctly rounded operation (0 for exact types)."""
        return self.row.u

    @property
    def eta(self) -> float:
        """Half of the smallest subnormal: the absolute error that a rounding near zero may add."""
        return self.row.eta

    @property
    def max(self) -> float | int:
        """Largest finite value."""
        return self.row.max

    @property
    def min(self) -> float | int:
        """Lowest finite value."""
        return self.row.min


@dataclass(frozen=True)
class Row:
    bytes: int
    kind: str
    rank: int  # within promotion: the order of a kind's widths
    min: float | int
    max: float | int
    u: float = 0.0
    eta: float = 0.0


_ROWS: dict[DType, Row] = {
    DType.BOOL: Row(1, "bool", 0, 0, 1),
    DType.U8: Row(1, "uint", 1, 0, 255),
    DType.I8: Row(1, "int", 1, -(2**7), 2**7 - 1),
    DType.I16: Row(2, "int", 2, -(2**15), 2**15 - 1),
    DType.I32: Row(4, "int", 3, -(2**31), 2**31 - 1),
    DType.I64: Row(8, "int", 4, -(2**63), 2**63 - 1),
    DType.F16: Row(2, "float", 1, -65504.0, 65504.0, 2.0**-11, 2.0**-25),
    DType.BF16: Row(2, "float", 1, -3.3895313892515355e38, 3.3895313892515355e38, 2.0**-8, 2.0**-134),
    DType.F32: Row(4, "float", 2, -3.4028234663852886e38, 3.4028234663852886e38, 2.0**-24, 2.0**-150),
    DType.F64: Row(8, "float", 3, -1.7976931348623157e308, 1.7976931348623157e308, 2.0**-53, 0.0),
    DType.C64: Row(8, "complex", 2, -3.4028234663852886e38, 3.4028234663852886e38, 2.0**-24, 2.0**-150),
    DType.C128: Row(16, "complex", 3, -1.7976931348623157e308, 1.7976931348623157e308, 2.0**-53, 0.0),
}

#: The sets of dtypes a type variable may range over, named by algebraic property.
CATEGORIES: dict[str, tuple[DType, ...]] = {
    "any": tuple(DType),
    "number": tuple(d for d in DType if d is not DType.BOOL),
    "real": tuple(d for d in DType if not d.is_complex),
    "ordered": tuple(d for d in DType if not d.is_complex and d is not DType.BOOL),
    "float": (DType.F16, DType.BF16, DType.F32, DType.F64),
    "wide": (DType.F32, DType.F64),
    "inexact": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.C64, DType.C128),
    "complex": (DType.C64, DType.C128),
    "integer": (DType.U8, DType.I8, DType.I16, DType.I32, DType.I64),
    "integral": (DType.BOOL, DType.U8, DType.I8, DType.I16, DType.I32, DType.I64),
    "index": (DType.I32, DType.I64),
    "bool_or_float": (DType.BOOL, DType.F16, DType.BF16, DType.F32, DType.F64),
}


def in_category(dtype: DType, name: str) -> bool:
    """Whether `dtype` belongs to the named set; a dtype's own name is the set of itself."""
    return dtype in CATEGORIES[name] if name in CATEGORIES else dtype.value == name


def category(dtype: DType) -> int:
    """PyTorch's category order for mixed operands: bool 0 < integer 1 < float 2 < complex 3."""
    return {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}[dtype.kind]


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype that both convert to, as torch.promote_types gives it."""
    if a is b:
        return a
    ca, cb = category(a), category(b)
    if ca != cb:
        low, high = (a, b) if ca < cb else (b, a)
        if high.is_complex and low.is_float:
            return DType.C128 if low is DType.F64 or high is DType.C128 else DType.C64
        return high
    if ca == 2:
        if {a, b} == {DType.F16, DType.BF16}:
            return DType.F32
        return a if a.row.rank > b.row.rank else b
    if DType.U8 in (a, b):
        other = b if a is DType.U8 else a
        return DType.I16 if other is DType.I8 else other
    return a if a.row.rank > b.row.rank else b


def default_dtype(value: object) -> DType:
    """The dtype a bare Python scalar has where nothing else decides (bool, i64, f32, c64)."""
    if isinstance(value, bool):
        return DType.BOOL
    if isinstance(value, int):
        return DType.I64
    if isinstance(value, complex):
        return DType.C64
    return DType.F32


@dataclass(frozen=True)
class Operand:
    """What promotion sees of one argument: its dtype, its rank, and whether it is a Python scalar (`weak`)."""

    dtype: DType
    rank: int = 1
    weak: bool = False

    @property
    def priority(self) -> int:
        return 0 if self.weak else (1 if self.rank == 0 else 2)


def promote_operands(operands: Sequence[Operand]) -> DType:
    """The dtype of a call, as torch.result_type gives it: a tensor outweighs a rank-0 tensor, and that a Python scalar;
    the lighter one counts only where its category is higher.  A complex operand beside a float tensor takes the
    tensor's width (f16 and bf16, which have no complex type here, give c64).
    """
    if not operands:
        raise ValueError("promotion of nothing")
    by_priority: list[DType | None] = [None, None, None]
    for op in operands:
        have = by_priority[op.priority]
        by_priority[op.priority] = op.dtype if have is None else promote(have, op.dtype)
    result: DType | None = None
    for light in by_priority:
        if result is None or light is None:
            result = light or result
        elif category(result) <= category(light):
            result = light
        elif result.is_complex and light.is_float:
            result = complex_of(light)
    assert result is not None
    return result


def rounded(value: float, dtype: DType) -> float:
    """The nearest number of a half type (ties to even); other dtypes' literals are rounded by whoever reads them."""
    if dtype not in (DType.F16, DType.BF16) or value == 0 or not math.isfinite(value):
        return value
    digits, lowest = (11, -24) if dtype is DType.F16 else (8, -133)
    quantum = 2.0 ** max(math.frexp(value)[1] - digits, lowest)
    found = round(value / quantum) * quantum
    return math.copysign(found if abs(found) <= dtype.max else math.inf, value)


def exact_in(value: int | float, dtype: DType) -> bool:
    """Whether the dtype holds this number itself, for floats in the range that all but denormals share."""
    if dtype is DType.BOOL:
        return value in (0, 1)
    if dtype.is_integer:
        return isinstance(value, int) and dtype.min <= value <= dtype.max
    if isinstance(value, int) and abs(value) >= 2**53:
        return False
    if dtype is DType.F64:
        return True
    bits = {DType.F32: 24, DType.F16: 11, DType.BF16: 8}.get(dtype)
    if bits is None or not math.isfinite(value):
        return bits is not None
    m = math.frexp(value)[0]
    return (m * 2.0**bits).is_integer() and (value == 0 or 2.0**-14 <= abs(value) <= 65504.0)


#: Types of 16 bits, of which nothing is computed: a kernel widens them.
HALVES = (DType.F16, DType.BF16)


def accum(t: DType) -> DType:
    """The accumulator: half types widen to f32, bool to i64, the rest keep their own width."""
    if t in HALVES:
        return DType.F32
    return DType.I64 if t is DType.BOOL else t


def sum_type(t: DType) -> DType:
    """Result type of sum and prod: integers and bool give i64."""
    return DType.I64 if category(t) <= 1 else t


def complex_of(t: DType) -> DType:
    return t if t.is_complex else (DType.C128 if t is DType.F64 else DType.C64)


def real_of(t: DType) -> DType:
    return {DType.C64: DType.F32, DType.C128: DType.F64}.get(t, t)


def float_of(t: DType) -> DType:
    """What a true division or a transcendental of `t` gives: floats stay, integers become the default float."""
    return t if t.is_inexact else DType.F32


def stat_type(t: DType, w: DType) -> DType:
    """Statistics of a norm on mixed inputs: f32 when a half input meets f32 parameters, else the input's type."""
    return w if t in HALVES and w is DType.F32 else t


def wider(*ts: DType) -> DType:
    """Promotion of dtypes alone (no ranks, no scalars)."""
    out = ts[0]
    for t in ts[1:]:
        out = promote(out, t)
    return out


#: Type rules a spec may apply to type variables already solved.  `promote`, `opmath`, `attr` and `default` see the call
#: and are handled by the binder.
RULES: dict[str, Callable[..., Any]] = {
    "accum": accum,
    "sum_type": sum_type,
    "complex_of": complex_of,
    "real_of": real_of,
    "float_of": float_of,
    "stat_type": stat_type,
    "wider": wider,
}
