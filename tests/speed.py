"""Sums of products against PyTorch, by ratios: python tests/speed.py [matmul linear conv attention] [--threads N]

    PYTHONPATH=build/src python tests/speed.py attention --seconds 2

For ops at work: `opwright bench` measures what has been accepted, on its spec's workloads; this takes kernels as the
tree makes them now, on the sizes that docs/speed.md lists, by speed_measure.py.  No test runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from speed_measure import given, measure, options, start

from opwright import registry

OPS = ("matmul", "linear", "convolution", "scaled_dot_product_attention")
Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def made(dtype: str, *shape: int) -> tuple[Any, torch.Tensor]:
    """The same numbers as our tensor and as torch's."""
    kind = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[dtype]
    t = torch.randn(*shape).to(kind)
    return given(t), t


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


def main() -> None:
    suites = {"matmul": matmul, "linear": linear, "conv": conv, "attention": attention}
    parser = options("Sums of products against PyTorch.")
    parser.add_argument("suite", nargs="*", help=f"of {list(suites)}; all by default")
    said = parser.parse_args()
    clock = start(OPS, said.threads)
    print("| what | × eager | p10–p90 | ours |\n| --- | --- | --- | --- |")
    for name in said.suite or suites:
        for what, ours, theirs in suites[name]():
            print(f"| {name} {what} | {measure(ours, theirs, said.seconds, clock)} |", flush=True)


if __name__ == "__main__":
    main()
