"""Level L3: the program in bf16 against f64, beside PyTorch's own bf16 (DESIGN.md).

    held when, for every output,   max |ours − f64|  ≤  max(2 × max |PyTorch's bf16 − f64|,  u max |f64|)

over all records, u being bf16's unit roundoff: an output that is the exact one rounded once must pass whatever luck
PyTorch has had.  Integers and truths may differ as far as PyTorch's own do.

May import: parity, generator.program (folder), numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..generator.program.folder import read_tensors
from ..generator.types import DType

__all__ = ["Half", "judge_half"]


@dataclass
class _Output:
    """One output over all records."""

    ours: float = 0.0
    own: float = 0.0
    largest: float = 0.0

    @property
    def bound(self) -> float:
        return max(2 * self.own, DType.BF16.u * self.largest)


@dataclass(frozen=True)
class Half:
    """What the comparison found: of the worst output its error, bound and PyTorch's own error."""

    held: bool
    reason: str = ""
    error: Mapping[str, float] = field(default_factory=dict)


def judge_half(records: Path, ran: Path) -> Half:
    """Compare what the child wrote (`ran`) with what PyTorch said in bf16 and in f64 (`records`)."""
    outputs: dict[str, _Output] = {}
    for path in sorted(p for p in records.iterdir() if p.is_dir()):
        want, own = (read_tensors(path / f"outputs_{n}.safetensors") for n in ("f64", "bf16"))
        got = read_tensors(ran / path.name / "outputs.safetensors")
        for name, exact in want.items():
            have = got.get(name)
            if have is None or have.shape != exact.shape:
                return Half(False, f"{name} is missing or of another shape")
            o = outputs.setdefault(name.removesuffix("@2"), _Output())
            o.ours = max(o.ours, distance(have, exact))
            o.own = max(o.own, distance(own[name], exact))
            if exact.dtype.kind in "fc":
                o.largest = max(o.largest, float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)))
    if not outputs:
        return Half(False, "no output was compared")
    name, worst = max(outputs.items(), key=lambda kv: _ratio(kv[1]))
    numbers = {"max": worst.ours, "bound": worst.bound, "eager": worst.own}
    if _ratio(worst) <= 1:
        return Half(True, "", numbers)
    return Half(
        False,
        f"{name}: error {worst.ours:.3g} in bf16, at most {worst.bound:.3g} (PyTorch's own is {worst.own:.3g})",
        numbers,
    )


def _ratio(o: _Output) -> float:
    if np.isinf(o.ours):
        return 0.0 if np.isinf(o.own) else float("inf")
    return o.ours / o.bound if o.bound > 0 else float("inf") if o.ours > 0 else 0.0


def distance(got: NDArray[Any], exact: NDArray[Any]) -> float:
    """The largest difference where the exact one is finite; infinite where only one of them is."""
    kind = np.complex128 if exact.dtype.kind == "c" else np.float64
    a, b = got.astype(kind), exact.astype(kind)
    plain = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), plain):
        return float("inf")
    return float(np.abs(a[plain] - b[plain]).max(initial=0.0))
