"""YAML text to nodes that know where they stand, and what must not be read at all.

A spec is written by strangers and machines: size, nesting, anchors, tags and duplicate keys are refused here, before
anything is built.  Every scalar knows the line and column of each of its characters, whatever its style, so that an
error inside an expression points at the character.

May import: errors, expr (spans).  To read a new kind of value: a method of `Node`.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from .errors import Place, SpecError
from .expr import MAX_TEXT, Locate, Span

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Node", "Text", "read_documents", "read_text"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
MAX_NODES = 20_000

_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+]?)\.?(inf|Inf|INF)\Z")
_NAN = re.compile(r"\.?(nan|NaN|NAN)\Z")


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a scalar: its characters, and where each one (and the end) stands, as (line, column) from 1."""

    value: str
    file: str
    at: tuple[tuple[int, int], ...]

    def __getitem__(self, part: slice) -> Text:
        start, stop, _ = part.indices(len(self.value))
        return Text(self.value[start:stop], self.file, self.at[start : max(stop, start) + 1])

    def strip(self) -> Text:
        lead = len(self.value) - len(self.value.lstrip())
        return self[lead : max(lead, len(self.value.rstrip()))]

    @property
    def span(self) -> Span:
        (line, col), (end_line, end) = self.at[0], self.at[-1]
        return Span(self.file, line, col, end if end_line == line and end > col else col + 1)

    @property
    def place(self) -> Place:
        s = self.span
        return Place(s.file, s.line, s.col, None, max(s.end - s.col, 1))

    def locate(self) -> Locate:
        """For the expression parser: (line, column) within this text to line and column of the file."""
        starts = [0]
        for line in self.value.split("\n"):
            starts.append(starts[-1] + len(line) + 1)

        def where(row: int, col: int) -> tuple[int, int]:
            return self.at[min(starts[min(row, len(starts)) - 1] + col, len(self.at) - 1)]

        return where


