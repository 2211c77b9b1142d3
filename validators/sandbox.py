"""The judge's side of the sandbox: start a worker, talk to it, notice its death, and say what the sandbox is worth.

`Sandbox` owns one worker process and the arena it shares with it; a worker that crashed or hung is replaced on
the next request.  `level()` reports the layers that this machine gives, each measured by an attempt to break it.

May import: generator.errors, toolchain, confine.  To add a layer see `confine.py`; to add a request see `child.py`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from .. import toolchain
from ..generator.errors import MachineError
from . import confine
from .confine import LAYERS, Limits

__all__ = ["LAYERS", "Level", "Limits", "Sandbox", "WorkerDied", "level", "pool_library"]

# `box` is a package without an __init__, so that nothing of opwright's is imported inside.
_BOOT = (
    "import sys, types; box = types.ModuleType('box'); box.__path__ = [sys.argv[1]]; sys.modules['box'] = box; "
    "import box.child; box.child.main()"
)
_START_SECONDS = 60.0
_STDERR_SHOWN = 600


class SandboxError(MachineError):
    """A worker could not be started."""


class WorkerDied(Exception):
    """The worker ended, or did not answer in time (`late`), while it ran a candidate; `reason` says how."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.late = reason, late


@dataclass(frozen=True, slots=True)
class Level:
    """What the sandbox keeps out on this machine: layer -> "" when it held, else what got through and why."""

    layers: dict[str, str]

    @property
    def missing(self) -> dict[str, str]:
        return {name: why for name, why in self.layers.items() if why}

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(name for name, why in self.layers.items() if not why)

    @property
    def name(self) -> str:
        """`full`; `filtered` when only the namespaces are missing; `partial` else."""
        if not self.missing:
            return "full"
        return "filtered" if set(self.missing) == {"namespaces"} else "partial"

    def to_json(self) -> dict[str, Any]:
        return {"level": self.name, "held": list(self.held), "missing": self.missing}


class Sandbox:
    """One worker and its arena.  A context manager; not for use from several threads at once.

    pool: the library of `pool_library`, without which kernels run on one thread only.
    """

    def __init__(
        self,
        *,
        arena: int = 64 << 20,
        limits: Limits | None = None,
        workers: int = 3,
        pool: str = "",
        namespaces: bool = True,
        filtered: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self.workers, self.pool = workers, pool
        self.namespaces, self.filtered = namespaces, filtered
        self.level: Level | None = None
        self.restarts = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="opwright-judge-")
        self._stderr: BinaryIO | None = None
        self._requests = self._replies = -1
        self._pending = b""
        self.size = 0
        self._reserve(arena)

    # -- the arena
    def _reserve(self, size: int) -> None:
        if hasattr(os, "memfd_create"):
            self._arena = os.memfd_create("opwright-arena", os.MFD_CLOEXEC)
        else:
            self._arena, path = tempfile.mkstemp(dir=self._folder.name)
            os.unlink(path)
        os.ftruncate(self._arena, size)  # sparse: pages come into being when they are touched
        self.memory = mmap.mmap(self._arena, size)
        self.size = size

    def ensure(self, size: int) -> None:
        """Make the arena hold `size` bytes; a larger one means a new worker."""
        if size <= self.size:
            return
        self.stop()
        os.close(self._arena)
        self._reserve(max(size, 2 * self.size))

    # -- life and death
    def start(self) -> None:
        """Start a worker if none runs."""
        if self._process is not None:
            return
        self.restarts += 1
        ours, theirs = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        answers, said = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        scratch = tempfile.mkdtemp(dir=self._folder.name)
        limits = asdict(self.limits)
        limits["memory"] += self.size
        config = {
            "requests": ours,
            "replies": said,
            "arena": self._arena,
            "bytes": self.size,
            "scratch": scratch,
            "limits": limits,
            "namespaces": self.namespaces,
            "filter": self.filtered,
            "workers": self.workers,
            "pool": self.pool,
            "outside": sorted(
                {self._folder.name, tempfile.gettempdir(), os.getcwd(), os.path.expanduser("~")}
            ),
            "watcher": os.getpid(),
        }
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        # Its children notice their own end of the pipes only when ours are closed, hence pass_fds and no more.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-B",
                "-c",
                _BOOT,
                str(Path(__file__).resolve().parent),
                json.dumps(config),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            cwd=scratch,
            env=dict(confine.CLEAN_ENV),
            close_fds=True,
            pass_fds=(ours, said, self._arena),
            start_new_session=True,
        )
        os.close(ours)
        os.close(said)
        self._requests, self._replies, self._pending = theirs, answers, b""
        try:
            hello = json.loads(self._line(time.monotonic() + _START_SECONDS))
        except WorkerDied as death:
            raise SandboxError(
                f"the sandbox does not start: {death.reason}",
                hint="`opwright doctor` shows what the sandbox needs",
            ) from None
        self.level = Level(hello["layers"])

    def stop(self) -> None:
        """End the worker, whatever it is doing."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for fd in (self._requests, self._replies):
            os.close(fd)
        if self._stderr is not None:
            self._stderr.close()
        self._process = self._stderr = None

    def close(self) -> None:
        self.stop()
        if self._arena >= 0:
            os.close(self._arena)
            self._arena = -1
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # -- talk
    def ask(self, request: dict[str, Any], *, seconds: float = 30.0) -> dict[str, Any]:
        """One request, one reply.  Raises `WorkerDied`; the next call starts a new worker."""
        self.start()
        nonce = secrets.token_hex(8)
        data = json.dumps(request | {"nonce": nonce}).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._requests, data) :]
            reply: dict[str, Any] = json.loads(self._line(time.monotonic() + seconds))
        except BrokenPipeError:
            raise WorkerDied(self._bury()) from None
        except json.JSONDecodeError:
            self.stop()
            raise WorkerDied("it wrote on the judge's channel") from None
        if reply.pop("nonce", None) != nonce:
            self.stop()
            raise WorkerDied("it wrote on the judge's channel")
        return reply

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._replies], [], [], max(left, 0))
            if not ready:
                self.stop()
                raise WorkerDied("it gave no answer in time and was stopped", late=True)
            part = os.read(self._replies, 1 << 16)
            if not part:
                raise WorkerDied(self._bury())
            self._pending += part
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _bury(self) -> str:
        """How the worker ended, with the last that it printed."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            status = None
        said = ""
        if self._stderr is not None:
            self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, self._stderr.tell() - _STDERR_SHOWN))
            said = self._stderr.read().decode(errors="replace").strip()
        self.stop()
        if status is None:
            how = "it closed its channel"
        elif status < 0:
            number = -status
            how = f"it died of {signal.Signals(number).name if number in signal.valid_signals() else number}"
            if number == signal.SIGKILL:
                how += " (memory or time limit)"
        else:
            how = f"it ended with status {status}"
        return f"{how}: {said}" if said else how


@functools.cache
def pool_library() -> str:
    """The judge's own threads, built once.  Raises what the toolchain raises."""
    text = (Path(__file__).resolve().parent / "pool.cpp").read_text(encoding="utf-8")
    with toolchain.own_sources():
        return str(
            toolchain.compile_library(
                {"pool.cpp": text}, name="the judge's pool", dialect="cpu-portable", extra_flags=["-pthread"]
            )
        )


@functools.cache
def level() -> Level:
    """The layers that hold on this machine (measured once a process, about 0.1 s)."""
    with Sandbox(arena=1 << 20) as box:
        box.start()
        assert box.level is not None
        return box.level
