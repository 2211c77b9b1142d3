"""Symbols, units, dialects and rows: what holds of the text whatever it computes."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import bound, parsed

import specs
from opwright.generator.bind import bind
from opwright.generator.bind_key import keys_of
from opwright.generator.bound import BoundOp
from opwright.generator.emit import emit, emit_unit
from opwright.generator.emit.cpu import DIALECTS
from opwright.generator.errors import BindError, LowerError, SpecError
from opwright.generator.expr import FUNCTIONS
from opwright.generator.normal import normalise
from opwright.generator.spec import load_spec_text
from opwright.generator.types import DType, accum
from opwright.resources import include_dir
from opwright.toolchain import find_compiler, without_layout


@functools.cache
def helpers() -> frozenset[str]:
    """Every function that a kernel's headers define."""
    command = [
        *find_compiler().command,
        "-E",
        "-P",
        "-mfma",
        "-xc++",
        "-std=c++20",
        f"-I{include_dir()}",
        "-",
    ]
    text = subprocess.run(
        command,
        input='#include "opwright/kernel.h"\n#include "opwright/special.h"\n#include "opwright/parts.h"\n'
        '#include "opwright/masked.h"',
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return frozenset(re.findall(r"\b(owk_\w+)\s*\(", text))


def softmax(dtype: Any = np.float32) -> BoundOp:
    return bound(parsed(specs.SOFTMAX), {"x": np.zeros((2, 3), dtype)}, {})[0]


def matmul() -> BoundOp:
    x = np.zeros((2, 2), np.float32)
    return bound(parsed(specs.MATMUL), {"a": x, "b": x}, {})[0]


def squares() -> BoundOp:
    x = np.zeros((2, 2), np.float32)
    return bound(parsed(specs.RMS_NORM), {"x": x, "w": x[0]}, {})[0]


def test_a_kernel_exports_three_entry_points() -> None:
    k = emit(softmax(), "cpu-avx2")
    assert re.fullmatch(r"ow_[0-9a-f]{16}", k.symbol)
    exported = re.findall(rf"^\w+ ({k.symbol}\w*)\(const OwCall\* c\)", k.source, re.MULTILINE)
    assert sorted(exported) == [k.symbol, f"{k.symbol}_infer", f"{k.symbol}_workspace"]


def test_the_symbol_is_a_function_of_text_and_dialect() -> None:
    assert emit(softmax(), "cpu-avx2").symbol == emit(softmax(), "cpu-avx2").symbol
    assert emit(softmax(), "cpu-avx2").symbol != emit(softmax(), "cpu-avx512").symbol
    assert emit(softmax(), "cpu-avx2").symbol != emit(softmax(np.float64), "cpu-avx2").symbol


def test_a_header_without_its_layout_is_the_same_to_the_compiler(tmp_path: Path) -> None:
    folder = tmp_path / "opwright"
    folder.mkdir()
    for header in (include_dir() / "opwright").glob("*.h"):
        (folder / header.name).write_text(without_layout(header.read_text(encoding="utf-8")))
    lines = '#include "opwright/gemm.h"\n#include "opwright/special.h"\n'
    command = [*find_compiler().command, "-std=c++20", "-march=x86-64-v3", "-fsyntax-only", f"-I{tmp_path}"]
    subprocess.run([*command, "-xc++", "-"], input=lines, text=True, check=True)


def test_comments_are_no_part_of_a_text() -> None:
    assert "softmax" not in without_layout(emit(softmax(), "cpu-avx2").source)


def test_the_text_shows_the_statements_it_comes_from() -> None:
    assert "// s[*B] = sum[j](e[*B, j])" in emit(softmax(), "cpu-avx2").source


def test_a_unit_holds_each_kernel_once() -> None:
    a, b = emit(softmax(), "cpu-avx2"), emit(matmul(), "cpu-avx2")
    unit = emit_unit([a, b, a])
    assert re.findall("#include (.*)", unit) == ['"opwright/kernel.h"', '"opwright/gemm.h"']
    assert "gemm.h" not in emit_unit([a, a])
    assert unit.count(f"int32_t {a.symbol}(") == 1
    assert unit.count(f"int32_t {b.symbol}(") == 1


def test_special_functions_bring_their_header_and_only_they() -> None:
    text = "op: t\ntypes: {T: f32}\ninputs: {x: 'T[N]'}\noutputs: {y: 'T[N]'}\ncompute: |\n  y[i] = lgamma(x[i])\n"
    spec = load_spec_text(text)[0]
    kernel = emit(normalise(bind(spec, keys_of(spec)[0])), "cpu-avx2")
    assert '#include "opwright/special.h"' in kernel.source
    plain = emit(softmax(), "cpu-avx2")
    assert "special.h" not in plain.source
    unit = emit_unit([plain, kernel, kernel])
    assert re.findall("#include (.*)", unit) == ['"opwright/kernel.h"', '"opwright/special.h"']


def test_exponentials_of_what_a_mask_hides_make_no_subnormal_numbers_on_the_way() -> None:
    assert "owk_exp_masked_f32(" in emit(softmax(), "cpu-avx512").source
    assert "masked" not in emit(softmax(), "cpu-avx2").source


def test_loops_over_angles_ask_how_far_they_are_and_choices_read_beforehand() -> None:
    text = (
        "op: t\ntypes: {T: f32}\ninputs: {x: 'T[N]', w: 'T[N]'}\noutputs: {y: 'T[N]'}\ncompute: |\n"
        "  y[i] = cos(x[i] * 2) if x[i] > 0 else w[i]\n"
    )
    spec = load_spec_text(text)[0]
    op = normalise(bind(spec, keys_of(spec)[0]))
    kernel = emit(op, "cpu-avx2").source
    assert "owk_farther(far0, x_p[t0 * x_p_s] * 2.0f)" in kernel
    assert "v0_1 = w_p[t0 * w_p_s];" in kernel
    assert kernel.count("owk_cos_near_f32(") == kernel.count("owk_cos_f32(") == 1
    assert "owk_farther" not in emit(op, "cpu-portable").source


def test_products_that_are_added_are_fused_where_the_dialect_can() -> None:
    assert "owk_fma(" in emit(squares(), "cpu-avx2").source
    assert "owk_fma(" not in emit(squares(), "cpu-portable").source


@pytest.mark.parametrize(
    "compute",
    [
        "y[i] = i64(floor((A(i) + 0.5) * s - 0.5))",
        "u[i in M] = (A(i) + 0.5) * s - 0.5\n  y[i] = i64(u[i])",
        "u[i in M] = (A(i) + 0.5) * s - 0.5\n  v[i in M] = max(u[i], 0)\n  y[i] = i64(v[i] // 1)",
    ],
)
def test_what_becomes_a_position_is_computed_as_written(compute: str) -> None:
    text = "op: t\ntypes: {A: f32}\nattrs: {M: {type: int}, s: {type: float}}\ninputs: {x: 'A[N]'}\n"
    spec = load_spec_text(
        text + f"outputs: {{y: 'i64[M]', z: 'A[N]'}}\ncompute: |\n  {compute}\n  z[n] = x[n] * x[n] - 1\n"
    )[0]
    source = emit(normalise(bind(spec, keys_of(spec)[0])), "cpu-avx2").source
    assert "+ 0.5f) * " in source
    assert source.count("owk_fma(") == 1  # that of z


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(LowerError, match="no CPU dialect `cpu-mmx`"):
        emit(softmax(), "cpu-mmx")
    assert set(DIALECTS) == {"cpu-avx512", "cpu-avx2", "cpu-portable"}


def test_the_table_row_says_what_a_call_carries() -> None:
    row = emit(softmax(), "cpu-avx2").row
    assert row["inputs"] == [{"name": "x", "dtype": "f32", "list": False, "optional": False}]
    assert row["attrs"] == [{"name": "axis", "kind": "axis"}]
    assert row["outputs"] == [{"name": "y", "dtype": "f32", "aux": False}]
    assert row["inplace"] == {"y": "x"}


def test_no_text_names_a_place_on_this_machine() -> None:
    for op in (softmax(), matmul()):
        assert "/" not in re.sub(r"//.*|\"opwright/\w+.h\"| / ", "", emit(op, "cpu-avx512").source)


#: Functions of an index, a pack or random words: no call of theirs is made of elements alone.
_OF_PLACES = frozenset({"linear", "lane", "rank", "len", "start", "total", "philox", "uniform"})


@pytest.mark.parametrize("fn", sorted(FUNCTIONS.keys() - _OF_PLACES))
def test_every_function_has_a_text_for_every_dtype_it_takes(fn: str) -> None:
    """A name that no header defines would be found by the compiler alone, in the middle of a kernel."""
    low, high = FUNCTIONS[fn].arity
    taken = 0
    for dtype in DType:
        for of in ("T", "A")[: 1 if accum(dtype) is dtype else 2]:  # half types are refused by most
            second = "i" if fn == "ldexp" else f"{of}(z[i])"
            arguments = ", ".join([f"{of}(x[i])", second][: max(low, min(high, 2))])
            text = (
                f"op: t\ntypes: {{T: {dtype}, A: accum(T)}}\ninputs: {{x: 'T[N]', z: 'T[N]'}}\n"
                f"outputs: {{y: 'bool[N]'}}\ncompute: |\n  y[i] = bool({fn}({arguments}))\n"
            )
            try:
                spec = load_spec_text(text)[0]
                op = normalise(bind(spec, keys_of(spec)[0]))
            except (BindError, SpecError):
                continue
            taken += 1
            called = re.findall(r"\bowk_\w+(?=\()", emit(op, "cpu-avx2").source)
            assert set(called) <= helpers(), dtype
    assert taken
