"""The Spec level: frozen data of one operator, as declared.

May import: errors, expr, types.  `spec_read.py` fills it, `spec_check.py` checks it, `spec.py` is the way in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .errors import Place
from .expr import Bin, Block, Expr, Name, Num, Span, show, show_block

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
    "reference": "a NumPy or SciPy function with this meaning, or a composition of PyTorch operators",
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
#: Classes of values that a test may ask for; what each draws, validators/draws.py says.
VALUE_CLASSES = (
    "exact",
    "normal",
    "large",
    "tiny",
    "denormal",
    "zeros",
    "nan_inf",
    "nan",
    "inf",
    "halves",
    "all_equal",
    "one_neg_inf",
    "all_neg_inf",
    "int_limits",
    "wide",
    "mixed",
    "unit",
)
CONSTANTS = ("pi",)
#: YAML 1.1 readers turn these into booleans; ours does not, but other people's tools read specs too.
YAML11 = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"])
#: Rules that see the call, beside `RULES` over dtypes.
CALL_RULES = ("promote", "opmath", "attr", "default")


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

    @property
    def is_ones(self) -> bool:
        """`*(D ** 0)`: as many axes of extent 1 as `D` has axes."""
        return self.pack and isinstance(self.expr, Bin) and self.expr.op == "**" and self.expr.right == Num(0)

    def show(self) -> str:
        text = show(self.expr)
        if self.pack:
            text = f"*{text}" if isinstance(self.expr, Name) else f"*({text})"
        return text + (f"@{self.at}" if self.at else "") + (f" if {self.keep_if}" if self.keep_if else "")


@dataclass(frozen=True)
class TensorType:
    """`[optional|list|aux|expand] D[dim, …]`; `dtype` is a type variable or a dtype's name.

    expand: the argument may have any shape that broadcasts to the one declared, whose extents others fix.
    """

    dtype: str
    dims: tuple[DimText, ...]
    optional: bool = False
    is_list: bool = False
    aux: bool = False
    expand: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def indexed(self) -> tuple[DimText, ...]:
        """The dims that a load or store indexes: not `1@dim if keepdim`, nor a pack of ones, `*(D ** 0)`."""
        return tuple(d for d in self.dims if d.keep_if is None and not d.is_ones)

    def show(self) -> str:
        marks = "".join(
            word + " "
            for word, on in (
                ("optional", self.optional),
                ("list", self.is_list),
                ("aux", self.aux),
                ("expand", self.expand),
            )
            if on
        )
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
    """`derive: true`; or a declared adjoint (`compute`; `against_derive`: compared with the derived one); or `none`.

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
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)  # of the cases


@dataclass(frozen=True)
class Only:
    """`{only: v}`: a call is taken only when this argument has this value."""

    value: object


#: An input or attribute; several that share out a list argument; a demanded value; or None: ignored.
MapTarget = str | tuple[str, ...] | Only | None


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
        section(
            "dim",
            sorted((k, d.kind + (f" rank {show(d.rank)}" if d.rank else "")) for k, d in self.dims.items()),
        )
        section("let", sorted((("*" if d.pack else "") + k, show(d.expr)) for k, d in self.let.items()))
        section("size", sorted((k, show(v)) for k, v in self.sizes.items()))
        section("input", ((k, t.show()) for k, t in self.inputs.items()))
        section("attr", ((k, _show_attr(a)) for k, a in self.attrs.items()))
        section("output", ((k, t.show()) for k, t in self.outputs.items()))
        section("require", sorted(("", show(r.expr)) for r in self.require))
        if self.view:
            section(
                "view",
                (
                    ("size", ", ".join(d.show() for d in self.view.size)),
                    ("stride", ", ".join(d.show() for d in self.view.stride)),
                    ("offset", show(self.view.offset)),
                ),
            )
        out.append("compute:\n" + show_block(self.compute, "  "))
        if self.oracle:
            out.append(f"oracle: {self.oracle}")
        if g := self.grad:
            out.append(
                f"grad: wrt {list(g.wrt)} derive {g.derive} save {list(g.save)} every {list(g.every)} "
                f"against {g.against_derive} none {g.none is not None} order {g.order}"
            )
            out.append(show_block(g.compute or (), "  "))
        return "\n".join(out)

    @property
    def by_hand(self) -> bool:
        """Whether a person or an agent wrote the loops of its CPU kernels (`lower: {cpu: {kind: body, file: …}}`)."""
        how = self.lower.get("cpu")
        return isinstance(how, dict) and how.get("kind") == "body" and "file" in how

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
