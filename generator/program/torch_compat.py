"""Everything of torch that is private, unstable between releases, or spelled in torch's own types.

Tried with torch 2.13.  The rest of `generator/program` uses torch's public functions and this module, so a new
release of torch is answered here.  Torch is imported inside functions: importing this module costs nothing and works
where torch is not installed.

May import: decompositions, standins, intexpr, generator.errors, generator.types.  To answer a change of torch: edit
the function that names it; tests/generator/program/test_torch_compat.py says what each must give.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

from ..errors import MachineError, OpwrightError
from ..types import DType
from .decompositions import own
from .intexpr import IntExpr, floordiv, maximum, minimum, mod
from .standins import OURS, RECURRENT, but_the_last_place, standing_in
from .stops import marking
from .written_out import differentiates, needs_gradients, written_out

__all__ = [
    "Argument",
    "Frame",
    "NotAnExtent",
    "UnknownDtype",
    "arguments",
    "bind",
    "called",
    "cond_of",
    "constant_of",
    "decomposable",
    "decompose",
    "dtype_of",
    "export",
    "extent_of",
    "flatten_named",
    "frames",
    "guards",
    "has_reference",
    "is_dtype",
    "is_symbolic",
    "module_in",
    "overload_name",
    "quiet",
    "ranges",
    "require_torch",
    "seeded",
    "spot_of",
    "structure",
    "symbol_of",
    "tensors_of",
    "torch_dtype",
    "truth_of",
]


class NotAnExtent(OpwrightError):
    """A symbolic number that integer expressions cannot say."""


class UnknownDtype(OpwrightError):
    """A dtype that a program cannot hold."""


def require_torch() -> Any:
    """The torch module.  Raises `MachineError` where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as e:
        raise MachineError(
            "capturing a model needs torch, which is not installed", hint="pip install 'opwright[models]'"
        ) from e


@contextmanager
def quiet() -> Iterator[None]:
    """Without the deprecation warnings that torch's own export raises about torch's own calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


# ------------------------------------------------------------------------------------------------- dtypes

_DTYPES = {
    "bool": DType.BOOL,
    "uint8": DType.U8,
    "int8": DType.I8,
    "int16": DType.I16,
    "int32": DType.I32,
    "int64": DType.I64,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "float32": DType.F32,
    "float64": DType.F64,
    "complex64": DType.C64,
    "complex128": DType.C128,
}
_TORCH_NAMES = {v: k for k, v in _DTYPES.items()}


def is_dtype(x: Any) -> bool:
    return isinstance(x, require_torch().dtype)


def dtype_of(x: Any) -> DType:
    """The DType of a torch.dtype.  Raises `UnknownDtype` for one that we do not have."""
    name = str(x).removeprefix("torch.")
    if name not in _DTYPES:
        raise UnknownDtype(f"the dtype {x} is not supported", hint=f"supported: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def torch_dtype(x: DType) -> Any:
    return getattr(require_torch(), _TORCH_NAMES[x])


# ------------------------------------------------------------------------------------------------- symbols


def is_symbolic(x: Any) -> bool:
    """A SymInt, SymFloat or SymBool."""
    torch = require_torch()
    return isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool)


def _sympy(x: Any) -> Any:
    return x.node.expr if is_symbolic(x) else x


def symbol_of(x: Any) -> str | None:
    """The name of the symbol, when `x` is one symbol and nothing more."""
    e = _sympy(x)
    return str(e) if getattr(e, "is_Symbol", False) else None


def truth_of(x: Any) -> str | None:
    """The name of the symbol that is 1 where this SymBool, read from a tensor, holds, and else 0."""
    e = _sympy(x)
    if type(x).__name__ != "SymBool" or type(e).__name__ != "Equality":
        return None
    symbol, one = sorted(e.args, key=lambda a: bool(a.is_number))
    return str(symbol) if symbol.is_Symbol and one == 1 else None


def constant_of(x: Any) -> bool | int | float | None:
    """The number that the exporter found a symbolic number to be, or None."""
    e = _sympy(x)
    if isinstance(e, bool | int | float):
        return e
    if getattr(e, "is_Boolean", False) and e in (True, False):
        return bool(e)
    if getattr(e, "is_Integer", False):
        return int(e)
    return float(e) if getattr(e, "is_Float", False) else None


def extent_of(x: Any) -> IntExpr:
    """A Python int or a SymInt as an expression over the exporter's own symbol names.  Raises `NotAnExtent`."""
    if isinstance(x, bool | int):
        return IntExpr.of(int(x))
    return _extent(_sympy(x))


