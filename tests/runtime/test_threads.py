"""The thread pool, called as kernels call it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opwright as ow

CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
PARALLEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


class Order(ctypes.Structure):
    _fields_ = [("thread", ctypes.c_void_p), ("count", ctypes.c_void_p)]


class Pool:
    """parallel_for over the probe of kernels.cpp, which notes who ran what."""

    def __init__(self, library: Path) -> None:
        from opwright.load import core

        address, self.pool = core.parallel_pointers()
        self.call = PARALLEL(address)
        self.probe = ctypes.cast(ctypes.CDLL(str(library)).probe_chunk, ctypes.c_void_p)

    def run(self, n: int, grain: int) -> tuple[Any, Any]:
        who, counts = np.full(n, -1, np.int32), np.zeros(n, np.int64)
        order = Order(who.ctypes.data, counts.ctypes.data)
        self.call(self.pool, n, grain, self.probe, ctypes.addressof(order))
        return who, counts


@pytest.fixture
def pool(library: Path) -> Iterator[Pool]:
    before = ow.num_threads()
    yield Pool(library)
    ow.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_index_runs_once(pool: Pool, threads: int) -> None:
    ow.set_num_threads(threads)
    for n in (0, 1, 2, 3, 7, 64, 1000):
        for grain in (1, 3, 100):
            who, counts = pool.run(n, grain)
            assert (counts == 1).all()
            assert ((who >= 0) & (who < threads)).all()


def test_below_the_grain_stays_on_the_caller(pool: Pool) -> None:
    ow.set_num_threads(4)
    who, _ = pool.run(100, 100)
    assert (who == 0).all()


def test_several_threads_share_the_work(pool: Pool) -> None:
    ow.set_num_threads(2)
    assert any(len(set(pool.run(2000, 1)[0])) == 2 for _ in range(50))


def test_many_callers_at_once(pool: Pool) -> None:
    ow.set_num_threads(3)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(100):
            _, counts = pool.run(50, 1)
            if not (counts == 1).all():
                wrong.append(counts)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_inside_a_chunk_it_runs_serially(pool: Pool) -> None:
    ow.set_num_threads(3)
    inner: list[set[int]] = []

    def nested(_: Any, low: int, high: int, thread: int) -> None:
        for _k in range(low, high):
            inner.append(set(pool.run(64, 1)[0]))

    body = CHUNK(nested)
    pool.call(pool.pool, 8, 1, ctypes.cast(body, ctypes.c_void_p), None)
    assert inner == [{0}] * 8


def test_the_count_goes_up_and_down(pool: Pool) -> None:
    for threads in (4, 1, 3, 2, 5):
        ow.set_num_threads(threads)
        assert ow.num_threads() == threads
        who, counts = pool.run(500, 1)
        assert (counts == 1).all() and who.max() < threads
    for bad in (0, -1, 5000):
        with pytest.raises(ow.OpValueError, match="from 1 to 4096"):
            ow.set_num_threads(bad)


def test_a_forked_child_has_a_pool_of_its_own(pool: Pool) -> None:
    ow.set_num_threads(2)
    pool.run(500, 1)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            _, counts = pool.run(500, 1)
            ok = bool((counts == 1).all())
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_environment() -> None:
    show = "import opwright as ow; print(ow.num_threads())"
    assert run_python(show, OPWRIGHT_NUM_THREADS="3").stdout == "3\n"
    assert 1 <= int(run_python(show, OPWRIGHT_NUM_THREADS="").stdout) <= len(os.sched_getaffinity(0))
    bad = run_python(show, OPWRIGHT_NUM_THREADS="many")
    assert "OPWRIGHT_NUM_THREADS must be a whole number from 1 to 4096, got 'many'" in bad.stderr
    poison = "import opwright as ow; print(ow.empty(1, 'i8').item())"
    assert run_python(poison, OPWRIGHT_ALLOC_CONF="poison:1,max_cached_mb:0").stdout == "-1\n"
    assert "cannot read 'poison:2'" in run_python(show, OPWRIGHT_ALLOC_CONF="poison:2").stderr


def test_the_runtime_imports_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import opwright as ow; ow.tensor([1.0]) and print('fine')"
    )
    assert run_python(code.replace(" and print('fine')", "; print('fine')")).stdout == "fine\n"


def test_importing_the_package_loads_no_core() -> None:
    code = (
        "import sys, opwright, opwright.errors; before = 'opwright._core' in sys.modules\n"
        "opwright.zeros; print(before, 'opwright._core' in sys.modules)"
    )
    assert run_python(code).stdout == "False True\n"
