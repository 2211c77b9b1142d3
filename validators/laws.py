"""Laws (`test.checks`): what must hold of every answer, evaluated by the oracle on its own balls.

`==` means within the bound: a comparison that the radii leave open holds.  Places where a side is not finite are left
out.  A law is bound as an operator of its own, whose inputs are the operator's inputs and outputs.

May import: generator.{bind, bound, expr, spec}, ball, oracle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..generator.bind import bind
from ..generator.bound import BindKey, BoundOp
from ..generator.expr import (
    Assign,
    Call,
    Cmp,
    Decl,
    Expr,
    Load,
    Name,
    Not,
    Num,
    Or,
    Reduce,
    Star,
    Target,
    children,
    transform,
)
from ..generator.spec import OpSpec, Require, TensorType
from .ball import Ball
from .harness import Array
from .oracle import evaluate

__all__ = ["holds", "law_op"]


def _free(x: Expr, bound: frozenset[str], names: frozenset[str], out: dict[str, Decl]) -> None:
    """Index variables that no reduction inside declares, in order of appearance; `names` are dims and attributes."""
    if isinstance(x, Reduce):
        bound = bound | {d.id for d in x.indices}
    if isinstance(x, Load):
        for e in x.index:
            match e:
                case Star(x=Name(id=n)):
                    if n not in bound:
                        out.setdefault(n, Decl(n, True))
                case Name(id=n):
                    if n not in bound and n not in names:
                        out.setdefault(n, Decl(n, False))
                case _:
                    _free(e, bound, names, out)
        return
    for c in children(x):
        _free(c, bound, names, out)


def _where_finite(x: Expr) -> Expr | None:
    if not isinstance(x, Cmp):
        return None
    sides = [s for s in (x.left, x.right) if not isinstance(s, Num)]
    return Or((*(Not(Call("isfinite", (s,))) for s in sides), x)) if sides else None


def law_op(spec: OpSpec, key: BindKey, law: Require) -> BoundOp:
    """The law as an operator with one output, `holds`.  Raises what `bind` raises."""
    free: dict[str, Decl] = {}
    _free(law.expr, frozenset(), frozenset((*spec.attrs, *spec.let)), free)
    value = transform(law.expr, _where_finite)
    if free:
        value = Reduce("all", tuple(free.values()), value)
    outputs = {n: replace(t, aux=False) for n, t in spec.outputs.items()}
    check = replace(
        spec,
        op=f"{spec.op}.law",
        inputs={**spec.inputs, **outputs},
        outputs={"holds": TensorType("bool", ())},
        require=(),
        sizes={},
        inplace=(),
        grad=None,
        compute=(Assign(Target("holds", (), span=law.span), "=", value, span=law.span),),
    )
    return bind(check, key)


def holds(
    op: BoundOp, arrays: Mapping[str, Array], outputs: Mapping[str, Ball], attrs: Mapping[str, Any]
) -> bool:
    """Whether a law holds of these inputs and outputs, or cannot be told not to."""
    ball = evaluate(op, {**arrays, **outputs}, attrs)["holds"]
    return bool(ball.value) or bool(ball.radius > 0)