def _extent(e: Any) -> IntExpr:
    if e.is_Integer:
        return IntExpr.of(int(e))
    if e.is_Symbol:
        return IntExpr.of(str(e))
    name = type(e).__name__
    if name == "Add" or name == "Mul":
        out = _extent(e.args[0])
        for a in e.args[1:]:
            out = out + _extent(a) if name == "Add" else out * _extent(a)
        return out
    if name in ("Pow", "PowByNatural") and e.args[1].is_Integer and 0 <= int(e.args[1]) <= 16:
        out = IntExpr.of(1)
        for _ in range(int(e.args[1])):
            out = out * _extent(e.args[0])
        return out
    fold = {"Max": maximum, "Min": minimum}.get(name)
    if fold:
        out = _extent(e.args[0])
        for a in e.args[1:]:
            out = fold(out, _extent(a))
        return out
    if name in ("FloorDiv", "CleanDiv"):
        return floordiv(_extent(e.args[0]), _extent(e.args[1]))
    if name in ("Mod", "PythonMod"):
        return mod(_extent(e.args[0]), _extent(e.args[1]))
    if name == "ModularIndexing":
        return mod(floordiv(_extent(e.args[0]), _extent(e.args[1])), _extent(e.args[2]))
    if name in ("CeilDiv",):
        return -floordiv(-_extent(e.args[0]), _extent(e.args[1]))
    if name in ("Identity", "ToFloat"):
        return _extent(e.args[0])
    if name == "Piecewise" and len(e.args) == 2 and type(e.args[0][1]).__name__ == "Equality":
        # One number where two are equal, another where not: 1 - min(|difference|, 1) says whether they are.
        (yes, test), (no, otherwise) = e.args
        if type(otherwise).__name__ == "BooleanTrue":
            difference = _extent(test.args[0]) - _extent(test.args[1])
            apart = minimum(maximum(difference, -difference), IntExpr.of(1))
            return _extent(yes) + (_extent(no) - _extent(yes)) * apart
    if name in ("FloorToInt", "CeilToInt", "TruncToInt"):
        a, b = _quotient(e.args[0])
        # An extent is not negative, so truncation is floor.
        return -floordiv(-a, b) if name == "CeilToInt" else floordiv(a, b)
    raise NotAnExtent(f"the exporter's number `{e}` is no integer expression that a program can say")


def _quotient(e: Any) -> tuple[IntExpr, IntExpr]:
    if type(e).__name__ in ("IntTrueDiv", "FloatTrueDiv"):
        return _extent(e.args[0]), _extent(e.args[1])
    if e.is_Mul and e.args[0].is_Rational:
        rest = e / e.args[0]
        return _extent(rest) * int(e.args[0].p), IntExpr.of(int(e.args[0].q))
    return _extent(e), IntExpr.of(1)


#: The exporter's functions of reals → operators.
_REALS = {
    "Add": "add",
    "Mul": "mul",
    "Pow": "pow",
    "FloatPow": "pow",
    "PowByNatural": "pow",
    "IntTrueDiv": "div",
    "FloatTrueDiv": "div",
    "Max": "maximum",
    "Min": "minimum",
    **{f"OpaqueUnaryFn_{f}": f for f in ("sqrt", "exp", "log", "log2", "sin", "cos", "tanh")},
}


def real_of(x: Any) -> Any:
    """A SymFloat as a tree: a float, an `IntExpr`, or (operator, arguments).  Raises `NotAnExtent`."""
    return _real(_sympy(x))


def _real(e: Any) -> Any:
    name = type(e).__name__
    if e.is_Number:
        return float(e)
    if name in _REALS and not getattr(e, "is_integer", False):
        out = _real(e.args[0])
        if len(e.args) == 1:
            return _REALS[name], (out,)
        for a in e.args[1:]:
            out = _REALS[name], (out, _real(a))
        return out
    if name == "ToFloat":
        return _real(e.args[0])
    return _extent(e)


