"""Shapes of inputs as the documentation of a `forward` says them.

    said = described(module.forward, extent)     {'marks': Said((4,), 'int'), …}; `extent`: a field → its number

transformers documents an input as "(`torch.LongTensor` of shape `(batch_size, num_questions)`)": an extent is a
number, what a configuration calls so, a word that all models use (`_WORDS`), or an expression of those.

May import: the standard library.  To teach a word: a line in `_WORDS`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Said", "described"]


@dataclass(frozen=True)
class Said:
    """A shape, and whether it holds `int`, `bool` or `float`."""

    shape: tuple[int, ...]
    kind: str


_INPUT = re.compile(
    r"^\s*(?P<name>\w+) \(`(?:torch\.)?(?P<type>\w*)`?,? of shape `?\((?P<shape>[^()`]*)\)`?", re.MULTILINE
)
_KINDS = {"LongTensor": "int", "IntTensor": "int", "ByteTensor": "int", "BoolTensor": "bool"}
#: (what an extent is called, its number): the first that matches.
_WORDS: tuple[tuple[str, int], ...] = (
    (r"^(batch(_size)?|bs|bsz|b)$", 2),
    (r"(target|decoder).*(len|length)$", 8),
    (r"(seq|sequence|text|encoder|source|src|max).*(len|length)$|^(seq|length|s)$", 16),
    (r"^(num_)?channels?$", 3),
    (r"images?$|cameras?$|objects?$", 1),
    (r"^(image_|img_)?(height|width|h|w)$|image_size$", 64),
    (r"frames?$", 4),
    (r"patches$", 16),
    (r"^(hidden_size|hidden_dim|embed_dim|d_model|dim)$", 64),
    (r"^(num_|n_|max_num_|nb_)", 2),
)


def described(forward: Any, extent: Callable[[str], Any]) -> dict[str, Said]:
    """The inputs whose shapes the documentation says in words that are known."""
    out: dict[str, Said] = {}
    for found in _INPUT.finditer(getattr(forward, "__doc__", None) or ""):
        name = found["name"]
        texts = [t for t in (x.strip() for x in found["shape"].split(",")) if t]
        extents = [_number(t, extent) for t in texts]
        if name not in out and extents and None not in extents:
            out[name] = Said(tuple(n for n in extents if n is not None), _KINDS.get(found["type"], "float"))
    return out


def _number(text: str, extent: Callable[[str], Any]) -> int | None:
    try:
        found = _value(ast.parse(text, mode="eval").body, extent)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None
    return found if found is not None and 0 < found < 1 << 16 else None


def _value(node: ast.expr, extent: Callable[[str], Any]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _word(name, extent)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, extent), _value(right, extent)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() | ast.Div():
                    return a // b
    return None


def _word(name: str, extent: Callable[[str], Any]) -> int | None:
    known = next((n for pattern, n in _WORDS[:3] if re.search(pattern, name)), None)
    if known is not None:  # of the example, not of the model
        return known
    held = extent(name)
    if isinstance(held, int):
        return held
    return next((n for pattern, n in _WORDS[3:] if re.search(pattern, name)), None)
