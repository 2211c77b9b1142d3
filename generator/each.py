"""Families of operators that differ in a few words: one document with `each:` stands for one spec per entry.

    op: $op
    each:
      sin: {doc: Sine of an angle in radians.}
      rsqrt: {doc: Reciprocal square root., f: rsqrt, aten: [aten.rsqrt.default]}
    compute: |
      y[*B] = T($f(A(x[*B])))

`$op` is the entry's key.  An entry's fields that are fields of a spec are put in (replacing the document's own); its
other fields are placeholders for `$name` in any text of the document.

May import: source, errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .errors import SpecError, did_you_mean
from .source import Node, Text

__all__ = ["expand_each"]

_PLACE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
MAX_ENTRIES = 200


def expand_each(root: Node, fields: Collection[str]) -> list[Node]:
    """The documents that `root` stands for: itself when it has no `each`.  Raises SpecError with a place."""
    each = root.get("each") if root.kind == "map" else None
    if each is None:
        return [root]
    if each.kind != "map" or not each.pairs:
        raise SpecError(
            "`each` maps names of operators to what differs",
            place=each.place,
            hint="each: {sin: {doc: Sine.}, cos: {doc: Cosine.}}",
        )
    if len(each.pairs) > MAX_ENTRIES:
        raise SpecError(f"`each` has {len(each.pairs)} entries (limit {MAX_ENTRIES})", place=each.place)
    out: list[Node] = []
    for key, entry in each.pairs:
        if entry.kind != "map" and not entry.is_null:
            raise SpecError(f"`{key.string}` must be a mapping", place=entry.place)
        words: dict[str, Text] = {"op": key.text} if key.text else {}
        puts: dict[str, Node] = {}
        for k, v in entry.pairs:
            if k.string in fields:
                puts[k.string] = v
            elif v.kind != "scalar" or v.text is None:
                raise SpecError(f"placeholder `{k.string}` must be a text", place=v.place)
            else:
                words[k.string] = v.text
        used: set[str] = set()
        pairs: list[tuple[Node, Node]] = []
        for k, v in root.pairs:
            if k.string == "each":
                continue
            put = puts.pop(k.string, None)
            pairs.append((k, _put(put if put is not None else v, words, used)))
        for name, v in puts.items():
            label = next(k for k, _ in entry.pairs if k.string == name)
            pairs.append((label, _put(v, words, used)))
        unused = set(words) - used - {"op"}
        if unused:
            name = sorted(unused)[0]
            at = next(k for k, _ in entry.pairs if k.string == name)
            raise SpecError(
                f"`${name}` stands nowhere in this document",
                place=at.place,
                hint=did_you_mean(name, fields, what="fields of a spec"),
            )
        out.append(Node("map", root.file, key.line, key.col, pairs=pairs))
    return out


def _put(node: Node, words: dict[str, Text], used: set[str]) -> Node:
    if node.kind == "scalar":
        if node.text is None or "$" not in node.text.value:
            return node
        return Node("scalar", node.file, node.line, node.col, _text(node.text, words, used), node.quoted)
    return Node(
        node.kind,
        node.file,
        node.line,
        node.col,
        items=[_put(i, words, used) for i in node.items],
        pairs=[(_put(k, words, used), _put(v, words, used)) for k, v in node.pairs],
    )


def _text(text: Text, words: dict[str, Text], used: set[str]) -> Text:
    """Replaced characters keep the place of their placeholder."""
    chars: list[str] = []
    at: list[tuple[int, int]] = []
    pos = 0
    for m in _PLACE.finditer(text.value):
        name = m[1]
        if name not in words:
            raise SpecError(
                f"`${name}` is no placeholder of this entry",
                place=text[m.start() : m.end()].place,
                hint=did_you_mean(name, words, what="placeholders"),
            )
        used.add(name)
        chars.append(text.value[pos : m.start()])
        at += text.at[pos : m.start()]
        chars.append(words[name].value)
        at += [text.at[m.start()]] * len(words[name].value)
        pos = m.end()
    chars.append(text.value[pos:])
    at += text.at[pos:]
    return Text("".join(chars), text.file, tuple(at))
