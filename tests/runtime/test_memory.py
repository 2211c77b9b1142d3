"""`ow.memory`: the allocator against a model, its numbers, limits, pools, backends, and running out of memory."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opwright as ow
from opwright import memory

MIB = 1 << 20


def rounded(n: int) -> int:
    """The size class of a request, said another way than allocator.cpp does."""
    if n <= 4096:
        return max(64, -(-n // 64) * 64)
    power = 1
    while power * 2 < n:
        power *= 2
    step = power // 8
    return -(-n // step) * step


def blocks_of(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [b | {"address": s["address"] + b["offset"]} for s in segments for b in s["blocks"]]


def check_segments(segments: list[dict[str, Any]]) -> None:
    """Blocks tile their segment; two free neighbours are one block."""
    for segment in segments:
        at, before = 0, ""
        for block in segment["blocks"]:
            assert block["offset"] == at and block["size"] > 0 and block["size"] % 64 == 0
            assert not (before == block["state"] == "free"), "two free neighbours were not merged"
            at, before = at + block["size"], block["state"]
        assert at == segment["bytes"]


# ---- against a model -----------------------------------------------------------------------------------------------

SIZES = st.one_of(
    st.integers(0, 5000), st.sampled_from([4096, 4097, 262144, 262145, MIB, MIB + 1, 3 * MIB, 9 * MIB])
)
STEPS = st.lists(st.one_of(st.tuples(st.just("take"), SIZES), st.tuples(st.just("give"), st.integers(0, 99)),
                           st.just(("empty", 0))), max_size=60)  # fmt: skip


@given(STEPS)
def test_the_allocator_does_what_a_list_of_arrays_does(steps: list[tuple[str, int]]) -> None:
    """Memory that is in use is nobody else's, keeps what was written, and is where the snapshot says."""
    model: list[tuple[Any, int, int]] = []
    with memory.pool("model") as pool:
        for serial, (what, n) in enumerate(steps):
            if what == "take":
                t = ow.empty(n, "u8")
                assert t.data_ptr() % 64 == 0
                np.asarray(t)[:] = serial % 251
                model.append((t, n, serial % 251))
            elif what == "give" and model:
                t, _, mark = model.pop(n % len(model))
                assert (np.asarray(t) == mark).all(), "somebody else wrote here"
                del t
            elif what == "empty":
                memory.empty_cache()
            segments = pool.segments()
            check_segments(segments)
            live = {b["address"]: b for b in blocks_of(segments) if b["state"] == "live"}
            assert sorted(live) == sorted(t.data_ptr() for t, _, _ in model)
            for t, size, _ in model:
                block = live[t.data_ptr()]
                assert block["requested"] == size and block["size"] >= rounded(size)
                # What cannot be split off: less than 64 KiB of a middling block; a large one serves up to 5/4 of it.
                assert block["size"] <= rounded(size) + (
                    0 if size <= 262144 else MIB // 16 if size <= 8 * MIB else 8 * MIB
                )
            if what == "empty":
                assert all(any(b["state"] == "live" for b in s["blocks"]) for s in segments)
        for t, _, mark in model:
            assert (np.asarray(t) == mark).all()
        number = pool.number
    t = None
    model.clear()
    assert number not in memory.core.memory_snapshot()["pools"], "a closed pool without tensors is gone"


@given(st.lists(st.integers(1, 2 * MIB), min_size=1, max_size=30))
def test_numbers_are_those_of_the_snapshot(sizes: list[int]) -> None:
    kept = [ow.empty(n, "u8") for n in sizes][::2]
    data = memory.snapshot()
    found, blocks = data["stats"], blocks_of(data["segments"])
    live = [b for b in blocks if b["state"] == "live"]
    rest = [b for b in blocks if b["state"] != "live"]
    assert found["reserved"] == sum(s["bytes"] for s in data["segments"])
    assert found["allocated"] == sum(b["size"] for b in live)
    assert found["requested"] == sum(b["requested"] for b in live)
    assert (found["live_blocks"], found["free_blocks"]) == (len(live), len(rest))
    assert found["largest_free"] == max((b["size"] for b in rest), default=0)
    assert found["segments"] == found["segment_allocations"] - found["segment_releases"]
    assert found["cached"] == sum(b["size"] for b in rest)
    assert found["peak"] >= found["allocated"] and found["peak_reserved"] >= found["reserved"]
    assert 0 <= found["fragmentation"] <= 1 and 0 <= found["waste"] <= 1
    del kept


