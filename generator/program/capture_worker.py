"""The child process that captures a model: it runs code that others wrote, so that the parent need not.

    python -m opwright.generator.program.capture_worker TARGET OUTDIR --json

writes OUTDIR/{program/, records/, half/, inventory.json, capture.json} and prints a line of JSON for each stage
(`{"stage": "export", "seconds": 1.8}`); what the model's own code prints goes to stderr.  A failure is
OUTDIR/error.json and an exit status of 1 to 3.  The parent's side is `capture_run.run_worker`.

May import: all of generator.program.  To add a stage: a `clock(...)` in `work`.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from ..errors import MachineError, OpwrightError
from ..types import DType
from . import models, records
from . import torch_compat as compat
from .aten import AtenTable, table_loads
from .capture import capture, missing
from .capture_run import CANNOT_WRITE
from .captured import Capture, CaptureError
from .decoding_record import generates, record_decoding
from .draws import drawing
from .explain import explain
from .folder import write_folder, write_tensors
from .half import record_half
from .inventory import inventory
from .ir import Program, asserted_of_contents
from .training_record import record_training

RECORDS = 2
#: So many seconds an export may take that assumes what tensors hold: a loop over it may be of thousands of steps.
ASSUMING = 100.0
#: A record holds at most so many bytes.
RECORD_BYTES = 4 << 30
#: How often inputs are drawn until f32 and f64 take the same decisions (which keypoints, which expert).
DRAWS = 6


class Clock:
    """Seconds by stage; each is told of as it begins."""

    def __init__(self, out: IO[str] | None) -> None:
        self.out = out
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        if self.out is not None:
            print(json.dumps({"stage": stage}), file=self.out, flush=True)
        try:
            return work()
        finally:
            took = time.perf_counter() - start
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + took, 4)


def work(
    target: str,
    out: Path,
    table: AtenTable,
    *,
    keep: Sequence[str] = (),
    seed: int = 0,
    count: int = RECORDS,
    sensitive: bool = True,
    further: bool = False,
    half: bool = False,
    decoding: bool = False,
    training: bool = False,
    trust: bool = False,
    clock: Clock | None = None,
) -> dict[str, Any]:
    """Capture `target` into the folder `out`; the facts that `capture.json` holds."""
    clock = clock or Clock(None)
    if models.target_kind(target) == "onnx":
        from .onnx_record import work as onnx_work

        return onnx_work(target, out, table, seed=seed, count=count, sensitive=sensitive, clock=clock)
    out.mkdir(parents=True, exist_ok=True)
    model = clock("load", lambda: models.load(target, seed=seed, trust=trust))
    graph = partial(capture, table=table, keep=keep, further=further, report=clock)

    def captured_of(m: models.Model) -> Capture:
        return graph(
            m.module,
            m.args,
            m.kwargs,
            name=m.name,
            source=m.source,
            exported=m.exported,
            fixed=m.fixed,
            assuming=m.assuming,
        )

    model, captured = _as_far_as_it_goes(model, captured_of)
    weightless = model.meta.get("weights") == "none"
    if weightless:
        count, half = 0, False
    elif _random(captured):
        drawn = clock("draws", lambda: drawing(model, seed))
        if drawn is not model:
            model = drawn
            captured = captured_of(model)
    tensors_of = None if weightless else captured.tensors
    clock("write", lambda: write_folder(out / "program", captured.program, tensors_of))
    inv = inventory(captured.program, captured.sites, notes=captured.notes, meta=model.meta)
    (out / "inventory.json").write_text(json.dumps(inv.to_json(), indent=1), encoding="utf-8")
    facts: dict[str, Any] = {
        "schema": 1,
        "name": model.name,
        "source": model.source,
        "meta": dict(model.meta),
        "dynamic": captured.dynamic,
        "notes": list(captured.notes),
        "derived": list(captured.derived),
        "composed": list(captured.composed),
        "random": _random(captured),
        "records": [],
        "sensitivity": None,
    }
    inputs: list[Any] = []
    first64: Any = None
    for k in range(count):
        path = out / "records" / str(k)
        entry, tensors, out64 = clock("reference", partial(_record, model, captured, path, k, seed))
        facts["records"].append(entry)
        inputs.append(tensors)
        first64 = out64 if k == 0 else first64
    if sensitive and inputs:
        found = clock("sensitivity", lambda: _sensitivity(model, captured, inputs, first64, seed))
        facts["sensitivity"] = found
        for k, tensors in enumerate(inputs if found["observed"] else ()):
            wide = clock("reference", partial(records.values, captured, tensors, DType.F64))
            write_tensors(
                out / "records" / str(k) / "inner_f64.safetensors", {v: wide[v] for v in found["observed"]}
            )
    if decoding:
        facts["decoding"] = {"generates": generates(model)}
        if facts["decoding"]["generates"]:
            facts["decoding"]["why"] = _without(
                lambda: record_decoding(_of_text(model), table, out / "decoding", clock)
            )
    if training:
        facts["training"] = clock(
            "training", lambda: _without(lambda: record_training(model, captured, out / "records", seed))
        )
    if half:
        facts["half"] = _without(
            lambda: record_half(model, table, out / "half", seed=seed, further=further, clock=clock)
        )
    facts["seconds"] = clock.seconds
    (out / "capture.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def _as_far_as_it_goes(
    model: models.Model, captured_of: Callable[[models.Model], Capture]
) -> tuple[models.Model, Capture]:
    """The model with all of its inputs; with its text alone where that is captured, or supplied, and the other not.
    Where a choice in it depends on what tensors hold: for the example's choice, and refusing others; else without the
    masks that it runs without; else with masks that it holds."""
    error: OpwrightError | None = None
    whole: tuple[models.Model, Capture] | None = None
    try:
        whole = _whole_or_text(model, captured_of)
        if not model.masks or not missing(whole[1]):
            return whole
    except OpwrightError as e:
        error = e
    why = (
        error.message if error is not None else "" if whole is None else ", ".join(sorted(missing(whole[1])))
    )
    depends = error is not None and "data-dependent" in why
    if depends and hasattr(model.module, "config"):  # whoever wrote the module can say it otherwise
        with suppress(OpwrightError), within(ASSUMING):
            found, captured = _whole_or_text(replace(model, assuming=True), captured_of)
            if not missing(captured):
                return found, replace(captured, notes=(*captured.notes, *_assumed(captured)))
    for bare in models.without_masks(model):
        with suppress(OpwrightError):
            found, captured = _whole_or_text(bare, captured_of)
            if not missing(captured):
                return found, _unpadded(captured, [n for n in model.kwargs if n not in bare.kwargs], why)
    held = models.holding_masks(model) if depends else None
    if held is not None:
        with suppress(OpwrightError):
            captured = captured_of(held)
            names = [n for n in model.kwargs if n not in held.kwargs]
            if all(bool((model.kwargs[n] == 1).all()) for n in names):
                return held, _unpadded(captured, names, why)
            note = f"captured for the {', '.join(names)} of the example: {why}"
            return held, replace(captured, notes=(*captured.notes, note))
    if error is not None:
        raise error
    assert whole is not None
    return whole


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises `CaptureError` after so many seconds of this process's time.  Where signals cannot tell of them, it does
    not."""

    class Late(BaseException):  # what catches every `Exception` does not go on
        pass

    def late(*_: Any) -> None:
        raise Late

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again, should somebody catch it
    try:
        yield
    except Late:
        raise CaptureError(f"it takes longer than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _unpadded(captured: Capture, masks: Sequence[str], why: str) -> Capture:
    """The capture, which says that it takes no masks."""
    are = "is no input" if len(masks) == 1 else "are no inputs"
    note = f"captured for inputs without padding, {', '.join(masks)} {are}: {why}"
    return replace(captured, notes=(*captured.notes, note))


def _assumed(captured: Capture) -> list[str]:
    """What the program asserts of what tensors hold."""
    return [f"refuses other inputs: {n.message}" for n in asserted_of_contents(captured.program)]


def _whole_or_text(
    model: models.Model, captured_of: Callable[[models.Model], Capture]
) -> tuple[models.Model, Capture]:
    if model.plain is None:
        return model, captured_of(model)
    whole: Capture | None = None
    try:
        whole = captured_of(model)
        why = ", ".join(sorted(missing(whole)))
        if not why:
            return model, whole
    except MachineError:
        raise
    except OpwrightError as e:
        why = e.message
    plain = _of_text(model)
    try:
        captured = captured_of(plain)
    except OpwrightError:
        if whole is None:
            raise
        return model, whole
    left_out = [n for n in model.kwargs if n not in plain.kwargs]
    note = f"captured without {', '.join(left_out)}: {why}"
    if missing(captured) and whole is not None:
        return model, whole
    return plain, replace(captured, notes=(*captured.notes, note))


def _of_text(model: models.Model) -> models.Model:
    if model.plain is None:
        return model
    inputs = {k: [list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in model.plain.items()}
    meta = {k: v for k, v in model.meta.items() if k != "placeholders"} | {"inputs": inputs}
    return replace(model, kwargs=model.plain, meta=meta, plain=None)


def _random(captured: Capture) -> list[dict[str, str]]:
    """The calls that draw random numbers, by overload and site."""
    drawn = {c.aten: c.site for c in reversed(captured.program.calls) if _seeded(c.aten)}
    return [{"aten": name, "site": site} for name, site in sorted(drawn.items())]


def _seeded(name: str) -> bool:
    overload = compat.overload_of(name)
    return overload is not None and compat.seeded(overload)


def _record(
    model: models.Model, captured: Capture, path: Path, k: int, seed: int
) -> tuple[dict[str, Any], Any, Any]:
    """One set of fresh inputs, and what eager says of them: record k > 0 has another shape where shapes may vary."""
    path.mkdir(parents=True)
    names = {b.name for b in captured.program.outputs}
    for draw in range(DRAWS):
        at = seed + 100 + k + 1000 * draw
        inputs, symbols, out32 = records.fresh(model, captured, k, at)
        args, kwargs = records.call_of(model, captured, inputs)
        if captured.program.state:
            out32 = records.eager(model.module, args, kwargs, captured=captured)
        out64 = records.eager(model.module, args, kwargs, DType.F64, captured=captured)
        out32, out64 = (
            {n: t for n, t in out.items() if n.removesuffix("@2") in names or n.startswith("state:")}
            for out in (out32, out64)
        )
        if records.agree(out32, out64):
            break
    else:
        odd = [n for n in out32 if out32[n].shape != out64[n].shape]
        if odd:
            raise CaptureError(
                f"f32 and f64 give {', '.join(odd)} of different extents, at {DRAWS} draws of inputs",
                hint="the model decides by numbers that rounding changes: nothing says which is right",
            )
    used = {v for c in captured.program.calls for v in (*records.tensor_inputs(c), *(o for o in c.out if o))}
    _fits(captured.program, used, symbols, path)
    values = {i: t for i, t in records.values(captured, inputs).items() if i in used}
    write_tensors(path / "inputs.safetensors", inputs)
    write_tensors(path / "outputs_f32.safetensors", out32)
    write_tensors(path / "outputs_f64.safetensors", out64)
    write_tensors(path / "values.safetensors", values)
    own = {
        n: float((out32[n].double() - out64[n]).abs().max())
        if out32[n].is_floating_point() and out32[n].numel()
        else 0.0
        for n in out32
    }
    entry = {
        "path": f"records/{k}",
        "symbols": symbols,
        "seed": at,
        "eager_error": own,
        "bound": {
            n: records.bound(out32[n], out64[n]) if out32[n].is_floating_point() else 0.0 for n in out32
        },
    }
    (path / "record.json").write_text(json.dumps(entry, indent=1), encoding="utf-8")
    return entry, inputs, out64


def _fits(p: Program, used: set[str], symbols: Mapping[str, int], path: Path) -> None:
    """Raises `CaptureError` where a record of these values is too large to make."""
    sizes: dict[str, int] = {}
    for id in used:
        shape = p.values[id].shape
        if all(n.names() <= symbols.keys() for n in shape):
            sizes[id] = math.prod(n.evaluate(symbols) for n in shape) * p.values[id].dtype.bytes
    whole, free = sum(sizes.values()), shutil.disk_usage(path).free // 2
    if whole <= min(RECORD_BYTES, free):
        return
    most = min(RECORD_BYTES, free)
    at = max(sizes, key=lambda id: sizes[id])
    extents = [n.evaluate(symbols) for n in p.values[at].shape]
    raise CaptureError(
        f"a record of what every call is given and gives would take {whole / 2**30:.1f} GiB, of at most "
        f"{most / 2**30:.1f} (the largest value is {p.values[at].dtype.value}{extents})",
        hint="make the model or its example inputs smaller: a file.py:function builds both; "
        "`opwright inventory` needs no records",
    )


def _sensitivity(
    model: models.Model, captured: Capture, inputs: Sequence[Any], out64: Any, seed: int
) -> dict[str, Any]:
    """Of the model's own weights when they are ours, else of enlarged ones: the program is the same."""
    tensors = None
    if not model.meta.get("rescaled"):
        tensors, out64 = records.enlarged(model, captured, inputs[0], seed)
    found = records.sensitivity(captured, inputs[0], out64, tensors=tensors, seed=seed, further=inputs[1:])
    return {
        "detected": found.detected,
        "total": found.total,
        "weights": "own" if tensors is None else "rescaled",
        "missed": [list(m) for m in found.missed],
        "observed": list(found.observed),
        "by_outputs": found.by_outputs,
        "nodes": found.nodes,
    }


def _without(record: Callable[[], None]) -> str:
    """Record what a further level needs; why not, empty when it was done.  It never costs the capture itself."""
    try:
        record()
    except MachineError:
        raise
    except OpwrightError as e:
        return e.message
    except Exception as e:
        if _disk_is_full(e):
            raise
        traceback.print_exc()
        return f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:300]}"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="capture_worker", description="Capture TARGET into OUTDIR.")
    parser.add_argument("target")
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--table", type=Path, help="the aten table, as aten.table_dumps writes it")
    parser.add_argument("--keep", default="", help="overloads not to decompose, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=RECORDS, help="sets of fresh inputs to record")
    parser.add_argument("--no-sensitivity", action="store_true")
    parser.add_argument("--further", action="store_true", help="decompose what the table does not claim")
    parser.add_argument("--half", action="store_true", help="record the model in bf16 as well")
    parser.add_argument("--decoding", action="store_true", help="record a text, and a step with a cache")
    parser.add_argument("--training", action="store_true", help="record gradients and steps of AdamW")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code of a checkpoint folder")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each stage")
    options = parser.parse_args(argv)
    # The model's code may print: its words go to stderr, and the stages keep the real stdout.
    real = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    clock = Clock(real if options.json else None)
    out: Path = options.outdir
    try:
        out.mkdir(parents=True, exist_ok=True)
        table = table_loads(options.table.read_text(encoding="utf-8")) if options.table else {}
        if options.threads:
            compat.require_torch().set_num_threads(options.threads)
        keep = [k for k in options.keep.split(",") if k]
        work(
            options.target,
            out,
            table,
            keep=keep,
            seed=options.seed,
            count=options.records,
            sensitive=not options.no_sensitivity,
            further=options.further,
            half=options.half,
            decoding=options.decoding,
            training=options.training,
            trust=options.trust_remote_code,
            clock=clock,
        )
    except OpwrightError as e:
        return _failed(out, e.to_json() | {"text": e.place.text if e.place else None}, e.exit_code)
    except SystemExit as e:
        return _failed(
            out,
            {"error": "TargetError", "message": f"the model's code ended the process with status {e.code}"},
            2,
        )
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        return _failed(
            out, {"error": "MachineError", "message": f"not enough memory to capture {options.target}"}, 3
        )
    except Exception as e:
        traceback.print_exc()
        lines = str(e).strip().splitlines()
        what = f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__
        if _disk_is_full(e):
            message = f"no space left for what the capture of {options.target} writes"
            return _failed(out, {"error": "MachineError", "message": message, "hint": "free some"}, 3)
        place, hint = explain(e)
        error = CaptureError(f"capturing {options.target} failed: {what}", place=place, hint=hint)
        return _failed(out, error.to_json() | {"text": place.text if place else None}, 2)
    return 0


def _disk_is_full(e: Exception) -> bool:
    """safetensors says so in words only."""
    return getattr(e, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(e)


def _failed(out: Path, error: dict[str, Any], status: int) -> int:
    try:
        (out / "error.json").write_text(json.dumps(error), encoding="utf-8")
    except OSError:  # on a full disk the status alone tells
        return CANNOT_WRITE
    return status


if __name__ == "__main__":
    sys.exit(main())
