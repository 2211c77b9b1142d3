"""Specs: YAML to frozen, checked `OpSpec`s, every expression parsed, every mistake with its place.

What can be said without knowing dtypes, ranks or attribute values is checked here (names, marks, counts of indices,
what is written, what `aten:` maps to); the rest is `bind.py`'s.  Several mistakes are reported in one run.

May import: errors, expr, source, types.  To add a field: a row in `FIELDS` (and in the table of its parent), its place
in `OpSpec`, its reader in `_Reader`, its schema in `schema.py`; a field that is meaning joins `OpSpec.meaning_text`.
"""

from __future__ import annotations

import hashlib
import keyword
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .errors import Place, SpecError, did_you_mean, raise_together
from .expr import (
    FUNCTIONS,
    REDUCTIONS,
    Assign,
    Block,
    Call,
    Cmp,
    Decl,
    Expr,
    Fold,
    If,
    IsNone,
    Load,
    Name,
    Num,
    Reduce,
    Span,
    Star,
    Stmt,
    Str,
    TupleLit,
    children,
    parse_expr,
    parse_statements,
    show,
    show_block,
    walk,
)
from .source import Node, Text, read_documents, read_text
from .types import CATEGORIES, RULES, DType

__all__ = [
    "AtenEntry", "AttrDecl", "DimDecl", "DimText", "GradDecl", "LetDecl", "OnnxEntry", "Only", "OpSpec", "Registry",
    "Require", "TensorType", "TestDecl", "ViewDecl", "load_spec", "load_spec_text",
]

#: Fields of a spec, in the order in which people write them.
FIELDS: dict[str, str] = {
    "op": "name of the operator, `namespace::name` outside the built-in set",
    "doc": "one sentence: what it computes",
    "types": "type variables: a category, a dtype or a rule over others",
    "dims": "packs of axes: batch, broadcast or static",
    "let": "derived extents with a name; `*P` for a pack",
    "sizes": "extents that depend on data",
    "inputs": "tensors read, in call order",
    "attrs": "arguments that are not tensors, in call order",
    "outputs": "tensors written, in order",
    "variants": "`inplace: [x]`: inputs whose storage an output may take",
    "require": "what must hold of shapes, attributes or data",
    "view": "size, stride and offset, where the operator is a view",
    "compute": "the meaning, as statements",
    "grad": "the derivative: derived, declared, or why there is none",
    "lower": "how kernels are made; never changes an answer",
    "test": "cases, layouts, classes of values, laws",
    "bench": "workloads, from real models",
    "aten": "the PyTorch overloads that this is",
    "onnx": "the ONNX operators that this is",
    "reference": "a NumPy or SciPy function with this meaning",
    "also": "a second formulation, by another author",
    "oracle": "a Python function with this meaning, where no short one exists",
    "since": "version of the project that has it",
}
ATTR_FIELDS = ("type", "default", "static", "empty")
DIM_FIELDS = ("kind", "rank")
GRAD_FIELDS = ("wrt", "derive", "compute", "save", "against", "none", "order")
TEST_FIELDS = ("cases", "layouts", "values", "checks", "tol")
VIEW_FIELDS = ("size", "stride", "offset")
ATEN_FIELDS = ("overload", "map", "set", "returns")
ONNX_FIELDS = ("op", "since", "map", "set", "returns")
ATTR_KINDS = ("int", "float", "bool", "scalar", "axis", "axes", "ints", "floats", "dtype", "enum", "str")
DIM_KINDS = ("batch", "broadcast", "static")
LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "offset", "negative")
CONSTANTS = ("pi",)
#: YAML 1.1 readers turn these into booleans; ours does not, but other people's tools read specs too.
YAML11 = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"])
#: Rules that see the call, beside `RULES` over dtypes.
CALL_RULES = ("promote", "attr", "default")

