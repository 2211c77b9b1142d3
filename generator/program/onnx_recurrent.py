"""ONNX's RNN, GRU and LSTM as other ONNX nodes, step by step, for a number of steps that is known.

Part of `onnx_ops.REWRITE`; its rules hold.  Where a layer is what an operator of ours is (no peepholes, no lengths, the
usual functions), `onnx_fronts` has it first.  May import: captured, onnx_rewrite, onnx_convert (types), numpy.
To add an activation: a line of `_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .captured import RowRefused
from .onnx_rewrite import Args, Rewrite, Writer, cast_to, extent, kind_of

if TYPE_CHECKING:
    from .onnx_convert import OnnxConverter

__all__ = ["RECURRENT", "USUAL", "plain"]

#: The functions of one direction where the node names none.
USUAL: Mapping[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
_Function = Callable[[str], str]


def _functions(w: Writer, args: Args, kind: Any, count: int) -> list[_Function]:
    """Of all directions; alpha and beta are shared out in order among those that take them."""
    names = args.get("activations") or USUAL[w.node.op_type] * count
    alphas, betas = list(args.get("activation_alpha") or ()), list(args.get("activation_beta") or ())

    def function(name: str) -> _Function:
        takes = {"Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5)}
        alone = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "Elu": 1.0}
        if name in takes:
            alpha, beta = (
                own.pop(0) if own else usual for own, usual in zip((alphas, betas), takes[name], strict=True)
            )
            if name == "HardSigmoid":
                return lambda x: w("HardSigmoid", x, alpha=alpha, beta=beta)
            if name == "Affine":
                return lambda x: w("Add", w("Mul", w.number(alpha, kind), x), w.number(beta, kind))
            return lambda x: w("Mul", w.number(alpha, kind), w("Tanh", w("Mul", w.number(beta, kind), x)))
        if name in alone:
            alpha = alphas.pop(0) if alphas else alone[name]
            return lambda x: w(name, x, alpha=alpha)
        if name not in ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"):
            raise RowRefused(f"the activation {name}")
        return lambda x: w(name, x)

    return [function(n) for n in names]


def _usual(node: Any, args: Args, directions: int) -> bool:
    """Whether the functions are the usual ones."""
    names = args.get("activations")
    if names is None:
        return True
    return [n.lower() for n in names] == [n.lower() for n in USUAL[node.op_type]] * directions


def _layer(c: OnnxConverter, node: Any, args: Args) -> list[Any] | None:
    op = node.op_type
    x, weights = args["X"], args["W"]
    if plain(node, args):
        return None
    kind, hidden = kind_of(x), extent(args["R"], 2)
    late = bool(args.get("layout"))
    steps, directions = extent(x, 1 if late else 0), extent(weights, 0)
    if not steps:
        raise RowRefused("no steps")
    w = Writer(c, node)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    by_name = dict(zip(args, node.input, strict=False))
    line = w("Transpose", node.input[0], perm=[1, 0, 2]) if late else node.input[0]
    acts = _functions(w, args, kind, directions)
    each = len(acts) // directions
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[args["direction"]]
    lengths = args.get("sequence_lens")
    found: list[tuple[str, ...]] = []
    for d, way in enumerate(ways):
        one = c.put(node, "direction", np.array(d))
        weight = {n: w("Gather", by_name[n], one, axis=0) for n in ("W", "R") if by_name.get(n)}
        turned = {n: w("Transpose", name, perm=[1, 0]) for n, name in weight.items()}
        bias = w("Gather", by_name["B"], one, axis=0) if by_name.get("B") else ""
        peep = w("Gather", by_name["P"], one, axis=0) if by_name.get("P") else ""

        def cut(name: str, k: int, axis: int) -> str:
            places = c.put(node, "gate", np.arange(k * hidden, (k + 1) * hidden))
            return w("Gather", name, places, axis=axis)

        states = []
        for name in ("initial_h", "initial_c")[: 2 if op == "LSTM" else 1]:
            if by_name.get(name):
                states.append(w("Gather", by_name[name], one, axis=1 if late else 0))
            else:
                batch = w("Gather", w("Shape", line), c.put(node, "batch", np.array([1])), axis=0)
                shape = w("Concat", batch, c.put(node, "hidden", np.array([hidden])), axis=0)
                states.append(w("Expand", c.put(node, "zero", np.zeros((1, 1), kind)), shape))
        zeros = w("Mul", states[0], w.number(0, kind))
        rows: list[str] = [""] * steps
        for t in range(steps)[:: -1 if way else 1]:
            now = w("Gather", line, c.put(node, "step", np.array(t)), axis=0)
            run = _Step(
                w, turned, bias, peep, hidden, gates, acts[d * each : (d + 1) * each], args, kind, cut
            )
            new = getattr(run, op.lower())(now, *states)
            if lengths is not None:
                there = w(
                    "Less",
                    c.put(node, "step", np.array([[t]])),
                    w.axes("Unsqueeze", cast_to(w, by_name["sequence_lens"], np.int64), [1]),
                )
                rows[t] = w("Where", there, new[0], zeros)
                new = [w("Where", there, a, b) for a, b in zip(new, states, strict=True)]
            else:
                rows[t] = new[0]
            states = list(new)
        whole = w("Concat", *(w.axes("Unsqueeze", r, [0]) for r in rows), axis=0)
        found.append((whole, *states))
    axes = (2 if late else 1, 1 if late else 0, 1 if late else 0)
    for k, to in enumerate(node.output):
        if not to:
            continue
        parts = [f[k] for f in found]
        if k == 0 and late:
            parts = [w("Transpose", p, perm=[1, 0, 2]) for p in parts]
        w("Concat", *(w.axes("Unsqueeze", p, [axes[k]]) for p in parts), to=to, axis=axes[k])
    return w.nodes


class _Step:
    """One step of one direction: the new hidden state, and what goes with it."""

    def __init__(
        self,
        w: Writer,
        turned: Mapping[str, str],
        bias: str,
        peep: str,
        hidden: int,
        gates: int,
        acts: Sequence[_Function],
        args: Args,
        kind: Any,
        cut: Callable[..., str],
    ) -> None:
        self.w, self.turned, self.bias, self.peep = w, turned, bias, peep
        self.hidden, self.gates, self.acts, self.args, self.kind, self.cut = (
            hidden,
            gates,
            acts,
            args,
            kind,
            cut,
        )

    def part(self, k: int, x: str, h: str, *, apart: bool = False) -> Any:
        """What gate k is the function of: of the input and of the state together, or each for itself."""
        w = self.w
        left = w("MatMul", x, self.cut(self.turned["W"], k, 1))
        right = w("MatMul", h, self.cut(self.turned["R"], k, 1))
        if self.bias:
            left = w("Add", left, self.cut(self.bias, k, 0))
            right = w("Add", right, self.cut(self.bias, self.gates + k, 0))
        return (left, right) if apart else w("Add", left, right)

    def clipped(self, x: str) -> str:
        clip = self.args.get("clip")
        if not clip:
            return x
        w = self.w
        if w.c.opset < 11:
            return w("Clip", x, min=-clip, max=clip)
        return w("Clip", x, w.number(-clip, self.kind), w.number(clip, self.kind))

    def rnn(self, x: str, h: str) -> list[str]:
        return [self.acts[0](self.clipped(self.part(0, x, h)))]

    def gru(self, x: str, h: str) -> list[str]:
        w, (f, g) = self.w, self.acts
        z, r = (f(self.clipped(self.part(k, x, h))) for k in (0, 1))
        if self.args.get("linear_before_reset"):
            left, right = self.part(2, x, h, apart=True)
            n = w("Add", left, w("Mul", r, right))
        else:
            n = self.part(2, x, w("Mul", r, h))
        n = g(self.clipped(n))
        return [w("Add", w("Mul", w("Sub", w.number(1, self.kind), z), n), w("Mul", z, h))]

    def lstm(self, x: str, h: str, cell: str) -> list[str]:
        """Gates i, o, f, c."""
        w, (f, g, last) = self.w, self.acts

        def peeped(name: str, k: int, by: str) -> str:
            return w("Add", name, w("Mul", self.cut(self.peep, k, 0), by)) if self.peep else name

        i = f(self.clipped(peeped(self.part(0, x, h), 0, cell)))
        if self.args.get("input_forget"):
            keep = w("Sub", w.number(1, self.kind), i)
        else:
            keep = f(self.clipped(peeped(self.part(2, x, h), 2, cell)))
        new = g(self.clipped(self.part(3, x, h)))
        cell = w("Add", w("Mul", keep, cell), w("Mul", i, new))
        o = f(self.clipped(peeped(self.part(1, x, h), 1, cell)))
        return [w("Mul", o, last(cell)), cell]


def plain(node: Any, args: Args) -> bool:
    """Whether a layer is what our operator is."""
    names = args.get("activations")
    relu = node.op_type == "RNN" and names is not None and all(n.lower() == "relu" for n in names)
    return (
        (relu or _usual(node, args, 2 if args["direction"] == "bidirectional" else 1))
        and args.get("sequence_lens") is None
        and args.get("P") is None
        and not args.get("clip")
        and not args.get("input_forget")
        and (node.op_type != "GRU" or bool(args.get("linear_before_reset")))
        and not (args.get("activation_alpha") or args.get("activation_beta"))
    )


RECURRENT: Mapping[str, Rewrite] = {"GRU": _layer, "LSTM": _layer, "RNN": _layer}
