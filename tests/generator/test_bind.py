"""The binder: keys of calls, indices and extents, types.  One spec text a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright.generator.bind import bind, bind_grad, rebind
from opwright.generator.bind_key import key_for_call, keys_of
from opwright.generator.bound import BoundOp, show_statements
from opwright.generator.errors import BindError, DomainError, SpecError
from opwright.generator.expr import Num, parse_statements, show, walk
from opwright.generator.normal import normalise
from opwright.generator.spec import OpSpec, load_spec, load_spec_text
from opwright.generator.types import DType, Operand
from opwright.resources import specs_dir

F32, F64, BF16, I32, I64, BOOL = DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64, DType.BOOL
F16 = DType.F16
FILES = sorted(specs_dir().rglob("*.yaml"))


def spec(text: str) -> OpSpec:
    return load_spec_text(text)[0]


def one(
    body: str,
    *,
    inputs: str = '{x: "T[*B, N]"}',
    outputs: str = '{y: "T[*B, N]"}',
    types: str = "{T: float, A: accum(T)}",
    more: str = "",
    dims: str = "{B: batch}",
    key: DType = F32,
) -> BoundOp:
    lines = "\n".join("  " + line for line in body.splitlines())
    s = spec(
        f"op: t\ntypes: {types}\ndims: {dims}\ninputs: {inputs}\noutputs: {outputs}\n{more}\ncompute: |\n{lines}\n"
    )
    return bind(s, keys_of(s, [key])[0])


#: Operators whose Normal or Bound text does not say all of the program yet, and why.  Strict: one that reads back again
#: has to leave this list.
NOT_READ_BACK = {
    "angle": "a choice between two plain numbers does not print its type",
    "ctc_loss": "a choice between two plain numbers does not print its type",
    "fold": "an accumulator that is only updated at computed places states its shape nowhere",
    "histc": "an accumulator that is only updated at computed places states its shape nowhere",
    "gated_delta_rule": "sums hoisted out of a recurrence are printed before what they read of it",
    "gru": "sums hoisted out of a recurrence are printed before what they read of it",
    "lstm": "sums hoisted out of a recurrence are printed before what they read of it",
    "rnn_relu": "sums hoisted out of a recurrence are printed before what they read of it",
    "rnn_tanh": "sums hoisted out of a recurrence are printed before what they read of it",
}


def _reads_back(p: BoundOp) -> None:
    again = rebind(p, parse_statements(show_statements(p.body)))
    assert again.body == p.body
    assert {t.name: t for t in again.temps} == {t.name: t for t in p.temps}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_spec_binds_normalises_and_reads_back(path: Path) -> None:
    """Printed Bound and Normal programs bind to themselves again, at every key that f32 and bf16 give."""
    for s in load_spec(path):
        keys = [k for d in ([F32], [BF16], None) for k in keys_of(s, d, limit=6)]
        assert keys, s.op
        bound = lost = 0
        for k in keys:
            try:
                b = bind(s, k)
            except DomainError:
                continue
            bound += 1
            for p in (b, normalise(b)):
                if s.op not in NOT_READ_BACK:
                    _reads_back(p)
                    continue
                try:
                    _reads_back(p)
                except (BindError, AssertionError):
                    lost += 1
            if s.grad is not None and s.grad.compute is not None:
                bind_grad(s, k)
        assert bound, s.op
        assert bool(lost) == (s.op in NOT_READ_BACK), f"{s.op} reads back: take it off the list"


@pytest.mark.parametrize("dtype", [F32, F64, BF16, I64])
@pytest.mark.parametrize("value", ["A(1) if x[*B] > 0 else A(0)", "-(A(2) if x[*B] > 0 else 0)"])
def test_numbers_alone_keep_their_type_when_printed(dtype: DType, value: str) -> None:
    (s,) = load_spec_text(
        f"""\
op: f
doc: A temporary made of numbers alone.
types: {{T: ordered, A: accum(T)}}
dims: {{B: batch}}
inputs: {{x: "T[*B]"}}
outputs: {{y: "T[*B]"}}
compute: |
  u[*B] = {value}
  y[*B] = T(A(x[*B]) * u[*B])
