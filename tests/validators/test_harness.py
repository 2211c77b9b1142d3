"""Memory under control: layouts arrive as they are, and no byte is changed unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from opwright.validators import abi
from opwright.validators.harness import Harness, How, Invocation, Outcome
from opwright.validators.memory import TooMuchMemory
from opwright.validators.sandbox import Sandbox, pool_library

from .kernels import COPY, library, source


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Sandbox(pool=pool_library()) as box:
        yield Harness(box)


def run(
    harness: Harness,
    body: str,
    how: How | None = None,
    *,
    n: int = 5,
    workspace: str = "0",
    given: int | None = None,
) -> Outcome:
    x = np.arange(1, n + 1, dtype=np.float32)
    inv = Invocation(
        str(library(body, workspace=workspace)),
        "ow_t",
        (x,),
        (np.empty(n, np.float32),),
        input_names=("x",),
        output_names=("y",),
    )
    size = harness.plan(inv).workspace if given is None else given
    return harness.run(inv, how, workspace=size)


def test_plan_gives_shapes_and_workspace(harness: Harness) -> None:
    path = library(workspace="call->in[0]->shape[0] * 4")
    inv = Invocation(str(path), "ow_t", (np.zeros(6, np.float32),), (np.empty(6, np.float32),))
    plan = harness.plan(inv)
    assert plan.shapes == ((6,),)
    assert plan.workspace == 24


def test_an_honest_kernel_leaves_no_trace(harness: Harness) -> None:
    for how in (How(), How(fill="ones"), How(placement="end", guard=True, read_only=True)):
        outcome = run(harness, COPY, how)
        assert outcome.damage == ()
        assert outcome.outputs[0].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (COPY + "x[2] = 9;", "input x was changed: 2 byte"),
        (COPY + "y[n] = 1;", "past the end of output y"),
        (COPY + "y[-1] = 1;", "before output y"),
        (COPY + "((float*)call->workspace)[16] = 1;", "past the end of workspace"),
    ],
)
def test_every_stray_write_is_named(harness: Harness, body: str, said: str) -> None:
    outcome = run(harness, body, workspace="64")
    assert not outcome.crash
    assert any(said in d for d in outcome.damage), outcome.damage


def test_holes_between_an_outputs_elements_are_guarded(harness: Harness) -> None:
    y = np.empty((5, 3), np.float32)[:, 1]
    inv = Invocation(
        str(library("for (int i = 0; i < 13; ++i) y[i] = 1;")), "ow_t", (np.ones(5, np.float32),), (y,)
    )
    assert any("between its elements" in d for d in harness.run(inv).damage)


@pytest.mark.parametrize("body", [COPY + "y[0] += x[n] * 0;", COPY + "y[0] += y[n] * 0;"])
def test_a_read_past_the_end_meets_the_guard_page(harness: Harness, body: str) -> None:
    assert run(harness, body, How(placement="end")).damage == ()
    assert "SIGSEGV" in run(harness, body, How(placement="end", guard=True)).crash


def test_a_read_before_the_start_meets_the_guard_page(harness: Harness) -> None:
    assert "SIGSEGV" in run(harness, COPY + "y[0] += x[-1] * 0;", How(guard=True)).crash


def test_a_write_that_is_undone_meets_the_lock(harness: Harness) -> None:
    body = COPY + "float kept = x[0]; ((volatile float*)x)[0] = 1e9f; ((volatile float*)x)[0] = kept;"
    assert run(harness, body).damage == ()
    assert "SIGSEGV" in run(harness, body, How(read_only=True)).crash


def test_outputs_hold_the_fill_before(harness: Harness) -> None:
    outcome = run(harness, "y[0] = x[0];", How(fill="ones"))
    assert np.isnan(outcome.outputs[0][1:]).all()
    assert (outcome.raw[0][1:] == 0xFF).all()


@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_pool_covers_the_range_once(harness: Harness, order: str, threads: int) -> None:
    head = """
