"""An ONNX graph → a program: every node as a call, a view or arithmetic on extents.

How nodes become what
  constants   what depends on constants alone is computed once, by onnx's reference evaluator
  integers    what `Shape` gives, and arithmetic on it, are expressions over symbols (`content` of a tensor)
  views       as in convert.py; onnx_ops.py says which operators are views
  calls       through the `onnx:` maps of the specs (rows `onnx.Softmax` of the table)
  fronts      operators that are several of ours (onnx_fronts.py), by the door that call_aten's own fronts use
  control     bodies of If, Loop and Scan in line, sequences and optionals as their tensors (onnx_control.py)
  the rest    is rewritten into other nodes (onnx_ops.REWRITE), or is what ONNX itself defines it by (its function
              body), and those are converted; `flat` holds all nodes in the end, so that each call's value has a name
  missing     what none of that reaches is a call of `missing:onnx.<Op>` with its reason
An extent that onnx's shape inference cannot tell becomes a symbol of the call that makes it.

May import: build, aten, captured, onnx_model, onnx_ops, onnx_fronts, onnx_control, convert (prune, order_of).
To add what an operator needs: onnx_ops.py, or a front.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...fronting import Refused
from ..errors import OpwrightError
from ..types import DType
from . import views
from .aten import AtenRow, AtenTable, Only
from .build import Builder
from .captured import CaptureError, Ref, RowRefused, Site
from .convert import order_of, prune
from .expand import ProgramDoor
from .folder import numpy_dtype
from .intexpr import IntExpr, product
from .ir import Arg, Assert, AttrValue, Binding, Call, Cond, Program, Read, ScalarArg, Symbol, Value
from .models import TargetError
from .onnx_control import CONTROL, reads, renamed
from .onnx_model import Reference, dtype_of, numpy_of, onnx_of, opset_of, require_onnx
from .shapes import results

__all__ = ["OnnxCapture", "OnnxConverter", "Tensor"]

#: Elements up to which what constants give is computed here, and contents are followed.
_FOLD, _FOLLOW = 1 << 22, 1 << 10
#: Elements of a list that are read one by one when the program runs.
_READ = 16


@dataclass
class Tensor:
    """A tensor of the graph.  `ref`: where the program has it; `content`: its elements, where they are known: numbers,
    or (dtype object) integers over symbols."""

    name: str
    dtype: DType
    shape: tuple[IntExpr, ...]
    ref: Ref | None = None
    content: Any = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def known(self) -> bool:
        """Whether its elements are numbers."""
        return self.content is not None and self.content.dtype != object


@dataclass(frozen=True)
class OnnxCapture:
    """What a conversion gives: the program, its tensors by name, the flat model (every value's tensor has a name
    there), value id → tensor's name, the permutation of that tensor's axes that gives the value where it is not the
    same, and the value ids that are integers over symbols."""

    program: Program
    tensors: Mapping[str, Any]
    flat: Any
    names: Mapping[str, str]
    turned: Mapping[str, tuple[int, ...]]
    filled: Mapping[str, IntExpr]
    sites: Mapping[str, Site]
    notes: tuple[str, ...]


class OnnxConverter(Builder):
    """`given`: inputs as an example has them, where the model's types do not say of which shape, or how many."""

    def __init__(
        self,
        model: Any,
        table: AtenTable,
        name: str,
        source: str,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, source)
        self.model, self.table, self.given = model, table, dict(given or {})
        self.opset = opset_of(model)
        self.opsets = {o.domain: int(o.version) for o in model.opset_import}
        self.onnx = require_onnx()
        self.env: dict[str, Tensor] = {}
        self.flat: list[Any] = []
        self.folded: dict[str, Any] = {}
        self.params: dict[str, IntExpr] = {}
        self.value_names: dict[str, str] = {}
        self.turned: dict[str, tuple[int, ...]] = {}
        self.filled: dict[str, IntExpr] = {}
        self.registers: dict[str, list[IntExpr]] = {}  # elements that are read when the program runs
        self.sequences: dict[str, tuple[str, ...]] = {}  # the names of their tensors
        self.absent: set[str] = {""}  # optionals that hold nothing
        self.names: dict[str, list[str]] = {}  # of what the model returns, the names of its tensors
        self.read: set[str] = {o.name for o in model.graph.output}
        self.wrapped: set[str] = set()  # indices that no longer count from the end
        self.depth = 0
        self.current: Any = None

    # ---- the whole

    def run(self) -> OnnxCapture:
        graph = self.model.graph
        for t in graph.initializer:
            self.env[t.name] = self.constant(t.name, numpy_of(t), dtype_of(t.data_type, t.name))
        given = [v for v in graph.input if v.name not in self.env]
        self.take_inputs(given)
        self.read |= set(reads(graph.node))
        for node in graph.node:
            self.node(node)
        outputs = []
        for name in [n for v in graph.output for n in self.returned(v.name)]:
            x = self.env[name]
            outputs.append(Binding(name, self.owned(self.ref(x))))
            self.value_names.setdefault(outputs[-1].value, name)
        program = Program(
            name=self.name,
            source=self.source,
            dtype=self.model_dtype(),
            values=self.values,
            symbols=self.symbols,
            inputs=tuple(self.inputs),
            outputs=tuple(outputs),
            nodes=tuple(self.nodes),
            weights=tuple(self.weights),
            constants=tuple(self.constants),
            tree={
                "inputs": [[b.name for b in self.inputs], {}],
                "outputs": [b.name for b in outputs],
            },
        )
        program = self.verified(prune(program))
        bound = {b.name for b in (*program.weights, *program.constants)}
        return OnnxCapture(
            program,
            {k: v for k, v in self.tensors.items() if k in bound},
            self.flat_model(),
            self.value_names,
            self.turned,
            self.filled,
            {c.id: self.sites[c.id] for c in program.calls if c.id in self.sites},
            tuple(self.notes),
        )

    def returned(self, name: str) -> list[str]:
        """The names of the tensors that an output of the model is."""
        if name in self.absent:
            raise CaptureError(f"the model returns `{name}`, an optional that holds nothing")
        if name not in self.sequences:
            self.names[name] = [name]
            return [name]
        self.names[name] = [f"{name}.{k}" for k in range(len(self.sequences[name]))]
        for item, to in zip(self.sequences[name], self.names[name], strict=True):
            self.node(self.onnx.helper.make_node("Identity", [item], [to]))
        return self.names[name]

    def flat_model(self) -> Any:
        """The graph as it was converted: no functions, constants folded, sequences as their tensors."""
        helper, numpy_helper = self.onnx.helper, self.onnx.numpy_helper
        outputs = [
            v
            for o in self.model.graph.output
            for v in (
                [o]
                if o.name not in self.sequences
                else map(helper.make_empty_tensor_value_info, self.names[o.name])
            )
        ]
        used = {i for n in self.flat for i in n.input} | {o.name for o in outputs}
        kept = [t for t in self.model.graph.initializer if t.name in used]
        own = {t.name for t in kept}
        kept += [numpy_helper.from_array(a, n) for n, a in self.folded.items() if n in used and n not in own]
        inputs = [
            v for v in self.model.graph.input if v.name not in {t.name for t in self.model.graph.initializer}
        ]
        for v in list(inputs):
            if v.name in self.sequences:
                inputs.remove(v)
                inputs += [helper.make_empty_tensor_value_info(n) for n in self.sequences[v.name]]
        graph = helper.make_graph(self.flat, "flat", inputs, outputs, kept)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [o for o in self.model.opset_import if o.domain not in ("", "ai.onnx")]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version)

    # ---- inputs, constants

    def take_inputs(self, given: Sequence[Any]) -> None:
        """Symbols first: one named alone, then those in expressions (`past + 1`)."""
        later = []
        given = [w for v in given for w in self.shaped(v)]
        for v in given:
            kind = v.type.tensor_type
            for axis, d in enumerate(kind.shape.dim):
                if d.HasField("dim_value"):
                    continue
                name = d.dim_param
                if not name or (name.isidentifier() and name not in self.params):
                    at = IntExpr.of(self.symbol(v.name, axis))
                    self.params[name or f"?{v.name}.{axis}"] = at
        for v in given:
            kind = v.type.tensor_type
            shape = []
            for axis, d in enumerate(kind.shape.dim):
                if d.HasField("dim_value"):
                    shape.append(IntExpr.of(int(d.dim_value)))
                    continue
                name = d.dim_param or f"?{v.name}.{axis}"
                if name not in self.params:
                    found = _sum_of(name, self.params)
                    self.params[name] = IntExpr.of(self.symbol(v.name, axis)) if found is None else found
                    later.append(name)
                shape.append(self.params[name])
            dtype = dtype_of(kind.elem_type, f"the input {v.name}")
            id = self.tensor(self.fresh("v"), dtype, shape)
            self.inputs.append(Binding(v.name, id))
            self.env[v.name] = Tensor(v.name, dtype, tuple(shape), Ref(id, dtype, views.contiguous(shape)))
            self.value_names[id] = v.name

    def shaped(self, v: Any) -> list[Any]:
        """An input as tensors that have shapes: those that the example has, where its type does not say so."""
        helper = self.onnx.helper
        kind = v.type
        if kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"):
            return [v]
        if v.name not in self.given:
            raise TargetError(f"the input {v.name} has no shape", hint="export it with input shapes")
        x = self.given[v.name]
        if x is None:
            self.absent.add(v.name)
            return []
        items, names = (
            (x, [f"{v.name}.{k}" for k in range(len(x))]) if isinstance(x, list) else ([x], [v.name])
        )
        if isinstance(x, list):
            self.sequences[v.name] = tuple(names)
        return [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, map(np.asarray, items), strict=True)
        ]

    def symbol(self, source: str, axis: int) -> str:
        name = f"s{len(self.symbols)}"
        self.symbols[name] = Symbol(name, source, axis, 1)
        self.lowered.add(name)
        return name

    def constant(self, name: str, array: Any, dtype: DType | None = None) -> Tensor:
        """A tensor of numbers; the program gets it when somebody reads it there."""
        array = np.asarray(array)
        kind = dtype or dtype_of(self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype), name)
        return Tensor(name, kind, tuple(IntExpr.of(int(n)) for n in array.shape), None, array)

    def ref(self, x: Tensor) -> Ref:
        """Where the program has a tensor: a weight or constant is bound on its first use."""
        if x.ref is not None:
            return x.ref
        if x.known:
            weight = x.dtype.is_float and x.content.size > 1
            id = self.tensor(self.fresh("w" if weight else "c"), x.dtype, x.shape)
            (self.weights if weight else self.constants).append(Binding(x.name, id))
            self.tensors[x.name] = np.ascontiguousarray(x.content.astype(numpy_dtype(x.dtype))).reshape(
                x.content.shape
            )
            self.value_names[id] = x.name
            x.ref = Ref(id, x.dtype, views.contiguous(x.shape))
            return x.ref
        parts = [self.number(e, x.dtype) for e in x.content.reshape(-1)]
        if len(parts) == 1:
            x.ref = self.reshape(parts[0], x.shape)
            return x.ref
        id = self.tensor(self.fresh("v"), x.dtype, (IntExpr.of(len(parts)),))
        call = self.call_id("cat")
        flat = tuple(self.materialise(p) for p in parts)
        self.nodes.append(Call(call, "cat", (flat,), {"dim": 0}, (id,), str(self.site), "onnx.Concat"))
        self.sites[call] = self.site
        self.value_names[id] = x.name
        x.ref = self.reshape(Ref(id, x.dtype, views.contiguous(self.values[id].shape)), x.shape)
        return x.ref

    def number(self, e: Any, dtype: DType) -> Ref:
        """An integer over symbols as a tensor of one element."""
        value = e.value if isinstance(e, IntExpr) and e.value is not None else e
        key = ("full", repr(value), dtype.value)
        if key not in self.made:
            id = self.tensor(self.fresh("v"), dtype, (IntExpr.of(1),))
            self.made[key] = (id,)
            call = self.call_id("full")
            attrs: dict[str, AttrValue] = {"size": (1,), "value": value, "dtype": dtype.value}
            self.nodes.append(Call(call, "full", (), attrs, (id,), str(self.site), "onnx.ConstantOfShape"))
            self.sites[call] = self.site
            self.filled[id] = IntExpr.of(value)
        (made,) = self.made[key]
        assert made is not None
        return Ref(made, dtype, views.contiguous((IntExpr.of(1),)))

    # ---- nodes

    def node(self, node: Any) -> None:
        from .onnx_fronts import FRONTS
        from .onnx_ops import CONTENT, PREPARE

        op, self.current = node.op_type, node
        if self.depth == 0:
            self.site = Site(module=node.name or f"{op}:{node.output[0]}")
        self.overload = f"onnx.{op}"
        schema = self.schema(op, node.domain)
        if op in CONTROL and (op != "Identity" or node.input[0] not in self.env):
            CONTROL[op](self, node)
            return
        lost = [i for i in node.input if i and i not in self.env]
        if lost:
            raise CaptureError(f"`{self.site}` takes `{lost[0]}`, which is no tensor")
        given = [self.env[i] if i else None for i in node.input]
        if self.fold(node, given):
            return
        args = self.arguments(schema, node, given)
        if op in CONTENT and all(t is None or t.content is not None for t in given):
            found = CONTENT[op](self, args)
            if found is not None:
                self.flat.append(node)
                dtype = self.inferred(node, schema)[0][0]
                content = np.asarray(found, object)
                if all(_plain(e) for e in content.reshape(-1)):
                    content = np.array(
                        [int(_number(e)) for e in content.reshape(-1)], numpy_dtype(dtype)
                    ).reshape(content.shape)
                shape = tuple(IntExpr.of(n) for n in content.shape)
                self.env[node.output[0]] = Tensor(node.output[0], dtype, shape, None, content)
                return
        reasons: list[str] = []
        try:
            if self.without_call(node, args):
                return
            prepared = PREPARE[op](self, args) if op in PREPARE else args
            for row in self.rows(op):
                try:
                    for k, name in enumerate(node.output):
                        if k >= len(row.returns) and name in self.read:
                            raise RowRefused(f"{row.op} does not give {schema.outputs[k].name}")
                    inputs, attrs = self.mapped(row, schema, prepared)
                except RowRefused as e:
                    reasons.append(str(e))
                    continue
                self.called(node, schema, row.op, inputs, attrs, row)
                return
        except RowRefused as e:
            reasons.append(str(e))
        if op in FRONTS:
            try:
                self.fronted(node, FRONTS[op](self, node, args))
                return
            except RowRefused as e:
                reasons.append(str(e))
        body = self.body(schema, node)
        if body is not None:
            self.deeper(body)
            return
        why = "; ".join(dict.fromkeys(reasons)) or "no operator claims this ONNX operator"
        tensors = tuple(self.materialise(self.ref(t)) for t in given if t is not None)
        self.called(node, schema, f"missing:onnx.{op}", tensors, {}, None, why)

    def without_call(self, node: Any, args: Mapping[str, Any]) -> bool:
        """A view, or other nodes in its place."""
        from .onnx_ops import REWRITE, VIEWS

        op = node.op_type
        if op in VIEWS:
            made = VIEWS[op](self, args)
            if made is not None:
                self.flat.append(node)
                for name, t in zip(node.output, made, strict=False):
                    if name:
                        self.env[name] = Tensor(name, t.dtype, t.layout.shape, t)
                return True
        if op in REWRITE:
            nodes = REWRITE[op](self, node, args)
            if nodes is not None:
                self.deeper(nodes)
                return True
        return False

    def deeper(self, nodes: Sequence[Any]) -> None:
        self.depth += 1
        self.read |= set(reads(nodes))
        if self.depth > 60:
            raise CaptureError(f"`{self.site}` is defined by itself")
        for n in nodes:
            self.node(n)
        self.depth -= 1

    def fronted(self, node: Any, results: Sequence[Ref | None]) -> None:
        """What a front gave for the node's outputs."""
        for name, x in zip(node.output, [*results, *[None] * len(node.output)], strict=False):
            if x is None and name and name in self.read:
                raise RowRefused(f"nothing gives {name}")
        self.flat.append(node)
        made = {o for n in self.nodes if isinstance(n, Call) for o in n.out}
        for name, x in zip(node.output, results, strict=False):
            if not name or x is None:
                continue
            self.env[name] = Tensor(name, x.dtype, x.layout.shape, x)
            order = order_of(x.layout, self.values[x.base].shape)
            if x.base in made and order is not None and x.base not in self.value_names:
                self.value_names[x.base] = name
                if order:
                    self.turned[x.base] = order

    def arg(self, x: Any) -> Arg:
        """An argument that a front gives."""
        if isinstance(x, Ref):
            return self.materialise(x)
        if isinstance(x, list | tuple):
            return tuple(self.arg(y) for y in x)
        if x is None:
            return None
        if isinstance(x, bool | int | float | IntExpr):
            return ScalarArg(x.value if isinstance(x, IntExpr) and x.value is not None else x)
        raise RowRefused(f"{_text(x)} is no tensor")

    def schema(self, op: str, domain: str = "") -> Any:
        own = domain in ("", "ai.onnx")
        version = self.opset if own else self.opsets.get(domain, 1)
        try:
            return self.onnx.defs.get_schema(op, version, "" if own else domain)
        except Exception:
            if own:
                raise TargetError(
                    f"opset {self.opset} has no operator {op}", hint="onnx.checker.check_model says more"
                ) from None
            raise CaptureError(
                f"`{self.site}` is of the domain {domain}, which nothing here defines"
            ) from None

    def arguments(self, schema: Any, node: Any, given: Sequence[Tensor | None]) -> dict[str, Any]:
        """Inputs and attributes by the schema's own names; a variadic input is a tuple."""
        args: dict[str, Any] = {}
        for k, p in enumerate(schema.inputs):
            if p.option == self.onnx.defs.OpSchema.FormalParameterOption.Variadic:
                args[p.name] = tuple(given[k:])
            else:
                args[p.name] = given[k] if k < len(given) else None
        have = {a.name: a for a in node.attribute}
        for name, a in schema.attributes.items():
            if name in have:
                args[name] = _value(self.onnx, have[name])
            elif a.default_value.name:
                args[name] = _value(self.onnx, a.default_value)
            else:
                args.setdefault(name, None)
        return args

    def fold(self, node: Any, given: Sequence[Tensor | None]) -> bool:
        """Compute what constants alone decide."""
        op = node.op_type
        if any(t is not None and not t.known for t in given) or op.startswith(
            ("Random", "Bernoulli", "Multi")
        ):
            return False
        helper = self.onnx.helper
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(t.name, onnx_of(t.dtype), None) for t in given if t is not None],
            [helper.make_empty_tensor_value_info(o) for o in node.output if o],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [o for o in self.model.opset_import if o.domain not in ("", "ai.onnx")]
        model = helper.make_model(graph, opset_imports=opsets)
        size = sum(t.content.size for t in given if t is not None)
        if size > _FOLD:
            return False
        try:
            env = Reference(model).run({t.name: t.content for t in given if t is not None})
            arrays = {o: np.asarray(env[o]) for o in node.output if o}
        except Exception:  # the evaluator does not know it: a call will be missing, and says so
            return False
        if any(a.size > _FOLD for a in arrays.values()):
            return False
        for name, array in arrays.items():
            self.env[name] = self.constant(name, array)
            self.folded[name] = array
        return True

    def body(self, schema: Any, node: Any) -> list[Any] | None:
        """What ONNX defines the operator by, with names of its own."""
        if schema.has_function:
            text = schema.get_function_with_opset_version(self._function_opset(schema))
        elif schema.has_context_dependent_function:
            types = [self.type_of(i).SerializeToString() if i else b"" for i in node.input]
            versions = [v for v in schema.context_dependent_function_opset_versions if v <= self.opset]
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), types
            )
        else:
            return None
        if not text:
            return None
        function = self.onnx.FunctionProto()
        function.ParseFromString(text)
        prefix = f"{node.output[0]}/"
        names = dict(zip(function.input, [*node.input, *[""] * len(function.input)], strict=False))
        names |= {o: n for o, n in zip(function.output, node.output, strict=False) if n}
        given = {a.name: a for a in node.attribute}
        defaults = {k: a.default_value for k, a in schema.attributes.items() if a.default_value.name}
        out = []
        for n in function.node:
            own = self.onnx.NodeProto()
            own.CopyFrom(n)
            own.name = ""
            own.domain = n.domain if n.domain in self.opsets else ""
            own.input[:] = [names.get(i, prefix + i if i else "") for i in n.input]
            own.output[:] = [names.setdefault(o, prefix + o) if o else "" for o in n.output]
            del own.attribute[:]
            for a in n.attribute:
                if not a.ref_attr_name:
                    own.attribute.append(a)
                    if a.type == self.onnx.AttributeProto.GRAPH:
                        renamed(own.attribute[-1].g, names, prefix)
                    continue
                found = given.get(a.ref_attr_name, defaults.get(a.ref_attr_name))
                if found is not None:
                    own.attribute.append(found)
                    own.attribute[-1].name = a.name
            out.append(own)
        return out

    def _function_opset(self, schema: Any) -> int:
        return max((v for v in schema.function_opset_versions if v <= self.opset), default=self.opset)

    # ---- calls

    def rows(self, op: str) -> list[AtenRow]:
        """Rows of the newest `since` that the opset has."""
        rows = [r for r in self.table.get(f"onnx.{op}", ()) if r.since <= self.opset]
        newest = max((r.since for r in rows), default=0)
        return [r for r in rows if r.since == newest]

    def mapped(
        self, row: AtenRow, schema: Any, args: Mapping[str, Any]
    ) -> tuple[tuple[Arg, ...], dict[str, AttrValue]]:
        """Inputs and attributes by a row.  A row by position (`#0`) names ONNX's inputs, then attributes, in order."""
        order = [p.name for p in schema.inputs] + list(schema.attributes)
        named = {order[int(n[1:])] if n.startswith("#") else n: to for n, to in row.map}
        given: dict[Any, Any] = {}
        defaults = {k: _value(self.onnx, a.default_value) for k, a in schema.attributes.items()}
        for name, value in args.items():
            to = named.get(name, _NOBODY)
            if to is _NOBODY:
                if value is not None and not _same(value, defaults.get(name)):
                    raise RowRefused(f"{row.op} does not take {name} = {_text(value)}")
            elif isinstance(to, Only):
                if not _same(value, to.value):
                    raise RowRefused(f"{row.op} takes only {name} = {_text(to.value)}, not {_text(value)}")
            elif isinstance(to, tuple):
                if not isinstance(value, tuple) or len(value) != len(to):
                    raise RowRefused(f"{row.op} takes {len(to)} tensors as {name}")
                given.update(zip(to, value, strict=True))
            elif to is not None and value is not None:
                given[to] = value
        for name, value in row.set.items():
            given.setdefault(name, value)
        inputs = tuple(self.argument(given.pop(name, None)) for name in row.inputs)
        attrs = {name: self.attribute(row, name, given.pop(name)) for name in row.attrs if name in given}
        if given:
            raise RowRefused(f"{row.op} has no {', '.join(sorted(given))}")
        return inputs, attrs

    def argument(self, x: Any) -> Arg:
        if isinstance(x, Tensor):
            return self.materialise(self.ref(x))
        if isinstance(x, tuple):
            return tuple(self.argument(y) for y in x)
        if x is None:
            return None
        raise RowRefused(f"{_text(x)} is no tensor")

    def attribute(self, row: AtenRow, name: str, x: Any) -> AttrValue:
        if isinstance(x, Tensor):
            if x.content is None:
                raise RowRefused(f"{row.op}'s {name} is an attribute, not a tensor")
            x = x.content
        if isinstance(x, np.ndarray):
            x = tuple(_number(e) for e in x.reshape(-1)) if x.ndim else _number(x.reshape(-1)[0])
        return self.raw_attr(x)

    def called(
        self,
        node: Any,
        schema: Any,
        op: str,
        inputs: tuple[Arg, ...],
        attrs: dict[str, AttrValue],
        row: AtenRow | None,
        why: str = "",
    ) -> None:
        self.flat.append(node)
        key = (op, repr(inputs), repr(attrs))
        found = self.inferred(node, schema)
        order = list(range(len(node.output)))
        if row is not None:
            order = [row.returns.index(o) if o in row.returns else -1 for o in row.outputs]
        if key not in self.made or why:
            ids: list[str | None] = []
            name = self.call_id(op)
            told = self.extents_of(row, inputs, attrs) if row and any(None in d for _, d in found) else {}
            flat = [y for v in attrs.values() for y in (v if isinstance(v, tuple) else (v,))]
            size = self.told if self.of_data(*flat) else self.symbol
            for k, result in zip(order, row.outputs if row is not None else node.output, strict=True):
                if not 0 <= k < len(node.output) or not node.output[k]:
                    ids.append(None)
                    continue
                dtype, dims = found[k]
                if len(own := told.get(result, ())) == len(dims):
                    dims = [a if a is not None else b for a, b in zip(dims, own, strict=True)]
                id = self.fresh("v")
                shape = tuple(IntExpr.of(size(id, axis)) if d is None else d for axis, d in enumerate(dims))
                ids.append(self.tensor(id, dtype, shape))
                self.value_names[id] = node.output[k]
            self.nodes.append(Call(name, op, inputs, attrs, tuple(ids), str(self.site), self.overload, why))
            self.sites[name] = self.site
            self.made[key] = tuple(ids)
        for k, made in zip(order, self.made[key], strict=True):
            if k >= 0 and made is not None and k < len(node.output) and node.output[k]:
                v = self.values[made]
                self.env[node.output[k]] = Tensor(
                    node.output[k], v.dtype, v.shape, Ref(made, v.dtype, views.contiguous(v.shape))
                )

    # ---- shapes

    def extents_of(
        self, row: AtenRow, inputs: tuple[Arg, ...], attrs: Mapping[str, AttrValue]
    ) -> dict[str, tuple[IntExpr | None, ...]]:
        """What an operator's own spec says of its results, where onnx's inference does not follow."""
        door = ProgramDoor(self)  # type: ignore[arg-type]
        try:
            given = {n: door.argued(a) for n, a in zip(row.inputs, inputs, strict=True)}
            found = results(
                door.spec(row.op),
                {n: door.operand(x) for n, x in given.items()},
                {n: door.shape(x) for n, x in given.items() if x is not None},
                attrs,
            )
        except (OpwrightError, Refused):
            return {}
        return {r.name: r.shape for r in found}

    def type_of(self, name: str) -> Any:
        """A tensor's type as onnx writes it, extents over symbols by name."""
        x = self.env[name]
        dims: list[Any] = []
        for e in x.shape:
            if e.value is None:
                self.params[str(e)] = e
            dims.append(str(e) if e.value is None else e.value)
        return self.onnx.helper.make_tensor_type_proto(onnx_of(x.dtype), dims)

    def inferred(self, node: Any, schema: Any) -> list[tuple[DType, list[IntExpr | None]]]:
        """Dtype and extents of every output; None for an extent that only the run can tell."""
        types = {i: self.type_of(i) for i in node.input if i}
        data = {
            i: self.onnx.numpy_helper.from_array(self.env[i].content, i)
            for i in node.input
            if i and self.env[i].known and self.env[i].content.size <= _FOLLOW
        }
        try:
            found = self.onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[self.onnx.helper.make_opsetid("", self.opset)]
            )
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0][:200]
            raise CaptureError(f"`{self.site}` does not fit its inputs: {first}") from None
        out: list[tuple[DType, list[IntExpr | None]]] = []
        for name in node.output:
            t = found[name].tensor_type if name in found else None
            if t is None or not t.HasField("shape"):
                if not name:
                    out.append((DType.F32, []))
                    continue
                raise CaptureError(f"the rank of `{name}` cannot be told (`{node.op_type}`)")
            dims: list[IntExpr | None] = []
            for d in t.shape.dim:
                if d.HasField("dim_value"):
                    dims.append(IntExpr.of(int(d.dim_value)))
                else:
                    dims.append(self.params.get(d.dim_param) if d.dim_param else None)
            out.append((dtype_of(t.elem_type, name), dims))
        return out

    # ---- for onnx_ops

    def elements(self, x: Tensor) -> list[Any]:
        """The elements of a list of extents, places or counts: numbers, expressions, or registers that are read when
        the program runs, of which nothing is known."""
        if x.content is not None:
            return [e.item() if hasattr(e, "item") else e for e in x.content.reshape(-1)]
        size = product(x.shape).value
        if x.rank > 1 or size is None or size > _READ or x.dtype not in (DType.I32, DType.I64):
            raise RowRefused(f"`{x.name}` is known only when the model runs")
        if x.name not in self.registers:
            r = self.ref(x)
            found = []
            for k in range(size):
                layout = views.select(r.layout, 0, IntExpr.of(k)) if x.rank else r.layout
                id = self.fresh("n")
                self.values[id] = Value(id, DType.I64, kind="scalar")
                self.nodes.append(Read(self.materialise(Ref(r.base, r.dtype, layout)), id))
                found.append(IntExpr.of(id))
            self.registers[x.name] = found
        return list(self.registers[x.name])

    def of_data(self, *xs: Any) -> bool:
        """Whether expressions depend on what is read when the program runs."""
        return any(isinstance(e, IntExpr) and not e.names() <= self.symbols.keys() for e in xs)

    def demand(self, cond: Cond, message: str) -> None:
        self.nodes.append(Assert(cond, f"{self.site}: {message}"))

    def temporary(self, node: Any, what: str) -> str:
        """A name for a tensor inside of what a node is rewritten into."""
        self.counts["t"] = self.counts.get("t", 0) + 1
        first = next((o for o in node.output if o), node.op_type)
        return f"{first}/{what}.{self.counts['t']}"

    def put(self, node: Any, what: str, array: Any) -> str:
        """A constant for a rewritten node, by name."""
        name = self.temporary(node, what)
        self.env[name] = self.constant(name, np.asarray(array))
        self.folded[name] = self.env[name].content
        return name


