"""The generated text of representative ops, as a reviewer reads it.  EXPECTTEST_ACCEPT=1 accepts what is
printed now.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kernels import bound, parsed

import specs
from opwright.generator.emit import emit, emit_cuda
from opwright.generator.loops import show_loops
from opwright.generator.lower import lower
from opwright.generator.types import DType, Operand

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def call(
    text: str, ranks: dict[str, int | list[int] | None], dtype: str = "f32", **attrs: Any
) -> tuple[str, dict, dict]:
    def one(n: str, r: int) -> Operand:
        return Operand(DType("i64" if n in ("i", "idx", "r") else dtype), r)

    inputs = {
        n: None if r is None else [one(n, k) for k in r] if isinstance(r, list) else one(n, r)
        for n, r in ranks.items()
    }
    return text, inputs, attrs


CALLS = {
    "add": call(specs.ADD, {"a": 2, "b": 2}),
    "attention": call(specs.ATTENTION, {"q": 4, "k": 4, "v": 4}, causal=True),
    "cat": call(specs.CAT, {"xs": [2, 2]}, dim=0),
    "convolution": call(specs.CONV, {"x": 4, "w": 4, "b": 1}, stride=(1, 1), padding=(0, 0), dilation=(1, 1)),
    "cumsum": call(specs.CUMSUM, {"x": 2}, dim=0),
    "delta": call(specs.DELTA, {"q": 3, "k": 3, "v": 3, "g": 2, "beta": 2, "s0": None}),
    "embedding": call(specs.EMBEDDING, {"w": 2, "i": 1}, "bf16"),
    "index_put": call(specs.INDEX_PUT, {"x": 2, "i": 1, "v": 2}, accumulate=True),
    "matmul": call(specs.MATMUL, {"a": 2, "b": 2}, "bf16"),
    "rms_norm": call(specs.RMS_NORM, {"x": 2, "w": 1}, "bf16"),
    "softmax": call(specs.SOFTMAX, {"x": 2}),
    "sum": call(specs.SUM, {"x": 2}),
}


CUDA = ("add", "matmul", "rms_norm", "softmax")


@pytest.mark.parametrize("name", sorted(CALLS))
def test_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, inputs, attrs = CALLS[name]
    monkeypatch.setattr("kernels.operands", lambda x: x)
    op, _ = bound(parsed(text), inputs, attrs)
    kernel = emit(op, "cpu-avx512")
    accepted(name, show_loops(lower(op)) + "\n" + kernel.source.replace(kernel.symbol, "ow_SYMBOL"))


def accepted(name: str, got: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("EXPECTTEST_ACCEPT") == "1":
        path.write_text(got, encoding="utf-8")
    assert path.exists(), "no golden text yet: run with EXPECTTEST_ACCEPT=1"
    assert got == path.read_text(encoding="utf-8"), (
        f"the text of {name} changed; EXPECTTEST_ACCEPT=1 accepts it"
    )


@pytest.mark.parametrize("name", CUDA)
def test_cuda_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, inputs, attrs = CALLS[name]
    monkeypatch.setattr("kernels.operands", lambda x: x)
    kernel = emit_cuda(bound(parsed(text), inputs, attrs)[0], "sm_80")
    own = kernel.kernel[kernel.kernel.rindex("#endif") + len("#endif") :].lstrip()
    accepted(f"cuda_{name}", (own + "\n" + kernel.launcher).replace(kernel.symbol, "ow_SYMBOL"))


def test_no_golden_text_is_left_over() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(CALLS) | {f"cuda_{n}" for n in CUDA}
