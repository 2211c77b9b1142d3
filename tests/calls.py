"""What a call from Python costs, beside PyTorch's and NumPy's: PYTHONPATH=build/src python tests/calls.py [--seconds N]

Each row is called in blocks, ours, PyTorch's and NumPy's by turns, on one thread, in the process's CPU time: the time
of a call in the quickest tenth of the blocks (a busy machine makes the others longer), and medians of paired ratios.
The loop and the names are Python's and in all of them; the row "nothing" is `operator.is_`, which does nothing else.
No test runs it.  To add a row: `rows`.
"""

from __future__ import annotations

import argparse
import operator
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import torch

import opwright as ow

Row = tuple[str, Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Callable[..., Any], Callable[..., Any]]


def rows() -> Iterator[Row]:
    """Name, ours, our arguments, theirs as NumPy's; PyTorch's function, NumPy's."""
    ops, o = ow.ops, operator
    yield "nothing", o.is_, (1, 2), (1, 2), o.is_, o.is_
    for n in (8, 1024):
        a, b = np.linspace(0.1, 0.9, n, dtype="f"), np.linspace(0.2, 0.7, n, dtype="f")
        x, y = ow.tensor(a), ow.tensor(b)
        yield f"add(x, y), {n}", ops.add, (x, y), (a, b), torch.add, np.add
        yield f"x + y, {n}", o.add, (x, y), (a, b), o.add, o.add
        yield f"x += y, {n}", o.iadd, (ow.tensor(a), y), (a.copy(), b), o.iadd, o.iadd
        yield f"x * 2.0, {n}", o.mul, (x, 2.0), (a, 2.0), o.mul, o.mul
        yield f"x < y, {n}", o.lt, (x, y), (a, b), o.lt, o.lt
        yield f"relu(x), {n}", ops.relu, (x,), (a,), torch.relu, lambda v: np.maximum(v, 0)
        yield f"exp(x), {n}", ops.exp, (x,), (a,), torch.exp, np.exp
        yield f"sum(x), {n}", ops.sum, (x,), (a,), torch.sum, np.sum
        yield f"x.sum(), {n}", lambda v: v.sum(), (x,), (a,), lambda v: v.sum(), lambda v: v.sum()
    a = np.ones((4, 4), "f")
    x = ow.tensor(a)
    yield "matmul, 4 × 4", ops.matmul, (x, x), (a, a), torch.matmul, np.matmul
    yield (
        "softmax, 4 × 4",
        ops.softmax,
        (x,),
        (a,),
        lambda v: torch.softmax(v, -1),
        lambda v: np.exp(v) / np.exp(v).sum(-1),
    )
    yield "x[0]", o.getitem, (x, 0), (a, 0), o.getitem, o.getitem


def block(f: Callable[..., Any], args: tuple[Any, ...], n: int) -> float:
    """Nanoseconds a call."""
    began = time.process_time_ns()
    if len(args) == 1:
        (a,) = args
        for _ in repeat(None, n):
            f(a)
    else:
        a, b = args
        for _ in repeat(None, n):
            f(a, b)
    return (time.process_time_ns() - began) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="a row")
    parser.add_argument("--calls", type=int, default=4000, help="a block")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    ow.set_num_threads(1)
    print("| call | ours, ns | PyTorch, ns | PyTorch ÷ ours | NumPy ÷ ours |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, ours, x, a, theirs, numpys in rows():
        t = tuple(torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in a)
        sides = ((ours, x), (theirs, t), (numpys, a))
        times: list[list[float]] = [[], [], []]
        for f, args in sides:
            block(f, args, 200)  # kernels are made here
        until = time.monotonic() + given.seconds
        while time.monotonic() < until or len(times[0]) < 10:
            for k, (f, args) in enumerate(sides):
                times[k].append(block(f, args, given.calls))
        best = [statistics.quantiles(sorted(v), n=10)[0] for v in times]
        over = [statistics.median(b / o for o, b in zip(times[0], times[k], strict=True)) for k in (1, 2)]
        print(f"| {name} | {best[0]:,.0f} | {best[1]:,.0f} | {over[0]:.1f} | {over[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
