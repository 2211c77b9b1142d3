"""Specs: what is read, what is refused, and the words in which it is refused."""

from __future__ import annotations

import math
import os
import random
import time
from pathlib import Path

import pytest

from opwright.generator.errors import SpecError
from opwright.generator.expr import Assign, parse_expr, show
from opwright.generator.source import MAX_BYTES, read_documents
from opwright.generator.spec import Only, OpSpec, Registry, load_spec, load_spec_text

SPECS = Path(__file__).with_name("specs")

SOFTMAX = """\
op: softmax
doc: Normalised exponentials along one axis.
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N@axis]"}
attrs: {axis: {type: axis, default: -1}}
outputs: {y: "T[*B, N@axis]"}
compute: |
  m[*B]    = max[j](A(x[*B, j]))
  y[*B, i] = T(exp(A(x[*B, i]) - m[*B]))
grad: {wrt: [x], derive: true}
test:
  cases: [{B: [3], N: 5}]
  values: [normal]
  checks: ["y[*B, i] >= 0"]
aten: [{overload: aten._softmax.default, map: {self: x, dim: axis, half_to_float: {only: false}}}]
"""


def softmax(*changes: tuple[str, str]) -> str:
    text = SOFTMAX
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def one(text: str) -> OpSpec:
    [spec] = load_spec_text(text, "s.yaml")
    return spec


def refused(text: str) -> SpecError:
    with pytest.raises(SpecError) as e:
        load_spec_text(text, "s.yaml")
    return e.value


# ------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_construct_of_the_language_loads(path: Path) -> None:
    specs = load_spec(path)
    assert specs
    assert [s.meaning_hash() for s in specs] == [s.meaning_hash() for s in load_spec(path)]


def test_shipped_specs_load(root: Path) -> None:
    registry = Registry.load([root / "specs" / "ops"])
    assert "softmax" in registry
    for spec in registry:
        assert spec.doc, f"{spec.op} says nothing about itself"
        assert spec.family


def test_fields_of_softmax() -> None:
    s = one(SOFTMAX)
    assert (s.op, s.line, s.family, s.file) == ("softmax", 1, "", "s.yaml")
    assert s.inputs["x"].show() == "T[*B, N@axis]"
    b, n = s.inputs["x"].dims
    assert (b.pack, b.at, show(b.expr)) == (True, None, "B")
    assert (n.pack, n.at, show(n.expr)) == (False, "axis", "N")
    assert s.dims["B"].kind == "batch"
    assert s.attrs["axis"].kind == "axis"
    assert (s.attrs["axis"].default, s.attrs["axis"].has_default, s.attrs["axis"].static) == (-1, True, False)
    assert [type(st) for st in s.compute] == [Assign, Assign]
    assert s.grad is not None
    assert s.grad.wrt == ("x",)
    assert s.grad.derive
    assert s.test.checks[0].text == "y[*B, i] >= 0"
    assert s.aten[0].map == (("self", "x"), ("dim", "axis"), ("half_to_float", Only(False)))


def test_kinds_of_attributes() -> None:
    s = one(
        """\
op: t
types: {T: float}
inputs: {x: "T[*B, *N@dims]"}
attrs:
  dims: {type: axes, default: null, empty: all}
  keepdim: {type: bool, default: false, static: true}
  ord: {type: float, default: 2, static: "in (0, 1, inf, -inf)"}
  scale: {type: float, default: "1 / rank(B)"}
  pad: {type: ints, static: rank, default: [1, 2]}
  mode: {type: "enum[sum, mean]", default: mean}
  lo: {type: optional scalar}
  big: {type: float, default: inf}
  dtype: {type: dtype, default: null}
outputs: {y: "T[*B, 1@dims if keepdim]"}
compute: |
  y[*B] = sum[*n](x[*B, *n])
"""
    )
    a = s.attrs
    assert (a["dims"].optional, a["dims"].empty, a["dims"].default) == (True, "all", None)
    assert a["keepdim"].is_static
    assert a["ord"].static == (0, 1, math.inf, -math.inf)
    assert a["ord"].is_static
    assert isinstance(a["ord"].default, float)
    assert a["scale"].default_expr == parse_expr("1 / rank(B)")
    assert (a["pad"].static, a["pad"].default, a["pad"].is_static) == ("rank", (1, 2), False)
    assert (a["mode"].values, a["mode"].is_static) == (("sum", "mean"), True)
    assert a["lo"].optional
    assert not a["lo"].has_default
    assert a["big"].default == math.inf
    assert a["dtype"].is_static
    assert s.dims.keys() == {"B", "N"}
    assert len(s.outputs["y"].indexed) == 1
    assert s.outputs["y"].show() == "T[*B, 1@dims if keepdim]"