grad: {{none: a test}}
""",
        "f.yaml",
    )
    b = bind(s, keys_of(s, [dtype])[0])
    for p in (b, normalise(b)):
        again = rebind(p, parse_statements(show_statements(p.body)))
        assert again.body == p.body
        assert again.temps == p.temps


@pytest.mark.parametrize("dtype", [BOOL, DType.U8, I64, F32, BF16, DType.C64])
@pytest.mark.parametrize("alpha", [1, True, 1.5, 2j])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_scale_that_the_sum_cannot_hold_is_refused(dtype: DType, alpha: complex, place: int) -> None:
    """As PyTorch: no fraction of integers, no complex number of reals; it would be cut without a word."""
    s = load_spec(specs_dir() / "ops/pointwise/binary.yaml")[place]
    if dtype is BOOL and s.op != "add":
        return  # a difference of bools is refused whatever the scale
    right = dtype.is_complex or (not isinstance(alpha, complex) and (dtype.is_float or alpha == int(alpha)))
    call = {"a": Operand(dtype, 2), "b": Operand(dtype, 2)}
    key = key_for_call(s, call, {"alpha": alpha}).key
    if right:
        bind(s, key)
        return
    with pytest.raises(DomainError, match="requires S == T"):
        bind(s, key)


def test_masks_are_bool_or_f32_or_of_the_queries_dtype() -> None:
    (s,) = load_spec(specs_dir() / "ops/attention/sdpa.yaml")
    for q in (F32, F64, BF16):
        taken = set()
        for m in DType:
            call = {n: Operand(q, 4) for n in "qkv"} | {"mask": Operand(m, 4)}
            try:
                bind(s, key_for_call(s, call).key)
                taken.add(m)
            except DomainError:
                continue
        assert taken == {BOOL, F32, q}


def test_promotion_decides_the_key_and_the_casts() -> None:
    s = load_spec(specs_dir() / "ops/pointwise/binary.yaml")[0]
    r = key_for_call(s, {"a": Operand(BF16, 2), "b": Operand(F32, 1)})
    assert dict(r.key.types)["T"] == "f32"
    assert r.casts == {"a": F32}
    r = key_for_call(s, {"a": Operand(I64, 2), "b": Operand(F64, 0, weak=True)})
    assert dict(r.key.types)["T"] == "f32"
    r = key_for_call(s, {"a": Operand(BF16, 2), "b": Operand(F64, 0)})
    assert dict(r.key.types)["T"] == "bf16"


@pytest.mark.parametrize(
    ("beside", "other", "want"),
    [
        (BF16, Operand(F64, 0, weak=True), F32),
        (BF16, Operand(I64, 0, weak=True), F32),
        (F16, Operand(F32, 0), F32),
        (BF16, Operand(F64, 0), F32),
        (BF16, Operand(BF16, 0), BF16),
        (BF16, Operand(BF16, 1), BF16),
        (F32, Operand(F64, 0, weak=True), F32),
        (F64, Operand(F32, 0), F64),
        (I64, Operand(I64, 0, weak=True), I64),
    ],
)
def test_a_number_beside_halves_is_not_rounded(beside: DType, other: Operand, want: DType) -> None:
    """As in PyTorch's `mul`: the number is of the width in which the kernel computes."""
    s = next(s for s in load_spec(specs_dir() / "ops/pointwise/binary.yaml") if s.op == "mul")
    r = key_for_call(s, {"a": Operand(beside, 2), "b": other})
    assert dict(r.key.types) | {"T": beside.value, "U": want.value} == dict(r.key.types)
    assert r.casts.get("b", want if other.weak else other.dtype) is want


def test_keys_of_a_number_beside_halves_are_listed() -> None:
    s = next(s for s in load_spec(specs_dir() / "ops/pointwise/binary.yaml") if s.op == "mul")
    listed = [dict(k.types) for k in keys_of(s)]
    assert {"A": "f32", "T": "bf16", "U": "f32"} in listed
    assert not any(k["U"] != k["T"] for k in listed if k["T"] not in ("bf16", "f16"))


def test_no_cast_loses_an_imaginary_part() -> None:
    s = spec(
        'op: t\ntypes: {T: "float(promote(a))"}\ndims: {B: broadcast}\ninputs: {a: "T[*B]", w: "T[*B]"}\n'
        'outputs: {y: "T[*B]"}\ncompute: |\n  y[*B] = a[*B] if w[*B] > 0 else 0\n'
    )
    assert key_for_call(s, {"a": Operand(F32, 1), "w": Operand(DType.F64, 0)}, {}).casts == {"w": F32}
    with pytest.raises(DomainError, match="`w` is f32, got c64, whose imaginary part would be lost"):
        key_for_call(s, {"a": Operand(F32, 1), "w": Operand(DType.C64, 0)}, {})