_RELATIONS = {
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
}


def cond_of(x: Any) -> bool | tuple[Any, ...]:
    """A bool or SymBool as a condition over the exporter's own symbol names (ir.Cond).  Raises `NotAnExtent`."""
    if isinstance(x, bool):
        return x
    return _cond(_sympy(x))


def _cond(e: Any) -> bool | tuple[Any, ...]:
    name = type(e).__name__
    if name in ("BooleanTrue", "BooleanFalse"):
        return name == "BooleanTrue"
    if name in _RELATIONS:
        return (_RELATIONS[name], _extent(e.args[0]), _extent(e.args[1]))
    if name == "Not":
        inner = _cond(e.args[0])
        return not inner if isinstance(inner, bool) else ("not", inner)
    if name in ("And", "Or"):
        parts = [_cond(a) for a in e.args]
        decided = name == "Or"
        if any(p is decided for p in parts):
            return decided
        rest = tuple(p for p in parts if not isinstance(p, bool))
        return (name.lower(), *rest) if rest else not decided
    raise NotAnExtent(f"the exporter's condition `{e}` is none that a program can say")


def ranges(exported: Any) -> dict[str, tuple[int, int | None]]:
    """Symbol → (least, greatest or None) as the exporter proved them."""
    out: dict[str, tuple[int, int | None]] = {}
    for symbol, r in exported.range_constraints.items():
        low = int(r.lower) if getattr(r.lower, "is_Integer", False) or isinstance(r.lower, int) else 0
        high = int(r.upper) if getattr(r.upper, "is_Integer", False) else None
        out[str(symbol)] = (low, None if high is None or high >= 2**62 else high)
    return out


def guards(exported: Any) -> list[str]:
    """The conditions on inputs under which the graph holds, as the exporter prints them: Python over `L['x']`."""
    return [str(g) for g in getattr(exported, "_guards_code", None) or ()]


def guard_of(text: str, extent: Callable[[str, int], IntExpr | None]) -> bool | tuple[Any, ...] | None:
    """A printed guard as a condition; `extent(input path, axis)` gives an input's extent.  None: not one of extents."""
    try:
        return _guard(ast.parse(text, mode="eval").body, extent)
    except (SyntaxError, _NotAGuard):
        return None


class _NotAGuard(Exception):
    pass


_AST_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


def _guard(e: ast.expr, extent: Callable[[str, int], IntExpr | None]) -> bool | tuple[Any, ...]:
    match e:
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(
            type(o) in _AST_RELATIONS for o in ops
        ):
            xs = [_guard_int(x, extent) for x in (left, *rights)]
            conds = [(_AST_RELATIONS[type(o)], a, b) for o, a, b in zip(ops, xs, xs[1:], strict=False)]
            return conds[0] if len(conds) == 1 else ("and", *conds)
        case ast.BoolOp(op=op, values=values):
            return ("and" if isinstance(op, ast.And) else "or", *(_guard(v, extent) for v in values))
        case ast.UnaryOp(op=ast.Not(), operand=x):
            return ("not", _guard(x, extent))
    raise _NotAGuard


def _guard_int(e: ast.expr, extent: Callable[[str, int], IntExpr | None]) -> IntExpr:
    match e:
        case ast.Constant(value=int() as v):
            return IntExpr.of(v)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -_guard_int(x, extent)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = _guard_int(a, extent), _guard_int(b, extent)
            match op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.FloorDiv():
                    return floordiv(left, right)
                case ast.Mod():
                    return mod(left, right)
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=base, attr="size")), slice=ast.Constant(value=int() as d)
        ):
            found = extent(ast.unparse(base), d)
            if found is not None:
                return found
        case ast.Call(func=ast.Name(id="max" | "min" as fn), args=[a, b]):
            return (maximum if fn == "max" else minimum)(_guard_int(a, extent), _guard_int(b, extent))
    raise _NotAGuard


# ------------------------------------------------------------------------------------------------- export


