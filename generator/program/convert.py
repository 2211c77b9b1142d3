"""A graph of core ATen → a program: every node as a call, a view or arithmetic.

How nodes become what
  views      a chain of views is one `Layout` over the value that a call made (views.py); it becomes a `view` node when
             somebody reads it; where strides do not allow a reshape, a call of `contiguous` comes first
  copies     the graph is functional: `clone`, `alias`, `detach` and casts to the same dtype are nothing
  integers   sizes and their arithmetic are expressions over symbols; an element read from a tensor is a register
  calls      through the aten table; an overload that no row accepts becomes a call of `missing:<overload>` with
             its reason, and the program is still whole, so that an inventory can be taken
  the same   call on the same values is made once (random ones are not the same)

  the rest   by the face's fronts (expand.py): what `call_aten` answers by several steps is several calls here

May import: ir, views, aten, torch_compat, captured, overloads, expand, opwright.arguments.  To add a kind of node: a
case in `Converter.node`; what one overload needs: overloads.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...arguments import RULES, Refused
from ..types import DType
from . import torch_compat as compat
from . import views
from .aten import AtenRow, AtenTable, Only
from .build import Builder
from .captured import (
    PLACEMENT,
    Capture,
    CaptureError,
    Item,
    Opaque,
    Origin,
    Prepared,
    Real,
    Ref,
    RowRefused,
    Site,
    inverse_of,
    text_of,
)
from .expand import ProgramDoor, expand, of_complex
from .intexpr import IntExpr, product
from .ir import (
    UNBOUNDED,
    Arg,
    Assert,
    AttrValue,
    Binding,
    Call,
    Cond,
    Node,
    Program,
    Read,
    ScalarArg,
    State,
    Symbol,
    Value,
    attr_json,
    cond_holds,
    cond_names,
    cond_text,
    outputs_of,
    uses_of,
    with_nodes,
)
from .ir import names_of as names_read
from .overloads import COMPOSE, DROPPED, PREPARE, SPECIAL, VIEWS
from .stops import stops

__all__ = ["Converter", "order_of", "prune"]


class Converter(Builder):
    def __init__(self, core: Any, exported: Any, table: AtenTable, name: str, source: str) -> None:
        super().__init__(name, source)
        self.core, self.exported, self.table = core, exported, table
        self.env: dict[str, Item] = {}
        self.names: dict[str, str | IntExpr] = {}  # the exporter's symbol → ours
        self.reads: dict[str, Site] = {}  # a number that is read from a tensor → where
        self.ranges = compat.ranges(core)
        self.composed: set[str] = set()  # overloads that several calls answer
        self.constant_outputs: dict[
            str, Any
        ] = {}  # what the module returns that is no tensor, as leaves of the tree
        self.current: Any = None
        self.stops = stops(core)

    def run(self, dynamic: str, notes: tuple[str, ...]) -> Capture:
        graph = self.core.graph_module.graph
        self.placeholders(graph)
        for node in graph.nodes:
            if node.op == "call_function":
                self.node(node)
                if node.name in self.stops:
                    self.env[node.name] = self.stopped(self.env[node.name])
            elif node.op == "get_attr":
                self.env[node.name] = Opaque(str(node.target))
        outputs, state = self.outputs(graph)
        program = Program(
            name=self.name,
            source=self.source,
            dtype=self.model_dtype(),
            values=self.values,
            symbols=self.symbols,
            inputs=tuple(self.inputs),
            outputs=outputs,
            nodes=(*self.guards(), *self.nodes),
            weights=tuple(self.weights),
            constants=tuple(self.constants),
            state=state,
            tree=self.tree(),
        )
        program = self.verified(prune(program))
        kept = {c.id for c in program.calls}
        bound = {b.tie or b.name for b in (*program.weights, *program.constants)}
        return Capture(
            program,
            {k: v for k, v in self.tensors.items() if k in bound},
            {k: v for k, v in self.origins.items() if k in kept},
            {k: v for k, v in self.sites.items() if k in kept},
            self.core,
            dynamic,
            notes + tuple(self.notes),
            composed=tuple(sorted(self.composed & {c.aten for c in program.calls})),
        )

    # ---- names

    def rename(self, e: IntExpr) -> IntExpr:
        unknown = e.names() - self.names.keys()
        if unknown:
            raise compat.NotAnExtent(f"the extent `{e}` depends on data in a way that a program cannot say")
        return e.rename(self.names)

    def extent(self, x: Any) -> IntExpr:
        return self.rename(compat.extent_of(x))

    def shape(self, fake: Any) -> tuple[IntExpr, ...]:
        return tuple(self.extent(n) for n in fake.shape)

    # ---- inputs and outputs

    def placeholders(self, graph: Any) -> None:
        specs = {s.arg.name: s for s in self.core.graph_signature.input_specs}
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        fakes = [(n, n.meta.get("val")) for n in nodes]
        users = [(n, v) for n, v in fakes if specs[n.name].kind.name == "USER_INPUT" and hasattr(v, "shape")]
        for n, v in users:  # symbols first: any input may be the one that has a symbol plainly
            for axis, extent in enumerate(v.shape):
                symbol = compat.symbol_of(extent)
                if symbol is not None and symbol not in self.names:
                    self.symbol(symbol, n.name, axis)
        ties: dict[Any, str] = {}
        for n, v in fakes:
            spec = specs[n.name]
            if not hasattr(v, "shape") or spec.kind.name == "TOKEN":
                self.env[n.name] = self.constant_input(n, spec, v)
                continue
            dtype, shape = compat.dtype_of(v.dtype), self.shape(v)
            match spec.kind.name:
                case "USER_INPUT":
                    id = self.tensor(self.fresh("v"), dtype, shape)
                    self.inputs.append(Binding(n.name, id))
                case "PARAMETER":
                    id = self.tensor(self.fresh("w"), dtype, shape)
                    tensor = self.core.state_dict[spec.target]
                    key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
                    tie = ties.setdefault(key, spec.target) if tensor.numel() else spec.target
                    self.weights.append(Binding(spec.target, id, None if tie == spec.target else tie))
                    self.tensors[spec.target] = tensor
                case "BUFFER" | "CONSTANT_TENSOR":
                    id = self.tensor(self.fresh("c"), dtype, shape)
                    self.constants.append(Binding(spec.target, id))
                    self.tensors[spec.target] = self.buffer(spec)
                case kind:
                    raise CaptureError(f"the model takes a {kind.lower().replace('_', ' ')}, {n.name}")
            self.env[n.name] = Ref(id, dtype, views.contiguous(shape))

    def buffer(self, spec: Any) -> Any:
        found = self.core.constants.get(spec.target)
        return self.core.state_dict[spec.target] if found is None else found

    def constant_input(self, n: Any, spec: Any, value: Any) -> Item:
        if spec.kind.name == "TOKEN":
            return Opaque("token")
        if spec.kind.name == "USER_INPUT" and (value is None or isinstance(value, bool | int | float | str)):
            return value
        if compat.is_symbolic(value):
            raise CaptureError(f"the input {n.name} is a number that varies: pass it as a tensor")
        return Opaque(n.name)

    def symbol(self, raw: str, source: str, axis: int) -> None:
        low, high = self.ranges.get(raw, (0, None))
        name = f"s{len(self.symbols)}"
        self.names[raw] = name
        # The exporter excludes 1 because it would specialise on it; what it computes for n mostly holds for 1
        # (`verified` says where not).
        if low == 2:
            self.lowered.add(name)
        self.symbols[name] = Symbol(
            name, source, axis, 1 if low == 2 else low, UNBOUNDED if high is None else high
        )

    def outputs(self, graph: Any) -> tuple[tuple[Binding, ...], tuple[State, ...]]:
        specs = self.core.graph_signature.output_specs
        (result,) = next(n for n in graph.nodes if n.op == "output").args
        names = self.output_names()
        outputs: list[Binding] = []
        state: list[State] = []
        user = 0
        for spec, node in zip(specs, result, strict=True):
            item = self.item(node)
            if spec.kind.name == "TOKEN":
                continue
            if spec.kind.name == "USER_OUTPUT":
                name = names[user] if user < len(names) else f"output_{user}"
                user += 1
                if isinstance(item, Ref):
                    outputs.append(Binding(name, self.owned(item)))
                    continue
                if isinstance(item, IntExpr) and item.value is not None:
                    item = item.value
                varies = isinstance(item, IntExpr)
                self.constant_outputs[name] = attr_json(item) if varies else {"const": _plain(item)}
                if item is not None:
                    self.notes.append(f"the output {name} is the constant {item}: left out")
            elif spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                assert isinstance(item, Ref)
                bound = {b.name: b.value for b in self.constants}
                state.append(State(bound.get(spec.target, spec.target), self.owned(item)))
            else:
                raise CaptureError(f"the model gives a {spec.kind.name.lower().replace('_', ' ')}")
        if not outputs:
            raise CaptureError(
                "the model returns no tensor", hint="return tensors, or a structure that holds some"
            )
        return tuple(outputs), tuple(state)

    def output_names(self) -> list[str]:
        spec = self.core.call_spec.out_spec
        tree = _unflatten(spec)
        named = [name for name, _ in compat.flatten_named(tree, "output")]
        unique: dict[str, int] = {}
        out = []
        for n in self.counted(named):
            k = unique.get(n, 0)
            unique[n] = k + 1
            out.append(f"{n}_{k}" if k else n)
        return out

    def counted(self, names: Sequence[str]) -> list[str]:
        """A cache counts what it holds, and not its extents: those are leaves where they vary, and none for the module
        itself.  So `cache.3` is `cache.2` behind one that varies."""
        specs = [s for s in self.core.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
        kinds = _containers(self.core.call_spec.out_spec)
        if not len(specs) == len(kinds) == len(names):
            return list(names)
        out: list[str] = []
        extents: dict[str, int] = {}
        for name, spec, kind in zip(names, specs, kinds, strict=True):
            owner, dot, at = name.rpartition(".")
            if not dot or not at.isdecimal() or kind in (list, tuple):
                out.append(name)
            elif type(spec.arg).__name__ == "SymIntArgument":
                out.append(f"{owner}.extent{extents.get(owner, 0)}")
                extents[owner] = extents.get(owner, 0) + 1
            else:
                out.append(f"{owner}.{int(at) - extents.get(owner, 0)}")
        return out

    def tree(self) -> dict[str, Any]:
        specs = [s for s in self.core.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        bound = {b.name for b in self.inputs}
        leaves: list[Any] = [
            s.arg.name if s.arg.name in bound else {"const": _plain(getattr(s.arg, "value", None))}
            for s in specs
        ]
        inputs = compat.structure(self.core.call_spec.in_spec, leaves)
        names = [self.constant_outputs.get(n, n) for n in self.output_names()]
        outputs = compat.structure(self.core.call_spec.out_spec, names)
        return {"inputs": inputs, "outputs": outputs}

    def guards(self) -> list[Assert]:
        """The exporter's own conditions on extents, as assertions; those that hold by construction are left out."""
        inputs = {b.name: self.values[b.value] for b in self.inputs}

        def extent(path: str, axis: int) -> IntExpr | None:
            name = path.split("'")[1] if path.count("'") == 2 and path.startswith("L[") else ""
            v = inputs.get(name)
            return v.shape[axis] if v is not None and axis < v.rank else None

        out: list[Assert] = []
        for text in compat.guards(self.exported):
            cond = compat.guard_of(text, extent)
            if cond is None or isinstance(cond, bool) or self.certain(cond):
                continue
            if all(a.cond != cond for a in out):
                out.append(Assert(cond, f"the model was captured for {_readable(text)}"))
        return out

    def plainly(self, cond: Cond) -> Cond:
        """The same of one truth that is read from a tensor, said of the truth itself."""
        names = sorted(cond_names(cond))
        if len(names) != 1 or names[0] not in self.values or self.values[names[0]].dtype is not DType.BOOL:
            return cond
        where = [k for k in (0, 1) if cond_holds(cond, {names[0]: k})]
        if len(where) == 2:
            return ("eq", IntExpr.of(0), IntExpr.of(0))
        return ("eq", IntExpr.of(names[0]), IntExpr.of(where[0])) if where else cond

    def certain(self, cond: Cond) -> bool:
        """Whether a comparison holds by its form or by the symbols' ranges alone."""
        op, *xs = cond
        if not cond_names(cond):
            return cond_holds(cond, {})
        if op not in ("eq", "ne", "lt", "le", "gt", "ge"):
            return False
        difference: IntExpr = xs[0] - xs[1]
        if difference.value is not None:
            return {
                "eq": difference.value == 0,
                "le": difference.value <= 0,
                "ge": difference.value >= 0,
                "lt": difference.value < 0,
                "gt": difference.value > 0,
                "ne": difference.value != 0,
            }[op]
        # s >= 2 and s != 1 are the exporter's fear of specialising; s <= max is in the range.
        if (
            len(difference.terms) == 2
            and difference.terms[0][1] in (1, -1)
            and isinstance(difference.terms[0][0][0], str)
        ):
            symbol = self.symbols.get(difference.terms[0][0][0]) if len(difference.terms[0][0]) == 1 else None
            bound = xs[1].value if xs[1].value is not None else None
            if symbol is not None and bound is not None:
                return (
                    (op == "ge" and bound <= max(symbol.min, 2))
                    or (op == "le" and bound >= symbol.max)
                    or (op == "ne" and bound in (0, 1))
                )
        return False

    # ---- values in use

    def complex_number(self, x: complex) -> Ref:
        """A complex number as a tensor of rank 0, in the precision of what is computed with it: `1j` has no dtype."""
        val = self.current.meta.get("val")
        wide = any(str(t.dtype) in ("torch.complex128", "torch.float64") for t in compat.tensors_of(val))
        real, whole = (DType.F64, DType.C128) if wide else (DType.F32, DType.C64)
        parts = [
            self.appended("full", (), {"size": (), "value": v, "dtype": real.value}, [(real, ())])[0]
            for v in (x.real, x.imag)
        ]
        (id,) = self.appended("complex", tuple(parts), {}, [(whole, ())])
        return Ref(id, whole, views.contiguous(()))

    # ---- nodes

    def item(self, x: Any) -> Any:
        """An argument of the exported graph in our terms."""
        if hasattr(x, "op") and hasattr(x, "meta"):
            return self.env[x.name]
        if isinstance(x, list | tuple):
            return [self.item(y) for y in x]
        if compat.is_dtype(x):
            return compat.dtype_of(x).value
        if compat.is_symbolic(x):
            return self.extent(x)
        if x is None or isinstance(x, bool | int | float | complex | str | Ref):
            return x
        return Opaque(str(x))

    def node(self, node: Any) -> None:
        self.current = node
        self.overload = compat.overload_name(node.target) or ""
        self.site = _site(node)
        val = node.meta.get("val")
        if compat.is_symbolic(val) or (
            isinstance(val, bool | int | float) and self.overload != "aten._local_scalar_dense.default"
        ):
            self.env[node.name] = self.number(node, val)
            return
        if not self.overload:  # operator.getitem and the like
            self.env[node.name] = self.python(node)
            return
        if self.overload in DROPPED:
            self.env[node.name] = None
            return
        if (
            self.overload == "higher_order.with_effects"
        ):  # a check that raises: the program's operators refuse alike
            self.env[node.name] = (Opaque("token"),)
            return
        if self.overload.startswith("higher_order."):
            self.env[node.name] = self.call(
                node, {f"arg{k}": a for k, a in enumerate(node.args)} | dict(node.kwargs)
            )
            return
        bound = compat.bind(node.target, node.args, node.kwargs)
        special = SPECIAL.get(self.overload)
        if special is not None:
            self.env[node.name] = special(self, node, bound)
            return
        view = VIEWS.get(self.overload)
        if view is not None:
            args = {k: self.item(v) for k, v in bound.items()}
            x = args.get("self", args.get("input"))
            result = view(self, x, args, node.meta["val"]) if isinstance(x, Ref) else None
            if result is not None:
                self.env[node.name] = result
                return
        self.env[node.name] = self.call(node, bound)

    def stopped(self, x: Item) -> Item:
        """The same, through which no gradient flows: views are read before, so that a gradient cannot go round it."""
        if isinstance(x, tuple):
            return tuple(self.stopped(part) for part in x)
        if not isinstance(x, Ref) or not (x.dtype.is_float or x.dtype.is_complex):
            return x
        (out,) = self.appended("detach", (self.arg(x),), {}, [(x.dtype, x.layout.shape)])
        return Ref(out, x.dtype, views.contiguous(x.layout.shape))

    def ruled(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments as the overload's rule has them."""

        def about(x: Any) -> tuple[str, tuple[IntExpr, ...]] | None:
            return (x.dtype.value, x.layout.shape) if isinstance(x, Ref) else None

        try:
            return RULES[self.overload](about, **args)
        except Refused as e:
            raise RowRefused(str(e)) from None

    def number(self, node: Any, val: Any) -> Item:
        """A node whose value is a number: a constant, an expression, or an element read from a tensor."""
        if not compat.is_symbolic(val):
            return val  # type: ignore[no-any-return]
        if self.overload == "aten._local_scalar_dense.default":
            return self.read(node, val)
        if type(val).__name__ == "SymInt":
            return self.extent(val)
        if type(val).__name__ == "SymFloat":
            try:
                return Real(self.real(compat.real_of(val)))
            except (compat.NotAnExtent, Refused):
                pass
        # A condition, or a float of data: whoever takes it says that it cannot.
        return Opaque(f"the {type(val).__name__} `{node.name}`")

    def real(self, tree: Any) -> Ref:
        """What the exporter computes of extents, computed in f64 when the program runs."""
        door = ProgramDoor(self)

        def made(x: Any) -> Any:
            if isinstance(x, float):
                return door.full((), x, "f64")
            if isinstance(x, IntExpr):
                return door.full((), self.rename(x), "i64").to("f64")
            op, args = x
            return door.run(op, [made(a) for a in args], {})

        ref: Ref = made(tree).ref
        return ref

    def read(self, node: Any, val: Any) -> Item:
        x = self.item(node.args[0])
        raw = compat.symbol_of(val) or compat.truth_of(val)
        if raw is None and (known := compat.constant_of(val)) is not None:
            return known  # the model checks that it is this number: the exporter has it from there
        if raw is None or not isinstance(x, Ref):
            if not node.users:  # a check's, which is left out
                return Opaque(f"the number `{node.name}`")
            raise compat.NotAnExtent(f"`{node.name}` reads an element in a way that a program cannot say")
        dtype = {"SymFloat": DType.F64, "SymBool": DType.BOOL}.get(type(val).__name__, DType.I64)
        if x.dtype.kind == "bool":
            dtype = DType.BOOL
        id = self.fresh("n")
        self.values[id] = Value(id, dtype, kind="scalar")
        self.nodes.append(Read(self.materialise(x), id))
        self.names[raw] = id
        self.reads[id] = self.site
        return IntExpr.of(id)

    def assertion(self, cond: Cond, said: str) -> str:
        """What an assertion says when it fails; the exporter's own speaks of its symbols."""
        if said and not said.startswith("Runtime assertion failed"):
            return said
        where = [
            f"{n} is read at {s} `{s.text}`" for n in sorted(cond_names(cond)) if (s := self.reads.get(n))
        ]
        return "; ".join([f"the model was captured where {cond_text(cond)}", *where])

    def python(self, node: Any) -> Item:
        name = getattr(node.target, "__name__", str(node.target))
        args = [self.item(a) for a in node.args]
        if name == "getitem" and isinstance(args[0], tuple | list):
            return args[0][args[1]]  # type: ignore[no-any-return]
        if name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"):
            return None
        raise compat.NotAnExtent(f"`{node.name}` calls {name}, which a program cannot say")

    def call(self, node: Any, bound: Mapping[str, Any]) -> Item:
        """A call through the table, or a missing one."""
        args = {k: self.item(v) for k, v in bound.items()}
        fakes = node.meta.get("val")
        many = isinstance(fakes, list | tuple)
        results = list(fakes) if many else [fakes]
        reasons: list[str] = []
        if of_complex(self.overload, args):
            try:
                return self.expanded(node, args, results, many)
            except RowRefused as e:
                reasons.append(str(e))
        compose = COMPOSE.get(self.overload)
        if compose is not None and not self.table.get(self.overload):
            try:
                op, inputs, attrs = compose(self, args)
                return self.made_call(node, op, inputs, attrs, [0], results, many, Prepared(args))
            except RowRefused as e:
                reasons.append(str(e))
        prepare = PREPARE.get(self.overload)
        prepared = Prepared(args)
        try:
            if prepare is not None:
                prepared = prepare(self, args, fakes)
            elif self.overload in RULES:
                prepared = Prepared(self.ruled(args))
            for row in self.table.get(self.overload, ()):
                try:
                    inputs, attrs = self.mapped(row, node.target, prepared.args, results)
                    read = sum(1 for k in range(len(row.returns), len(results)) if self.is_read(node, k))
                    if read:
                        raise RowRefused(f"{row.op} does not give result {len(row.returns)}")
                except RowRefused as e:
                    reasons.append(str(e))
                    continue
                order = [row.returns.index(o) if o in row.returns else None for o in row.outputs]
                return self.made_call(node, row.op, inputs, attrs, order, results, many, prepared)
        except RowRefused as e:
            reasons.append(str(e))
        if all(hasattr(r, "shape") for r in results):
            try:
                return self.expanded(node, args, results, many)
            except RowRefused as e:
                reasons += [str(e)] if str(e) else []
        why = "; ".join(dict.fromkeys(reasons)) or "no operator claims this overload"
        inputs = tuple(self.arg(a) for a in args.values() if _has_tensor(a))
        attrs = {k: self.raw_attr(a) for k, a in args.items() if not _has_tensor(a)}
        known = {a.name: a.default for a in compat.arguments(node.target)}
        attrs = {k: v for k, v in attrs.items() if k not in PLACEMENT and not (k in known and v is None)}
        return self.made_call(
            node,
            f"missing:{self.overload}",
            inputs,
            attrs,
            list(range(len(results))),
            results,
            many,
            Prepared(args),
            why,
        )

    def expanded(self, node: Any, args: Mapping[str, Any], results: list[Any], many: bool) -> Item:
        """The node by what the face's fronts make of it; its results are where the last calls' outputs are."""
        start = len(self.nodes)
        found = expand(self, args, results)
        calls = [n for n in self.nodes[start:] if isinstance(n, Call)]
        made = {o: (c, k) for c in calls for k, o in enumerate(c.out) if o is not None}
        origin: dict[str, list[tuple[int, tuple[int, ...] | None] | None]] = {}
        for k, (x, fake) in enumerate(zip(found, results, strict=True)):
            for extent, n in zip(x.layout.shape, fake.shape, strict=True):
                raw = compat.symbol_of(n)
                if raw is not None and raw not in self.names:
                    self.names[raw] = extent
            order = order_of(x.layout, self.values[x.base].shape)
            if x.base in made and order is not None:
                call, at = made[x.base]
                origin.setdefault(call.id, [None] * len(call.out))[at] = (k, order or None)
        for name, places in origin.items():
            self.origins[name] = Origin(node.name, tuple(places))
        if len(calls) > 1:
            self.composed.add(self.overload)
        return tuple(found) if many else found[0]

    def is_read(self, node: Any, k: int) -> bool:
        return any(u.args[1] == k for u in node.users if getattr(u.target, "__name__", "") == "getitem")

    def made_call(
        self,
        node: Any,
        op: str,
        inputs: tuple[Arg, ...],
        attrs: dict[str, AttrValue],
        order: list[int | None],
        results: list[Any],
        many: bool,
        prepared: Prepared,
        why: str = "",
    ) -> Item:
        key: Any = (op, repr(inputs), repr(attrs))  # as text: 1, 1.0 and True are equal, and not the same
        if why or compat.seeded(node.target) or key not in self.made:
            out: list[str | None] = []
            origin: list[tuple[int, tuple[int, ...] | None] | None] = []
            for k in order:
                fake = results[k] if k is not None and k < len(results) else None
                if fake is None or not hasattr(fake, "shape"):
                    out.append(None)
                    origin.append(None)
                    continue
                id = self.fresh("v")
                self.unbacked(id, fake)
                shape = prepared.shape if prepared.shape is not None and k == 0 else self.shape(fake)
                out.append(self.tensor(id, compat.dtype_of(fake.dtype), shape))
                back = None if prepared.permute is None else inverse_of(prepared.permute)
                origin.append((k or 0, back))
            name = self.call_id(op)
            self.nodes.append(Call(name, op, inputs, attrs, tuple(out), str(self.site), self.overload, why))
            self.origins[name] = Origin(node.name, tuple(origin))
            self.sites[name] = self.site
            self.made[key] = tuple(out)
        ids = self.made[key]
        refs: list[Item] = [None] * len(results)
        for k, made in zip(order, ids, strict=True):
            if k is not None and made is not None:
                v = self.values[made]
                self.known_extents(v, results[k])
                layout = views.contiguous(v.shape)
                if prepared.permute is not None:
                    layout = views.permute(layout, prepared.permute)
                refs[k] = Ref(made, v.dtype, layout)
        return tuple(refs) if many else refs[0]

    def unbacked(self, id: str, fake: Any) -> None:
        """Extents that only the call itself knows become symbols of its result."""
        for axis, n in enumerate(fake.shape):
            raw = compat.symbol_of(n)
            if raw is not None and raw not in self.names:
                self.symbol(raw, id, axis)

    def known_extents(self, v: Value, fake: Any) -> None:
        """The exporter's names for the extents of a call that was made before are other ones."""
        for extent, n in zip(v.shape, fake.shape, strict=False):
            raw = compat.symbol_of(n)
            if raw is not None and raw not in self.names and len(extent.names()) == 1:
                (self.names[raw],) = extent.names()

    # ---- the table's rows

    def mapped(
        self, row: AtenRow, target: Any, args: Mapping[str, Any], results: Sequence[Any]
    ) -> tuple[tuple[Arg, ...], dict[str, AttrValue]]:
        """Inputs and attributes by a row.  Raises `RowRefused`."""
        given: dict[str, Any] = {}
        named = dict(row.map)
        for a in compat.arguments(target):
            value = args[a.name]
            if a.name not in named:
                if a.name not in PLACEMENT and not same_value(value, a.default):
                    raise RowRefused(f"{row.op} does not take {a.name} = {text_of(value)}")
                continue
            to = named[a.name]
            if isinstance(to, Only):
                if not same_value(value, to.value):
                    raise RowRefused(
                        f"{row.op} takes only {a.name} = {text_of(to.value)}, not {text_of(value)}"
                    )
            elif isinstance(to, tuple):
                if not isinstance(value, list | tuple) or len(value) != len(to):
                    raise RowRefused(f"{row.op} takes {len(to)} tensors as {a.name}")
                given.update(zip(to, value, strict=True))
            elif to is not None:
                given[to] = value
        for name, value in row.set.items():
            given.setdefault(name, value)
        inputs: list[Arg] = []
        for name in row.inputs:
            inputs.append(self.arg(given.pop(name, None)))
        if not any(_has_tensor(a) for a in args.values()) and given.get("dtype", "") is None and results:
            # A tensor made from nothing: torch's default dtype is a matter of the capture, not of the run.
            given["dtype"] = compat.dtype_of(results[0].dtype).value
        attrs: dict[str, AttrValue] = {}
        for name in row.attrs:
            if name in given:
                attrs[name] = self.attr(row, name, given.pop(name))
        if given:
            raise RowRefused(f"{row.op} has no {', '.join(sorted(given))}")
        return tuple(inputs), attrs

    def arg(self, x: Any) -> Arg:
        if isinstance(x, Ref):
            return self.materialise(x)
        if isinstance(
            x, Real
        ):  # where PyTorch's number has no width, a tensor of f64 would make integers f64
            wide = any(
                str(t.dtype) == "torch.float64" for t in compat.tensors_of(self.current.meta.get("val"))
            )
            return self.materialise(x.ref if wide else self.cast(x.ref, DType.F32))
        if isinstance(x, list | tuple):
            return tuple(self.arg(y) for y in x)
        if isinstance(x, complex):
            return self.materialise(self.complex_number(x))
        if isinstance(x, bool | int | float | IntExpr):
            if isinstance(x, IntExpr) and x.value is not None:
                x = x.value
            return ScalarArg(x)
        if x is None:
            return None
        raise RowRefused(f"{text_of(x)} is no tensor")

    def attr(self, row: AtenRow, name: str, x: Any) -> AttrValue:
        if _has_tensor(x) or isinstance(x, Opaque | Real):
            raise RowRefused(f"{row.op}'s {name} is an attribute, not {text_of(x)}")
        return self.raw_attr(x)


def _containers(spec: Any, kind: Any = None) -> list[Any]:
    """The type of container that each leaf lies in."""
    if spec.is_leaf():
        return [kind]
    return [k for child in spec.children() for k in _containers(child, spec.type)]


def _unflatten(spec: Any) -> Any:
    torch = compat.require_torch()
    # Tensors: a container of transformers' takes a number for a part of itself.
    leaves = [torch.empty(0) for _ in range(spec.num_leaves)]
    return torch.utils._pytree.tree_unflatten(leaves, spec)


def _plain(x: Any) -> Any:
    return x if x is None or isinstance(x, bool | int | float | str) else str(x)


def _readable(guard: str) -> str:
    return guard.replace("L['", "").replace("'].size()", ".shape")


def _site(node: Any) -> Site:
    stack = node.meta.get("nn_module_stack") or {}
    module = [path for path, _ in stack.values()][-1] if stack else ""
    frames = compat.frames(node.meta.get("stack_trace"))
    if not frames:
        return Site(module=module)
    f = frames[-1]
    return Site(f.file, f.line, f.function, f.text, module)


def order_of(x: views.Layout, shape: Sequence[IntExpr]) -> tuple[int, ...] | None:
    """How a whole value of this shape is got back from the view of it: `()`, by a reshape; else the permutation of the
    view's axes.  None: not so."""
    if x.offset.value != 0:
        return None
    if views.is_contiguous(x):
        return () if x.numel == product(shape) else None
    whole = views.contiguous(shape)
    for order in itertools.permutations(range(x.rank)) if x.rank == len(shape) <= 6 else ():
        if views.permute(x, order) == whole:
            return tuple(order)
    return None


def _has_tensor(x: Any) -> bool:
    return any(_has_tensor(y) for y in x) if isinstance(x, list | tuple) else isinstance(x, Ref)


def same_value(a: Any, b: Any) -> bool:
    """Equal as an argument: lists by element, a number whatever its type, a dtype by its name."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, IntExpr):
        a = a.value
    if isinstance(a, bool) != isinstance(b, bool) and not (isinstance(a, int) and isinstance(b, int)):
        return False
    return not isinstance(a, Ref) and bool(a == b)


def prune(program: Program) -> Program:
    """Without nodes, weights and constants whose results nobody reads.  Assertions and missing calls' inputs stay."""
    live = (
        {b.value for b in program.outputs}
        | {s.output for s in program.state}
        | {s.input for s in program.state}
    )
    need: set[str] = set()  # registers and data-dependent symbols in expressions
    made_by = {s.name: s.source for s in program.symbols.values()}
    kept: list[Node] = []

    def use_names(names: frozenset[str]) -> None:
        for n in names:
            need.add(n)
            live.add(n)
            if n in made_by:
                live.add(made_by[n])

    for v in (*(b.value for b in program.outputs), *(b.value for b in program.inputs)):
        use_names(frozenset(n for e in program.values[v].shape for n in e.names()))
    for node in reversed(program.nodes):
        outs = outputs_of(node)
        if isinstance(node, Assert) or any(o in live for o in outs):
            kept.append(node)
            live.update(uses_of(node))
            use_names(names_read(node))
            for o in outs:
                use_names(
                    frozenset(
                        n for e in (*program.values[o].shape, *program.values[o].strides) for n in e.names()
                    )
                )
    weights = tuple(b for b in program.weights if b.value in live)
    constants = tuple(b for b in program.constants if b.value in live)
    weights = retied(weights)
    inputs = {b.name for b in program.inputs}
    symbols = {s.name: s for s in program.symbols.values() if s.source in inputs or s.source in live}
    trimmed = replace(program, weights=weights, constants=constants, symbols=symbols)
    return with_nodes(trimmed, reversed(kept))


def retied(weights: tuple[Binding, ...]) -> tuple[Binding, ...]:
    """Ties name a weight that is still there."""
    have = {b.name for b in weights}
    first: dict[str, str] = {}
    out: list[Binding] = []
    for b in weights:
        if b.tie is not None and b.tie not in have:
            tie = first.setdefault(b.tie, b.name)
            b = replace(b, tie=None if tie == b.name else tie)
        out.append(b)
    return tuple(out)
