"""An exported graph → one whose nodes a program can say: control flow without subgraphs, masks as indices.

    rewrite(exported)        in place, before decomposition, which traces the graph again

What becomes what
  cond             both branches, and a choice by the predicate for each result: a branch has no effects, so the other
                   one's values are made and dropped
  scan, map, associative_scan   one copy of the body per step, where the number of steps is a constant
  while_loop       one copy of the body per round, where the rounds do not depend on inputs (a counter)
  x[mask]          x[nonzero(mask)]; `x[mask] = scalar` is a choice by the mask

What cannot be said so is refused by name (`ControlFlowError`), with the line of the model's source.  An extent that
would have to be constant is named too, so that the capture can fix it and try again.

May import: torch_compat, generator.errors (torch inside functions).
To add a higher-order operator: a line in `_INLINE`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import OpwrightError, Place
from . import torch_compat as compat

__all__ = ["ControlFlowError", "rewrite"]

#: A longer loop is no loop to unroll: its copies would be most of the program.
MOST_STEPS = 256
#: Where torch notes which extents of a result only the call itself knows.
_BINDINGS = "unbacked_bindings"


class ControlFlowError(OpwrightError):
    """A model's control flow that a program cannot say.  `symbol`: the exporter's name of an extent that varies, where
    the program could say it if that were a constant."""

    def __init__(self, message: str, *, symbol: str | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.symbol = symbol


def rewrite(exported: Any) -> Any:
    """Rewrite the graph of an ExportedProgram in place, and return the program."""
    graph = exported.graph_module.graph
    changed = False
    again = True
    while again:  # a branch may hold branches
        again = False
        for node in list(graph.nodes):
            rule = (
                _INLINE.get(compat.overload_name(node.target) or "") if node.op == "call_function" else None
            )
            if rule is not None and rule(exported, node):
                again = changed = True
    if changed:
        graph.eliminate_dead_code()
        exported.graph_module.recompile()
    return exported


def _meta(node: Any) -> dict[str, Any]:
    """What a node made for another one keeps of it: where it stands, not what it gives."""
    return {k: v for k, v in node.meta.items() if k not in ("val", _BINDINGS)}


def _place(node: Any) -> Place | None:
    frames = compat.frames(node.meta.get("stack_trace"))
    return Place.in_file(frames[-1].file, frames[-1].line) if frames else None


# ------------------------------------------------------------------------------------------------- subgraphs


def _submodule(exported: Any, at: Any) -> Any:
    return exported.graph_module.get_submodule(at.target)


def _paste(exported: Any, at: Any, operands: Sequence[Any]) -> list[Any]:
    """Copy the graph that the node `at` names in front of the insertion point; its results."""
    graph, sub = exported.graph_module.graph, _submodule(exported, at)
    env: dict[Any, Any] = {}
    given = iter(operands)
    result: Any = ()
    for n in sub.graph.nodes:
        if n.op == "placeholder":
            env[n] = next(given)
        elif n.op == "output":
            result = n.args[0]
        else:
            env[n] = graph.node_copy(n, lambda x: env[x])
            if n.op == "get_attr":
                env[n].target = f"{at.target}.{n.target}"
    results = list(result) if isinstance(result, list | tuple) else [result]
    return [env[r] if hasattr(r, "op") else r for r in results]


def _replace_results(exported: Any, node: Any, results: Sequence[Any]) -> None:
    """`results` in the place of the node's, which `getitem` nodes read."""
    graph = exported.graph_module.graph
    for user in list(node.users):
        result = results[user.args[1]]
        if hasattr(result, "op"):
            user.replace_all_uses_with(result)
        elif user.users:
            raise ControlFlowError(f"a result of {_word(node)} is the constant {result}", place=_place(node))
        graph.erase_node(user)
    graph.erase_node(node)


def _word(node: Any) -> str:
    return (compat.overload_name(node.target) or "").removeprefix("higher_order.")


