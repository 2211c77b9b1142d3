"""The ctypes mirror of abi.h, against the compiler's own idea of it."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest

from opwright.toolchain import compile_library
from opwright.validators import abi

STRUCTS = {
    "OwTensor": (abi.OwTensor, {}),
    "OwError": (abi.OwError, {}),
    "OwAttr": (abi.OwAttr, {}),
    "OwShape": (abi.OwShape, {}),
    "OwCall": (abi.OwCall, {"inputs": "in"}),
}


def test_offsets_are_the_compilers() -> None:
    rows = []
    for name, (mirror, renamed) in STRUCTS.items():
        rows.append((f"sizeof({name})", ctypes.sizeof(mirror)))
        for field, *_ in mirror._fields_:
            rows.append((f"offsetof({name}, {renamed.get(field, field)})", getattr(mirror, field).offset))
    text = '#include <stddef.h>\n#include "opwright/abi.h"\nextern "C" const long long facts[] = {'
    text += ", ".join(expression for expression, _ in rows) + ", OW_ABI, OW_MAX_RANK};\n"
    library = ctypes.CDLL(str(compile_library({"a.cpp": text}, name="abi")))
    facts = (ctypes.c_longlong * (len(rows) + 2)).in_dll(library, "facts")
    assert dict(zip((e for e, _ in rows), facts, strict=False)) == dict(rows)
    assert list(facts)[-2:] == [abi.ABI, abi.MAX_RANK]


def test_status_names_are_the_headers(root: Path) -> None:
    header = (root / "runtime" / "include" / "opwright" / "abi.h").read_text(encoding="utf-8")
    for name, code in abi.ERRORS.items():
        assert f"OW_{'E_' if code else ''}{name} = {code}" in header
    assert abi.error_name(2) == "OW_E_SHAPE"
    assert abi.error_name(77) == "77"


@pytest.mark.parametrize(
    ("value", "ints", "floats"),
    [
        (3, [3], [3.0]),
        (True, [1], [1.0]),
        (-2.5, [-2], [-2.5]),
        ((0, -1), [0, -1], [0.0, -1.0]),
        ((), [], []),
        (math.inf, [0], [math.inf]),
    ],
)
def test_attributes_hold_both_halves(value: object, ints: list[int], floats: list[float]) -> None:
    assert abi.encode_attr(value) == (ints, floats)


def test_an_absent_attribute_has_count_minus_one() -> None:
    call = abi.build_call([], [], [None, abi.encode_attr((1, 2))])
    assert call.raw.attr[0].count == -1
    assert call.raw.attr[1].count == 2
    assert call.raw.attr[1].i[1] == 2


def test_a_view_is_placed_by_its_first_element_and_element_strides() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    t = abi.PlacedTensor.of_array(x[::-1, ::2], "f32")
    assert t.strides == (-6, 2)
    assert t.address == x.__array_interface__["data"][0] + 3 * 6 * 4
    with pytest.raises(ValueError, match="not a tensor of f64"):
        abi.PlacedTensor.of_array(x, "f64")


def test_absent_inputs_are_null() -> None:
    call = abi.build_call([None, abi.PlacedTensor(64, "i64", (2,), (1,))], [])
    assert not call.raw.inputs[0]
    assert call.raw.inputs[1].contents.shape[0] == 2
    assert call.raw.inputs[1].contents.dtype.bits == 64
