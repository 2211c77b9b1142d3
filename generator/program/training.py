"""A program → its training program: one run is a loss, the gradients of all weights, and a step of AdamW.

    t = training_program(program, spec_of)
    t.program             inputs: the program's own, and `cotangent.<output>` for each output that the loss is made of;
                          outputs: `loss`, `gradient.<weight>`; state: every weight, its moments, the bias corrections
    t.grads               the texts of `grads/` that go with it
    t.tensors(weights)    what its constants are before the first step

The loss is the sum, over float outputs that depend on weights, of the products of the output with its cotangent,
which is given.  It is linear in the outputs, so it sees each of them, and no labels are needed.
AdamW is composed of operators.  The corrections 1 − βᵗ are state: c ← β c + (1 − β).  All terms are positive, so
nothing cancels there, as it would in 1 − βᵗ of an f32 power.

May import: grad, ir, views, folder, generator (types, gradient), numpy.  To add an optimiser: a function like `_adamw`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..gradient import NoGradientError
from ..types import DType, promote
from .folder import numpy_dtype
from .grad import Reverse, SpecOf
from .ir import Arg, Binding, Call, Copy, Node, Program, Read, ScalarArg, State, Value, View, verify

__all__ = ["COTANGENT", "GRADIENT_OF", "LOSS", "AdamW", "Training", "training_program"]

LOSS, COTANGENT, GRADIENT_OF = "loss", "cotangent.", "gradient."
_FIRST, _SECOND = "adamw.first.", "adamw.second."
_CORRECTIONS = ("adamw.correction.first", "adamw.correction.second")


@dataclass(frozen=True)
class AdamW:
    """Its numbers; the defaults are those of `torch.optim.AdamW`."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 1e-2


