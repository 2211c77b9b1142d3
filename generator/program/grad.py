"""Reverse mode on a program: its nodes read backwards give the nodes of its gradients.

    d = Reverse(program, spec_of)       begins a copy of the program, to which nodes are added
    d.seed(value, cotangent)            what an output's cotangent is (a value of the program)
    found = d.gradients(wanted)         value → the value that holds its gradient, None where nothing depends on it

Each node has a transpose
  call   `grad:<hash>`, the gradient of the call's own kernel (declared or derived, as the judge proved it); the file
         `grads/<hash>.json` is the request whose gradient it is (request.py).  Differentiate before fusing.
  view   axes of stride 0 are summed; what only permutes is permuted back, which copies nothing; anything else
         (slices, windows, diagonals) is added into zeros at the places that the same view of 0, 1, 2, … names
Contributions to one value are added; a gradient that was computed in another dtype than its value's is cast.

Only what depends on a wanted value, and what an output depends on, is gone through.  Integers have no gradient, and a
call that is constant almost everywhere passes none on; complex numbers have one, which no operator says yet.
A call in the way that has none is a `NoGradientError`, which names its operator.

May import: ir, views, intexpr, request, folder's names of files, generator (spec, gradient, grad, bound, types).
To add a kind of node: a case in `Reverse.active` and one in `Reverse.gradients`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..bound import BoundOp
from ..grad_push import cotangent_names, gradient_names
from ..gradient import NoGradientError, adjoint_of, differentiable, normal
from ..spec import OpSpec
from ..types import DType
from . import views
from .intexpr import IntExpr, product
from .ir import (
    Arg,
    AttrValue,
    Binding,
    Call,
    Copy,
    Node,
    Program,
    Value,
    View,
    arg_values,
    with_nodes,
)
from .request import GRADIENT, gradient_text, request_of, resolve
from .views import Layout

__all__ = ["Reverse", "Rule", "SpecOf", "rule_of"]

SpecOf = Callable[[str], OpSpec]
#: Reasons of specs to have no gradient that mean one of zero.
_FLAT = re.compile(r"constant\b|only the shape\b")


@dataclass(frozen=True)
class Ref:
    """A tensor: a layout over a value that is no view."""

    base: str
    layout: Layout


@dataclass(frozen=True)
class Rule:
    """How the gradient of a call is called.

    inputs   per input of the gradient, in order: ("in", name) | ("out", name) | ("cotangent", output's name); a list of
             these where it takes a list
    outputs  (the forward's flat input, dtype) per output of the gradient
    takes, gives  the gradient's own names of these
    attrs    of the forward's attributes those that the gradient takes at run time, where they are plain
    """

    op: str
    inputs: tuple[Any, ...]
    outputs: tuple[tuple[str, DType], ...]
    attrs: Mapping[str, Any]
    spec: OpSpec
    takes: tuple[str, ...]
    gives: tuple[str, ...]


class Reverse:
    """A program in the course of being differentiated."""

    def __init__(self, program: Program, spec_of: SpecOf) -> None:
        self.program, self.spec_of = program, spec_of
        self.values: dict[str, Value] = dict(program.values)
        self.nodes: list[Node] = list(program.nodes)
        self.grads: dict[str, str] = {}  # hash → text of its file
        self._rules: dict[str, Rule | str] = {}
        self._seeds: dict[str, list[Ref]] = {}
        self._parts: dict[str, list[Ref]] = {}
        self._made: dict[tuple[str, Layout], str] = {}
        self._positions: dict[IntExpr, str] = {}
        self._zeros: dict[tuple[tuple[IntExpr, ...], DType], str] = {}
        self._count = 0
        self._foreign = {b.value for b in (*program.inputs, *program.weights, *program.constants)}

    # ---- building

    def fresh(self, dtype: DType, shape: Sequence[IntExpr]) -> str:
        """A new contiguous value."""
        self._count += 1
        id = f"g{self._count}"
        self.values[id] = Value(id, dtype, tuple(shape), views.contiguous_strides(shape))
        return id

    def call(
        self,
        op: str,
        inputs: Iterable[Arg],
        dtype: DType,
        shape: Sequence[IntExpr],
        attrs: Mapping[str, AttrValue] | None = None,
        of: Call | None = None,
    ) -> str:
        """A call of one output, and its value."""
        out = self.fresh(dtype, shape)
        self.add(op, tuple(inputs), (out,), attrs or {}, of)
        return out

    def add(
        self,
        op: str,
        inputs: tuple[Arg, ...],
        out: tuple[str | None, ...],
        attrs: Mapping[str, AttrValue],
        of: Call | None,
    ) -> None:
        """A call.  `of`: the call whose gradient it helps to compute, for its place in the model's source."""
        self._count += 1
        stem = f"{of.id}_grad" if of is not None else f"{op}_g"
        site, aten = (of.site, of.aten) if of is not None else ("", "")
        self.nodes.append(Call(f"{stem}{self._count}", op, inputs, dict(attrs), out, site, aten))

    def whole(self, id: str) -> Ref:
        """A value that is no view."""
        return Ref(id, views.contiguous(self.values[id].shape))

    def value_of(self, x: Ref) -> str:
        """The id of a value that is this tensor: the base, or a view of it."""
        base = self.values[x.base]
        if x.layout == Layout(base.shape, base.strides):
            return x.base
        key = (x.base, x.layout)
        if key not in self._made:
            self._count += 1
            id = f"g{self._count}"
            self.values[id] = Value(id, base.dtype, x.layout.shape, x.layout.strides)
            self.nodes.append(View(x.base, id, x.layout.shape, x.layout.strides, x.layout.offset))
            self._made[key] = id
        return self._made[key]

    def owned(self, x: Ref) -> str:
        """A contiguous value that may be an output: nobody's memory from outside."""
        if x.base in self._foreign or not views.is_contiguous(x.layout):
            x = self.contiguous(x)
        return self.value_of(x)

    def contiguous(self, x: Ref) -> Ref:
        return self.whole(
            self.call("contiguous", [self.value_of(x)], self.values[x.base].dtype, x.layout.shape)
        )

    def reshape(self, x: Ref, shape: Sequence[IntExpr]) -> Ref:
        layout = views.reshape(x.layout, shape)
        if layout is None:
            x = self.contiguous(x)
            layout = views.reshape(x.layout, shape)
            assert layout is not None, "a contiguous tensor takes any shape"
        return Ref(x.base, layout)

    def zeros(self, shape: Sequence[IntExpr], dtype: DType) -> str:
        key = (tuple(shape), dtype)
        if key not in self._zeros:
            attrs: dict[str, AttrValue] = {"size": _plain(shape), "value": 0.0, "dtype": dtype.value}
            self._zeros[key] = self.call("full", [], dtype, shape, attrs)
        return self._zeros[key]

    # ---- cotangents

    def seed(self, value: str, cotangent: str) -> None:
        """The cotangent of an output, in the output's dtype and shape."""
        self._seeds.setdefault(value, []).append(self.whole(cotangent))

    def gradients(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """The gradient of each wanted value, as a value that may be an output; None where no seed depends on it."""
        wanted = list(wanted)
        active = self.active(wanted)
        self._parts = {k: list(v) for k, v in self._seeds.items() if k in active}
        for node in reversed(self.program.nodes):
            match node:
                case View(base=base, out=out) if base in active:
                    g = self.total(out)
                    if g is not None:
                        self.contribute(base, self.transposed(node, g))
                case Copy(base=base, out=out) if base in active:
                    g = self.total(out)
                    if g is not None:
                        self.contribute(base, g)
                case Call() if any(o in active for o in node.out if o):
                    self.backward(node, active)
        found = {w: self.total(w) for w in wanted}
        return {w: None if g is None else self.owned(g) for w, g in found.items()}

    def active(self, wanted: Iterable[str]) -> set[str]:
        """Float and complex values that depend on what is wanted."""

        def counts(id: str) -> bool:
            dtype = self.values[id].dtype
            return dtype.is_float or dtype.is_complex

        out = {w for w in wanted if counts(w)}
        for node in self.program.nodes:
            match node:
                case View(base=base, out=id) | Copy(base=base, out=id) if base in out:
                    out.add(id)
                case Call(inputs=inputs, out=outs) if any(v in out for a in inputs for v in arg_values(a)):
                    out |= {o for o in outs if o is not None and counts(o)}
        return out

    def contribute(self, value: str, g: Ref) -> None:
        self._parts.setdefault(value, []).append(g)

    def total(self, value: str) -> Ref | None:
        """The sum of what was contributed to a value; its readers are all behind us."""
        parts = self._parts.pop(value, [])
        if not parts:
            return None
        g = parts[0]
        dtype, shape = self.values[value].dtype, self.values[value].shape
        for other in parts[1:]:
            g = self.whole(self.call("add", [self.value_of(g), self.value_of(other)], dtype, shape))
        self._parts[value] = [g]  # asked again, it is the same
        return g

    # ---- transposes

    def transposed(self, view: View, g: Ref) -> Ref:
        """The cotangent of a view's base."""
        base = self.values[view.base]
        shape, strides = list(view.shape), list(view.strides)
        spread = [k for k, n in enumerate(strides) if n.value == 0 and shape[k].value != 1]
        if spread:
            left = [k for k in range(len(shape)) if k not in spread]
            shape, strides = [shape[k] for k in left], [strides[k] for k in left]
            g = self.whole(
                self.call(
                    "sum", [self.value_of(g)], base.dtype, shape, {"dim": tuple(spread), "keepdim": False}
                )
            )
        order = permutation(Layout(tuple(shape), tuple(strides), view.offset), base.shape)
        if order is not None:
            return self.reshape(Ref(g.base, views.permute(g.layout, order)), base.shape)
        layout = Layout(tuple(shape), tuple(strides), view.offset)
        many = [product(shape)]
        places = self.reshape(self.contiguous(Ref(self.positions(product(base.shape)), layout)), many)
        total = [product(base.shape)]
        added = self.call(
            "scatter_add",
            [
                self.zeros(total, base.dtype),
                self.value_of(places),
                self.value_of(self.reshape(self.contiguous(g), many)),
            ],
            base.dtype,
            total,
            {"dim": 0},
        )
        return self.reshape(self.whole(added), base.shape)

    def positions(self, count: IntExpr) -> str:
        """0, 1, 2, … as many as a base has elements: a view of it says where the view's elements are from."""
        if count not in self._positions:
            end = _plain([count])[0]
            attrs: dict[str, AttrValue] = {"start": 0, "end": end, "step": 1, "dtype": "i64"}
            self._positions[count] = self.call("arange", [], DType.I64, [count], attrs)
        return self._positions[count]

    def backward(self, call: Call, active: set[str]) -> None:
        """The gradient of a call, and what it contributes to the call's inputs."""
        cotangents = {o: g for o in call.out if o in active and (g := self.total(o)) is not None}
        if not cotangents or self.flat(call):
            return
        rule = self.rule(call)
        flat = dict(_flat(rule.spec, call.inputs))
        named = {o: id for o, id in zip(rule.spec.outputs, call.out, strict=True) if id is not None}
        given = {e[1] for e in rule.inputs if isinstance(e, tuple) and e[0] == "cotangent"}
        lost = sorted(o for o, id in named.items() if id in cotangents and o not in given)
        if lost:
            raise self.no(call, f"it has none by its output `{lost[0]}`")
        have = {name for name, _ in rule.outputs}
        for name, arg in flat.items():
            if isinstance(arg, str) and arg in active and name not in have:
                raise self.no(call, f"it has none by its input `{name}`")

        def one(entry: Any) -> Arg:
            if isinstance(entry, list):
                return tuple(one(e) for e in entry)
            kind, name = entry
            if kind == "in":
                return flat[name]
            if name not in named:
                raise self.no(call, f"its output `{name}` is not kept")
            id = named[name]
            if kind == "out":
                return id
            g = cotangents.get(id)
            return self.zeros(self.values[id].shape, self.values[id].dtype) if g is None else self.value_of(g)

        outs: list[tuple[str, str | None]] = []
        for name, dtype in rule.outputs:
            arg = flat[name]
            wanted = isinstance(arg, str) and arg in active
            outs.append((name, self.fresh(dtype, self.values[str(arg)].shape) if wanted else None))
        attrs = {k: call.attrs[k] if _symbolic(call.attrs.get(k)) else v for k, v in rule.attrs.items()}
        self.add(rule.op, tuple(one(e) for e in rule.inputs), tuple(id for _, id in outs), attrs, call)
        for name, id in outs:
            if id is None:
                continue
            value = self.values[str(flat[name])]
            if self.values[id].dtype is not value.dtype:
                id = self.call("cast", [id], value.dtype, value.shape, {"dtype": value.dtype.value}, call)
            self.contribute(value.id, self.whole(id))

    def flat(self, call: Call) -> bool:
        """Whether the operator says that its results do not move with its inputs: that is a gradient of zero."""
        if call.op.startswith("group:"):
            return False
        grad = self.spec_of(call.op).grad
        return grad is not None and grad.none is not None and _FLAT.match(grad.none) is not None

    def rule(self, call: Call) -> Rule:
        request = request_of(self.program, call)
        op, text = gradient_text(request)
        if op not in self._rules:
            try:
                if call.op.startswith("group:"):
                    raise NoGradientError(f"`{call.op}` is fused: differentiate the program before")
                self._rules[op] = rule_of(self.spec_of(call.op), request, op)
            except NoGradientError as error:
                self._rules[op] = error.message
        found = self._rules[op]
        if isinstance(found, str):
            raise self.no(call, found.partition(" has no gradient: ")[2] or found)
        self.grads[op.removeprefix(GRADIENT)] = text
        return found

    def no(self, call: Call, why: str) -> NoGradientError:
        return NoGradientError(f"`{call.op}` at {call.site or call.id} has no gradient: {why}")

    def finished(self, outputs: Sequence[Binding], **changed: Any) -> Program:
        """The program with all that was added; values that nobody reads are dropped."""
        p = replace(self.program, outputs=tuple(outputs), **changed)
        return with_nodes(p, self.nodes, self.values)


def rule_of(spec: OpSpec, request: Mapping[str, Any], op: str) -> Rule:
    """How the gradient of what answers the request is called.  Raises `NoGradientError`."""
    resolved, _ = resolve(spec, request)
    wrt = differentiable(spec, resolved.key)
    back = adjoint_of(spec, resolved.key)
    if spec.grad is not None and spec.grad.compute is not None:
        cotangents = {f"d{o}": o for o, t in spec.outputs.items() if not t.aux}
        gradients = {f"d{n}": n for n in wrt}
    else:
        forward = normal(spec, resolved.key)
        cotangents = {d: o for o, d in cotangent_names(forward).items()}
        gradients = {d: n for n, d in gradient_names(forward, wrt).items()}
    return Rule(
        op,
        tuple(_entries(back, spec, cotangents)),
        tuple((gradients[t.name], t.dtype) for t in back.outputs),
        {a.name: resolved.attrs[a.name] for a in back.attrs},
        spec,
        tuple(dict.fromkeys(t.list_of or t.name for t in back.inputs)),
        tuple(t.name for t in back.outputs),
    )


def _entries(back: BoundOp, spec: OpSpec, cotangents: Mapping[str, str]) -> Iterable[Any]:
    """What each input of the gradient is; entries of a list together."""
    lists: dict[str, list[Any]] = {}
    for t in back.inputs:
        if t.list_of is not None:
            if t.list_of not in lists:
                lists[t.list_of] = []
                yield lists[t.list_of]
            lists[t.list_of].append(("in", t.name))
        elif t.name in cotangents:
            yield ("cotangent", cotangents[t.name])
        else:
            yield ("in" if t.name in spec.inputs else "out", t.name)


def _flat(spec: OpSpec, inputs: Sequence[Arg]) -> Iterable[tuple[str, Arg]]:
    for name, arg in zip(spec.inputs, inputs, strict=True):
        if isinstance(arg, tuple):
            yield from ((f"{name}.{k}", a) for k, a in enumerate(arg))
        else:
            yield name, arg


def permutation(x: Layout, base: Sequence[IntExpr]) -> list[int] | None:
    """The order of a layout's axes in which it is its whole base, row by row; None where there is none."""
    if x.offset.value != 0:
        return None
    left = [k for k, n in enumerate(x.shape) if n.value != 1]
    order: list[int] = []
    step = IntExpr.of(1)
    while left:
        k = next((k for k in left if x.strides[k] == step), None)
        if k is None:
            return None
        order.insert(0, k)
        left.remove(k)
        step = step * x.shape[k]
    if step != product(base):
        return None
    return [k for k, n in enumerate(x.shape) if n.value == 1] + order


def _plain(shape: Sequence[IntExpr]) -> tuple[AttrValue, ...]:
    return tuple(n if n.value is None else n.value for n in shape)


def _symbolic(x: AttrValue) -> bool:
    return isinstance(x, IntExpr) or (isinstance(x, tuple) and any(_symbolic(y) for y in x))
