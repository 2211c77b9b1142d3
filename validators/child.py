"""The worker inside the sandbox: it confines itself, then runs kernels on memory that the judge laid out.

It decides nothing.  Inputs, poison, guards and outputs lie in one shared arena that the judge fills before a run
and reads after it, in a process that never loads a candidate; what comes back over the pipe (status, error word,
inferred shapes) is only what the kernel itself may say.  A reply must carry the request's nonce.

Started by `sandbox.py` with `-I -S` as `box.child`; imports the standard library, `abi` and `confine` only.
To add a kind of request: a method of `Worker` named `do_<what>`.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from typing import Any

from . import abi, confine

_ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}
#: Where nothing lies: slices of far tensors are mapped from here on, each tensor a terabyte apart.
_FAR, _APART = 1 << 44, 1 << 40
_MAYMOVE, _FIXED = 1, 2
_NOTHING = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_UNLESS_TAKEN = 0x100000  # MAP_FIXED_NOREPLACE


class Pool:
    """The threads a kernel may use: `pool.cpp`, where the judge has built it, or none."""

    def __init__(self, library: str, workers: int) -> None:
        self.address = 0
        if library:
            self.native = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self.native.ow_pool_start(workers)
            self.native.ow_pool_set.argtypes = [
                ctypes.c_int32,
                ctypes.c_int32,
                ctypes.c_uint64,
                ctypes.c_int32,
                ctypes.c_int32,
            ]
            self.native.ow_pool_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            self.address = ctypes.cast(self.native.ow_pool_for, ctypes.c_void_p).value or 0

    def set(self, threads: int, order: str, seed: int, preempt: bool, soil: int) -> None:
        """How the next call is cut and run; soil: the byte that fills its stack before."""
        if self.address:
            self.native.ow_pool_set(threads, _ORDERS[order], seed & (2**64 - 1), preempt, soil)

    def run(self, kernel: abi.Kernel, call: abi.Call) -> int:
        """The kernel, on a stack filled with that byte (where there is no pool, on any)."""
        if not self.address:
            return kernel.run(call)
        status: int = self.native.ow_pool_run(kernel.address, ctypes.addressof(call.raw))
        return status


class Worker:
    """One process: an arena, a pool, and the libraries loaded so far."""

    def __init__(self, fd: int, size: int, pool: Pool) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        # Python's own mmap would keep a second descriptor of the arena open.
        self.libc.mmap.restype = self.libc.mremap.restype = ctypes.c_void_p
        both = mmap.PROT_READ | mmap.PROT_WRITE
        address = self.libc.mmap(None, ctypes.c_size_t(size), both, mmap.MAP_SHARED, fd, ctypes.c_long(0))
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "the arena cannot be mapped")
        self.base: int = address
        self.origin = address  # where the next call sees the arena
        self.pool = pool
        self.kernels: dict[tuple[str, str], abi.Kernel] = {}
        self.libraries: dict[str, ctypes.CDLL] = {}
        self.far: list[list[tuple[int, int]]] = []

    def kernel(self, path: str, symbol: str) -> abi.Kernel:
        if path not in self.libraries:
            self.libraries[path] = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        if (path, symbol) not in self.kernels:
            self.kernels[path, symbol] = abi.Kernel(self.libraries[path], symbol)
        return self.kernels[path, symbol]

    def tensor(self, t: list[Any] | None) -> abi.PlacedTensor | None:
        if t is None:
            return None
        offset, dtype, shape, strides, far = t
        if far is None:
            return abi.PlacedTensor(self.origin + offset, dtype, tuple(shape), tuple(strides))
        axis, pitch, stride = far
        strides[axis] = stride
        at = self.spread(offset, shape[axis], pitch, stride * abi.itemsize(dtype))
        return abi.PlacedTensor(at, dtype, tuple(shape), tuple(strides))

    def spread(self, offset: int, count: int, pitch: int, step: int) -> int:
        """See `count` slices of the arena of `pitch` bytes a second time, `step` bytes apart; where the first is."""
        first = _FAR + len(self.far) * _APART
        for k in range(count):
            self.map_again(self.base + offset + k * pitch, pitch, first + k * step)
        self.far.append([(first + k * step, pitch) for k in range(count)])
        return first

    def map_again(self, old: int, size: int, new: int) -> None:
        """See a part of the arena a second time, at `new`."""
        # Of a shared mapping, moving none of it maps it once more.
        found = self.libc.mremap(
            ctypes.c_void_p(old),
            ctypes.c_size_t(0),
            ctypes.c_size_t(size),
            _MAYMOVE | _FIXED,
            ctypes.c_void_p(new),
        )
        if found != new:
            raise OSError(ctypes.get_errno(), "mremap")

    def move(self, places: list[int], size: int) -> None:
        """The next call sees the arena at the first of these places where nothing lies, if there is one."""
        for place in places:
            taken = self.libc.mmap(
                ctypes.c_void_p(place),
                ctypes.c_size_t(size),
                0,
                _NOTHING | _UNLESS_TAKEN,
                -1,
                ctypes.c_long(0),
            )
            if taken == place:
                self.map_again(self.base, size, place)
                self.far.append([(place, size)])
                self.origin = place
                return
            if taken not in (None, ctypes.c_void_p(-1).value):  # of a kernel that does not know the flag
                self.libc.munmap(ctypes.c_void_p(taken), ctypes.c_size_t(size))

    def gather(self) -> None:
        """Unmap what `spread` has mapped, and see the arena where it is."""
        for start, size in (piece for tensor in self.far for piece in tensor):
            self.libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))
        self.far.clear()
        self.origin = self.base

    def protect(self, ranges: list[list[int]]) -> None:
        for offset, length, protection in ranges:
            if self.libc.mprotect(ctypes.c_void_p(self.base + offset), ctypes.c_size_t(length), protection):
                raise OSError(ctypes.get_errno(), "mprotect")

    def call(self, r: dict[str, Any]) -> abi.Call:
        self.pool.set(r["threads"], r["order"], r["seed"], r["preempt"], r["soil"])
        offset, size = r["workspace"]
        return abi.build_call(
            [self.tensor(t) for t in r["inputs"]],
            [self.tensor(t) for t in r["outputs"]],
            r["attrs"],
            list_len=r["list_len"],
            workspace=(self.origin + offset if offset >= 0 else 0, size),
            parallel=self.pool.address if r["parallel"] else 0,
            threads=r["threads"],
            flags=r["flags"],
            version=r["version"],
            owner=r["owner"],
        )

    def do_load(self, r: dict[str, Any]) -> dict[str, Any]:
        """Load a kernel and find its entries."""
        self.kernel(r["library"], r["symbol"])
        return {}

    def do_plan(self, r: dict[str, Any]) -> dict[str, Any]:
        """Infer, then workspace."""
        kernel, call = self.kernel(r["library"], r["symbol"]), self.call(r)
        status = kernel.infer(call)
        out: dict[str, Any] = {"status": status, "error": call.error_fields(), "shapes": call.output_shapes()}
        if status == abi.OK:
            out["workspace"] = kernel.workspace(call)
        return out

    def do_run(self, r: dict[str, Any]) -> dict[str, Any]:
        """The kernel itself, under the protections asked for."""
        kernel = self.kernel(r["library"], r["symbol"])
        self.move(r["places"], r["used"])
        call = self.call(r)
        before, told = tasks(), call.words()
        self.protect(r["protect"])
        status = self.pool.run(kernel, call)
        self.protect(
            [[offset, length, mmap.PROT_READ | mmap.PROT_WRITE] for offset, length, _ in r["protect"]]
        )
        self.gather()
        after = [before, tasks()]
        return {"status": status, "error": call.error_fields(), "tasks": after, "told": told == call.words()}

    def answer(self, r: dict[str, Any]) -> dict[str, Any]:
        """A fault of loading is the kernel's: it is an answer, not a crash."""
        try:
            reply: dict[str, Any] = getattr(self, "do_" + r["what"])(r)
        except (OSError, AttributeError) as error:
            reply = {"failed": str(error)}
        return reply | {"nonce": r["nonce"]}


def tasks() -> int:
    """Threads of this process, -1 where /proc does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return -1


def main() -> None:
    """Confine, say what holds, then serve requests until the pipe closes."""
    config = json.loads(sys.argv[2])
    requests, replies, arena = config["requests"], config["replies"], config["arena"]
    limits, scratch = confine.Limits(**config["limits"]), config["scratch"]
    confine.die_with_parent()
    abi.tile_flag()  # while /proc/cpuinfo can be read
    os.chdir(scratch)
    spaces = (
        confine.enter_namespaces(scratch, (requests, replies, arena))
        if config["namespaces"]
        else "not asked for"
    )
    confine.set_limits(limits)
    pool = Pool(config["pool"], config["workers"])
    worker = Worker(arena, config["bytes"], pool)
    os.close(arena)
    filtered = confine.filter_calls() if config["filter"] else "not asked for"
    known = (requests, replies)
    held = confine.measure(limits, scratch, tuple(config["outside"]), known, config["watcher"], spaces)
    with os.fdopen(requests, "rb") as inbox:
        _send(replies, {"layers": held, "filter": filtered})
        for line in inbox:
            _send(replies, worker.answer(json.loads(line)))
    os._exit(0)  # daemon threads and loaded libraries have no last word


def _send(fd: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
