"""A small part of `make conformance` that CI has time for: the overloads that models are made of, few samples each."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from opwright.fronts import VIEWS  # noqa: E402

from .errors import bad_calls, refuse  # noqa: E402
from .replay import PASSED, claimed, prepare, replay  # noqa: E402
from .run import merged, page  # noqa: E402
from .torch_samples import Recorded, names, recorded  # noqa: E402

pytestmark = pytest.mark.conformance

#: OpInfo's entry → (overload, dtypes); every call must pass.
SUBSET = {
    "add": ("aten.add.Tensor", "f32 bf16 i64"),
    "amax": ("aten.amax.default", "f32"),
    "argmax": ("aten.argmax.default", "f32"),
    "bmm": ("aten.bmm.default", "f32"),
    "cat": ("aten.cat.default", "f32 i64"),
    "cumsum": ("aten.cumsum.default", "f32"),
    "div.no_rounding_mode": ("aten.div.Tensor", "f32 i64"),
    "eq": ("aten.eq.Tensor", "f32 i64"),
    "exp": ("aten.exp.default", "f32 f64"),
    "gather": ("aten.gather.default", "f32"),
    "index_put": ("aten.index_put.default", "f32"),
    "index_select": ("aten.index_select.default", "bf16"),
    "lt": ("aten.lt.Tensor", "f32"),
    "mean": ("aten.mean.dim", "f32"),
    "mm": ("aten.mm.default", "f32 bf16"),
    "mul": ("aten.mul.Tensor", "f32 f64 bf16"),
    "native_layer_norm": ("aten.native_layer_norm.default", "f32"),
    "nn.functional.conv2d": ("aten.convolution.default", "f32"),
    "nn.functional.embedding": ("aten.embedding.default", "f32 bf16"),
    "nn.functional.gelu": ("aten.gelu.default", "f32"),
    "nn.functional.hardtanh": ("aten.hardtanh.default", "f32"),
    "nn.functional.linear": ("aten.linear.default", "f32"),
    "pow": ("aten.pow.Tensor_Tensor", "f32"),
    "softmax": ("aten._softmax.default", "f32 bf16"),
    "sort": ("aten.sort.stable", "f32"),
    "sum": ("aten.sum.dim_IntList", "f32 i64"),
    "topk": ("aten.topk.default", "f32"),
    "where": ("aten.where.self", "f32"),
}
#: Views and movement cost no kernel, or one.
FRONTS = {
    "as_strided": "aten.as_strided.default",
    "diagonal": "aten.diagonal.default",
    "expand": "aten.expand.default",
    "permute": "aten.permute.default",
    "select": "aten.select.int",
    "split": "aten.split.Tensor",
    "squeeze": "aten.squeeze.dim",
    "transpose": "aten.transpose.int",
    "unbind": "aten.unbind.int",
    "unfold": "aten.unfold.default",
    "unsqueeze": "aten.unsqueeze.default",
    "view": "aten.view.default",
}


def must_pass(name: str, overload: str, dtype: str) -> None:
    calls = list(recorded(name, dtype, [overload], samples=24, calls=5))
    assert calls, f"OpInfo's `{name}` no longer calls {overload} in {dtype}"
    prepare(calls)
    found = [(call, replay(call)) for call in calls]
    wrong = [f"{call} ({call.sample}): {o.status}, {o.why}" for call, o in found if o.status != PASSED]
    repeat = f"python -m tests.conformance.run --only {name} --dtypes {dtype} --overload {overload}"
    assert not wrong, "\n".join([*wrong, f"repeat: {repeat}"])
    assert overload in VIEWS or any(o.by_oracle for _, o in found)


@pytest.mark.parametrize(
    ("name", "overload", "dtype"),
    [(n, o, d) for n, (o, dtypes) in SUBSET.items() for d in dtypes.split()],
)
def test_operators(name: str, overload: str, dtype: str) -> None:
    must_pass(name, overload, dtype)


@pytest.mark.parametrize(("name", "overload"), FRONTS.items())
def test_views(name: str, overload: str) -> None:
    must_pass(name, overload, "f32")


#: OpInfo's entry → how many of its error inputs are calls; all must be refused here, too.
ERRORS = {
    "cauchy": 1, "cov": 8, "diff": 1, "gradient": 8, "linalg.cross": 2, "nn.functional.max_pool2d": 7,
    "nn.functional.prelu": 2, "nn.functional.softshrink": 1, "renorm": 1, "uniform": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "least"), ERRORS.items())
def test_what_pytorch_refuses_is_refused(name: str, least: int) -> None:
    calls = list(bad_calls(name))
    assert len(calls) >= least
    found = [(call, refuse(call)) for call in calls]
    assert not [f"{call}: {o.why}" for call, o in found if o.status != PASSED]


# ---- the harness itself: it must be able to fail -------------------------------------------------------------------


def one(name: str, overload: str) -> Recorded:
    return next(recorded(name, "f32", [overload], samples=1, calls=1))


def test_a_wrong_meaning_fails() -> None:
    """What PyTorch says of other arguments is not what we say of these."""
    call = one("mm", "aten.mm.default")
    other = tuple(x * 1.0001 for x in call.args)
    assert replay(call).status == PASSED
    said = replay(Recorded("aten.mm.default", call.args, {}, torch.mm(*other), call.sample))
    assert said.status == PASSED  # torch in f64 is asked before torch is said to be wrong …
    call = one(
        "gather", "aten.gather.default"
    )  # … and where there is nothing to round, an exact ball decides
    said = replay(
        Recorded(call.overload, (call.args[0].long(), *call.args[1:]), {}, call.result.long() + 1, "")
    )
    assert said.status == "failed" and said.why.startswith("PyTorch result 0 at")


def test_a_wrong_shape_fails() -> None:
    call = one("mm", "aten.mm.default")
    said = replay(Recorded(call.overload, call.args, {}, call.result[:1], ""))
    assert said.status == "failed" and "PyTorch float32[1" in said.why


def test_a_wrong_view_fails() -> None:
    call = one("permute", "aten.permute.default")
    moved = Recorded(call.overload, call.args, call.kwargs, call.result + 1, call.sample)
    assert replay(moved).why == "result 0 differs from PyTorch's"


def test_what_is_not_taken_is_refused_with_its_reason() -> None:
    call = one("mm", "aten.mm.default")
    flags = tuple(x.bool() for x in call.args)
    refused = replay(Recorded(call.overload, flags, {}, call.result, ""))
    assert refused.status == "refused" and "bool is not number" in refused.why


def test_names_and_claims_are_there() -> None:
    assert len(names()) > 500 and len(claimed()) > 150


def test_the_page_counts_and_sorts() -> None:
    part = {
        "aten.b.default": {
            "tried": 3,
            "passed": 1,
            "oracle": 1,
            "refused": {"a | b": 1},
            "failed": [{"call": "b(1)", "sample": "b #0", "why": "no"}],
        },
        "aten.a.default": {"tried": 1, "passed": 1, "oracle": 0, "refused": {}, "failed": []},
    }  # fmt: skip
    text = page(
        {"f32": merged(iter([part, part])), "error": merged(iter([part]))}, "2", {"error": 5}, "abc123"
    )
    assert "made by `make conformance` at abc123." in text
    assert "| f32 | 8 | 4 | 2 | 2 | 2 | 0 |" in text and "| error | 4 | 2 | 1 | 1 | 1 | 5 |" in text
    assert "2 overloads, 8 calls: 4 passed (2 by the oracle), 2 refused, 2 failed." in text
    assert text.index("| aten.a.default | 2 | 2 | 0 | 0 | 0 |  |") < text.index(
        "| aten.b.default | 6 | 2 | 2 | 2 | 2 | a \\| b (2) |"
    )
    assert "- `b(1)` (b #0): no" in text