def export(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dims: Sequence[Sequence[int]],
    assuming: bool = False,
) -> Any:
    """`torch.export.export(strict=False)`; `dims` are the axes that may vary (`Dim.AUTO`), for each of the arguments'
    tensors (`tensors_of`).  `assuming`: what depends on what tensors hold is as these arguments have it, and the graph
    asserts that of others."""
    torch = require_torch()
    _with_fakes(torch)
    given = tuple(args), dict(kwargs)

    def shaped() -> tuple[Any, Any, Any]:
        """The arguments, and which of their axes vary."""
        # An export that fails leaves its marks on the tensors it was given: every attempt gets its own.
        args, kwargs = copied(given)
        shapes = torch.export.ShapesCollection()
        seen: set[int] = set()
        for leaf, axes in zip(tensors_of((args, kwargs)), dims, strict=True):
            if axes and id(leaf) not in seen:
                shapes[leaf] = dict.fromkeys(axes, torch.export.Dim.AUTO)
            seen.add(id(leaf))
        dynamic = shapes.dynamic_shapes(module, args, kwargs) if shapes._shapes else None
        return args, kwargs, dynamic

    args, kwargs, dynamic = shaped()

    def exported() -> Any:
        return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=dynamic, strict=False)

    with ExitStack() as stack:
        for context in (quiet(), torch.no_grad(), marking(), standing_in(torch), _exportable(module, given)):
            stack.enter_context(context)
        if assuming:
            stack.enter_context(torch._functorch.config.patch(fake_tensor_propagate_real_tensors=True))
            stack.enter_context(_unsaid("torch.fx.experimental.symbolic_shapes"))
            return exported()
        try:
            try:
                first = exported()
            except IndexError:
                with but_the_last_place():
                    first = exported()
            except Exception as e:
                if not differentiates(e):
                    raise
                args, kwargs, dynamic = shaped()
                with written_out(torch, module):
                    return exported()
            if not _reads(first):
                return first
            try:  # numbers that follow from constants need not be read from tensors
                with _buffers_known(torch, module):
                    again = exported()
            except Exception:
                return first
            return again if _reads(again) < _reads(first) else first
        except torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode:
            with _buffers_known(torch, module) as known:
                if not known:
                    raise
                return exported()


@contextmanager
def _unsaid(logger: str) -> Iterator[None]:
    """Without a logger's warnings."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(before)


def _reads(exported: Any) -> int:
    """How many numbers the graph reads from tensors."""
    graphs = [g.graph for g in exported.graph_module.modules() if hasattr(g, "graph")]
    names = [overload_name(n.target) or "" for g in graphs for n in g.nodes if n.op == "call_function"]
    return sum(n in ("aten.item.default", "aten._local_scalar_dense.default") for n in names)


@contextmanager
def _buffers_known(torch: Any, module: Any) -> Iterator[list[str]]:
    """What a module keeps as buffers is known to its code while it is exported: they are constants of the program."""
    from .known import knowing

    held = dict(module.named_buffers())
    own = module.forward

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        traced = dict(module.named_buffers())
        with knowing({x: held[n] for n, x in traced.items() if type(x) is not torch.Tensor and n in held}):
            return own(*args, **kwargs)

    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield list(held)
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


@cache
def _with_fakes(torch: Any) -> None:
    """Overloads of which PyTorch knows no extents until it runs them."""

    from torch._subclasses.fake_impls import op_implementations_dict

    def ctc(mode: Any, _: Any, log_probs: Any, targets: Any, *__: Any) -> Any:
        steps, n, _ = log_probs.shape
        with mode:
            return log_probs.new_empty((n,)), log_probs.new_empty((n, steps, 2 * targets.shape[-1] + 1))

    op_implementations_dict.setdefault(torch.ops.aten._ctc_loss.Tensor, ctc)

    def same(x: Any, *_: Any) -> Any:
        return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)

    for kind in ("tensor", "channel"):
        name = f"aten::fake_quantize_per_{kind}_affine_cachemask"
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
            torch.library.register_fake(name, same)


@contextmanager
def _exportable(module: Any, given: tuple[Any, Any]) -> Iterator[None]:
    """Models' code as transformers' own exporter writes it: attention over segments as a batch of them, say.  Of the
    modules that are loaded, for the others are not what is exported; the references run the code as it is.  One for
    many classes may forget what one of them does: of the module's own classes those stay that it changes."""
    patches: list[tuple[Any, str, Any]] = []
    patching: Any = None
    if "transformers.modeling_utils" in sys.modules:
        try:
            from transformers.exporters import exporter_dynamo, utils
        except ImportError:  # transformers before its exporters
            pass
        else:
            assert exporter_dynamo
            patching = utils.patch_attribute
            for owner, attribute, patched in getattr(utils, "_PATCHES", {}).get("dynamo", ()):
                home, _, kind = owner.rpartition(".")
                found = getattr(sys.modules.get(home), kind, None)
                if owner.startswith("transformers.models.") and hasattr(found, attribute):
                    patches.append((found, attribute, patched))
    with ExitStack() as stack:
        for patch in unchanging(patches, module, given, patching):
            stack.enter_context(patching(*patch))
        yield


