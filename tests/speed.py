"""Sums of products against PyTorch, by ratios: python tests/speed.py [matmul linear conv attention] [--threads N]

    PYTHONPATH=build/src python tests/speed.py attention --seconds 2

For ops at work: `opwright bench` measures what has been accepted, on its spec's workloads; this takes kernels as the
tree makes them now, on the sizes that docs/speed.md lists.  Blocks A,B,B,A; the median of ratios with p10 and p90.  One
thread is measured in the process's CPU time, more in wall time.  No test runs it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opwright import registry, set_num_threads
from opwright import tensor as as_tensor
from opwright.workflows.bench import quantile
from opwright.workflows.bridge import Bridge
from opwright.workflows.workbench import Workbench

OPS = ("matmul", "linear", "convolution", "scaled_dot_product_attention")
Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def made(dtype: str, *shape: int) -> tuple[Any, torch.Tensor]:
    """The same numbers as our tensor and as torch's."""
    import ml_dtypes

    kind = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[dtype]
    t = torch.randn(*shape).to(kind)
    array = t.float().numpy().astype(ml_dtypes.bfloat16) if dtype == "bf16" else t.numpy()
    return as_tensor(array), t


def matmul() -> Iterator[Pair]:
    f = registry.get("matmul")
    for dt, sizes in (
        ("f32", (64, 128, 256, 512, 1024)),
        ("f64", (64, 256, 512)),
        ("bf16", (64, 128, 256, 512)),
    ):
        for n in sizes:
            (a, ta), (b, tb) = made(dt, n, n), made(dt, n, n)
            yield f"{dt} {n}³", lambda a=a, b=b: f(a, b), lambda a=ta, b=tb: torch.mm(a, b)
    for dt in ("f32", "bf16"):
        (a, ta), (b, tb) = made(dt, 1, 4096), made(dt, 4096, 4096)
        yield f"{dt} 1 × 4096 × 4096", lambda a=a, b=b: f(a, b), lambda a=ta, b=tb: torch.mm(a, b)
    (a, ta), (b, tb) = made("f32", 96, 128, 64), made("f32", 96, 64, 128)
    yield "f32 96 of 128 × 128 × 64", lambda: f(a, b), lambda: torch.bmm(ta, tb)


def linear() -> Iterator[Pair]:
    f = registry.get("linear")
    for dt in ("f32", "bf16"):
        for m, k, n in ((1, 512, 1536), (1, 4096, 4096), (8, 4096, 4096), (64, 1024, 4096), (256, 768, 768)):
            (x, tx), (w, tw), (b, tb) = made(dt, m, k), made(dt, n, k), made(dt, n)
            yield (
                f"{dt} {m} rows, {k} to {n}",
                lambda x=x, w=w, b=b: f(x, w, b),
                lambda x=tx, w=tw, b=tb: torch.nn.functional.linear(x, w, b),
            )


def conv() -> Iterator[Pair]:
    f = registry.get("convolution")
    for n, c, h, o, k, stride, pad, groups in (
        (8, 64, 56, 64, 3, 1, 1, 1),
        (8, 3, 224, 64, 7, 2, 3, 1),
        (8, 256, 14, 256, 3, 1, 1, 1),
        (8, 3, 224, 768, 16, 16, 0, 1),
        (8, 256, 28, 512, 1, 1, 0, 1),
        (8, 96, 56, 96, 3, 1, 1, 96),
    ):
        (x, tx), (w, tw), (b, tb) = made("f32", n, c, h, h), made("f32", o, c // groups, k, k), made("f32", o)
        yield (
            f"f32 {n}×{c}×{h}², {o} of {k}²/{stride}, groups {groups}",
            lambda x=x, w=w, b=b, s=stride, p=pad, g=groups: f(x, w, b, [s, s], [p, p], [1, 1], g),
            lambda x=tx, w=tw, b=tb, s=stride, p=pad, g=groups: torch.conv2d(x, w, b, s, p, 1, g),
        )


def attention() -> Iterator[Pair]:
    f = registry.get("scaled_dot_product_attention")
    for dt in ("f32", "bf16"):
        for h, g, rows, keys, e, causal in (
            (8, 8, 512, 512, 64, True),
            (8, 8, 512, 512, 64, False),
            (8, 8, 2048, 2048, 64, True),
            (32, 32, 1, 2048, 128, False),
            (32, 8, 1, 2048, 128, False),
        ):
            (q, tq), (k, tk), (v, tv) = (
                made(dt, 1, h, rows, e),
                made(dt, 1, g, keys, e),
                made(dt, 1, g, keys, e),
            )
            yield (
                f"{dt} {h}/{g} heads, {rows} × {keys}, {e}{', causal' if causal else ''}",
                lambda q=q, k=k, v=v, c=causal, s=h != g: f(q, k, v, causal=c, gqa=s),
                lambda q=tq, k=tk, v=tv, c=causal, s=h != g: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=c, enable_gqa=s
                ),
            )


def measure(
    ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float, clock: Callable[[], float]
) -> str:
    ours(), theirs()
    begun = clock()
    ours()
    repeats = max(1, int(0.02 / max(clock() - begun, 1e-7)))

    def block(f: Callable[[], Any]) -> float:
        begun = clock()
        for _ in range(repeats):
            f()
        return (clock() - begun) / repeats

    ratios: list[float] = []
    mine: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(ratios) < 6:
        a, b, c, d = block(ours), block(theirs), block(theirs), block(ours)
        ratios += [b / a, c / d]
        mine += [a, d]
    low, middle, high = (quantile(ratios, q) for q in (0.1, 0.5, 0.9))
    return f"{middle:.2f} | {low:.2f}–{high:.2f} | {1e6 * statistics.median(mine):,.0f} µs"


def main() -> None:
    suites = {"matmul": matmul, "linear": linear, "conv": conv, "attention": attention}
    options = argparse.ArgumentParser(description="Sums of products against PyTorch.")
    options.add_argument("suite", nargs="*", help=f"of {list(suites)}; all by default")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--seconds", type=float, default=1.0)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    np.seterr(all="ignore")
    bench = Workbench.here(Path(__file__).resolve().parents[1])
    Bridge(bench).install(extra=[bench.one(name) for name in OPS])
    set_num_threads(given.threads)
    clock = time.process_time if given.threads == 1 else time.perf_counter
    print("| what | × eager | p10–p90 | ours |\n| --- | --- | --- | --- |")
    with torch.no_grad():
        for name in given.suite or suites:
            for what, ours, theirs in suites[name]():
                print(f"| {name} {what} | {measure(ours, theirs, given.seconds, clock)} |", flush=True)


if __name__ == "__main__":
    main()
