"""What `call_aten` answers by several steps or in another way, written down as nodes of a program.

The fronts of the face (runtime/python/fronts.py and what it is made of) say what an overload is in terms of operators.
They are run here through a door of our own: its tensors are layouts over values of the program, its extents may be
symbols, and running an operator appends a call.  So a front serves arrays and programs alike, and there is one list.

    expand(converter, args, fakes)   the node's result; raises `RowRefused` where no front takes the arguments

A front that decides by an extent that varies refuses, unless the symbols' ranges decide it.  What it appended before it
refused is read by nobody, and pruned.

May import: captured, convert (types), ir, intexpr, shapes, views, torch_compat, generator.{spec, types, errors},
opwright.{fronts, fronting, complexes, arguments}.  To add an overload: a front; nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...complexes import COMPLEXES
from ...fronting import Call, Refused, front, through, without_axes
from ...fronts import COMPOSE, PREPARE, VIEWS
from ...random import DRAWS
from ..errors import OpwrightError
from ..spec import OpSpec, load_spec
from ..types import DType, Operand, default_dtype
from . import torch_compat as compat
from . import views
from .captured import PLACEMENT, Ref, RowRefused, text_of
from .intexpr import IntExpr, floordiv, mod, product
from .ir import ScalarArg
from .shapes import results

if TYPE_CHECKING:
    from .convert import Converter

__all__ = ["Array", "Size", "answers", "expand", "of_complex", "spec_at"]


#: Numbers of a list that a program holds as calls.
MOST_STATED = 64


def answers(overload: str) -> bool:
    """Whether some front knows the overload.  Those that draw random numbers keep a state that no program has."""
    return overload not in DRAWS and any(overload in t for t in (VIEWS, PREPARE, COMPOSE))


@cache
def spec_at(file: str, op: str) -> OpSpec:
    """The operator of a file of specs."""
    return next(s for s in load_spec(file, family=Path(file).parent.name) if s.op == op)


# ---- extents -----------------------------------------------------------------------------------------------------


class Size:
    """An extent that varies.  Arithmetic gives a number where one comes out; a comparison that the symbols' ranges do
    not decide refuses the call."""

    __slots__ = ("door", "expr")

    def __init__(self, door: ProgramDoor, expr: IntExpr) -> None:
        self.door, self.expr = door, expr

    def _with(self, other: Any, how: Callable[[IntExpr, IntExpr], IntExpr], swap: bool = False) -> Any:
        if isinstance(other, bool) or not isinstance(other, int | Size | IntExpr):
            return NotImplemented
        a, b = self.expr, _expr(other)
        return self.door.size(how(b, a) if swap else how(a, b))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, floordiv, True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, mod)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Any:
        return self.door.size(-self.expr)

    __radd__, __rmul__ = __add__, __mul__

    def _sign(self, other: Any) -> int | None:
        """Of self - other; None: it may be any."""
        low, high = self.door.bounds(self.expr - _expr(other))
        return 1 if low is not None and low > 0 else -1 if high is not None and high < 0 else None

    def _undecided(self, other: Any) -> Refused:
        return Refused(f"how {self} compares with {other} is known only when the program runs")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | Size | IntExpr):
            return False
        if self.expr == _expr(other):
            return True
        # The exporter holds what varies for no 1; what it makes of that holds for a 1 as well, or says so.
        if self._sign(other) is not None or (len(self.expr.terms) == 1 and _expr(other).value in (0, 1)):
            return False
        raise self._undecided(other)

    def __lt__(self, other: Any) -> bool:
        if not isinstance(other, int | Size | IntExpr):
            return NotImplemented
        low, high = self.door.bounds(self.expr - _expr(other))
        if high is not None and high < 0:
            return True
        if low is not None and low >= 0:
            return False
        raise self._undecided(other)

    def __gt__(self, other: Any) -> bool:
        return bool(-self < -_expr(other))

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash(self.expr)

    def __index__(self) -> int:
        raise Refused(f"the extent {self} is known only when the program runs")

    __int__ = __float__ = __index__

    def __repr__(self) -> str:
        return str(self.expr)


def _expr(x: Any) -> IntExpr:
    if isinstance(x, Size):
        return x.expr
    if isinstance(x, IntExpr):
        return x
    if isinstance(x, int):
        return IntExpr.of(int(x))
    raise Refused(f"{x!r} is no extent")


# ---- tensors -----------------------------------------------------------------------------------------------------


class Array:
    """A tensor of a program, with what fronts use of a runtime's tensor."""

    __slots__ = ("door", "ref")

    def __init__(self, door: ProgramDoor, ref: Ref) -> None:
        self.door, self.ref = door, ref

    @property
    def dtype(self) -> str:
        return self.ref.dtype.value

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.door.size(n) for n in self.ref.layout.shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        return tuple(self.door.size(n) for n in self.ref.layout.strides)

    @property
    def offset(self) -> Any:
        return self.door.size(self.ref.layout.offset)

    @property
    def ndim(self) -> int:
        return self.ref.layout.rank

    @property
    def size(self) -> Any:
        return self.door.size(self.ref.layout.numel)

    def _of(self, layout: views.Layout) -> Array:
        return Array(self.door, Ref(self.ref.base, self.ref.dtype, layout))

    def reshape(self, shape: Sequence[Any]) -> Array:
        want = [_expr(n) for n in shape]
        if any(n.value == -1 for n in want):
            rest = product(n for n in want if n.value != -1)
            free = self.ref.layout.numel.exact_div(rest)
            if free is None:
                raise Refused(f"{self.shape} does not fill {list(shape)}")
            want = [free if n.value == -1 else n for n in want]
        if product(want) != self.ref.layout.numel:
            raise Refused(f"{list(self.shape)} has another number of elements than {list(shape)}")
        return Array(self.door, self.door.c.reshape(self.ref, want))

    def expand(self, shape: Sequence[Any]) -> Array:
        try:
            return self._of(views.expand(self.ref.layout, [_expr(n) for n in shape]))
        except ValueError as e:
            raise Refused(str(e)) from None

    def permute(self, dims: Sequence[int]) -> Array:
        return self._of(views.permute(self.ref.layout, dims))

    def transpose(self, a: int, b: int) -> Array:
        return self._of(views.transpose(self.ref.layout, a, b))

    def unsqueeze(self, dim: int) -> Array:
        return self._of(views.unsqueeze(self.ref.layout, dim))

    def as_strided(self, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = None) -> Array:
        at = self.ref.layout.offset if offset is None else _expr(offset)
        return self._of(views.as_strided([_expr(n) for n in sizes], [_expr(n) for n in strides], at))

    def to(self, dtype: str) -> Array:
        return Array(self.door, self.door.c.cast(self.ref, DType(dtype)))

    def item(self) -> Any:
        raise Refused("a value is read that is known only when the program runs")

    def __getitem__(self, at: Any) -> Array:
        parts = list(at) if isinstance(at, tuple) else [at]
        if Ellipsis in [p for p in parts if p is Ellipsis]:
            k = next(k for k, p in enumerate(parts) if p is Ellipsis)
            parts[k : k + 1] = [slice(None)] * (self.ndim - len(parts) + 1)
        layout, d = self.ref.layout, 0
        for part in parts:
            if isinstance(part, slice):
                layout = self._sliced(layout, d, part)
                d += 1
            else:
                layout = views.select(layout, d, _expr(part))
        return self._of(layout)

    def _sliced(self, layout: views.Layout, d: int, part: slice) -> views.Layout:
        if part == slice(None):
            return layout
        n = self.door.size(layout.shape[d])

        def place(x: Any, default: Any) -> Any:
            if x is None:
                return default
            x = self.door.size(_expr(x))
            return max(x + n, 0) if x < 0 else min(x, n)

        step = 1 if part.step is None else int(part.step)
        start = place(part.start, 0)
        length = max(place(part.stop, n) - start, 0)
        length = -(-length // step)
        return views.slice_dim(
            layout, d, _expr(start), _expr(start + length * step), step, length=_expr(length)
        )


# ---- the door ----------------------------------------------------------------------------------------------------


class ProgramDoor:
    """Writes what fronts say into the program that `c` makes."""

    blind = True

    def __init__(self, c: Converter) -> None:
        self.c = c

    def size(self, e: IntExpr) -> Any:
        return Size(self, e) if e.value is None else e.value

    def bounds(self, e: IntExpr) -> tuple[int | None, int | None]:
        """The least and the greatest value, by the ranges of its names; None: no end."""
        low: int | None = 0
        high: int | None = 0
        for m, factor in e.terms:
            least: int = 1
            most: int | None = 1
            for atom in m:
                a, b = self.bounds_of(atom)
                if a is None or a < 0:
                    return None, None
                least, most = least * a, None if most is None or b is None else most * b
            ends = (least * factor, None if most is None else most * factor)
            below, above = ends if factor > 0 else ends[::-1]
            low = None if low is None or below is None else low + below
            high = None if high is None or above is None else high + above
        return low, high

    def bounds_of(self, atom: Any) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            symbol = self.c.symbols.get(atom)
            return (
                (None, None) if symbol is None else (symbol.min, None if symbol.max >= 2**62 else symbol.max)
            )
        (a, b), (p, q) = self.bounds(atom.left), self.bounds(atom.right)
        match atom.op:
            case "max":
                high = None if b is None or q is None else max(b, q)
                return max((x for x in (a, p) if x is not None), default=None), high
            case "min":
                low = None if a is None or p is None else min(a, p)
                return low, min((x for x in (b, q) if x is not None), default=None)
            case "floordiv" if p is not None and p > 0 and a is not None and a >= 0:
                return (a // q if q is not None else 0), (None if b is None else b // p)
            case "mod" if p is not None and p > 0:
                return 0, None if q is None else q - 1
        return None, None

    # -- what fronts call

    def tensor(self, x: Any) -> Array:
        if isinstance(x, Array):
            return x
        if isinstance(x, Ref):
            return Array(self, x)
        raise Refused(f"{text_of(x)} is no tensor")

    def dtype_name(self, dtype: Any) -> str:
        return DType(str(dtype)).value

    def full(self, size: Sequence[Any], value: Any, dtype: str) -> Array:
        out = self.run("full", (), {"size": list(size), "value": value, "dtype": dtype})
        assert isinstance(out, Array)
        return out

    def empty(self, size: Sequence[Any], dtype: str) -> Array:
        return self.full(size, 0, dtype)

    def stated(self, values: Sequence[Any], dtype: str) -> Array:
        if len(values) > MOST_STATED:
            raise Refused(
                f"a list of {len(values)} numbers is longer than the {MOST_STATED} that are written out"
            )
        parts = [self.full([1], v, dtype) for v in values]
        out = self.run("cat", (parts,), {"dim": 0})
        assert isinstance(out, Array)
        return out

    def run(self, op: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        if "out" in attrs:
            raise Refused("it writes into a tensor, and the values of a program are written once")
        spec = self.spec(op)
        given = dict(zip([*spec.inputs, *spec.attrs], args, strict=False)) | dict(attrs)
        shown = [n for n, t in spec.outputs.items() if not t.aux]
        made = self.made(spec, given)
        out = tuple(made[n] for n in shown)
        return out if len(out) > 1 else out[0]

    # -- how it is done

    def spec(self, op: str) -> OpSpec:
        file = getattr(self.c.table, "files", {}).get(op)
        if file is None:
            raise Refused(f"there is no operator {op}")
        return spec_at(file, op)

    def made(self, spec: OpSpec, given: Mapping[str, Any]) -> dict[str, Array]:
        """A call of an operator; its outputs by name."""
        if spec.op == "cast":
            x = self.tensor(given["x"])
            return {"y": Array(self, self.c.cast(x.ref, DType(str(given["dtype"]))))}
        inputs = {n: given.get(n) for n in spec.inputs}
        attrs: dict[str, Any] = {}
        for n, a in spec.attrs.items():
            takes_none = a.optional or a.default_expr is not None or a.kind in ("axes", "dtype")
            if n in given and (given[n] is not None or takes_none or a.default is None):
                attrs[n] = _unwrapped(given[n])
        try:
            found = results(
                spec,
                {n: self.operand(x) for n, x in inputs.items()},
                {n: self.shape(x) for n, x in inputs.items() if x is not None},
                attrs,
            )
        except OpwrightError as e:
            raise Refused(e.message) from None
        args = tuple(self.c.arg(_unwrapped(x)) for x in inputs.values())
        raw = {k: self.c.raw_attr(v) for k, v in attrs.items()}
        ids = self.c.appended(spec.op, args, raw, [(r.dtype, r.shape) for r in found])
        out: dict[str, Array] = {}
        for r, id in zip(found, ids, strict=True):
            value = self.c.values[id]
            out[r.name] = Array(self, Ref(id, value.dtype, views.contiguous(value.shape)))
        return out

    def operand(self, x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, list | tuple):
            return [self.operand(y) for y in x]
        if isinstance(x, bool | int | float | complex):
            return Operand(default_dtype(x), 0, True)
        if isinstance(x, Size):
            return Operand(DType.I64, 0, True)
        t = self.tensor(x)
        return Operand(t.ref.dtype, t.ndim)

    def shape(self, x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [self.shape(y) for y in x]
        return () if isinstance(x, bool | int | float | complex | Size) else self.tensor(x).ref.layout.shape

    def answered(self, call: Any) -> Any:
        """A front's call, of an overload through its rows or of an operator; what is no call is the result."""
        if not isinstance(call, Call):
            return call
        if call.to.startswith("aten."):
            out = self.by_rows(call.to, call.arguments)
        else:
            out = self.called(call.to, call.arguments)
        return out if call.finish is None else call.finish(out)

    def called(self, op: str, arguments: Mapping[str, Any], returns: Sequence[str] = ()) -> Any:
        """As the face plans it: of rank 0 along "dim 0" as of one element."""
        spec = self.spec(op)
        lifted = without_axes(_axes_of(spec), arguments)
        made = self.made(spec, arguments if lifted is None else lifted[0])
        shown = returns or [n for n, t in spec.outputs.items() if not t.aux]
        out: Any = made[shown[0]] if len(shown) == 1 else tuple(made[n] for n in shown)
        return out if lifted is None else lifted[1](out)

    def by_rows(self, overload: str, arguments: Mapping[str, Any]) -> Any:
        if overload in ("aten.clone.default", "aten.alias.default"):
            return self.tensor(arguments["self"])
        target = compat.overload_of(overload)
        known = compat.arguments(target)
        args = {a.name: _unwrapped(arguments.get(a.name, a.default)) for a in known}
        reasons = []
        for row in self.c.table.get(overload, ()):
            try:
                inputs, attrs = self.c.mapped(row, target, args, ())
            except RowRefused as e:
                reasons.append(str(e))
                continue
            given = dict(zip(row.inputs, [self.argued(a) for a in inputs], strict=True)) | attrs
            return self.called(row.op, given, row.returns)
        raise Refused("; ".join(reasons) or f"no operator claims {overload}")

    def argued(self, a: Any) -> Any:
        """An argument of a call as a front has it."""
        if isinstance(a, tuple):
            return [self.argued(x) for x in a]
        if isinstance(a, ScalarArg):
            return self.size(a.value) if isinstance(a.value, IntExpr) else a.value
        if a is None:
            return None
        return Array(self, self.c.viewed(a))


def _axes_of(spec: OpSpec) -> dict[str, Any]:
    """What `without_axes` reads of an operator."""
    attrs = [
        {"name": a.name, "kind": a.kind} | ({"default": a.default} if a.has_default else {})
        for a in spec.attrs.values()
    ]
    return {"attrs": attrs, "inputs": [{"name": n} for n in spec.inputs]}


def _unwrapped(x: Any) -> Any:
    """A front's value as the conversion has it."""
    if isinstance(x, Array):
        return x.ref
    if isinstance(x, Size):
        return x.expr
    if isinstance(x, list | tuple):
        return [_unwrapped(y) for y in x]
    return x


def _wrapped(door: ProgramDoor, x: Any) -> Any:
    if isinstance(x, Ref):
        return Array(door, x)
    if isinstance(x, IntExpr):
        return door.size(x)
    if isinstance(x, list | tuple):
        return [_wrapped(door, y) for y in x]
    return x


def of_complex(overload: str, args: Mapping[str, Any]) -> bool:
    """Whether the face has an answer of its own where a tensor is complex: it comes before the table's rows."""
    if overload not in COMPLEXES:
        return False
    flat = [y for x in args.values() for y in (x if isinstance(x, list | tuple) else [x])]
    return any(
        isinstance(x, complex) or (isinstance(x, Ref) and x.dtype in (DType.C64, DType.C128)) for x in flat
    )


def expand(c: Converter, args: Mapping[str, Any], fakes: Sequence[Any]) -> list[Ref]:
    """The results of the current node, each in the dtype and rank that PyTorch says.  Raises `RowRefused`."""
    overload = c.overload
    special = of_complex(overload, args)
    if not (special or answers(overload)):
        raise RowRefused("")
    door = ProgramDoor(c)
    defaults = {a.name: a.default for a in compat.arguments(c.current.target) if not a.required}
    given = {
        k: _wrapped(door, v)
        for k, v in args.items()
        if k not in PLACEMENT and not (k in defaults and _same(v, defaults[k]))
    }
    reasons: list[str] = []
    with through(door):
        for table in (COMPLEXES,) if special else (VIEWS, PREPARE, COMPOSE):
            if overload not in table:
                continue
            try:
                out = door.answered(front(table, overload, (), given))
                return _checked(c, out, fakes)
            except (Refused, RowRefused) as e:
                reasons.append(str(e))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
                reasons.append(f"an argument has a kind or a value that is not taken ({e})")
    raise RowRefused("; ".join(r for r in reasons if r))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return list(a) == list(b)
    return type(a) is type(b) and bool(a == b)


def _checked(c: Converter, out: Any, fakes: Sequence[Any]) -> list[Ref]:
    outs = list(out) if isinstance(out, list | tuple) else [out]
    if len(outs) != len(fakes):
        raise RowRefused(f"gives {len(outs)} results of {len(fakes)}")
    found: list[Ref] = []
    for x, fake in zip(outs, fakes, strict=True):
        if not isinstance(x, Array):
            raise RowRefused(f"gives {x!r}, which is no tensor")
        want = compat.dtype_of(fake.dtype)
        if x.ref.dtype is not want or x.ndim != len(fake.shape):
            raise RowRefused(f"gives {x.dtype} of rank {x.ndim}, PyTorch {want} of rank {len(fake.shape)}")
        found.append(x.ref)
    return found