def test_a_block_is_split_and_its_parts_are_merged_again() -> None:
    with memory.pool() as pool:
        parts = [ow.empty(64 * 1024, "u8") for _ in range(32)]  # one segment of 2 MiB, to the last byte
        assert len(pool.segments()) == 1 and len(blocks_of(pool.segments())) == 32
        addresses = [t.data_ptr() for t in parts]
        assert addresses == sorted(addresses)
        del parts[3:7]
        whole = ow.empty(256 * 1024, "u8")  # four neighbours that rested apart
        assert whole.data_ptr() == addresses[3] and len(pool.segments()) == 1
        del whole, parts
        memory.empty_cache()
        assert pool.segments() == []


def test_a_large_block_is_used_again_for_one_like_it_alone() -> None:
    with memory.pool() as pool:
        first = ow.empty(40 * MIB, "u8")
        address = first.data_ptr()
        del first
        assert ow.empty(36 * MIB, "u8").data_ptr() == address
        small = ow.empty(9 * MIB, "u8")
        assert len(pool.segments()) == 2, "a quarter of a large segment must not pin all of it"
        del small


# ---- limits --------------------------------------------------------------------------------------------------------


@pytest.fixture
def limited() -> Any:
    """A function that limits memory to what is held plus some; afterwards all is as it was."""
    before = memory.stats()["limit"]
    memory.empty_cache()
    yield lambda extra: memory.set_limit(memory.stats()["reserved"] + extra)
    memory.set_limit(before)
    memory.collect_at(1.0)


def test_out_of_memory_lists_what_is_in_use(limited: Any) -> None:
    limited(64 * MIB)
    held = [ow.empty(15 * MIB, "u8") for _ in range(3)]
    before = memory.stats()
    with pytest.raises(ow.OutOfMemoryError) as caught:
        ow.empty(50 * MIB, "u8")
    text = str(caught.value)
    assert text.startswith("out of memory: 50.0 MiB wanted, ")
    assert "the largest in use: 3 × 16.0 MiB" in text and " in use, " in text and " cached, limit " in text
    assert isinstance(caught.value, MemoryError)
    after = memory.stats()
    assert after["failures"] == before["failures"] + 1 and after["allocated"] == before["allocated"]
    del held
    assert ow.empty(50 * MIB, "u8").nbytes == 50 * MIB  # what was given back serves again


def test_more_than_the_machine_has_is_refused_at_once() -> None:
    with pytest.raises(ow.OutOfMemoryError, match=r"^out of memory: 1.0 PiB wanted, .*limit"):
        ow.empty(1 << 50, "u8")
    with pytest.raises(ow.OpValueError, match="cannot allocate"):
        ow.empty((1 << 62) + 1, "u8")


def test_free_segments_make_room_under_the_limit(limited: Any) -> None:
    limited(40 * MIB)
    first = ow.empty(30 * MIB, "u8")
    del first
    before = memory.stats()
    second = ow.empty(38 * MIB, "u8")  # the one of 30 MiB must go
    after = memory.stats()
    assert after["segment_releases"] == before["segment_releases"] + 1
    assert after["collections"] == before["collections"] + 1
    del second


def test_collection_begins_at_a_share_of_the_limit(limited: Any) -> None:
    memory.empty_cache()
    base = memory.stats()["reserved"]
    memory.set_limit(base + 100 * MIB)
    memory.collect_at((base + 40 * MIB) / (base + 100 * MIB))
    old = ow.empty(30 * MIB, "u8")
    del old
    before = memory.stats()["segment_releases"]
    more = ow.empty(38 * MIB, "u8")
    assert memory.stats()["segment_releases"] == before + 1
    assert memory.stats()["reserved"] <= base + 40 * MIB
    del more


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_shares_that_are_none(share: float) -> None:
    with pytest.raises(ow.OpValueError):
        memory.set_fraction(share)
    with pytest.raises(ow.OpValueError):
        memory.collect_at(share)


def configured(conf: str, code: str) -> subprocess.CompletedProcess[str]:
    import os

    env = os.environ | {"OPWRIGHT_ALLOC_CONF": conf}
    return subprocess.run([sys.executable, "-c", "import opwright as ow\n" + code], capture_output=True, text=True,
                          env=env)  # fmt: skip


