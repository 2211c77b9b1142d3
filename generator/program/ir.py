"""The program IR: a model as a straight line of calls to specs, views, and a little integer arithmetic.

A program is data: frozen dataclasses that print (`show`), go to JSON and come back exactly (`to_json`, `from_json`;
the format is docs/internals.md, "A program folder"), and are checked by `verify`.  The executor reads the JSON.

Laws
  one definition   every value is made once: an input, a weight, a constant, or one node; and before it is used
  flat views       the base of a view is never a view; strides and offset count elements of the base
  row-major        inputs, weights, constants and results of calls are contiguous; only views have other strides
  no aliasing      a call never writes memory that another value reads (`state` says what an input becomes)

May import: intexpr, views, generator.types, generator.errors.  To add a kind of node: a dataclass in `Node`, its two
lines in `_node_json` and `_node_of`, its rule in `_Verifier.node`, its line in `show`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..errors import OpwrightError, raise_all
from ..types import DType
from .intexpr import IntExpr
from .views import Layout, is_contiguous

__all__ = [
    "UNBOUNDED",
    "Arg",
    "Assert",
    "AttrValue",
    "Binding",
    "Call",
    "Cond",
    "Copy",
    "MalformedProgram",
    "Node",
    "Program",
    "Read",
    "Scalar",
    "ScalarArg",
    "State",
    "Symbol",
    "Value",
    "View",
    "arg_values",
    "dumps",
    "from_json",
    "loads",
    "outputs_of",
    "show",
    "to_json",
    "uses_of",
    "verify",
]

SCHEMA = 1
#: `max` of a symbol that nothing bounds.
UNBOUNDED = 2**63 - 1
MISSING = "missing:"


class MalformedProgram(OpwrightError):
    """A program that does not hold together, or is not one."""


@dataclass(frozen=True)
class Symbol:
    """An extent known at run time: axis `axis` of `source` (an input's name, or a value made by a call)."""

    name: str
    source: str
    axis: int
    min: int = 0
    max: int = UNBOUNDED
    divisor: int = 1


@dataclass(frozen=True)
class Value:
    """A tensor, or (kind `scalar`) a register that holds one i64, f64 or bool."""

    id: str
    dtype: DType
    shape: tuple[IntExpr, ...] = ()
    strides: tuple[IntExpr, ...] = ()
    kind: str = "tensor"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class ScalarArg:
    """A Python scalar passed for a tensor input: weak in promotion.  A number, or an integer over symbols."""

    value: bool | int | float | IntExpr


Arg: TypeAlias = "str | ScalarArg | tuple[Arg, ...] | None"
AttrValue: TypeAlias = "bool | int | float | str | IntExpr | tuple[AttrValue, ...] | None"
#: `(op, IntExpr, IntExpr)` with op in `eq ne lt le gt ge`, `("and" | "or", Cond, …)`, `("not", Cond)`.
Cond: TypeAlias = "tuple[Any, ...]"

_COMPARE: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "eq": ("==", lambda a, b: a == b),
    "ne": ("!=", lambda a, b: a != b),
    "lt": ("<", lambda a, b: a < b),
    "le": ("<=", lambda a, b: a <= b),
    "gt": (">", lambda a, b: a > b),
    "ge": (">=", lambda a, b: a >= b),
}


@dataclass(frozen=True)
class Call:
    """One call of a spec.  `inputs` and `out` follow the spec's inputs and outputs in order; an output that nobody
    can read is None.  An op `missing:<overload>` has no spec; `why` says what was refused."""

    id: str
    op: str
    inputs: tuple[Arg, ...]
    attrs: Mapping[str, AttrValue]
    out: tuple[str | None, ...]
    site: str = ""
    aten: str = ""
    why: str = ""

    @property
    def missing(self) -> bool:
        return self.op.startswith(MISSING)

    def __hash__(self) -> int:
        return hash((self.id, self.op, self.inputs, self.out))


