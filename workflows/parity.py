"""Parity with PyTorch: a program folder, run where torch cannot be imported, against what eager said (DESIGN.md, L2).

Two rules, both for every record (fresh inputs, two shapes):
  every call   re-run on eager's own inputs, within the ball bound that the judge's oracle gives for those inputs
  end to end   error against f64 eager at most 4 × eager f32's own + 8 u max|y|

The runs happen in a child (`parity_child.py`); the comparison happens here, by the judge's code.
May import: bridge, generator.program, validators (oracle and ball), numpy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OpwrightError
from ..generator.bind import bind
from ..generator.bound import BoundOp
from ..generator.errors import JudgedError
from ..generator.program.folder import read_tensors
from ..generator.program.intexpr import IntExpr
from ..generator.program.ir import Arg, Call, Program, Read, Scalar, ScalarArg, View
from ..generator.types import DType, default_dtype
from ..validators.ball import check
from ..validators.oracle import OracleError, OracleRefusal, OracleTooLarge, evaluate
from .bridge import Bridge

__all__ = [
    "CallCheck",
    "Parity",
    "ParityError",
    "environment",
    "gathered",
    "judge_parity",
    "run_child",
    "walked",
]

Array = NDArray[Any]
Env = Mapping[str, int]


class ParityError(JudgedError):
    """The program did not run, or not as eager does."""


# ---- arguments ---------------------------------------------------------------------------------------------------


def environment(program: Program, symbols: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, int]:
    """Symbols and registers: those of the inputs, those that a recorded value's shape or content tells."""
    env = {k: int(v) for k, v in symbols.items()}
    for s in program.symbols.values():
        if s.name not in env and s.source in values:
            env[s.name] = int(values[s.source].shape[s.axis])
    for id, x in values.items():
        if id in program.values and program.values[id].rank == np.ndim(x):
            _told(program, id, np.asarray(x), env)
    for node in program.nodes:
        match node:
            case Read(base=base, out=out) if base in values:
                env[out] = values[base].reshape(-1)[0].item()
            case Scalar(out=out, expr=e) if e.names() <= env.keys():
                env[out] = e.evaluate(env)
    return env


def walked(
    program: Program,
    values: dict[str, Any],
    env: dict[str, int],
    made: Callable[[Call, list[Any] | None], Mapping[int, Any]],
) -> None:
    """Every call in order, on recorded values: `made(call, its inputs or None)` gives its outputs by position.

    Where several calls answer one node of the exported graph, eager has no value of what lies between them: such a call
    is given what the one before it made, and `values` and `env` hold that afterwards."""
    for node in program.nodes:
        match node:
            case View(base=base, out=out) if out not in values and base in values:
                exprs = (*node.shape, *node.strides, node.offset)
                if all(e.names() <= env.keys() for e in exprs):
                    values[out] = _viewed(values[base], node, env)
            case Read(base=base, out=out) if out not in env and base in values:
                env[out] = values[base].reshape(-1)[0].item()
            case Scalar(out=out, expr=e) if out not in env and e.names() <= env.keys():
                env[out] = e.evaluate(env)
            case Call():
                for k, x in made(node, gathered(node, values, env)).items():
                    id = node.out[k]
                    if id is not None and id not in values:
                        values[id] = x
                        _told(program, id, x, env)


def _viewed(base: Array, node: View, env: Env) -> Array:
    whole = np.ascontiguousarray(base).reshape(-1)[node.offset.evaluate(env) :]
    strides = [e.evaluate(env) * whole.itemsize for e in node.strides]
    shape = [e.evaluate(env) for e in node.shape]
    return np.array(np.lib.stride_tricks.as_strided(whole, shape, strides), order="C")


def _told(program: Program, id: str, x: Array, env: dict[str, int]) -> None:
    """Symbols that a value's extents are."""
    for n, extent in zip(x.shape, program.values[id].shape, strict=True):
        if extent.names() - env.keys() == {str(extent)}:
            env[str(extent)] = int(n)


def gathered(call: Call, values: Mapping[str, Any], env: Env) -> list[Any] | None:
    """The call's inputs; None where one of them was not recorded."""
    missing = object()

    def one(a: Arg) -> Any:
        if isinstance(a, ScalarArg):
            if isinstance(a.value, IntExpr):
                return a.value.evaluate(env) if a.value.names() <= env.keys() else missing
            return a.value
        if isinstance(a, tuple):
            found = [one(x) for x in a]
            return missing if any(x is missing for x in found) else found
        return None if a is None else values.get(a, missing)

    given = [one(a) for a in call.inputs]
    return None if any(g is missing for g in given) else given


def attributes(call: Call, env: Env) -> dict[str, Any]:
    """The call's attributes as plain values."""

    def plain(v: Any) -> Any:
        if isinstance(v, IntExpr):
            return v.evaluate(env)
        return [plain(x) for x in v] if isinstance(v, tuple) else v

    return {k: plain(v) for k, v in call.attrs.items()}