def test_a_free_type_takes_one_dtype_only() -> None:
    s = load_spec(specs_dir() / "ops/linear/matmul.yaml")[0]
    with pytest.raises(DomainError, match="must have one dtype, got f32 and bf16"):
        key_for_call(s, {"a": Operand(F32, 2), "b": Operand(BF16, 2)})
    with pytest.raises(DomainError, match="dtype bool is not number"):
        key_for_call(s, {"a": Operand(BOOL, 2), "b": Operand(BOOL, 2)})


@pytest.mark.parametrize(
    ("inputs", "attrs", "text"),
    [
        ({"x": None}, {}, "input `x` is required"),
        ({"x": Operand(F32, 0)}, {}, "needs? .*|has at least 1 axes, got 0"),
        ({"z": Operand(F32, 1)}, {}, "no input `z`"),
        ({"x": Operand(F32, 1)}, {"axes": 1}, "no attribute `axes`"),
        ({"x": Operand(F32, 1)}, {"axis": "a"}, "attribute `axis` is an int, got 'a'"),
        ({"x": Operand(F32, 1)}, {"axis": 1.5}, "attribute `axis` is an int, got 1.5"),
        ({"x": [Operand(F32, 1)]}, {}, "is one tensor, got a list"),
    ],
)
def test_calls_outside_the_domain_are_refused(
    inputs: dict[str, object], attrs: dict[str, object], text: str
) -> None:
    s = load_spec(specs_dir() / "ops/norm/softmax.yaml")[0]
    with pytest.raises(DomainError, match=text):
        key_for_call(s, inputs, attrs)  # type: ignore[arg-type]


def test_static_packs_take_their_rank_from_the_input_and_lists_of_one_spread() -> None:
    s = load_spec(specs_dir() / "ops/conv/convolution.yaml")[0]
    r = key_for_call(
        s, {"x": Operand(F32, 4), "w": Operand(F32, 4)}, {"stride": [2], "padding": [1, 0], "dilation": 1}
    )
    assert dict(r.key.ranks) == {"I": 2, "K": 2}
    assert r.attrs["stride"] == (2, 2)
    assert dict(r.key.lengths) == {"dilation": 2, "padding": 2, "stride": 2}
    with pytest.raises(DomainError, match="`padding` needs 2 entries, got 3"):
        key_for_call(
            s,
            {"x": Operand(F32, 4), "w": Operand(F32, 4)},
            {"stride": 1, "padding": [1, 0, 0], "dilation": 1},
        )


def test_extents_come_from_plain_uses_and_must_agree() -> None:
    with pytest.raises(BindError, match=r"index k ranges over N \(`y`\) and M \(`z`\)"):
        one("y[*B, k] = T(A(x[*B, k]) + A(z[k]))", inputs='{x: "T[*B, N]", z: "T[M]"}')


def test_an_index_without_extent_is_named() -> None:
    with pytest.raises(SpecError, match="index `q` has no extent"):
        one("y[*B, k] = T(sum[q](A(x[*B, (k + q) % N])))")


def test_a_stated_extent_may_be_smaller_than_the_tensor() -> None:
    b = one("y[*B, k in M] = x[*B, k]", inputs='{x: "T[*B, N]", z: "T[M]"}', outputs='{y: "T[*B, M]"}')
    assert show(b.body[0].axis("k").extent) == "M"


def test_two_reductions_of_a_statement_may_name_one_index() -> None:
    b = one("y[*B, i] = T(A(x[*B, i]) / sum[j](A(x[*B, j])) - max[j](A(x[*B, j])))")
    assert [n for n, _ in b.body[0].reduced] == ["j", "j__1"]


def test_half_arithmetic_is_refused_with_the_cast_to_write() -> None:
    with pytest.raises(BindError, match=r"`\*` on bf16 would round at every step") as e:
        one("y[*B, i] = x[*B, i] * 2", key=BF16)
    assert "A(…)" in e.value.render()
    one("y[*B, i] = max(x[*B, i], 0)", key=BF16)  # exact: allowed


def test_rounding_is_written_where_it_happens() -> None:
    with pytest.raises(BindError, match="`y` is bf16, the value is f32") as e:
        one("y[*B, i] = A(x[*B, i]) * 2", key=BF16)
    assert "T(…)" in e.value.render()


def test_unlike_types_must_be_cast() -> None:
    with pytest.raises(BindError, match=r"is f32 and .* is f64"):
        one("y[*B, i] = T(A(x[*B, i]) * f64(x[*B, i]))")
    with pytest.raises(BindError, match="`/` of i64"):
        one("y[*B, i] = x[*B, i] / 2", types="{T: integer}", key=I64)