@dataclass(frozen=True)
class View:
    """`out` reads elements of `base`: strides and offset in elements of the base, which is no view itself."""

    base: str
    out: str
    shape: tuple[IntExpr, ...]
    strides: tuple[IntExpr, ...]
    offset: IntExpr

    @property
    def layout(self) -> Layout:
        return Layout(self.shape, self.strides, self.offset)


@dataclass(frozen=True)
class Scalar:
    """A register computed from symbols and other registers."""

    out: str
    expr: IntExpr


@dataclass(frozen=True)
class Read:
    """The only element of a tensor, into a register."""

    base: str
    out: str


@dataclass(frozen=True)
class Copy:
    """To another device."""

    base: str
    out: str
    device: str


@dataclass(frozen=True)
class Assert:
    """The run stops with `message` unless `cond` holds."""

    cond: Cond
    message: str


Node: TypeAlias = Call | View | Scalar | Read | Copy | Assert


@dataclass(frozen=True)
class Binding:
    """A value and the name it has outside: an input, an output, a weight (`tie`: shares another's memory)."""

    name: str
    value: str
    tie: str | None = None


@dataclass(frozen=True)
class State:
    """After a run, `input` (an input's name, or a constant's value) holds what `output` is."""

    input: str
    output: str


@dataclass(frozen=True)
class Program:
    """A model.  `values` holds every value by id; `nodes` run in order."""

    name: str
    source: str
    dtype: DType
    values: Mapping[str, Value]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    nodes: tuple[Node, ...]
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    weights: tuple[Binding, ...] = ()
    constants: tuple[Binding, ...] = ()
    state: tuple[State, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=dict)
    target: str = "cpu"

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Call))

    def call(self, id: str) -> Call:
        """The call with this id.  Raises KeyError."""
        for n in self.calls:
            if n.id == id:
                return n
        raise KeyError(id)

    def __hash__(self) -> int:
        return hash((self.name, self.nodes))


# ------------------------------------------------------------------------------------------------- reading


def arg_values(arg: Arg) -> Iterator[str]:
    """The values that an argument names."""
    if isinstance(arg, str):
        yield arg
    elif isinstance(arg, tuple):
        for a in arg:
            yield from arg_values(a)


def uses_of(node: Node) -> tuple[str, ...]:
    """The values a node reads (registers inside of expressions left out: `names_of`)."""
    match node:
        case Call(inputs=inputs):
            return tuple(v for a in inputs for v in arg_values(a))
        case View(base=b) | Read(base=b) | Copy(base=b):
            return (b,)
    return ()


def outputs_of(node: Node) -> tuple[str, ...]:
    """The values a node makes."""
    match node:
        case Call(out=out):
            return tuple(v for v in out if v is not None)
        case Assert():
            return ()
    return (node.out,)


def cond_names(cond: Cond) -> frozenset[str]:
    """Symbols and registers in a condition."""
    return frozenset(n for x in cond[1:] for n in (x.names() if isinstance(x, IntExpr) else cond_names(x)))


def cond_holds(cond: Cond, env: Mapping[str, int]) -> bool:
    """Evaluate a condition."""
    op, *xs = cond
    if op in _COMPARE:
        return bool(_COMPARE[op][1](xs[0].evaluate(env), xs[1].evaluate(env)))
    if op == "not":
        return not cond_holds(xs[0], env)
    return (all if op == "and" else any)(cond_holds(x, env) for x in xs)


def cond_text(cond: Cond) -> str:
    """A condition for people."""
    op, *xs = cond
    if op in _COMPARE:
        return f"{xs[0]} {_COMPARE[op][0]} {xs[1]}"
    parts = [f"({cond_text(x)})" for x in xs]
    return f"not {parts[0]}" if op == "not" else f" {op} ".join(parts)


def asserted_of_contents(p: Program) -> list[Assert]:
    """What the program asserts of what tensors hold, beyond extents."""
    extents = p.symbols.keys()
    return [n for n in p.nodes if isinstance(n, Assert) and cond_names(n.cond) - extents]


