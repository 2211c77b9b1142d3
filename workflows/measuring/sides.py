"""One process for each side, as the parent sees it: started pinned, asked by lines of JSON, ended for certain.

    with Sides(("ours", "torch"), start=…) as sides:
        said = sides["torch"].ask({"do": "load", …})

A process that dies or says nothing is an answer as well: `Gone` says why, and the next `ask` starts a new one.
May import: the standard library.  To add a rival: a row in `RIVALS`, a module with `Side` for child.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .rounds import CONTROL, OURS

__all__ = ["DEFAULT", "RIVALS", "Gone", "Process", "Sides", "cpus"]

#: What can be measured against, and in a few words how.
RIVALS = {
    "torch": "PyTorch's eager call",
    "torch-out": "the same, into memory that it is given (out=)",
    "inductor": "torch.compile; what compiling takes is reported, not counted",
    "onnxruntime": "ONNX Runtime, a graph of the one operator, inputs and outputs bound",
    "jax": "JAX, jitted for the CPU",
    "generated": "ours without what is written by hand",
}
DEFAULT = ("torch",)
#: A compilation may take minutes; a block of calls may not.
PATIENCE_S = 900.0


class Gone(Exception):
    """A measuring process that ended, or did not answer: never more than the reason of a row."""


class Process:
    """One measuring process."""

    def __init__(self, name: str, start: Mapping[str, Any]) -> None:
        self.name = name
        self.start = dict(start)
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None
        self._scratch: Any = None

    def ask(self, request: Mapping[str, Any], patience: float = PATIENCE_S) -> dict[str, Any]:
        """The answer to one request.  Raises Gone."""
        fresh = self._process is None
        process = self._process or self._begin()
        assert process.stdin is not None and process.stdout is not None
        try:
            if fresh:
                self._say(process, {"do": "start", "side": self.name, **self.start})
                self._hear(process, patience)
            self._say(process, request)
            return self._hear(process, patience)
        except (OSError, ValueError, Gone) as error:
            why = self._last_words()
            self.end()
            raise Gone(f"the process of {self.name} ended: {why or error}") from None

    def _begin(self) -> subprocess.Popen[str]:
        paths = os.pathsep.join(p for p in sys.path if p)
        self._scratch = tempfile.TemporaryDirectory(prefix="opwright-bench-")
        env = {**os.environ, **_quiet(self.start.get("threads", 1), self._scratch.name), "PYTHONPATH": paths}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - till `end`
        # In a session of its own: Ctrl-C is for the parent, which ends it.
        self._process = subprocess.Popen(
            # Not by -m: what the sides raise must be the class that the loop catches.
            [sys.executable, "-c", f"import sys; from {__package__}.child import main; sys.exit(main())"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=env,
            start_new_session=True,
        )
        return self._process

    @staticmethod
    def _say(process: subprocess.Popen[str], request: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()

    def _hear(self, process: subprocess.Popen[str], patience: float) -> dict[str, Any]:
        assert process.stdout is not None
        until = time.monotonic() + patience
        while not select.select([process.stdout], [], [], min(1.0, max(0.0, until - time.monotonic())))[0]:
            if time.monotonic() > until:
                raise Gone(f"no answer within {patience:.0f} s")
        line = process.stdout.readline()
        if not line:
            status = process.wait()
            raise Gone(signal.Signals(-status).name if status < 0 else f"exit code {status}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.flush()
        self._errors.seek(0)
        lines = [x.strip() for x in self._errors.read().splitlines() if x.strip()]
        return lines[-1][:300] if lines else ""

    def end(self) -> None:
        """Killed: it holds nothing that is worth a farewell."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self._errors is not None:
            self._errors.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        self._process, self._errors, self._scratch = None, None, None


class Sides:
    """The processes of a run, each begun when it is first asked."""

    def __init__(self, names: Sequence[str], start: Mapping[str, Any]) -> None:
        self.each = {n: Process(n, start) for n in (OURS, *names, CONTROL)}
        #: One with torch, whoever the rivals are.
        self.helper = self.each.get("torch") or Process("torch", start)

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        for p in (*self.each.values(), self.helper):
            p.end()

    def __getitem__(self, name: str) -> Process:
        return self.each[name]


def cpus(threads: int) -> list[int]:
    """The cores that all sides are pinned to: the last ones that this process may use."""
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return []
    return allowed[-threads:]


def _quiet(threads: int, scratch: str) -> dict[str, str]:
    """The environment in which no library takes more threads than it is given, or an answer from an earlier run."""
    one = str(threads)
    flags = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {
        "OMP_NUM_THREADS": one,
        "MKL_NUM_THREADS": one,
        "OPENBLAS_NUM_THREADS": one,
        "OPWRIGHT_NUM_THREADS": one,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_CACHE_DIR": scratch,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def told(side: Process, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Load a row into a process.  Its answer, or `missing` with the reason."""
    try:
        return side.ask({"do": "load", "folder": str(folder), "request": dict(request)})
    except Gone as error:
        return {"missing": str(error)}