def test_weak_numbers_take_the_type_beside_them() -> None:
    b = one("y[*B, i] = T(A(x[*B, i]) / N + 0.5)")
    assert "x[*B, i] / f32(N) + 0.5" in show(b.body[0].assign.value)


@pytest.mark.parametrize(
    ("dtype", "least", "greatest"),
    [(DType.BOOL, False, True), (DType.U8, 0, 255), (DType.I8, -128, 127), (DType.I64, -(2**63), 2**63 - 1)],
)
def test_infinity_is_the_extreme_of_a_type_that_has_none(
    dtype: DType, least: object, greatest: object
) -> None:
    """Masks and first values of maxima and minima, whether they stand beside a tensor or are cast, chosen or not."""
    b = one(
        "y[*B, i] = max[j](x[*B, j] if j <= i else -inf)\n"
        "z[*B, i] = T(inf if x[*B, i] == x[*B, i] else -inf)\n",
        types="{T: real}",
        outputs='{y: "T[*B, N]", z: "T[*B, N]"}',
        key=dtype,
    )
    numbers = [n for s in b.body for n in walk(s.assign.value) if isinstance(n, Num) and n.dtype is dtype]
    assert [n.value for n in numbers] == [least, greatest, least]
    assert all(type(n.value) is type(least) for n in numbers)


def test_an_absent_input_read_unguarded_is_named() -> None:
    text = (
        'op: t\ntypes: {T: float}\ndims: {B: batch}\ninputs: {x: "T[*B]", w: "optional T[*B]"}\noutputs: {y: "T[*B]"}\n'
        "compute: |\n  y[*B] = w[*B]\n"
    )
    s = spec(text)
    key = next(k for k in keys_of(s, [F32]) if not dict(k.present)["w"])
    with pytest.raises(BindError, match="`w` is absent in this call and read all the same"):
        bind(s, key)


def test_only_static_tests_choose_statements() -> None:
    with pytest.raises(SpecError, match="only a static test chooses statements"):
        one(
            "if k > 1:\n  y[*B, i] = x[*B, i]\nelse:\n  y[*B, i] = x[*B, i]",
            more="attrs: {k: {type: int, default: 1}}",
        )


def test_a_number_that_has_no_kernel_of_its_own_is_compared_in_the_call() -> None:
    """`p` is none of 1 and 2 at this key: whether it is 3, the call says."""
    head = (
        'op: t\ntypes: {T: float}\ndims: {B: batch}\ninputs: {x: "T[*B]"}\n'
        'attrs: {p: {type: int, default: 1, static: "in (1, 2)"}}\noutputs: {y: "T[*B]"}\ncompute: |\n'
    )

    def text(compute: str, p: int) -> str:
        s = spec(head + compute)
        return show_statements(bind(s, key_for_call(s, {"x": Operand(F32, 1)}, {"p": p}).key).body)

    choice = "  y[*B] = x[*B] if p == 1 else -x[*B] if p == 3 else 0\n"
    assert "p == 3" in text(choice, 3) and "p == 1" not in text(choice, 3)
    assert "p" not in text(choice, 1)
    with pytest.raises(SpecError, match="must be decidable before the call"):
        text("  if p == 3:\n    y[*B] = x[*B]\n  else:\n    y[*B] = 0\n", 3)


def test_a_recurrence_is_seen() -> None:
    b = one("s[*B, t] = A(x[*B, t]) + (s[*B, t - 1] if t > 0 else 0)\ny[*B, t] = T(s[*B, t])")
    assert b.body[0].recur == "t"
    assert b.body[1].recur is None


def test_reading_oneself_in_place_is_refused() -> None:
    with pytest.raises(BindError, match="reads itself at the place it writes"):
        one("y[*B, i] = x[*B, i]\ny[*B, i]: set = y[*B, i]")


def test_inputs_cannot_be_written() -> None:
    with pytest.raises(SpecError, match="`x` is an input"):
        one("x[*B, i] = x[*B, i]\ny[*B, i] = x[*B, i]")


def test_a_linear_over_what_is_no_pack_is_refused() -> None:
    (s,) = load_spec_text("""op: drawn
types: {R: "attr(dtype, i64)"}
attrs: {size: {type: ints, static: rank}, seed: {type: int}, dtype: {type: dtype, default: null}}
outputs: {y: "R[*size]"}
compute: y[*i] = R(philox(seed, linear(*i, 2 *size), 1))
grad: {none: not under test}
""")
    *_, ranked = keys_of(s, limit=3)
    with pytest.raises(SpecError, match="takes a pack of extents"):
        bind(s, ranked)
