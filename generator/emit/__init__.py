"""Normal -> text: a kernel's translation unit, its symbol, and its row for the runtime's table.

The symbol is `ow_` and a hash of the text without comments, the helper headers it calls, and the dialect:
the same meaning
printed the same way has the same name on every machine.

May import: bound, loops, plan, rule_words, types, c_expr, cpu, cuda, opwright.{resources, toolchain}.  To add a
dialect: see cpu.py.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable

from ... import resources
from ...toolchain import without_layout
from ..bound import BoundOp, KernelText
from ..errors import LowerError
from ..lower import lower
from ..rule_words import words
from .bodies import ByHand, print_with_body
from .c_expr import MASKED, PARTS, SPECIAL
from .cpu import DIALECTS, print_cpu
from .cuda import ARCHITECTURES, CudaText, print_cuda

__all__ = ["ARCHITECTURES", "HEADER", "ByHand", "CudaText", "emit", "emit_cuda", "emit_unit", "table_row"]

HEADER = '#include "opwright/kernel.h"\n'
#: Of texts with contractions.
GEMM_HEADER = '#include "opwright/gemm.h"\n'
#: Of texts with contractions by pairs of bf16.
PAIRS_HEADER = '#include "opwright/pairs.h"\n'
#: Of texts with windows packed by lines.
LINED_HEADER = '#include "opwright/lined.h"\n'
#: Headers that only texts which call one of their helpers include.
_HELPERS = {
    name: re.compile(rf"\bowk_(?:{'|'.join(sorted(functions))})_")
    for name, functions in (("special.h", SPECIAL), ("parts.h", PARTS), ("masked.h", MASKED))
}
_INCLUDES = {name: f'#include "opwright/{name}"\n' for name in _HELPERS}
#: Stands for the symbol while its hash is not known.
_PLACEHOLDER = "ow_SYMBOL"


@functools.cache
def _headers(names: tuple[str, ...]) -> str:
    folder = resources.include_dir() / "opwright"
    return "\n".join(without_layout((folder / n).read_text(encoding="utf-8")) for n in names)


def symbol_of(text: str, dialect: str, headers: tuple[str, ...] = ("scalar.h", "vmath.h", "kernel.h")) -> str:
    """`ow_` and 16 hex digits for a text in which the symbol is still the placeholder."""
    digest = hashlib.sha256(
        "\0".join((without_layout(text), _headers(headers), dialect)).encode()
    ).hexdigest()
    return f"ow_{digest[:16]}"


def emit(op: BoundOp, dialect: str, by_hand: ByHand | None = None) -> KernelText:
    """Print one Normal program as a whole translation unit.  Raises LowerError (no lowering, or no such
    dialect).

    by_hand: what takes the place of the loops (bodies.py).
    """
    if dialect not in DIALECTS:
        raise LowerError(f"no CPU dialect `{dialect}`", hint=f"dialects: {', '.join(DIALECTS)}")
    if by_hand is None:
        body = print_cpu(lower(op, "cpu"), dialect, _PLACEHOLDER)
    else:
        body = print_with_body(op, dialect, _PLACEHOLDER, by_hand)
    pairs = "owk_pairs_tile" in body
    lined = "owk_lined" in body
    contracts = pairs or "owk_gemm_tile" in body
    helpers = tuple(name for name, called in _HELPERS.items() if called.search(body))
    headers = (
        "scalar.h",
        "vmath.h",
        "kernel.h",
        *(("gemm.h",) if contracts else ()),
        *(("pairs.h",) if pairs else ()),
        *(("lined.h",) if lined else ()),
        *helpers,
    )
    symbol = symbol_of(body, dialect, headers)
    head = f"// {op.name}  [{op.key.show()}]  {dialect}\n"
    wanted = ((GEMM_HEADER, contracts), (PAIRS_HEADER, pairs), (LINED_HEADER, lined))
    more = "".join([*(h for h, named in wanted if named), *(_INCLUDES[h] for h in helpers)])
    text = head + HEADER + more + "\n" + body.replace(_PLACEHOLDER, symbol)
    return KernelText(symbol, text, table_row(op, symbol, dialect), dialect)


def emit_cuda(op: BoundOp, arch: str) -> CudaText:
    """Print one Normal program for CUDA: device code for NVRTC and its launcher.  Raises LowerError."""
    if arch not in ARCHITECTURES:
        raise LowerError(f"no CUDA architecture `{arch}`", hint=f"architectures: {', '.join(ARCHITECTURES)}")
    folder = resources.include_dir() / "opwright"
    prelude = "".join((folder / n).read_text(encoding="utf-8") for n in ("scalar.h", "device.h"))
    kernel, launcher = print_cuda(op, _PLACEHOLDER, prelude)
    helpers = [name for name, called in _HELPERS.items() if called.search(kernel)]
    if helpers:
        prelude += "".join((folder / name).read_text(encoding="utf-8") for name in helpers)
        kernel, launcher = print_cuda(op, _PLACEHOLDER, prelude)
    symbol = symbol_of(kernel + launcher, arch, ("kernel.h", "launch.h"))
    head = f"// {op.name}  [{op.key.show()}]  {arch}\n"
    return CudaText(
        head + kernel.replace(_PLACEHOLDER, symbol),
        head + launcher.replace(_PLACEHOLDER, symbol),
        symbol,
        table_row(op, symbol, arch),
    )


def emit_unit(texts: Iterable[KernelText]) -> str:
    """Many kernels in one translation unit; each symbol once."""
    texts = list(texts)
    optional = (GEMM_HEADER, PAIRS_HEADER, LINED_HEADER, *_INCLUDES.values())
    more = (h for h in optional if any(h in t.source for t in texts))
    out = [HEADER + "".join(more)]
    seen: set[str] = set()
    for t in texts:
        if t.symbol not in seen:
            seen.add(t.symbol)
            source = t.source.replace(HEADER, "")
            for header in optional:
                source = source.replace(header, "")
            out.append(source)
    return "\n".join(out)


def table_row(op: BoundOp, symbol: str, dialect: str) -> dict[str, object]:
    """What the runtime knows of a kernel (docs/internals.md, "Table row")."""
    key = op.key
    optional = {n for n, _ in key.present}
    inputs: dict[str, dict[str, object]] = {}
    for t in op.inputs:
        name = t.list_of or t.name
        inputs[name] = {
            "name": name,
            "dtype": t.dtype.value,
            "list": t.list_of is not None,
            "optional": name in optional,
        }
    return {
        "op": op.name,
        "symbol": symbol,
        "key": {
            "types": dict(key.types),
            "static": dict(key.static),
            "present": dict(key.present),
            "lengths": dict(key.lengths),
            "ranks": dict(key.ranks),
        },
        "inputs": list(inputs.values()),
        "attrs": [{"name": a.name, "kind": a.kind} for a in op.attrs],
        "outputs": [{"name": t.name, "dtype": t.dtype.value, "aux": t.aux} for t in op.outputs],
        "rules": [
            {"text": r.text, "line": r.line}
            | ({"file": r.file} if r.file else {})
            | ({"said": said} if (said := words(r, op)) else {})
            for r in op.rules
        ],
        "inplace": dict(op.inplace),
        "from_data": any(d.data for d in op.dims),
        "dialect": dialect,
    }