def _val(x: Any) -> Any:
    return x.meta.get("val") if hasattr(x, "meta") else x


# ------------------------------------------------------------------------------------------------- branches


def _cond(exported: Any, node: Any) -> bool:
    torch = compat.require_torch()
    graph = exported.graph_module.graph
    test, yes, no, operands = node.args
    with graph.inserting_before(node):
        if isinstance(test, bool):
            _replace_results(exported, node, _paste(exported, yes if test else no, operands))
            return True
        if compat.is_symbolic(_val(test)):
            raise ControlFlowError(
                "torch.cond on extents cannot be said: both branches would have to give the same extents",
                place=_place(node),
                hint="choose by a tensor, or decide before the model is built",
            )
        a, b = _paste(exported, yes, operands), _paste(exported, no, operands)
        test = graph.call_function(torch.ops.aten.reshape.default, (test, []))
        test.meta |= _meta(node)
        made = []
        for x, y in zip(a, b, strict=True):
            if hasattr(x, "op") and hasattr(y, "op"):
                made.append(graph.call_function(torch.ops.aten.where.self, (test, x, y)))
                made[-1].meta |= _meta(node)
            elif x == y:
                made.append(x)
            else:
                raise ControlFlowError(
                    "the branches of torch.cond give different constants", place=_place(node)
                )
    _replace_results(exported, node, made)
    return True


# ------------------------------------------------------------------------------------------------- loops


def _steps(node: Any, xs: Sequence[Any]) -> int:
    if not xs:
        raise ControlFlowError(f"{_word(node)} over nothing", place=_place(node))
    n = _val(xs[0]).shape[0]
    if compat.is_symbolic(n):
        raise ControlFlowError(
            f"{_word(node)} runs {n} steps, and a program holds a constant number of them",
            symbol=compat.symbol_of(n),
            place=_place(node),
        )
    if n > MOST_STEPS:
        raise ControlFlowError(
            f"{_word(node)} runs {n} steps, more than the {MOST_STEPS} that are written out",
            place=_place(node),
        )
    return int(n)


def _select(exported: Any, node: Any, x: Any, k: int) -> Any:
    torch = compat.require_torch()
    made = exported.graph_module.graph.call_function(torch.ops.aten.select.int, (x, 0, k))
    made.meta |= _meta(node)
    return made


def _stack(exported: Any, node: Any, rows: Sequence[Any]) -> Any:
    torch = compat.require_torch()
    made = exported.graph_module.graph.call_function(torch.ops.aten.stack.default, (list(rows),))
    made.meta |= _meta(node)
    return made


def _scan(exported: Any, node: Any) -> bool:
    """(carry, x) → (carry, y), step by step: the last carry, and every y stacked."""
    body, init, xs, more = node.args
    n = _steps(node, xs)
    carry, ys = list(init), []
    with exported.graph_module.graph.inserting_before(node):
        for k in range(n):
            out = _paste(exported, body, [*carry, *(_select(exported, node, x, k) for x in xs), *more])
            carry, y = out[: len(init)], out[len(init) :]
            ys.append(y)
        stacked = [_stack(exported, node, column) for column in zip(*ys, strict=True)]
    _replace_results(exported, node, [*carry, *stacked])
    return True


def _map(exported: Any, node: Any) -> bool:
    body, xs, more = node.args
    n = _steps(node, xs)
    with exported.graph_module.graph.inserting_before(node):
        rows = [
            _paste(exported, body, [*(_select(exported, node, x, k) for x in xs), *more]) for k in range(n)
        ]
        stacked = [_stack(exported, node, column) for column in zip(*rows, strict=True)]
    _replace_results(exported, node, stacked)
    return True


