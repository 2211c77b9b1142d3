"""What tests/speed.py and tests/speed_rows.py measure with: ratios to PyTorch in blocks A,B,B,A.

One thread is measured in the process's CPU time, more in wall time.  For ops at work: `opwright bench`.

May import: torch, ml_dtypes, numpy, opwright.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from opwright import set_num_threads
from opwright import tensor as as_tensor
from opwright.workflows.bench import quantile
from opwright.workflows.bridge import Bridge
from opwright.workflows.workbench import Workbench

__all__ = ["given", "measure", "options", "start"]


def given(t: torch.Tensor) -> Any:
    """A tensor of ours with the same numbers and strides."""
    bf16 = t.dtype is torch.bfloat16
    return as_tensor(t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if bf16 else t.numpy())


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    return parser


def start(ops: Iterable[str], threads: int) -> Callable[[], float]:
    """Let the kernels of these operators serve as the tree makes them now; the clock to measure with."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    np.seterr(all="ignore")
    bench = Workbench.here(Path(__file__).resolve().parents[1])
    Bridge(bench).install(extra=[bench.one(op) for op in ops])
    set_num_threads(threads)
    return time.process_time if threads == 1 else time.perf_counter


def measure(
    ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float, clock: Callable[[], float]
) -> str:
    """A row's cells: the median of PyTorch's time over ours, p10 and p90, and our time."""

    def block(f: Callable[[], Any]) -> float:
        begun = clock()
        for _ in range(repeats):
            f()
        return (clock() - begun) / repeats

    ours(), theirs()
    repeats = 1
    while (took := block(ours)) * repeats < 0.005:
        repeats *= 2 if took * repeats > 0.001 else 8
    ratios: list[float] = []
    mine: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(ratios) < 6:
        a, b, c, d = block(ours), block(theirs), block(theirs), block(ours)
        ratios += [b / a, c / d]
        mine += [a, d]
    low, middle, high = (quantile(ratios, q) for q in (0.1, 0.5, 0.9))
    return f"{middle:.2f} | {low:.2f}–{high:.2f} | {1e6 * statistics.median(mine):,.1f} µs"
