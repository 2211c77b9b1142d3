"""The benchmark file of an operator: its spec's workloads, as data that a person can edit and run.

May import: skeleton, spec.
"""

from __future__ import annotations

from ..spec import OpSpec
from .skeleton import fill, origin

__all__ = ["bench_name", "print_bench"]


def bench_name(spec: OpSpec) -> str:
    """`bench_softmax.py`."""
    return f"bench_{spec.op.replace('::', '_')}.py"


def print_bench(spec: OpSpec) -> str:
    """The text of `bench_<op>.py`."""
    return fill("bench.py.j2", op=spec.op, origin=origin(spec), workloads=[repr(w) for w in spec.bench])