@dataclass(slots=True)
class Node:
    """A YAML node: `kind` is `scalar`, `list` or `map`."""

    kind: str
    file: str
    line: int
    col: int
    text: Text | None = None
    quoted: bool = False
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return self.text.place if self.text and self.text.value else Place(self.file, self.line, self.col)

    @property
    def span(self) -> Span:
        return self.text.span if self.text else Span(self.file, self.line, self.col, self.col + 1)

    @property
    def string(self) -> str:
        """The text of a scalar."""
        assert self.text is not None
        return self.text.value

    def get(self, key: str) -> Node | None:
        """The value under `key` of a map."""
        for k, v in self.pairs:
            if k.string == key:
                return v
        return None

    @property
    def is_null(self) -> bool:
        return self.kind == "scalar" and not self.quoted and self.string in ("", "~", "null", "Null", "NULL")

    def scalar(self) -> bool | int | float | str | None:
        """The value of a scalar by the YAML 1.2 core schema; bare `inf`, `-inf` and `nan` are numbers too."""
        s = self.string
        if self.quoted:
            return s
        if self.is_null:
            return None
        if s in ("true", "True", "TRUE"):
            return True
        if s in ("false", "False", "FALSE"):
            return False
        if _INT.match(s) and len(s) < 100:
            return int(s, 0) if s[:2] in ("0x", "0o") else int(s)
        if _FLOAT.match(s):
            return float(s)
        if m := _INF.match(s):
            return -math.inf if m[1] == "-" else math.inf
        if _NAN.match(s):
            return math.nan
        return s

    def plain(self) -> Any:
        """The node as plain data: dict, list, scalar."""
        if self.kind == "list":
            return [i.plain() for i in self.items]
        if self.kind == "map":
            return {k.string: v.plain() for k, v in self.pairs}
        return self.scalar()

    def walk(self) -> Iterator[Node]:
        yield self
        for child in (*self.items, *(n for pair in self.pairs for n in pair)):
            yield from child.walk()


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a spec file; refuses what is not a regular UTF-8 file of at most `MAX_BYTES`."""
    p = Path(path)
    where = Place(str(path))
    try:
        if p.is_dir():
            raise SpecError("this is a folder, not a spec file", place=where)
        status = p.stat()
        if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for its writer
            raise SpecError("this is no regular file, and a spec is one", place=where)
        size = status.st_size
        if size > MAX_BYTES:
            raise SpecError(
                f"a spec file of {size} bytes (limit {MAX_BYTES})",
                place=where,
                hint="one operator a file; data does not belong into a spec",
            )
        with p.open("rb") as f:  # it may grow while it is read
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise SpecError(f"cannot read this file: {e.strerror or e}", place=where) from None
    if len(data) > MAX_BYTES:
        raise SpecError(f"a spec file of more than {MAX_BYTES} bytes", place=where)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SpecError("not UTF-8 text", place=Place(str(path), line), hint="is this a spec file?") from None


def read_documents(text: str, file: str) -> list[Node]:
    """The YAML documents of `text`.  Raises `SpecError` with a place for anything that is not plain YAML 1.2."""
    if len(text) > MAX_BYTES:
        raise SpecError(f"a spec of {len(text)} characters (limit {MAX_BYTES})", place=Place(file))
    text = text.replace("\r\n", "\n")
    try:
        return list(_Reader(text, file).documents())
    except MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        problem = str(e.problem or e.context or "not YAML").strip().splitlines()[0]
        if _under(text, place) == "\t":
            problem = "a tab stands here, and YAML takes spaces"
        raise SpecError(
            f"not YAML: {problem}", place=place.with_text(text), hint=_yaml_hint(text, place)
        ) from None
    except YAMLError as e:
        said = f"not YAML: {str(e).strip().splitlines()[0]}"
        raise SpecError(said, place=_character(text, file, getattr(e, "position", None))) from None
    except RecursionError:
        raise SpecError("nested too deeply", place=Place(file)) from None


def _character(text: str, file: str, position: int | None) -> Place:
    """The place of the character that the reader stumbled over."""
    if position is None:
        return Place(file)
    line = text.count("\n", 0, position) + 1
    return Place(file, line, position - (text.rfind("\n", 0, position) + 1) + 1).with_text(text)


def _under(text: str, place: Place) -> str:
    """The character at a place; empty where there is none."""
    lines = text.split("\n")
    line = lines[place.line - 1] if 1 <= place.line <= len(lines) else ""
    return line[place.column - 1 : place.column]


def _yaml_hint(text: str, place: Place) -> str | None:
    lines = text.split("\n")
    line = lines[place.line - 1] if 1 <= place.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "YAML is indented by spaces, not tabs"
    if _under(text, place) == "\t":
        return "write a space after the `:`"
    if "[" in line or "*" in line or ": " in line:
        return 'quote texts that hold brackets, stars or colons: x: "T[*B, N]"'
    return None


#: What libyaml (YAML 1.1) takes for a break or a blank, and YAML 1.2 does not.
_OLD_BREAKS = re.compile("[\t\x85\u2028\u2029\ufeff]")


def _events(text: str) -> Iterable[Any]:
    """The parser's events.  libyaml reads what is plainly well-formed, and much faster; of all else the pure
    parser is asked, which knows YAML 1.2 and says better what is wrong.  On what both take, they agree (tested)."""
    return _quick(text) or YAML(typ="safe", pure=True).parse(text)


def _quick(text: str) -> list[Any] | None:
    """libyaml's events; None where it is missing, refuses, or could see it otherwise than YAML 1.2."""
    import yaml

    if not hasattr(yaml, "CLoader") or _OLD_BREAKS.search(text):
        return None
    found: list[Any] = []
    depth = 0
    try:
        for e in yaml.parse(text, Loader=yaml.CLoader):
            name = type(e).__name__
            depth += name.endswith(("SequenceStartEvent", "MappingStartEvent"))
            depth -= name.endswith(("SequenceEndEvent", "MappingEndEvent"))
            hollow = name == "ScalarEvent" and not e.value and not e.style
            if depth > MAX_DEPTH or len(found) > 3 * MAX_NODES or hollow or getattr(e, "anchor", None):
                return None
            found.append(e)
    except yaml.YAMLError:
        return None
    return found