@dataclass(frozen=True)
class Training:
    """`trained`: the weights that have a gradient; `losses`: the outputs that the loss is made of."""

    program: Program
    grads: Mapping[str, str]
    trained: tuple[str, ...]
    losses: tuple[str, ...]
    zeros: Mapping[str, Value] = field(default_factory=dict)

    def tensors(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """All constants of the program: weights as they are given, moments and corrections 0."""
        out = dict(weights)
        for name, v in self.zeros.items():
            out[name] = np.zeros([n.value for n in v.shape], numpy_dtype(v.dtype))
        return out


def training_program(program: Program, spec_of: SpecOf, numbers: AdamW | None = None) -> Training:
    """Raises `NoGradientError` where an operator in the way has none, there is no loss, or the program keeps state."""
    if program.state:
        raise NoGradientError(
            "the model keeps state between calls, which a step of training would move as well"
        )
    program = _untied(program)
    d = Reverse(program, spec_of)
    weights = [b for b in program.weights if program.values[b.value].dtype.is_float]
    active = d.active(b.value for b in weights)
    outputs = [b for b in program.outputs if b.value in active]
    inputs = {b.name for b in program.inputs}
    known = {s.name for s in program.symbols.values() if s.source in inputs}
    for b in outputs:
        if any(not n.names() <= known for n in program.values[b.value].shape):
            raise NoGradientError(f"the extents of `{b.name}` depend on data: it has no given cotangent")
    if not outputs:
        raise NoGradientError("no float output depends on a weight")
    given = [_cotangent(d, b) for b in outputs]
    loss = _loss(d, outputs, given)
    for b, c in zip(outputs, given, strict=True):
        d.seed(b.value, c.value)
    found = d.gradients(b.value for b in weights)
    trained = [(b, g) for b in weights if (g := found[b.value]) is not None]
    state, zeros = _adamw(d, [(b, g) for b, g in trained], numbers or AdamW())
    done = d.finished(
        (Binding(LOSS, loss), *(Binding(GRADIENT_OF + b.name, g) for b, g in trained)),
        inputs=(*program.inputs, *given),
        weights=tuple(b for b in program.weights if b.name not in {t.name for t, _ in trained}),
        constants=(
            *program.constants,
            *(replace(b, tie=None) for b, _ in trained),
            *(Binding(name, v.id) for name, v in zeros.items()),
        ),
        state=state,
        name=f"{program.name}.training",
        tree={"inputs": [[], {b.name: b.name for b in (*program.inputs, *given)}], "outputs": LOSS},
    )
    verify(done)
    return Training(
        done, dict(d.grads), tuple(b.name for b, _ in trained), tuple(b.name for b in outputs), zeros
    )


def _cotangent(d: Reverse, output: Binding) -> Binding:
    v = d.values[output.value]
    return Binding(COTANGENT + output.name, d.fresh(v.dtype, v.shape))


def _loss(d: Reverse, outputs: list[Binding], given: list[Binding]) -> str:
    """The sum of all outputs' products with their cotangents."""
    total: str | None = None
    for b, c in zip(outputs, given, strict=True):
        v = d.values[b.value]
        product = d.call("mul", [b.value, c.value], v.dtype, v.shape)
        part = d.call("sum", [product], v.dtype, (), {"dim": None, "keepdim": False})
        if total is None:
            total = part
            continue
        # Outputs of several dtypes add up in the widest, as PyTorch's would.
        wide = promote(d.values[total].dtype, v.dtype)
        terms = [
            x if d.values[x].dtype is wide else d.call("cast", [x], wide, (), {"dtype": wide.value})
            for x in (total, part)
        ]
        total = d.call("add", terms, wide, ())
    assert total is not None
    return total


def _adamw(
    d: Reverse, trained: list[tuple[Binding, str]], n: AdamW
) -> tuple[tuple[State, ...], dict[str, Value]]:
    """A step of AdamW for each weight and its gradient: what becomes of weights and moments, and the moments."""
    state: list[State] = []
    zeros: dict[str, Value] = {}

    def kept(name: str, dtype: DType, shape: Any) -> str:
        """A constant that begins at 0."""
        id = d.fresh(dtype, shape)
        zeros[name] = d.values[id]
        return id

    corrections: dict[DType, tuple[str, str]] = {}

    def corrected(dtype: DType) -> tuple[str, str]:
        """lr / (1 − β₁ᵗ) and √(1 − β₂ᵗ)."""
        if dtype not in corrections:
            now = []
            for name, beta in zip(_CORRECTIONS, (n.beta1, n.beta2), strict=True):
                c = kept(f"{name}.{dtype.value}", dtype, ())
                shrunk = d.call("mul", [c, ScalarArg(beta)], dtype, ())
                now.append(d.call("add", [shrunk, ScalarArg(1 - beta)], dtype, (), {"alpha": 1}))
                state.append(State(c, now[-1]))
            rate = d.call("div", [ScalarArg(n.lr), now[0]], dtype, ())
            corrections[dtype] = rate, d.call("sqrt", [now[1]], dtype, ())
        return corrections[dtype]

    for b, g in trained:
        v = d.values[b.value]

        def op(name: str, a: Arg, c: Arg, dtype: DType = v.dtype, shape: Any = v.shape, **attrs: Any) -> str:
            return d.call(name, [a] if c is None else [a, c], dtype, shape, attrs)

        rate, root = corrected(v.dtype)
        first = kept(_FIRST + b.name, v.dtype, v.shape)
        second = kept(_SECOND + b.name, v.dtype, v.shape)
        m = op("add", op("mul", first, ScalarArg(n.beta1)), g, alpha=1 - n.beta1)
        s = op("add", op("mul", second, ScalarArg(n.beta2)), op("mul", g, g), alpha=1 - n.beta2)
        scale = op("add", op("div", op("sqrt", s, None), root), ScalarArg(n.eps), alpha=1)
        step = op("mul", op("div", m, scale), rate)
        new = op("sub", op("mul", b.value, ScalarArg(1 - n.lr * n.decay)), step, alpha=1)
        state += [State(first, m), State(second, s), State(b.value, new)]
    return tuple(state), zeros


def _untied(p: Program) -> Program:
    """The program with one weight where several names share memory: its gradient is the sum of theirs."""
    first = {b.name: b.value for b in p.weights}
    same = {b.value: first[b.tie] for b in p.weights if b.tie is not None}
    if not same:
        return p

    def arg(a: Arg) -> Arg:
        if isinstance(a, tuple):
            return tuple(arg(x) for x in a)
        return same.get(a, a) if isinstance(a, str) else a

    def one(node: Node) -> Node:
        match node:
            case Call():
                return replace(node, inputs=tuple(arg(a) for a in node.inputs))
            case View() | Read() | Copy():
                return replace(node, base=same.get(node.base, node.base))
        return node

    return replace(
        p,
        nodes=tuple(one(n) for n in p.nodes),
        weights=tuple(b for b in p.weights if b.tie is None),
        values={k: v for k, v in p.values.items() if k not in same},
    )
