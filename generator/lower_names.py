"""The C names of a kernel's tensors, dims and attributes, and what no name of ours may be.

May import: bound, updates.  To add a word that C++ or CUDA keeps for itself: `_RESERVED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .bound import BoundOp
from .updates import Split

__all__ = ["assign_names", "c_name", "free_name"]


_RESERVED = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "concept",
        "const",
        "const_cast",
        "constexpr",
        "continue",
        "co_await",
        "co_return",
        "co_yield",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
        "linux",
        "unix",
        "main",
        "e",
        "c",
        "ctx",
        "acc",
        "lo",
        "hi",
        "g",
        "thread",
        "error",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "Env",
        "bind",
        "ws",
        "rows",
        "in",
        "attr",
        "order",
        "bytes",
        "UNIT",
        "block",
        "begin",
        "end",
        "part",
        "count",
        "run",
        "task",
        "tile",
        "gemm",
        "scratch",
        "start",
        "first",
        "last",
        "place",
        "sums",
        "sums_row",
        "sums_stride",
        "left",
        "right",
        "left_pack",
        "right_pack",
        "to",
        "at",
        "width",
        "jump",
        "i0",
        "i1",
        "k0",
        "k1",
    ]
)


#: Names that the printers give to a walk's parts.
_PRINTERS = re.compile(r"(a|g|n|t|r|w|run|nest|rule)\d+")


def c_name(base: str) -> str:
    name = "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in base)
    if not name or name[0].isdigit() or name.startswith(("ow", "OW", "__")):
        name = "v_" + name
    return name


def free_name(base: str, taken: Callable[[str], bool]) -> str:
    base = c_name(base)
    if base in _RESERVED or _PRINTERS.fullmatch(base):
        base += "_"
    name, k = base, 0
    while taken(name):
        k += 1
        name = f"{base}_{k}"
    return name


def assign_names(op: BoundOp, splits: tuple[Split, ...]) -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    things = [("tensor", t.name) for t in (*op.inputs, *op.outputs, *op.temps)]
    things += [("dim", d.name) for d in op.dims] + [("attr", a.name) for a in op.attrs]
    known = {a.name for a in op.attrs}
    absent = {
        d.at: None
        for t in (*op.inputs, *op.outputs)
        for d in t.dims
        if d.at is not None and d.at not in known
    }
    things += [("attr", n) for n in absent]
    things += [("dim", n) for x in splits for n in (x.own, x.gone)]
    for key in things:
        name = free_name(key[1], lambda n: n in used)
        used.add(name)
        names[key] = name
    return names