_NOBODY: Any = object()


def _sum_of(text: str, known: Mapping[str, IntExpr]) -> IntExpr | None:
    """`past_sequence_length + 1` over names that are known."""

    def of(x: ast.expr) -> IntExpr | None:
        match x:
            case ast.Name(id=n) if n in known:
                return known[n]
            case ast.Constant(value=int(n)):
                return IntExpr.of(n)
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=b):
                left, right = of(a), of(b)
                if left is None or right is None:
                    return None
                if isinstance(op, ast.Add):
                    return left + right
                return left - right if isinstance(op, ast.Sub) else left * right
        return None

    try:
        return of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def _value(onnx: Any, a: Any) -> Any:
    """An attribute as plain Python; a tensor as an array."""
    if not a.name:
        return None
    kind = onnx.AttributeProto
    if a.type == kind.STRING:
        return a.s.decode("utf-8", "replace")
    if a.type == kind.TENSOR:
        return numpy_of(a.t)
    if a.type == kind.FLOAT:
        return float(a.f)
    if a.type == kind.INT:
        return int(a.i)
    if a.type == kind.INTS:
        return tuple(int(i) for i in a.ints)
    if a.type == kind.STRINGS:
        return tuple(b.decode("utf-8", "replace") for b in a.strings)
    if a.type == kind.FLOATS:
        return tuple(float(f) for f in a.floats)
    return None


def _plain(e: Any) -> bool:
    return not isinstance(e, IntExpr) or e.value is not None


def _number(e: Any) -> Any:
    if isinstance(e, IntExpr):
        return e.value if e.value is not None else e
    return e.item() if hasattr(e, "item") else e


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return b is not None and a.known and bool(np.array_equal(a.content, np.asarray(b)))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a is not None and b is not None and bool(np.array_equal(a, b))
    if isinstance(a, tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _text(x: Any) -> str:
    return "a tensor" if isinstance(x, Tensor) else repr(x)