def names_of(node: Node) -> frozenset[str]:
    """Symbols and registers that a node's expressions read."""
    match node:
        case Call(inputs=inputs, attrs=attrs):
            return frozenset(_arg_names(inputs)) | frozenset(
                n for v in attrs.values() for n in _attr_names(v)
            )
        case View():
            return frozenset(n for e in (*node.shape, *node.strides, node.offset) for n in e.names())
        case Scalar(expr=e):
            return e.names()
        case Assert(cond=c):
            return cond_names(c)
    return frozenset()


def _arg_names(arg: Arg) -> Iterator[str]:
    if isinstance(arg, ScalarArg) and isinstance(arg.value, IntExpr):
        yield from arg.value.names()
    elif isinstance(arg, tuple):
        for a in arg:
            yield from _arg_names(a)


def _attr_names(value: AttrValue) -> Iterator[str]:
    if isinstance(value, IntExpr):
        yield from value.names()
    elif isinstance(value, tuple):
        for v in value:
            yield from _attr_names(v)


# ------------------------------------------------------------------------------------------------- JSON out


def number_json(value: bool | int | float | IntExpr) -> Any:
    """A number as JSON has it; the three floats that JSON has not are `{"float": "inf"}` and so on."""
    if isinstance(value, IntExpr):
        return {"sym": value.to_json()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def attr_json(value: AttrValue) -> Any:
    if isinstance(value, tuple):
        return [attr_json(v) for v in value]
    if value is None or isinstance(value, str):
        return value
    return number_json(value)


def _arg_json(arg: Arg) -> Any:
    if isinstance(arg, ScalarArg):
        return {"scalar": number_json(arg.value)}
    return [_arg_json(a) for a in arg] if isinstance(arg, tuple) else arg


def _cond_json(cond: Cond) -> Any:
    return [cond[0], *(x.to_json() if isinstance(x, IntExpr) else _cond_json(x) for x in cond[1:])]


def _shape_json(shape: Iterable[IntExpr]) -> list[Any]:
    return [n.to_json() for n in shape]


def _node_json(node: Node) -> dict[str, Any]:
    match node:
        case Call():
            out: dict[str, Any] = {
                "kind": "call",
                "op": node.op,
                "in": [_arg_json(a) for a in node.inputs],
                "attrs": {k: attr_json(v) for k, v in node.attrs.items()},
                "out": list(node.out),
                "site": node.site,
                "aten": node.aten,
                "id": node.id,
            }
            return out | ({"why": node.why} if node.why else {})
        case View():
            return {
                "kind": "view",
                "in": node.base,
                "out": node.out,
                "shape": _shape_json(node.shape),
                "strides": _shape_json(node.strides),
                "offset": node.offset.to_json(),
            }
        case Scalar():
            return {"kind": "scalar", "out": node.out, "expr": node.expr.to_json()}
        case Read():
            return {"kind": "read", "in": node.base, "out": node.out}
        case Copy():
            return {"kind": "copy", "in": node.base, "out": node.out, "device": node.device}
        case Assert():
            return {"kind": "assert", "cond": _cond_json(node.cond), "message": node.message}


def _value_json(v: Value) -> dict[str, Any]:
    if v.kind == "scalar":
        return {"dtype": v.dtype.value, "kind": "scalar"}
    return {
        "dtype": v.dtype.value,
        "shape": _shape_json(v.shape),
        "strides": _shape_json(v.strides),
        "kind": v.kind,
    }


def to_json(p: Program) -> dict[str, Any]:
    """`program.json` as Python data; the same program always gives the same data in the same order."""
    return {
        "schema": SCHEMA,
        "name": p.name,
        "source": p.source,
        "target": p.target,
        "dtype": p.dtype.value,
        "symbols": {
            s.name: {"min": s.min, "max": s.max, "divisor": s.divisor, "from": [s.source, s.axis]}
            for s in p.symbols.values()
        },
        "values": {v.id: _value_json(v) for v in p.values.values()},
        "inputs": [{"name": b.name, "value": b.value} for b in p.inputs],
        "outputs": [{"name": b.name, "value": b.value} for b in p.outputs],
        "tree": dict(p.tree),
        "weights": [{"value": b.value, "tensor": b.name, "tie": b.tie} for b in p.weights],
        "state": [{"input": s.input, "output": s.output} for s in p.state],
        "constants": [{"value": b.value, "tensor": b.name} for b in p.constants],
        "nodes": [_node_json(n) for n in p.nodes],
    }


def dumps(p: Program) -> str:
    """The text of `program.json`: one value, binding or node a line, so that a diff can be read."""
    parts: list[str] = []
    for key, value in to_json(p).items():
        if isinstance(value, dict) and value and key != "tree":
            body = ",\n".join(f"    {json.dumps(k)}: {_line(v)}" for k, v in value.items())
            parts.append(f"  {json.dumps(key)}: {{\n{body}\n  }}")
        elif isinstance(value, list) and value:
            body = ",\n".join(f"    {_line(v)}" for v in value)
            parts.append(f"  {json.dumps(key)}: [\n{body}\n  ]")
        else:
            parts.append(f"  {json.dumps(key)}: {_line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# ------------------------------------------------------------------------------------------------- JSON in


def attr_of(data: Any) -> AttrValue:
    if isinstance(data, list):
        return tuple(attr_of(v) for v in data)
    if isinstance(data, dict):
        return _number_of(data)
    if data is None or isinstance(data, bool | int | float | str):
        return data
    raise ValueError(f"not an attribute value: {data!r}")


def _number_of(data: Any) -> bool | int | float | IntExpr:
    if isinstance(data, dict):
        if set(data) == {"sym"}:
            return IntExpr.from_json(data["sym"])
        if set(data) == {"float"} and data["float"] in ("inf", "-inf", "nan"):
            return float(data["float"])
    elif isinstance(data, bool | int | float):
        return data
    raise ValueError(f"not a number: {data!r}")


def _arg_of(data: Any) -> Arg:
    if isinstance(data, dict):
        if set(data) != {"scalar"}:
            raise ValueError(f"not an argument: {data!r}")
        return ScalarArg(_number_of(data["scalar"]))
    if isinstance(data, list):
        return tuple(_arg_of(a) for a in data)
    if data is None or isinstance(data, str):
        return data
    raise ValueError(f"not an argument: {data!r}")


def _cond_of(data: Any) -> Cond:
    match data:
        case [op, a, b] if op in _COMPARE:
            return (op, IntExpr.from_json(a), IntExpr.from_json(b))
        case ["not", c]:
            return ("not", _cond_of(c))
        case ["and" | "or" as op, *cs] if cs:
            return (op, *(_cond_of(c) for c in cs))
    raise ValueError(f"not a condition: {data!r}")


def _shape_of(data: Any) -> tuple[IntExpr, ...]:
    return tuple(IntExpr.from_json(n) for n in data)


def _name(data: Any) -> str:
    if not isinstance(data, str):
        raise ValueError(f"not a name: {data!r}")
    return data


def _count(data: Any) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise ValueError(f"not an integer: {data!r}")
    return data


def _node_of(d: Mapping[str, Any]) -> Node:
    match d["kind"]:
        case "call":
            return Call(
                _name(d["id"]),
                _name(d["op"]),
                tuple(_arg_of(a) for a in d["in"]),
                {k: attr_of(v) for k, v in d["attrs"].items()},
                tuple(None if o is None else _name(o) for o in d["out"]),
                _name(d.get("site", "")),
                _name(d.get("aten", "")),
                _name(d.get("why", "")),
            )
        case "view":
            return View(
                _name(d["in"]),
                _name(d["out"]),
                _shape_of(d["shape"]),
                _shape_of(d["strides"]),
                IntExpr.from_json(d["offset"]),
            )
        case "scalar":
            return Scalar(_name(d["out"]), IntExpr.from_json(d["expr"]))
        case "read":
            return Read(_name(d["in"]), _name(d["out"]))
        case "copy":
            return Copy(_name(d["in"]), _name(d["out"]), _name(d["device"]))
        case "assert":
            return Assert(_cond_of(d["cond"]), _name(d["message"]))
    raise ValueError(f"unknown kind of node: {d['kind']!r}")


def from_json(data: Any) -> Program:
    """The program of `to_json`.  Raises `MalformedProgram` for anything else; `verify` is the caller's."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise MalformedProgram(
            f"not a program of schema {SCHEMA}: found {found!r}", hint="capture the model again"
        )
    where = "program"
    try:
        values: dict[str, Value] = {}
        for id, v in data["values"].items():
            where = f"value {id}"
            kind = v["kind"]
            values[id] = Value(
                id, DType(v["dtype"]), _shape_of(v.get("shape", ())), _shape_of(v.get("strides", ())), kind
            )
        symbols: dict[str, Symbol] = {}
        for name, s in data["symbols"].items():
            where = f"symbol {name}"
            source, axis = s["from"]
            bounds = _count(s["min"]), _count(s["max"]), _count(s["divisor"])
            symbols[name] = Symbol(name, _name(source), _count(axis), *bounds)
        nodes: list[Node] = []
        for k, n in enumerate(data["nodes"]):
            where = f"node {k}"
            nodes.append(_node_of(n))
        where = "program"
        return Program(
            name=_name(data["name"]),
            source=_name(data["source"]),
            target=_name(data["target"]),
            dtype=DType(data["dtype"]),
            symbols=symbols,
            values=values,
            nodes=tuple(nodes),
            tree=data["tree"],
            inputs=tuple(Binding(_name(b["name"]), _name(b["value"])) for b in data["inputs"]),
            outputs=tuple(Binding(_name(b["name"]), _name(b["value"])) for b in data["outputs"]),
            weights=tuple(
                Binding(_name(b["tensor"]), _name(b["value"]), None if b["tie"] is None else _name(b["tie"]))
                for b in data["weights"]
            ),
            constants=tuple(Binding(_name(b["tensor"]), _name(b["value"])) for b in data["constants"]),
            state=tuple(State(_name(s["input"]), _name(s["output"])) for s in data["state"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        what = f"no {e}" if isinstance(e, KeyError) else str(e)
        raise MalformedProgram(
            f"{where}: {what}", hint="program.json was edited or cut off: capture the model again"
        ) from e


def loads(text: str) -> Program:
    """The program of `dumps`.  Raises `MalformedProgram`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise MalformedProgram(f"program.json is not JSON: {e}", hint="capture the model again") from e
    return from_json(data)


# ------------------------------------------------------------------------------------------------- people


def _type(v: Value) -> str:
    return v.dtype.value if v.kind == "scalar" else f"{v.dtype.value}[{', '.join(map(str, v.shape))}]"


def _show_arg(arg: Arg) -> str:
    if isinstance(arg, ScalarArg):
        return str(arg.value)
    if isinstance(arg, tuple):
        return f"[{', '.join(_show_arg(a) for a in arg)}]"
    return "-" if arg is None else arg


def _show_attr(value: AttrValue) -> str:
    return f"[{', '.join(_show_attr(v) for v in value)}]" if isinstance(value, tuple) else str(value)


def show_cond(cond: Cond) -> str:
    op, *xs = cond
    if op in _COMPARE:
        return f"{xs[0]} {_COMPARE[op][0]} {xs[1]}"
    if op == "not":
        return f"not ({show_cond(xs[0])})"
    return f" {op} ".join(f"({show_cond(x)})" for x in xs)


def show_node(p: Program, node: Node) -> str:
    """One line for one node."""

    def typed(id: str | None) -> str:
        return "-" if id is None else f"{id}: {_type(p.values[id])}" if id in p.values else f"{id}: ?"

    match node:
        case Call():
            args = [_show_arg(a) for a in node.inputs] + [
                f"{k}={_show_attr(v)}" for k, v in node.attrs.items()
            ]
            text = f"{', '.join(typed(o) for o in node.out)} = {node.op}({', '.join(args)})"
            note = ", ".join(x for x in (node.site, node.why) if x)
            return f"{text}  # {note}" if note else text
        case View():
            at = f" + {node.offset}" if node.offset.value != 0 else ""
            return f"{typed(node.out)} = {node.base} by ({', '.join(map(str, node.strides))}){at}"
        case Scalar():
            return f"{typed(node.out)} = {node.expr}"
        case Read():
            return f"{typed(node.out)} = read {node.base}"
        case Copy():
            return f"{typed(node.out)} = copy {node.base} to {node.device}"
        case Assert():
            return f"assert {show_cond(node.cond)}  # {node.message}"


def show(p: Program) -> str:
    """The program for people: a head, then one line a node."""
    lines = [f"program {p.name} from {p.source}: {p.target}, {p.dtype.value}"]
    for s in p.symbols.values():
        top = "" if s.max == UNBOUNDED else f" <= {s.max}"
        by = f", a multiple of {s.divisor}" if s.divisor != 1 else ""
        lines.append(f"symbol {s.min} <= {s.name}{top}{by}  # axis {s.axis} of {s.source}")
    for kind, bindings in (("input", p.inputs), ("weight", p.weights), ("constant", p.constants)):
        for b in bindings:
            tie = f" = {b.tie}" if b.tie else ""
            lines.append(f"{b.value}: {_type(p.values[b.value])} = {kind} {b.name}{tie}")
    lines += [show_node(p, n) for n in p.nodes]
    lines += [f"output {b.name} = {b.value}" for b in p.outputs]
    lines += [f"state {s.input} becomes {s.output}" for s in p.state]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------- verifier


class _Verifier:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.errors: list[MalformedProgram] = []
        self.defined: set[str] = set()
        self.known: set[str] = set()  # names that expressions may read by now
        self.views: set[str] = set()
        self.samples: list[dict[str, int]] = []

    def fail(self, where: str, what: str) -> None:
        if len(self.errors) < 20:  # the first few say it all
            self.errors.append(MalformedProgram(f"{where}: {what}"))

    def run(self) -> None:
        p = self.p
        for id, v in p.values.items():
            self.value(id, v)
        raise_all(self.errors)  # what follows takes a value's extents and strides in pairs
        sources = {b.name: b.value for b in p.inputs}
        for s in p.symbols.values():
            if s.source in sources or s.source in p.values:
                of = p.values.get(sources.get(s.source, s.source))
                if of is None or not 0 <= s.axis < of.rank or of.shape[s.axis] != IntExpr.of(s.name):
                    self.fail(f"symbol {s.name}", f"is not axis {s.axis} of {s.source}")
            else:
                self.fail(f"symbol {s.name}", f"comes from {s.source}, which is neither an input nor a value")
            if not (0 <= s.min <= s.max and s.divisor >= 1):
                self.fail(f"symbol {s.name}", f"has the range {s.min} to {s.max} by {s.divisor}")
            if s.source in sources:
                self.known.add(s.name)
        raise_all(self.errors)  # sizes are drawn from the symbols' ranges
        self.samples = list(_samples(p))
        for kind, bindings in (("input", p.inputs), ("weight", p.weights), ("constant", p.constants)):
            names = [b.name for b in bindings]
            for name in {n for n in names if names.count(n) > 1}:
                self.fail(f"{kind} {name}", "is bound twice")
            for b in bindings:
                self.define(f"{kind} {b.name}", b.value)
                bound = p.values.get(b.value)
                if bound is None:
                    continue
                if bound.kind != "tensor" or not is_contiguous(Layout(bound.shape, bound.strides)):
                    self.fail(f"{kind} {b.name}", "is not a contiguous tensor")
                if kind != "input" and any(n.value is None for n in bound.shape):
                    self.fail(f"{kind} {b.name}", "has an extent that is not a number")
                if b.tie is not None and not any(w.name == b.tie and w.tie is None for w in p.weights):
                    self.fail(f"weight {b.name}", f"is tied to {b.tie}, which no weight holds")
        ids = [n.id for n in p.calls]
        for id in sorted({i for i in ids if ids.count(i) > 1}):
            self.fail(f"call {id}", "is not the only one of this id")
        for k, node in enumerate(p.nodes):
            self.node(node.id if isinstance(node, Call) else f"node {k}", node)
        for id in p.values:
            if id not in self.defined:
                self.fail(f"value {id}", "is never made")
        for b in p.outputs:
            if b.value not in self.defined:
                self.fail(f"output {b.name}", f"is {b.value}, which is never made")
        for change in p.state:
            self.state(change)
        raise_all(self.errors)

    def value(self, id: str, v: Value) -> None:
        if v.id != id:
            self.fail(f"value {id}", f"calls itself {v.id}")
        if v.kind == "scalar":
            if v.shape or v.strides or v.dtype not in (DType.I64, DType.F64, DType.BOOL):
                self.fail(f"value {id}", "is a register, which has no shape and is i64, f64 or bool")
        elif v.kind != "tensor":
            self.fail(f"value {id}", f"is of kind {v.kind}")
        elif len(v.shape) != len(v.strides):
            self.fail(f"value {id}", f"has {len(v.shape)} extents and {len(v.strides)} strides")
        for n in v.shape:
            if n.value is not None and n.value < 0:
                self.fail(f"value {id}", f"has the extent {n}")
        if id in self.p.symbols:
            self.fail(f"value {id}", "has the name of a symbol")

    def define(self, where: str, id: str) -> None:
        if id not in self.p.values:
            self.fail(where, f"makes {id}, which is not among the values")
        elif id in self.defined:
            self.fail(where, f"makes {id} again")
        self.defined.add(id)
        if id in self.p.values:
            v = self.p.values[id]
            # An extent that depends on data is known from the value that has it.
            self.known |= {s.name for s in self.p.symbols.values() if s.source == id}
            self.names(where, frozenset(n for e in (*v.shape, *v.strides) for n in e.names()))
            if v.kind == "scalar":
                self.known.add(id)

    def names(self, where: str, names: frozenset[str]) -> None:
        for n in sorted(names - self.known):
            known = n in self.p.symbols or n in self.p.values
            self.fail(where, f"reads {n} {'before it is known' if known else 'which nothing defines'}")

    def use(self, where: str, id: str, kind: str = "tensor") -> Value | None:
        v = self.p.values.get(id)
        if v is None or id not in self.defined:
            self.fail(
                where, f"reads {id} {'which is not among the values' if v is None else 'before it is made'}"
            )
            return None
        if v.kind != kind:
            self.fail(where, f"reads {id}, a {v.kind}, as a {kind}")
        return v

    def node(self, where: str, node: Node) -> None:
        self.names(where, names_of(node))
        used = {id: self.use(where, id) for id in uses_of(node)}
        for id in outputs_of(node):
            self.define(where, id)
        values = self.p.values
        match node:
            case Call():
                if not node.out:
                    self.fail(where, "has no output")
                for id in outputs_of(node):
                    v = values.get(id)
                    if v and (v.kind != "tensor" or not is_contiguous(Layout(v.shape, v.strides))):
                        self.fail(where, f"makes {id}, which is not a contiguous tensor")
            case View():
                out, base = values.get(node.out), used[node.base]
                self.views.add(node.out)
                if out is None or base is None:
                    return
                if node.base in self.views:
                    self.fail(where, f"is a view of {node.base}, itself a view: name the base")
                if out.dtype is not base.dtype:
                    self.fail(where, f"turns {base.dtype} into {out.dtype}")
                if (out.shape, out.strides) != (node.shape, node.strides) or len(node.shape) != len(
                    node.strides
                ):
                    self.fail(where, f"differs from what {node.out} says of its shape and strides")
                else:
                    self.inside(where, node, base)
            case Scalar():
                self.scalar(where, node.out, (DType.I64,))
            case Read():
                base = used[node.base]
                if base is None:
                    return
                if any(n.value not in (1, None) for n in base.shape):
                    self.fail(where, f"reads one element of {node.base}, which has more")
                kind = base.dtype.kind
                self.scalar(
                    where,
                    node.out,
                    (DType.BOOL if kind == "bool" else DType.F64 if kind == "float" else DType.I64,),
                )
            case Copy():
                out, base = values.get(node.out), used[node.base]
                if out and base and (out.dtype, out.shape) != (base.dtype, base.shape):
                    self.fail(where, f"copies {node.base} to {node.out} of another type")
            case Assert():
                pass

    def scalar(self, where: str, id: str, dtypes: tuple[DType, ...]) -> None:
        v = self.p.values.get(id)
        if v and (v.kind != "scalar" or v.dtype not in dtypes):
            self.fail(where, f"makes {id}, which is not a register of {dtypes[0]}")

    def inside(self, where: str, view: View, base: Value) -> None:
        """The view's first and last element lie in the base, at several sizes."""
        names = frozenset(
            n for e in (*view.shape, *view.strides, view.offset, *base.shape) for n in e.names()
        )
        for env in self.samples:
            if not names <= env.keys():
                return  # depends on data: the executor checks
            shape = [n.evaluate(env) for n in view.shape]
            if not all(shape):
                continue
            low = high = view.offset.evaluate(env)
            for n, s in zip(shape, (s.evaluate(env) for s in view.strides), strict=True):
                low, high = low + min((n - 1) * s, 0), high + max((n - 1) * s, 0)
            count = math.prod(n.evaluate(env) for n in base.shape)
            if low < 0 or high >= count or any(n < 0 for n in shape):
                at = ", ".join(f"{k} = {v}" for k, v in env.items())
                self.fail(
                    where,
                    f"reaches elements {low} to {high} of {count} in {view.base}"
                    + (f" at {at}" if at else ""),
                )
                return

    def state(self, s: State) -> None:
        bindings = {b.name: b.value for b in self.p.inputs} | {b.value: b.value for b in self.p.constants}
        old, new = self.p.values.get(bindings.get(s.input, "")), self.p.values.get(s.output)
        if old is None:
            self.fail(f"state {s.input}", "is neither an input nor a constant")
        elif new is None or s.output not in self.defined:
            self.fail(f"state {s.input}", f"becomes {s.output}, which is never made")
        elif (old.dtype, old.shape) != (new.dtype, new.shape):
            self.fail(f"state {s.input}", f"becomes {s.output}, which is of another type")


def _samples(p: Program) -> Iterator[dict[str, int]]:
    """A few bindings of the symbols that come from inputs, within their ranges and the program's own assertions."""
    names = {b.name for b in p.inputs}
    symbols = [s for s in p.symbols.values() if s.source in names]
    asserts = [n.cond for n in p.nodes if isinstance(n, Assert)]
    for round in range(4):
        env: dict[str, int] = {}
        for k, s in enumerate(symbols):
            step = (0, 1, 3 + 2 * k, 6)[round]  # least; next; all different; all equal
            env[s.name] = min(-(-max(s.min, 1) // s.divisor) * s.divisor + step * s.divisor, s.max)
        if all(cond_holds(c, env) for c in asserts if cond_names(c) <= env.keys()):
            yield env


def verify(p: Program) -> None:
    """Raise `MalformedProgram` (several as a group) where the laws at the head of this file do not hold."""
    _Verifier(p).run()


def with_nodes(p: Program, nodes: Iterable[Node], values: Mapping[str, Value] | None = None) -> Program:
    """The program with other nodes; values that nothing makes any more are dropped."""
    nodes = tuple(nodes)
    made = {b.value for b in (*p.inputs, *p.weights, *p.constants)} | {
        v for n in nodes for v in outputs_of(n)
    }
    have = dict(p.values) | dict(values or {})
    return replace(p, nodes=nodes, values={id: v for id, v in have.items() if id in made})
