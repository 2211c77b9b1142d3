"""`opwright generate --stubs`: what an editor and a type checker read of the runtime, made from specs and methods.

    ops.pyi      every operator that serves, typed, with its text
    _core.pyi    Tensor with its methods, and the makers

They lie beside the modules that they describe (in a checkout: runtime/python, where git ignores them) and in wheels.

May import: generator.emit.stubs, the runtime's face, workbench, write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import resources
from ..files import write_text
from ..generator.emit.stubs import print_ops_stub
from ..generator.spec import OpSpec

__all__ = ["beside", "stub_texts", "write_stubs"]

_TEMPLATE = Path(__file__).with_name("core.pyi.j2")
_TYPES = {"T": "Tensor", "mT": "Tensor", "shape": "tuple[int, ...]", "strides": "tuple[int, ...]", "dtype": "str",
          "device": "str", "readonly": "bool", "__array_interface__": "dict[str, Any]"}  # fmt: skip
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift",
              "rshift")  # fmt: skip
_RESULTS = {"diag": "Tensor", "chunk": "tuple[Tensor, ...]", "split": "tuple[Tensor, ...]",
            "unbind": "tuple[Tensor, ...]", "cummax": "tuple[Tensor, Tensor]", "cummin": "tuple[Tensor, Tensor]",
            "kthvalue": "tuple[Tensor, Tensor]"}  # fmt: skip


def stub_texts(specs: Iterable[OpSpec]) -> dict[str, str]:
    """Name → text of both files."""
    return {"_core.pyi": _core(), "ops.pyi": print_ops_stub(specs)}


def beside() -> Path:
    """Where they lie: the runtime's own folder."""
    return Path(resources.__file__).resolve().parent


def write_stubs(specs: Iterable[OpSpec], folder: Path) -> list[Path]:
    """Write both; a file that would not change stays."""
    written = []
    for name, text in stub_texts(specs).items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            written.append(path)
    return written


def _core() -> str:
    text = _TEMPLATE.read_text(encoding="utf-8")
    for name, lines in (("properties", _properties()), ("operators", _operators()), ("methods", _methods())):
        text = text.replace("{{ " + name + " }}\n", "".join(f"{line}\n" for line in lines))
    return text


def _properties() -> Iterator[str]:
    from ..load import core

    for name, member in vars(core.Tensor).items():
        if inspect.isgetsetdescriptor(member):
            yield "    @property"
            yield f"    def {name}(self) -> {_outside(_TYPES.get(name, 'int'))}:"
            yield f'        """{member.__doc__}"""'


def _operators() -> Iterator[str]:
    for name in _OPERATORS:
        for prefix in ("", "r", "i"):
            yield f"    def __{prefix}{name}__(self, other: Array, /) -> Tensor: ..."


def _methods() -> Iterator[str]:
    from .. import methods

    # Last: in the class's scope a method named `float` hides Python's.
    late = {"bool", "int", "float", "all", "any", "max", "min", "sum", "abs", "round", "pow"}
    for name, member in sorted(methods.members().items(), key=lambda item: (item[0] in late, item[0])):
        yield f"    def {name}({_parameters(name, member, methods.BY_ATEN)}) -> {_result(name, member)}:"
        yield f'        """{member.__doc__ or ""}"""'


def _parameters(name: str, member: Callable[..., Any], by_aten: Mapping[str, str]) -> str:
    if name in by_aten:
        return "self, *args: Any, **kwargs: Any"
    wanted = inspect.signature(member)
    parts: list[str] = []
    star = False
    for p in wanted.parameters.values():
        kinds: dict[Any, str] = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        text = kinds.get(p.kind, "") + p.name
        if p.name != "self":
            text += f": {'Array' if p.name == 'other' else _outside(str(p.annotation))}"
            text += "" if p.default is p.empty else f" = {p.default!r}"
        parts.append(text)
        if p.kind is p.POSITIONAL_ONLY and not any(
            q.kind is p.POSITIONAL_ONLY for q in list(wanted.parameters.values())[len(parts) :]
        ):
            parts.append("/")
    if hasattr(member, "__wrapped__"):  # NumPy's names for the same
        parts += ([] if star else ["*"]) + ["axis: Axes = None"]
        parts += ["keepdims: _bool = False"] if "keepdim" in wanted.parameters else []
    return ", ".join(parts)


def _result(name: str, member: Callable[..., Any]) -> str:
    if name in _RESULTS:
        return _RESULTS[name]
    known = inspect.signature(member).return_annotation
    text = _outside(str(known)) if known is not inspect.Signature.empty else "Any"
    return (
        "Tensor" if text == "Any" and not name.startswith(("__", "max", "min", "median", "stride")) else text
    )


def _outside(annotation: str) -> str:
    """Python's own types by names that no method of the class hides."""
    return re.sub(r"\b(bool|int|float)\b", r"_\1", annotation)
