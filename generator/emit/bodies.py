"""Kernels whose loops a person or an agent wrote: everything of a kernel is printed but one function, `body`.

The spec's checks, shapes, strides and the three entry points are those of every kernel.  What is written by hand
fills `static void body(const Args& a)`; `Args` is printed here from the key: a `View` of each tensor, the extents and
the attributes.  The judge proves the whole text as it proves ours, so a body can be wrong in no other way.

May import: cpu, prologue, loops, lower, bound, errors.  To give bodies something more: a member in `_arguments`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..bound import BoundOp, Tensor
from ..errors import LowerError
from ..loops import LoopProgram, verify
from ..lower import lower
from ..spec_model import OpSpec
from ..types import DType
from .c_expr import HALF, compute_type, storage_type
from .cpu import DIALECTS, entries, open_namespace
from .prologue import Prologue

__all__ = ["BODY", "ByHand", "print_with_body", "stub"]

#: The line above what somebody wrote; the judge counts a body's own lines from it.
BODY = "// ---- the body, by hand"

_VIEW = """\
// Elements are E; element (i, j, ...) lies at data[i * strides[0] + j * strides[1] + ...].  data is null where an
// optional input was left out.  Any strides may come, negative and 0 too.
template <class E> struct View {
  E* data;
  int32_t rank;
  const int64_t *shape, *strides;
};"""


def _program(op: BoundOp) -> LoopProgram:
    """The kernel without its loops; what counts extents that depend on data, and checks rules, stays."""
    p = lower(op, "cpu")
    kept = tuple(b for b in p.buffers if (p.rules or p.sizes) and b.scope == "stack")
    bare = replace(p, nests=(), buffers=kept, splits=(), twins=tuple(op.inplace))
    try:
        verify(bare)
    except LowerError as error:
        raise LowerError(
            f"`{op.name}` counts its extents by way of temporaries; a body cannot fill it yet",
            hint="leave `kind: body` out of `lower`",
        ) from error
    return bare


def _groups(tensors: Sequence[Tensor]) -> list[tuple[str, list[Tensor]]]:
    """Tensors by the name that the spec gives them: the entries of a list are one group."""
    out: dict[str, list[Tensor]] = {}
    for t in tensors:
        out.setdefault(t.list_of or t.name, []).append(t)
    return list(out.items())


class _Arguments:
    """`Args`, and the text that fills it."""

    def __init__(self, p: LoopProgram, pro: Prologue, spec: OpSpec) -> None:
        self.members: list[str] = []
        self.fill: list[str] = []
        op = p.op
        self.members.append(
            "const OwCall* call;  // owk_parallel(call, n, work, fn, ctx): n pieces of so many elements each"
        )
        self.fill.append("c")
        outputs = {t.name: i for i, t in enumerate(op.outputs)}
        for name, group in _groups((*op.inputs, *op.outputs)):
            const = "" if group[0].name in outputs else "const "
            kind = f"View<{const}{storage_type(group[0].dtype)}>"
            views = []
            for t in group:
                at = f"c->out[{outputs[t.name]}]" if t.name in outputs else f"c->in[{pro.slot[t.name]}]"
                views.append(f"{{e.{pro.tensor(t.name)}, {at}->ndim, {at}->shape, {at}->strides}}")
            if group[0].list_of is None:
                self.members.append(f"{kind} {_plain(name)};")
                self.fill.append(views[0])
            else:
                self.members.append(f"{kind} {_plain(name)}[{len(group)}];")
                self.fill.append(f"{{{', '.join(views)}}}")
        for name, there in op.key.present:
            if not there and name in spec.inputs:
                self.members.append(f"View<const float> {_plain(name)};  // left out")
                self.fill.append("{nullptr, 0, nullptr, nullptr}")
        for d in op.dims:
            if not d.pack and re.fullmatch(r"[A-Za-z_]\w*", d.name):
                self.members.append(f"int64_t {d.name};")
                self.fill.append(f"e.{pro.dim(d.name)}")
        for a in op.attrs:
            if a.kind in ("ints", "floats"):
                self.members.append(f"const {compute_type(pro.element(a))}* {_plain(a.name)};")
            elif a.kind == "axes":
                self.members.append(f"const OwkOrder* {_plain(a.name)};")
            else:
                self.members.append(f"{compute_type(a.dtype)} {_plain(a.name)};")
            self.fill.append(f"{'&' if a.kind == 'axes' else ''}e.{pro.attr(a.name)}")

    @staticmethod
    def constants(op: BoundOp, spec: OpSpec) -> list[str]:
        """The key as types and constants: one text must be able to ask for every value that a key can have."""
        out = [f"using {name} = {storage_type(DType(str(dtype)))};" for name, dtype in op.key.types]
        out += [f"constexpr bool {name}_given = {str(there).lower()};" for name, there in op.key.present]
        out += [f"constexpr int64_t {name}_length = {n};" for name, n in op.key.lengths]
        out += [f"constexpr int32_t {name}_rank = {n};" for name, n in op.key.ranks]
        for name, value in op.key.static:
            values = spec.attrs[name].values if name in spec.attrs else ()
            if values:
                out += [
                    f"constexpr bool {_plain(name)}_is_{v} = {str(v == value).lower()};"
                    for v in values
                    if re.fullmatch(r"\w+", v)
                ]
            elif isinstance(value, bool):
                out.append(f"constexpr bool {_plain(name)} = {str(value).lower()};")
            elif isinstance(value, int):
                out.append(f"constexpr int64_t {_plain(name)} = {value};")
            elif isinstance(value, float) and math.isfinite(value):
                out.append(f"constexpr double {_plain(name)} = {value!r};")
        return out


def _plain(name: str) -> str:
    """A spec's name as a member's: one that C++ reserves gets a line behind it."""
    return f"{name}_" if name in _WORDS else name


_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    auto bool break case char class const continue default delete do double else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new operator or and not private protected public register
    return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using
    virtual void volatile while xor
    """,
    )
)