def request(call: Call, given: Sequence[Any], env: Env) -> dict[str, Any]:
    """What the runtime would ask the miss hook for this call."""

    def one(x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, list):
            return [one(y) for y in x]
        if isinstance(x, bool | int | float):
            return {"dtype": default_dtype(x).value, "rank": 0, "weak": True}
        return {"dtype": _name(x.dtype), "rank": x.ndim, "weak": False}

    return {"op": call.op, "inputs": [one(g) for g in given], "attrs": attributes(call, env)}


def _name(dtype: Any) -> str:
    from ..validators.harness import dtype_name

    return dtype_name(np.empty(0, dtype))


# ---- one call ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallCheck:
    """One call on eager's own inputs: worst error over its bound; `trouble` says why it could not be judged."""

    id: str
    op: str
    site: str
    ratio: float
    trouble: str = ""

    @property
    def ok(self) -> bool:
        return not self.trouble and self.ratio <= 1


class CallJudge:
    """Checks calls; a program's kernels of one key are bound once."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        self.bridge, self.folder = bridge, folder
        self._bound: dict[Any, BoundOp] = {}

    def check(self, call: Call, given: Sequence[Any], env: Env, outputs: Mapping[int, Array]) -> CallCheck:
        """Compare a call's outputs with the oracle's on the same inputs."""

        def said(ratio: float, trouble: str = "") -> CallCheck:
            return CallCheck(call.id, call.op, call.site, ratio, trouble)

        asked = request(call, given, env)
        if call.op.startswith("group:"):
            asked["group"] = str(self.folder / "groups" / f"{call.op.removeprefix('group:')}.yaml")
        try:
            wanted = self.bridge.wanted(asked)
            at = (wanted.spec.op, wanted.spec.meaning_hash(), wanted.resolved.key)
            if at not in self._bound:
                self._bound[at] = bind(wanted.spec, wanted.resolved.key)
            op = self._bound[at]
            balls = evaluate(op, _flat(wanted.spec, given), wanted.resolved.attrs)
        except OracleTooLarge:
            return said(np.inf, "too large for the oracle")
        except (OracleRefusal, OracleError, OpwrightError) as error:
            return said(np.inf, f"the oracle: {error}")
        worst = 0.0
        for k, t in enumerate(op.outputs):
            if k not in outputs:
                continue
            result = check(outputs[k], balls[t.name], t.dtype)
            if not result.passed:
                return said(float(result.ratio), f"{t.name} {result.reason}")
            worst = max(worst, float(result.ratio))
        return said(worst)


def _flat(spec: Any, given: Sequence[Any]) -> dict[str, Any]:
    """Inputs by flat name."""
    out: dict[str, Any] = {}
    for name, x in zip(spec.inputs, given, strict=True):
        if isinstance(x, list):
            out |= {f"{name}.{k}": np.asarray(y) for k, y in enumerate(x)}
        elif x is not None:
            out[name] = np.asarray(x)
    return out


# ---- the program -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parity:
    """What the comparison found.

    calls   per record and call
    error   largest end-to-end error, with the bound that it had and eager f32's own error, of the worst output
    seconds of the child's stages
    """

    calls: tuple[CallCheck, ...]
    error: Mapping[str, float]
    ratio: float
    where: str = ""
    records: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def bad_calls(self) -> tuple[CallCheck, ...]:
        return tuple(c for c in self.calls if not c.ok)

    @property
    def held(self) -> bool:
        return bool(self.calls) and not self.bad_calls and self.ratio <= 1 and self.records >= 2

    @property
    def reason(self) -> str:
        """Why it is not held, in a line."""
        if self.bad_calls:
            c = self.bad_calls[0]
            more = f" (and {len(self.bad_calls) - 1} more)" if len(self.bad_calls) > 1 else ""
            return f"{c.id} at {c.site or '?'}: {c.trouble or f'error {c.ratio:.3g} of its bound'}{more}"
        if self.ratio > 1:
            return f"{self.where}: error {self.error['max']:.3g}, at most {self.error['bound']:.3g}"
        if not self.calls:
            return "no call was compared"
        return "" if self.records >= 2 else "compared at one shape only"


def run_child(
    folder: Path,
    records: Path,
    out: Path,
    timeout: float = 600.0,
    admit: Sequence[str] = (),
    module: str = "parity_child",
) -> dict[str, float]:
    """Run the folder on the records in a process where importing torch fails; seconds by stage.  Raises what the
    child raised, as one error.  `admit`: operators that may serve there without evidence (a trial, no attempt).
    `module`: which child of ours, of the same arguments."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PYTORCH"))}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [
        sys.executable,
        "-m",
        f"{__package__}.{module}",
        str(folder),
        str(records),
        str(out),
        *admit,
    ]
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "stderr.txt", "w+", encoding="utf-8", errors="replace") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env, text=True
        )
        try:
            said, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ParityError(f"the program did not end in {timeout:.0f} s") from None
        finally:
            if child.poll() is None:
                child.kill()
                child.communicate()
        log.seek(0)
        tail = [line for line in log.read().strip().splitlines() if line][-1:]
    seconds: dict[str, float] = {}
    for line in said.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            seconds[row["stage"]] = seconds.get(row["stage"], 0.0) + row["seconds"]
    if child.returncode != 0:
        raise _child_error(out, child.returncode, tail)
    return seconds


