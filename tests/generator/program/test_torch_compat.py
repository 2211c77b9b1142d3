"""What `torch_compat` must give whatever the release of torch."""

from __future__ import annotations

import unittest.mock
from typing import Any

import pytest

from opwright.generator.program import torch_compat as compat
from opwright.generator.program.intexpr import IntExpr, floordiv, maximum, mod
from opwright.generator.types import DType

torch = pytest.importorskip("torch")
A, B = IntExpr.of("a"), IntExpr.of("b")


@pytest.mark.parametrize("dtype", list(DType))
def test_dtypes_both_ways(dtype: DType) -> None:
    assert compat.dtype_of(compat.torch_dtype(dtype)) is dtype


def test_a_dtype_that_a_program_cannot_hold() -> None:
    with pytest.raises(compat.UnknownDtype, match="float8"):
        compat.dtype_of(torch.float8_e4m3fn)


def symbolic(text: str) -> Any:
    """What an exporter's number looks like: a sympy expression in torch's own functions."""
    import sympy
    from torch.utils._sympy import functions as f

    a, b = sympy.symbols("a b", integer=True, positive=True)
    names = (
        {"a": a, "b": b}
        | {n: getattr(f, n) for n in dir(f) if n[0].isupper()}
        | {"Max": f.Max, "sympy": sympy}
    )
    return eval(text, names)  # the test's own text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a*b**2 + 3*a - 1", A * B * B + A * 3 - 1),
        ("FloorDiv(a, b)", floordiv(A, B)),
        ("Mod(a, 4)", mod(A, IntExpr.of(4))),
        ("PythonMod(a, b)", mod(A, B)),
        ("Max(a, b)", maximum(A, B)),
        ("ModularIndexing(a, 2, 3)", mod(floordiv(A, IntExpr.of(2)), IntExpr.of(3))),
        ("CeilToInt(IntTrueDiv(a, 4))", -floordiv(-A, IntExpr.of(4))),
        ("FloorToInt(IntTrueDiv(a, b))", floordiv(A, B)),
        ("TruncToInt(IntTrueDiv(3*a, 2))", floordiv(A * 3, IntExpr.of(2))),
    ],
)
def test_extents(text: str, want: IntExpr) -> None:
    assert compat._extent(symbolic(text)) == want


def test_what_is_no_extent() -> None:
    with pytest.raises(compat.NotAnExtent):
        compat._extent(symbolic("FloatTrueDiv(a, 3.5)"))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("sympy.Eq(a, b)", ("eq", A, B)),
        ("a >= 3", ("ge", A, IntExpr.of(3))),
        ("sympy.Not(sympy.Eq(a, b))", ("ne", A, B)),
        ("sympy.And(a >= 3, b < 2)", None),
        ("sympy.true", True),
    ],
)
def test_conditions(text: str, want: Any) -> None:
    got = compat._cond(symbolic(text))
    assert got == want if want is not None else got[0] == "and" and len(got) == 3


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("L['x'].size()[1] <= 64", ("le", IntExpr.of("x1"), IntExpr.of(64))),
        ("L['x'].size()[0] == L['y'].size()[1]", ("eq", IntExpr.of("x0"), IntExpr.of("y1"))),
        (
            "2 <= L['x'].size()[0] <= 9",
            ("and", ("le", IntExpr.of(2), IntExpr.of("x0")), ("le", IntExpr.of("x0"), IntExpr.of(9))),
        ),
        (
            "not (L['x'].size()[0] % 3 == 0)",
            ("not", ("eq", mod(IntExpr.of("x0"), IntExpr.of(3)), IntExpr.of(0))),
        ),
        ("max(1, L['x'].size()[0]) * -2 < 0 or L['x'].size()[1] // 2 != 3", None),
        ("L['x'].dtype == 3", "no guard"),
        ("import os", "no guard"),
        ("L['x'].size()[1] <= L['z'].size()[0]", "no guard"),
    ],
)
def test_guards(text: str, want: Any) -> None:
    def extent(path: str, axis: int) -> IntExpr | None:
        name = path.split("'")[1]
        return IntExpr.of(f"{name}{axis}") if name in "xy" else None

    got = compat.guard_of(text, extent)
    if want == "no guard":
        assert got is None
    else:
        assert got == want if want is not None else isinstance(got, tuple) and got[0] == "or"


