"""Control flow, sequences and optionals of ONNX, which no program has: bodies in line, lists of tensors by name.

    If          the branch that is taken, where that is known; else both, and each result chosen by the condition
    Loop, Scan  a body for every round, where it is known how many there are at most; a round that only the run can
                rule out keeps the state as it was
    sequences   the names of their tensors (`converter.sequences`), whose number is known
    optionals   the tensor, the sequence, or nothing (`converter.absent`)

So what a branch that is not taken would refuse is refused all the same.  An `If` or `Loop` whose results differ in
shape in a way that only the run can tell is a capture error.

May import: captured, intexpr, onnx_convert (types), onnx_model, numpy.  To add an operator: a row of `CONTROL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .captured import CaptureError
from .folder import numpy_dtype
from .onnx_model import dtype_of, numpy_of

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter, Tensor

__all__ = ["CONTROL", "reads", "renamed"]

#: Rounds that a program holds.
MOST_ROUNDS = 4096


# ---- bodies in line ------------------------------------------------------------------------------------------------


def reads(nodes: Sequence[Any]) -> Iterator[str]:
    """What nodes read, those of their bodies too."""
    for n in nodes:
        yield from n.input
        for a in n.attribute:
            if a.HasField("g"):
                yield from reads(a.g.node)
                yield from (v.name for v in a.g.output)


def renamed(graph: Any, names: Mapping[str, str], prefix: str, *, inputs: bool = True) -> dict[str, str]:
    """A body, in place: what it takes from outside goes by `names`, what it makes by names of its own, which are
    returned.  `inputs`: its own inputs are made by it, too."""
    mine = dict(names)
    for v in graph.input if inputs else ():
        mine[v.name] = v.name = prefix + v.name
    for t in graph.initializer:
        mine[t.name] = t.name = prefix + t.name
    for n in graph.node:
        n.input[:] = [mine.get(i, i) for i in n.input]
        for a in n.attribute:
            if a.HasField("g"):
                renamed(a.g, mine, prefix)
        for k, o in enumerate(n.output):
            if o:
                mine[o] = n.output[k] = prefix + o
    for v in graph.output:
        v.name = mine.get(v.name, v.name)
    return mine


def _body(node: Any, name: str) -> Any:
    return next(a.g for a in node.attribute if a.name == name)


def _prefix(c: OnnxConverter, node: Any) -> str:
    c.counts["body"] = c.counts.get("body", 0) + 1
    return f"{next((o for o in node.output if o), node.op_type)}/{c.counts['body']}."


def inline(c: OnnxConverter, node: Any, graph: Any, given: Sequence[str]) -> list[str]:
    """A body with these inputs, by name; the names of its outputs."""
    own = c.onnx.GraphProto()
    own.CopyFrom(graph)
    names = dict(zip([v.name for v in graph.input], given, strict=False))
    renamed(own, names, _prefix(c, node), inputs=False)
    for t in own.initializer:
        c.env[t.name] = c.constant(t.name, numpy_of(t), dtype_of(t.data_type, t.name))
        c.folded[t.name] = c.env[t.name].content
    outputs = [v.name for v in own.output]
    c.read |= set(outputs)
    c.deeper(list(own.node))
    return outputs


# ---- tensors, sequences and optionals by name -----------------------------------------------------------------------


def bind(c: OnnxConverter, name: str, to: str) -> None:
    """`to` is what `name` is."""
    if not to or name == to:
        return
    if name in c.sequences:
        c.sequences[to] = c.sequences[name]
    elif name in c.absent:
        c.absent.add(to)
    else:
        c.deeper([c.onnx.helper.make_node("Identity", [name], [to])])


def _tensor(c: OnnxConverter, name: str) -> Tensor:
    if name not in c.env:
        raise CaptureError(f"`{c.site}`: `{name}` is no tensor")
    return c.env[name]


def chosen(c: OnnxConverter, node: Any, flag: str, yes: str, no: str) -> str:
    """One or the other, as the flag says when the program runs."""
    if yes == no:
        return yes
    if yes in c.sequences and no in c.sequences:
        a, b = c.sequences[yes], c.sequences[no]
        if len(a) != len(b):
            raise CaptureError(
                f"`{c.site}` ({node.op_type}) gives {len(a)} tensors or {len(b)}, as the data say"
            )
        name = c.temporary(node, "chosen")
        c.sequences[name] = tuple(chosen(c, node, flag, x, y) for x, y in zip(a, b, strict=True))
        return name
    if yes in c.absent and no in c.absent:
        return yes
    sides = [_tensor(c, name) for name in (yes, no)]
    if sides[0].dtype is not sides[1].dtype or list(sides[0].shape) != list(sides[1].shape):
        text = [f"{t.dtype.value}{[str(e) for e in t.shape]}" for t in sides]
        raise CaptureError(f"`{c.site}` ({node.op_type}) gives {text[0]} or {text[1]}, as the data say")
    name = c.temporary(node, "chosen")
    c.deeper([c.onnx.helper.make_node("Where", [flag, yes, no], [name])])
    return name


def _flag(c: OnnxConverter, node: Any, name: str) -> str:
    """A condition as a tensor of rank 0."""
    if c.env[name].rank == 0:
        return name
    out = c.temporary(node, f"flag.{name}")
    c.deeper([c.onnx.helper.make_node("Reshape", [name, c.put(node, "rank0", np.zeros(0, np.int64))], [out])])
    return out


def _known(c: OnnxConverter, name: str) -> bool | None:
    """A condition that is known."""
    t = c.env[name]
    return bool(t.content.reshape(-1)[0]) if t.known else None


# ---- If, Loop, Scan ------------------------------------------------------------------------------------------------


def _if(c: OnnxConverter, node: Any) -> None:
    said = _known(c, node.input[0])
    if said is not None:
        found = inline(c, node, _body(node, "then_branch" if said else "else_branch"), [])
    else:
        flag = _flag(c, node, node.input[0])
        sides = [inline(c, node, _body(node, f"{which}_branch"), []) for which in ("then", "else")]
        found = [chosen(c, node, flag, yes, no) for yes, no in zip(*sides, strict=True)]
    for name, to in zip(found, node.output, strict=True):
        bind(c, name, to)


def _loop(c: OnnxConverter, node: Any) -> None:
    graph = _body(node, "body")
    trips = _times(c, node)
    condition = node.input[1] if len(node.input) > 1 and node.input[1] else ""
    states = list(node.input[2:])
    scanned: list[list[str]] = [[] for _ in graph.output[1 + len(states) :]]
    active, flags = "", []  # where only the run can tell: whether this round is one
    if condition and _known(c, condition) is None:
        active = _flag(c, node, condition)
    going = not condition or bool(active) or bool(_known(c, condition))
    k = 0
    while going and (trips is None or k < trips):
        if k == MOST_ROUNDS or (active and trips is None):
            raise CaptureError(
                f"`{c.site}` is a Loop that goes round as often as the data say",
                hint="give it a number of rounds that it does not pass, as a constant",
            )
        at = c.put(node, "round", np.array(k, np.int64))
        holds = active or c.put(node, "holds", np.array(True))
        goes, *found = inline(c, node, graph, [at, holds, *states])
        now = found[: len(states)]
        states = (
            now if not active else [chosen(c, node, active, a, b) for a, b in zip(now, states, strict=True)]
        )
        for list_, name in zip(scanned, found[len(states) :], strict=True):
            list_.append(name)
        flags.append(active or c.put(node, "holds", np.array(True)))
        said = _known(c, goes)
        if said is False:
            break
        if said is None:
            if active:
                both = c.temporary(node, f"going.{k}")
                c.deeper([c.onnx.helper.make_node("And", [active, _flag(c, node, goes)], [both])])
                active = both
            else:
                active = _flag(c, node, goes)
        k += 1
    for name, to in zip(states, node.output, strict=False):
        bind(c, name, to)
    outputs = list(graph.output)[1 + len(states) :]
    for names, to, v in zip(scanned, node.output[len(states) :], outputs, strict=False):
        if to:
            whole = _stacked(c, node, names, 0, v)
            if any(not c.env[f].known for f in flags):
                whole = _kept(c, node, whole, flags)
            bind(c, whole, to)


def _times(c: OnnxConverter, node: Any) -> int | None:
    """How many rounds at most; None: as long as the condition holds."""
    if not node.input[0]:
        return None
    t = c.env[node.input[0]]
    if not t.known:
        raise CaptureError(
            f"`{c.site}` is a Loop that goes round as often as `{t.name}` says when it runs",
            hint="export the model with its loops unrolled, or with a number of rounds that is a constant",
        )
    return int(t.content.reshape(-1)[0])


def _stacked(c: OnnxConverter, node: Any, names: Sequence[str], axis: int, v: Any) -> str:
    """One tensor of what each round gave."""
    make = c.onnx.helper.make_node
    if not names:
        kind = v.type.tensor_type
        dims = [int(d.dim_value) if d.HasField("dim_value") else 0 for d in kind.shape.dim]
        dims.insert(axis, 0)
        return c.put(node, "nothing", np.zeros(dims, numpy_dtype(dtype_of(kind.elem_type, v.name))))
    parts = []
    for name in names:
        part = f"{name}/row"
        axes = c.put(node, "axis", np.array([axis]))
        c.deeper(
            [
                make("Unsqueeze", [name], [part], axes=[axis])
                if c.opset < 13
                else make("Unsqueeze", [name, axes], [part])
            ]
        )
        parts.append(part)
    whole = c.temporary(node, "rows")
    c.deeper([make("Concat", parts, [whole], axis=axis)])
    return whole


def _kept(c: OnnxConverter, node: Any, whole: str, flags: Sequence[str]) -> str:
    """Only the rounds that were ones."""
    make = c.onnx.helper.make_node
    out, one = c.temporary(node, "kept"), c.put(node, "one", np.array([1]))
    rows = []
    for k, flag in enumerate(flags):
        rows.append(f"{out}.flag.{k}")
        c.deeper([make("Reshape", [flag, one], [rows[-1]])])
    c.deeper([make("Concat", rows, [f"{out}.flags"], axis=0)])
    c.deeper([make("Compress", [whole, f"{out}.flags"], [out], axis=0)])
    return out


def _scan(c: OnnxConverter, node: Any) -> None:
    if c.opset < 9:
        _scan_of_batches(c, node)
        return
    found = _scanned(c, node, list(node.input))
    for name, to in zip(found, node.output, strict=True):
        bind(c, name, to)


def _scan_of_batches(c: OnnxConverter, node: Any) -> None:
    """Before opset 9: an axis of batches in front, and a length for each."""
    make = c.onnx.helper.make_node
    if node.input[0]:
        raise CaptureError(f"`{c.site}` is a Scan over a length for each batch")
    batches = c.env[node.input[1]].shape[0].value
    if batches is None:
        raise CaptureError(f"`{c.site}` is a Scan over a number of batches that varies")
    outs: list[list[str]] = []
    for b in range(batches):
        given = []
        for name in node.input[1:]:
            given.append(c.temporary(node, f"{name}.{b}"))
            c.deeper([make("Gather", [name, c.put(node, "batch", np.array(b))], [given[-1]], axis=0)])
        outs.append(_scanned(c, node, given))
    for to, *names in zip(node.output, *outs, strict=True):
        bind(c, _stacked(c, node, names, 0, None), to)


def _scanned(c: OnnxConverter, node: Any, given: Sequence[str]) -> list[str]:
    graph = _body(node, "body")
    ints = {a.name: list(a.ints) for a in node.attribute if a.name != "body"}
    count = next(int(a.i) for a in node.attribute if a.name == "num_scan_inputs")
    states, inputs = list(given[: len(given) - count]), list(given[len(given) - count :])
    results = len(graph.output) - len(states)
    axes = ints.get("scan_input_axes") or [0] * count
    ways = ints.get("scan_input_directions") or ints.get("directions") or [0] * count
    n = None
    for name, axis in zip(inputs, axes, strict=True):
        n = c.env[name].shape[axis % c.env[name].rank].value
        if n is None or n > MOST_ROUNDS:
            raise CaptureError(
                f"`{c.site}` is a Scan over the extent {c.env[name].shape[axis]}, which varies or is long",
                hint="export the model for a length that is known",
            )
    scanned: list[list[str]] = [[] for _ in range(results)]
    for k in range(n or 0):
        row = []
        for name, axis, way in zip(inputs, axes, ways, strict=True):
            at = c.put(node, "round", np.array((n or 0) - 1 - k if way else k))
            row.append(c.temporary(node, f"row.{name}"))
            c.deeper([c.onnx.helper.make_node("Gather", [name, at], [row[-1]], axis=axis % c.env[name].rank)])
        found = inline(c, node, graph, [*states, *row])
        for list_, name in zip(scanned, found[len(states) :], strict=True):
            list_.append(name)
        states = found[: len(states)]
    out_axes = ints.get("scan_output_axes") or [0] * results
    out_ways = ints.get("scan_output_directions") or [0] * results
    for names, axis, way, v in zip(
        scanned, out_axes, out_ways, list(graph.output)[len(states) :], strict=True
    ):
        rank = c.env[names[0]].rank + 1 if names else len(v.type.tensor_type.shape.dim) + 1
        states.append(_stacked(c, node, names[::-1] if way else names, axis % rank, v))
    return states


# ---- sequences and optionals ---------------------------------------------------------------------------------------


def _place(c: OnnxConverter, node: Any, k: int, count: int) -> int:
    t = c.env[node.input[k]]
    if not t.known:
        raise CaptureError(f"`{c.site}` takes a place of a sequence that only the run can tell")
    at = int(t.content.reshape(-1)[0])
    return at + count if at < 0 else at


def _items(c: OnnxConverter, name: str) -> tuple[str, ...]:
    if name not in c.sequences:
        raise CaptureError(f"`{c.site}`: `{name}` is no sequence whose length is known")
    return c.sequences[name]


def _construct(c: OnnxConverter, node: Any) -> None:
    c.sequences[node.output[0]] = tuple(node.input)


def _at(c: OnnxConverter, node: Any) -> None:
    items = _items(c, node.input[0])
    bind(c, items[_place(c, node, 1, len(items))], node.output[0])


def _insert(c: OnnxConverter, node: Any) -> None:
    items = list(_items(c, node.input[0]))
    named = len(node.input) > 2 and node.input[2]
    items.insert(_place(c, node, 2, len(items)) if named else len(items), node.input[1])
    c.sequences[node.output[0]] = tuple(items)


def _erase(c: OnnxConverter, node: Any) -> None:
    items = list(_items(c, node.input[0]))
    named = len(node.input) > 1 and node.input[1]
    del items[_place(c, node, 1, len(items)) if named else -1]
    c.sequences[node.output[0]] = tuple(items)


def _length(c: OnnxConverter, node: Any) -> None:
    _give(c, node, np.array(len(_items(c, node.input[0])), np.int64))


def _give(c: OnnxConverter, node: Any, array: Any) -> None:
    name = node.output[0]
    c.env[name] = c.constant(name, array)
    c.folded[name] = array


def _joined(c: OnnxConverter, node: Any) -> None:
    make = c.onnx.helper.make_node
    told = {a.name: int(a.i) for a in node.attribute}
    names = list(_items(c, node.input[0]))
    axis = told["axis"]
    if told.get("new_axis"):
        rank = c.env[names[0]].rank + 1
        bind(c, _stacked(c, node, names, axis % rank, None), node.output[0])
    else:
        c.deeper([make("Concat", names, [node.output[0]], axis=axis % c.env[names[0]].rank)])


def _split(c: OnnxConverter, node: Any) -> None:
    make = c.onnx.helper.make_node
    told = {a.name: int(a.i) for a in node.attribute}
    x = c.env[node.input[0]]
    axis = told.get("axis", 0) % x.rank
    n = x.shape[axis].value
    by = c.env[node.input[1]] if len(node.input) > 1 and node.input[1] else None
    if n is None or (by is not None and not by.known):
        raise CaptureError(f"`{c.site}` splits into a number of tensors that only the run can tell")
    if by is None or by.rank == 0:
        size = 1 if by is None else int(by.content)
        sizes = [min(size, n - at) for at in range(0, n, size)]
    else:
        sizes = [int(s) for s in by.content]
    names, begin = [], 0
    for k, size in enumerate(sizes):
        places = c.put(node, "places", np.arange(begin, begin + size))
        alone = by is None and not told.get("keepdims", 1)
        at = c.put(node, "place", np.array(begin)) if alone else places
        names.append(f"{node.output[0]}/{k}")
        c.deeper([make("Gather", [node.input[0], at], [names[-1]], axis=axis)])
        begin += size
    c.sequences[node.output[0]] = tuple(names)


def _mapped(c: OnnxConverter, node: Any) -> None:
    """A body for every item; what is no sequence is the same for all."""
    graph = _body(node, "body")
    rows: list[list[str]] = []
    for k in range(len(_items(c, node.input[0]))):
        given = [c.sequences[i][k] if i in c.sequences else i for i in node.input]
        rows.append(inline(c, node, graph, given))
    for j, to in enumerate(node.output):
        c.sequences[to] = tuple(row[j] for row in rows)


def _optional(c: OnnxConverter, node: Any) -> None:
    if node.input and node.input[0]:
        bind(c, node.input[0], node.output[0])
    else:
        c.absent.add(node.output[0])


def _has(c: OnnxConverter, node: Any) -> None:
    given = bool(node.input) and bool(node.input[0]) and node.input[0] not in c.absent
    _give(c, node, np.array(given))


def _element(c: OnnxConverter, node: Any) -> None:
    if node.input[0] in c.absent:
        raise CaptureError(f"`{c.site}` takes what an optional holds that holds nothing")
    bind(c, node.input[0], node.output[0])


def _same(c: OnnxConverter, node: Any) -> None:
    bind(c, node.input[0], node.output[0])


#: `Identity` is one of these only where its input is no tensor
CONTROL: Mapping[str, Callable[[Any, Any], None]] = {
    "ConcatFromSequence": _joined,
    "Identity": _same,
    "If": _if,
    "Loop": _loop,
    "Optional": _optional,
    "OptionalGetElement": _element,
    "OptionalHasElement": _has,
    "Scan": _scan,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _mapped,
    "SplitToSequence": _split,
}
