"""The gradient that a spec promises at a key: which inputs have one, and its program, declared or derived.

    differentiable(spec, key)      the inputs of `grad: {wrt: …}` that are floats there; empty when it promises none
    adjoint_of(spec, key)          the program `<op>.grad` (docs/internals.md, "A gradient program")

May import: spec, bind, bound, normal, grad, types, errors.  To add a kind of gradient: a case of `adjoint_of`.
"""

from __future__ import annotations

from .bind import bind, bind_grad
from .bound import BindKey, BoundOp
from .errors import OpwrightError
from .grad import adjoint
from .normal import normalise, verify
from .spec import OpSpec
from .types import DType

__all__ = ["NoGradientError", "adjoint_of", "differentiable", "normal"]


class NoGradientError(OpwrightError):
    """The gradient is asked for of an operator that has none."""


def normal(spec: OpSpec, key: BindKey) -> BoundOp:
    """Spec → Bound → Normal, verified."""
    op = normalise(bind(spec, key))
    verify(op)
    return op


def differentiable(spec: OpSpec, key: BindKey) -> tuple[str, ...]:
    """The inputs whose gradient the spec promises at this key; empty when it has none there."""
    g = spec.grad
    if g is None or g.none is not None or not (g.derive or g.compute is not None):
        return ()
    types, lengths, present = dict(key.types), dict(key.lengths), dict(key.present)

    def counts(name: str) -> bool:
        t = spec.inputs[name]
        there = lengths.get(name, 0) > 0 if t.is_list else present.get(name, True)
        return there and DType(types.get(t.dtype, t.dtype)).is_float

    return tuple(n for n in g.wrt if counts(n))


def adjoint_of(spec: OpSpec, key: BindKey) -> BoundOp:
    """The gradient's program at a key, as Normal: declared where the spec declares it, else derived."""
    g = spec.grad
    wrt = differentiable(spec, key)
    if g is None or not wrt:
        reason = (
            g.none
            if g is not None and g.none
            else "it promises none for these dtypes"
            if g
            else "its spec has no `grad`"
        )
        raise NoGradientError(f"`{spec.op}` has no gradient: {reason}", place=spec.place)
    if g.compute is not None:
        op = normalise(bind_grad(spec, key))
        verify(op)
        return op
    return adjoint(normal(spec, key), wrt, g.save)