static void add(void* ctx, int64_t lo, int64_t hi, int32_t thread) {
  float* y = (float*)((const OwCall*)ctx)->out[0]->data;
  for (int64_t i = lo; i < hi; ++i) y[i] += thread >= 0 && thread < ((const OwCall*)ctx)->max_threads ? 1 : 100;
}"""
    path = library("call->parallel(call->pool, n, 3, add, (void*)call);", head=head)
    inv = Invocation(str(path), "ow_t", (np.zeros(100, np.float32),), (np.empty(100, np.float32),))
    outcome = harness.run(inv, How(parallel=True, threads=threads, order=order))
    assert (outcome.outputs[0] == 1).all()


def test_strides_of_every_kind_arrive(harness: Harness) -> None:
    body = """const OwTensor* a = call->in[0]; const OwTensor* b = call->out[0];
  for (int64_t i = 0; i < n; ++i) y[i * b->strides[0]] = x[i * a->strides[0]];"""
    base = np.arange(20, dtype=np.float32)
    for view in (base[:4], base[::-2][:4], base[3:19:5], np.broadcast_to(base[7], (4,))):
        out = np.empty(12, np.float32)[::-3]
        inv = Invocation(str(library(body)), "ow_t", (view,), (out,))
        outcome = harness.run(inv)
        assert outcome.outputs[0].tolist() == view.tolist()
        assert outcome.damage == ()


def test_in_place_shares_the_inputs_memory(harness: Harness) -> None:
    body = "y[0] = (void*)x == (void*)y ? 7 : 8;"
    x = np.ones(3, np.float32)
    inv = Invocation(str(library(body)), "ow_t", (x,), (np.empty(3, np.float32),), alias={0: 0}, flags=1)
    outcome = harness.run(inv, How(read_only=True))
    assert outcome.outputs[0].tolist() == [7, 1, 1]
    assert outcome.damage == ()


def test_attributes_and_lists_cross(harness: Harness) -> None:
    body = (
        "y[0] = call->attr[0].f[0]; y[1] = call->attr[1].count; "
        "y[2] = call->list_len[0]; y[3] = call->in[1] == nullptr;"
    )
    inv = Invocation(
        str(library(body)),
        "ow_t",
        (np.zeros(4, np.float32), None),
        (np.empty(4, np.float32),),
        (abi.encode_attr(0.5), None),
        (2,),
    )
    assert harness.run(inv).outputs[0].tolist() == [0.5, -1, 2, 1]


def test_empty_tensors_have_an_address(harness: Harness) -> None:
    outcome = run(harness, "if (x == nullptr || y == nullptr) return 9;", n=0)
    assert outcome.status == 0
    assert outcome.outputs[0].shape == (0,)


def test_the_error_word_comes_back(harness: Harness) -> None:
    outcome = run(harness, "call->error->which = 3; call->error->got = -7; return OW_E_DATA;")
    assert outcome.status == abi.ERRORS["DATA"]
    assert (outcome.error["which"], outcome.error["got"]) == (3, -7)


def test_the_template_is_what_the_tests_say() -> None:
    assert "ow_t_infer" in source()


def test_an_offset_view_is_as_unaligned_as_it_was(harness: Harness) -> None:
    body = "y[0] = (float)((uint64_t)x % 64); y[1] = (float)((uint64_t)y % 64);"
    path = str(library(body))
    big, out = np.zeros(16, np.float32), np.empty(16, np.float32)
    for view, result, wanted in ((big[:4], out[:4], [0, 0]), (big[3:7], out[1:5], [12, 4])):
        assert harness.run(Invocation(path, "ow_t", (view,), (result,))).outputs[0][:2].tolist() == wanted


def test_a_workspace_is_not_rounded_up_for_the_kernel(harness: Harness) -> None:
    outcome = run(harness, COPY + "((char*)call->workspace)[20] = 1;", workspace="20")
    assert any("past the end of workspace" in d for d in outcome.damage)


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_a_truth_value_past_the_end_is_seen_wherever_it_stands(value: int) -> None:
    with Sandbox() as box:
        for _ in range(2):  # each harness draws its own secret
            outcome = run(
                Harness(box), COPY + f"for (int i = 0; i < 200; ++i) ((char*)(y + n))[i] = (char){value};"
            )
            assert any(
                "200 byte(s) written past the end of output y, 1 byte(s) off" in d for d in outcome.damage
            )


RACE = """
static void count(void* ctx, int64_t lo, int64_t hi, int32_t) {
  float* seen = (float*)((const OwCall*)ctx)->workspace;
  for (int64_t i = lo; i < hi; ++i)
    for (int k = 0; k < 4000; ++k) { const float now = *(volatile float*)seen; *(volatile float*)seen = now + 1; }
}"""


def test_threads_really_overlap(harness: Harness) -> None:
    body = (
        "*(float*)call->workspace = 0; call->parallel(call->pool, n, 1, count, (void*)call);"
        "y[0] = *(float*)call->workspace;"
    )
    inv = Invocation(
        str(library(body, head=RACE)), "ow_t", (np.zeros(64, np.float32),), (np.empty(64, np.float32),)
    )
    alone = harness.run(inv, How(parallel=True), workspace=64).outputs[0][0]
    assert alone == 64 * 4000
    together = [
        harness.run(inv, How(parallel=True, threads=3, preempt=True), workspace=64).outputs[0][0]
        for _ in range(20)
    ]
    assert min(together) < alone, "three threads never lost an update to one another"


def test_a_parallel_run_without_a_pool_is_a_mistake() -> None:
    with Sandbox(arena=1 << 16) as box, pytest.raises(ValueError, match="pool"):
        run(Harness(box), COPY, How(parallel=True))


def test_a_kernel_that_hangs_is_asked_once() -> None:
    with Sandbox(pool=pool_library()) as box:
        hasty = Harness(box, seconds=0.5)
        body = "for (volatile int64_t k = 1; k > 0;) k = k % 7 + 1;"
        assert "in time" in run(hasty, body, given=0).crash
        calls = hasty.calls
        assert "not asked again" in run(hasty, body, given=0).crash
        assert hasty.calls == calls
        assert not run(hasty, COPY, given=0).crash


def test_all_calls_together_have_a_limit() -> None:
    with Sandbox(pool=pool_library()) as box:
        assert "together" in [run(Harness(box, total=-1), COPY, given=0).crash][0]


def test_workspace_without_end_is_refused(harness: Harness) -> None:
    assert "workspace" in run(harness, COPY, given=1 << 45).crash
    big = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**28,), (4,))
    with pytest.raises(TooMuchMemory):
        harness.run(Invocation("x", "y", (), (big,)))
