"""What the face's fronts say, as nodes of a program: the calls, their extents over symbols, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opwright.fronting import Refused
from opwright.generator.program import records, views
from opwright.generator.program.aten import AtenRow, Rows
from opwright.generator.program.capture import capture
from opwright.generator.program.captured import Capture, Ref
from opwright.generator.program.expand import ProgramDoor, Size, answers, of_complex
from opwright.generator.program.intexpr import IntExpr
from opwright.generator.program.ir import UNBOUNDED, Symbol
from opwright.generator.program.shapes import results
from opwright.generator.spec import load_spec, load_spec_text
from opwright.generator.types import DType, Operand
from opwright.resources import specs_dir

from ... import specs

torch = pytest.importorskip("torch")


def table(tmp_path: Path, *texts: str) -> Rows:
    files: dict[str, str] = {}
    for k, text in enumerate(texts):
        path = tmp_path / f"{k}.yaml"
        path.write_text(text, encoding="utf-8")
        files |= {s.op: str(path) for s in load_spec(path)}
    return Rows({}, files)


def captured(fn: Callable[..., Any], *xs: Any, table: Rows) -> Capture:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return fn(*args)

    return capture(Model(), xs, {}, table, name="m", source="test")


MEAN = """
op: mean
types: {T: float, A: accum(T)}
dims: {B: batch, N: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs: {dim: {type: axes, default: null, empty: all}, keepdim: {type: bool, default: false, static: true}}
outputs: {y: "T[*B, 1@dim if keepdim]"}
compute: |
  y[*B] = T(sum[*n](A(x[*B, *n])))
"""
PAIR = """
op: var_mean
types: {T: float, A: accum(T)}
dims: {B: batch, N: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs:
  dim: {type: axes, default: null, empty: all}
  correction: {type: scalar, default: 1}
  keepdim: {type: bool, default: false, static: true}
outputs: {v: "T[*B, 1@dim if keepdim]", m: "T[*B, 1@dim if keepdim]"}
compute: |
  m[*B] = T(sum[*n](A(x[*B, *n])))
  v[*B] = T(sum[*n](A(x[*B, *n])) - correction)
"""
FULL = """
op: full
types: {R: "attr(dtype, default(value))"}
attrs: {size: {type: ints, static: rank}, value: {type: scalar}, dtype: {type: dtype, default: null}}
outputs: {y: "R[*size]"}
compute: |
  y[*i] = R(value)
"""
COUNT = """
op: bincount
types: {I: integer}
inputs: {x: "I[N]"}
attrs: {minlength: {type: int, default: 0}}
sizes: {M: "max(max[i](x[i]) + 1, minlength)"}
outputs: {y: "i64[M]"}
compute: |
  y[m] = sum[i](1 if x[i] == m else 0)
"""


def test_one_call_with_two_results_is_the_node_s_own(tmp_path: Path) -> None:
    c = captured(lambda x: torch.var_mean(x, 1), torch.randn(3, 5), table=table(tmp_path, PAIR))
    (call,) = c.program.calls
    assert (call.op, call.attrs["dim"], call.missing) == ("var_mean", (1,), False)
    assert c.origins[call.id].results == ((0, None), (1, None)) and c.composed == ()
    x = torch.randn(4, 5)
    values = records.values(c, {c.program.inputs[0].name: x})
    for id, want in zip(call.out, torch.var_mean(x, 1), strict=True):
        assert id is not None and torch.equal(values[id], want)


def test_an_extent_that_data_tell_is_a_symbol_that_later_nodes_read(tmp_path: Path) -> None:
    c = captured(
        lambda x: torch.bincount(x).unsqueeze(0).expand(2, -1),
        torch.tensor([1, 4, 1]),
        table=table(tmp_path, COUNT),
    )
    (call,) = [n for n in c.program.calls if n.op == "bincount"]
    (symbol,) = [s for s in c.program.symbols.values() if s.source == call.out[0]]
    assert c.program.values[c.program.outputs[0].value].shape == (IntExpr.of(2), IntExpr.of(symbol.name))


def test_the_call_s_result_is_the_node_s_behind_a_reshape(tmp_path: Path) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            return torch.kron(a, b)

    rows = table(tmp_path, specs.ADD.replace("op: add", "op: mul"))
    a, b = torch.randn(2, 3), torch.randn(4, 2)
    c = capture(Model(), (a, b), {}, rows, name="m", source="test", keep=["aten.kron.default"])
    (call,) = c.program.calls
    assert call.op == "mul" and c.program.values[str(call.out[0])].rank == 4
    given = dict(zip([i.name for i in c.program.inputs], (a, b), strict=True))
    assert torch.equal(records.values(c, given)[c.program.outputs[0].value], torch.kron(a, b))


def test_steps_between_have_no_value_of_eager_s(tmp_path: Path) -> None:
    """`dist` is a difference and a norm: of the difference PyTorch has no value."""

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Any, b: Any) -> Any:
            return torch.dist(a, b)

    norm = MEAN.replace("op: mean", "op: vector_norm").replace(
        "attrs: {", "attrs: {ord: {type: float, default: 2.0}, dtype: {type: dtype, default: null}, "
    )
    rows = table(tmp_path, specs.ADD.replace("op: add", "op: sub"), norm)
    x = torch.randn(2, 3)
    c = capture(Model(), (x, x + 1), {}, rows, name="m", source="test", keep=["aten.dist.default"])
    first, last = c.program.calls
    assert (first.op, last.op) == ("sub", "vector_norm") and c.composed == ("aten.dist.default",)
    given = {i.name: t for i, t in zip(c.program.inputs, (x, x + 1), strict=True)}
    have = records.values(c, given)
    assert first.id not in c.origins and first.out[0] not in have and last.out[0] in have
    assert [id for id, _, _ in records.record_eager(c, given)] == [first.id]


def test_operators_that_are_not_there_leave_the_call_missing(tmp_path: Path) -> None:
    c = captured(torch.bincount, torch.tensor([1, 4, 1]), table=Rows({}))
    (call,) = c.program.calls
    assert call.missing and "there is no operator bincount" in call.why


def test_a_front_that_writes_into_memory_is_refused() -> None:
    files = {s.op: s.file for path in specs_dir().rglob("*.yaml") for s in load_spec(path)}
    got = captured(
        lambda x, s: torch.ops.aten.as_strided_scatter(x.T, s, [3], [4], 0),
        torch.zeros(3, 3),
        torch.ones(3),
        table=Rows({}, files),
    )
    (call,) = got.program.calls
    assert call.missing and call.why.startswith("it writes into a tensor")


def test_what_draws_is_not_answered() -> None:
    assert answers("aten.bincount.default") and not answers("aten.rand.default")


class _Names:
    def __init__(self) -> None:
        self.symbols = {"n": Symbol("n", "x", 0, 2, UNBOUNDED), "m": Symbol("m", "x", 1, 3, 8)}


def size(text: str) -> Size:
    return Size(ProgramDoor(_Names()), IntExpr.of(text))  # type: ignore[arg-type]


def test_extents_are_compared_where_their_ranges_decide() -> None:
    n, m = size("n"), size("m")
    assert n > 1 and m < 9 and not m > 8 and n * m >= 6 and n != 0 and n != 1 and m + 1 != m
    assert (n + 3) - n == 3 and (n * 4) // 4 == n and -(-(n * 6) // 6) == n
    for undecided in (lambda: n > 5, lambda: m == 4, lambda: n < m, lambda: range(n), lambda: n - 2 == 0):
        with pytest.raises(Refused):
            undecided()


@pytest.mark.parametrize(
    ("text", "inputs", "attrs", "want"),
    [
        (specs.MATMUL, {"a": "s2k", "b": "k4"}, {}, ("s", "2", "4")),
        (specs.ADD, {"a": "s1", "b": "k"}, {}, ("s", "k")),
        (MEAN, {"x": "s3k"}, {"dim": (0, -1)}, ("3",)),
        (MEAN, {"x": "s3k"}, {"dim": (1,), "keepdim": True}, ("s", "1", "k")),
        (MEAN, {"x": "s3k"}, {}, ()),
        (COUNT, {"x": "s"}, {}, (None,)),
    ],
)
def test_extents_of_results(text: str, inputs: Any, attrs: Any, want: Any) -> None:
    (spec,) = load_spec_text(text)
    kind = DType.I64 if spec.op == "bincount" else DType.F32
    shapes = {k: [IntExpr.of(int(c) if c.isdigit() else c) for c in v] for k, v in inputs.items()}
    (found,) = results(spec, {k: Operand(kind, len(v)) for k, v in shapes.items()}, shapes, attrs)
    assert tuple(None if n is None else str(n) for n in found.shape) == want and found.dtype is kind


def test_a_front_s_operators_are_all_there() -> None:
    """Every operator that a front names has a spec: a name that is spelled wrongly would only ever refuse."""
    import ast

    import opwright.fronts as fronts

    named: set[str] = set()
    folder = Path(fronts.__file__).parent
    for name in ("fronts", "composites", "arrangements", "products", "random"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Call", "run")
            ):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    named.add(first.value)
    texts = "\n".join(p.read_text(encoding="utf-8") for p in sorted(specs_dir().rglob("*.yaml")))
    assert len(named) > 60
    lost = [n for n in sorted(named) if not n.startswith("aten.") and n not in texts]
    assert not lost


def test_a_number_made_of_extents_is_computed_when_the_program_runs(tmp_path: Path) -> None:
    """`x / n ** 0.5`, where n varies."""
    div = specs.ADD.replace("op: add", "op: div")
    rows = table(tmp_path, div, FULL, div.replace("op: div", "op: pow"), div.replace("op: div", "op: mul"))
    to_div = (("self", "a"), ("other", "b"))
    rows["aten.div.Tensor"] = (AtenRow("div", "aten.div.Tensor", to_div, ("a", "b"), ("alpha",)),)
    c = captured(lambda x: x / x.shape[0] ** 0.5, torch.randn(3, 5), table=rows)
    ops = [call.op for call in c.program.calls]
    assert ops[-2:] == ["cast", "div"] and not any(call.missing for call in c.program.calls)
    (n,) = [
        call for call in c.program.calls if call.op == "full" and isinstance(call.attrs["value"], IntExpr)
    ]
    assert n.attrs["dtype"] == "i64"


def test_rotations_that_cannot_see_whether_they_are_done_are_a_constant_number() -> None:
    from types import SimpleNamespace as Shaped

    from opwright.fronting import through
    from opwright.matrices import _BLIND_COLUMNS, _BLIND_SWEEPS, _sweeps

    assert len(_sweeps(Shaped(shape=(2, 3, 4)))) > _BLIND_SWEEPS
    with through(ProgramDoor(None)):  # type: ignore[arg-type]
        assert len(_sweeps(Shaped(shape=(2, 3, 4)))) == _BLIND_SWEEPS
        with pytest.raises(Refused, match="columns"):
            _sweeps(Shaped(shape=(2, 3, _BLIND_COLUMNS + 1)))


def test_a_function_of_complex_numbers_is_the_face_s_before_any_row_s() -> None:
    for dtype, own in ((DType.C64, True), (DType.F32, False)):
        x = Ref("v", dtype, views.contiguous(()))
        assert of_complex("aten.exp.default", {"self": x}) == own
        assert of_complex("aten.linalg_vector_norm.default", {"x": [x]}) == own
        assert not of_complex("aten.add.Tensor", {"self": x})  # operators of their own take both
