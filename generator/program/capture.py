"""A module → a program: `torch.export`, decomposition to core ATen, and every node as a call, a view or arithmetic.

    captured = capture(module, args, kwargs, table, name="llama", source="transformers:llama")
    captured.program            ir.Program, verified
    captured.tensors            its weights and constants
    captured.origins            call id → the node of the exported graph that it came from (`records.py` reads it)

How nodes become what
  views      a chain of views is one `Layout` over the value that a call made (views.py); it becomes a `view` node when
             somebody reads it; where strides do not allow a reshape, a call of `contiguous` comes first
  copies     the graph is functional: `clone`, `alias`, `detach` and casts to the same dtype are nothing
  integers   sizes and their arithmetic are expressions over symbols; an element read from a tensor is a register
  calls      through the aten table; an overload that no row accepts becomes a call of `missing:<overload>` with
             its reason, and the program is still whole, so that an inventory can be taken
  the same   call on the same values is made once (random ones are not the same)

May import: ir, views, aten, torch_compat (which imports torch), opwright.arguments.  To add a view: a line in
`_VIEWS`; an overload whose arguments need another order before the table sees them: a line in `_PREPARE`, or, where
dtypes and shapes say all, in runtime/python/arguments.py; one that no map can say: a line in `_COMPOSE`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from ...arguments import RULES, Refused
from ..errors import ErrorGroup, MachineError, OpwrightError, Place
from ..types import DType
from . import torch_compat as compat
from . import views
from .aten import AtenRow, AtenTable, Only, table_dumps
from .explain import explain
from .folder import Folder, read_folder, whole
from .intexpr import IntExpr, product
from .inventory import Inventory
from .ir import (
    UNBOUNDED,
    Arg,
    Assert,
    AttrValue,
    Binding,
    Call,
    Cond,
    MalformedProgram,
    Node,
    Program,
    Read,
    ScalarArg,
    State,
    Symbol,
    Value,
    View,
    cond_holds,
    cond_names,
    outputs_of,
    uses_of,
    verify,
    with_nodes,
)
from .ir import names_of as names_read
from .models import TargetError, target_kind
from .rewrite import ControlFlowError, rewrite
from .views import Layout

__all__ = [
    "Capture",
    "CaptureError",
    "Captured",
    "Origin",
    "Site",
    "Spawn",
    "capture",
    "dynamic_axes",
    "run_worker",
]

#: Arguments that say where or how to allocate: nothing that an executor's own allocation changes.
PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit"})
MAX_INT = 2**62


class CaptureError(OpwrightError):
    """A model that cannot be captured."""


class _Refused(Exception):
    """A row of the table does not accept the call; the message says why."""


@dataclass(frozen=True)
class Site:
    """Where in the model's source a call stands, and in which module."""

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    module: str = ""

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else self.module


@dataclass(frozen=True)
class Origin:
    """The node of the exported graph that a call came from: its name, and per output of the call which of the node's
    results it is and the permutation that takes the node's result to the call's."""

    node: str
    results: tuple[tuple[int, tuple[int, ...] | None] | None, ...]


@dataclass(frozen=True)
class Capture:
    """What a capture gives.  `exported` is the decomposed ExportedProgram; `notes` are for people; `decomposed` are
    overloads that nothing claims and that became others, which something does."""

    program: Program
    tensors: Mapping[str, Any]
    origins: Mapping[str, Origin]
    sites: Mapping[str, Site]
    exported: Any
    dynamic: str
    notes: tuple[str, ...] = ()
    decomposed: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------- entry


def dynamic_axes(tensor: Any) -> tuple[int, ...]:
    """The axes that may vary: batch, and sequence for tensors of rank 2 and 3.  An example extent of 0 or 1 stays."""
    axes = (0, 1) if 2 <= tensor.dim() <= 3 else (0,) if tensor.dim() else ()
    return tuple(d for d in axes if tensor.shape[d] > 1)


def _batch_axis(tensor: Any) -> tuple[int, ...]:
    return tuple(d for d in dynamic_axes(tensor) if d == 0)


#: Which axes of each of the arguments' tensors vary.
_Axes: TypeAlias = "list[tuple[int, ...]]"

#: How much varies, tried in this order.
_ATTEMPTS: tuple[tuple[str, Callable[[Any], tuple[int, ...]]], ...] = (
    ("batch and sequence", dynamic_axes),
    ("batch", _batch_axis),
    ("static", lambda _: ()),
)


def capture(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    table: AtenTable,
    *,
    name: str,
    source: str,
    keep: Sequence[str] = (),
    exported: Any = None,
    further: bool = False,
    report: Callable[[str, Callable[[], Any]], Any] | None = None,
) -> Capture:
    """Export, decompose and convert; with fewer varying axes where that fails, and says so in `notes`.

    `further`: what the table does not claim is decomposed beyond core ATen, where what it becomes is claimed.
    `exported`: an ExportedProgram to convert instead of the module.  `report(stage, work)` runs `work` under a clock.
    Raises `CaptureError` with what each attempt said.
    """
    clock = report or _unclocked
    failures: dict[str, list[str]] = {}  # reason → attempts that ended so
    attempts: list[tuple[str, _Axes]] = _distinct(args, kwargs) if exported is None else [("as exported", [])]
    last: Exception | None = None
    for dynamic, axes in attempts:
        try:
            ep, fixed = (
                _exported(module, args, kwargs, axes, clock) if exported is None else (rewrite(exported), ())
            )
            core = clock("decompose", partial(compat.decompose, ep, keep))
            decomposed: tuple[str, ...] = ()
            if further:
                core, decomposed = clock("decompose", partial(_further, core, table, keep))
            notes = fixed + tuple(
                f"not captured with {' or '.join(tried)} dynamic: {why}" for why, tried in failures.items()
            )
            converter = _Converter(core, ep, table, name, source)
            done: Capture = clock("convert", partial(converter.run, dynamic, notes))
            return replace(done, decomposed=decomposed)
        except MachineError:
            raise
        except Exception as e:  # export raises whatever the model's own code raises
            failures.setdefault(_first_line(e), []).append(dynamic)
            last = e
    assert last is not None
    raise _explained(source, failures, last) from last


def _exported(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], axes: _Axes, clock: Callable[..., Any]
) -> tuple[Any, tuple[str, ...]]:
    """The exported program without subgraphs, and what had to be fixed for that."""
    axes = list(axes)
    notes: list[str] = []
    while True:
        ep = clock("export", partial(compat.export, module, args, kwargs, axes))
        try:
            return rewrite(ep), tuple(notes)
        except ControlFlowError as e:
            spot = compat.spot_of(ep, e.symbol) if e.symbol is not None else None
            if spot is None or spot[1] not in axes[spot[0]]:
                raise
            axes[spot[0]] = tuple(d for d in axes[spot[0]] if d != spot[1])
            notes.append(f"axis {spot[1]} of tensor {spot[0]} of the arguments is fixed: {e.message}")