def unchanging(
    patches: Sequence[tuple[Any, str, Any]],
    module: Any,
    given: tuple[Any, Any],
    patching: Callable[..., AbstractContextManager[Any]],
) -> list[tuple[Any, str, Any]]:
    """The patches (owner, attribute, how it changes) without those of the module's classes that change what it gives
    for these (args, kwargs); `patching(*patch)`: while it is so."""
    torch = require_torch()
    kinds = {type(m) for m in module.modules()} if isinstance(module, torch.nn.Module) else set()

    def outputs() -> list[Any] | None:
        args, kwargs = copied(given)
        try:
            with torch.no_grad(), uncompiled(), restoring(module):
                return [t.clone() for t in tensors_of(module(*args, **kwargs))]
        except Exception:
            return None

    mine = [p for p in patches if isinstance(p[0], type) and p[0] in kinds]
    plain = outputs() if mine else None
    bad = []
    for owner, attribute, patched in mine if plain is not None else ():
        with patching(owner, attribute, patched):
            now = outputs()
        same = now is None or (
            len(now) == len(plain or ())
            and all(
                a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
                for a, b in zip(now, plain or (), strict=True)
            )
        )
        if not same:
            bad.append((owner, attribute))
    return [p for p in patches if (p[0], p[1]) not in bad]


def spot_of(exported: Any, symbol: str) -> tuple[int, int] | None:
    """(which of the arguments' tensors, axis) has this symbol as its extent."""
    torch = require_torch()
    specs = exported.graph_signature.input_specs
    nodes = [n for n in exported.graph_module.graph.nodes if n.op == "placeholder"]
    users = [n for n, s in zip(nodes, specs, strict=True) if s.kind.name == "USER_INPUT"]
    tensors = [v for n in users if isinstance(v := n.meta.get("val"), torch.Tensor)]
    for k, v in enumerate(tensors):
        for axis, extent in enumerate(v.shape):
            if symbol_of(extent) == symbol:
                return k, axis
    return None


def bound_to_size(bindings: Mapping[Any, Any]) -> dict[Any, Any]:
    """Extents that only a call knows (`unbacked_bindings`), as extent 0 of another call's result."""
    from torch.fx.experimental.symbolic_shapes import CallMethodKey
    from torch.utils._pytree import SequenceKey

    return dict.fromkeys(bindings, (CallMethodKey("size"), SequenceKey(0)))


