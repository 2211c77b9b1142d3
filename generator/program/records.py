"""What eager PyTorch says: the outputs in f32 and f64, every call's own inputs and outputs, and what a test can see.

    eager(module, args, kwargs)              the module's outputs, as it is
    eager(module, args, kwargs, DType.F64)   the same in f64: weights, inputs and every cast the model makes
    values(captured, inputs, dtype)          every tensor of the program, by value id, from the exported graph
    record_eager(captured, inputs, dtype)    (call id, inputs, outputs) in the order of the program
    sensitivity(captured, inputs)            which errors in single nodes an end-to-end comparison would notice

The f64 outputs do not go through the exported graph, so a wrong export cannot agree with itself.
May import: ir, captured, torch_compat (and torch inside functions).  To add a kind of disturbance: `_DISTURB`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..types import DType
from . import torch_compat as compat
from .captured import Capture, CaptureError, Origin
from .draw import whole_columns
from .explain import explain
from .intexpr import IntExpr
from .ir import (
    Arg,
    Assert,
    Call,
    Copy,
    Program,
    Read,
    Scalar,
    ScalarArg,
    View,
    arg_values,
    asserted_of_contents,
    cond_holds,
    cond_names,
    outputs_of,
    uses_of,
)
from .masks import is_mask
from .masks import padded as of_padding
from .models import rescale
from .placeholders import kept

__all__ = [
    "SENSITIVE",
    "Sensitivity",
    "agree",
    "call_of",
    "eager",
    "enlarged",
    "fresh",
    "input_tensors",
    "reaching",
    "record_eager",
    "sensitivity",
    "values",
]

Tensors = Mapping[str, Any]


def eager(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dtype: DType | None = None,
    *,
    captured: Capture | None = None,
) -> dict[str, Any]:
    """The module's output tensors by name.  With `dtype` F64 a copy of the module computes in f64 throughout: also
    where the model's code asks for f32, which `.double()` alone would leave.

    Where the program of `captured` has state, what became of inputs is told as `state:<input>`, and the module is
    called twice: the second call's outputs are `<name>@2`, and see the state that the first one left.
    """
    torch = compat.require_torch()
    state = captured.program.state if captured is not None else ()
    if dtype is not None:
        module = compat.module_in(copy.deepcopy(module), dtype)
        args, kwargs = compat.widened((tuple(args), dict(kwargs)), dtype)
    found: dict[str, Any] = {}
    with torch.no_grad(), compat.uncompiled(), compat.restoring(module), compat.computing_in(dtype):
        for turn in ("", "@2") if state else ("",):
            own, named = compat.copied((tuple(args), dict(kwargs)))  # the model may change what it is given
            out = compat.copied(compat.called(module, own, named))  # it may give out its own buffers
            found |= {
                f"{name}{turn}": t
                for name, t in compat.flatten_named(out, "output")
                if isinstance(t, torch.Tensor)
            }
            if captured is not None and state:
                given = input_tensors(captured, own, named)
                found |= {f"state:{s.input}{turn}": given[s.input] for s in state if s.input in given}
    return found


# ------------------------------------------------------------------------------------------------- the graph


class _Graph:
    """The exported graph, run node by node on tensors."""

    def __init__(
        self, captured: Capture, inputs: Tensors, dtype: DType | None, tensors: Tensors | None = None
    ) -> None:
        self.captured = captured
        self.dtype = dtype
        core = captured.exported
        self.nodes = list(core.graph_module.graph.nodes)
        self.module = core.graph_module
        self.kind = type(self.nodes[0])
        self.names = {n.name: compat.overload_name(n.target) or "" for n in self.nodes}  # steps are many
        self.env: dict[str, Any] = {}
        for spec, node in zip(
            core.graph_signature.input_specs, [n for n in self.nodes if n.op == "placeholder"], strict=True
        ):
            match spec.kind.name:
                case "USER_INPUT":
                    value = inputs.get(node.name, getattr(spec.arg, "value", None))
                case "PARAMETER" | "BUFFER" | "CONSTANT_TENSOR":
                    value = (tensors or {}).get(spec.target)
                    if value is None:
                        value = core.constants.get(spec.target)
                    if value is None:
                        value = core.state_dict[spec.target]
                case _:
                    value = None
            if hasattr(value, "detach"):
                value = value.detach()
            self.env[node.name] = compat.widened(value, dtype) if dtype else value

    def lookup(self, x: Any) -> Any:
        """An argument, in which every node is replaced by its value."""
        if isinstance(x, self.kind):
            return self.env[x.name]
        return type(x)(self.lookup(y) for y in x) if isinstance(x, list | tuple) else x

    def step(self, node: Any) -> None:
        if node.op == "get_attr":
            self.env[node.name] = getattr(self.module, node.target)
        name = self.names[node.name]
        if name == "higher_order.with_effects":
            self.env[node.name] = (None,)
            return
        if node.op != "call_function" or name in _SILENT:
            return
        args = [self.lookup(x) for x in node.args]
        kwargs = {k: self.lookup(v) for k, v in node.kwargs.items()} if node.kwargs else {}
        if self.dtype:
            args, kwargs = compat.widened((args, kwargs), self.dtype)
        made = node.target(*args, **kwargs)
        # What is in fresh memory is nobody's meaning: zeros, as in the program.
        self.env[node.name] = made.zero_() if name.startswith(("aten.empty", "aten.new_empty")) else made

    def run(self) -> None:
        torch = compat.require_torch()
        with torch.no_grad(), compat.computing_in(self.dtype):
            for node in self.nodes:
                self.step(node)

    def refuses(self) -> bool:
        """Whether an assertion on what tensors hold fails, once it ran."""
        checks = [n for n in self.nodes if self.names[n.name] == "aten._assert_scalar.default"]
        return any(not self.lookup(n.args[0]) for n in checks)

    def outputs(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The program's outputs that are user outputs of the graph, by name."""
        (result,) = next(n for n in self.nodes if n.op == "output").args
        torch = compat.require_torch()
        specs = self.captured.exported.graph_signature.output_specs
        tensors = [
            env[n.name]
            for n, s in zip(result, specs, strict=True)
            if s.kind.name == "USER_OUTPUT" and hasattr(n, "meta") and isinstance(env[n.name], torch.Tensor)
        ]
        return {b.name: t for b, t in zip(self.captured.program.outputs, tensors, strict=True)}