class _Reader:
    """Builds nodes straight from parser events, so that limits hold before anything is composed."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.lines = text.split("\n")
        self.nodes = 0

    def fail(self, what: str, mark: Any, hint: str | None = None) -> SpecError:
        place = Place(self.file, mark.line + 1, mark.column + 1)
        return SpecError(what, place=place.with_text(self.text), hint=hint)

    def documents(self) -> Iterator[Node]:
        stack: list[tuple[Node, list[Node]]] = []  # open collections with the children read so far
        root: Node | None = None
        for e in _events(self.text):
            match type(e).__name__:
                case "DocumentStartEvent":
                    root = None
                    if e.tags:
                        raise self.fail("tag directives are not in the language", e.start_mark)
                    continue
                case "DocumentEndEvent":
                    if root is not None and not root.is_null:
                        yield root
                    continue
                case "SequenceEndEvent" | "MappingEndEvent":
                    node, parts = stack.pop()
                    self.close(node, parts)
                case "AliasEvent":
                    raise self.fail(
                        "aliases (`*name`) are not in the language",
                        e.start_mark,
                        'write it out, or quote a pack: "*B"',
                    )
                case "ScalarEvent" | "SequenceStartEvent" | "MappingStartEvent" as kind:
                    node = self.open(e)
                    if kind != "ScalarEvent":
                        stack.append((node, []))
                        if len(stack) > MAX_DEPTH:
                            raise self.fail(f"nested deeper than {MAX_DEPTH}", e.start_mark)
                        continue
                case _:
                    continue
            if stack:
                stack[-1][1].append(node)
            else:
                root = node

    def open(self, e: Any) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.fail(f"more than {MAX_NODES} values in one file", e.start_mark)
        if e.anchor is not None:
            raise self.fail("anchors (`&name`) are not in the language", e.start_mark, "write it out")
        if e.tag is not None and str(e.tag) != "!":
            raise self.fail(f"tags (`{str(e.tag)[:40]}`) are not in the language", e.start_mark)
        kind = {"ScalarEvent": "scalar", "SequenceStartEvent": "list", "MappingStartEvent": "map"}[
            type(e).__name__
        ]
        node = Node(kind, self.file, e.start_mark.line + 1, e.start_mark.column + 1)
        if kind == "scalar":
            if len(e.value) > MAX_TEXT:
                raise self.fail(f"a text of {len(e.value)} characters (limit {MAX_TEXT})", e.start_mark)
            node.text = Text(e.value, self.file, tuple(self.positions(e)))
            node.quoted = e.style is not None and e.style != ""
        return node

    def close(self, node: Node, parts: list[Node]) -> None:
        if node.kind == "list":
            node.items = parts
            return
        seen: dict[str, Node] = {}
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if key.kind != "scalar":
                raise SpecError(
                    "a key must be a name",
                    place=Place(self.file, key.line, key.col).with_text(self.text),
                    hint='quote texts that hold brackets: x: "T[N]"',
                )
            if key.string in seen:
                raise SpecError(
                    f"`{key.string}` is given twice (first in line {seen[key.string].line})",
                    place=key.place.with_text(self.text),
                )
            if key.string == "<<" and not key.quoted:
                raise SpecError("merge keys are not in the language", place=key.place.with_text(self.text))
            seen[key.string] = key
            node.pairs.append((key, value))

    def positions(self, e: Any) -> Iterator[tuple[int, int]]:
        """(line, column) of each character of a scalar's value, then of its end."""
        value: str = e.value
        if e.style in ("|", ">"):
            yield from self.block_positions(e)
            return
        src, i, stop = self.text, e.start_mark.index, e.end_mark.index
        line, col = e.start_mark.line + 1, e.start_mark.column + 1

        def step(n: int) -> None:
            nonlocal i, line, col
            for _ in range(n):
                if i < len(src) and src[i] == "\n":
                    line, col = line + 1, 1
                else:
                    col += 1
                i += 1

        if e.style:
            step(1)
        for c in value:
            # A fold: blanks, a line break and indentation stand for one space (or n - 1 breaks).
            if c in " \n" and (m := _FOLD.match(src, i, stop)):
                yield line, col
                if c == " " or m[0].count("\n") <= 1:
                    step(len(m[0]))
                else:
                    step(m[0].index("\n") + 1)
                continue
            if e.style == '"' and src[i : i + 1] == "\\":
                while m := _CONTINUED.match(src, i, stop):
                    step(len(m[0]))
                yield line, col
                m = _ESCAPE.match(src, i, stop)
                step(len(m[0]) if m else 1)
                continue
            yield line, col
            step(2 if e.style == "'" and src[i : i + 2] == "''" else 1)
        yield line, col

    def block_positions(self, e: Any) -> Iterator[tuple[int, int]]:
        """Of a literal block exact; of a folded one the start of the block's first line, which is near enough."""
        row = e.start_mark.line + 1  # index of the first content line in self.lines
        if e.style == ">":
            yield from ((row + 1, 1) for _ in range(len(e.value) + 1))
            return
        last = (row + 1, 1)
        for text in e.value.split("\n")[: -1 if e.value.endswith("\n") else None]:
            source = self.lines[row] if row < len(self.lines) else ""
            col = max(len(source) - len(text), 0) + 1
            for k in range(len(text)):
                yield row + 1, col + k
            last = (row + 1, col + len(text))
            yield last
            row += 1
        if e.value.endswith("\n") or not e.value:
            yield last


_FOLD = re.compile(r"[ \t]*\n[ \t\n]*")
_CONTINUED = re.compile(r"\\[ \t]*\n[ \t]*")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.S)
