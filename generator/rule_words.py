"""What it means, in words, that a `require` does not hold: for the commonest forms, from the bound rule alone.

A caller then reads what is wrong with the call before the rule, which is the author's.  Where a form is not one of
these there are no words, and the rule speaks for itself.

May import: bound, expr, errors.  To add a form: a case in `words`.
"""

from __future__ import annotations

from .bound import BoundOp, Rule
from .expr import Bin, Call, Cmp, Expr, Fold, Load, Name, Num, walk

__all__ = ["words"]

#: `0 <= x` is `x >= 0`.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
_BOUNDS = {
    ">": "above",
    ">=": "at least",
    "<": "below",
    "<=": "at most",
    "!=": "another number than",
}


def words(rule: Rule, op: BoundOp) -> str:
    """What does not hold, such as "integer division by zero in 'b'"; empty where the form is not known."""
    expr = rule.expr
    every = isinstance(expr, Fold) and expr.kind == "all"
    if isinstance(expr, Fold) and every:
        expr = expr.body
    if not isinstance(expr, Cmp) or expr.op not in _TURNED:
        return ""
    left, relation, right = expr.left, expr.op, expr.right
    if isinstance(left, Num):
        left, relation, right = right, _TURNED[relation], left
    if not isinstance(right, Num):
        return ""
    match left:
        case Load(tensor=name):
            if relation == "!=" and right.value == 0 and _divides_by(op, name):
                return f"integer division by zero in '{name}'"
            if relation == ">=" and right.value == 0:
                return f"'{name}' holds a number below 0"
        case Name(id=name, kind="attr"):
            return f"{'every number of ' if every else ''}'{name}' must be {_BOUNDS[relation]} {right.value}"
        case Name(id=name, kind="dim" | "pack") | Fold(kind="prod", body=Name(id=name, kind="pack")):
            if relation == ">" and right.value == 0:
                reduced = any(_is(axis.extent, name) for s in op.body for _, axis in s.reduced)
                return f"{'nothing to reduce, ' if reduced else ''}an axis has length 0"
    return ""


def _is(extent: Expr, name: str) -> bool:
    return isinstance(extent, Name) and extent.id == name


def _divides_by(op: BoundOp, name: str) -> bool:
    """Whether a statement divides by this tensor: a rule that refuses its zeros is then about that."""
    for s in op.body:
        for x in walk(s.assign.value):
            by = x.right if isinstance(x, Bin) and x.op in ("/", "//", "%") else None
            if isinstance(x, Call) and x.fn == "fmod":
                by = x.args[1]
            if by is not None and any(isinstance(y, Load) and y.tensor == name for y in walk(by)):
                return True
    return False