#: Nodes that check instead of computing; what they check is of the traced dtype.
_SILENT = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_scalar.default",
        "aten._assert_async.msg",
        "aten._assert_async.default",
    }
)


# ------------------------------------------------------------------------------------------------- the program


def values(
    captured: Capture, inputs: Tensors, dtype: DType | None = None, *, tensors: Tensors | None = None
) -> dict[str, Any]:
    """Every value of the program by id, as eager PyTorch computes it: results of calls come from the exported graph,
    views from their bases, registers as numbers.  What only the program computes, a step of several that answer one
    node, is not there.  `inputs` by the program's input names; `tensors` replace weights
    and constants by name."""
    torch = compat.require_torch()
    graph = _Graph(captured, inputs, dtype, tensors)
    graph.run()
    p = captured.program
    by_node = {n.name: n for n in graph.nodes}
    specs = {
        s.target: n.name
        for s, n in zip(
            captured.exported.graph_signature.input_specs,
            [n for n in graph.nodes if n.op == "placeholder"],
            strict=True,
        )
    }
    out: dict[str, Any] = {}
    symbols: dict[str, int] = {}

    def put(id: str, tensor: Any) -> None:
        shape = p.values[id].shape
        if tensor.dim() != len(shape):  # a reshape stands between the node's result and the call's
            tensor = tensor.reshape([n.evaluate(symbols) for n in shape])
        out[id] = tensor.contiguous()
        for s in p.symbols.values():
            if s.source == id or (s.source, id) in named:
                symbols[s.name] = int(tensor.shape[s.axis])
        for n, extent in zip(
            tensor.shape, shape, strict=True
        ):  # the extent of a value that eager does not have
            if extent.names() - symbols.keys() == {str(extent)}:
                symbols[str(extent)] = int(n)

    def told(*exprs: IntExpr) -> bool:
        return all(e.names() <= symbols.keys() for e in exprs)

    named = {(b.name, b.value) for b in p.inputs}
    for b in p.inputs:
        put(b.value, graph.env[b.name])
    for b in (*p.weights, *p.constants):
        put(b.value, graph.env[specs[b.name]])
    for node in p.nodes:
        match node:
            case View(base=base) if base not in out or not told(*node.shape, *node.strides, node.offset):
                continue
            case View(base=base, out=id):
                shape, strides = ([e.evaluate(symbols) for e in es] for es in (node.shape, node.strides))
                out[id] = torch.as_strided(
                    out[base], shape, strides, node.offset.evaluate(symbols)
                ).contiguous()
            case Read(base=base) | Copy(base=base) if base not in out:
                continue
            case Read(base=base, out=id):
                out[id] = out[base].item()
                symbols[id] = int(out[id])
            case Scalar(out=id, expr=e):
                out[id] = symbols[id] = e.evaluate(symbols)
            case Copy(base=base, out=id):
                out[id] = out[base]
            case Call(id=name, op="contiguous" | "cast") if name not in captured.origins:
                (source,), (result,) = node.inputs, node.out
                assert isinstance(source, str) and result is not None
                if source not in out:
                    continue
                want = torch_want(p, result, dtype)
                put(result, out[source].to(want) if out[source].dtype != want else out[source].clone())
            case Call() if node.id not in captured.origins:
                continue  # a step of what answers a node: eager has no such value
            case Call():
                origin = captured.origins[node.id]
                results = graph.env[by_node[origin.node].name]
                for written, where in zip(node.out, origin.results, strict=True):
                    if written is None or where is None:
                        continue
                    k, order = where
                    t = results[k] if isinstance(results, list | tuple) else results
                    put(written, t if order is None else t.permute(order))
            case Assert():
                pass
    return out