def test_the_environment_configures() -> None:
    show = "print(ow.memory.stats()['limit']); ow.empty(1 << 20); print(ow.memory.stats()['cached'])"
    assert configured("limit_mb:64,max_cached_mb:0", show).stdout.split() == [str(64 * MIB), "0"]
    said = configured("limit_mb:8", "ow.empty(3 << 20)").stderr
    assert "OutOfMemoryError: out of memory: 12.0 MiB wanted" in said
    for bad in (
        "poison:2",
        "fraction:1.5",
        "fraction:0",
        "limit_mb:-1",
        "nonsense:1",
        "limit_mb",
        "huge_pages:x",
    ):
        assert f"cannot read '{bad}'; known: " in configured(bad, "ow.empty(1)").stderr, bad


# ---- pools and backends --------------------------------------------------------------------------------------------


def test_pools_share_no_segment() -> None:
    with memory.pool("one") as one:
        a = ow.empty(100)
        with memory.pool("two") as two:
            b = ow.empty(100)
        c = ow.empty(100)
        assert [len(p.segments()) for p in (one, two)] == [1, 1]
        inside = {x["address"] for x in blocks_of(one.segments()) if x["state"] == "live"}
        assert inside == {a.data_ptr(), c.data_ptr()}
        del b
        assert two.segments() == [], "closed, and nothing in use"
    assert memory.snapshot()["pools"][str(one.number)] == "one", "its tensors live"
    np.asarray(a)[:] = 1
    del a, c
    assert one.segments() == [] and str(one.number) not in memory.snapshot()["pools"]


def test_a_closed_pool_gives_nothing() -> None:
    pool = memory.Pool("closed")
    pool.close()
    pool.close()
    with pool.use(), pytest.raises(ow.OpValueError, match=r"memory pool \d+ was closed"):
        ow.empty(1)
    assert ow.empty(1) is not None
    with pytest.raises(ow.OpValueError, match="the default memory pool cannot be closed"):
        memory.core.pool_drop(0)


def test_a_backend_of_one_s_own() -> None:
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    calls: list[tuple[str, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    def take(context: int, size: int, alignment: int) -> int | None:
        calls.append(("take", context))
        return None if size > 100 * MIB else libc.aligned_alloc(alignment, size)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    def give(context: int, data: int, size: int) -> None:
        calls.append(("give", context))
        libc.free(data)

    memory.set_backend((take, give), context=7)
    try:
        with memory.pool():
            t = ow.empty(5 * MIB, "u8")
            np.asarray(t)[:] = 3
            with pytest.raises(ow.OutOfMemoryError):
                ow.empty(200 * MIB, "u8")
    finally:
        memory.set_backend(None)
    del t
    assert calls[0] == ("take", 7) and calls[-1] == ("give", 7)
    assert len([c for c in calls if c[0] == "give"]) == 1, "by the backend that it came from"
    with pytest.raises(ow.OpTypeError):
        memory.set_backend((take,))  # type: ignore[arg-type]
    with pytest.raises(ow.OpValueError, match="one is null"):
        memory.set_backend((0, 0))


def test_many_threads_allocate_at_once() -> None:
    """Each writes its own mark and finds it; at the end nothing is in use that was not before."""
    memory.empty_cache()
    before = memory.stats()["allocated"]
    wrong: list[str] = []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        held: list[Any] = []
        for _ in range(300):
            t = ow.empty(int(rng.integers(1, 200_000)), "u8")
            np.asarray(t)[:] = mark
            held.append(t)
            if len(held) > 8:
                gone = held.pop(int(rng.integers(len(held))))
                if not (np.asarray(gone) == mark).all():
                    wrong.append(f"thread {mark}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and memory.stats()["allocated"] == before
    check_segments(memory.snapshot()["segments"])


# ---- the picture ---------------------------------------------------------------------------------------------------


def test_the_snapshot_is_written_as_json_and_as_a_page_that_stands_alone(tmp_path: Path) -> None:
    with memory.pool("<cache>"):
        t = ow.empty(1000)
        data = memory.snapshot(tmp_path / "memory.json", html=tmp_path / "memory.html")
    assert json.loads((tmp_path / "memory.json").read_text()) == data and data["schema"] == 1
    text = (tmp_path / "memory.html").read_text()
    assert "&lt;cache&gt;" in text and "<cache>" not in text
    assert text.count("<rect") == len(blocks_of(data["segments"])) and text.count("<svg") == len(
        data["segments"]
    )
    assert "src=" not in text and "http" not in text and "<script" not in text
    del t


@pytest.mark.usefixtures("hook")
def test_blocks_say_which_operator_asked() -> None:
    with memory.pool() as pool:
        y = ow.ops.softmax(np.zeros((2, 3), np.float32))
        (block,) = [b for b in blocks_of(pool.segments()) if b["state"] == "live"]
        assert block["tag"] == "softmax" and block["requested"] == 24
        del y