@pytest.mark.parametrize(
    "text",
    [
        "T[]",
        "optional T[D]",
        "list T[*B, N@dim]",
        "aux T[*B, H]",
        "T[*(I + 2), M * 2]",
        "T[1@dim if keep]",
        "T[rank(B)]",
        "T[N // 2 + 1 if onesided else N]",
    ],
)
def test_types_print_as_written(text: str) -> None:
    from opwright.generator.spec import parse_type

    [node] = read_documents(f'"{text}"', "f")
    assert node.text is not None
    assert parse_type(node.text).show() == text


def test_a_declared_gradient() -> None:
    s = next(x for x in load_spec(SPECS / "norms.yaml") if x.op == "softmax")
    assert s.grad is not None
    assert s.grad.against_derive
    assert s.grad.save == ("y",)
    assert s.grad.compute is not None
    assert len(s.grad.compute) == 2


def test_a_test_of_a_dtype_and_a_tensor_without_axes() -> None:
    s = one(
        softmax(
            (
                "  m[*B]    = max[j](A(x[*B, j]))",
                "  z = max[*b, j](A(x[*b, j]))\n  m[*B] = z[()] if T == 'f32' else 0",
            ),
        )
    )
    assert len(s.compute) == 3
    assert refused(softmax(("m[*B]    =", "z = max[*b, j](A(x[*b, j]))\n  m[*B] = z *"))).hint == "`z[()]`"


def test_several_documents_and_comments() -> None:
    text = (
        "# two\n" + SOFTMAX + "---\n" + SOFTMAX.replace("op: softmax", "op: other # b") + "---\n# nothing\n"
    )
    assert [(s.op, s.line) for s in load_spec_text(text)] == [("softmax", 2), ("other", 19)]


def test_windows_line_ends_and_a_byte_order_mark_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SOFTMAX.replace("\n", "\r\n").encode())
    [spec] = load_spec(path)
    assert spec.meaning_hash() == one(SOFTMAX).meaning_hash()


# ------------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("doc: Normalised exponentials along one axis.", "doc: Words."),
        ("m[*B]    = max[j](A(x[*B, j]))", "m[*B] = max[j]((A(x[*B,j])))  # the same"),
        (
            "types: {T: float, A: accum(T)}\ndims: {B: batch}\n",
            "dims: {B: batch}\ntypes: {T: float, A: accum(T)}\n",
        ),
        ("test:\n", "lower: {cpu: {kind: rows}}\ntest:\n"),
        ("cases: [{B: [3], N: 5}]", "cases: [{B: [3], N: 6}]"),
        ("dims: {B: batch}\n", ""),
    ],
    ids=["doc", "layout", "order", "lower", "test", "implied"],
)
def test_what_is_not_meaning_leaves_the_hash(old: str, new: str) -> None:
    assert one(softmax((old, new))).meaning_hash() == one(SOFTMAX).meaning_hash()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max[j]", "min[j]"),
        ("default: -1", "default: 0"),
        ("T: float", "T: real"),
        ("A: accum(T)", "A: f64"),
        ("grad: {wrt: [x], derive: true}", "grad: {none: no reason}"),
        ("compute:", 'require: ["N > 0"]\ncompute:'),
        ('{x: "T', '{x: "optional T'),
        ("B: batch", "B: broadcast"),
    ],
)
def test_what_is_meaning_changes_the_hash(old: str, new: str) -> None:
    assert one(softmax((old, new))).meaning_hash() != one(SOFTMAX).meaning_hash()