_OP = re.compile(r"([a-z][a-z0-9_]*::)?[a-z][a-z0-9_]*\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_OVERLOAD = re.compile(r"[a-z_][a-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\Z")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")
_ORACLE = re.compile(r"[A-Za-z_][\w.]*(\.py)?:[A-Za-z_]\w*\Z")

# ------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class DimDecl:
    """A pack of axes.  `rank` is an expression over `len(attr)` and `rank(pack)`, or None: taken from the inputs."""

    kind: str
    rank: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class LetDecl:
    """A derived extent (`Q: expr`), or a derived pack of extents (`"*P": expr by lane`)."""

    name: str
    pack: bool
    expr: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class DimText:
    """One entry of a type: `N`, `*B`, `N@axis`, `1@dim if keepdim`, `*(I + 2)`, `N // 2 + 1 if onesided else N`."""

    expr: Expr
    pack: bool = False
    at: str | None = None
    keep_if: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def show(self) -> str:
        text = show(self.expr)
        if self.pack:
            text = f"*{text}" if isinstance(self.expr, Name) else f"*({text})"
        return text + (f"@{self.at}" if self.at else "") + (f" if {self.keep_if}" if self.keep_if else "")


@dataclass(frozen=True)
class TensorType:
    """`[optional|list|aux] D[dim, …]`; `dtype` is a type variable or a dtype's name."""

    dtype: str
    dims: tuple[DimText, ...]
    optional: bool = False
    is_list: bool = False
    aux: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def indexed(self) -> tuple[DimText, ...]:
        """The dims that a load or store gives an index to (all but `1@dim if keepdim`)."""
        return tuple(d for d in self.dims if d.keep_if is None)

    def show(self) -> str:
        marks = "".join(word + " " for word, on in
                        (("optional", self.optional), ("list", self.is_list), ("aux", self.aux)) if on)
        return f"{marks}{self.dtype}[{', '.join(d.show() for d in self.dims)}]"


@dataclass(frozen=True)
class AttrDecl:
    """An argument that is not a tensor.

    static       False; True; 'rank' (of ints: the length is static); a tuple of values, any other being class None
    default      plain data, of lists a tuple; has_default tells None from no default
    default_expr an expression over dims and attributes, where the default is one (`"E ** -0.5"`)
    optional     None is a value
    """

    name: str
    kind: str
    optional: bool = False
    default: object = None
    has_default: bool = False
    static: bool | str | tuple[object, ...] = False
    values: tuple[str, ...] = ()
    empty: str | None = None
    default_expr: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether its value (or class of values) is constant in a kernel."""
        return self.static is True or isinstance(self.static, tuple)


@dataclass(frozen=True)
class Require:
    """A condition (of `require`, or a law of `test.checks`) with its own text."""

    expr: Expr
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ViewDecl:
    """Sizes, strides (in elements) and offset of the view, as entries of a type."""

    size: tuple[DimText, ...]
    stride: tuple[DimText, ...]
    offset: Expr


@dataclass(frozen=True)
class GradDecl:
    """`derive: true`, or a declared adjoint (`compute`, compared with the derived one under `against_derive`), or `none`.

    save lists what backward may read (inputs, outputs, temporaries); `every` keeps every n-th state of a recurrence.
    """

    wrt: tuple[str, ...] = ()
    derive: bool = False
    compute: Block | None = None
    save: tuple[str, ...] = ()
    every: tuple[tuple[str, int], ...] = ()
    against_derive: bool = False
    none: str | None = None
    order: str | None = None
    compute_text: str = field(default="", compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class TestDecl:
    """What the judge is told; it draws more of its own."""

    __test__ = False  # not pytest's
    cases: tuple[dict[str, Any], ...] = ()
    layouts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    checks: tuple[Require, ...] = ()
    tol: str = "bound"


@dataclass(frozen=True)
class Only:
    """`{only: v}`: a call is taken only when this argument has this value."""

    value: object


MapTarget = str | Only | None


@dataclass(frozen=True)
class AtenEntry:
    """An overload that this operator is.  `map` in the overload's order; None: the spec's own names, in order."""

    overload: str
    map: tuple[tuple[str, MapTarget], ...] | None = None
    set: dict[str, object] = field(default_factory=dict)
    returns: tuple[str, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class OnnxEntry:
    """An ONNX operator that this is, from opset `since` on."""

    op: str
    since: int | None = None
    map: tuple[tuple[str, MapTarget], ...] | None = None
    set: dict[str, object] = field(default_factory=dict)
    returns: tuple[str, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class OpSpec:
    """One operator.  Two loads of a file give two objects; `meaning_hash` says whether they mean the same."""

    op: str
    file: str
    line: int
    family: str = ""
    doc: str = ""
    types: dict[str, Expr] = field(default_factory=dict)
    dims: dict[str, DimDecl] = field(default_factory=dict)
    let: dict[str, LetDecl] = field(default_factory=dict)
    sizes: dict[str, Expr] = field(default_factory=dict)
    inputs: dict[str, TensorType] = field(default_factory=dict)
    attrs: dict[str, AttrDecl] = field(default_factory=dict)
    outputs: dict[str, TensorType] = field(default_factory=dict)
    inplace: tuple[str, ...] = ()
    require: tuple[Require, ...] = ()
    view: ViewDecl | None = None
    compute: Block = ()
    compute_text: str = ""
    compute_line: int = 0
    compute_col: int = 0
    grad: GradDecl | None = None
    lower: dict[str, object] = field(default_factory=dict)
    test: TestDecl = field(default_factory=TestDecl)
    bench: tuple[dict[str, Any], ...] = ()
    aten: tuple[AtenEntry, ...] = ()
    onnx: tuple[OnnxEntry, ...] = ()
    reference: str | None = None
    also: Block | None = None
    oracle: str | None = None
    since: str | None = None

    @property
    def place(self) -> Place:
        return Place.in_file(self.file, self.line, 1)

    def meaning_text(self) -> str:
        """The fields that are meaning, printed so that layout, comments and order of declarations do not show."""
        out: list[str] = []

        def section(name: str, rows: Iterable[tuple[str, str]]) -> None:
            out.extend(f"{name} {key}: {text}" for key, text in rows)

        section("type", sorted((k, show(v)) for k, v in self.types.items()))
        section("dim", sorted((k, d.kind + (f" rank {show(d.rank)}" if d.rank else "")) for k, d in self.dims.items()))
        section("let", sorted((("*" if d.pack else "") + k, show(d.expr)) for k, d in self.let.items()))
        section("size", sorted((k, show(v)) for k, v in self.sizes.items()))
        section("input", ((k, t.show()) for k, t in self.inputs.items()))
        section("attr", ((k, _show_attr(a)) for k, a in self.attrs.items()))
        section("output", ((k, t.show()) for k, t in self.outputs.items()))
        section("require", sorted(("", show(r.expr)) for r in self.require))
        if self.view:
            section("view", (("size", ", ".join(d.show() for d in self.view.size)),
                             ("stride", ", ".join(d.show() for d in self.view.stride)),
                             ("offset", show(self.view.offset))))
        out.append("compute:\n" + show_block(self.compute, "  "))
        if self.oracle:
            out.append(f"oracle: {self.oracle}")
        if g := self.grad:
            out.append(f"grad: wrt {list(g.wrt)} derive {g.derive} save {list(g.save)} every {list(g.every)} "
                       f"against {g.against_derive} none {g.none is not None} order {g.order}")
            out.append(show_block(g.compute or (), "  "))
        return "\n".join(out)

    def meaning_hash(self) -> str:
        """sha256 of `meaning_text`: unchanged by doc, lower, test, bench, aten, layout and comments."""
        return hashlib.sha256(self.meaning_text().encode()).hexdigest()

    def attr_place(self, name: str) -> Place | None:
        a = self.attrs.get(name)
        return a.span.place if a and a.span else None


def _show_attr(a: AttrDecl) -> str:
    kind = f"enum{sorted(a.values)}" if a.kind == "enum" else a.kind
    default = show(a.default_expr) if a.default_expr else repr(a.default) if a.has_default else "required"
    return f"{'optional ' if a.optional else ''}{kind} = {default} static {a.static} empty {a.empty}"


# ------------------------------------------------------------------------------------------------- loading


def load_spec(path: str | os.PathLike[str], *, family: str = "") -> list[OpSpec]:
    """The specs of a file, one a YAML document.  Raises `SpecError`, further mistakes in its `.others`."""
    return load_spec_text(read_text(path), os.fspath(path), family=family)


def load_spec_text(text: str, file: str = "<text>", *, family: str = "") -> list[OpSpec]:
    """As `load_spec`, for a text that stands in `file` (which need not exist)."""
    errors: list[SpecError] = []
    specs: list[OpSpec] = []
    documents = read_documents(text, file)
    if not documents:
        raise SpecError("no operator in this file", place=Place(file), hint="`op: name`, then inputs, outputs, compute")
    for node in documents:
        reader = _Reader(node, file, family)
        spec = reader.read()
        errors.extend(reader.errors)
        if spec is not None:
            specs.append(spec)
    for e in (single for error in errors for single in error.errors):
        if e.place is not None and e.place.text is None:
            e.place = e.place.with_text(text)
    raise_together(errors)
    return specs


class Registry:
    """Operators by name and by overload."""

    def __init__(self, specs: Iterable[OpSpec] = ()) -> None:
        self._ops: dict[str, OpSpec] = {}
        self._aten: dict[str, tuple[OpSpec, AtenEntry]] = {}
        for spec in specs:
            self.add(spec)

    @classmethod
    def load(cls, dirs: Iterable[str | os.PathLike[str]]) -> Registry:
        """All `*.yaml` below `dirs`; the folder a file lies in is the family.  A later directory replaces operators of
        an earlier one by name.  Raises one `SpecError` with the mistakes of all files."""
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
                        errors.append(SpecError(f"`{spec.op}` is declared twice (also in {other.place})",
                                                place=spec.place))
                        continue
                    seen[spec.op] = spec
            for spec in seen.values():
                try:
                    out.add(spec)
                except SpecError as e:
                    errors.append(e)
        raise_together(errors)
        return out

    def add(self, spec: OpSpec) -> None:
        """Add or replace an operator.  Raises `SpecError` when another operator claims the same overload."""
        if old := self._ops.get(spec.op):
            for entry in old.aten:
                self._aten.pop(entry.overload, None)
        for entry in spec.aten:
            if taken := self._aten.get(entry.overload):
                raise SpecError(f"`{entry.overload}` is already `{taken[0].op}` ({taken[0].place})",
                                place=entry.span.place if entry.span else spec.place)
        self._ops[spec.op] = spec
        for entry in spec.aten:
            self._aten[entry.overload] = (spec, entry)

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
            raise SpecError(f"no operator `{name}`", hint=did_you_mean(name, self._ops, what="operators")) from None

    def all(self) -> list[OpSpec]:
        """All operators, by name."""
        return [self._ops[k] for k in sorted(self._ops)]

    def by_aten(self, overload: str) -> tuple[OpSpec, AtenEntry] | None:
        """The operator and entry of an overload such as `aten.add.Tensor`."""
        return self._aten.get(overload)

    def aten_table(self) -> dict[str, dict[str, object]]:
        """What `ow.call_aten` reads (docs/internals.md, "`aten:` entries")."""
        return {overload: aten_row(*self._aten[overload]) for overload in sorted(self._aten)}


def aten_row(spec: OpSpec, entry: AtenEntry) -> dict[str, object]:
    """One row of the table: JSON data."""
    pairs = entry.map if entry.map is not None else tuple((n, n) for n in (*spec.inputs, *spec.attrs))
    returns = entry.returns or tuple(n for n, t in spec.outputs.items() if not t.aux)
    return {
        "op": spec.op,
        "map": [[arg, {"only": to.value} if isinstance(to, Only) else to] for arg, to in pairs],
        "set": dict(entry.set),
        "returns": list(returns),
    }


# ------------------------------------------------------------------------------------------------- reading

V = TypeVar("V")


def parse_type(text: Text) -> TensorType:
    """`"optional T[*B, N@axis]"` with places.  Raises `SpecError`."""
    t = text.strip()
    m = re.match(r"((?:(?:optional|list|aux)\s+)*)([A-Za-z][A-Za-z0-9_]*)\s*(\[)?", t.value)
    if not m:
        raise SpecError("a type is missing here" if not t.value else f"`{t.value}` is not a type", place=t.place,
                        hint='`"T[*B, N]"`, `"optional T[D]"`, `"list T[N]"`, of rank 0 `"T[]"`')
    marks = m[1].split()
    if m[3] is None or not t.value.endswith("]"):
        raise SpecError(f"`{t.value}` says no shape", place=t.place, hint=f'`"{m[2]}[N]"`; of rank 0 `"{m[2]}[]"`')
    inner = t[m.end() : len(t.value) - 1]
    dims = tuple(parse_dim(part) for part in _split(inner)) if inner.value.strip() else ()
    if len(set(marks)) != len(marks):
        raise SpecError("a mark is given twice", place=t.place)
    return TensorType(m[2], dims, "optional" in marks, "list" in marks, "aux" in marks, span=t.span)


def parse_dim(text: Text) -> DimText:
    """One entry of a type: `[*]extent [@ attr [if attr]]`."""
    t = text.strip()
    at = keep = None
    extent = t
    cut = _top_level(t.value, "@")
    if cut is not None:
        extent, mark = t[:cut].strip(), t[cut + 1 :].strip()
        m = re.fullmatch(r"([A-Za-z]\w*)(?:\s+if\s+([A-Za-z]\w*))?", mark.value)
        if not m:
            raise SpecError(f"`@{mark.value}` is not a mark", place=mark.place,
                            hint="`N@axis`, or of a reduced axis `1@dim if keepdim`")
        at, keep = m[1], m[2]
    pack = extent.value.startswith("*")
    body = extent[1:] if pack else extent
    return DimText(parse_text(body), pack, at, keep, span=t.span)


def parse_text(text: Text) -> Expr:
    """An expression within a scalar."""
    return parse_expr(text.value, file=text.file, locate=text.locate())


def _top_level(s: str, char: str) -> int | None:
    depth = 0
    for i, c in enumerate(s):
        depth += (c in "([{") - (c in ")]}")
        if c == char and depth == 0:
            return i
    return None


def _split(text: Text) -> list[Text]:
    parts: list[Text] = []
    rest = text
    while (cut := _top_level(rest.value, ",")) is not None:
        parts.append(rest[:cut])
        rest = rest[cut + 1 :]
    return [*parts, rest]


class _Reader:
    """One document to one spec; mistakes are collected in `errors`."""

    def __init__(self, root: Node, file: str, family: str) -> None:
        self.root, self.file, self.family = root, file, family
        self.errors: list[SpecError] = []

    def fail(self, at: Node | Text | Span | Place | None, what: str, hint: str = "") -> None:
        place = at if isinstance(at, Place) or at is None else at.place
        if isinstance(place, Place) and isinstance(at, Span):
            place = Place(at.file, at.line, at.col, None, max(at.end - at.col, 1))
        self.errors.append(SpecError(what, place=place, hint=hint or None))

    def attempt(self, fn: Callable[..., V], *args: Any) -> V | None:
        try:
            return fn(*args)
        except SpecError as e:
            self.errors.append(e)
            return None

    # -- shapes of YAML
    def mapping(self, node: Node | None, what: str, known: Iterable[str] | None = None) -> list[tuple[Node, Node]]:
        if node is None or node.is_null:
            return []
        if node.kind != "map":
            self.fail(node, f"`{what}` must be a mapping", f"{what}: {{name: …}}")
            return []
        if known is None:
            return node.pairs
        names = list(known)
        out = []
        for k, v in node.pairs:
            if k.string in names:
                out.append((k, v))
            else:
                self.fail(k, f"`{k.string}` is not a field of {what}", did_you_mean(k.string, names, what="fields"))
        return out

    def items(self, node: Node | None, what: str) -> list[Node]:
        if node is None or node.is_null:
            return []
        if node.kind != "list":
            self.fail(node, f"`{what}` must be a list", f"{what}: [ … ]")
            return []
        return node.items

    def string(self, node: Node | None, what: str) -> Text | None:
        if node is None:
            return None
        if node.kind != "scalar" or node.is_null or node.text is None:
            self.fail(node, f"`{what}` must be a text")
            return None
        return node.text

    def names(self, node: Node | None, what: str, known: Iterable[str]) -> tuple[str, ...]:
        out: list[str] = []
        pool = list(known)
        for item in self.items(node, what):
            t = self.string(item, what)
            if t is None:
                continue
            if t.value not in pool:
                self.fail(t, f"`{t.value}` in `{what}` is not declared", did_you_mean(t.value, pool, what="declared"))
            elif t.value in out:
                self.fail(t, f"`{t.value}` is given twice")
            else:
                out.append(t.value)
        return tuple(out)

    def choice(self, node: Node | None, what: str, known: Sequence[str]) -> str | None:
        t = self.string(node, what)
        if t is None:
            return None
        if t.value not in known:
            self.fail(t, f"`{t.value}` is not a value of `{what}`", did_you_mean(t.value, known, what="values"))
            return None
        return t.value

    def flag(self, node: Node | None, what: str) -> bool:
        if node is None:
            return False
        value = node.scalar() if node.kind == "scalar" else None
        if not isinstance(value, bool):
            self.fail(node, f"`{what}` must be true or false")
            return False
        return value

    def expression(self, node: Node, what: str) -> Expr | None:
        t = self.string(node, what)
        return self.attempt(parse_text, t) if t is not None else None

    def statements(self, node: Node | None, what: str) -> Block | None:
        t = self.string(node, what)
        if t is None:
            return None
        return self.attempt(lambda: parse_statements(t.value, file=t.file, locate=t.locate()))

    # -- the document
    def read(self) -> OpSpec | None:
        if self.root.kind != "map":
            self.fail(self.root, "a spec is a mapping of fields", "`op: name`, then inputs, outputs, compute")
            return None
        self.mapping(self.root, "a spec", FIELDS)
        get = self.root.get
        op = self.op_name(get("op"))
        self.taken: dict[str, str] = {}  # every declared name -> what it is
        self.spans: dict[str, Span] = {}
        types = self.types(get("types"))
        dims = self.dims(get("dims"))
        let = self.let(get("let"))
        sizes = self.sizes(get("sizes"))
        inputs = self.tensors(get("inputs"), "inputs", ("optional", "list"))
        attrs = self.attrs(get("attrs"))
        outputs = self.tensors(get("outputs"), "outputs", ("list", "aux"))
        if not outputs and not self.errors:
            self.fail(get("outputs") or get("op"), "a spec has at least one output", 'outputs: {y: "T[*B]"}')
        inplace: tuple[str, ...] = ()
        for k, v in self.mapping(get("variants"), "variants", ("inplace",)):
            inplace = self.names(v, k.string, inputs)
        require = self.conditions(get("require"), "require")
        view = self.view(get("view"))
        compute_node = get("compute")
        compute = self.statements(compute_node, "compute")
        grad = self.grad(get("grad"), inputs)
        lower = self.lower(get("lower"))
        test = self.test(get("test"))
        also = self.statements(get("also"), "also")
        oracle = self.pattern(get("oracle"), "oracle", _ORACLE, "`package.module:function`")
        reference = self.pattern(get("reference"), "reference", _PATH, "`numpy.sinc` or `scipy.special.erf`")
        if compute is None and compute_node is None and view is None and oracle is None:
            self.fail(get("op") or self.root, "a spec without meaning", "`compute: |`, `view:` or `oracle:`")
        spec = OpSpec(
            op=op or "", file=self.file, line=(get("op") or self.root).line, family=self.family,
            doc=self.doc(get("doc")), types=types, dims=dims, let=let, sizes=sizes, inputs=inputs, attrs=attrs,
            outputs=outputs, inplace=inplace, require=require, view=view, compute=compute or (),
            compute_text=compute_node.string if compute is not None and compute_node else "",
            compute_line=compute_node.span.line if compute_node else 0,
            compute_col=compute_node.span.col if compute_node else 0,
            grad=grad, lower=lower, test=test, also=also, oracle=oracle, reference=reference,
            aten=self.aten(get("aten"), inputs, attrs, outputs), onnx=self.onnx(get("onnx"), inputs, attrs, outputs),
            since=self.doc(get("since")) or None,
        )
        # What is named wrongly is only worth saying about declarations that could be read.
        if not self.errors:
            checker = _Checker(spec, self)
            checker.run()
            checker.cases(get("test"), get("bench"))
            return self.finish(spec, checker, get("bench"))
        return None

    def finish(self, spec: OpSpec, checker: _Checker, bench: Node | None) -> OpSpec | None:
        if self.errors:
            return None
        from dataclasses import replace

        rows = tuple(r for r in (n.plain() for n in self.items(bench, "bench")))
        return replace(spec, dims=checker.all_dims(), bench=rows)

    def op_name(self, node: Node | None) -> str | None:
        if node is None:
            self.fail(Place(self.file, self.root.line, self.root.col), "the field `op` is missing", "`op: name`")
            return None
        t = self.string(node, "op")
        if t is None:
            return None
        if not _OP.match(t.value) or len(t.value) > 100:
            self.fail(t, f"`{t.value[:100]}` is not an operator's name", "lower case: `softmax`, `my_co::rope2d`")
            return None
        return t.value

    def doc(self, node: Node | None) -> str:
        t = self.string(node, "doc")
        return " ".join(t.value.split()) if t else ""

    def pattern(self, node: Node | None, what: str, pattern: re.Pattern[str], hint: str) -> str | None:
        t = self.string(node, what)
        if t is None:
            return None
        if not pattern.match(t.value):
            self.fail(t, f"`{t.value}` is not a {what}", hint)
            return None
        return t.value

    def declare(self, key: Node, what: str) -> str | None:
        """A declared name: an identifier, free, and nothing that a reader could take for something else."""
        assert key.text is not None
        return self.declare_text(key.text, what)

    def declare_text(self, text: Text, what: str) -> str | None:
        name = text.value
        if what in ("input", "attr") and name.lower() in YAML11:
            self.fail(text, f"`{name}` is a boolean or null to YAML 1.1 readers", "choose another name")
        elif not _NAME.match(name):
            self.fail(text, f"`{name[:60]}` is not a name", "letters, digits and _, a letter first")
        elif keyword.iskeyword(name) or name in ("inf", "nan", "pi", "skip"):
            self.fail(text, f"`{name}` is a word of the language", "choose another name")
        elif name in CATEGORIES or name in {d.value for d in DType}:
            self.fail(text, f"`{name}` names a dtype or a category of dtypes", "choose another name")
        elif name in self.taken:
            self.fail(text, f"`{name}` is already a {self.taken[name]} (line {self.spans[name].line})",
                      "one name, one meaning: choose another")
        else:
            self.taken[name] = what
            self.spans[name] = text.span
            return name
        return None

    def types(self, node: Node | None) -> dict[str, Expr]:
        out: dict[str, Expr] = {}
        for k, v in self.mapping(node, "types"):
            e = self.expression(v, f"types.{k.string}")
            name = self.declare(k, "type")
            if name and e is not None:
                out[name] = e
        return out

    def dims(self, node: Node | None) -> dict[str, DimDecl]:
        out: dict[str, DimDecl] = {}
        for k, v in self.mapping(node, "dims"):
            name = self.declare(k, "dim")
            if v.kind == "scalar":
                kind = self.choice(v, "dims", DIM_KINDS)
                decl = DimDecl(kind, None, k.span) if kind else None
            else:
                fields = {f.string: x for f, x in self.mapping(v, "a dim", DIM_FIELDS)}
                kind = self.choice(fields["kind"], "kind", DIM_KINDS) if "kind" in fields else "batch"
                rank = self.expression(fields["rank"], "rank") if "rank" in fields else None
                decl = DimDecl(kind, rank, k.span) if kind else None
            if name and decl:
                out[name] = decl
        return out

    def let(self, node: Node | None) -> dict[str, LetDecl]:
        out: dict[str, LetDecl] = {}
        for k, v in self.mapping(node, "let"):
            assert k.text is not None
            pack = k.string.startswith("*")
            name = self.declare_text(k.text[1:] if pack else k.text, "let")
            e = self.expression(v, f"let.{k.string}")
            if name and e is not None:
                out[name] = LetDecl(name, pack, e, k.span)
        return out

    def sizes(self, node: Node | None) -> dict[str, Expr]:
        out: dict[str, Expr] = {}
        for k, v in self.mapping(node, "sizes"):
            name = self.declare(k, "size")
            e = self.expression(v, f"sizes.{k.string}")
            if name and e is not None:
                out[name] = e
        return out

    def tensors(self, node: Node | None, what: str, marks: tuple[str, ...]) -> dict[str, TensorType]:
        out: dict[str, TensorType] = {}
        for k, v in self.mapping(node, what):
            name = self.declare(k, what[:-1])
            text = self.string(v, f"{what}.{k.string}")
            t = self.attempt(parse_type, text) if text is not None else None
            if t is None or name is None:
                continue
            for mark, on in (("optional", t.optional), ("list", t.is_list), ("aux", t.aux)):
                if on and mark not in marks:
                    self.fail(v, f"`{mark}` is not a mark of {what}", f"marks: {', '.join(marks)}")
            if t.optional and t.is_list:
                self.fail(v, "an optional list is not in the language", "a list may be empty")
            out[name] = t
        return out

    def attrs(self, node: Node | None) -> dict[str, AttrDecl]:
        out: dict[str, AttrDecl] = {}
        for k, v in self.mapping(node, "attrs"):
            name = self.declare(k, "attr")
            a = self.attr(k, v)
            if name and a:
                out[name] = a
        return out

    def attr(self, key: Node, node: Node) -> AttrDecl | None:
        if node.kind != "map":
            self.fail(node, f"`attrs.{key.string}` must be a mapping", f"{key.string}: {{type: int, default: 0}}")
            return None
        fields = {f.string: x for f, x in self.mapping(node, "an attribute", ATTR_FIELDS)}
        if "type" not in fields:
            self.fail(key, f"`{key.string}` has no type", f"type: one of {', '.join(ATTR_KINDS)}")
            return None
        t = self.string(fields["type"], "type")
        if t is None:
            return None
        words = t.strip()
        m = re.fullmatch(r"(optional\s+)?([a-z]+)(?:\s*\[(.*)\])?", words.value)
        if not m or m[2] not in ATTR_KINDS or (m[3] is not None) != (m[2] == "enum"):
            bare = re.sub(r"^optional\s+|\[.*", "", words.value)
            hint = "`enum[a, b, c]`" if bare == "enum" else did_you_mean(bare, ATTR_KINDS, what="types")
            self.fail(words, f"`{words.value}` is not an attribute's type", hint)
            return None
        kind, values = m[2], tuple(x.strip() for x in (m[3] or "").split(",") if x.strip())
        if kind == "enum" and (not values or len(set(values)) != len(values)):
            self.fail(words, "an enum lists its values, each once", "`enum[a, b, c]`")
            return None
        static = self.static(fields.get("static"), kind)
        empty = self.choice(fields["empty"], "empty", ("all",)) if "empty" in fields else None
        if empty and kind != "axes":
            self.fail(fields["empty"], "`empty: all` is for axes")
        default: object = None
        default_expr: Expr | None = None
        optional = bool(m[1])
        if "default" in fields:
            d = fields["default"]
            if d.is_null:
                optional = True
            else:
                default, default_expr = self.default(d, kind, values)
        return AttrDecl(key.string, kind, optional, default, "default" in fields, static, values, empty, default_expr,
                        key.span)

    def static(self, node: Node | None, kind: str) -> bool | str | tuple[object, ...]:
        if node is None:
            return kind in ("enum", "dtype")  # constants by nature: there is no run-time form of either
        value = node.scalar() if node.kind == "scalar" else None
        if isinstance(value, bool):
            return value
        if value == "rank":
            if kind not in ("ints", "floats"):
                self.fail(node, "`static: rank` is for ints and floats", "static: true")
            return "rank"
        if isinstance(value, str) and value.startswith("in") and node.text is not None:
            base = node.text.locate()
            e = self.attempt(lambda: parse_expr("_ " + value, file=self.file,
                                                locate=lambda row, col: base(row, max(col - 2, 0))))
            if isinstance(e, Cmp) and isinstance(e.right, TupleLit):
                out = [x.value for x in e.right.xs if isinstance(x, Num | Str)]
                if len(out) == len(e.right.xs):
                    return tuple(out)
            elif e is None:
                return True
        self.fail(node, "`static` is true, false, rank, or a class of values", 'static: "in (0, 1, 2, inf)"')
        return True

    def default(self, node: Node, kind: str, values: tuple[str, ...]) -> tuple[object, Expr | None]:
        value = node.plain()
        bad = f"this is not a default of type {kind}"
        if isinstance(value, list):
            if kind in ("ints", "axes", "floats") and all(
                    isinstance(v, int | float if kind == "floats" else int) and not isinstance(v, bool) for v in value):
                return tuple(value), None
        elif isinstance(value, str):
            if kind == "enum":
                if value in values:
                    return value, None
                self.fail(node, f"`{value}` is not a value of this enum", did_you_mean(value, values, what="values"))
                return None, None
            if kind == "str":
                return value, None
            if kind == "dtype":
                if value in {d.value for d in DType}:
                    return value, None
                bad = f"`{value}` is not a dtype"
            elif kind in ("int", "float", "scalar"):
                e = self.expression(node, "default")
                if isinstance(e, Num):
                    return e.value, None
                return None, e
        elif isinstance(value, bool):
            if kind in ("bool", "scalar"):
                return value, None
        elif isinstance(value, int) and not isinstance(value, bool):
            if kind in ("int", "axis", "axes", "ints", "scalar", "float", "floats"):
                return (float(value) if kind == "float" else value), None
        elif isinstance(value, float) and kind in ("float", "scalar", "floats"):
            return value, None
        self.fail(node, bad, "did you mean true or false?" if kind == "bool" else "")
        return None, None

    def conditions(self, node: Node | None, what: str) -> tuple[Require, ...]:
        out: list[Require] = []
        for item in self.items(node, what):
            e = self.expression(item, what)
            if e is not None and item.text is not None:
                out.append(Require(e, " ".join(item.string.split()), item.span))
        return tuple(out)

    def view(self, node: Node | None) -> ViewDecl | None:
        if node is None:
            return None
        fields = {f.string: x for f, x in self.mapping(node, "view", VIEW_FIELDS)}

        def entries(name: str) -> tuple[DimText, ...]:
            n = fields.get(name)
            if n is None:
                self.fail(node, f"`view` needs `{name}`", "view: {size: [N, M], stride: [M, 1], offset: 0}")
                return ()
            parts = n.items if n.kind == "list" else [n]
            texts = [self.string(p, name) for p in parts]
            dims = [self.attempt(parse_dim, t) for t in texts if t is not None]
            return tuple(d for d in dims if d is not None)

        offset = self.expression(fields["offset"], "offset") if "offset" in fields else Num(0)
        return ViewDecl(entries("size"), entries("stride"), offset or Num(0))

    def grad(self, node: Node | None, inputs: Mapping[str, TensorType]) -> GradDecl | None:
        if node is None:
            return None
        fields = {f.string: x for f, x in self.mapping(node, "grad", GRAD_FIELDS)}
        save: list[str] = []
        every: list[tuple[str, int]] = []
        saved = fields.get("save")
        if saved is not None and saved.kind == "map":
            for k, v in saved.pairs:
                save.append(k.string)
                for f, x in self.mapping(v, "save", ("every",)):
                    n = x.scalar() if x.kind == "scalar" else None
                    if isinstance(n, int) and not isinstance(n, bool) and n > 0:
                        every.append((k.string, n))
                    else:
                        self.fail(x, f"`{f.string}` must be a positive number")
        else:
            save = [t.value for i in self.items(saved, "save") if (t := self.string(i, "save")) is not None]
        none = self.string(fields["none"], "none") if "none" in fields else None
        compute = self.statements(fields.get("compute"), "grad.compute")
        if "against" in fields:
            self.choice(fields["against"], "against", ("derive",))
        order = self.choice(fields["order"], "order", ("unordered", "ordered")) if "order" in fields else None
        decl = GradDecl(
            wrt=self.names(fields.get("wrt"), "wrt", inputs), derive=self.flag(fields.get("derive"), "derive"),
            compute=compute, save=tuple(save), every=tuple(every), against_derive="against" in fields,
            none=none.value if none else None, order=order,
            compute_text=fields["compute"].string if compute is not None else "", span=node.span)
        ways = [w for w in ("derive", "compute", "none") if w in fields]
        if len(ways) != 1:
            self.fail(node, "`grad` says exactly one of derive, compute, none" + (f" (here: {', '.join(ways)})" if ways else ""),
                      "`derive: true`; or `compute: |` with `against: derive`; or `none: the reason`")
        elif ways[0] != "none" and not decl.wrt and "wrt" not in fields:
            self.fail(node, "`grad` does not say of which inputs", "`wrt: [x]`")
        return decl

    def lower(self, node: Node | None) -> dict[str, object]:
        if node is None or node.is_null:
            return {}
        if node.kind != "map":
            self.fail(node, "`lower` must be a mapping of targets", "lower: {cpu: {kind: rows}}")
            return {}
        value: dict[str, object] = node.plain()
        return value

    def test(self, node: Node | None) -> TestDecl:
        fields = {f.string: x for f, x in self.mapping(node, "test", TEST_FIELDS)}
        cases = []
        for item in self.items(fields.get("cases"), "cases"):
            if item.kind != "map":
                self.fail(item, "a case is a mapping of extents and attributes", "{B: [3], N: 5}")
            else:
                cases.append(item.plain())
        layouts = self.names(fields.get("layouts"), "layouts", LAYOUTS)
        values = []
        for item in self.items(fields.get("values"), "values"):
            t = self.string(item, "values")
            if t is not None:
                values.append(t.value)
        tol = self.choice(fields["tol"], "tol", ("exact", "bound")) if "tol" in fields else "bound"
        return TestDecl(tuple(cases), layouts, tuple(values), self.conditions(fields.get("checks"), "checks"),
                        tol or "bound")

    def target_map(self, node: Node | None, inputs: Mapping[str, Any], attrs: Mapping[str, Any]
                   ) -> tuple[tuple[str, MapTarget], ...] | None:
        if node is None:
            return None
        out: list[tuple[str, MapTarget]] = []
        used: set[str] = set()
        pool = (*inputs, *attrs)
        for k, v in self.mapping(node, "map"):
            if v.kind == "map":
                only = {f.string: x for f, x in self.mapping(v, "map", ("only",))}
                if "only" in only:
                    out.append((k.string, Only(only["only"].plain())))
                continue
            if v.is_null:
                out.append((k.string, None))
                continue
            t = self.string(v, "map")
            if t is None:
                continue
            if t.value not in pool:
                self.fail(t, f"`{t.value}` is neither an input nor an attribute",
                          did_you_mean(t.value, pool, what="inputs and attributes"))
            elif t.value in used:
                self.fail(t, f"two arguments go to `{t.value}`")
            else:
                used.add(t.value)
                out.append((k.string, t.value))
        return tuple(out)

    def entry(self, fields: Mapping[str, Node], inputs: Mapping[str, TensorType], attrs: Mapping[str, AttrDecl],
              outputs: Mapping[str, TensorType]) -> dict[str, Any]:
        fixed: dict[str, object] = {}
        for k, v in self.mapping(fields.get("set"), "set"):
            if k.string not in attrs and k.string not in inputs:
                self.fail(k, f"`{k.string}` is not an attribute", did_you_mean(k.string, attrs, what="attributes"))
            fixed[k.string] = v.plain()
        returns = self.names(fields["returns"], "returns", outputs) if "returns" in fields else None
        mapped = self.target_map(fields.get("map"), inputs, attrs)
        for arg, to in mapped or ():
            if isinstance(to, str) and to in fixed:
                self.fail(fields["set"], f"`{to}` is both set and given by `{arg}`")
        return {"map": mapped, "set": fixed, "returns": returns}

    def aten(self, node: Node | None, inputs: Mapping[str, TensorType], attrs: Mapping[str, AttrDecl],
             outputs: Mapping[str, TensorType]) -> tuple[AtenEntry, ...]:
        out: list[AtenEntry] = []
        for item in self.items(node, "aten"):
            fields = {f.string: x for f, x in self.mapping(item, "aten", ATEN_FIELDS)} if item.kind == "map" else {}
            name = item if item.kind == "scalar" else fields.get("overload")
            if name is None:
                self.fail(item, "an aten entry names its overload", "{overload: aten.add.Tensor, map: {self: a}}")
                continue
            text = self.pattern(name, "overload", _OVERLOAD, "`aten.add.Tensor`, `aten.relu.default`")
            rest = self.entry(fields, inputs, attrs, outputs)
            if text is None:
                continue
            if text in [e.overload for e in out]:
                self.fail(name, f"`{text}` is given twice")
                continue
            out.append(AtenEntry(text, span=name.span, **rest))
        return tuple(out)

    def onnx(self, node: Node | None, inputs: Mapping[str, TensorType], attrs: Mapping[str, AttrDecl],
             outputs: Mapping[str, TensorType]) -> tuple[OnnxEntry, ...]:
        out: list[OnnxEntry] = []
        for item in self.items(node, "onnx"):
            fields = {f.string: x for f, x in self.mapping(item, "onnx", ONNX_FIELDS)} if item.kind == "map" else {}
            name = item if item.kind == "scalar" else fields.get("op")
            if name is None:
                self.fail(item, "an onnx entry names its operator", "{op: Softmax, since: 13}")
                continue
            text = self.pattern(name, "op", re.compile(r"([A-Za-z0-9_.]+::)?[A-Z][A-Za-z0-9]*\Z"), "`Softmax`")
            since = fields["since"].plain() if "since" in fields else None
            if since is not None and (not isinstance(since, int) or isinstance(since, bool)):
                self.fail(fields["since"], "`since` is an opset's number")
                since = None
            rest = self.entry(fields, inputs, attrs, outputs)
            if text is not None:
                out.append(OnnxEntry(text, since, span=name.span, **rest))
        return tuple(out)


# ------------------------------------------------------------------------------------------------- checking


@dataclass
class _Scope:
    """What a block may name beside the spec's own declarations."""

    tensors: dict[str, TensorType]       # readable
    written: dict[str, TensorType]       # may be written
    what: str


class _Checker:
    """Names and marks, without a key: a name stands for one thing, and that thing exists."""

    def __init__(self, spec: OpSpec, reader: _Reader) -> None:
        self.spec, self.fail = spec, reader.fail
        self.scalars: set[str] = set()           # dims that are one extent
        self.packs: dict[str, DimDecl] = dict(spec.dims)
        self.list_dims: set[str] = set()         # dims of list inputs
        self.used: set[str] = set()

    # -- declarations
    def run(self) -> None:
        s = self.spec
        for name, t in s.inputs.items():
            self.declare_dims(name, t)
        for name in s.dims:
            if name not in self.used:
                self.fail(s.dims[name].span, f"the dim `{name}` is used by no input",
                          "remove it, or name it in an input's type")
        for name, t in (*s.inputs.items(), *s.outputs.items()):
            self.tensor_type(name, t, name in s.outputs)
        self.types()
        for a in s.attrs.values():
            if a.default_expr is not None:
                self.extent(a.default_expr, "a default")
        for d in s.dims.values():
            if d.rank is not None:
                self.extent(d.rank, "a rank")
        for let in s.let.values():
            self.extent(let.expr, "let")
        tensors = dict(s.inputs)
        scope = _Scope(tensors, {}, "require")
        for r in s.require:
            self.condition(r.expr, scope)
        for e in s.sizes.values():
            self.condition(e, _Scope(tensors, {}, "sizes"))
        if s.view:
            for d in (*s.view.size, *s.view.stride):
                self.extent(d.expr, "view")
            self.extent(s.view.offset, "view")
        temps = self.block(s.compute, _Scope(tensors, dict(s.outputs), "compute"))
        if s.also is not None:
            self.block(s.also, _Scope(tensors, dict(s.outputs), "also"))
        for r in s.test.checks:
            self.condition(r.expr, _Scope({**tensors, **s.outputs, **temps}, {}, "checks"))
        self.grad(temps)

    def all_dims(self) -> dict[str, DimDecl]:
        """The packs, with those that needed no declaration."""
        return self.packs

    def declare_dims(self, name: str, t: TensorType) -> None:
        s = self.spec
        for d in t.dims:
            if not isinstance(d.expr, Name):
                continue
            n = d.expr.id
            self.used.add(n)
            if t.is_list and not d.pack:
                self.list_dims.add(n)
            if n in s.let or n in s.sizes or n in s.attrs:
                continue
            if d.pack:
                if n in self.scalars:
                    self.fail(d.span, f"`{n}` is one extent elsewhere and a pack here", f"`{n}` or another name")
                elif n not in self.packs and self.free_dim(n, d.span):
                    self.packs[n] = DimDecl("batch", None, d.span)
            elif n in self.packs:
                self.fail(d.span, f"`{n}` is a pack of axes", f"`*{n}`")
            elif self.free_dim(n, d.span):
                self.scalars.add(n)

    def free_dim(self, name: str, span: Span | None) -> bool:
        s = self.spec
        for what, names in (("a type variable", s.types), ("an input", s.inputs), ("an output", s.outputs)):
            if name in names:
                self.fail(span, f"`{name}` is {what}, and a dim here", "one name, one meaning: choose another")
                return False
        return True

    def tensor_type(self, name: str, t: TensorType, output: bool) -> None:
        s = self.spec
        dtypes = {d.value for d in DType}
        if t.dtype not in s.types and t.dtype not in dtypes:
            hint = (f"types: {{T: {t.dtype}}}, and `T[…]` here" if t.dtype in CATEGORIES
                    else did_you_mean(t.dtype, (*s.types, *dtypes), what="types"))
            self.fail(t.span, f"the type `{t.dtype}` of `{name}` is not declared", hint)
        for d in t.dims:
            if d.at is not None:
                a = s.attrs.get(d.at)
                if a is None:
                    self.fail(d.span, f"`@{d.at}` names no attribute", did_you_mean(d.at, s.attrs, what="attributes"))
                elif a.kind not in ("axis", "axes"):
                    self.fail(d.span, f"`@{d.at}` needs an attribute of type axis or axes; `{d.at}` is {a.kind}")
                elif (a.kind == "axes") != d.pack and d.keep_if is None and not (
                        isinstance(d.expr, Num) and output):
                    self.fail(d.span, f"`{d.at}` is {a.kind}: " + ("a pack moves there" if a.kind == "axes"
                              else "one dim moves there"), f"`*N@{d.at}`" if a.kind == "axes" else f"`N@{d.at}`")
            if d.keep_if is not None:
                k = s.attrs.get(d.keep_if)
                if not output:
                    self.fail(d.span, f"`if {d.keep_if}` is for outputs")
                elif k is None:
                    self.fail(d.span, f"`if {d.keep_if}` names no attribute",
                              did_you_mean(d.keep_if, s.attrs, what="attributes"))
                elif k.kind != "bool" or not k.is_static:
                    self.fail(d.span, f"`if {d.keep_if}` needs a static bool attribute", "static: true")
            if d.pack and isinstance(d.expr, Name):
                n = d.expr.id
                ok = n in self.packs or (n in s.let and s.let[n].pack) or (n in s.attrs and s.attrs[n].kind == "ints")
                if not ok:
                    known = (*self.packs, *(k for k, v in s.let.items() if v.pack))
                    self.fail(d.span, f"`*{n}` is no pack of axes", did_you_mean(n, known, what="packs"))
            else:
                if isinstance(d.expr, Name) and not d.pack and (d.expr.id in self.packs):
                    if output:
                        self.fail(d.span, f"`{d.expr.id}` is a pack of axes", f"`*{d.expr.id}`")
                    continue
                self.extent(d.expr, "a shape")

    def types(self) -> None:
        s = self.spec
        known: set[str] = {d.value for d in DType}
        fixed = {t.dtype for t in s.inputs.values()}
        for name, e in s.types.items():
            self.type_rule(name, e, known)
            if isinstance(e, Name) and e.id in CATEGORIES and name not in fixed:
                self.fail(e.span, f"no input fixes the type `{name}`", f'an input of type "{name}[…]", or a rule')
            known.add(name)

    def type_rule(self, owner: str, e: Expr, known: set[str]) -> None:
        s = self.spec
        match e:
            case Name(id=n) if n in CATEGORIES or n in known:
                return
            case Name(id=n) if n in s.types:
                self.fail(e.span, f"`{n}` is declared below `{owner}`", f"declare `{n}` first")
            case Name(id=n):
                self.fail(e.span, f"`{n}` is neither a category, a dtype nor a type variable",
                          did_you_mean(n, (*CATEGORIES, *known), what="categories and types"))
            case Call(fn="promote" | "default" as fn, args=args) if args:
                for a in args:
                    ok = isinstance(a, Name) and (
                        (fn == "promote" and a.id in s.inputs) or (a.id in s.attrs and s.attrs[a.id].kind in
                                                                   ("scalar", "int", "float", "bool")))
                    if not ok:
                        pool = (*(s.inputs if fn == "promote" else ()), *s.attrs)
                        self.fail(a.span, f"`{fn}` takes {'inputs and ' if fn == 'promote' else ''}scalar attributes",
                                  did_you_mean(a.id, pool) if isinstance(a, Name) else "")
            case Call(fn="attr", args=(Name(id=n), rule)):
                if n not in s.attrs or s.attrs[n].kind != "dtype":
                    self.fail(e.span, f"`attr({n}, …)` needs an attribute `{n}` of type dtype",
                              f"attrs: {{{n}: {{type: dtype, default: null}}}}")
                self.type_rule(owner, rule, known)
            case Call(fn=fn, args=args) if fn in RULES and args:
                for a in args:
                    self.type_rule(owner, a, known)
            case Call(fn=fn) if fn not in RULES and fn not in CALL_RULES:
                self.fail(e.span, f"`{fn}` is not a rule for types",
                          did_you_mean(fn, (*RULES, *CALL_RULES), what="rules"))
            case _:
                self.fail(e.span, "this is not a type", "a category, a dtype, or a rule: accum(T), promote(a, b)")

    # -- expressions without indices
    def plain_names(self) -> set[str]:
        s = self.spec
        return {*self.scalars, *self.packs, *s.let, *s.sizes, *s.attrs, *CONSTANTS}

    def extent(self, e: Expr, what: str) -> None:
        """Names of an expression over dims, attributes and let."""
        self.expr(e, _Scope({}, {}, what), set())

    def condition(self, e: Expr, scope: _Scope) -> None:
        free = self.indices((e,), scope)
        self.expr(e, scope, free)

    # -- statements
    def block(self, block: Block, scope: _Scope) -> dict[str, TensorType]:
        """Check a block; returns its temporaries, with types of as many dims as their first index."""
        s = self.spec
        temps: dict[str, TensorType] = {}
        assigns = list(_assigns(block))
        for st in assigns:
            t = st.target
            if t.name in scope.written or t.name in temps:
                continue
            if t.name in scope.tensors:
                self.fail(t.span, f"`{t.name}` is an input: it cannot be written", "write an output or a temporary")
            elif t.name in self.plain_names() or t.name in s.types:
                self.fail(t.span, f"`{t.name}` is already declared", "choose another name for the temporary")
            else:
                dims = tuple(DimText(Num(0), isinstance(i, Star) or (isinstance(i, Decl) and i.pack))
                             for i in t.index)
                temps[t.name] = TensorType("", dims, is_list=t.item is not None)
        inner = _Scope({**scope.tensors, **scope.written, **temps}, scope.written, scope.what)
        self.tests(block)
        for st in assigns:
            self.statement(st, inner)
        for name, t_out in scope.written.items():
            if name not in {st.target.name for st in assigns} and (block or self.spec.view is None):
                if self.spec.oracle is None or block:
                    self.fail(t_out.span, f"`{name}` is never written in {scope.what}",
                              did_you_mean(name, temps) if temps and did_you_mean(name, temps).startswith("did")
                              else f"`{name}[…] = …`")
        return temps

    def tests(self, block: Block) -> None:
        for st in block:
            if isinstance(st, If):
                self.static_test(st.test)
                self.tests(st.then)
                self.tests(st.orelse)

    def static_test(self, e: Expr) -> None:
        for x in walk(e):
            if isinstance(x, Load | Reduce | Fold):
                self.fail(x.span, "only a static test chooses statements", "choose a value: `a if test else b`")
                return
        self.expr(e, _Scope({}, {}, "a test"), set())
        asked = {a.id for x in walk(e) if isinstance(x, Call) and x.fn in ("rank", "len")
                 for a in x.args if isinstance(a, Name)}
        for x in walk(e):
            if isinstance(x, Name) and x.id not in asked and x.id in self.plain_names():
                a = self.spec.attrs.get(x.id)
                if a is None or not a.is_static:
                    self.fail(x.span, f"`{x.id}` is not static: only a static test chooses statements",
                              "`static: true` on the attribute, or choose a value: `a if test else b`")

    def statement(self, st: Assign, scope: _Scope) -> None:
        parts = [*st.target.index, st.value]
        if st.target.item is not None:
            parts.append(st.target.item)
        if st.guard is not None:
            parts.append(st.guard)
        free = self.indices(parts, scope, st)
        t = scope.tensors.get(st.target.name)
        if t is not None:
            self.count(st.target.name, t, st.target.index, st.target.item, st.target.span)
        for i in parts:
            self.expr(i, scope, free)
        if st.mode == "=" and t is not None:
            placed = {n for i in st.target.index for n in _names(i)}
            if st.target.item is not None:
                placed |= _names(st.target.item)
            for x in [st.value, *([st.guard] if st.guard is not None else [])]:
                for name, span in self.free_in(x, free, frozenset()):
                    if name not in placed:
                        self.fail(span, f"the index `{name}` is not in the target `{st.target.name}`",
                                  f"reduce over it: `sum[{name}](…)`, or write it in the target")
                        placed.add(name)

    def free_in(self, x: Expr, free: set[str], bound: frozenset[str]) -> Iterator[tuple[str, Span | None]]:
        if isinstance(x, Name) and x.id in free and x.id not in bound:
            yield x.id, x.span
        if isinstance(x, Decl) and x.id in free and x.id not in bound:
            yield x.id, x.span
        if isinstance(x, Reduce):
            bound = bound | {d.id for d in x.indices}
            yield from self.free_in(x.body, free, bound)
            return
        for c in children(x):
            yield from self.free_in(c, free, bound)

    def indices(self, parts: Iterable[Expr], scope: _Scope, st: Assign | None = None) -> set[str]:
        """The free index names of a statement: those that stand alone at an index position, or are declared."""
        known = self.plain_names() | set(scope.tensors) | set(self.spec.types)
        free: set[str] = set()

        def take(i: Expr, bound: frozenset[str]) -> None:
            inner = i.x if isinstance(i, Star) else i
            if isinstance(inner, Name) and inner.id not in known and inner.id not in bound:
                free.add(inner.id)

        def visit(x: Expr, bound: frozenset[str]) -> None:
            if isinstance(x, Reduce):
                bound = bound | {d.id for d in x.indices}
                for d in x.indices:
                    if d.extent is not None:
                        visit(d.extent, bound)
                visit(x.body, bound)
                return
            if isinstance(x, Load):
                for i in x.index:
                    take(i, bound)
                if x.item is not None:
                    take(x.item, bound)
            if isinstance(x, Decl) and x.id not in bound:
                free.add(x.id)
            for c in children(x):
                visit(c, bound)

        for p in parts:
            visit(p, frozenset())
        if st is not None:
            for i in st.target.index:
                take(i, frozenset())
            if st.target.item is not None:
                take(st.target.item, frozenset())
        return free

    def count(self, name: str, t: TensorType, index: tuple[Expr, ...], item: Expr | None, span: Span | None) -> None:
        if t.is_list and item is None:
            self.fail(span, f"`{name}` is a list: which entry?", f"`{name}[k][…]`")
            return
        if item is not None and not t.is_list:
            self.fail(span, f"`{name}` is not a list", f"`{name}[…]` with one pair of brackets")
            return
        dims = t.indexed
        if len(index) != len(dims):
            shape = f" (its type is {t.show()})" if t.dtype else ""
            self.fail(span, f"`{name}` has {len(dims)} ax{'is' if len(dims) == 1 else 'es'}, "
                            f"here are {len(index)}{shape}", "a pack counts as one: `*b`")
            return
        for d, i in zip(dims, index, strict=True):
            pack = isinstance(i, Star) or (isinstance(i, Decl) and i.pack)
            if pack != d.pack:
                self.fail(i.span or span, f"here `{name}` has {'a pack of axes' if d.pack else 'one axis'}"
                          + (f": {d.show()}" if t.dtype else ""), "`*i`" if d.pack else "an index without `*`")
                return

    def expr(self, x: Expr, scope: _Scope, free: set[str]) -> None:
        s = self.spec
        match x:
            case Reduce(indices=ix, body=b):
                known = self.plain_names() | set(scope.tensors) | set(s.types)
                names: set[str] = set()
                for d in ix:
                    if d.id in known:
                        self.fail(d.span, f"`{d.id}` is already declared: an index needs a name of its own", "")
                    elif d.id in free or d.id in names:
                        self.fail(d.span, f"the index `{d.id}` is taken in this statement", "choose another name")
                    names.add(d.id)
                    if d.extent is not None:
                        self.expr(d.extent, scope, free)
                self.expr(b, scope, free | names)
                return
            case Decl(extent=e):
                if x.id in self.plain_names() | set(scope.tensors):
                    self.fail(x.span, f"`{x.id}` is already declared: an index needs a name of its own")
                if e is not None:
                    self.expr(e, scope, free)
                return
            case Load(tensor=n, index=ix, item=item):
                t = scope.tensors.get(n)
                if t is not None:
                    self.count(n, t, ix, item, x.span)
                elif n in self.list_dims and item is None and len(ix) == 1:
                    pass  # N[k]: the extent of entry k
                elif n in self.packs or (n in s.let and s.let[n].pack) or n in s.attrs:
                    # I[0], kernel[1]: one lane of a static pack or of an ints attribute
                    if len(ix) != 1 or item is not None or not isinstance(ix[0], Num):
                        self.fail(x.span, f"`{n}[…]` takes one lane's number", f"`{n}[0]`")
                else:
                    self.unknown(n, x.span, (*scope.tensors,), f"the tensor `{n}` is not known in {scope.what}",
                                 "tensors")
            case Call(fn=fn, args=args):
                self.call(x, fn, args, scope)
            case Name(id=n):
                t = scope.tensors.get(n)
                if t is not None and n not in free:
                    if t.indexed and not t.is_list:
                        self.fail(x.span, f"`{n}` is a tensor: which element?", f"`{n}[…]`")
                elif n not in free and n not in self.plain_names():
                    pool = (*self.plain_names(), *free, *(k for k, v in scope.tensors.items() if not v.indexed))
                    self.unknown(n, x.span, pool, f"the name `{n}` is not declared", "names")
                return
            case IsNone(id=n):
                optional = (n in s.inputs and s.inputs[n].optional) or (n in s.attrs and s.attrs[n].optional)
                if not optional:
                    if n in s.inputs or n in s.attrs:
                        self.fail(x.span, f"`{n}` is never None", '`"optional T[…]"`, or `default: null`')
                    else:
                        self.unknown(n, x.span, (*s.inputs, *s.attrs), f"the name `{n}` is not declared", "names")
                return
            case Cmp(left=a, right=b):
                self.strings(x, a, b)
                for side in (a, b):
                    if not isinstance(side, Str | TupleLit):
                        self.expr(side, scope, free)
                return
            case Str():
                self.fail(x.span, "a string is only compared with an attribute", '`mode == "mean"`')
        for c in children(x):
            self.expr(c, scope, free)

    def strings(self, x: Cmp, a: Expr, b: Expr) -> None:
        for name, side in ((a, b), (b, a)):
            texts = [side] if isinstance(side, Str) else (
                [t for t in side.xs if isinstance(t, Str)] if isinstance(side, TupleLit) else [])
            if not texts:
                continue
            attr = self.spec.attrs.get(name.id) if isinstance(name, Name) else None
            if attr is None or attr.kind not in ("enum", "str", "dtype"):
                self.fail(x.span, "a string is only compared with an enum attribute", '`mode == "mean"`')
                continue
            for t in texts:
                if attr.kind == "enum" and t.value not in attr.values:
                    self.fail(t.span, f"`{t.value}` is not a value of `{attr.name}`",
                              did_you_mean(t.value, attr.values, what="values"))

    def call(self, x: Call, fn: str, args: tuple[Expr, ...], scope: _Scope) -> None:
        s = self.spec
        if fn in s.types or fn in {d.value for d in DType}:
            if len(args) != 1:
                self.fail(x.span, f"the cast `{fn}(…)` takes one argument")
            return
        f = FUNCTIONS.get(fn)
        if f is None:
            if fn in scope.tensors:
                self.fail(x.span, f"`{fn}` is a tensor, not a function", f"`{fn}[…]`")
                return
            hint = did_you_mean(fn, (*FUNCTIONS, *s.types, *REDUCTIONS), what="functions")
            if fn in REDUCTIONS:
                hint = f"a reduction names its indices: `{fn}[i](…)`"
            self.fail(x.span, f"`{fn}` is not a function of the language", hint)
            return
        low, high = f.arity
        if not low <= len(args) <= high:
            n = str(low) if low == high else f"{low} to {high}"
            self.fail(x.span, f"`{fn}` takes {n} argument{'s' if n != '1' else ''}, here are {len(args)}", f.doc)

    def unknown(self, name: str, span: Span | None, pool: Iterable[str], what: str, kind: str) -> None:
        self.fail(span, what, did_you_mean(name, pool, what=kind))

    # -- gradient, cases
    def grad(self, temps: Mapping[str, TensorType]) -> None:
        s, g = self.spec, self.spec.grad
        if g is None:
            return
        savable = (*s.inputs, *s.outputs, *temps)
        for n in g.save:
            if n not in savable:
                self.unknown(n, g.span, savable, f"`{n}` in `save` is not known", "inputs, outputs and temporaries")
        for n, _ in g.every:
            if n not in (*s.outputs, *temps):
                self.fail(g.span, f"`every` of `{n}`: it is no state of a recurrence")
        if g.compute is None:
            return
        kept = set(g.save) if g.save else {*s.inputs, *s.outputs}
        readable = {n: t for n, t in {**s.inputs, **s.outputs, **temps}.items() if n in kept}
        readable |= {f"d{n}": t for n, t in s.outputs.items() if not t.aux}
        written = {f"d{n}": s.inputs[n] for n in g.wrt}
        self.block(g.compute, _Scope(readable, written, "grad"))

    def cases(self, test: Node | None, bench: Node | None) -> None:
        """Keys of test cases and workloads: dims, attributes, optional inputs, `input.dim`."""
        s = self.spec
        cases = test.get("cases") if test is not None and test.kind == "map" else None
        special = ("types", "from", "values", "layouts")
        pool = {*self.scalars, *self.packs, *s.attrs, *special,
                *(n for n, t in s.inputs.items() if t.optional or t.is_list or s.sizes)}
        for item in (*(cases.items if cases else ()), *(bench.items if bench and bench.kind == "list" else ())):
            if item.kind != "map":
                self.fail(item, "a workload is a mapping of extents and attributes", "{B: [3], N: 5}")
                continue
            for k, v in item.pairs:
                head, dot, dim = k.string.partition(".")
                ok = k.string in pool or (dot and head in s.inputs and dim in {*self.packs, *self.scalars})
                if not ok:
                    self.fail(k, f"`{k.string}` is no dim or attribute of `{s.op}`",
                              did_you_mean(k.string, pool - set(special), what="dims and attributes"))
                elif k.string in s.attrs and s.attrs[k.string].kind == "enum":
                    text = v.string if v.kind == "scalar" else ""
                    if text not in s.attrs[k.string].values and not v.is_null:
                        self.fail(v, f"`{text}` is not a value of `{k.string}`",
                                  did_you_mean(text, s.attrs[k.string].values, what="values"))
                elif k.string == "types":
                    for t in v.items if v.kind == "list" else [v]:
                        if t.kind == "scalar" and t.string not in {d.value for d in DType}:
                            self.fail(t, f"`{t.string}` is not a dtype",
                                      did_you_mean(t.string, [d.value for d in DType], what="dtypes"))


def _assigns(block: Iterable[Stmt]) -> Iterator[Assign]:
    for st in block:
        if isinstance(st, Assign):
            yield st
        else:
            yield from _assigns(st.then)
            yield from _assigns(st.orelse)


def _names(x: Expr) -> set[str]:
    return {n.id for n in walk(x) if isinstance(n, Name | Decl)}