def decomposable(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the overloads that torch has a decomposition of, core ATen or not."""
    table = require_torch()._decomp.decomposition_table
    return tuple(n for n in names if (op := overload_of(n)) is not None and op in table)


def has_reference(name: str) -> bool:
    """Whether the overload has a decomposition: torch's, core ATen or not, one that it has by itself, or ours."""
    torch = require_torch()
    op = overload_of(name)
    if op is None:
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return composite or own_decomposes(name) or bool(decomposable([name]))


def own_decomposes(name: str) -> bool:
    """Whether we have a decomposition of the overload, which may not take every call."""
    return overload_of(name) in own(require_torch())


def decompose(exported: Any, keep: Sequence[str] = (), more: Sequence[str] = ()) -> Any:
    """`run_decompositions()` to core ATen and by our own decompositions, except for the overloads named by `keep`
    (`aten.rms_norm.default`); `more` are decomposed too (see `decomposable`)."""
    torch = require_torch()
    table = torch.export.default_decompositions()
    for op, into in own(torch).items():
        table[op] = into
    for name in more:
        op = overload_of(name)
        table[op] = torch._decomp.decomposition_table[op]
    # torch's decomposition of `detach` forgets what it means (stops.py).
    for name in (*keep, "aten.detach.default"):
        op = overload_of(name)
        if op is not None:
            table.pop(op, None)
    with quiet(), torch.no_grad():
        return exported.run_decompositions(table)


def overload_of(name: str) -> Any:
    """The OpOverload named `aten.add.Tensor`, or what stands for it; None where this torch has none."""
    torch = require_torch()
    parts = name.split(".")
    if len(parts) != 3:
        return None
    space = OURS if parts[0] == "aten" and parts[1] in RECURRENT else parts[0]
    packet = getattr(getattr(torch.ops, space), parts[1], None)
    return getattr(packet, parts[2], None)


def overload_name(target: Any) -> str | None:
    """`aten.add.Tensor` for an OpOverload, `higher_order.cond` for a higher-order operator, else None."""
    torch = require_torch()
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
        return f"aten.{name.removeprefix(f'{OURS}.')}" if name.startswith(f"{OURS}.") else name
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    return None


def seeded(target: Any) -> bool:
    """Whether the overload draws random numbers."""
    torch = require_torch()
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def pointwise(target: Any) -> bool:
    torch = require_torch()
    return torch.Tag.pointwise in getattr(target, "tags", ())


@dataclass(frozen=True)
class Argument:
    """One argument of an overload's schema."""

    name: str
    type: str
    default: Any
    required: bool


@cache
def arguments(target: Any) -> tuple[Argument, ...]:
    """The overload's arguments in order; `()` for what has no schema."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return ()
    return tuple(
        Argument(a.name, str(a.type), a.default_value, not a.has_default_value()) for a in schema.arguments
    )


def bind(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a call by name, defaults filled in."""
    out: dict[str, Any] = {}
    for k, a in enumerate(arguments(target)):
        out[a.name] = args[k] if k < len(args) else kwargs.get(a.name, a.default)
    return out


# ------------------------------------------------------------------------------------------------- pytrees


def called(module: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """What the module gives; where it differentiates by itself, what it computes is recorded for that."""
    try:
        return module(*args, **kwargs)
    except RuntimeError as e:
        if not needs_gradients(e):
            raise
    torch = require_torch()
    with torch.enable_grad():
        out = module(*args, **kwargs)
    return torch.utils._pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, out)


def tensors_of(tree: Any) -> list[Any]:
    """The tensors of a pytree, in its order."""
    torch = require_torch()
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def register_dataclasses(tree: Any) -> None:
    """Make the dataclasses in a structure containers that torch can look into."""
    torch = require_torch()
    pytree = torch.utils._pytree
    for leaf in pytree.tree_leaves(tree):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            register_dataclasses([getattr(leaf, f.name) for f in dataclasses.fields(leaf)])


def register_caches(result: Any) -> None:
    """Caches among what a model gave become containers of tensors, as transformers' exporter has them."""
    leaves = require_torch().utils._pytree.tree_leaves(result)
    kinds = {type(x) for x in leaves if type(x).__name__.endswith("Cache")}
    if kinds:
        try:
            from transformers.exporters.exporter_dynamo import register_pytree_node
        except ImportError:  # transformers before its exporters
            return
        for kind in kinds:
            register_pytree_node(kind)


def copied(tree: Any) -> Any:
    """A structure with its tensors copied; equal ones stay one."""
    torch = require_torch()
    own: dict[int, Any] = {}
    return torch.utils._pytree.tree_map(
        lambda x: own.setdefault(id(x), x.detach().clone()) if isinstance(x, torch.Tensor) else x, tree
    )


@contextmanager
def restoring(module: Any) -> Iterator[None]:
    """The module's buffers are afterwards what they were: a model may keep state in them."""
    before = [(b, b.detach().clone()) for b in module.buffers()]
    try:
        yield
    finally:
        for b, value in before:
            b.data = value


def flatten_named(tree: Any, root: str) -> list[tuple[str, Any]]:
    """Leaves in torch's pytree order with names from their paths: `logits`, `past.0.1`, `output_0`."""
    torch = require_torch()
    pytree = torch.utils._pytree
    try:
        pairs, _ = pytree.tree_flatten_with_path(tree)
    except (ValueError, TypeError):  # a container that was registered without paths
        return [(f"{root}_{k}", leaf) for k, leaf in enumerate(pytree.tree_leaves(tree))]
    out: list[tuple[str, Any]] = []
    for path, leaf in pairs:
        parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path]
        name = ".".join(parts)
        if not name:
            name = root
        elif name[0].isdigit():
            name = f"{root}_{name}"
        out.append((name, leaf))
    return out


