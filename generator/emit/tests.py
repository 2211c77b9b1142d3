"""The test file of an operator: the judge's gates on the texts that lie beside it.

May import: skeleton, spec.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..spec import OpSpec
from .skeleton import fill, origin

__all__ = ["print_test", "test_name"]


def test_name(spec: OpSpec) -> str:
    """`test_softmax.py`; a namespace's `::` becomes `_`."""
    return f"test_{spec.op.replace('::', '_')}.py"


test_name.__test__ = False  # type: ignore[attr-defined]  # not pytest's


def print_test(spec: OpSpec, gates: Sequence[str]) -> str:
    """The text of `test_<op>.py`; `gates`: the names of those that it runs."""
    return fill("test.py.j2", op=spec.op, origin=origin(spec), gates=repr(list(gates)))
