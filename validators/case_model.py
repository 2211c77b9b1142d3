"""What a case is: its tensors, attributes and the refusal it expects, and what a tier's making says of itself.

May import: values, generator.{errors, types}.  To add what a case states: a field of `Case`, filled in
`cases.Builder.case`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..generator.bound import BindKey
from ..generator.errors import JudgedError
from ..generator.types import DType
from .values import Array

__all__ = ["Case", "CaseRefused", "CaseReport", "CaseTensor", "Expected"]


class CaseRefused(JudgedError):
    """A case that cannot be built.  `inapplicable`: by the operator's nature, not by a fault of its spec."""

    def __init__(self, message: str, *, inapplicable: bool = False) -> None:
        super().__init__(message)
        self.inapplicable = inapplicable


@dataclass(frozen=True)
class CaseTensor:
    """An operand: any strides; `layout` says how they came about."""

    array: Array
    dtype: DType
    layout: str = "contiguous"


@dataclass(frozen=True)
class Expected:
    """The refusal that a kernel must answer with: kind as in OracleRefusal, the rule's position (-1), and its words."""

    kind: str
    which: int
    text: str


@dataclass(frozen=True, eq=False)
class Case:
    """One call.

    operands   by spec input: a tensor, a tuple for a list input, None where absent
    attrs      as a caller gives them; run_attrs: the run-time ones, canonical, as kernel and oracle take them
    declared   False: of a class of values that the spec does not list
    expect     None, or the refusal that must come
    """

    op: str
    name: str
    seed: int
    key: BindKey
    operands: dict[str, CaseTensor | tuple[CaseTensor, ...] | None]
    attrs: dict[str, Any]
    run_attrs: dict[str, Any]
    value_class: str
    index_class: str
    layout: str
    declared: bool = True
    expect: Expected | None = None

    @property
    def inputs(self) -> dict[str, Array]:
        """Flat name -> array, absent inputs left out (lists as `xs.0`, `xs.1` …)."""
        return {name: t.array for name, t in self.tensors()}

    def tensors(self) -> Iterator[tuple[str, CaseTensor]]:
        """(flat name, tensor) of what is present, in call order."""
        for name, value in self.operands.items():
            if isinstance(value, tuple):
                yield from ((f"{name}.{k}", t) for k, t in enumerate(value))
            elif value is not None:
                yield name, value

    @property
    def source(self) -> str:
        return self.name.split("/", 1)[0]

    @property
    def repeat(self) -> str:
        """The command that runs this case alone."""
        return f"opwright validate {self.op} --case '{self.name}' --seed {self.seed}"

    def show(self) -> str:
        """Shapes and attributes, for people."""
        shapes = ", ".join(f"{n}: {t.dtype}{list(t.array.shape)}" for n, t in self.tensors())
        attrs = ", ".join(f"{k}={v!r}" for k, v in self.attrs.items())
        return "; ".join(x for x in (shapes, attrs) if x)


@dataclass(frozen=True)
class CaseReport:
    """cases; refused: (name, why) that could not be built; skipped: (name, why) that do not apply."""

    cases: tuple[Case, ...]
    refused: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)