def structure(spec: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a TreeSpec as JSON, with `leaves` in its places; an unknown container becomes `{"type": …}`."""
    if spec.is_leaf():
        return leaves[0]
    out: list[Any] = []
    at = 0
    for child in spec.children():
        out.append(structure(child, leaves[at : at + child.num_leaves]))
        at += child.num_leaves
    kind = spec.type
    if kind in (list, tuple):
        return out
    if isinstance(kind, type) and issubclass(kind, Mapping):
        keys = spec.context
        while isinstance(keys, list | tuple) and len(keys) != len(out) and keys:
            keys = keys[0]
        if isinstance(keys, list | tuple) and len(keys) == len(out):
            return dict(zip((str(k) for k in keys), out, strict=True))
    return {"type": getattr(kind, "__name__", str(kind)), "items": out}


# ------------------------------------------------------------------------------------------------- source


@dataclass(frozen=True)
class Frame:
    """A line of the model's source."""

    file: str
    line: int
    function: str
    text: str = ""


_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)$')


def frames(stack_trace: str | None) -> list[Frame]:
    """Frames of a recorded stack trace outside torch, outermost first."""
    inside = os.path.dirname(require_torch().__file__) + os.sep
    lines = (stack_trace or "").splitlines()
    out: list[Frame] = []
    for k, line in enumerate(lines):
        m = _FRAME.match(line)
        if m and not m[1].startswith((inside, "<")):  # "<eval_with_key>": a subgraph's own text
            text = lines[k + 1].strip() if k + 1 < len(lines) and not _FRAME.match(lines[k + 1]) else ""
            out.append(Frame(m[1], int(m[2]), m[3], text))
    return out


# ------------------------------------------------------------------------------------------------- precision


def _wider(dtype: DType) -> dict[Any, Any]:
    """torch dtypes that a computation in `dtype` replaces: the floats, and complex numbers with them."""
    torch = require_torch()
    floats = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    to = torch_dtype(dtype)
    out = dict.fromkeys(floats, to)
    out[torch.complex64] = torch.complex128 if dtype is DType.F64 else torch.complex64
    return out


def widened(tree: Any, dtype: DType) -> Any:
    """Float tensors of a pytree, and the names of float dtypes in it, as `dtype`."""
    torch = require_torch()
    table = _wider(dtype)

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.to(table[x.dtype]) if x.dtype in table else x
        return table.get(x, x) if isinstance(x, torch.dtype) else x

    return torch.utils._pytree.tree_map(one, tree)


def module_in(module: Any, dtype: DType) -> Any:
    """The module with its floats in `dtype`, complex numbers as wide; `.to` would drop their imaginary parts."""
    table = _wider(dtype)
    for unknown in _unregistered(module):
        unknown._apply(lambda t: t.to(table.get(t.dtype, t.dtype)))
    return module._apply(lambda t: t.to(table.get(t.dtype, t.dtype)))


def _unregistered(module: Any) -> list[Any]:
    """Modules that others keep in plain lists, where PyTorch does not see them."""
    torch = require_torch()
    known = {id(m) for m in module.modules()}
    out: list[Any] = []
    for owner in module.modules():
        for value in vars(owner).values():
            for x in value if isinstance(value, list | tuple) else ():
                if isinstance(x, torch.nn.Module) and id(x) not in known:
                    known |= {id(m) for m in x.modules()}
                    out.append(x)
    return out