def _child_error(out: Path, status: int, tail: Sequence[str]) -> OpwrightError:
    try:
        error = json.loads((out / "error.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return ParityError(f"the program {how}" + (f": {tail[0]}" if tail else ""))
    found: type[OpwrightError] = _MachineParityError if error.get("exit_code", status) == 3 else ParityError
    return found(f"the program does not run: {error['message']}", hint=error.get("hint"))


class _MachineParityError(OpwrightError):
    exit_code = 3


def judge_parity(
    bridge: Bridge,
    program: Program,
    folder: Path,
    records: Path,
    ran: Path,
    tell: Callable[[str, int, int], None] | None = None,
) -> Parity:
    """Compare what the child wrote (`ran`) with what eager said (`records`)."""
    judge = CallJudge(bridge, folder)
    calls: list[CallCheck] = []
    worst, where = 0.0, ""
    error = {"max": 0.0, "bound": 0.0, "eager": 0.0}
    paths = sorted(p for p in records.iterdir() if p.is_dir())
    for path in paths:
        facts = json.loads((path / "record.json").read_text(encoding="utf-8"))
        values = dict(read_tensors(path / "values.safetensors"))
        env = environment(program, facts["symbols"], values)
        got = read_tensors(ran / path.name / "calls.safetensors")

        def compared(
            call: Call, given: list[Any] | None, got: Any = got, env: Any = env
        ) -> Mapping[int, Any]:
            if tell is not None:
                tell("calls", len(calls), len(paths) * len(program.calls))
            outputs = {n: got[f"{call.id}.{n}"] for n in range(len(call.out)) if f"{call.id}.{n}" in got}
            if given is None or not outputs:
                trouble = "eager's inputs were not recorded"
                calls.append(CallCheck(call.id, call.op, call.site, np.inf, trouble))
                return {}
            calls.append(judge.check(call, given, env, outputs))
            return outputs

        walked(program, values, env, compared)
        for row in end_to_end(path, ran / path.name):
            if row[1] > worst or not where:
                worst, where, error = row[1], f"{row[0]} of record {path.name}", row[2]
    return Parity(tuple(calls), error, worst, where, len(paths))


def end_to_end(record: Path, ran: Path) -> list[tuple[str, float, dict[str, float]]]:
    """Per output, and per inner value that is observed: its name, error over bound, and the numbers: max, bound,
    eager's own."""
    rows = compared(
        read_tensors(record / "outputs_f64.safetensors"),
        read_tensors(record / "outputs_f32.safetensors"),
        read_tensors(ran / "outputs.safetensors"),
    )
    inner = record / "inner_f64.safetensors"
    if inner.exists():
        f32, got = read_tensors(record / "values.safetensors"), read_tensors(ran / "inner.safetensors")
        rows += [(f"inner value {n}", r, e) for n, r, e in compared(read_tensors(inner), f32, got)]
    return rows


def compared(
    want64: Mapping[str, Array], want32: Mapping[str, Array], got: Mapping[str, Array]
) -> list[tuple[str, float, dict[str, float]]]:
    rows = []
    for name, wide in want64.items():
        numbers = {"max": np.inf, "bound": 0.0, "eager": 0.0}
        have = got.get(name)
        if have is None or have.shape != wide.shape:
            rows.append((f"{name} is missing or of another shape", np.inf, numbers))
            continue
        if wide.dtype.kind not in "fc" and wide.dtype.name != "bfloat16":
            same = bool(np.array_equal(have, want32[name]))
            rows.append(
                (name, 0.0 if same else np.inf, {"max": 0.0 if same else np.inf, "bound": 0.0, "eager": 0.0})
            )
            continue
        rows.append((name, *float_rule(have, want32[name], wide)))
    return rows


def float_rule(got: Array, f32: Array, f64: Array) -> tuple[float, dict[str, float]]:
    """error vs f64 eager ≤ 4 × eager f32's own + 8 u max|y|"""
    if not f64.size:
        return 0.0, {"max": 0.0, "bound": 0.0, "eager": 0.0}
    kind = np.complex128 if f64.dtype.kind == "c" else np.float64
    a, b, c = got.astype(kind), f32.astype(kind), f64.astype(kind)
    # Where eager says infinity or nan, the same must stand; there is no error to measure.
    odd = ~np.isfinite(c)
    if not np.array_equal(np.where(odd, a, 0), np.where(odd, c, 0), equal_nan=True):
        return np.inf, {"max": np.inf, "bound": 0.0, "eager": 0.0}
    plain = ~odd
    error = float(np.abs(a - c)[plain].max(initial=0.0))
    own = float(np.abs(b - c)[plain].max(initial=0.0))
    bound = 4 * own + 8 * DType.F32.u * float(np.abs(c)[plain].max(initial=0.0))
    ratio = error / bound if bound > 0 else (0.0 if error == 0 else np.inf)
    return (ratio if ratio == ratio else np.inf), {"max": error, "bound": bound, "eager": own}