def torch_want(p: Program, id: str, dtype: DType | None) -> Any:
    own = p.values[id].dtype
    return compat.torch_dtype(dtype if dtype and own.is_float else own)


def record_eager(
    captured: Capture, inputs: Tensors, dtype: DType | None = None, *, tensors: Tensors | None = None
) -> Iterator[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    """Every call of the program on eager's own inputs: (call id, inputs, outputs).  An input is a tensor, None, a
    Python number, or a tuple of these; an output nobody can read is None."""
    have = values(captured, inputs, dtype, tensors=tensors)

    def arg(a: Arg) -> Any:
        if isinstance(a, ScalarArg):
            return a.value
        if isinstance(a, tuple):
            return tuple(arg(x) for x in a)
        return None if a is None else have[a]

    for call in captured.program.calls:
        if any(v not in have for a in call.inputs for v in arg_values(a)):
            continue
        yield (
            call.id,
            tuple(arg(a) for a in call.inputs),
            tuple(None if o is None else have.get(o) for o in call.out),
        )


# ------------------------------------------------------------------------------------------------- sensitivity


@dataclass(frozen=True)
class Sensitivity:
    """How many disturbances of single nodes move an output past the bound of the end-to-end comparison.

    missed     (call id, kind of disturbance, error over bound)
    observed   ids of inner values that have to be compared, too, for what is counted as detected to be seen
    by_outputs how many the outputs alone tell of
    nodes      how many calls compute floats that reach an output: where there are none, nothing can go unseen
    """

    detected: int
    total: int
    missed: tuple[tuple[str, str, float], ...] = ()
    observed: tuple[str, ...] = ()
    by_outputs: int = 0
    nodes: int = 0

    @property
    def rate(self) -> float:
        return self.detected / self.total if self.total else 0.0


def _off_by(share: float, t: Any, generator: Any) -> Any:
    torch = compat.require_torch()
    sign = torch.randint(0, 2, t.shape, generator=generator, dtype=t.dtype) * 2 - 1
    return t * (1 + share * sign)


def _half(t: Any, generator: Any) -> Any:
    torch = compat.require_torch()
    return t.to(torch.bfloat16).to(t.dtype)


#: Each element off by 1 % up or down (one sign for all would pass through a norm unseen), and rounding to bf16.
_DISTURB: Mapping[str, Callable[[Any, Any], Any]] = {"1 %": partial(_off_by, 0.01), "bf16": _half}


def disturbances(p: Program, seen: set[str]) -> Mapping[str, Callable[[Any, Any], Any]]:
    """Those of a program.  One that computes in a half type is itself wrong by a few units of that type, so it is
    disturbed by 32 of them: by one percent nobody could tell."""
    made = {
        p.values[o].dtype for c in p.calls if c.id in seen for o in c.out if o and p.values[o].dtype.is_float
    }
    unit = max((d.u for d in made), default=0.0)
    if unit <= DType.F32.u:
        return _DISTURB
    return {f"{32 * unit:.2%}": partial(_off_by, 32 * unit)}


def bound(f32: Any, f64: Any) -> float:
    """The end-to-end bound on the largest error: 4 × eager's own + 8 u max|y|  (DESIGN.md, L2)."""
    plain = f64.isfinite()
    if not bool(plain.any()):
        return 0.0
    own = float((f32.to(f64.dtype) - f64)[plain].abs().max())
    return 4 * own + 8 * DType.F32.u * float(f64[plain].abs().max())


def _error(got: Any, f64: Any) -> float:
    """The largest error where f64 is finite; infinite where one of them is not finite and the other is."""
    plain = f64.isfinite()
    if bool((got.isfinite() != plain).any()):
        return float("inf")
    difference = (got.to(f64.dtype) - f64)[plain].abs()
    return float(difference.max()) if difference.numel() else 0.0


#: Under this share of seen disturbances a comparison proves nothing (DESIGN.md, L2).
SENSITIVE = 0.95


def agree(f32: Tensors, f64: Tensors) -> bool:
    """Whether both took the same decisions, as far as outputs show them: equal extents, equal integers."""
    torch = compat.require_torch()
    return all(
        t.shape == f64[n].shape
        and (t.is_floating_point() or t.is_complex() or bool(torch.equal(t, f64[n].to(t.dtype))))
        for n, t in f32.items()
    )


#: Calls that fill, move or choose numbers and compute none: they are not disturbed.
_MOVES = frozenset(
    {
        "amax",
        "amin",
        "arange",
        "cat",
        "constant_pad_nd",
        "copy",
        "cummax",
        "cummin",
        "embedding",
        "empty",
        "eye",
        "fill",
        "flip",
        "full",
        "full_like",
        "gather",
        "index",
        "index_put",
        "index_select",
        "kthvalue",
        "linspace",
        "masked_fill",
        "masked_scatter",
        "max",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "median",
        "min",
        "new_full",
        "ones",
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "repeat",
        "roll",
        "scalar_tensor",
        "scatter",
        "select_scatter",
        "slice_scatter",
        "sort",
        "topk",
        "tril",
        "triu",
        "where",
        "zeros",
    }
)


def _computes(call: Call) -> bool:
    packet = call.aten.split(".")
    if call.attrs.get("reduce") in ("amax", "amin"):
        return False
    return len(packet) < 2 or packet[1] not in _MOVES


def reaching(p: Program) -> set[str]:
    """Calls that compute floats, from which floats reach an output as floats.  Of the others only integers or truths
    go on, and those are compared exactly, call by call."""
    live = {b.value for b in p.outputs} | {s.output for s in p.state}
    out: set[str] = set()
    for node in reversed(p.nodes):
        made = [
            o
            for o in outputs_of(node)
            if o in live
            and not p.values[o].dtype.kind.endswith("int")
            and p.values[o].dtype is not DType.BOOL
        ]
        if not made:
            continue
        live.update(uses_of(node))
        if isinstance(node, Call) and _computes(node):
            out.add(node.id)
    return out


def sensitivity(
    captured: Capture,
    inputs: Tensors,
    outputs64: Tensors | None = None,
    *,
    tensors: Tensors | None = None,
    seed: int = 0,
    further: Sequence[Tensors] = (),
) -> Sensitivity:
    """Disturb each call that computes floats, one at a time, and see whether the outputs tell.

    A disturbance that changes nothing (bf16 of values that bf16 has) does not count, nor does a call whose floats end
    in integers or comparisons (`reaching`).  `outputs64`: the f64 outputs;
    None takes them from the exported graph in f64.  Where the outputs tell of too few, inner values are observed;
    `further`: inputs of the other records that they will be compared at.
    """
    torch = compat.require_torch()
    graph = _Graph(captured, inputs, None, tensors)
    graph.run()
    wide: _Graph | None = None
    if outputs64 is None:
        wide = _Graph(captured, inputs, DType.F64, tensors)
        wide.run()
        outputs64 = wide.outputs(wide.env)
    base = dict(graph.env)
    plain = graph.outputs(base)
    seen = reaching(captured.program)
    checked = {k: t for k, t in plain.items() if t.is_floating_point()}
    bounds = {k: bound(t, outputs64[k]) for k, t in checked.items()}
    rerun = _Rerun(graph, base)
    generator = torch.Generator().manual_seed(seed)
    total = nodes = 0
    kinds = disturbances(captured.program, seen)
    missed: list[_Missed] = []
    for call in captured.program.calls:
        origin = captured.origins.get(call.id)
        if origin is None or call.id not in seen:
            continue
        result = base[origin.node]
        first = result[0] if isinstance(result, list | tuple) else result
        if not isinstance(first, torch.Tensor) or not first.is_floating_point() or not first.numel():
            continue
        nodes += 1
        for kind, disturb in kinds.items():
            changed = disturb(first, generator)
            if torch.equal(changed, first):
                continue
            total += 1
            got = rerun(origin.node, changed)
            worst = max((_over(got[n], outputs64[n], limit) for n, limit in bounds.items()), default=0.0)
            if worst <= 1:
                missed.append(_Missed(call, kind, worst, origin.node, changed))
    observed: tuple[str, ...] = ()
    by_outputs = total - len(missed)
    if wide is None and len(missed) > (1 - SENSITIVE) * total:
        wide = _Graph(captured, inputs, DType.F64, tensors)
        wide.run()
    if wide is not None:
        pairs = [(base, wide.env)]
        for given in further if len(missed) > (1 - SENSITIVE) * total else ():
            both = [_Graph(captured, given, dtype, tensors) for dtype in (None, DType.F64)]
            for g in both:
                g.run()
            pairs.append((both[0].env, both[1].env))
        missed, observed = _observe(missed, total, pairs, captured.origins)
    left = tuple((m.call.id, m.kind, m.ratio) for m in missed)
    return Sensitivity(total - len(missed), total, left, observed, by_outputs, nodes)


@dataclass(frozen=True, eq=False)
class _Missed:
    """A disturbance that no output tells of, and the tensor as it was disturbed."""

    call: Call
    kind: str
    ratio: float
    node: str
    changed: Any


#: An error that eager makes so many times larger at one record than at another is luck at one of them.
_LUCK = 8.0


def _observe(
    missed: list[_Missed],
    total: int,
    runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    origins: Mapping[str, Origin],
) -> tuple[list[_Missed], tuple[str, ...]]:
    """Inner values to compare beside the outputs, until enough is seen: (what is still missed, values by id).
    `runs`: results by node in f32 and in f64, of each record; the first is what was disturbed.

    A shift that a softmax takes out again, a scale in front of a norm, a tensor of which a part is taken: no weights
    make an output tell of them.  The largest come first, for the error of a few numbers is a matter of luck; last
    those for which it was: eager's own error, which the bound is made of, is another one at each record."""
    observed: list[str] = []
    nodes = {m.call.id: (m.node, m.changed.numel()) for m in missed}
    for id in sorted(nodes, key=lambda id: (_lucky(nodes[id][0], runs), -nodes[id][1])):
        if len(missed) <= (1 - SENSITIVE) * total:
            break
        mine = [m for m in missed if m.call.id == id]
        f32, f64 = (_first(env[mine[0].node]) for env in runs[0])
        if f32.shape != f64.shape:
            continue
        limit = bound(f32, f64)
        told = [m for m in mine if _over(m.changed, f64, limit) > 1]
        # One that eager has: a step of several is not compared.
        pairs = zip(mine[0].call.out, origins[id].results, strict=True)
        value = next((o for o, where in pairs if o is not None and where is not None and where[0] == 0), None)
        if told and value is not None:
            observed.append(value)
            missed = [m for m in missed if m not in told]
    return missed, tuple(observed)


def _lucky(node: str, runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> bool:
    """Whether eager's own error of a node's result, over its largest number, differs much from record to record."""
    own = []
    for f32, f64 in ((_first(a[node]), _first(b[node])) for a, b in runs):
        if f32.shape != f64.shape:
            return True
        size = float(f64.abs().nan_to_num(0.0, 0.0, 0.0).max()) if f64.numel() else 0.0
        own.append(max(_error(f32, f64) / size, DType.F32.u) if size else DType.F32.u)
    return max(own) > _LUCK * min(own)


def _first(x: Any) -> Any:
    return x[0] if isinstance(x, list | tuple) else x


class _Rerun:
    """The graph once more with another result of one node: only what depends on it is computed again."""

    def __init__(self, graph: _Graph, base: Mapping[str, Any]) -> None:
        self.graph, self.base = graph, base
        self.place = {n.name: k for k, n in enumerate(graph.nodes)}
        self.readers = [{u.name for u in n.users} for n in graph.nodes]

    def __call__(self, node: str, changed: Any) -> dict[str, Any]:
        """The outputs; where the node has several results, `changed` is the first."""
        torch = compat.require_torch()
        graph, start = self.graph, self.place[node]
        result = self.base[node]
        graph.env = dict(self.base)
        graph.env[node] = (changed, *result[1:]) if isinstance(result, list | tuple) else changed
        dirty = set(self.readers[start])
        with torch.no_grad():
            for k in range(start + 1, len(graph.nodes)):
                if graph.nodes[k].name in dirty:
                    graph.step(graph.nodes[k])
                    dirty |= self.readers[k]
        outputs = graph.outputs(graph.env)
        graph.env = dict(self.base)
        return outputs


def _over(got: Any, want: Any, limit: float) -> float:
    """The largest error over its bound; other extents, where a decision fell otherwise, are no match at all."""
    if got.shape != want.shape:
        return float("inf")
    error = _error(got, want)
    return error / limit if limit > 0 else float("inf") if error > 0 else 0.0


def input_tensors(captured: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's tensors by the program's input names."""
    torch = compat.require_torch()
    leaves = torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs)))
    specs = [s for s in captured.exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    return {s.arg.name: leaf for s, leaf in zip(specs, leaves, strict=True) if isinstance(leaf, torch.Tensor)}


def tensor_inputs(call: Call) -> tuple[str, ...]:
    """The values a call reads."""
    return tuple(v for a in call.inputs for v in arg_values(a))


def call_of(model: Any, captured: Capture, inputs: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The model's own (args, kwargs) with these tensors in their places."""
    torch = compat.require_torch()
    pytree = torch.utils._pytree
    leaves, spec = pytree.tree_flatten((tuple(model.args), dict(model.kwargs)))
    specs = [s for s in captured.exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    put = [inputs.get(s.arg.name, leaf) for s, leaf in zip(specs, leaves, strict=True)]
    args, kwargs = pytree.tree_unflatten(put, spec)
    return args, kwargs


def fresh(
    model: Any, captured: Capture, k: int, seed: int
) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """Inputs drawn anew, like the example's: (inputs, extents by symbol, the module's outputs).

    k = 0 has the example's extents; k > 0 has others where the program allows them and the module runs.  Masks of
    ones lose the ends of some rows; integers stay in the example's range, floats keep its mean and spread.
    """
    torch = compat.require_torch()
    example = input_tensors(captured, model.args, model.kwargs)
    plain = {
        s.name: int(example[s.source].shape[s.axis])
        for s in captured.program.symbols.values()
        if s.source in example
    }
    last: Exception | None = None
    odd: tuple[dict[str, Any], dict[str, int], dict[str, Any]] | None = None
    nan = ""
    asserts = bool(asserted_of_contents(captured.program))
    for sizes in [*_other_sizes(captured.program, plain, k), plain]:
        for padded in (True, False):
            generator = torch.Generator().manual_seed(seed)
            inputs = {
                b.name: _redraw(
                    b.name,
                    example[b.name],
                    [n.evaluate(sizes) for n in captured.program.values[b.value].shape],
                    generator,
                    padded,
                )
                for b in captured.program.inputs
            }
            for name, tokens in model.meta.get("placeholders", {}).items():
                if name in inputs:
                    inputs[name] = kept(example[name], inputs[name], tokens)
            args, kwargs = call_of(model, captured, inputs)
            try:
                out = eager(model.module, args, kwargs)
            except Exception as e:  # the module's own code refuses these extents
                last = e
                continue
            if asserts and (refused := _refused(captured, inputs)):
                last = CaptureError(refused)
                continue
            if all(bool(torch.isfinite(t).all()) for t in out.values()):
                return inputs, sizes, out
            nans = [name for name, t in out.items() if bool(torch.isnan(t).any())]
            nan = nan or "".join(nans[:1])
            if odd is None and not nans:
                odd = inputs, sizes, out
    if odd is not None:  # infinities are the model's own: a mask, a logarithm
        return odd
    if nan:
        raise CaptureError(
            f"PyTorch itself gives nan in `{nan}` on inputs like the example's: nothing can be compared with it",
            hint="give example inputs, and weights, for which the model gives numbers",
        )
    assert last is not None
    what = (str(last).strip().splitlines() or [""])[0][:300]
    place, _ = explain(last)
    raise CaptureError(
        f"the model does not run on inputs like its example: {type(last).__name__}: {what}", place=place
    )


def _refused(captured: Capture, inputs: Tensors) -> str:
    """What the program says of inputs that it refuses; empty where it takes them."""
    graph = _Graph(captured, inputs, None)
    try:
        graph.run()
        if not graph.refuses():
            return ""
    except Exception:  # what follows from what does not hold
        pass
    asserts = asserted_of_contents(captured.program)
    return asserts[0].message if asserts else "the program refuses them"


def _other_sizes(p: Program, plain: Mapping[str, int], k: int) -> Iterator[dict[str, int]]:
    """Other extents within the symbols' ranges and the program's assertions; equal ones stay equal."""
    if k == 0 or not plain:
        return
    asserts = [n.cond for n in p.nodes if isinstance(n, Assert)]
    changes: tuple[Callable[[int, int], int], ...] = (
        lambda n, axis: n + k if axis == 0 else max(n - 3 - 2 * k, 2),
        lambda n, axis: n + k if axis == 0 else n + 2 * k,
        lambda n, axis: n + k if axis == 0 else n * (k + 1),
        lambda n, axis: n + k if axis == 0 else n,
        lambda n, axis: n if axis == 0 else n + k,
    )
    for change in changes:
        sizes = {s: change(n, p.symbols[s].axis) for s, n in plain.items()}
        inside = all(
            p.symbols[s].min <= n <= p.symbols[s].max and n % p.symbols[s].divisor == 0
            for s, n in sizes.items()
        )
        if (
            inside
            and sizes != plain
            and all(cond_holds(c, sizes) for c in asserts if cond_names(c) <= sizes.keys())
        ):
            yield sizes


def _redraw(name: str, example: Any, shape: Sequence[int], generator: Any, padded: bool) -> Any:
    torch = compat.require_torch()
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype)
    low, high = example.min(), example.max()
    if example.dtype.is_complex:
        return torch.randn(tuple(shape), dtype=example.dtype, generator=generator)
    if bool(low == high):
        out = torch.full(tuple(shape), low.item(), dtype=example.dtype)
        if padded and "mask" in name and bool(low == 1) and len(shape) == 2:
            for row in range(1, shape[0]):
                out[row, shape[1] - row % max(shape[1] // 3, 1) - 1 :] = 0
        elif padded and is_mask(name) and bool(low == 1) and len(shape) > 2:
            out = of_padding(out)  # of images
        return out
    if example.dtype == torch.bool:
        return torch.rand(tuple(shape), generator=generator) < float(example.double().mean())
    if not example.is_floating_point():
        return torch.randint(int(low), int(high) + 1, tuple(shape), generator=generator, dtype=example.dtype)
    wide = example.double()
    if bool(low >= 0) or bool(high <= 0):  # a logarithm or a root may stand behind it
        shape01 = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
        drawn = shape01 * float(high - low) + float(low)
    else:
        drawn = torch.randn(tuple(shape), generator=generator, dtype=torch.float64) * float(
            wide.std()
        ) + float(wide.mean())
    for k in whole_columns(wide.numpy()) if list(shape[-1:]) == list(example.shape[-1:]) else ():
        column = wide[..., k]
        drawn[..., k] = torch.randint(
            int(column.min()), int(column.max()) + 1, tuple(shape[:-1]), generator=generator
        ).double()
    return drawn.to(example.dtype)


def enlarged(
    model: Any, captured: Capture, inputs: Tensors, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model with enlarged weights (models.rescale), for a model whose own weights must stay: (weights by name,
    its f64 outputs)."""
    module = copy.deepcopy(model.module)
    rescale(module, seed)
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    args, kwargs = call_of(model, captured, inputs)
    return {k: t.detach() for k, t in tensors.items()}, eager(module, args, kwargs, DType.F64)