@contextmanager
def uncompiled() -> Iterator[None]:
    """What is under torch.compile, control flow among it, runs as plain Python."""
    scan: Any = importlib.import_module("torch._higher_order_ops.scan")
    compiled, scan._maybe_compile_and_run_fn = scan._maybe_compile_and_run_fn, _scan_plainly
    try:
        with require_torch().compiler.set_stance("force_eager"):
            yield
    finally:
        scan._maybe_compile_and_run_fn = compiled


def _scan_plainly(_: Any, step: Any, init: Sequence[Any], xs: Sequence[Any]) -> tuple[Any, Any]:
    """`scan` gives the structures of its carry and rows back only where it is compiled."""
    unflatten = require_torch().utils._pytree.tree_unflatten
    known = step.keywords
    carry, rows = unflatten(list(init), known["spec_init"]), []
    for k in range(xs[0].shape[0]):
        carry, row = known["combine_fn"](carry, unflatten([x[k] for x in xs], known["spec_xs"]))
        rows.append(row)
    return carry, _stacked(rows)


def _cond_now(test: Any, yes: Any, no: Any, operands: Any) -> Any:
    return (yes if bool(test) else no)(*operands)


def _stacked(rows: Sequence[Any]) -> Any:
    torch = require_torch()
    return torch.utils._pytree.tree_map(lambda *xs: torch.stack(xs), *rows)


def _scan_now(body: Any, init: Any, xs: Any, more: Any) -> Any:
    carry, rows = list(init), []
    for k in range(xs[0].shape[0]):
        out = list(body(*carry, *(x[k] for x in xs), *more))
        carry, row = out[: len(carry)], out[len(carry) :]
        rows.append(row)
    return [*carry, *_stacked(rows)]


def _while_now(test: Any, body: Any, carried: Any, more: Any) -> Any:
    while bool(test(*carried, *more)):
        carried = tuple(body(*carried, *more))
    return carried


def _map_now(body: Any, xs: Any, more: Any) -> Any:
    return _stacked([body(*(x[k] for x in xs), *more) for k in range(xs[0].shape[0])])


def _associative_scan_now(body: Any, xs: Any, more: Any = ()) -> Any:
    rows = [[x[0] for x in xs]]
    for k in range(1, xs[0].shape[0]):
        rows.append(list(body(*rows[-1], *(x[k] for x in xs), *more)))
    return _stacked(rows)


#: What PyTorch computes in f32 alone, and a decomposition of ours in any dtype.
_SINGLE = frozenset({"aten.fake_quantize_per_channel_affine_cachemask.default"})

#: Control flow as plain Python: torch runs it in a mode of ours only if the mode does.
_CONTROL_FLOW: Mapping[str, Callable[..., Any]] = {
    "higher_order.cond": _cond_now,
    "higher_order.scan": _scan_now,
    "higher_order.while_loop": _while_now,
    "higher_order.map_impl": _map_now,
    "higher_order.associative_scan": _associative_scan_now,
}


@contextmanager
def computing_in(dtype: DType | None) -> Iterator[None]:
    """Every float that is asked for by dtype, or by default, comes as `dtype` (None: nothing changes)."""
    if dtype is None:
        yield
        return
    torch = require_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    table = _wider(dtype)
    wide = dtype is DType.F64

    class Widen(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            put = lambda x: table.get(x, x) if isinstance(x, torch.dtype) else x  # noqa: E731
            name = overload_name(func) or ""
            if wide and name in _SINGLE:  # PyTorch has no kernel of it in f64
                return own(torch)[func](*args, **(kwargs or {}))
            plain = _CONTROL_FLOW.get(name)
            if plain is not None:
                with self:
                    return plain(*args, **(kwargs or {}))
            args, kwargs = torch.utils._pytree.tree_map(put, (args, kwargs or {}))
            return func(*args, **kwargs)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch_dtype(dtype))
    try:
        with Widen():
            yield
    finally:
        torch.set_default_dtype(before)
