"""Specs: YAML to frozen, checked `OpSpec`s, every expression parsed, every mistake with its place.

What can be said without knowing dtypes, ranks or attribute values is checked here (names, marks, counts of indices,
what is written, what `aten:` maps to); the rest is `bind.py`'s.  Several mistakes are reported in one run.

May import: errors, expr, source, types.  To add a field: a row in `FIELDS` (and in the table of its parent), its place
in `OpSpec`, its reader in `_Reader`, its schema in `schema.py`; a field that is meaning joins `OpSpec.meaning_text`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from .each import expand_each
from .errors import Place, SpecError, did_you_mean, raise_together
from .source import Node, read_documents, read_text
from .spec_model import (
    FIELDS,
    AtenEntry,
    AttrDecl,
    DimDecl,
    DimText,
    GradDecl,
    LetDecl,
    Only,
    OnnxEntry,
    OpSpec,
    Require,
    TensorType,
    TestDecl,
    ViewDecl,
)
from .spec_read import SpecReader, parse_dim, parse_type

__all__ = [
    "AtenEntry",
    "AttrDecl",
    "DimDecl",
    "DimText",
    "GradDecl",
    "LetDecl",
    "Only",
    "OnnxEntry",
    "OpSpec",
    "Registry",
    "Require",
    "TensorType",
    "TestDecl",
    "ViewDecl",
    "aten_row",
    "load_spec",
    "load_spec_text",
    "parse_dim",
    "parse_type",
]


def load_spec(path: str | os.PathLike[str], *, family: str = "") -> list[OpSpec]:
    """The specs of a file, one a YAML document.  Raises `SpecError`, further mistakes in its `.others`.

    A text that was read before in this process is not parsed again: specs are frozen, and a workbench reads all of
    its files for each command.
    """
    return list(_parsed(read_text(path), os.fspath(path), family))


@lru_cache(maxsize=512)
def _parsed(text: str, file: str, family: str) -> tuple[OpSpec, ...]:
    return tuple(load_spec_text(text, file, family=family))


def load_spec_text(text: str, file: str = "<text>", *, family: str = "") -> list[OpSpec]:
    """As `load_spec`, for a text that stands in `file` (which need not exist)."""
    errors: list[SpecError] = []
    specs: list[OpSpec] = []
    documents = read_documents(text, file)
    if not documents:
        raise SpecError(
            "no operator in this file", place=Place(file), hint="`op: name`, then inputs, outputs, compute"
        )
    expanded: list[Node] = []
    for node in documents:
        try:
            expanded += expand_each(node, FIELDS)
        except SpecError as e:
            errors.append(e)
    for node in expanded:
        reader = SpecReader(node, file, family)
        spec = reader.read()
        errors.extend(reader.errors)
        if spec is not None:
            specs.append(spec)
    unique: dict[tuple[object, ...], SpecError] = {}  # specs of one `each` share their mistakes
    for mistake in (single for error in errors for single in error.errors):
        if mistake.place is not None and mistake.place.text is None:
            mistake.place = mistake.place.with_text(text)
        if isinstance(mistake, SpecError):
            unique.setdefault((mistake.place, mistake.message), mistake)
    raise_together(unique.values())
    return specs


class Registry:
    """Operators by name and by overload."""

    def __init__(self, specs: Iterable[OpSpec] = ()) -> None:
        self._ops: dict[str, OpSpec] = {}
        self._aten: dict[str, list[tuple[OpSpec, AtenEntry]]] = {}
        for spec in specs:
            self.add(spec)

    @classmethod
    def load(cls, dirs: Iterable[str | os.PathLike[str]]) -> Registry:
        """All `*.yaml` below `dirs`; the folder a file lies in is the family.  A later directory replaces operators of
        an earlier one by name.  Raises one `SpecError` with the mistakes of all files."""
        out, errors = cls.readable(dirs)
        raise_together(errors)
        return out

    @classmethod
    def readable(
        cls,
        dirs: Iterable[str | os.PathLike[str]],
        known: Callable[[str], bool] = lambda _name: True,
    ) -> tuple[Registry, list[SpecError]]:
        """What reads of the same, and the mistakes of the rest: one file must not take the others down.

        known: whether an operator stood before.  Of two that claim one overload, the newcomer is the one at fault.
        """
        out = cls()
        errors: list[SpecError] = []
        for top in dirs:
            root = Path(top)
            seen: dict[str, OpSpec] = {}
            for path in sorted(root.rglob("*.yaml")) if root.is_dir() else [root]:
                family = path.parent.name if path.parent != root else ""
                try:
                    specs = load_spec(path, family=family)
                except SpecError as e:
                    errors.append(e)
                    continue
                for spec in specs:
                    if other := seen.get(spec.op):
                        errors.append(
                            SpecError(
                                f"`{spec.op}` is declared twice (also in {other.place})", place=spec.place
                            )
                        )
                        continue
                    seen[spec.op] = spec
            for spec in sorted(seen.values(), key=lambda s: not known(s.op)):
                try:
                    out.add(spec)
                except SpecError as e:
                    errors.append(e)
        return out, errors

    def add(self, spec: OpSpec) -> None:
        """Add or replace an operator.  Raises `SpecError` when another operator claims the same calls of an overload:
        two may share one only where both demand a value of the same argument, and different ones (`{only: …}`)."""
        if self._ops.get(spec.op):
            for rows in self._aten.values():
                rows[:] = [r for r in rows if r[0].op != spec.op]
        for entry in spec.aten:
            for other, theirs in self._aten.get(entry.overload, ()):
                if not _apart(entry, theirs):
                    raise SpecError(
                        f"`{entry.overload}` is already `{other.op}` ({other.place})",
                        place=entry.span.place if entry.span else spec.place,
                        hint="let each demand another value of one argument: {only: …}",
                    )
        self._ops[spec.op] = spec
        for entry in spec.aten:
            self._aten.setdefault(entry.overload, []).append((spec, entry))

    def __contains__(self, name: object) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self._ops)

    def get(self, name: str) -> OpSpec:
        """The operator of this name.  Raises `SpecError` that says what is near."""
        try:
            return self._ops[name]
        except KeyError:
            raise SpecError(
                f"no operator `{name}`", hint=did_you_mean(name, self._ops, what="operators")
            ) from None

    def all(self) -> list[OpSpec]:
        """All operators, by name."""
        return [self._ops[k] for k in sorted(self._ops)]

    def by_aten(self, overload: str) -> list[tuple[OpSpec, AtenEntry]]:
        """The operators that claim an overload such as `aten.add.Tensor`, with their entries; the first that takes a
        call's arguments serves it."""
        return list(self._aten.get(overload, ()))

    def aten_table(self) -> dict[str, list[dict[str, object]]]:
        """What `ow.call_aten` reads (docs/internals.md, "`aten:` entries"): rows by overload."""
        return {o: [aten_row(*r) for r in rows] for o, rows in sorted(self._aten.items()) if rows}


def _apart(a: AtenEntry, b: AtenEntry) -> bool:
    """Whether no call can satisfy both entries."""
    mine, theirs = dict(a.map or ()), dict(b.map or ())
    return any(
        isinstance(t, Only) and isinstance(u := theirs.get(arg), Only) and t.value != u.value
        for arg, t in mine.items()
    )


def aten_row(spec: OpSpec, entry: AtenEntry) -> dict[str, object]:
    """One row of the table: JSON data."""
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    returns = entry.returns or tuple(n for n, t in spec.outputs.items() if not t.aux)
    return {
        "op": spec.op,
        "map": [
            [arg, {"only": to.value} if isinstance(to, Only) else list(to) if isinstance(to, tuple) else to]
            for arg, to in pairs
        ],
        "set": dict(entry.set),
        "returns": list(returns),
    }