# ------------------------------------------------------------------------------------------------- golden errors

GOLDEN = [
    (
        [("exp(A(x[*B, i])", "exq(A(x[*B, i])")],
        """\
s.yaml:10:16: error: `exq` is not a function of the language
   10 |   y[*B, i] = T(exq(A(x[*B, i]) - m[*B]))
      |                ^~~~~~~~~~~~~~~~~~~~~~~~
  hint: did you mean `exp`?""",
    ),
    (
        [("- m[*B]", "- mm[*B]")],
        """\
s.yaml:10:34: error: the tensor `mm` is not known in compute
   10 |   y[*B, i] = T(exp(A(x[*B, i]) - mm[*B]))
      |                                  ^~~~~~
  hint: did you mean `m`?""",
    ),
    (
        [("max[j](A(x[*B, j]))", "max[j](A(x[*B, j])) + x[*B, i]")],
        """\
s.yaml:9:42: error: the index `i` is not in the target `m`
    9 |   m[*B]    = max[j](A(x[*B, j])) + x[*B, i]
      |                                          ^
  hint: reduce over it: `sum[i](…)`, or write it in the target""",
    ),
    (
        [("y[*B, i] = T", "z[*B, i] = T"), ('  checks: ["y[*B, i] >= 0"]\n', "")],
        """\
s.yaml:7:15: error: `y` is never written in compute
    7 | outputs: {y: "T[*B, N@axis]"}
      |               ^~~~~~~~~~~~~
  hint: `y[…] = …`""",
    ),
    (
        [("compute:", "computes:")],
        """\
s.yaml:8:1: error: `computes` is not a field of a spec
    8 | computes: |
      | ^~~~~~~~
  hint: did you mean `compute`?""",
    ),
    (
        [("op: softmax", "op: ../softmax")],
        """\
s.yaml:1:5: error: `../softmax` is not an operator's name
    1 | op: ../softmax
      |     ^~~~~~~~~~
  hint: lower case: `softmax`, `my_co::rope2d`""",
    ),
    (
        [('"T[*B, N@axis]"', '"T[*B, N@axes]"')],
        """\
s.yaml:5:20: error: `@axes` names no attribute
    5 | inputs: {x: "T[*B, N@axes]"}
      |                    ^~~~~~
  hint: did you mean `axis`?""",
    ),
    (
        [('"T[*B, N@axis]"', '"T[*B, N@axis"')],
        """\
s.yaml:5:26: error: a type ends with `]`
    5 | inputs: {x: "T[*B, N@axis"}
      |                          ^
  hint: `"T[*B, N@axis]"`""",
    ),
    (
        [('"T[*B, N@axis]"', '"float[*B, N@axis]"')],
        """\
s.yaml:5:14: error: the type `float` of `x` is not declared
    5 | inputs: {x: "float[*B, N@axis]"}
      |              ^~~~~~~~~~~~~~~~~
  hint: types: {T: float}, and `T[…]` here""",
    ),
    (
        [("wrt: [x]", "wrt: [y]")],
        """\
s.yaml:11:14: error: `y` in `wrt` is not an input
   11 | grad: {wrt: [y], derive: true}
      |              ^
  hint: inputs: x""",
    ),
    (
        [("default: -1", "defualt: -1")],
        """\
s.yaml:6:28: error: `defualt` is not a field of an attribute
    6 | attrs: {axis: {type: axis, defualt: -1}}
      |                            ^~~~~~~
  hint: did you mean `default`?""",
    ),
    (
        [("self: x", "self: X")],
        """\
s.yaml:16:54: error: `X` is neither an input nor an attribute
   16 | aten: [{overload: aten._softmax.default, map: {self: X, dim: axis, half_to_float: {only: false}}}]
      |                                                      ^
  hint: did you mean `x`?""",
    ),
    (
        [('{x: "T', '{on: "T'), ("grad: {wrt: [x]", "grad: {wrt: [on]"), ("self: x", "self: on")],
        """\
s.yaml:5:10: error: `on` is a boolean or null to YAML 1.1 readers
    5 | inputs: {on: "T[*B, N@axis]"}
      |          ^~
  hint: choose another name""",
    ),
    (
        [('{axis: {type: axis, default: -1}}', '{axis: {type: axis, default: -1}, B: {type: int}}')],
        """\
s.yaml:6:42: error: `B` is already a dim (line 4)
    6 | attrs: {axis: {type: axis, default: -1}, B: {type: int}}
      |                                          ^
  hint: one name, one meaning: choose another""",
    ),
    (
        [("A(x[*B, j])", "A(x[j])")],
        """\
s.yaml:9:23: error: `x`, T[*B, N@axis], has 2 axes, and here 1 index
    9 |   m[*B]    = max[j](A(x[j]))
      |                       ^~~~
  hint: a pack counts as one: `*b`""",
    ),
    (
        [("grad: {wrt: [x], derive: true}", "grad:\n  wrt: [x]\n  save: [y]\n  compute: |\n"
          "    dx[*B, i] = dy[*B, i] * m[*B]")],
        """\
s.yaml:15:29: error: the tensor `m` is not known in grad
   15 |     dx[*B, i] = dy[*B, i] * m[*B]
      |                             ^~~~~
  hint: backward reads what `save` lists: add `m`, or compute it again""",
    ),
    (
        [("B: [3], N: 5", "B: [3], M: 5")],
        """\
s.yaml:13:20: error: `M` is no dim or attribute of `softmax`
   13 |   cases: [{B: [3], M: 5}]
      |                    ^
  hint: dims and attributes: B, N, axis""",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text"), GOLDEN, ids=[t.split("error: ")[1].split("\n")[0] for _, t in GOLDEN]
)
def test_golden_errors(changes: list[tuple[str, str]], text: str) -> None:
    assert refused(softmax(*changes)).render() == text


# ------------------------------------------------------------------------------------------------- more refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("T: float", "T: flaot")], "`flaot` is neither a category, a dtype nor a type variable"),
        ([("accum(T)", "acum(T)")], "`acum` is not a rule for types"),
        ([("T: float, A: accum(T)", "A: accum(T), T: float")], "`T` is declared below `A`"),
        ([("T: float, ", "T: float, U: real, ")], "no input fixes the type `U`"),
        ([("A: accum(T)", "A: 'attr(dtype, T)'")], "`attr(dtype, …)` needs an attribute `dtype` of type dtype"),
        ([("B: batch", "B: bacth")], "`bacth` is not a value of `dims`"),
        ([("B: batch", "B: batch, D: batch")], "the dim `D` is used by no input"),
        ([("*B, N@axis]", "B, N@axis]")], "`B` is a pack of axes"),
        ([('"T[', '"optionl T[')], "`optionl` is not a mark of a type"),
        ([('"T[', '"aux T[')], "`aux` is not a mark of inputs"),
        ([('"T[*B, N@axis]"', "T")], "`T` says no shape"),
        ([('"T[*B, N@axis]"', "3")], "`3` is not a type"),
        ([('"T[*B, N@axis]"', '"T[*B, *N@axis]"')], "`axis` is axis: one dim moves there"),
        ([('{y: "T', '{x: "T')], "`x` is already an input (line 5)"),
        ([('{y: "T', '{T: "T')], "`T` is already a type (line 3)"),
        ([('{y: "T', '{y-2: "T')], "`y-2` is not a name"),
        ([('{y: "T', '{lambda: "T')], "`lambda` is a word of the language"),
        ([('{y: "T', '{f32: "T')], "`f32` names a dtype or a category of dtypes"),
        ([("type: axis", "type: axs")], "`axs` is not an attribute's type"),
        ([("type: axis", "type: enum")], "`enum` is not an attribute's type"),
        ([("type: axis, ", "")], "`axis` has no type"),
        ([("default: -1", "default: last")], "this is not a default of type axis"),
        ([("default: -1", "static: sometimes")], "`static` is true, false, rank, or a class of values"),
        ([("derive: true", "derive: yes")], "`derive` must be true or false"),
        ([("derive: true", "derive: true, none: x")],
         "`grad` says exactly one of derive, compute, none (here: derive, none)"),
        ([("wrt: [x], ", "")], "`grad` does not say of which inputs"),
        ([("wrt: [x], derive: true", "wrt: [x], derive: true, save: [q]")], "`q` in `save` is not known"),
        ([("self: x", "self: x, other: x")], "two arguments go to `x`"),
        ([("aten._softmax.default", "softmax")], "`softmax` is not a value of `overload`"),
        ([("y[*B, i] >= 0", "y[*B] >= 0")], "`y`, T[*B, N@axis], has 2 axes, and here 1 index"),
        ([("y[*B, i] >= 0", "y[*B, i] =>= 0")], "cannot read this as an expression: invalid syntax"),
        ([("A(x[*B, j])", "exp(1, x[*B, j])")], "`exp` takes 1 argument, here are 2"),
        ([("A(x[*B, j])", "A(x[*B, j], 1)")], "the cast `A(…)` takes one argument"),
        ([("A(x[*B, j])", "x[*B, j] if x is None else 2")], "`x` is never None"),
        ([("A(x[*B, j])", "x[*B, j] if axis == 'a' else 2")], "a string is only compared with an enum attribute"),
        ([("A(x[*B, j])", "x[*B, j] + 'j'")], "a string is only compared with an attribute"),
        ([("A(x[*B, j])", "x[*B, j] if T == 'f33' else 2")], "`f33` is not a dtype"),
        ([("  m[*B]", "  m[*B] = A(0)\n  m[*B]")], "`m` is written a second time"),
        ([("  m[*B]", "  m[*B] += A(0) * A(x[*B, j])\n  m[*B]")], "`m` is written a second time"),
        ([("  m[*B]    =", "  m[*B] += A(x[*B, j])\n  m[*B]: max =")], "`m` is updated by `+=` and by `max`"),
        ([("A(x[*B, j])", "x[*B, j] + true")], "the name `true` is not declared"),
        ([("A(x[*B, j])", "x[*B, j] + x")], "`x` is a tensor: which element?"),
        ([("A(x[*B, j])", "x[*B, j] + x(j)")], "`x` is a tensor, not a function"),
        ([("max[j](A(x[*B, j]))", "max[j](A(x[j, *B]))")], "here `x` has a pack of axes: *B"),
        ([("max[j]", "max[B]")], "`B` is already declared: an index needs a name of its own"),
        ([("max[j](A(x[*B, j]))", "max[j](sum[j](A(x[*B, j])))")], "the index `j` is taken in this statement"),
        ([("max[j](A(x[*B, j]))", "max[j](A(j))")], "the index `j` has no extent: it stands alone in no load"),
        ([("m[*B]    =", "m[*B, q] =")], "the index `q` has no extent: it stands alone in no load"),
        ([("  m[*B]    =", "  x[*B, j] = 0\n  m[*B]    =")], "`x` is an input: it cannot be written"),
        ([("  m[*B]    =", "  axis[*B] = 0\n  m[*B]    =")], "`axis` is already declared"),
        ([("  m[*B]", "  if axis > 0:\n    m[*B] = 0\n  m[*B]")],
         "`axis` is not static: only a static test chooses statements"),
        ([("  m[*B]", "  if x[*B, 0] > 0:\n    m[*B] = 0\n  m[*B]")], "only a static test chooses statements"),
        ([("op: softmax\n", "")], "the field `op` is missing"),
        ([("op: softmax", "op: [1]")], "`op` must be a text"),
        ([("op: softmax", "op: Softmax")], "`Softmax` is not an operator's name"),
        ([("op: softmax", "op: a::b::c")], "`a::b::c` is not an operator's name"),
        ([("outputs:", "outputs: {}\nsince:")], "a spec has at least one output"),
        ([("  values: [normal]", "  tol: 1.0e-3")], "`1.0e-3` is not a value of `tol`"),
        ([("B: [3], N: 5", "B: 3, N: 5")], "`B` is a pack of axes: its extents are a list"),
        ([("B: [3], N: 5", "B: [3], N: -5")], "`N` is one extent"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_refusals(changes: list[tuple[str, str]], message: str) -> None:
    e = refused(softmax(*changes))
    assert e.message == message
    assert e.place is not None
    assert e.place.text is not None


def test_several_mistakes_in_one_run() -> None:
    e = refused(
        softmax(
            ("accum(T)", "acum(T)"),
            ("wrt: [x]", "wrt: [z]"),
            ("T(exp", "T(exq"),
            ("N: 5", "M: 5"),
            ("dim: axis", "dim: axes"),
        )
    )
    assert [(x.place.line, x.message) for x in e.errors if x.place] == [
        (3, "`acum` is not a rule for types"),
        (10, "`exq` is not a function of the language"),
        (11, "`z` in `wrt` is not an input"),
        (13, "`M` is no dim or attribute of `softmax`"),
        (16, "`axes` is neither an input nor an attribute"),
    ]
    assert e.render().endswith("5 errors")
    assert len(e.to_json()["errors"]) == 5


def test_statements_that_cannot_be_read_hide_no_mistake_elsewhere() -> None:
    e = refused(softmax(("accum(T)", "acum(T)"), ("compute: |", "compute: |\n  q[*B] = [1]")))
    assert [str(x) for x in e.errors] == [
        "s.yaml:3:22: `acum` is not a rule for types",
        "s.yaml:9:11: a list is not in the language",
    ]


def test_a_declaration_that_cannot_be_read_is_the_only_mistake() -> None:
    """Every use of `x` would be one more."""
    assert [x.message for x in refused(softmax(('"T[*B, N@axis]"', '"T[*B, N@"'))).errors] == [
        "a type ends with `]`"
    ]


def test_mistakes_of_all_documents_are_reported() -> None:
    text = softmax(("exp(", "exq(")) + "---\n" + softmax(("max[j]", "mux[j]"))
    assert len(refused(text).errors) == 2


# ------------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("scalar", "place"),
    [
        ("N + [1]", (1, 10)),
        ('"N + [1]"', (1, 11)),
        ("'N + [1]'", (1, 11)),
        ('"N\\u0020+ [1]"', (1, 16)),
        ("'N != ''a'' + [1]'", (1, 20)),
        ("N +\n    [1]", (2, 5)),
        ('"N +\n    [1]"', (2, 5)),
        ("|\n    N + [1]", (2, 9)),
        ("|2\n    N + [1]", None),
        ("|-\n\n    N + [1]\n", None),
    ],
)
def test_places_within_scalars_of_every_style(scalar: str, place: tuple[int, int] | None) -> None:
    from opwright.generator.errors import LanguageError
    from opwright.generator.spec_read import parse_text

    [node] = read_documents(f"a:   {scalar}\n", "f")
    text = node.pairs[0][1].text
    assert text is not None
    source = f"a:   {scalar}\n".split("\n")
    for c, (line, col) in zip(text.value, text.at, strict=False):
        if c not in " \n" and "\\u" not in scalar:
            assert source[line - 1][col - 1] == c
    if place is not None:
        with pytest.raises(LanguageError) as e:
            parse_text(text)
        assert e.value.place is not None
        assert (e.value.place.line, e.value.place.column) == place


def test_places_in_flow_and_block_of_the_same_spec() -> None:
    text = softmax(('"T[*B, N@axis]"}\nattrs', "\n  'T[*B,\n    N@axes]'}\nattrs"))
    e = refused(text)
    assert (e.message, e.place and (e.place.line, e.place.column)) == ("`@axes` names no attribute", (7, 5))


# ------------------------------------------------------------------------------------------------- what is not a spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no operator in this file"),
        ("# nothing\n", "no operator in this file"),
        ("just words", "a spec is a mapping of fields"),
        ("- 1\n- 2", "a spec is a mapping of fields"),
        ("op: a\nop: b", "`op` is given twice (first in line 1)"),
        ("inputs: {x: 1, x: 2}", "`x` is given twice (first in line 1)"),
        ("op: &a x\ndoc: *a", "anchors (`&name`) are not in the language"),
        ("op: *a", "aliases (`*name`) are not in the language"),
        ("<<: {op: x}", "merge keys are not in the language"),
        (
            "op: !!python/object:os.system x",
            "tags (`tag:yaml.org,2002:python/object:os.syste`) are not in the language",
        ),
        ("op: !x y", "tags (`!x`) are not in the language"),
        ("? [a]\n: b", "a key must be a name"),
        ("[" * 100, "nested deeper than 12"),
        ("{x: T[*B]}", "not YAML: expected ',' or '}', but got '['"),
        ("op: [a", "not YAML: expected ',' or ']', but got '<stream end>'"),
        ("\top: a", "not YAML: a tab stands here, and YAML takes spaces"),
        ("op: \x00", "not YAML: unacceptable character #x0000: special characters are not allowed"),
        ("op: 'a", "not YAML: found unexpected end of stream"),
        ("a: " + "x" * 100_000, "a text of 100000 characters (limit 65536)"),
        ("%YAML 3.0\n---\nop: a", "not YAML: found incompatible YAML document (version 1.* is required)"),
    ],
    ids=lambda v: v[:40],
)
def test_what_is_not_a_spec(text: str, message: str) -> None:
    assert refused(text).message == message


