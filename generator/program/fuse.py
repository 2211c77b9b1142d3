"""One fusion: trees of elementwise calls become one call of a spec that is their composition.

    fused = fuse(program, registry.get)
    fused.program                 calls `group:<hash>` where the trees were
    fused.groups                  hash → text of groups/<hash>.yaml
    fused.members                 id of a group's call → ids of the calls it replaces, in order

A tree grows from its last call towards its inputs: a producer joins when it is pointwise, its result has the extents
of the tree's result, and nobody else reads it.  The group's `compute` is the composition of its members' bound
statements, every dtype and constant written out, names in order of use: so the text, and its hash, depend on what is
computed and not on where.  A value that a member rounds to its dtype is rounded in the group too: a `cast` is kept,
a temporary has the member's dtype.

May import: ir, generator.bind, generator.bind_key, generator.bound, generator.expr, generator.spec, generator.types.
To fuse more: another way for `_pointwise` to say yes; the composition stays `_compose`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..bind import bind
from ..bind_key import key_for_call
from ..bound import BoundOp, Tensor
from ..errors import OpwrightError
from ..expr import (
    Assign,
    Bin,
    Expr,
    Load,
    Name,
    Num,
    Reduce,
    Star,
    Target,
    show_stmt,
    transform,
    walk,
)
from ..expr import Call as FnCall
from ..spec import OpSpec
from ..types import DType, Operand, default_dtype
from .intexpr import IntExpr
from .ir import Arg, Call, Node, Program, ScalarArg, outputs_of, uses_of, verify, with_nodes

__all__ = ["Fused", "fuse"]

MAX_MEMBERS = 24
MAX_INPUTS = 12
PACK = "B"


@dataclass(frozen=True)
class Fused:
    """A program with groups, their specs' texts, and the calls that each group's call stands for."""

    program: Program
    groups: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Member:
    """A pointwise call: its bound spec, what each of the spec's inputs is, and the casts at the call's boundary."""

    call: Call
    op: BoundOp
    args: Mapping[str, str | ScalarArg]
    casts: Mapping[str, DType]
    attrs: Mapping[str, Any]
    out: str

    @property
    def constant(self) -> bool:
        """Whether it is one number everywhere, whatever it is given."""
        return not any(_loads(s.assign.value) for s in self.op.body)


def fuse(
    program: Program,
    spec_of: Callable[[str], OpSpec],
    refused: Collection[str] = (),
    keep: Collection[str] = (),
    most: int = MAX_MEMBERS,
) -> Fused:
    """Fuse what can be.  `spec_of` raises an `OpwrightError` for an op that has no spec: its calls stay alone.

    `refused`: hashes of groups that the judge did not pass; the calls they were made of stay alone.
    `keep`: values that must still be there.  `most`: calls in a tree.
    """
    members = {c.id: m for c in program.calls if (m := _pointwise(program, c, spec_of)) is not None}
    maker = {o: n for n in program.nodes for o in outputs_of(n)}
    readers: dict[str, set[int]] = {}
    for k, n in enumerate(program.nodes):
        for v in uses_of(n):
            readers.setdefault(v, set()).add(k)
    kept = {b.value for b in program.outputs} | {s.output for s in program.state} | set(keep)
    taken: set[str] = set()
    trees: dict[str, list[_Member]] = {}  # root call → members, producers first
    for call in reversed(program.calls):
        root = members.get(call.id)
        if root is None or root.constant or call.id in taken:
            continue
        tree = _grow(program, root, members, maker, readers, kept, taken, most)
        if len(tree) > 1 and _leaves(tree):  # of what reads nothing nobody says the extents
            trees[call.id] = tree
            taken |= {m.call.id for m in tree}
    composed = {id: _compose(program, tree) for id, tree in trees.items()}
    trees = {id: tree for id, tree in trees.items() if composed[id][0] not in refused}
    groups: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    nodes: list[Node] = []
    gone = {m.call.id for t in trees.values() for m in t}
    for n in program.nodes:
        if not isinstance(n, Call) or n.id not in gone:
            nodes.append(n)
        elif n.id in trees:
            tree = trees[n.id]
            hash, text, inputs = composed[n.id]
            groups.setdefault(hash, text)
            id = f"group_{len(names)}"
            names[id] = tuple(m.call.id for m in tree)
            nodes.append(Call(id, f"group:{hash}", inputs, {}, n.out, n.site, "", ""))
    fused = with_nodes(program, nodes)
    verify(fused)
    return Fused(fused, groups, names)


def _grow(
    p: Program,
    root: _Member,
    members: Mapping[str, _Member],
    maker: Mapping[str, Node],
    readers: Mapping[str, set[int]],
    kept: set[str],
    taken: set[str],
    most: int,
) -> list[_Member]:
    tree = [root]
    shape = p.values[root.out].shape
    grown = True
    while grown and len(tree) < most:
        grown = False
        inside = {m.out for m in tree}
        for v in dict.fromkeys(a for m in tree for a in m.args.values() if isinstance(a, str)):
            producer = maker.get(v)
            if v in inside or v in kept or not isinstance(producer, Call) or producer.id in taken:
                continue
            member = members.get(producer.id)
            if member is None or p.values[v].shape != shape:
                continue
            outer = readers[v] - {k for k, n in enumerate(p.nodes) if any(n is m.call for m in tree)}
            if outer or len(_leaves([*tree, member])) > MAX_INPUTS:
                continue
            tree.append(member)
            grown = True
            break
    order = {c.id: k for k, c in enumerate(p.calls)}
    return sorted(tree, key=lambda m: order[m.call.id])


def _leaves(tree: Sequence[_Member]) -> list[str]:
    """The values that a tree reads from outside, in order of use."""
    inside = {m.out for m in tree}
    return list(
        dict.fromkeys(a for m in tree for a in m.args.values() if isinstance(a, str) and a not in inside)
    )


# ------------------------------------------------------------------------------------------------- one call


def _pointwise(p: Program, call: Call, spec_of: Callable[[str], OpSpec]) -> _Member | None:
    """The call as a member, when its spec is one value for each place of one pack of axes."""
    if call.missing or len(call.out) != 1 or call.out[0] is None:
        return None
    try:
        spec = spec_of(call.op)
        if len(spec.outputs) != 1 or any(t.is_list for t in spec.inputs.values()):
            return None
        given = dict(zip(spec.inputs, call.inputs, strict=True))
        if any(isinstance(v, IntExpr | tuple) for v in call.attrs.values()):
            return None
        operands = {n: _operand(p, a) for n, a in given.items() if a is not None}
        resolved = key_for_call(spec, operands, dict(call.attrs))
        op = bind(spec, resolved.key)
    except _NotOne:
        return None
    except OpwrightError:
        return None  # not accepted for these types: the inventory says so
    if op.rules or len(op.dims) != 1 or len(op.outputs) != 1:
        return None
    (pack,) = op.dims
    if any(not _whole(t, pack.name) for t in (*op.inputs, *op.outputs, *op.temps)):
        return None
    for s in op.body:
        if (
            len(s.axes) != 1
            or not s.axes[0].pack
            or s.recur is not None
            or s.assign.mode not in ("=", "set")
            or s.assign.guard
        ):
            return None
        if any(
            not _plain(ix)
            for ix in (s.assign.target.index, *(x.index for x in walk(s.assign.value) if isinstance(x, Load)))
        ):
            return None
        if any(isinstance(x, Reduce | FnCall) and not _elementwise(x) for x in walk(s.assign.value)):
            return None
    member = _Member(call, op, {}, resolved.casts, resolved.attrs, call.out[0])
    if member.constant:  # it reads only the extents of what it is given
        return member if len(op.body) == 1 else None
    return replace(member, args={n: a for n, a in given.items() if isinstance(a, str | ScalarArg)})


def _loads(x: Expr) -> bool:
    return any(isinstance(y, Load) for y in walk(x))


class _NotOne(Exception):
    """An argument that a group cannot hold."""


def _whole(t: Tensor, pack: str) -> bool:
    """`D[*B]` and nothing more."""
    return (
        len(t.dims) == 1
        and t.dims[0].pack
        and not t.dims[0].keep
        and t.dims[0].at is None
        and not t.expand
        and t.like is None
        and isinstance(t.dims[0].extent, Name)
        and t.dims[0].extent.id == pack
    )


def _operand(p: Program, arg: Arg) -> Operand:
    if isinstance(arg, str):
        v = p.values[arg]
        return Operand(v.dtype, v.rank)
    if isinstance(arg, ScalarArg) and not isinstance(arg.value, IntExpr):
        return Operand(default_dtype(arg.value), 0, True)
    raise _NotOne


def _plain(index: tuple[Expr, ...]) -> bool:
    """`[*B]`: the whole pack and nothing more."""
    return len(index) == 1 and isinstance(index[0], Star) and isinstance(index[0].x, Name)


_POSITIONAL = frozenset({"linear", "lane", "rank", "philox", "start", "total", "len"})


def _elementwise(x: Expr) -> bool:
    return isinstance(x, FnCall) and x.fn not in _POSITIONAL


# ------------------------------------------------------------------------------------------------- composition


def _compose(p: Program, tree: Sequence[_Member]) -> tuple[str, str, tuple[Arg, ...]]:
    """(hash, text of the spec, the group's inputs)."""
    root = tree[-1]
    leaves = _leaves(tree)
    names: dict[str, str] = {v: f"x{k}" for k, v in enumerate(leaves)}
    for k, m in enumerate(tree[:-1]):
        names[m.out] = f"t{k}"
    names[root.out] = "y"
    counter = [len(tree) - 1]
    lines: list[str] = []
    constants: dict[str, Expr] = {}
    for m in tree:
        lines += _statements(p, m, names, counter, constants)
    inputs = ", ".join(f'{names[v]}: "{p.values[v].dtype}[*{PACK}]"' for v in leaves)
    output = p.values[root.out].dtype
    compute = "".join(f"  {line}" for line in lines)
    kind = "broadcast" if len(leaves) > 1 else "batch"
    meaning = (
        f"dims: {{{PACK}: {kind}}}\ninputs: {{{inputs}}}\n"
        f'outputs: {{y: "{output}[*{PACK}]"}}\ncompute: |\n{compute}'
    )
    hash = hashlib.sha256(meaning.encode()).hexdigest()[:16]
    doc = ", ".join(dict.fromkeys(m.call.op for m in tree))
    unlike = ", ".join(f"x{k}.B: {[[4, 1, 3], [6, 1], [3]][min(k, 2)]}" for k in range(len(leaves)))
    cases = "[{B: [7, 5]}, {B: [0, 3]}, {B: []}, {B: [1025]}" + (
        f", {{{unlike}}}]" if len(leaves) > 1 else "]"
    )
    text = (
        f'op: group:{hash}\ndoc: "Composed of {doc}."\n{meaning}'
        "grad: {none: a program is differentiated before its groups are made}\n"
        f"test: {{cases: {cases}, layouts: [contiguous, transposed], values: [exact, normal, zeros, nan_inf], "
        "tol: bound}\n"
    )
    return hash, text, tuple(leaves)


def _statements(
    p: Program, m: _Member, names: Mapping[str, str], counter: list[int], constants: dict[str, Expr]
) -> list[str]:
    """A member's statements in the group's names.  One that reads nothing has none, for nothing says its extents: it
    goes to `constants`, and stands where it is read."""
    local: dict[str, str] = {}
    for t in m.op.temps:
        local[t.name] = f"t{counter[0]}"
        counter[0] += 1
    local[m.op.outputs[0].name] = names[m.out]
    index = (Star(Name(PACK)),)

    def put(x: Expr) -> Expr | None:
        if isinstance(x, Load):
            if x.tensor in local:
                return Load(local[x.tensor], index)
            arg = m.args[x.tensor]
            cast = m.casts.get(x.tensor)
            if isinstance(arg, ScalarArg):
                return _number(arg.value, cast or m.op.tensor(x.tensor).dtype)
            load = constants.get(arg, Load(names[arg], index))
            return FnCall(cast.value, (load,)) if cast is not None else load
        if isinstance(x, Name) and x.kind == "attr":
            return Num(m.attrs[x.id])
        if isinstance(x, FnCall) and x.fn == "pow" and _is(x.args[1], 2) and isinstance(x.args[0], Load):
            return Bin("*", x.args[0], x.args[0])  # the same number, and no call
        if isinstance(x, Bin) and x.op == "*":
            for one, other in ((x.left, x.right), (x.right, x.left)):
                if _is(one, 1):
                    return other
        return None

    out: list[str] = []
    for s in m.op.body:
        value = transform(s.assign.value, put)
        if names[m.out] != "y" and len(m.op.body) == 1 and not _loads(value):
            constants[m.out] = FnCall(p.values[m.out].dtype.value, (value,))
            continue
        out.append(show_stmt(Assign(Target(local[s.target], index), s.assign.mode, value)))
    return out


def _number(value: Any, dtype: DType) -> Expr:
    """A Python scalar as the input's dtype has it."""
    if dtype.is_integer:
        return Num(int(value))
    if dtype is DType.BOOL:
        return Num(bool(value))
    number = Num(float(value))
    exact = float(value) == int(value) if abs(float(value)) < 2**24 else False
    return number if exact else FnCall(dtype.value, (number,))


def _is(x: Expr, value: int) -> bool:
    """Whether it is this number, whatever the dtype."""
    while isinstance(x, FnCall) and x.fn in {d.value for d in DType} and len(x.args) == 1:
        x = x.args[0]
    return isinstance(x, Num) and not isinstance(x.value, bool) and x.value == value


def unfused(fused: Fused, id: str) -> tuple[str, ...]:
    """The calls that a call of the fused program stands for: its members, or itself."""
    return fused.members.get(id, (id,))