def test_names_of_a_tree() -> None:
    tree = {"a": [torch.ones(1), (torch.ones(1), None)], "b": torch.ones(1)}
    assert [n for n, _ in compat.flatten_named(tree, "output")] == ["a.0", "a.1.0", "a.1.1", "b"]
    assert compat.flatten_named(torch.ones(1), "output")[0][0] == "output"
    assert [n for n, _ in compat.flatten_named((1, 2), "output")] == ["output_0", "output_1"]


def test_frames_leave_torch_out() -> None:
    inside = torch.nn.__file__
    trace = '  File "/x/model.py", line 3, in forward\n    y = self.a(x)\n'
    trace += f'  File "{inside}", line 9, in call\n    return f(x)\n'
    assert compat.frames(trace) == [compat.Frame("/x/model.py", 3, "forward", "y = self.a(x)")]
    assert compat.frames(None) == []


def test_arguments_and_binding() -> None:
    add = compat.overload_of("aten.add.Tensor")
    assert [(a.name, a.required, a.default) for a in compat.arguments(add)] == [
        ("self", True, None),
        ("other", True, None),
        ("alpha", False, 1),
    ]
    assert compat.bind(add, (1,), {"other": 2}) == {"self": 1, "other": 2, "alpha": 1}
    assert compat.overload_of("aten.add") is None and compat.overload_of("aten.none.such") is None
    assert compat.overload_name(add) == "aten.add.Tensor" and compat.overload_name(len) is None


def test_seeded_overloads() -> None:
    assert compat.seeded(compat.overload_of("aten.rand_like.default"))
    assert not compat.seeded(compat.overload_of("aten.add.Tensor"))


def test_computing_in_f64_and_back() -> None:
    with compat.computing_in(DType.F64):
        assert torch.ones(2, dtype=torch.float32).dtype == torch.float64
        assert torch.zeros(2).dtype == torch.float64
        assert torch.ones(2, dtype=torch.int32).dtype == torch.int32
        assert torch.ones(2).to(torch.bfloat16).dtype == torch.float64
    assert torch.zeros(2).dtype == torch.float32 and torch.ones(2, dtype=torch.float32).dtype == torch.float32


def test_a_failed_export_leaves_no_marks() -> None:
    class Picky(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if isinstance(x.shape[0], torch.SymInt):
                raise RuntimeError("no symbols")
            return x * 2

    x = torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="no symbols"):
        compat.export(Picky(), (x,), {}, [(0,)])
    assert compat.export(Picky(), (x,), {}, [()]) is not None


def test_modules_in_plain_lists_change_their_dtype_with_the_rest() -> None:
    class Listed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(2, 2)
            self.others = [torch.nn.Sequential(torch.nn.Linear(2, 2)), self.first]

        def forward(self, x: Any) -> Any:
            return self.others[0](self.first(x))

    wide = compat.module_in(Listed(), DType.F64)
    assert wide(torch.ones(1, 2, dtype=torch.float64)).dtype is torch.float64


def test_what_an_exporter_writes_otherwise_computes_the_same() -> None:
    """transformers' own patch of one attention forgets two norms of it."""

    class Part(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    class Other(Part):
        pass

    class Whole(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.part = Part()

        def forward(self, x: Any) -> Any:
            return self.part(x) + 1

    given = ((torch.randn(3),), {})
    plain = Part.forward
    right, wrong = (Part, "forward", lambda self, x: x + x), (Part, "forward", lambda self, x: x)
    elsewhere = (Other, "forward", lambda self, x: x)
    patching = unittest.mock.patch.object
    assert compat.unchanging([right, elsewhere], Whole(), given, patching) == [right, elsewhere]
    assert compat.unchanging([wrong, elsewhere], Whole(), given, patching) == [elsewhere]
    assert Part.forward is plain
