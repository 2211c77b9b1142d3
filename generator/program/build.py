"""A program in the making: fresh names, values, views made once, casts and copies; what every front end shares.

    class Mine(Builder): …        walks its own graph, and adds nodes by these methods (convert.py, onnx_convert.py)

May import: ir, views, intexpr, captured, generator.{errors, types}.  To add what front ends share: a method here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import ErrorGroup
from ..types import DType
from . import views
from .captured import Opaque, Origin, Real, Ref, Site, text_of
from .intexpr import IntExpr
from .ir import (
    UNBOUNDED,
    Arg,
    AttrValue,
    Binding,
    Call,
    MalformedProgram,
    Node,
    Program,
    Symbol,
    Value,
    View,
    verify,
)
from .views import Layout

__all__ = ["Builder"]


class Builder:
    """The parts of a program, and how parts are added."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.symbols: dict[str, Symbol] = {}
        self.lowered: set[str] = set()  # symbols whose least extent is 1 by our leave
        self.inputs: list[Binding] = []
        self.weights: list[Binding] = []
        self.constants: list[Binding] = []
        self.tensors: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.sites: dict[str, Site] = {}
        self.counts: dict[str, int] = {}
        self.made: dict[Any, tuple[str | None, ...]] = {}  # calls made so far
        self.seen_views: dict[tuple[str, Layout], str] = {}
        self.layouts: dict[str, Ref] = {}  # views by id
        self.notes: list[str] = []
        self.overload, self.site = "", Site()

    def fresh(self, letter: str) -> str:
        self.counts[letter] = self.counts.get(letter, 0) + 1
        return f"{letter}{self.counts[letter]}"

    def call_id(self, op: str) -> str:
        stem = "".join(
            c if c.isalnum() else "_"
            for c in op.removeprefix("missing:").removeprefix("aten.").removeprefix("onnx.")
        )
        self.counts[stem + "#"] = self.counts.get(stem + "#", -1) + 1
        return f"{stem}_{self.counts[stem + '#']}"

    def tensor(self, id: str, dtype: DType, shape: Sequence[IntExpr]) -> str:
        self.values[id] = Value(id, dtype, tuple(shape), views.contiguous_strides(shape))
        return id

    def appended(
        self,
        op: str,
        inputs: tuple[Arg, ...],
        attrs: dict[str, AttrValue],
        results: Sequence[tuple[DType, Sequence[IntExpr | None]]],
    ) -> list[str]:
        """A call within what answers a node; its outputs' ids.  An extent that only the call knows is a new symbol."""
        key: Any = (op, repr(inputs), repr(attrs))
        known = self.made.get(key)
        if known is None or None in known:
            out: list[str] = []
            for dtype, shape in results:
                id = self.fresh("v")
                extents = [self.told(id, axis) if n is None else n for axis, n in enumerate(shape)]
                out.append(self.tensor(id, dtype, extents))
            name = self.call_id(op)
            self.nodes.append(Call(name, op, inputs, attrs, tuple(out), str(self.site), self.overload))
            self.sites[name] = self.site
            self.made[key] = known = tuple(out)
        return [id for id in known if id is not None]

    def told(self, id: str, axis: int) -> IntExpr:
        """The extent of a result that the data tell."""
        name = f"s{len(self.symbols)}"
        self.symbols[name] = Symbol(name, id, axis, 0, UNBOUNDED)
        return IntExpr.of(name)

    def materialise(self, x: Ref) -> str:
        """The id of a value that is this tensor: the base itself, or a view node (made once)."""
        base = self.values[x.base]
        if x.layout == Layout(base.shape, base.strides):
            return x.base
        key = (x.base, x.layout)
        if key not in self.seen_views:
            id = self.fresh("v")
            self.values[id] = Value(id, x.dtype, x.layout.shape, x.layout.strides)
            self.nodes.append(View(x.base, id, x.layout.shape, x.layout.strides, x.layout.offset))
            self.seen_views[key] = id
            self.layouts[id] = x
        return self.seen_views[key]

    def viewed(self, id: str) -> Ref:
        """A value by its id."""
        v = self.values[id]
        return self.layouts.get(id) or Ref(id, v.dtype, Layout(v.shape, v.strides))

    def contiguous(self, x: Ref) -> Ref:
        """The same elements, row-major, in memory of their own."""
        return self.plain("contiguous", x, {}, x.dtype)

    def cast(self, x: Ref, dtype: DType) -> Ref:
        return x if x.dtype is dtype else self.plain("cast", x, {"dtype": dtype.value}, dtype)

    def plain(self, op: str, x: Ref, attrs: dict[str, AttrValue], dtype: DType) -> Ref:
        """A call of one input and one output of the same extents that stands in no table."""
        inputs = (self.materialise(x),)
        key = (op, repr(inputs), repr(attrs))
        if key not in self.made:
            id = self.tensor(self.fresh("v"), dtype, x.layout.shape)
            self.made[key] = (id,)
            name = self.call_id(op)
            self.nodes.append(Call(name, op, inputs, attrs, (id,), str(self.site), self.overload))
            self.sites[name] = self.site
        (made,) = self.made[key]
        assert made is not None
        return Ref(made, dtype, views.contiguous(x.layout.shape))

    def reshape(self, x: Ref, shape: Sequence[IntExpr]) -> Ref:
        layout = views.reshape(x.layout, shape)
        if layout is None:
            x = self.contiguous(x)
            layout = views.reshape(x.layout, shape)
            assert layout is not None, "a contiguous tensor takes any shape"
        return Ref(x.base, x.dtype, layout)

    def owned(self, x: Ref) -> str:
        """A contiguous value that is not an input's, a weight's or a constant's memory."""
        foreign = {b.value for b in (*self.inputs, *self.weights, *self.constants)}
        if x.base in foreign or not views.is_contiguous(x.layout):
            x = self.contiguous(x)
        return self.materialise(x)

    def model_dtype(self) -> DType:
        floats = [self.values[b.value].dtype for b in self.weights if self.values[b.value].dtype.is_float]
        floats = floats or [v.dtype for v in self.values.values() if v.dtype.is_float]
        return max(set(floats), key=lambda d: (floats.count(d), d.value)) if floats else DType.F32

    def raw_attr(self, x: Any) -> AttrValue:
        if isinstance(x, list | tuple):
            return tuple(self.raw_attr(y) for y in x)
        if isinstance(x, IntExpr):
            return x.value if x.value is not None else x
        return x.text if isinstance(x, Opaque) else text_of(x) if isinstance(x, Real) else x

    def verified(self, program: Program) -> Program:
        """The program, for extents of 1 too where it holds for them: `x[1]` demands a 2."""
        try:
            verify(program)
            return program
        except (MalformedProgram, ErrorGroup):
            at_two = {s for s in program.symbols if s in self.lowered}
            if not at_two:
                raise

        def least(names: set[str]) -> Program:
            symbols = {k: replace(s, min=2) if k in names else s for k, s in program.symbols.items()}
            return replace(program, symbols=symbols)

        verify(least(at_two))
        for name in sorted(at_two):
            try:
                verify(least(at_two - {name}))
            except (MalformedProgram, ErrorGroup):
                continue
            at_two = at_two - {name}
        return least(at_two)
