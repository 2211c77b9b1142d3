"""What a kernel refuses, and calls that are more than values: in place, overlap, workspace, axes, empty sets."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from kernels import Library, Refused, bound, dialect, parsed, placed, run

import specs
from opwright.generator.emit import emit
from opwright.validators import abi

SPECS = {
    "softmax": (specs.SOFTMAX, {"x": np.zeros((2, 3), np.float32)}, {}),
    "add": (specs.ADD, {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 3), np.float32)}, {}),
    "sum": (specs.SUM, {"x": np.zeros((2, 3), np.float32)}, {"dim": (0,)}),
    "matmul": (specs.MATMUL, {"a": np.zeros((2, 3), np.float32), "b": np.zeros((3, 2), np.float32)}, {}),
    "dropout": (specs.DROPOUT, {"x": np.zeros((2, 3), np.float32)}, {"seed": 1, "offset": 2}),
}


class Kernels:
    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        for name, (text, inputs, attrs) in SPECS.items():
            op, canonical = bound(parsed(text), inputs, attrs)
            self.made[name] = (emit(op, dialect()), op, canonical)
        self.library = Library((k for k, _, _ in self.made.values()), "test_calls")

    def run(
        self, name: str, inputs: dict[str, Any], attrs: dict[str, Any] | None = None, **kw: Any
    ) -> list[np.ndarray]:
        text, op, canonical = self.made[name]
        values = [(canonical | (attrs or {}))[a.name] for a in op.attrs]
        return run(
            self.library.kernel(text.symbol),
            parsed(SPECS[name][0]),
            inputs,
            values,
            [t.dtype.value for t in op.outputs],
            **kw,
        )

    def kernel(self, name: str) -> abi.Kernel:
        return self.library.kernel(self.made[name][0].symbol)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels()


def randn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_in_place_gives_the_bits_of_out_of_place(kernels: Kernels) -> None:
    x = randn(5, 33)
    want = kernels.run("softmax", {"x": x.copy()})[0]
    kernels.run("softmax", {"x": x}, outputs=[x])
    assert x.tobytes() == want.tobytes()


def test_in_place_needs_the_declared_input(kernels: Kernels) -> None:
    a, b = randn(4, 4), randn(4, 4)
    want = a + b
    with pytest.raises(Refused, match="OVERLAP"):
        kernels.run("add", {"a": a, "b": b}, outputs=[b])
    kernels.run("add", {"a": a, "b": b}, outputs=[a])
    assert np.array_equal(a, want)


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[1:, 1:], lambda x: x[::-1]])
def test_partial_overlap_is_refused(kernels: Kernels, view: Any) -> None:
    x = randn(6, 6)
    a = x[:5, :5]
    with pytest.raises(Refused, match="OVERLAP"):
        kernels.run("add", {"a": a, "b": a.copy()}, outputs=[view(x)[:5, :5]])


def test_an_output_that_folds_onto_itself_is_refused(kernels: Kernels) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (2, 3), (0, 4))
    with pytest.raises(Refused, match="OVERLAP"):
        kernels.run("add", {"a": randn(2, 3), "b": randn(2, 3)}, outputs=[out])


def test_side_by_side_is_no_overlap(kernels: Kernels) -> None:
    memory = randn(2, 3, 4)
    want = memory[0] * 2
    kernels.run("add", {"a": memory[0], "b": memory[0].copy()}, outputs=[memory[1]])
    assert np.array_equal(memory[1], want)


@pytest.mark.parametrize("axis", [2, -3, 2**40])
def test_an_axis_out_of_range(kernels: Kernels, axis: int) -> None:
    with pytest.raises(Refused) as e:
        kernels.run("softmax", {"x": randn(2, 3)}, {"axis": axis})
    assert e.value.name == "AXIS"
    assert (e.value.fields["arg"], e.value.fields["want"], e.value.fields["got"]) == (0, 2, axis)


@pytest.mark.parametrize("dim", [(2,), (0, 0), (0, -2)])
def test_a_set_of_axes_out_of_range_or_named_twice(kernels: Kernels, dim: tuple[int, ...]) -> None:
    with pytest.raises(Refused) as e:
        kernels.run("sum", {"x": randn(2, 3)}, {"dim": dim})
    assert e.value.name == "AXIS"


def test_more_axes_than_the_tensor_has(kernels: Kernels) -> None:
    with pytest.raises(Refused, match="RANK"):
        kernels.run("sum", {"x": np.ones((), np.float32)}, {"dim": (0,)})


def test_a_rank_too_small(kernels: Kernels) -> None:
    with pytest.raises(Refused) as e:
        kernels.run("matmul", {"a": randn(3), "b": randn(3, 2)})
    assert (e.value.name, e.value.fields["arg"], e.value.fields["want"], e.value.fields["got"]) == (
        "RANK",
        0,
        2,
        1,
    )


def test_an_output_of_another_shape(kernels: Kernels) -> None:
    with pytest.raises(Refused) as e:
        kernels.run("add", {"a": randn(2, 3), "b": randn(2, 3)}, outputs=[np.zeros((2, 4), np.float32)])
    assert (e.value.name, e.value.fields["arg"], e.value.fields["axis"]) == ("SHAPE", 2, 1)


def test_workspace_is_required(kernels: Kernels) -> None:
    x, y = randn(2, 3), randn(2, 3)
    k = kernels.kernel("softmax")
    attr = [abi.encode_attr(-1)]
    bytes_ = k.workspace(abi.build_call([placed(x)], [None], attr))
    assert bytes_ > 0
    more = k.workspace(abi.build_call([placed(x)], [None], attr, threads=4))
    assert more == 4 * bytes_
    call = abi.build_call([placed(x)], [placed(y)], attr, workspace=(0, 0))
    assert abi.error_name(k.run(call)) == "OW_E_WORKSPACE"


def test_another_abi_is_refused(kernels: Kernels) -> None:
    x = randn(2, 3)
    call = abi.build_call([placed(x)], [placed(x)], [abi.encode_attr(-1)], version=abi.ABI + 1)
    assert abi.error_name(kernels.kernel("softmax").infer(call)) == "OW_E_ABI"


def test_a_tensor_of_another_width_is_refused(kernels: Kernels) -> None:
    x = np.zeros((2, 3), np.float64)
    call = abi.build_call([placed(x)], [None], [abi.encode_attr(-1)])
    assert abi.error_name(kernels.kernel("softmax").infer(call)) == "OW_E_ABI"


def test_random_bits_depend_on_the_position_only(kernels: Kernels) -> None:
    attrs = {"seed": 7, "offset": 3, "p": 0.5}
    y, mask = kernels.run("dropout", {"x": np.ones((4, 6), np.float32)}, attrs)
    for layout in ("transposed", "padded", "reversed"):
        y2, mask2 = kernels.run(
            "dropout", {"x": np.ones((4, 6), np.float32)}, attrs, layout=layout, threads=2
        )
        assert np.array_equal(mask, mask2)
        assert np.array_equal(y, y2)
    assert np.array_equal(y, np.where(mask, 2, 0))
    assert 0 < mask.sum() < mask.size


def test_philox_gives_the_published_words(kernels: Kernels) -> None:
    """Random123's known answer for a zero key and counter: 6627e8d5 e169c58d bc57ac4c 9b00dbd8."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    _, mask = kernels.run("dropout", {"x": np.ones(4, np.float32)}, {"seed": 0, "offset": 0, "p": 0.6})
    assert mask.tolist() == [(w >> 8) * 2.0**-24 >= np.float32(0.6) for w in words]


def test_offsets_pass_two_to_the_31(kernels: Kernels) -> None:
    """A stride that no 32-bit offset holds: the last element lies 3·2^31 elements from the first, in mapped
    but untouched memory.
    """
    if sys.platform != "linux":
        pytest.skip("this system maps no memory without reserving it")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    memory = np.frombuffer(mmap.mmap(-1, (3 * 2**31 + 1) * 4, flags=flags), np.uint8)
    x = np.lib.stride_tricks.as_strided(memory[:4].view(np.float32), (2,), (3 * 2**31 * 4,))
    x[...] = [1.0, 2.0]
    assert kernels.run("add", {"a": x, "b": x.copy()})[0].tolist() == [2.0, 4.0]


def test_the_error_word_is_clean_after_a_good_call(kernels: Kernels) -> None:
    x = randn(2, 3)
    call = abi.build_call([placed(x)], [None], [abi.encode_attr(-1)])
    call.error.code = 99
    assert kernels.kernel("softmax").infer(call) == 0
    assert call.error_fields()["code"] == 0
    assert isinstance(call.raw, ctypes.Structure)