def _loads(op: BoundOp) -> list[str]:
    """`load(p)` and `store(p, v)` of every kind of element: halves are computed with in float."""
    out = []
    kinds = {storage_type(t.dtype): t.dtype for t in (*op.inputs, *op.outputs)}
    for kind, dtype in sorted(kinds.items()):
        wide, got, put = compute_type(dtype), "*p", "v"
        if dtype in HALF:
            got, put = f"owk_{dtype.value}_to_f32(*p)", f"owk_f32_to_{dtype.value}(v)"
        head = "[[maybe_unused]] static inline"
        out.append(f"{head} {wide} load(const {kind}* p) {{ return {got}; }}")
        out.append(f"{head} void store({kind}* p, {wide} v) {{ *p = {put}; }}")
    return out


@dataclass(frozen=True)
class ByHand:
    """Loops that somebody wrote, and the spec that they are for."""

    text: str
    spec: OpSpec


def print_with_body(op: BoundOp, dialect: str, symbol: str, body: ByHand) -> str:
    """The kernel's text with `body` in it, everything but its entry points inside `namespace <symbol>_`."""
    for number, line in enumerate(body.text.splitlines(), 1):
        if line.lstrip().startswith("#") or line.endswith("\\"):
            raise LowerError(
                f"the body of `{op.name}` has a line for the preprocessor, its line {number}: `{line.strip()}`",
                hint="what a kernel may include is included; write a constant or a function",
            )
    p = _program(op)
    c = DIALECTS[dialect](p)
    pro = Prologue(p, c)
    open_namespace(c, pro, p, symbol)
    made = _Arguments(p, pro, body.spec)
    for text in (*_VIEW.splitlines(), "", *made.constants(op, body.spec), *_loads(op), ""):
        c.line(text)
    with c.indented("struct Args {", "};"):
        for m in made.members:
            c.line(m)
    c.line("")
    c.line(BODY)
    c.lines += body.text.rstrip().splitlines()
    c.line("")
    c.line(f"}}  // namespace {symbol}_")
    c.line("")

    def run() -> None:
        c.line(f"const Args args = {{{', '.join(made.fill)}}};")
        c.line("body(args);")

    entries(c, pro, p, symbol, run)
    return "\n".join(c.lines) + "\n"


def stub(op: BoundOp, spec: OpSpec) -> str:
    """What a body begins from: the arguments that it is given for this key, and an empty function."""
    p = _program(op)
    c = DIALECTS["cpu-portable"](p)
    made = _Arguments(p, Prologue(p, c), spec)
    lines = [
        f"// The body of `{op.name}`: it fills one function of a kernel that is printed for each key.  For",
        f"// [{op.key.show()}] it is given, before this text:",
        "//",
        *(f"//   {text}".rstrip() for text in _VIEW.splitlines()),
        *(f"//   {text}" for text in (*made.constants(op, spec), *_loads(op))),
        "//   struct Args {",
        *(f"//     {m}" for m in made.members),
        "//   };",
        "",
        "static void body(const Args& a) {",
        "}",
    ]
    return "\n".join(lines) + "\n"
