"""The sandbox: what it keeps out, how it notices death, that a reply cannot be forged."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from opwright.validators import confine, sandbox
from opwright.validators.harness import Harness, Invocation
from opwright.validators.sandbox import Limits, Sandbox, WorkerDied

from .kernels import library

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and filters are Linux's")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(arena=1 << 20) as made:
        yield made


def call(path: object) -> Invocation:
    x = np.arange(4, dtype=np.float32)
    return Invocation(str(path), "ow_t", (x,), (np.empty(4, np.float32),))


def test_every_layer_is_reported() -> None:
    level = sandbox.level()
    assert set(level.layers) == set(confine.LAYERS)
    assert level.to_json()["level"] == level.name
    # These need no help from the kernel's configuration.
    assert {"environment", "descriptors", "limits"} <= set(level.held)


@linux
def test_without_filter_and_namespaces_the_report_says_so() -> None:
    with Sandbox(arena=1 << 20, namespaces=False, filtered=False) as box:
        box.start()
        assert box.level is not None
        assert box.level.name == "partial"
        assert {"processes", "threads", "namespaces"} <= set(box.level.missing)


@linux
def test_the_filter_alone_keeps_files_processes_and_network_out() -> None:
    with Sandbox(arena=1 << 20, namespaces=False) as box:
        box.start()
        assert box.level is not None
        assert set(box.level.missing) == {"namespaces"}


def test_a_crash_is_named_and_the_next_call_works(box: Sandbox) -> None:
    harness = Harness(box)
    bad = harness.run(call(library("*(volatile int*)8 = 1;")))
    assert "SIGSEGV" in bad.crash
    good = harness.run(call(library()))
    assert not good.crash
    assert good.outputs[0].tolist() == [0, 1, 2, 3]
    assert box.restarts == 1


def test_a_hang_is_stopped() -> None:
    with Sandbox(arena=1 << 20) as box:
        outcome = Harness(box, seconds=0.3).run(call(library("for (volatile int go = 1; go;) {}")))
    assert "no answer in time" in outcome.crash


def test_an_exit_in_the_kernel_is_a_finding(box: Sandbox) -> None:
    outcome = Harness(box).run(call(library("_exit(0);", head='extern "C" void _exit(int);')))
    assert "ended with status 0" in outcome.crash


def test_a_forged_reply_is_noticed(box: Sandbox) -> None:
    head = 'extern "C" long write(int, const void*, unsigned long);'
    body = (
        'const char said[] = "{\\"status\\": 0, \\"nonce\\": \\"0\\"}\\n"; '
        "for (int fd = 3; fd < 64; ++fd) write(fd, said, sizeof said - 1);"
    )
    outcome = Harness(box).run(call(library(body, head=head)))
    assert "wrote on the judge's channel" in outcome.crash


def test_a_library_without_the_symbol_is_a_finding_not_a_crash(box: Sandbox) -> None:
    inv = call(library())
    wrong = Invocation(inv.library, "ow_other", inv.inputs, inv.outputs)
    assert "ow_other" in Harness(box).run(wrong).crash
    assert box.restarts == 0


@linux
def test_no_thread_can_be_started(box: Sandbox) -> None:
    head = (
        'extern "C" int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);'
        "static void* idle(void* p) { return p; }"
    )
    body = "unsigned long id; y[0] = pthread_create(&id, nullptr, idle, nullptr) ? 1.0f : 2.0f;"
    assert Harness(box).run(call(library(body, head=head))).outputs[0][0] == 1


@linux
def test_memory_is_limited() -> None:
    with Sandbox(arena=1 << 20, limits=Limits(memory=512 << 20)) as box:
        head = 'extern "C" void* malloc(unsigned long);'
        outcome = Harness(box).run(call(library("y[0] = malloc(1ul << 30) ? 2.0f : 1.0f;", head=head)))
    assert outcome.outputs[0][0] == 1


def test_the_environment_is_scrubbed(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWRIGHT_TEST_SECRET", "1")
    head = 'extern "C" char* getenv(const char*);'
    body = 'y[0] = getenv("OPWRIGHT_TEST_SECRET") ? 2.0f : 1.0f; y[1] = getenv("PATH") ? 3.0f : 4.0f;'
    out = Harness(box).run(call(library(body, head=head))).outputs[0]
    assert out[:2].tolist() == [1, 3]


def test_a_larger_arena_means_a_new_worker(box: Sandbox) -> None:
    harness = Harness(box)
    x = np.ones(1 << 19, np.float32)
    outcome = harness.run(Invocation(str(library()), "ow_t", (x,), (np.empty_like(x),)))
    assert outcome.outputs[0].sum() == 1 << 19
    assert box.size >= 2 * x.nbytes


@linux
def test_the_filter_program_is_whole() -> None:
    for machine in ("x86_64", "aarch64"):
        program = confine.filter_program(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096
        assert program.endswith(confine._instruction(0x06, 0x7FFF0000))


def test_a_worker_that_is_gone_before_the_request(box: Sandbox) -> None:
    box.start()
    assert box._process is not None
    box._process.send_signal(signal.SIGKILL)
    box._process.wait()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        box.ask({"what": "run"})