def _explained(source: str, failures: Mapping[str, Sequence[str]], last: Exception) -> CaptureError:
    """What the attempts said, once where they said the same; where the model's source stopped the last one, and what
    to write there instead."""
    place, hint = explain(last)
    several = len(failures) > 1
    reasons = "; ".join(f"{why} ({', '.join(tried)})" if several else why for why, tried in failures.items())
    return CaptureError(f"cannot capture {source}: {reasons}", place=place, hint=hint)


def _unclaimed(core: Any, table: AtenTable) -> set[str]:
    """The overloads in a graph that neither the table nor the conversion itself knows."""
    known = table.keys() | _DROPPED | _SPECIAL.keys() | _VIEWS.keys() | _COMPOSE.keys()
    targets = (
        compat.overload_name(n.target) for n in core.graph_module.graph.nodes if n.op == "call_function"
    )
    return {t for t in targets if t and t not in known and not t.startswith("higher_order.")}


def _further(core: Any, table: AtenTable, keep: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Decompose what nobody claims where that leaves less unclaimed: all of it at once, for each trial traces the whole
    graph again, and one overload after the other where that leaves something else.  What became of it may be decomposed
    once more.  The program, and what was decomposed."""
    before = _unclaimed(core, table)
    names = compat.decomposable(sorted(before))
    best, left = _deeper(core, table, keep, names, before)
    if names and left & set(names):
        more: list[str] = []
        best, left = core, before
        for name in names:
            deeper, now = _deeper(core, table, keep, [*more, name], left)
            if now < left:
                best, left = deeper, now
                more.append(name)
    return best, tuple(sorted(before - left))


def _deeper(
    core: Any, table: AtenTable, keep: Sequence[str], names: Sequence[str], left: set[str]
) -> tuple[Any, set[str]]:
    """The program with these decomposed too, twice over, and what nobody claims then; as it was where that is no less.
    A decomposition that torch cannot apply to this graph (one that writes in place, say) is none."""
    trial = list(names)
    for _ in range(2 if trial else 0):
        try:
            deeper = compat.decompose(core, keep, trial)
        except Exception:
            return core, left
        now = _unclaimed(deeper, table)
        if now < left:
            return deeper, now
        trial += [n for n in compat.decomposable(sorted(now - left)) if n not in trial]
    return core, left


def _unclocked(stage: str, work: Callable[[], Any]) -> Any:
    return work()


def _distinct(args: Any, kwargs: Any) -> list[tuple[str, _Axes]]:
    """The attempts that differ on these arguments."""
    tensors = compat.tensors_of((args, dict(kwargs)))
    out: list[tuple[str, _Axes]] = []
    for dynamic, axes in _ATTEMPTS:
        chosen = [axes(t) for t in tensors]
        if all(chosen != before for _, before in out):
            out.append((dynamic, chosen))
    return out


def _first_line(e: Exception) -> str:
    """What the exporter said first, and the line of the model's source that it names."""
    if isinstance(e, OpwrightError):
        return e.message
    lines = [x.strip() for x in str(e).splitlines() if x.strip()]
    found = compat.frames(str(e))
    site = f" at {found[-1].file.rpartition('/')[2]}:{found[-1].line} `{found[-1].text}`" if found else ""
    return (f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__) + site


# ------------------------------------------------------------------------------------------------- in a child


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
    report: Callable[[str, float], None] | None = None,
    wrap: Callable[[list[str]], list[str]] | None = None,
    spawn: Spawn | None = None,
) -> Captured:
    """Capture `target` in a child process into `outdir` (replaced whole, or not touched).

    The model's code is others': it may raise, exit, loop, or die; each ends in one `OpwrightError` that says so.
    `report(stage, seconds)` hears each stage as it ends; `wrap` puts a sandbox's command in front of the child's;
    `spawn` starts the child in another way than by a new interpreter.
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
        if table is not None:
            (temporary / "table.json").write_text(table_dumps(table), encoding="utf-8")
            command += ["--table", str(temporary / "table.json")]
        status = _run(wrap(command) if wrap else command, log, timeout, report, target, spawn or _popen)
        # A model's code may end the process by itself, and with a 0.
        if status != 0 or not (temporary / "capture.json").is_file():
            raise _worker_error(target, temporary, status, log)
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
    return Captured(path, read_folder(path / "program"), found, facts)


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
    report: Callable[[str, float], None] | None,
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
                event = _event(line)
                if event is not None and report is not None:
                    report(*event)

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


def _event(line: str) -> tuple[str, float] | None:
    try:
        data = json.loads(line)
        return str(data["stage"]), float(data["seconds"])
    except (ValueError, KeyError, TypeError):
        return None  # the model's code found the descriptor: not an event


#: The child's status where it could not even write what went wrong (BSD's EX_CANTCREAT).
CANNOT_WRITE = 73

_ERRORS: dict[str, type[OpwrightError]] = {"MachineError": MachineError}


def _worker_error(target: str, path: Path, status: int, log: Path) -> OpwrightError:
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


# ------------------------------------------------------------------------------------------------- conversion


@dataclass(frozen=True)
class Ref:
    """A tensor of the graph: a layout over a value that something made."""

    base: str
    dtype: DType
    layout: Layout


#: What a node of the exported graph is here.
Item: TypeAlias = "Ref | IntExpr | bool | int | float | str | tuple[Item, ...] | list[Item] | _Opaque | None"


@dataclass(frozen=True)
class _Opaque:
    """Something that only a missing call may take: a submodule, a custom object."""

    text: str


@dataclass
class _Prepared:
    """A call whose arguments were put in canonical order; `permute` takes the call's result to the node's."""

    args: dict[str, Any]
    shape: tuple[IntExpr, ...] | None = None
    permute: tuple[int, ...] | None = None


class _Converter:
    def __init__(self, core: Any, exported: Any, table: AtenTable, name: str, source: str) -> None:
        self.core, self.exported, self.table = core, exported, table
        self.name, self.source = name, source
        self.env: dict[str, Item] = {}
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.names: dict[str, str] = {}  # the exporter's symbol → ours
        self.symbols: dict[str, Symbol] = {}
        self.lowered: set[str] = set()  # symbols whose least extent is 1 by our leave
        self.ranges = compat.ranges(core)
        self.inputs: list[Binding] = []
        self.weights: list[Binding] = []
        self.constants: list[Binding] = []
        self.tensors: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.sites: dict[str, Site] = {}
        self.counts: dict[str, int] = {}
        self.made: dict[Any, tuple[str | None, ...]] = {}  # calls made so far
        self.seen_views: dict[tuple[str, Layout], str] = {}
        self.notes: list[str] = []
        self.current: Any = None
        self.overload, self.site = "", Site()

    def run(self, dynamic: str, notes: tuple[str, ...]) -> Capture:
        graph = self.core.graph_module.graph
        self.placeholders(graph)
        for node in graph.nodes:
            if node.op == "call_function":
                self.node(node)
            elif node.op == "get_attr":
                self.env[node.name] = _Opaque(str(node.target))
        outputs, state = self.outputs(graph)
        program = Program(
            name=self.name,
            source=self.source,
            dtype=self.model_dtype(),
            values=self.values,
            symbols=self.symbols,
            inputs=tuple(self.inputs),
            outputs=outputs,
            nodes=(*self.guards(), *self.nodes),
            weights=tuple(self.weights),
            constants=tuple(self.constants),
            state=state,
            tree=self.tree(),
        )
        program = self.verified(prune(program))
        kept = {c.id for c in program.calls}
        bound = {b.tie or b.name for b in (*program.weights, *program.constants)}
        return Capture(
            program,
            {k: v for k, v in self.tensors.items() if k in bound},
            {k: v for k, v in self.origins.items() if k in kept},
            {k: v for k, v in self.sites.items() if k in kept},
            self.core,
            dynamic,
            notes + tuple(self.notes),
        )

    def verified(self, program: Program) -> Program:
        """The program, for extents of 1 too where it holds for them: `x[1]` demands a 2."""
        try:
            verify(program)
            return program
        except (MalformedProgram, ErrorGroup):
            at_two = {s for s in program.symbols if s in self.lowered}
            if not at_two:
                raise

        def least(names: set[str]) -> Program:
            symbols = {k: replace(s, min=2) if k in names else s for k, s in program.symbols.items()}
            return replace(program, symbols=symbols)

        verify(least(at_two))
        for name in sorted(at_two):
            try:
                verify(least(at_two - {name}))
            except (MalformedProgram, ErrorGroup):
                continue
            at_two = at_two - {name}
        return least(at_two)

    # ---- names

    def fresh(self, letter: str) -> str:
        self.counts[letter] = self.counts.get(letter, 0) + 1
        return f"{letter}{self.counts[letter]}"

    def call_id(self, op: str) -> str:
        stem = "".join(c if c.isalnum() else "_" for c in op.removeprefix("missing:aten."))
        self.counts[stem + "#"] = self.counts.get(stem + "#", -1) + 1
        return f"{stem}_{self.counts[stem + '#']}"

    def rename(self, e: IntExpr) -> IntExpr:
        unknown = e.names() - self.names.keys()
        if unknown:
            raise compat.NotAnExtent(f"the extent `{e}` depends on data in a way that a program cannot say")
        return e.rename(self.names)

    def extent(self, x: Any) -> IntExpr:
        return self.rename(compat.extent_of(x))

    def shape(self, fake: Any) -> tuple[IntExpr, ...]:
        return tuple(self.extent(n) for n in fake.shape)

    # ---- inputs and outputs

    def placeholders(self, graph: Any) -> None:
        specs = {s.arg.name: s for s in self.core.graph_signature.input_specs}
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        fakes = [(n, n.meta.get("val")) for n in nodes]
        users = [(n, v) for n, v in fakes if specs[n.name].kind.name == "USER_INPUT" and hasattr(v, "shape")]
        for n, v in users:  # symbols first: any input may be the one that has a symbol plainly
            for axis, extent in enumerate(v.shape):
                symbol = compat.symbol_of(extent)
                if symbol is not None and symbol not in self.names:
                    self.symbol(symbol, n.name, axis)
        ties: dict[Any, str] = {}
        for n, v in fakes:
            spec = specs[n.name]
            if not hasattr(v, "shape"):
                self.env[n.name] = self.constant_input(n, spec, v)
                continue
            dtype, shape = compat.dtype_of(v.dtype), self.shape(v)
            match spec.kind.name:
                case "USER_INPUT":
                    id = self.tensor(self.fresh("v"), dtype, shape)
                    self.inputs.append(Binding(n.name, id))
                case "PARAMETER":
                    id = self.tensor(self.fresh("w"), dtype, shape)
                    tensor = self.core.state_dict[spec.target]
                    key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
                    tie = ties.setdefault(key, spec.target) if tensor.numel() else spec.target
                    self.weights.append(Binding(spec.target, id, None if tie == spec.target else tie))
                    self.tensors[spec.target] = tensor
                case "BUFFER" | "CONSTANT_TENSOR":
                    id = self.tensor(self.fresh("c"), dtype, shape)
                    self.constants.append(Binding(spec.target, id))
                    self.tensors[spec.target] = self.buffer(spec)
                case kind:
                    raise CaptureError(f"the model takes a {kind.lower().replace('_', ' ')}, {n.name}")
            self.env[n.name] = Ref(id, dtype, views.contiguous(shape))

    def buffer(self, spec: Any) -> Any:
        found = self.core.constants.get(spec.target)
        return self.core.state_dict[spec.target] if found is None else found

    def constant_input(self, n: Any, spec: Any, value: Any) -> Item:
        if spec.kind.name == "USER_INPUT" and (value is None or isinstance(value, bool | int | float | str)):
            return value
        if compat.is_symbolic(value):
            raise CaptureError(f"the input {n.name} is a number that varies: pass it as a tensor")
        return _Opaque(n.name)

    def symbol(self, raw: str, source: str, axis: int) -> None:
        low, high = self.ranges.get(raw, (0, None))
        name = f"s{len(self.symbols)}"
        self.names[raw] = name
        # The exporter excludes 1 because it would specialise on it; what it computes for n mostly holds for 1
        # (`verified` says where not).
        if low == 2:
            self.lowered.add(name)
        self.symbols[name] = Symbol(
            name, source, axis, 1 if low == 2 else low, UNBOUNDED if high is None else high
        )

    def tensor(self, id: str, dtype: DType, shape: Sequence[IntExpr]) -> str:
        self.values[id] = Value(id, dtype, tuple(shape), views.contiguous_strides(shape))
        return id

    def outputs(self, graph: Any) -> tuple[tuple[Binding, ...], tuple[State, ...]]:
        specs = self.core.graph_signature.output_specs
        (result,) = next(n for n in graph.nodes if n.op == "output").args
        names = self.output_names()
        outputs: list[Binding] = []
        state: list[State] = []
        user = 0
        for spec, node in zip(specs, result, strict=True):
            item = self.item(node)
            if spec.kind.name == "USER_OUTPUT":
                name = names[user] if user < len(names) else f"output_{user}"
                user += 1
                if isinstance(item, Ref):
                    outputs.append(Binding(name, self.owned(item)))
                elif item is not None:
                    self.notes.append(f"the output {name} is the constant {item}: left out")
            elif spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                assert isinstance(item, Ref)
                bound = {b.name: b.value for b in self.constants}
                state.append(State(bound.get(spec.target, spec.target), self.owned(item)))
            else:
                raise CaptureError(f"the model gives a {spec.kind.name.lower().replace('_', ' ')}")
        if not outputs:
            raise CaptureError(
                "the model returns no tensor", hint="return tensors, or a structure that holds some"
            )
        return tuple(outputs), tuple(state)

    def owned(self, x: Ref) -> str:
        """A contiguous value that is not an input's, a weight's or a constant's memory."""
        foreign = {b.value for b in (*self.inputs, *self.weights, *self.constants)}
        if x.base in foreign or not views.is_contiguous(x.layout):
            x = self.contiguous(x)
        return self.materialise(x)

    def output_names(self) -> list[str]:
        spec = self.core.call_spec.out_spec
        tree = _unflatten(spec)
        named = [name for name, _ in compat.flatten_named(tree, "output")]
        unique: dict[str, int] = {}
        out = []
        for n in named:
            k = unique.get(n, 0)
            unique[n] = k + 1
            out.append(f"{n}_{k}" if k else n)
        return out

    def tree(self) -> dict[str, Any]:
        specs = [s for s in self.core.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        bound = {b.name for b in self.inputs}
        leaves: list[Any] = [
            s.arg.name if s.arg.name in bound else {"const": _plain(getattr(s.arg, "value", None))}
            for s in specs
        ]
        inputs = compat.structure(self.core.call_spec.in_spec, leaves)
        outputs = compat.structure(self.core.call_spec.out_spec, self.output_names())
        return {"inputs": inputs, "outputs": outputs}

    def model_dtype(self) -> DType:
        floats = [self.values[b.value].dtype for b in self.weights if self.values[b.value].dtype.is_float]
        floats = floats or [v.dtype for v in self.values.values() if v.dtype.is_float]
        return max(set(floats), key=lambda d: (floats.count(d), d.value)) if floats else DType.F32

    def guards(self) -> list[Assert]:
        """The exporter's own conditions on extents, as assertions; those that hold by construction are left out."""
        inputs = {b.name: self.values[b.value] for b in self.inputs}

        def extent(path: str, axis: int) -> IntExpr | None:
            name = path.split("'")[1] if path.count("'") == 2 and path.startswith("L[") else ""
            v = inputs.get(name)
            return v.shape[axis] if v is not None and axis < v.rank else None

        out: list[Assert] = []
        for text in compat.guards(self.exported):
            cond = compat.guard_of(text, extent)
            if cond is None or isinstance(cond, bool) or self.certain(cond):
                continue
            if all(a.cond != cond for a in out):
                out.append(Assert(cond, f"the model was captured for {_readable(text)}"))
        return out

    def certain(self, cond: Cond) -> bool:
        """Whether a comparison holds by its form or by the symbols' ranges alone."""
        op, *xs = cond
        if not cond_names(cond):
            return cond_holds(cond, {})
        if op not in ("eq", "ne", "lt", "le", "gt", "ge"):
            return False
        difference: IntExpr = xs[0] - xs[1]
        if difference.value is not None:
            return {
                "eq": difference.value == 0,
                "le": difference.value <= 0,
                "ge": difference.value >= 0,
                "lt": difference.value < 0,
                "gt": difference.value > 0,
                "ne": difference.value != 0,
            }[op]
        # s >= 2 and s != 1 are the exporter's fear of specialising; s <= max is in the range.
        if (
            len(difference.terms) == 2
            and difference.terms[0][1] in (1, -1)
            and isinstance(difference.terms[0][0][0], str)
        ):
            symbol = self.symbols.get(difference.terms[0][0][0]) if len(difference.terms[0][0]) == 1 else None
            bound = xs[1].value if xs[1].value is not None else None
            if symbol is not None and bound is not None:
                return (
                    (op == "ge" and bound <= max(symbol.min, 2))
                    or (op == "le" and bound >= symbol.max)
                    or (op == "ne" and bound in (0, 1))
                )
        return False

    # ---- values in use

    def materialise(self, x: Ref) -> str:
        """The id of a value that is this tensor: the base itself, or a view node (made once)."""
        base = self.values[x.base]
        if x.layout == Layout(base.shape, base.strides):
            return x.base
        key = (x.base, x.layout)
        if key not in self.seen_views:
            id = self.fresh("v")
            self.values[id] = Value(id, x.dtype, x.layout.shape, x.layout.strides)
            self.nodes.append(View(x.base, id, x.layout.shape, x.layout.strides, x.layout.offset))
            self.seen_views[key] = id
        return self.seen_views[key]

    def contiguous(self, x: Ref) -> Ref:
        """The same elements, row-major, in memory of their own."""
        return self.plain("contiguous", x, {}, x.dtype)

    def cast(self, x: Ref, dtype: DType) -> Ref:
        return x if x.dtype is dtype else self.plain("cast", x, {"dtype": dtype.value}, dtype)

    def plain(self, op: str, x: Ref, attrs: dict[str, AttrValue], dtype: DType) -> Ref:
        """A call of one input and one output of the same extents that stands in no table."""
        inputs = (self.materialise(x),)
        key = (op, repr(inputs), repr(attrs))
        if key not in self.made:
            id = self.tensor(self.fresh("v"), dtype, x.layout.shape)
            self.made[key] = (id,)
            name = self.call_id(op)
            self.nodes.append(Call(name, op, inputs, attrs, (id,), str(self.site), self.overload))
            self.sites[name] = self.site
        (made,) = self.made[key]
        assert made is not None
        return Ref(made, dtype, views.contiguous(x.layout.shape))

    def reshape(self, x: Ref, shape: Sequence[IntExpr]) -> Ref:
        layout = views.reshape(x.layout, shape)
        if layout is None:
            x = self.contiguous(x)
            layout = views.reshape(x.layout, shape)
            assert layout is not None, "a contiguous tensor takes any shape"
        return Ref(x.base, x.dtype, layout)

    # ---- nodes

    def item(self, x: Any) -> Any:
        """An argument of the exported graph in our terms."""
        if hasattr(x, "op") and hasattr(x, "meta"):
            return self.env[x.name]
        if isinstance(x, list | tuple):
            return [self.item(y) for y in x]
        if compat.is_dtype(x):
            return compat.dtype_of(x).value
        if compat.is_symbolic(x):
            return self.extent(x)
        if x is None or isinstance(x, bool | int | float | str | Ref):
            return x
        return _Opaque(str(x))

    def node(self, node: Any) -> None:
        self.current = node
        self.overload = compat.overload_name(node.target) or ""
        self.site = _site(node)
        val = node.meta.get("val")
        if compat.is_symbolic(val) or (
            isinstance(val, bool | int | float) and self.overload != "aten._local_scalar_dense.default"
        ):
            self.env[node.name] = self.number(node, val)
            return
        if not self.overload:  # operator.getitem and the like
            self.env[node.name] = self.python(node)
            return
        if self.overload in _DROPPED:
            self.env[node.name] = None
            return
        if self.overload.startswith("higher_order."):
            self.env[node.name] = self.call(
                node, {f"arg{k}": a for k, a in enumerate(node.args)} | dict(node.kwargs)
            )
            return
        bound = compat.bind(node.target, node.args, node.kwargs)
        special = _SPECIAL.get(self.overload)
        if special is not None:
            self.env[node.name] = special(self, node, bound)
            return
        view = _VIEWS.get(self.overload)
        if view is not None:
            args = {k: self.item(v) for k, v in bound.items()}
            x = args.get("self", args.get("input"))
            result = view(self, x, args, node.meta["val"]) if isinstance(x, Ref) else None
            if result is not None:
                self.env[node.name] = result
                return
        self.env[node.name] = self.call(node, bound)

    def ruled(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments as the overload's rule has them."""

        def about(x: Any) -> tuple[str, tuple[IntExpr, ...]] | None:
            return (x.dtype.value, x.layout.shape) if isinstance(x, Ref) else None

        try:
            return RULES[self.overload](about, **args)
        except Refused as e:
            raise _Refused(str(e)) from None

    def number(self, node: Any, val: Any) -> Item:
        """A node whose value is a number: a constant, an expression, or an element read from a tensor."""
        if not compat.is_symbolic(val):
            return val  # type: ignore[no-any-return]
        if self.overload == "aten._local_scalar_dense.default":
            return self.read(node, val)
        if type(val).__name__ == "SymInt":
            return self.extent(val)
        # A condition, or a float of extents: whoever takes it says that it cannot.
        return _Opaque(f"the {type(val).__name__} `{node.name}`")

    def read(self, node: Any, val: Any) -> Item:
        x = self.item(node.args[0])
        raw = compat.symbol_of(val)
        if raw is None or not isinstance(x, Ref):
            raise compat.NotAnExtent(f"`{node.name}` reads an element in a way that a program cannot say")
        dtype = {"SymFloat": DType.F64, "SymBool": DType.BOOL}.get(type(val).__name__, DType.I64)
        if x.dtype.kind == "bool":
            dtype = DType.BOOL
        id = self.fresh("n")
        self.values[id] = Value(id, dtype, kind="scalar")
        self.nodes.append(Read(self.materialise(x), id))
        self.names[raw] = id
        return IntExpr.of(id)

    def python(self, node: Any) -> Item:
        name = getattr(node.target, "__name__", str(node.target))
        args = [self.item(a) for a in node.args]
        if name == "getitem" and isinstance(args[0], tuple | list):
            return args[0][args[1]]  # type: ignore[no-any-return]
        if name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"):
            return None
        raise compat.NotAnExtent(f"`{node.name}` calls {name}, which a program cannot say")

    def call(self, node: Any, bound: Mapping[str, Any]) -> Item:
        """A call through the table, or a missing one."""
        args = {k: self.item(v) for k, v in bound.items()}
        fakes = node.meta.get("val")
        many = isinstance(fakes, list | tuple)
        results = list(fakes) if many else [fakes]
        reasons: list[str] = []
        compose = _COMPOSE.get(self.overload)
        if compose is not None and not self.table.get(self.overload):
            try:
                op, inputs, attrs = compose(self, args)
                return self.made_call(node, op, inputs, attrs, [0], results, many, _Prepared(args))
            except _Refused as e:
                reasons.append(str(e))
        prepare = _PREPARE.get(self.overload)
        prepared = _Prepared(args)
        try:
            if prepare is not None:
                prepared = prepare(self, args, fakes)
            elif self.overload in RULES:
                prepared = _Prepared(self.ruled(args))
            for row in self.table.get(self.overload, ()):
                try:
                    inputs, attrs = self.mapped(row, node.target, prepared.args, results)
                    read = sum(1 for k in range(len(row.returns), len(results)) if self.is_read(node, k))
                    if read:
                        raise _Refused(f"{row.op} does not give result {len(row.returns)}")
                except _Refused as e:
                    reasons.append(str(e))
                    continue
                order = [row.returns.index(o) if o in row.returns else None for o in row.outputs]
                return self.made_call(node, row.op, inputs, attrs, order, results, many, prepared)
        except _Refused as e:
            reasons.append(str(e))
        why = "; ".join(dict.fromkeys(reasons)) or "no operator claims this overload"
        inputs = tuple(self.arg(a) for a in args.values() if _has_tensor(a))
        attrs = {k: self.raw_attr(a) for k, a in args.items() if not _has_tensor(a)}
        known = {a.name: a.default for a in compat.arguments(node.target)}
        attrs = {k: v for k, v in attrs.items() if k not in PLACEMENT and not (k in known and v is None)}
        return self.made_call(
            node,
            f"missing:{self.overload}",
            inputs,
            attrs,
            list(range(len(results))),
            results,
            many,
            _Prepared(args),
            why,
        )

    def is_read(self, node: Any, k: int) -> bool:
        return any(u.args[1] == k for u in node.users if getattr(u.target, "__name__", "") == "getitem")

    def made_call(
        self,
        node: Any,
        op: str,
        inputs: tuple[Arg, ...],
        attrs: dict[str, AttrValue],
        order: list[int | None],
        results: list[Any],
        many: bool,
        prepared: _Prepared,
        why: str = "",
    ) -> Item:
        key: Any = (op, repr(inputs), repr(attrs))  # as text: 1, 1.0 and True are equal, and not the same
        if why or compat.seeded(node.target) or key not in self.made:
            out: list[str | None] = []
            origin: list[tuple[int, tuple[int, ...] | None] | None] = []
            for k in order:
                fake = results[k] if k is not None and k < len(results) else None
                if fake is None or not hasattr(fake, "shape"):
                    out.append(None)
                    origin.append(None)
                    continue
                id = self.fresh("v")
                self.unbacked(id, fake)
                shape = prepared.shape if prepared.shape is not None and k == 0 else self.shape(fake)
                out.append(self.tensor(id, compat.dtype_of(fake.dtype), shape))
                back = None if prepared.permute is None else _inverse(prepared.permute)
                origin.append((k or 0, back))
            name = self.call_id(op)
            self.nodes.append(Call(name, op, inputs, attrs, tuple(out), str(self.site), self.overload, why))
            self.origins[name] = Origin(node.name, tuple(origin))
            self.sites[name] = self.site
            self.made[key] = tuple(out)
        ids = self.made[key]
        refs: list[Item] = [None] * len(results)
        for k, made in zip(order, ids, strict=True):
            if k is not None and made is not None:
                v = self.values[made]
                self.known_extents(v, results[k])
                layout = views.contiguous(v.shape)
                if prepared.permute is not None:
                    layout = views.permute(layout, prepared.permute)
                refs[k] = Ref(made, v.dtype, layout)
        return tuple(refs) if many else refs[0]

    def unbacked(self, id: str, fake: Any) -> None:
        """Extents that only the call itself knows become symbols of its result."""
        for axis, n in enumerate(fake.shape):
            raw = compat.symbol_of(n)
            if raw is not None and raw not in self.names:
                self.symbol(raw, id, axis)

    def known_extents(self, v: Value, fake: Any) -> None:
        """The exporter's names for the extents of a call that was made before are other ones."""
        for extent, n in zip(v.shape, fake.shape, strict=False):
            raw = compat.symbol_of(n)
            if raw is not None and raw not in self.names and len(extent.names()) == 1:
                (self.names[raw],) = extent.names()

    # ---- the table's rows

    def mapped(
        self, row: AtenRow, target: Any, args: Mapping[str, Any], results: Sequence[Any]
    ) -> tuple[tuple[Arg, ...], dict[str, AttrValue]]:
        """Inputs and attributes by a row.  Raises `_Refused`."""
        given: dict[str, Any] = {}
        named = dict(row.map)
        for a in compat.arguments(target):
            value = args[a.name]
            if a.name not in named:
                if a.name not in PLACEMENT and not _same(value, a.default):
                    raise _Refused(f"{row.op} does not take {a.name} = {_text(value)}")
                continue
            to = named[a.name]
            if isinstance(to, Only):
                if not _same(value, to.value):
                    raise _Refused(f"{row.op} takes only {a.name} = {_text(to.value)}, not {_text(value)}")
            elif isinstance(to, tuple):
                if not isinstance(value, list | tuple) or len(value) != len(to):
                    raise _Refused(f"{row.op} takes {len(to)} tensors as {a.name}")
                given.update(zip(to, value, strict=True))
            elif to is not None:
                given[to] = value
        for name, value in row.set.items():
            given.setdefault(name, value)
        inputs: list[Arg] = []
        for name in row.inputs:
            inputs.append(self.arg(given.pop(name, None)))
        if not any(_has_tensor(a) for a in args.values()) and given.get("dtype", "") is None and results:
            # A tensor made from nothing: torch's default dtype is a matter of the capture, not of the run.
            given["dtype"] = compat.dtype_of(results[0].dtype).value
        attrs: dict[str, AttrValue] = {}
        for name in row.attrs:
            if name in given:
                attrs[name] = self.attr(row, name, given.pop(name))
        if given:
            raise _Refused(f"{row.op} has no {', '.join(sorted(given))}")
        return tuple(inputs), attrs

    def arg(self, x: Any) -> Arg:
        if isinstance(x, Ref):
            return self.materialise(x)
        if isinstance(x, list | tuple):
            return tuple(self.arg(y) for y in x)
        if isinstance(x, bool | int | float | IntExpr):
            if isinstance(x, IntExpr) and x.value is not None:
                x = x.value
            return ScalarArg(x)
        if x is None:
            return None
        raise _Refused(f"{_text(x)} is no tensor")

    def attr(self, row: AtenRow, name: str, x: Any) -> AttrValue:
        if _has_tensor(x) or isinstance(x, _Opaque):
            raise _Refused(f"{row.op}'s {name} is an attribute, not {_text(x)}")
        return self.raw_attr(x)

    def raw_attr(self, x: Any) -> AttrValue:
        if isinstance(x, list | tuple):
            return tuple(self.raw_attr(y) for y in x)
        if isinstance(x, IntExpr):
            return x.value if x.value is not None else x
        return x.text if isinstance(x, _Opaque) else x


# ------------------------------------------------------------------------------------------------- helpers


def _unflatten(spec: Any) -> Any:
    torch = compat.require_torch()
    return torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)


def _plain(x: Any) -> Any:
    return x if x is None or isinstance(x, bool | int | float | str) else str(x)


def _readable(guard: str) -> str:
    return guard.replace("L['", "").replace("'].size()", ".shape")


def _site(node: Any) -> Site:
    stack = node.meta.get("nn_module_stack") or {}
    module = [path for path, _ in stack.values()][-1] if stack else ""
    frames = compat.frames(node.meta.get("stack_trace"))
    if not frames:
        return Site(module=module)
    f = frames[-1]
    return Site(f.file, f.line, f.function, f.text, module)


def _has_tensor(x: Any) -> bool:
    return any(_has_tensor(y) for y in x) if isinstance(x, list | tuple) else isinstance(x, Ref)


def _text(x: Any) -> str:
    if isinstance(x, Ref):
        return "a tensor"
    if isinstance(x, list | tuple):
        return f"[{', '.join(_text(y) for y in x)}]"
    return x.text if isinstance(x, _Opaque) else repr(x)


def _same(a: Any, b: Any) -> bool:
    """Equal as an argument: lists by element, a number whatever its type, a dtype by its name."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, IntExpr):
        a = a.value
    if isinstance(a, bool) != isinstance(b, bool) and not (isinstance(a, int) and isinstance(b, int)):
        return False
    return not isinstance(a, Ref) and bool(a == b)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    out = [0] * len(order)
    for k, d in enumerate(order):
        out[d] = k
    return tuple(out)


def prune(program: Program) -> Program:
    """Without nodes, weights and constants whose results nobody reads.  Assertions and missing calls' inputs stay."""
    live = (
        {b.value for b in program.outputs}
        | {s.output for s in program.state}
        | {s.input for s in program.state}
    )
    need: set[str] = set()  # registers and data-dependent symbols in expressions
    made_by = {s.name: s.source for s in program.symbols.values()}
    kept: list[Node] = []

    def use_names(names: frozenset[str]) -> None:
        for n in names:
            need.add(n)
            live.add(n)
            if n in made_by:
                live.add(made_by[n])

    for v in (*(b.value for b in program.outputs), *(b.value for b in program.inputs)):
        use_names(frozenset(n for e in program.values[v].shape for n in e.names()))
    for node in reversed(program.nodes):
        outs = outputs_of(node)
        if isinstance(node, Assert) or any(o in live for o in outs):
            kept.append(node)
            live.update(uses_of(node))
            use_names(names_read(node))
            for o in outs:
                use_names(
                    frozenset(
                        n for e in (*program.values[o].shape, *program.values[o].strides) for n in e.names()
                    )
                )
    weights = tuple(b for b in program.weights if b.value in live)
    constants = tuple(b for b in program.constants if b.value in live)
    weights = _retied(weights)
    inputs = {b.name for b in program.inputs}
    symbols = {s.name: s for s in program.symbols.values() if s.source in inputs or s.source in live}
    trimmed = replace(program, weights=weights, constants=constants, symbols=symbols)
    return with_nodes(trimmed, reversed(kept))


def _retied(weights: tuple[Binding, ...]) -> tuple[Binding, ...]:
    """Ties name a weight that is still there."""
    have = {b.name for b in weights}
    first: dict[str, str] = {}
    out: list[Binding] = []
    for b in weights:
        if b.tie is not None and b.tie not in have:
            tie = first.setdefault(b.tie, b.name)
            b = replace(b, tie=None if tie == b.name else tie)
        out.append(b)
    return tuple(out)


# ------------------------------------------------------------------------------------------------- overloads

_DROPPED = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._assert_async.default",
        "profiler._record_function_enter_new.default",
        "profiler._record_function_exit._RecordFunction",
    }
)

