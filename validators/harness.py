"""Calls of a kernel on memory that the judge controls byte by byte.

An `Invocation` says what to call; `Harness.run` lays its tensors out in the sandbox's arena, each between guard
pages and every free byte set to a secret pattern, has the worker run the kernel, and then reads back, in this
process, the outputs and every byte that changed though it was nobody's to change.

May import: abi, memory, sandbox, values, numpy.  To add a way of running: a field of `How`, and its use in `run`.
"""

from __future__ import annotations

import ctypes
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import abi
from .memory import ARENA, TooMuchMemory, mib
from .sandbox import Sandbox, WorkerDied
from .values import ARRAY

__all__ = [
    "NUMPY",
    "Harness",
    "How",
    "Invocation",
    "Outcome",
    "Plan",
    "dtype_name",
    "empty_like_view",
    "far_view",
]

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

#: dtype name -> NumPy dtype
NUMPY: dict[str, np.dtype[Any]] = {dtype.value: array for dtype, array in ARRAY.items()}
_NAMES = {dtype: name for name, dtype in NUMPY.items()}


def dtype_name(array: Array) -> str:
    """`f32` for an array of float32."""
    return _NAMES[array.dtype]


PAGE = 4096
ALIGN, SHIFT = 64, 48
#: Elements between slices of far tensors: more than 32 bits count, and whole pages for every dtype.  How many slices.
FAR, MOST_FAR = (1 << 31) + (1 << 12), 16
# Bytes that outputs and workspace are filled with before a run.  As floats: zero, a large number, nan.
FILLS = {"zero": 0x00, "high": 0x7F, "ones": 0xFF}
TELLING = np.array([0x00, 0x01, 0x7F, 0x80, 0xFF], np.uint8)
_NONE, _READ = 0, 1
#: Where `How.elsewhere` is, as the bounds of an address: programs have their heap between the first two.
PLACES = {"heap": (0x5500 << 32, 0x5680 << 32), "low": (1 << 33, 1 << 43)}


