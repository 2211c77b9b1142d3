"""A capture in a child process: started, watched, limited, and what it wrote or why it died.

The child's side is capture_worker.py.

May import: folder, inventory, ir, models, captured, generator.errors.  To add a limit: in `run_worker`; a way to die: a
case in `worker_error`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

from ..errors import MachineError, OpwrightError, Place
from .aten import AtenTable, table_dumps
from .captured import CaptureError
from .folder import Example, Folder, read_folder, read_tensors, whole
from .inventory import Inventory
from .ir import (
    Program,
)
from .models import TargetError, target_kind

__all__ = ["CANNOT_WRITE", "Captured", "Spawn", "run_worker", "worker_error"]


@dataclass(frozen=True)
class Captured:
    """What the worker left in a folder: `path/program` is the program folder, `path/records/K` hold what eager says."""

    path: Path
    folder: Folder
    inventory: Inventory
    facts: Mapping[str, Any]

    @property
    def program(self) -> Program:
        return self.folder.program

    def example(self) -> Example | None:
        """The inputs of the first record."""
        file = self.path / "records" / "0" / "inputs.safetensors"
        if not file.is_file():
            return None
        return Example(read_tensors(file), self.facts.get("meta", {}).get("placeholders", {}))

    @property
    def seconds(self) -> Mapping[str, float]:
        return self.facts.get("seconds", {})  # type: ignore[no-any-return]


def run_worker(
    target: str,
    outdir: Path | str,
    timeout: float = 600.0,
    *,
    table: AtenTable | None = None,
    keep: Sequence[str] = (),
    seed: int = 0,
    records: int = 2,
    sensitivity: bool = True,
    further: bool = False,
    half: bool = False,
    decoding: bool = False,
    training: bool = False,
    trust: bool = False,
    report: Callable[[str], None] | None = None,
    wrap: Callable[[list[str]], list[str]] | None = None,
    spawn: Spawn | None = None,
) -> Captured:
    """Capture `target` in a child process into `outdir` (replaced whole, or not touched).

    The model's code is others': it may raise, exit, loop, or die; each ends in one `OpwrightError` that says so.
    `report(stage)` hears each stage as it begins; `wrap` puts a sandbox's command in front of the child's; `spawn`
    starts the child in another way than by a new interpreter.  `trust`: code in a checkpoint folder may run, in a
    child without a network.
    """
    target_kind(target)  # what can be said without running anything is said here
    with whole(outdir) as temporary:
        log = temporary / "stderr.txt"
        command = [
            sys.executable,
            "-m",
            f"{__package__}.capture_worker",
            target,
            str(temporary),
            "--json",
            "--seed",
            str(seed),
            "--records",
            str(records),
            "--keep",
            ",".join(keep),
        ]
        if not sensitivity:
            command.append("--no-sensitivity")
        if further:
            command.append("--further")
        if half:
            command.append("--half")
        if decoding:
            command.append("--decoding")
        if training:
            command.append("--training")
        if trust:
            command.append("--trust-remote-code")
            wrap = wrap or _without_network
        if table is not None:
            (temporary / "table.json").write_text(table_dumps(table), encoding="utf-8")
            command += ["--table", str(temporary / "table.json")]
        status = _run(wrap(command) if wrap else command, log, timeout, report, target, spawn or _popen)
        # A model's code may end the process by itself, and with a 0.
        if status != 0 or not (temporary / "capture.json").is_file():
            raise worker_error(target, temporary, status, log)
        captured = _read_captured(temporary)
        for name in ("stderr.txt", "table.json"):
            (temporary / name).unlink(missing_ok=True)
    out = Path(outdir)
    return replace(captured, path=out, folder=replace(captured.folder, path=out / "program"))


def _read_captured(path: Path) -> Captured:
    try:
        facts = json.loads((path / "capture.json").read_text(encoding="utf-8"))
        found = Inventory.from_json(json.loads((path / "inventory.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as e:
        raise CaptureError(f"the capture ended without its result: {e}") from e
    weights = (path / "program" / "weights.safetensors").exists()
    return Captured(path, read_folder(path / "program", weights=weights), found, facts)


def _without_network(command: list[str]) -> list[str]:
    """The command in namespaces of its own, where there is no network.  Raises `MachineError`."""
    unshare = shutil.which("unshare")
    shell = [unshare, "--map-root-user", "--net", "--"] if unshare else []
    if not shell or subprocess.run([*shell, "true"], capture_output=True, check=False).returncode:
        raise MachineError(
            "code of a checkpoint runs in a process without a network, which this machine does not give",
            hint="`unshare --map-root-user --net true` has to work (package util-linux, user namespaces)",
        )
    return [*shell, *command]


#: What a child may know of its surroundings: no tokens, no proxies, no home.
_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "OPWRIGHT_NUM_THREADS",
    "OMP_NUM_THREADS",
    "VIRTUAL_ENV",
)


#: (command, environment, file for stderr) → a running child with `pid`, `stdout` (text) and `wait(timeout)`, that
#: leads a session of its own.
Spawn: TypeAlias = "Callable[[list[str], dict[str, str], IO[bytes]], Any]"


def _popen(command: list[str], env: dict[str, str], errors: IO[bytes]) -> Any:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=env,
        start_new_session=True,
        text=True,
    )


def _run(
    command: list[str],
    log: Path,
    timeout: float,
    report: Callable[[str], None] | None,
    target: str,
    spawn: Spawn,
) -> int:
    env = {k: os.environ[k] for k in _ENVIRONMENT if k in os.environ}
    env |= {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "HOME": str(log.parent),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The models are tiny: threads would only wait for each other.
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", env.get("OPWRIGHT_NUM_THREADS", "1")),
    }
    with (
        open(log, "wb") as errors,
        spawn(command, env, errors) as child,
    ):

        def listen() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                stage = _stage(line)
                if stage is not None and report is not None:
                    report(stage)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise CaptureError(
                f"{target} was not captured within {timeout:g} s",
                hint="the model's code may never return; a larger model needs a longer limit",
            ) from None
        finally:
            # The child's own children too: a model's code may have started some.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            listener.join(timeout=5)
        return int(status)


def _stage(line: str) -> str | None:
    try:
        return str(json.loads(line)["stage"])
    except (ValueError, KeyError, TypeError):
        return None  # the model's code found the descriptor: no stage


#: The child's status where it could not even write what went wrong (BSD's EX_CANTCREAT).
CANNOT_WRITE = 73

_ERRORS: dict[str, type[OpwrightError]] = {"MachineError": MachineError}


def worker_error(target: str, path: Path, status: int, log: Path) -> OpwrightError:
    try:
        error = json.loads((path / "error.json").read_text(encoding="utf-8"))
        message = str(error["message"])
    except (OSError, ValueError, KeyError, TypeError):
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = str(-status)
            return CaptureError(
                f"the process that captured {target} was killed by {name}",
                hint="its code crashed, or the machine ran out of memory",
            )
        if status == CANNOT_WRITE:
            return MachineError(
                f"capturing {target} failed where its files are written", hint="the disk may be full"
            )
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return CaptureError(
            f"the code of {target} ended the process with status {status} before it was captured"
            + (f": {tail[0][:200]}" if tail and status else ""),
            hint="a model's function returns (module, args); it does not exit",
        )
    kind = _ERRORS.get(
        str(error.get("error")), TargetError if error.get("error") == "TargetError" else CaptureError
    )
    place = None
    if error.get("file"):
        place = Place(
            str(error["file"]), int(error.get("line", 0)), int(error.get("column", 0)), error.get("text")
        )
    return kind(message, place=place, hint=error.get("hint"))