def _associative_scan(exported: Any, node: Any) -> bool:
    """y₀ = x₀, yₖ = body(yₖ₋₁, xₖ)."""
    body, xs = node.args[:2]
    more = node.args[2] if len(node.args) > 2 else ()
    n = _steps(node, xs)
    with exported.graph_module.graph.inserting_before(node):
        rows = [[_select(exported, node, x, 0) for x in xs]]
        for k in range(1, n):
            rows.append(
                _paste(exported, body, [*rows[-1], *(_select(exported, node, x, k) for x in xs), *more])
            )
        stacked = [_stack(exported, node, column) for column in zip(*rows, strict=True)]
    _replace_results(exported, node, stacked)
    return True


def _while(exported: Any, node: Any) -> bool:
    """Rounds are counted by running, on the constants that are carried in, all that depends on nothing else."""
    test, body, carried, more = node.args
    known = _Known(exported)
    state = [known.of(x) for x in carried]
    fixed = [known.of(x) for x in more]
    rounds = 0
    while True:
        (go,) = known.run(test, [*state, *fixed])
        if go is _UNKNOWN:
            raise ControlFlowError(
                "while_loop ends when its data says so, and a program holds a constant number of rounds",
                place=_place(node),
                hint="count rounds by a number that starts as a constant, and mask what is done",
            )
        if not bool(go):
            break
        rounds += 1
        if rounds > MOST_STEPS:
            raise ControlFlowError(
                f"while_loop runs more than the {MOST_STEPS} rounds that are written out", place=_place(node)
            )
        state = known.run(body, [*state, *fixed])
    values = list(carried)
    with exported.graph_module.graph.inserting_before(node):
        for _ in range(rounds):
            values = _paste(exported, body, [*values, *more])
    _replace_results(exported, node, values)
    return True


_UNKNOWN: Any = object()