@dataclass(frozen=True)
class Invocation:
    """One call.  Arrays may have any strides; those of `outputs` give dtype, shape and strides, not contents.

    `alias` maps an output's position to the input it is written over (in place).
    """

    library: str
    symbol: str
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    attrs: tuple[abi.EncodedAttr, ...] = ()
    list_len: tuple[int, ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    alias: Mapping[int, int] = field(default_factory=dict)
    flags: int = 0
    version: int = abi.ABI


@dataclass(frozen=True)
class How:
    """The circumstances of a run, none of which may change an answer.

    fill       what outputs, workspace and the stack hold before (a key of `FILLS`)
    threads    max_threads; with `parallel` false the kernel gets no pool
    order      of the pool's pieces: forward, reverse, shuffled (by `seed`)
    preempt    threads are stopped in the middle of their pieces, so that races show on few cores, too
    placement  start: 64-byte aligned; shifted: 48 bytes on, which any element is aligned to; end: flush with a page's
               end; protect: guard pages and inputs are locked
    elsewhere  the tensors lie where a process has its `heap`, or in `low` memory, not where the arena is mapped; and
               the call says another pool and another stream
    far        tensors with an axis that strides over whole pages (`far_view`) have its slices 2**31 elements apart
    """

    fill: str = "zero"
    threads: int = 1
    parallel: bool = False
    order: str = "forward"
    seed: int = 0
    preempt: bool = False
    placement: str = "start"
    guard: bool = False
    read_only: bool = False
    elsewhere: str = ""
    far: bool = False


@dataclass(frozen=True)
class Plan:
    """What infer and workspace said; `crash` and `failed` as in `Outcome`."""

    status: int = 0
    error: Mapping[str, int] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()
    workspace: int = 0
    crash: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a run left.  `crash`: how the worker died (then there are no outputs); `damage`: bytes changed, by place."""

    status: int = 0
    error: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Array, ...] = ()
    raw: tuple[Bytes, ...] = ()
    damage: tuple[str, ...] = ()
    crash: str = ""


@dataclass(frozen=True)
class _Region:
    """Where something lies: pages [start, end), in them `size` bytes from `data` on."""

    what: str
    start: int
    data: int
    size: int
    end: int


def _extent(array: Array) -> tuple[int, int]:
    """First and one past the last byte that a view touches, relative to its element 0."""
    if array.size == 0:
        return 0, 0
    lo = sum(min(0, (n - 1) * s) for n, s in zip(array.shape, array.strides, strict=True))
    hi = sum(max(0, (n - 1) * s) for n, s in zip(array.shape, array.strides, strict=True))
    return lo, hi + array.itemsize


def _storage(array: Array) -> Bytes:
    """The bytes a view spans, its holes included."""
    lo, hi = _extent(array)
    if hi == lo:
        return np.empty(0, np.uint8)
    address = array.__array_interface__["data"][0] + lo
    block = (ctypes.c_uint8 * (hi - lo)).from_address(address)
    return np.frombuffer(memoryview(block).cast("B"), np.uint8)


def empty_like_view(array: Array, shape: Sequence[int] | None = None) -> Array:
    """An uninitialised contiguous array of the same dtype (and shape, unless given)."""
    return np.empty(array.shape if shape is None else tuple(shape), array.dtype)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _shift(array: Array) -> int:
    """How far a view's first byte is from an aligned address, if the storage that it was cut from began at one."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    first = array.__array_interface__["data"][0] + _extent(array)[0]
    return int(first - root.__array_interface__["data"][0]) % ALIGN


def far_view(array: Array) -> Array | None:
    """The array with one axis, of few places, outermost in memory and each of them on pages of its own; None where no
    axis is like that.  What `How.far` pulls apart.
    """
    axis = next((k for k, n in enumerate(array.shape) if 2 <= n <= MOST_FAR), None)
    if axis is None or array.size == 0:
        return None
    front = np.ascontiguousarray(np.moveaxis(array, axis, 0))
    pitch = _up(front[0].nbytes, PAGE)
    root = np.zeros(len(front) * pitch, np.uint8)
    strides = (pitch, *front.strides[1:])
    view: Array = np.ndarray(front.shape, array.dtype, buffer=root.data, strides=strides)
    view[...] = front
    return np.moveaxis(view, 0, axis)


def _far_axis(array: Array) -> int | None:
    """The axis that `far_view` made, where it made one."""
    wide = [
        k for k, n in enumerate(array.shape) if n > 1 and array.strides[k] % PAGE == 0 and array.strides[k]
    ]
    return max(wide, key=lambda k: array.strides[k], default=None)


class _Layout:
    """Regions of one invocation in the arena, for one placement and one size of workspace."""

    def __init__(self, inv: Invocation, placement: str, workspace: int) -> None:
        self.at = PAGE
        self.placement = placement
        names = inv.input_names or tuple(f"in[{k}]" for k in range(len(inv.inputs)))
        outs = inv.output_names or tuple(f"out[{k}]" for k in range(len(inv.outputs)))
        self.inputs = [
            None if a is None else self.tensor(f"input {name}", a)
            for a, name in zip(inv.inputs, names, strict=True)
        ]
        self.outputs: list[_Region] = []
        for k, (a, name) in enumerate(zip(inv.outputs, outs, strict=True)):
            twin = self.inputs[inv.alias[k]] if k in inv.alias else None
            self.outputs.append(twin or self.tensor(f"output {name}", a))
        self.workspace = self.region("workspace", workspace, ALIGN)
        self.used = self.at

    def tensor(self, what: str, array: Array) -> _Region:
        lo, hi = _extent(array)
        return self.region(what, hi - lo, 1, _shift(array) if hi > lo else 0)

    def region(self, what: str, size: int, align: int, shift: int = 0) -> _Region:
        """`size` bytes; from the start of a page (and `shift` bytes on), or flush with a page's end (as aligned)."""
        start = self.at
        if self.placement == "shifted" and align == 1:
            shift += SHIFT
        end = start + max(PAGE, _up(shift + size, PAGE))
        data = end - _up(size, align) if self.placement == "end" else start + shift
        self.at = end + PAGE
        return _Region(what, start, data, size, end)

    def all(self) -> list[_Region]:
        return [r for r in (*self.inputs, *self.outputs, self.workspace) if r is not None]


def _view(memory: Bytes, region: _Region, like: Array) -> Array:
    """The tensor `like` where it lies in `memory`."""
    lo, _ = _extent(like)
    if like.size == 0:
        return np.empty(like.shape, like.dtype)
    return np.ndarray(
        like.shape, like.dtype, buffer=memory.data, offset=region.data - lo, strides=like.strides
    )


def _byte_view(memory: Bytes, region: _Region, like: Array) -> Bytes:
    """The same as bytes, one axis more."""
    lo, _ = _extent(like)
    shape = (*like.shape, like.itemsize)
    if like.size == 0:
        return np.empty(shape, np.uint8)
    return np.ndarray(
        shape, np.uint8, buffer=memory.data, offset=region.data - lo, strides=(*like.strides, 1)
    )


class Harness:
    """Runs invocations in one sandbox.  `calls` counts what was asked of the worker.

    seconds   that a call may take; less after each that took longer
    total     seconds that all calls may take together

    A kernel that gave no answer in time is not asked again, or a judgement of one that hangs would take hours.
    """

    def __init__(self, sandbox: Sandbox, *, seconds: float = 30.0, total: float = 1200.0) -> None:
        self.sandbox, self.seconds, self.total = sandbox, seconds, total
        self.calls = 0
        self.spent = 0.0
        self.hung: set[tuple[str, str]] = set()
        self._pattern = _secret_pattern(1 << 16)

    def _request(
        self, inv: Invocation, layout: _Layout, how: How, what: str, workspace: int
    ) -> dict[str, Any]:
        def tensor(region: _Region | None, array: Array | None) -> list[Any] | None:
            if region is None or array is None:
                return None
            lo, _ = _extent(array)
            strides = [s // array.itemsize for s in array.strides]
            far = _far_axis(array) if how.far else None
            apart = None if far is None else [far, array.strides[far], FAR]
            return [region.data - lo, dtype_name(array), list(array.shape), strides, apart]

        protect: list[list[int]] = []
        if how.guard:
            edges = [0, *(r.end for r in layout.all())]
            protect += [[edge, PAGE, _NONE] for edge in sorted(set(edges))]
        if how.read_only:
            lent = set(inv.alias.values())
            protect += [
                [r.start, r.end - r.start, _READ]
                for k, r in enumerate(layout.inputs)
                if r is not None and k not in lent
            ]
        return {
            "what": what,
            "library": inv.library,
            "symbol": inv.symbol,
            "inputs": [tensor(r, a) for r, a in zip(layout.inputs, inv.inputs, strict=True)],
            "outputs": [tensor(r, a) for r, a in zip(layout.outputs, inv.outputs, strict=True)],
            "attrs": list(inv.attrs),
            "list_len": list(inv.list_len),
            "workspace": [layout.workspace.data if workspace else -1, workspace],
            "threads": how.threads,
            "order": how.order,
            "seed": how.seed,
            "preempt": how.preempt,
            "soil": FILLS[how.fill],
            "parallel": how.parallel,
            "flags": inv.flags,
            "version": inv.version,
            "protect": protect,
            "owner": 0x7F5A5A5A5A40 if how.elsewhere else 0,
            "places": [_place(*PLACES[how.elsewhere]) for _ in range(8)] if how.elsewhere else [],
            "used": layout.used,
        }

    def _image(self, inv: Invocation, layout: _Layout, fill: int) -> Bytes:
        """The arena's contents before a run.  Raises TooMuchMemory."""
        if layout.used > ARENA:
            raise TooMuchMemory(f"a call takes {mib(layout.used)} of tensors, and may take {mib(ARENA)}")
        if self._pattern.size < layout.used:
            self._pattern = np.resize(self._pattern, layout.used)
        image = self._pattern[: layout.used].copy()
        for region, array in zip(layout.inputs, inv.inputs, strict=True):
            if region is not None and array is not None:
                image[region.data : region.data + region.size] = _storage(array)
        for k, (region, array) in enumerate(zip(layout.outputs, inv.outputs, strict=True)):
            if k not in inv.alias:
                _byte_view(image, region, array)[...] = fill
        work = layout.workspace
        image[work.data : work.data + work.size] = fill
        return image

    def _load(self, image: Bytes, used: int) -> Bytes:
        self.sandbox.ensure(used)
        memory: Bytes = np.frombuffer(self.sandbox.memory, np.uint8, count=used)
        memory[:] = image
        return memory

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply, in time.  Raises WorkerDied."""
        kernel = (request["library"], request["symbol"])
        if kernel in self.hung:
            raise WorkerDied("it gave no answer in time before, and is not asked again")
        if self.spent > self.total:
            raise WorkerDied(f"its calls took more than {self.total:g} seconds together")
        self.calls += 1
        begun = time.monotonic()
        try:
            return self.sandbox.ask(request, seconds=self.seconds / (1 + len(self.hung)))
        except WorkerDied as death:
            if death.late:
                self.hung.add(kernel)
            raise
        finally:
            self.spent += time.monotonic() - begun

    def load(self, library: str, symbol: str) -> str:
        """Load a kernel; "" or why it cannot be."""
        try:
            reply = self._ask({"what": "load", "library": library, "symbol": symbol})
        except WorkerDied as death:
            return f"loading it: {death.reason}"
        return f"cannot be loaded: {reply['failed']}" if "failed" in reply else ""

    def plan(self, inv: Invocation, how: How | None = None) -> Plan:
        """Shapes and workspace, by the kernel's own infer and workspace entries; inputs hold their data."""
        how = how or How()
        layout = _Layout(inv, "start", 0)
        self._load(self._image(inv, layout, 0), layout.used)
        try:
            reply = self._ask(self._request(inv, layout, how, "plan", 0))
        except WorkerDied as death:
            return Plan(crash=f"infer or workspace: {death.reason}")
        if "failed" in reply:
            return Plan(crash=f"cannot be loaded: {reply['failed']}")
        shapes = tuple(tuple(s) for s in reply["shapes"])
        return Plan(reply["status"], reply["error"], shapes, reply.get("workspace", 0))

    def run(self, inv: Invocation, how: How | None = None, *, workspace: int = 0) -> Outcome:
        """The kernel on this invocation; `workspace` is what the plan for as many threads asked for."""
        how = how or How()
        if how.parallel and not self.sandbox.pool:
            raise ValueError("a parallel run needs a sandbox with a pool")
        layout = _Layout(inv, how.placement, workspace)
        if layout.used > ARENA >= layout.workspace.start:
            return Outcome(crash=f"it asks for {mib(workspace)} of workspace, and may have {mib(ARENA)}")
        image = self._image(inv, layout, FILLS[how.fill])
        memory = self._load(image, layout.used)
        try:
            reply = self._ask(self._request(inv, layout, how, "run", workspace))
        except WorkerDied as death:
            return Outcome(crash=death.reason)
        if "failed" in reply:
            return Outcome(crash=f"cannot be loaded: {reply['failed']}")
        damage = self._damage(inv, layout, image, memory)
        if not reply["told"]:
            damage.append("the shapes, strides or attributes that it was told of were changed")
        if reply["status"] == abi.OK != reply["error"]["code"]:
            damage.append(f"it says OK, and {abi.error_name(reply['error']['code'])} in its error word")
        before, after = reply["tasks"]
        if after > before:
            damage.append(f"left {after - before} thread(s) running")
        outputs = tuple(_view(memory, r, a).copy() for r, a in zip(layout.outputs, inv.outputs, strict=True))
        raw = tuple(_byte_view(memory, r, a).copy() for r, a in zip(layout.outputs, inv.outputs, strict=True))
        return Outcome(reply["status"], reply["error"], outputs, raw, tuple(damage))

    @staticmethod
    def _damage(inv: Invocation, layout: _Layout, image: Bytes, memory: Bytes) -> list[str]:
        """Every place where a byte changed that is no output's element and not workspace."""
        changed = image != memory
        for region, array in zip(layout.outputs, inv.outputs, strict=True):
            _byte_view(changed.view(np.uint8), region, array)[...] = 0
        work = layout.workspace
        changed[work.data : work.data + work.size] = False
        if not changed.any():
            return []
        found = []
        places = np.flatnonzero(changed)
        for region in layout.all():
            inside = places[(places >= region.start) & (places < region.end)]
            own = inside[(inside >= region.data) & (inside < region.data + region.size)]
            if own.size:
                verb = (
                    "was changed" if region.what.startswith("input") else "was written between its elements"
                )
                found.append(f"{region.what} {verb}: {own.size} byte(s) from byte {own[0] - region.data} on")
            low = places[(places >= region.start - PAGE // 2) & (places < region.data)]
            high = places[(places >= region.data + region.size) & (places < region.end + PAGE // 2)]
            if low.size:
                found.append(
                    f"{low.size} byte(s) written before {region.what}, {region.data - low[-1]} byte(s) off"
                )
            if high.size:
                off = high[0] - region.data - region.size + 1
                found.append(f"{high.size} byte(s) written past the end of {region.what}, {off} byte(s) off")
        return list(dict.fromkeys(found)) or [f"{places.size} byte(s) written outside every buffer"]


def _place(low: int, high: int) -> int:
    """The address of a page, which nobody can know before."""
    return low + secrets.randbelow((high - low) // PAGE) * PAGE


def _secret_pattern(size: int) -> Bytes:
    """Bytes that no kernel can know, and none that kernels write by themselves (truth values, fills, signs).

    Any byte that is written with one of `TELLING` is seen, not only 255 in 256.
    """
    others = np.setdiff1d(np.arange(256, dtype=np.uint8), TELLING)
    drawn: Bytes = others[np.frombuffer(secrets.token_bytes(2 * size), np.uint16) % others.size]
    return drawn


def elements(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    return math.prod(shape)
