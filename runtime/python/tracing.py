"""`with ow.trace("calls.jsonl"):` records the ATen calls that a PyTorch program makes in the block, for
`opwright bench OP --calls` and `opwright validate OP --calls`.

A line a call, the same call once with its count: `{"schema": 1, "overload": "aten.mm.default", "arguments": {"self":
{"tensor": {"dtype": "f32", "shape": [2, 3], "strides": [3, 1]}}, …}, "count": 4}`.  Shapes, strides, dtypes and
attributes are recorded, never contents.  The file is written whole when the block ends, also by an exception.

torch is the program's own: it is taken from the modules that are loaded, and never imported here.
May import: `.exceptions`, `.files`, the standard library.  To record another kind of argument: a case in `_plain`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .exceptions import OpValueError
from .files import write_text

SCHEMA = 1
_DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
}


@contextlib.contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Record the ATen calls that PyTorch makes in the block (in this thread) into a JSON Lines file.

    path: the file; it is replaced.  Raises OpValueError where torch was not imported before.
    """
    torch = sys.modules.get("torch")
    modes = sys.modules.get("torch.utils._python_dispatch")
    if torch is None or modes is None:
        raise OpValueError(
            "ow.trace records PyTorch's calls, and torch is not imported", hint="import torch first"
        )
    counts: dict[str, int] = {}

    class Recorder(modes.TorchDispatchMode):  # type: ignore[name-defined]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            row = _row(torch, function, args, kwargs or {})
            counts[row] = counts.get(row, 0) + 1
            return function(*args, **(kwargs or {}))

    try:
        with Recorder():
            yield
    finally:
        lines = (f'{row[:-1]}, "count": {n}}}\n' for row, n in counts.items())
        write_text(Path(path), "".join(lines), durable=False)


def _row(torch: Any, function: Any, args: Any, kwargs: Any) -> str:
    """A call as one line of JSON; of two that are alike the lines are equal."""
    arguments = dict(zip((a.name for a in function._schema.arguments), args, strict=False)) | dict(kwargs)
    facts = {
        "schema": SCHEMA,
        "overload": str(function),
        "arguments": {k: _plain(torch, v) for k, v in arguments.items()},
    }
    return json.dumps(facts, allow_nan=False)


def _plain(torch: Any, x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return {
            "tensor": {
                "dtype": _name(x.dtype),
                "shape": [int(n) for n in x.shape],
                "strides": [int(n) for n in x.stride()] if x.layout == torch.strided else None,
            }
        }
    if isinstance(x, torch.dtype):
        return {"dtype": _name(x)}
    if isinstance(x, float) and not math.isfinite(x):
        return {"float": str(x)}
    if isinstance(x, complex):
        return {"complex": [str(x.real), str(x.imag)]}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, list | tuple):
        return [_plain(torch, e) for e in x]
    return {"other": str(x)}


def _name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return _DTYPES.get(name, name)
