"""YAML nodes to specs: what is written, field by field, with every mistake collected.

May import: errors, expr, source, spec_check, spec_model, types.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .errors import Place, SpecError, did_you_mean
from .expr import (
    Block,
    Cmp,
    Expr,
    Num,
    Span,
    Str,
    TupleLit,
    parse_expr,
    parse_statements,
)
from .source import Node, Text
from .spec_check import Checker
from .spec_model import (
    ATEN_FIELDS,
    ATTR_FIELDS,
    ATTR_KINDS,
    DIM_FIELDS,
    DIM_KINDS,
    FIELDS,
    GRAD_FIELDS,
    LAYOUTS,
    ONNX_FIELDS,
    TEST_FIELDS,
    VALUE_CLASSES,
    VIEW_FIELDS,
    YAML11,
    AtenEntry,
    AttrDecl,
    DimDecl,
    DimText,
    GradDecl,
    LetDecl,
    MapTarget,
    Only,
    OnnxEntry,
    OpSpec,
    Require,
    TensorType,
    TestDecl,
    ViewDecl,
)
from .types import CATEGORIES, DType

_OP = re.compile(
    r"(([a-z][a-z0-9_]*::)?[a-z][a-z0-9_]*|group:[0-9a-f]{8,64})\Z"
)  # a group: program/fuse.py names it
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_OVERLOAD = re.compile(r"[a-z_][a-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*\Z")
_BODY = re.compile(r"[A-Za-z0-9_.][\w./-]*\.cpp")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")
_ORACLE = re.compile(r"[A-Za-z_][\w.]*(\.py)?:[A-Za-z_]\w*\Z")


V = TypeVar("V")


def parse_type(text: Text) -> TensorType:
    """`"optional T[*B, N@axis]"` with places.  Raises `SpecError`."""
    t = text.strip()
    m = re.match(r"((?:(?:optional|list|aux|expand)\s+)*)([A-Za-z][A-Za-z0-9_]*)\s*(\[)?", t.value)
    if not m:
        raise SpecError(
            "a type is missing here" if not t.value else f"`{t.value}` is not a type",
            place=t.place,
            hint='`"T[*B, N]"`, `"optional T[D]"`, `"list T[N]"`, of rank 0 `"T[]"`',
        )
    marks = m[1].split()
    if m[3] is None and (more := re.match(r"(\S+)\s+\S", t[m.start(2) :].value)):
        word = t[m.start(2) : m.start(2) + len(more[1])]
        raise SpecError(
            f"`{word.value}` is not a mark of a type",
            place=word.place,
            hint=did_you_mean(word.value, ("optional", "list", "aux", "expand"), what="marks"),
        )
    if m[3] is None:
        raise SpecError(
            f"`{t.value}` says no shape", place=t.place, hint=f'`"{m[2]}[N]"`; of rank 0 `"{m[2]}[]"`'
        )
    if not t.value.endswith("]"):
        raise SpecError("a type ends with `]`", place=t[len(t.value) :].place, hint='`"T[*B, N@axis]"`')
    inner = t[m.end() : len(t.value) - 1]
    dims = tuple(parse_dim(part) for part in _split(inner)) if inner.value.strip() else ()
    if len(set(marks)) != len(marks):
        raise SpecError("a mark is given twice", place=t.place)
    return TensorType(
        m[2], dims, "optional" in marks, "list" in marks, "aux" in marks, "expand" in marks, span=t.span
    )


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
            raise SpecError(
                f"`@{mark.value}` is not a mark",
                place=mark.place,
                hint="`N@axis`, or of a reduced axis `1@dim if keepdim`",
            )
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


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


class SpecReader:
    """One document to one spec; mistakes are collected in `errors`."""

    def __init__(self, root: Node, file: str, family: str) -> None:
        self.root, self.file, self.family = root, file, family
        self.errors: list[SpecError] = []
        self.broken: set[str] = set()  # declared, but wrongly: other places that name it are not wrong too

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
    def mapping(
        self, node: Node | None, what: str, known: Iterable[str] | None = None
    ) -> list[tuple[Node, Node]]:
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
                self.fail(
                    k, f"`{k.string}` is not a field of {what}", did_you_mean(k.string, names, what="fields")
                )
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

    def names(self, node: Node | None, what: str, known: Iterable[str], kind: str = "") -> tuple[str, ...]:
        out: list[str] = []
        pool = list(known)
        for item in self.items(node, what):
            t = self.string(item, what)
            if t is None:
                continue
            if t.value in self.broken:
                continue  # its declaration could not be read, and that has been said
            if t.value not in pool:
                of = f"is not an {kind}" if kind else "is not known"
                self.fail(
                    t,
                    f"`{t.value}` in `{what}` {of}",
                    did_you_mean(t.value, pool, what=f"{kind}s" if kind else what),
                )
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
            self.fail(
                t, f"`{t.value}` is not a value of `{what}`", did_you_mean(t.value, known, what="values")
            )
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
        inputs = self.tensors(get("inputs"), "inputs", ("optional", "list", "expand"))
        attrs = self.attrs(get("attrs"))
        outputs = self.tensors(get("outputs"), "outputs", ("list", "aux"))
        if not outputs and not self.errors:
            self.fail(get("outputs") or get("op"), "a spec has at least one output", 'outputs: {y: "T[*B]"}')
        declared = not self.errors
        inplace: tuple[str, ...] = ()
        for k, v in self.mapping(get("variants"), "variants", ("inplace",)):
            inplace = self.names(v, k.string, inputs, "input")
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
        complete = all(k.string in FIELDS for k, _ in self.root.pairs)  # else `computes:` is said already
        if compute_node is None and view is None and oracle is None and complete:
            self.fail(get("op") or self.root, "a spec without meaning", "`compute: |`, `view:` or `oracle:`")
        spec = OpSpec(
            op=op or "",
            file=self.file,
            line=(get("op") or self.root).line,
            family=self.family,
            doc=self.doc(get("doc")),
            types=types,
            dims=dims,
            let=let,
            sizes=sizes,
            inputs=inputs,
            attrs=attrs,
            outputs=outputs,
            inplace=inplace,
            require=require,
            view=view,
            compute=compute or (),
            compute_text=compute_node.string if compute is not None and compute_node else "",
            compute_line=compute_node.span.line if compute_node else 0,
            compute_col=compute_node.span.col if compute_node else 0,
            grad=grad,
            lower=lower,
            test=test,
            also=also,
            oracle=oracle,
            reference=reference,
            aten=self.aten(get("aten"), inputs, attrs, outputs),
            onnx=self.onnx(get("onnx"), inputs, attrs, outputs),
            since=self.doc(get("since")) or None,
        )
        if not declared:  # where a name could not be declared, its uses are not wrong too
            return None
        checker = Checker(spec, self.fail)
        checker.run(blocks=compute is not None or (compute_node is None and complete))
        checker.cases(get("test"), get("bench"))
        if self.errors:
            return None
        bench = tuple(n.plain() for n in self.items(get("bench"), "bench"))
        return replace(spec, dims=checker.all_dims(), bench=bench)

    def op_name(self, node: Node | None) -> str | None:
        if node is None:
            self.fail(
                Place(self.file, self.root.line, self.root.col), "the field `op` is missing", "`op: name`"
            )
            return None
        t = self.string(node, "op")
        if t is None:
            return None
        if not _OP.match(t.value) or len(t.value) > 100:
            self.fail(
                t, f"`{t.value[:100]}` is not an operator's name", "lower case: `softmax`, `my_co::rope2d`"
            )
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
            self.fail(t, f"`{t.value}` is not a value of `{what}`", hint)
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
            self.fail(
                text,
                f"`{name}` is already {_article(self.taken[name])} (line {self.spans[name].line})",
                "one name, one meaning: choose another",
            )
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
                self.broken.add(k.string)
                continue
            for mark, on in (
                ("optional", t.optional),
                ("list", t.is_list),
                ("aux", t.aux),
                ("expand", t.expand),
            ):
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
            else:
                self.broken.add(k.string)
        return out

    def attr(self, key: Node, node: Node) -> AttrDecl | None:
        if node.kind != "map":
            self.fail(
                node, f"`attrs.{key.string}` must be a mapping", f"{key.string}: {{type: int, default: 0}}"
            )
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
            hint = (
                "`enum[a, b, c]`"
                if bare == "enum"
                else did_you_mean(bare, ATTR_KINDS, what="types of attributes", cutoff=0.75)
            )
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
        return AttrDecl(
            key.string,
            kind,
            optional,
            default,
            "default" in fields,
            static,
            values,
            empty,
            default_expr,
            key.span,
        )

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
            e = self.attempt(
                lambda: parse_expr(
                    "_ " + value, file=self.file, locate=lambda row, col: base(row, max(col - 2, 0))
                )
            )
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
                isinstance(v, int | float if kind == "floats" else int) and not isinstance(v, bool)
                for v in value
            ):
                return tuple(value), None
        elif isinstance(value, str):
            if kind == "enum":
                if value in values:
                    return value, None
                self.fail(
                    node, f"`{value}` is not a value of this enum", did_you_mean(value, values, what="values")
                )
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
            wrt=self.names(fields.get("wrt"), "wrt", inputs, "input"),
            derive=self.flag(fields.get("derive"), "derive"),
            compute=compute,
            save=tuple(save),
            every=tuple(every),
            against_derive="against" in fields,
            none=none.value if none else None,
            order=order,
            compute_text=fields["compute"].string if compute is not None else "",
            span=node.span,
        )
        ways = [w for w in ("derive", "compute", "none") if w in fields]
        if len(ways) != 1:
            self.fail(
                node,
                "`grad` says exactly one of derive, compute, none"
                + (f" (here: {', '.join(ways)})" if ways else ""),
                "`derive: true`; or `compute: |` with `against: derive`; or `none: the reason`",
            )
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
        how, item = value.get("cpu"), node.get("cpu")
        if item is not None and isinstance(how, dict) and how.get("kind") == "body" and "file" in how:
            files = how["file"] if isinstance(how["file"], list) else [how["file"]]
            if not files or not all(
                isinstance(f, str) and _BODY.fullmatch(f) and ".." not in f.split("/") for f in files
            ):
                self.fail(
                    item.get("file") or item,
                    "a body is a .cpp file in the folder of bodies",
                    "lower: {cpu: {kind: body, file: mine.cpp}}",
                )
        return value

    def test(self, node: Node | None) -> TestDecl:
        fields = {f.string: x for f, x in self.mapping(node, "test", TEST_FIELDS)}
        cases, spans = [], []
        for item in self.items(fields.get("cases"), "cases"):
            if item.kind != "map":
                self.fail(item, "a case is a mapping of extents and attributes", "{B: [3], N: 5}")
            else:
                cases.append(item.plain())
                spans.append(item.span)
        layouts = self.names(fields.get("layouts"), "layouts", LAYOUTS)
        values = self.names(fields.get("values"), "values", VALUE_CLASSES)
        tol = self.choice(fields["tol"], "tol", ("exact", "bound")) if "tol" in fields else "bound"
        return TestDecl(
            tuple(cases),
            layouts,
            values,
            self.conditions(fields.get("checks"), "checks"),
            tol or "bound",
            tuple(spans),
        )

    def target_map(
        self, node: Node | None, inputs: Mapping[str, Any], attrs: Mapping[str, Any]
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
            to: list[str] = []
            for item in v.items if v.kind == "list" else [v]:
                t = self.string(item, "map")
                if t is None or t.value in self.broken:
                    continue
                if t.value not in pool:
                    self.fail(
                        t,
                        f"`{t.value}` is neither an input nor an attribute",
                        did_you_mean(t.value, pool, what="inputs and attributes"),
                    )
                elif t.value in used:
                    self.fail(t, f"two arguments go to `{t.value}`")
                else:
                    used.add(t.value)
                    to.append(t.value)
            if v.kind == "list":
                out.append((k.string, tuple(to)))
            elif to:
                out.append((k.string, to[0]))
        return tuple(out)

    def entry(
        self,
        fields: Mapping[str, Node],
        inputs: Mapping[str, TensorType],
        attrs: Mapping[str, AttrDecl],
        outputs: Mapping[str, TensorType],
    ) -> dict[str, Any]:
        fixed: dict[str, object] = {}
        for k, v in self.mapping(fields.get("set"), "set"):
            if k.string not in attrs and k.string not in inputs:
                self.fail(
                    k, f"`{k.string}` is not an attribute", did_you_mean(k.string, attrs, what="attributes")
                )
            fixed[k.string] = v.plain()
        returns = self.names(fields["returns"], "returns", outputs, "output") if "returns" in fields else None
        mapped = self.target_map(fields.get("map"), inputs, attrs)
        for arg, to in mapped or ():
            if isinstance(to, str) and to in fixed:
                self.fail(fields["set"], f"`{to}` is both set and given by `{arg}`")
        return {"map": mapped, "set": fixed, "returns": returns}

    def aten(
        self,
        node: Node | None,
        inputs: Mapping[str, TensorType],
        attrs: Mapping[str, AttrDecl],
        outputs: Mapping[str, TensorType],
    ) -> tuple[AtenEntry, ...]:
        out: list[AtenEntry] = []
        for item in self.items(node, "aten"):
            fields = (
                {f.string: x for f, x in self.mapping(item, "aten", ATEN_FIELDS)}
                if item.kind == "map"
                else {}
            )
            name = item if item.kind == "scalar" else fields.get("overload")
            if name is None:
                self.fail(
                    item, "an aten entry names its overload", "{overload: aten.add.Tensor, map: {self: a}}"
                )
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

    def onnx(
        self,
        node: Node | None,
        inputs: Mapping[str, TensorType],
        attrs: Mapping[str, AttrDecl],
        outputs: Mapping[str, TensorType],
    ) -> tuple[OnnxEntry, ...]:
        out: list[OnnxEntry] = []
        for item in self.items(node, "onnx"):
            fields = (
                {f.string: x for f, x in self.mapping(item, "onnx", ONNX_FIELDS)}
                if item.kind == "map"
                else {}
            )
            name = item if item.kind == "scalar" else fields.get("op")
            if name is None:
                self.fail(item, "an onnx entry names its operator", "{op: Softmax, since: 13}")
                continue
            text = self.pattern(
                name, "op", re.compile(r"([A-Za-z0-9_.]+::)?[A-Z][A-Za-z0-9]*\Z"), "`Softmax`"
            )
            since = fields["since"].plain() if "since" in fields else None
            if since is not None and (not isinstance(since, int) or isinstance(since, bool)):
                self.fail(fields["since"], "`since` is an opset's number")
                since = None
            rest = self.entry(fields, inputs, attrs, outputs)
            if text is not None:
                out.append(OnnxEntry(text, since, span=name.span, **rest))
        return tuple(out)