def test_a_bomb_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    start = time.monotonic()
    assert "anchors" in refused(bomb).message
    assert time.monotonic() - start < 1


def test_many_values_are_refused() -> None:
    assert refused("op: [" + "1, " * 30_000 + "]").message == "more than 20000 values in one file"


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SpecError, match="no regular file"):
        Registry.load([tmp_path])


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as f:
        f.truncate(50 << 20)
    start = time.monotonic()
    with pytest.raises(SpecError, match=r"a spec file of 52428800 bytes \(limit 1048576\)"):
        load_spec(path)
    assert time.monotonic() - start < 1
    assert "limit" in refused("#" * (MAX_BYTES + 1)).message


def test_an_endless_file_is_refused() -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("no /dev/zero here")
    with pytest.raises(SpecError, match="no regular file"):
        load_spec("/dev/zero")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read this file: No such file"):
        load_spec(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="this is a folder"):
        load_spec(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes("op: a\ndoc: gr\u00fc\u00df\n".encode("latin-1"))
    with pytest.raises(SpecError, match=r":2: not UTF-8 text"):
        load_spec(path)


def test_control_characters_do_not_reach_the_terminal() -> None:
    e = refused('op: "a\\e[31m"\ndoc: x')
    assert "\x1b" not in e.render()


def test_no_edit_of_a_spec_gives_anything_but_an_error_with_a_place() -> None:
    rng = random.Random(0)
    texts = [
        t for path in sorted(SPECS.glob("*.yaml")) for t in path.read_text(encoding="utf-8").split("\n---\n")
    ]
    bits = [
        "[",
        "]",
        "{",
        "*",
        '"',
        "'",
        ":",
        "|",
        "#",
        "\n",
        "  ",
        "@",
        "None",
        "-",
        "(",
        ")",
        ",",
        "sum[i]",
        "T",
        "λ",
        "in ",
    ]
    refused_with: list[SpecError] = []
    for _ in range(300):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at, other = rng.randrange(len(text) + 1), rng.choice(texts)
            end, start = at + rng.choice([0, 0, 1, 8, 60]), rng.randrange(len(other))
            text = text[:at] + rng.choice([rng.choice(bits), "", other[start : start + 20]]) + text[end:]
        try:
            load_spec_text(text, "f")
        except SpecError as e:
            refused_with.append(e)
    assert len(refused_with) > 200
    for e in refused_with:
        assert e.render()
        assert all(x.place is not None for x in e.errors)


# ------------------------------------------------------------------------------------------------- the registry


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_registry(tmp_path: Path) -> None:
    write(tmp_path, "ops/norm/softmax.yaml", SOFTMAX)
    registry = Registry.load([tmp_path / "ops"])
    assert registry.get("softmax").family == "norm"
    assert [s.op for s in registry.all()] == ["softmax"]
    [(spec, entry)] = registry.by_aten("aten._softmax.default")
    assert (spec.op, entry.overload) == ("softmax", "aten._softmax.default")
    assert registry.by_aten("aten.add.Tensor") == []
    assert registry.aten_table() == {
        "aten._softmax.default": [
            {
                "op": "softmax",
                "map": [["self", "x"], ["dim", "axis"], ["half_to_float", {"only": False}]],
                "set": {},
                "returns": ["y"],
            }
        ]
    }
    with pytest.raises(SpecError, match="no operator `softmx`") as e:
        registry.get("softmx")
    assert e.value.hint == "did you mean `softmax`?"


def test_later_directories_replace_operators_of_earlier_ones(tmp_path: Path) -> None:
    write(tmp_path, "a/softmax.yaml", SOFTMAX)
    write(tmp_path, "b/softmax.yaml", softmax(("default: -1", "default: 0")))
    registry = Registry.load([tmp_path / "a", tmp_path / "b"])
    assert registry.get("softmax").attrs["axis"].default == 0


def test_an_operator_or_overload_declared_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a/x/one.yaml", SOFTMAX)
    write(tmp_path, "a/x/two.yaml", SOFTMAX)
    with pytest.raises(SpecError, match="`softmax` is declared twice"):
        Registry.load([tmp_path / "a"])
    write(tmp_path, "a/x/two.yaml", softmax(("op: softmax", "op: other")))
    with pytest.raises(SpecError, match=r"`aten._softmax.default` is already `softmax`") as e:
        Registry.load([tmp_path / "a"])
    assert e.value.place is not None
    assert e.value.place.line == 16


def test_operators_share_an_overload_where_they_demand_different_values(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", SOFTMAX)
    write(tmp_path, "two.yaml", softmax(("op: softmax", "op: other"), ("only: false", "only: true")))
    registry = Registry.load([tmp_path])
    assert [s.op for s, _ in registry.by_aten("aten._softmax.default")] == ["softmax", "other"]


def test_mistakes_of_all_files_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", softmax(("exp(", "exq(")))
    write(tmp_path, "two.yaml", "op: [")
    with pytest.raises(SpecError) as e:
        Registry.load([tmp_path])
    assert len(e.value.errors) == 2


def test_an_entry_without_a_map_takes_the_spec_in_order() -> None:
    s = next(x for x in load_spec(SPECS / "matmul.yaml") if x.op == "add")
    table = Registry([s]).aten_table()
    assert table["aten.add.Tensor"][0]["map"] == [["a", "a"], ["b", "b"], ["alpha", "alpha"]]