_Special: TypeAlias = Callable[[_Converter, Any, Mapping[str, Any]], Item]
_View: TypeAlias = "Callable[[_Converter, Ref, Mapping[str, Any], Any], Item]"


def _cat(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """PyTorch passes over an empty tensor of rank 1 among others of any rank: what a cache is before its first use."""
    tensors = [c.item(t) for t in bound["tensors"]]
    kept = [t for t in tensors if t.layout.rank != 1 or t.layout.shape[0].value != 0]
    if not kept or len(kept) == len(tensors):
        return c.call(node, bound)
    dtype = compat.dtype_of(node.meta["val"].dtype)
    return c.cast(kept[0], dtype) if len(kept) == 1 else c.call(node, {**bound, "tensors": kept})


def _same_tensor(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    return c.item(bound.get("self", bound.get("input")))  # type: ignore[no-any-return]


def _to_copy(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    x = c.item(bound["self"])
    assert isinstance(x, Ref)
    return c.cast(x, compat.dtype_of(node.meta["val"].dtype))


def _copy(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """`copy(self, src)`: src as self's dtype and extents."""
    src = c.item(bound["src"])
    assert isinstance(src, Ref)
    src = c.cast(src, compat.dtype_of(node.meta["val"].dtype))
    return Ref(src.base, src.dtype, views.expand(src.layout, c.shape(node.meta["val"])))


def _assert_scalar(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    value = bound["self"]
    val = value.meta["val"] if hasattr(value, "meta") else value
    cond = compat.cond_of(val)
    if not isinstance(cond, bool):
        cond = _renamed(c, cond)
        if not c.certain(cond):
            c.nodes.append(Assert(cond, str(bound.get("assert_msg", "assertion of the model"))))
    elif not cond:
        raise CaptureError(f"the model's own assertion fails: {bound.get('assert_msg')}")
    return None


def _renamed(c: _Converter, cond: Cond) -> Cond:
    return (cond[0], *(c.rename(x) if isinstance(x, IntExpr) else _renamed(c, x) for x in cond[1:]))


def _assert_async(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    x = c.item(bound["self"])
    assert isinstance(x, Ref)
    id = c.fresh("n")
    c.values[id] = Value(
        id,
        DType.BOOL if x.dtype.kind == "bool" else DType.F64 if x.dtype.is_float else DType.I64,
        kind="scalar",
    )
    c.nodes.append(Read(c.materialise(x), id))
    c.nodes.append(
        Assert(("ne", IntExpr.of(id), IntExpr.of(0)), str(bound.get("assert_msg", "assertion of the model")))
    )
    return None


def _slice_scatter(c: _Converter, node: Any, bound: Mapping[str, Any]) -> Item:
    """`src` in the place of a slice of `self`: what lies before, `src`, and what lies after, joined."""
    a = {k: c.item(v) for k, v in bound.items()}
    if _expr(a["step"]).value != 1 or not isinstance(a["self"], Ref) or not isinstance(a["src"], Ref):
        return c.call(node, bound)
    x, src = a["self"], a["src"]
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    size, length = x.layout.shape[dim], src.layout.shape[dim]
    start = _expr(0 if a["start"] is None else a["start"])
    if start.value is not None and start.value < 0:
        start = start + size
    end = start + length
    src = c.cast(src, x.dtype)
    parts: list[Ref] = []
    if start.value != 0:
        parts.append(Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, IntExpr.of(0), start, length=start)))
    parts.append(src)
    if end != size:
        parts.append(Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, end, size, length=size - end)))
    if len(parts) == 1:
        return src
    inputs = (tuple(c.arg(p) for p in parts),)
    return c.made_call(node, "cat", inputs, {"dim": dim}, [0], [node.meta["val"]], False, _Prepared(a))


_SPECIAL: dict[str, _Special] = {
    "aten.clone.default": _same_tensor,
    "aten.alias.default": _same_tensor,
    "aten.detach.default": _same_tensor,
    "aten.lift_fresh_copy.default": _same_tensor,
    "aten.lift_fresh.default": _same_tensor,
    "aten.contiguous.default": _same_tensor,
    "aten._to_copy.default": _to_copy,
    "aten.copy.default": _copy,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.cat.default": _cat,
    "aten._assert_scalar.default": _assert_scalar,
    "aten._assert_async.msg": _assert_async,
}


def _expr(x: Any) -> IntExpr:
    return x if isinstance(x, IntExpr) else IntExpr.of(int(x))


def _slice(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    size = x.layout.shape[dim]
    start, end = (
        _expr(0 if a["start"] is None else a["start"]),
        _expr(MAX_INT if a["end"] is None else a["end"]),
    )
    if end.value is not None and end.value >= MAX_INT:
        end = size
    step = _expr(a["step"]).value
    if step is None:
        return None
    length = c.extent(val.shape[dim])
    return Ref(x.base, x.dtype, views.slice_dim(x.layout, dim, start, end, step, length=length))


def _split(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    dim = views.wrap_dim(a["dim"], x.layout.rank)
    sizes = [c.extent(v.shape[dim]) for v in val]
    return tuple(Ref(x.base, x.dtype, p) for p in views.split(x.layout, dim, sizes))


def _unbind(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return tuple(
        Ref(x.base, x.dtype, views.select(x.layout, a["dim"], IntExpr.of(k))) for k in range(len(val))
    )


def _as_strided(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    """Elements of torch's storage: the same as ours where the tensor was contiguous from its storage's start, there
    and (after a copy at most) here."""
    offset = 0 if a["storage_offset"] is None else a["storage_offset"]
    source = c.current.args[0].meta["val"]
    if not source.is_contiguous() or compat.extent_of(source.storage_offset()).value != 0:
        return None
    if not views.is_contiguous(x.layout) or x.layout.offset.value != 0:
        x = c.contiguous(x)
    layout = views.as_strided([_expr(n) for n in a["size"]], [_expr(n) for n in a["stride"]], _expr(offset))
    base = c.values[x.base]
    return Ref(x.base, x.dtype, layout) if product(base.shape) == x.layout.numel else None


def _by_layout(rule: Callable[[_Converter, Layout, Mapping[str, Any]], Layout]) -> _View:
    return lambda c, x, a, val: Ref(x.base, x.dtype, rule(c, x.layout, a))


def _reshape(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return c.reshape(x, c.shape(val))


def _expand(c: _Converter, x: Ref, a: Mapping[str, Any], val: Any) -> Item:
    return Ref(x.base, x.dtype, views.expand(x.layout, c.shape(val)))


_VIEWS: dict[str, _View] = {
    "aten.view.default": _reshape,
    "aten._unsafe_view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.expand.default": _expand,
    "aten.slice.Tensor": _slice,
    "aten.split_with_sizes.default": _split,
    "aten.split.Tensor": _split,
    "aten.unbind.int": _unbind,
    "aten.as_strided.default": _as_strided,
    "aten.permute.default": _by_layout(lambda c, x, a: views.permute(x, a["dims"])),
    "aten.transpose.int": _by_layout(lambda c, x, a: views.transpose(x, a["dim0"], a["dim1"])),
    "aten.t.default": _by_layout(lambda c, x, a: views.transpose(x, 0, 1) if x.rank == 2 else x),
    "aten.unsqueeze.default": _by_layout(lambda c, x, a: views.unsqueeze(x, a["dim"])),
    "aten.squeeze.default": _by_layout(lambda c, x, a: views.squeeze(x)),
    "aten.squeeze.dim": _by_layout(lambda c, x, a: views.squeeze(x, [a["dim"]])),
    "aten.squeeze.dims": _by_layout(lambda c, x, a: views.squeeze(x, a["dim"])),
    "aten.select.int": _by_layout(lambda c, x, a: views.select(x, a["dim"], _expr(a["index"]))),
    "aten.diagonal.default": _by_layout(lambda c, x, a: views.diagonal(x, a["offset"], a["dim1"], a["dim2"])),
    "aten.unfold.default": _by_layout(lambda c, x, a: views.unfold(x, a["dimension"], a["size"], a["step"])),
}


def _indexed(c: _Converter, x: Ref, indices: Sequence[Any]) -> tuple[Ref, list[Ref], list[int], bool]:
    """`x` with its indexed dims first, the indices as views of one shape, the dims, and whether they lie together."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if any(not isinstance(i, Ref) or i.dtype not in (DType.I64, DType.I32) for i in tensors):
        raise _Refused("an index is a mask: the size of its result depends on data")
    if not dims:
        raise _Refused("there is no index")
    shape = _broadcast([i.layout.shape for i in tensors])
    expanded = [Ref(i.base, i.dtype, views.expand(i.layout, shape)) for i in tensors]
    rest = [d for d in range(x.layout.rank) if d not in dims]
    first = Ref(x.base, x.dtype, views.permute(x.layout, dims + rest))
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    return first, expanded, dims, together


def _broadcast(shapes: Sequence[tuple[IntExpr, ...]]) -> tuple[IntExpr, ...]:
    rank = max(len(s) for s in shapes)
    out: list[IntExpr] = []
    for k in range(rank):
        extents = [s[k - rank + len(s)] for s in shapes if k - rank + len(s) >= 0]
        out.append(next((n for n in extents if n.value != 1), extents[0]))
    return tuple(out)


def _result_order(x: Ref, indices: list[Ref], dims: list[int], together: bool) -> tuple[int, ...] | None:
    """The permutation from `[*index shape, *rest]` to where PyTorch puts the index dims; None when it is the same."""
    n = indices[0].layout.rank
    before = dims[0] if together else 0
    if before == 0:
        return None
    rest = x.layout.rank - len(dims)
    return tuple([n + k for k in range(before)] + list(range(n)) + [n + k for k in range(before, rest)])


def _index(c: _Converter, args: dict[str, Any], val: Any) -> _Prepared:
    x, indices, dims, together = _indexed(c, args["self"], args["indices"])
    order = _result_order(x, indices, dims, together)
    shape = indices[0].layout.shape + x.layout.shape[len(dims) :]
    return _Prepared(args | {"self": x, "indices": indices}, shape, order)


def _index_put(c: _Converter, args: dict[str, Any], val: Any) -> _Prepared:
    x, indices, dims, together = _indexed(c, args["self"], args["indices"])
    order = _result_order(x, indices, dims, together)
    rest = x.layout.shape[len(dims) :]
    want = indices[0].layout.shape + rest
    at = want if order is None else tuple(want[d] for d in order)
    values = Ref(args["values"].base, args["values"].dtype, views.expand(args["values"].layout, at))
    if order is not None:
        values = Ref(values.base, values.dtype, views.permute(values.layout, _inverse(order)))
    front = dims + [d for d in range(x.layout.rank) if d not in dims]
    back = _inverse(front)
    same = list(back) == list(range(len(back)))
    return _Prepared(
        args | {"self": x, "indices": indices, "values": values}, x.layout.shape, None if same else back
    )


def _place(c: _Converter, args: dict[str, Any], fake: Any) -> _Prepared:
    """Without `dim`, the place among all elements in order."""
    if args["dim"] is not None:
        return _Prepared(args)
    if args["keepdim"]:
        raise _Refused("`keepdim` of a place among all elements")
    x = _tensor(args["self"])
    size = IntExpr.of(1)
    for n in x.layout.shape:
        size = size * n
    return _Prepared(args | {"self": c.reshape(x, (size,)), "dim": 0})


#: Overloads whose arguments are put into a canonical order before the table sees them: indexed dims of `self` first,
#: no missing indices, all of one shape; the result is a view in PyTorch's order.
_PREPARE: dict[str, Callable[[_Converter, dict[str, Any], Any], _Prepared]] = {
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index.Tensor": _index,
    "aten._unsafe_index_put.default": _index_put,
    "aten.argmax.default": _place,
    "aten.argmin.default": _place,
}


_Composed: TypeAlias = "tuple[str, tuple[Arg, ...], dict[str, AttrValue]]"


def _tensor(x: Any) -> Ref:
    if not isinstance(x, Ref):
        raise _Refused(f"{_text(x)} is no tensor")
    return x


def _constant_pad(c: _Converter, a: Mapping[str, Any]) -> _Composed:
    """Amounts from the last dim backwards, in pairs → one list before and one after, by dim."""
    x = _tensor(a["self"])
    pad = [_expr(n) for n in a["pad"]]
    before, after = [IntExpr.of(0)] * x.layout.rank, [IntExpr.of(0)] * x.layout.rank
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return (
        "constant_pad",
        (c.arg(x),),
        {"before": c.raw_attr(before), "after": c.raw_attr(after), "value": c.raw_attr(a["value"])},
    )


def _flip(c: _Converter, a: Mapping[str, Any]) -> _Composed:
    x = _tensor(a["self"])
    dims = {views.wrap_dim(d, x.layout.rank) for d in a["dims"]}
    return "flip", (c.arg(x),), {"flags": tuple(int(d in dims) for d in range(x.layout.rank))}


def _repeat(c: _Converter, a: Mapping[str, Any]) -> _Composed:
    x = _tensor(a["self"])
    layout = x.layout
    for _ in range(len(a["repeats"]) - layout.rank):
        layout = views.unsqueeze(layout, 0)
    return "repeat", (c.arg(Ref(x.base, x.dtype, layout)),), {"times": c.raw_attr(a["repeats"])}


def _empty(c: _Converter, a: Mapping[str, Any]) -> _Composed:
    """Memory that the model goes on to fill: zeros, so that a run is the same every time."""
    dtype = compat.dtype_of(c.current.meta["val"].dtype).value
    return "full", (), {"size": c.raw_attr(a["size"]), "value": 0, "dtype": dtype}


#: Overloads whose arguments no map says, as a call of an operator that means the same.  A row of the table comes first.
_COMPOSE: dict[str, Callable[[_Converter, Mapping[str, Any]], _Composed]] = {
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.empty.memory_format": _empty,
    "aten.flip.default": _flip,
    "aten.repeat.default": _repeat,
}
