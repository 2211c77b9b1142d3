"""Everything that is no sum of products against PyTorch, by ratios: python tests/speed_rows.py [NAME ...] [--threads N]

    PYTHONPATH=build/src python tests/speed_rows.py "sum over" --seconds 2

Kernels as the tree makes them now, on the sizes that docs/speed.md lists, by speed_measure.py; a NAME picks the rows
that contain it.  No test runs it.  To add a row: a line of `rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from speed_measure import given, measure, options, start
from torch.nn import functional

from opwright import registry

KINDS = {"f32": torch.float32, "bf16": torch.bfloat16}
MI = 1 << 20


@dataclass
class Row:
    """One line of the table: our op with its attributes, torch's function, what both are given."""

    name: str
    op: str
    theirs: Callable[..., Any]
    args: Callable[[str], list[torch.Tensor]]
    attrs: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("f32", "bf16")


def randn(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(KINDS[dtype])


def reductions() -> Iterator[Row]:
    def big(dt: str) -> list[torch.Tensor]:
        return [randn(dt, 4096, 4096)]

    def middle(dt: str) -> list[torch.Tensor]:
        return [randn(dt, 2048, 2048)]

    yield Row("sum over all", "sum", torch.sum, big)
    yield Row("sum over rows", "sum", lambda x: x.sum(1), big, {"dim": [1]})
    yield Row("sum over dim 0", "sum", lambda x: x.sum(0), big, {"dim": [0]})
    yield Row(
        "sum over dim 0, 256²", "sum", lambda x: x.sum(0), lambda dt: [randn(dt, 256, 256)], {"dim": [0]}
    )
    yield Row(
        "sum, middle of three", "sum", lambda x: x.sum(1), lambda dt: [randn(dt, 64, 128, 256)], {"dim": [1]}
    )
    yield Row("var over rows", "var", lambda x: x.var(1), middle, {"dim": [1]}, ("f32",))
    yield Row("var over dim 0", "var", lambda x: x.var(0), middle, {"dim": [0]}, ("f32",))
    yield Row("amax over rows", "amax", lambda x: x.amax(1), middle, {"dim": [1]})
    yield Row("amax over dim 0", "amax", lambda x: x.amax(0), middle, {"dim": [0]})
    yield Row("argmax over rows", "argmax", lambda x: x.argmax(1), middle, {"dim": 1})
    yield Row("argmax over dim 0", "argmax", lambda x: x.argmax(0), middle, {"dim": 0})
    yield Row(
        "any over rows",
        "any",
        lambda x: x.any(1),
        lambda _: [torch.zeros(2048, 2048, dtype=torch.bool)],
        {"dim": [1]},
        ("f32",),
    )
    yield Row(
        "cumsum along rows", "cumsum", lambda x: x.cumsum(1), lambda dt: [randn(dt, 1024, 1024)], {"dim": 1}
    )
    yield Row(
        "cumsum along dim 0", "cumsum", lambda x: x.cumsum(0), lambda dt: [randn(dt, 1024, 1024)], {"dim": 0}
    )


def norms() -> Iterator[Row]:
    def one(dt: str) -> list[torch.Tensor]:
        return [randn(dt, 1024, 1024)]

    def scaled(dt: str) -> list[torch.Tensor]:
        return [randn(dt, 1024, 1024), randn(dt, 1024), randn(dt, 1024)]

    shape = {"normalized_shape": [1024], "eps": 1e-5}
    yield Row("softmax over rows", "softmax", lambda x: x.softmax(1), one, {"axis": 1})
    yield Row("softmax over dim 0", "softmax", lambda x: x.softmax(0), one, {"axis": 0})
    yield Row(
        "rms_norm",
        "rms_norm",
        lambda x, w: functional.rms_norm(x, [1024], w, 1e-5),
        lambda dt: scaled(dt)[:2],
        shape,
    )
    yield Row(
        "layer_norm",
        "native_layer_norm",
        lambda x, w, b: torch.native_layer_norm(x, [1024], w, b, 1e-5),
        scaled,
        shape,
    )


def pointwise() -> Iterator[Row]:
    for label, n in (("8", 8), ("1 Ki", 1024), ("1 Mi", MI), ("16 Mi", 16 * MI)):
        yield Row(f"add, {label}", "add", torch.add, lambda dt, n=n: [randn(dt, n), randn(dt, n)])
    yield Row("add of a row", "add", torch.add, lambda dt: [randn(dt, 1024, 1024), randn(dt, 1024)])
    yield Row(
        "add of a transposed", "add", torch.add, lambda dt: [randn(dt, 1024, 1024), randn(dt, 1024, 1024).t()]
    )
    functions = {
        "relu": torch.relu,
        "exp": torch.exp,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "erf": torch.erf,
    }
    functions |= {
        "log": torch.log,
        "log1p": torch.log1p,
        "expm1": torch.expm1,
        "sin": torch.sin,
        "cos": torch.cos,
    }
    functions |= {"silu": functional.silu, "gelu": functional.gelu}
    for name, theirs in functions.items():
        yield Row(f"{name}, 1 Mi", name, theirs, lambda dt: [randn(dt, MI).abs()])
    yield Row("pow, 1 Mi", "pow", torch.pow, lambda dt: [randn(dt, MI).abs(), randn(dt, MI)], {}, ("f32",))


def copies() -> Iterator[Row]:
    yield Row(
        "transposed copy, 2048²",
        "contiguous",
        lambda x: x.contiguous(),
        lambda dt: [randn(dt, 2048, 2048).t()],
    )
    yield Row(
        "embedding",
        "embedding",
        lambda w, i: functional.embedding(i, w),
        lambda dt: [randn(dt, 32000, 512), torch.randint(0, 32000, (2048,))],
    )


def main() -> None:
    parser = options("What is no sum of products, against PyTorch.")
    parser.add_argument("name", nargs="*", help="a part of a row's name; all rows by default")
    said = parser.parse_args()
    rows = [*reductions(), *norms(), *pointwise(), *copies()]
    rows = [r for r in rows if not said.name or any(n in r.name for n in said.name)]
    clock = start(dict.fromkeys(r.op for r in rows), said.threads)
    print("| | PyTorch's time over ours | p10–p90 | ours |\n| --- | --- | --- | --- |")
    for r in rows:
        for dt in r.dtypes:
            theirs = r.args(dt)
            ours = [given(t) for t in theirs]
            f = registry.get(r.op)
            line = measure(
                lambda f=f, a=ours, k=r.attrs: f(*a, **k),
                lambda g=r.theirs, a=theirs: g(*a),
                said.seconds,
                clock,
            )
            print(f"| {r.name}, {dt} | {line} |", flush=True)


if __name__ == "__main__":
    main()
