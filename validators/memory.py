"""How much memory one judgement may take, and who holds it to that.

Three bounds, each enforced where the memory comes from: the judge's own process by the kernel (`limited`), the arena
that it shares with a worker by `Harness`, the worker by its limit of address space.  Together they stay under 4 GiB, so
that judgements in parallel do not take a machine down; far slices are mapped, not held.  What needs more is a failure
that says so: no case is left out for its size without a word.

May import: generator.errors.  To change a bound: here, and in docs/judge.md.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from ..generator.errors import JudgedError

__all__ = ["ARENA", "OWN", "WORKER", "TooMuchMemory", "limited", "mib"]

#: Bytes: what the judge's process may take on, besides what it holds when a judgement begins; what tensors, guards and
#: workspace of one call may take; what a worker may take besides.
OWN, ARENA, WORKER = 2 << 30, 512 << 20, 1 << 30


class TooMuchMemory(JudgedError):
    """A case needs more memory than a judgement may take."""


def mib(size: int) -> str:
    """`512 MiB`."""
    return f"{-(-size >> 20)} MiB"


def _held() -> int | None:
    """Bytes of private memory that this process may write, as the kernel counts them for the limit."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), None)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """This process may take on `OWN` bytes and no more; what asks for more gets a MemoryError (Linux; elsewhere there
    is no such limit).  Within another one it changes nothing.
    """
    held = _held() if sys.platform == "linux" else None
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = None if held is None else held + OWN
    if wanted is None or (soft != resource.RLIM_INFINITY and soft <= wanted):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
