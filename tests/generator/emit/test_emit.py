"""Symbols, units, dialects and rows: what holds of the text whatever it computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernels import bound, parsed

import specs
from opwright.generator.bound import BoundOp
from opwright.generator.emit import emit, emit_unit, normalised
from opwright.generator.emit.cpu import DIALECTS
from opwright.generator.errors import LowerError


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


def test_comments_are_no_part_of_a_text() -> None:
    assert normalised("int  x; // one\n\n  /* two\n three */ int y;") == normalised("int x;\nint y;")
    assert "softmax" not in normalised(emit(softmax(), "cpu-avx2").source)


def test_the_text_shows_the_statements_it_comes_from() -> None:
    assert "// s[*B] = sum[j](e[*B, j])" in emit(softmax(), "cpu-avx2").source


def test_a_unit_holds_each_kernel_once() -> None:
    a, b = emit(softmax(), "cpu-avx2"), emit(matmul(), "cpu-avx2")
    unit = emit_unit([a, b, a])
    assert re.findall("#include (.*)", unit) == ['"opwright/kernel.h"', '"opwright/gemm.h"']
    assert "gemm.h" not in emit_unit([a, a])
    assert unit.count(f"int32_t {a.symbol}(") == 1
    assert unit.count(f"int32_t {b.symbol}(") == 1


def test_products_that_are_added_are_fused_where_the_dialect_can() -> None:
    assert "owk_fma(" in emit(squares(), "cpu-avx2").source
    assert "owk_fma(" not in emit(squares(), "cpu-portable").source


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