class _Known:
    """What can be computed of a graph without its inputs; the rest is `_UNKNOWN`."""

    def __init__(self, exported: Any) -> None:
        self.exported = exported
        specs = {s.arg.name: s for s in exported.graph_signature.input_specs}
        self.constants = {
            name: exported.constants[s.target]
            for name, s in specs.items()
            if s.kind.name == "CONSTANT_TENSOR" and s.target in exported.constants
        }
        self.seen: dict[Any, Any] = {}

    def of(self, x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [self.of(y) for y in x]
        if not hasattr(x, "op"):
            return x
        if x not in self.seen:
            self.seen[x] = (
                self.constants.get(x.name, _UNKNOWN) if x.op == "placeholder" else self.node(x, self.of)
            )
        return self.seen[x]

    def node(self, n: Any, of: Callable[[Any], Any]) -> Any:
        if n.op != "call_function" or (compat.overload_name(n.target) or "higher_order.").startswith(
            "higher_order."
        ):
            return _UNKNOWN
        if compat.seeded(n.target):
            return _UNKNOWN
        args, kwargs = [of(a) for a in n.args], {k: of(v) for k, v in n.kwargs.items()}
        if any(_unknown(a) for a in (*args, *kwargs.values())):
            return _UNKNOWN
        # A copy first: some of these work in place.
        torch = compat.require_torch()
        args = torch.utils._pytree.tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, args)
        with torch.no_grad():
            return n.target(*args, **kwargs)

    def run(self, at: Any, operands: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = {}
        given = iter(operands)

        def of(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return [of(y) for y in x]
            return env[x] if hasattr(x, "op") else x

        for n in _submodule(self.exported, at).graph.nodes:
            if n.op == "placeholder":
                env[n] = next(given)
            elif n.op == "output":
                result = n.args[0]
                return [of(r) for r in (result if isinstance(result, list | tuple) else [result])]
            else:
                env[n] = self.node(n, of)
        return []


def _unknown(x: Any) -> bool:
    return any(_unknown(y) for y in x) if isinstance(x, list) else x is _UNKNOWN


# ------------------------------------------------------------------------------------------------- masks


def _is_mask(x: Any) -> bool:
    val = _val(x)
    torch = compat.require_torch()
    return isinstance(val, torch.Tensor) and val.dtype in (torch.bool, torch.uint8)


def _places(exported: Any, node: Any, mask: Any, rank: int) -> list[Any]:
    """The index tensors that `nonzero` gives of a mask; the extent that only the node knew is now nonzero's."""
    torch = compat.require_torch()
    graph = exported.graph_module.graph
    found = graph.call_function(torch.ops.aten.nonzero.default, (mask,))
    found.meta |= _meta(node)
    bindings = node.meta.pop(_BINDINGS, None)
    if bindings:
        found.meta[_BINDINGS] = compat.bound_to_size(bindings)
    out = [graph.call_function(torch.ops.aten.select.int, (found, 1, d)) for d in range(rank)]
    for n in out:
        n.meta |= _meta(node)
    return out


def _indices(exported: Any, node: Any, indices: Sequence[Any]) -> list[Any]:
    """Every mask as index tensors, one per dim of the mask."""
    out: list[Any] = []
    for i in indices:
        out += _places(exported, node, i, _val(i).dim()) if _is_mask(i) else [i]
    return out


def _masked_index(exported: Any, node: Any) -> bool:
    if not any(_is_mask(i) for i in node.args[1]):
        return False
    with exported.graph_module.graph.inserting_before(node):
        node.update_arg(1, _indices(exported, node, node.args[1]))
    return True


def _masked_put(exported: Any, node: Any) -> bool:
    """`x[mask] = v`: a choice by the mask where v is one number, else by index."""
    torch = compat.require_torch()
    graph = exported.graph_module.graph
    x, indices, values = node.args[:3]
    accumulate = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    if not any(_is_mask(i) for i in indices):
        return False
    with graph.inserting_before(node):
        if len(indices) == 1 and _val(values).dim() == 0 and not accumulate:
            mask = indices[0]
            for _ in range(_val(x).dim() - _val(mask).dim()):
                mask = graph.call_function(torch.ops.aten.unsqueeze.default, (mask, -1))
            mask = graph.call_function(torch.ops.aten.to.dtype, (mask, torch.bool))
            inplace = compat.overload_name(node.target) == "aten.index_put_.default"
            fill = torch.ops.aten.masked_fill_.Tensor if inplace else torch.ops.aten.masked_fill.Tensor
            made = graph.call_function(fill, (x, mask, values))
            made.meta |= _meta(node)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        else:
            node.update_arg(1, _indices(exported, node, indices))
    return True


def _masked_select(exported: Any, node: Any) -> bool:
    torch = compat.require_torch()
    graph = exported.graph_module.graph
    with graph.inserting_before(node):
        both = graph.call_function(torch.ops.aten.broadcast_tensors.default, (list(node.args[:2]),))
        x, mask = (graph.call_function(operator.getitem, (both, k)) for k in range(2))
        at = _places(exported, node, mask, max(_val(a).dim() for a in node.args[:2]))
        made = graph.call_function(torch.ops.aten.index.Tensor, (x, at))
    for n in (both, x, mask, made):
        n.meta |= _meta(node)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return True


def _refuse(why: str, hint: str) -> Callable[[Any, Any], bool]:
    def rule(exported: Any, node: Any) -> bool:
        raise ControlFlowError(f"{_word(node)} {why}", place=_place(node), hint=hint)

    return rule


_INLINE: Mapping[str, Callable[[Any, Any], bool]] = {
    "higher_order.cond": _cond,
    "higher_order.scan": _scan,
    "higher_order.map_impl": _map,
    "higher_order.associative_scan": _associative_scan,
    "higher_order.while_loop": _while,
    "higher_order.flex_attention": _refuse(
        "runs a score function of the model's inside one kernel, which no operator does",
        "call scaled_dot_product_attention with a mask, or write the scores out",
    ),
    "aten.index.Tensor": _masked_index,
    "aten.index_put.default": _masked_put,
    "aten.index_put_.default": _masked_put,
    "aten.masked_select.default": _masked_select,
}
