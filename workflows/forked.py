"""A child process that starts from this one instead of from nothing: what was imported here need not be again.

    with Forked(work, env, log) as child:      `work()` runs in the child; what it returns is the exit status
        for line in child.stdout: …
        status = child.wait(timeout=60)

Only for a parent with one thread: a lock that another thread holds at that moment stays locked in the child.
May import: the standard library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import IO, Any

__all__ = ["Forked"]


class Forked:
    """The part of `subprocess.Popen` that its users need; the child leads a session of its own."""

    def __init__(self, work: Callable[[], int], env: Mapping[str, str] | None, errors: IO[bytes]) -> None:
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        self.returncode: int | None = None
        if self.pid == 0:
            _child(work, env, write, errors)
        os.close(write)
        self.stdout = os.fdopen(read, encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        """The exit status (a signal's number negative), or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status.  Raises `subprocess.TimeoutExpired`."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
        return status

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stdout.close()
        self.wait()


def _child(work: Callable[[], int], env: Mapping[str, str] | None, write: int, errors: IO[bytes]) -> None:
    """Runs `work` with its own streams, and ends without the parent's clean-up."""
    status = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(write, 1)
        os.dup2(errors.fileno(), 2)
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)
