"""The one place that joins the rooms: a call that the runtime has no kernel for becomes spec → key → text → library.

    install()                  fill the runtime's registry from the workbench in the working directory
    bootstrap()                the same, as the entry point `opwright.bootstrap`: `import opwright as ow; ow.ops.add(…)`
    Bridge(bench).texts(…)     the texts of keys, which `generate`, the judge's source and the miss hook share

The runtime is filled with what the judge has proven, and with the groups of a program folder, whose specs lie in it.
A kernel is printed for one key and one named dialect; its text decides the library's name in the cache.

May import: everything of generator, validators and the runtime.  To add a way of making a kernel: `Bridge.text`.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import toolchain
from ..exceptions import OpTypeError
from ..generator.bind_key import Resolved
from ..generator.bound import BindKey, BoundOp, KernelText
from ..generator.errors import DomainError, OpwrightError, did_you_mean
from ..generator.gradient import NoGradientError, adjoint_of, differentiable, normal
from ..generator.program.aten import AtenRow, Rows, files_of
from ..generator.program.request import GRADIENT, gradient_text, read_gradient, resolve
from ..generator.spec import AtenEntry, Only, OpSpec, load_spec
from ..generator.spec_model import MapTarget, OnnxEntry
from .catalog import Catalog, catalog, load_row, row_of
from .kernels import Prebuilt
from .workbench import Workbench, targets_of

__all__ = [
    "Bridge",
    "Emitted",
    "NoGradientError",
    "NotProvenError",
    "adjoint_of",
    "aten_rows",
    "bootstrap",
    "differentiable",
    "install",
    "normal",
    "signature",
]

Request = Mapping[str, Any]
Answer = dict[str, Any]


class NotProvenError(OpwrightError):
    """An operator is asked for that the judge has not proven."""


# ---- what the runtime knows of an operator ------------------------------------------------------------------------


def signature(spec: OpSpec) -> dict[str, Any]:
    """The operator as `ow.registry.register_op` takes it."""
    attrs: list[dict[str, Any]] = []
    for a in spec.attrs.values():
        # None: absent, or the default expression, or (axes, dtype) "all" and "the input's".
        none = a.optional or a.default_expr is not None or a.kind in ("axes", "dtype")
        row: dict[str, Any] = {
            "name": a.name,
            "kind": a.kind,
            "static": a.is_static or a.kind in ("dtype", "enum", "str"),
            "optional": none,
        }
        if a.has_default and a.default_expr is None:
            row["default"] = list(a.default) if isinstance(a.default, tuple) else a.default
        attrs.append(row)
    return {
        "name": spec.op,
        "doc": spec.doc,
        "attrs": attrs,
        "inputs": [{"name": n, "optional": t.optional, "list": t.is_list} for n, t in spec.inputs.items()],
        "outputs": [{"name": n, "aux": t.aux} for n, t in spec.outputs.items()],
    }


def aten_rows(specs: Iterable[OpSpec]) -> Rows:
    """The table that a capture reads: overload → rows; ONNX operators are `onnx.<Op>`."""
    specs = list(specs)
    rows: dict[str, tuple[AtenRow, ...]] = {}
    for spec in specs:
        for entry in spec.aten:
            rows[entry.overload] = (*rows.get(entry.overload, ()), _row(spec, entry))
        for own in spec.onnx:
            name = f"onnx.{own.op}"
            rows[name] = (*rows.get(name, ()), _row(spec, own))
    return Rows(rows, files_of(specs))


def _row(spec: OpSpec, entry: AtenEntry | OnnxEntry) -> AtenRow:
    from ..generator.program import aten

    if isinstance(entry, OnnxEntry):  # without a map: ONNX's inputs, then attributes, by position
        name, since = f"onnx.{entry.op}", entry.since or 0
        pairs = (
            entry.map
            if entry.map is not None
            else tuple((f"#{k}", n) for k, n in enumerate((*spec.inputs, *spec.attrs)))
        )
    else:
        name, since, pairs = entry.overload, 0, tuple(targets_of(entry, spec))

    def target(to: MapTarget) -> aten.Target:
        return (
            aten.Only(tuple(to.value) if isinstance(to.value, list) else to.value)
            if isinstance(to, Only)
            else to
        )

    returns = entry.returns or tuple(n for n, t in spec.outputs.items() if not t.aux)
    return AtenRow(
        spec.op,
        name,
        tuple((a, target(to)) for a, to in pairs),
        tuple(spec.inputs),
        tuple(spec.attrs),
        tuple(spec.outputs),
        returns,
        dict(entry.set),
        since,
    )


# ---- kernels ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """One request, resolved: whose kernel, for which key, and which inputs are cast before."""

    spec: OpSpec
    resolved: Resolved
    casts: tuple[str | None, ...]


class Bridge:
    """Makes kernels of one workbench for one dialect; remembers texts and libraries while the process lives."""

    def __init__(self, bench: Workbench, dialect: str | None = None) -> None:
        self.bench = bench
        self._dialect = dialect
        self._texts: dict[tuple[str, str, str, BindKey], KernelText] = {}
        self._libraries: dict[str, Path] = {}
        self._groups: dict[str, OpSpec] = {}
        self._gradients: dict[
            str, Request
        ] = {}  # `grad:<hash>` -> whose gradient it is, for calls of no program
        self._specs: dict[str, OpSpec] = {}
        self._lock = threading.RLock()

    @property
    def dialect(self) -> str:
        if self._dialect is None:
            self._dialect = toolchain.native_dialect()
        return self._dialect

    # ---- text and library

    def text(
        self, spec: OpSpec, key: BindKey, dialect: str | None = None, *, judging: bool = False
    ) -> KernelText:
        """The kernel's text.  Raises `SpecError` where the spec has no kernel for this key.

        judging: the loops that somebody wrote, whatever the key; else they serve the keys that the judge saw them
        with, and the generated loops serve the others: whoever writes by hand may have forgotten a case."""
        from ..generator.emit import ByHand, emit

        name = dialect or self.dialect
        # `lower` chooses the text, never the answer
        at = (spec.meaning_hash(), f"{spec.lower!r}{' judging' if judging else ''}", name, key)
        with self._lock:
            if at not in self._texts:
                served = judging or self.bench.is_body_judged(spec, key.show())
                body = self.bench.body_of(spec) if served else None
                by_hand = ByHand(body.text, spec) if body is not None else None
                try:
                    self._texts[at] = emit(normal(spec, key), name, by_hand)
                except RecursionError as error:  # a list's entries are written out, one inside the other
                    longest = max((n for _, n in key.lengths), default=0)
                    raise DomainError(
                        f"`{spec.op}` is too deeply nested to be compiled"
                        + (f" for a list of {longest} entries" if longest else ""),
                        place=spec.place,
                        hint="call it for fewer entries at a time" if longest else None,
                    ) from error
            return self._texts[at]

    def libraries(
        self, texts: Sequence[KernelText], progress: toolchain.Progress | None = None
    ) -> list[Path]:
        """Each text's library, built in parallel where the cache does not have it."""
        with self._lock:
            todo = {t.symbol: t for t in texts if t.symbol not in self._libraries}
            jobs = [job_of(t) for t in todo.values()]
            built = toolchain.compile_many(jobs, progress=progress) if jobs else []
            self._libraries |= dict(zip(todo, built, strict=True))
            return [self._libraries[t.symbol] for t in texts]

    def gradient_text(self, spec: OpSpec, key: BindKey, dialect: str | None = None) -> KernelText:
        """The text of the adjoint.  Raises `NoGradientError`, `SpecError`."""
        from ..generator.emit import emit

        at = (spec.meaning_hash(), repr(spec.lower), GRADIENT + (dialect or self.dialect), key)
        with self._lock:
            if at not in self._texts:
                self._texts[at] = emit(adjoint_of(spec, key), dialect or self.dialect)
            return self._texts[at]

    # ---- the miss hook

    def __call__(self, request: Request) -> Answer:
        """The answer to one call.  What its spec does not admit is the caller's mistake: an `OpError`, as every other
        mistake in a call."""
        try:
            return self.resolve_many([request])[0]
        except DomainError as why:
            raise OpTypeError(why.message, hint=why.hint) from why

    def resolve_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answers to the runtime's requests, in order; all libraries are built at once."""
        known = [self._known(r) for r in requests]
        found = [None if k is not None else self.answering(r) for k, r in zip(known, requests, strict=True)]
        texts = [f[0] for f in found if f is not None]
        with _said_when_slow(texts):
            libraries = iter(self.libraries(texts))
        return [
            {"library": str(next(libraries)), "row": f[0].row, "casts": list(f[1])}
            if f is not None
            else k or {}
            for k, f in zip(known, found, strict=True)
        ]

    def _known(self, request: Request) -> Answer | None:
        """The answer from kernels that were built ahead of time, where they are of this very meaning."""
        if self.prebuilt is None or request.get("group"):
            return None
        name = str(request["op"])
        gradient = name.startswith(GRADIENT)
        if gradient and name not in self._gradients:
            return None
        wanted = self.wanted(self._gradients[name] if gradient else request)
        spec = wanted.spec
        row = self.prebuilt.find(spec.op, spec.meaning_hash(), wanted.resolved.key, gradient=gradient)
        if row is None:
            return None
        casts = _casts(request, row) if gradient else list(wanted.casts)
        return {"library": str(self.prebuilt.library), "row": row, "casts": casts}

    @cached_property
    def prebuilt(self) -> Prebuilt | None:
        """The kernels that came with the installation."""
        return Prebuilt.installed(self.dialect)

    def answering(self, request: Request) -> tuple[KernelText, Sequence[str | None]]:
        """The text that answers a request, and the casts of the call's flat inputs."""
        if not str(request["op"]).startswith(GRADIENT):
            wanted = self.wanted(request)
            return self.text(wanted.spec, wanted.resolved.key), wanted.casts
        op = str(request["op"])
        if not request.get("group") and op in self._gradients:
            forward = self._gradients[op]
        else:
            try:
                forward = read_gradient(Path(str(request["group"])), op)
            except ValueError as error:
                raise NotProvenError(str(error), hint="write the training program again") from error
        wanted = self.wanted(forward)
        text = self.gradient_text(wanted.spec, wanted.resolved.key)
        return text, _casts(request, text.row)

    def gradient_rule(self, request: Request) -> dict[str, Any]:
        """How the gradient of what answers the request is called (`registry.gradient_rule`)."""
        from ..generator.program.grad import rule_of

        op, _ = gradient_text(request)
        spec = self.spec_of(request)
        try:
            rule = rule_of(spec, request, op)
        except (DomainError, NoGradientError) as why:
            raise OpTypeError(why.message, hint=why.hint) from why
        self._gradients[op] = request

        whole = signature(spec)
        return {
            "signature": {
                "name": op,
                "doc": f"The gradient of `{spec.op}`.",
                "inputs": [
                    {"name": n, "optional": False, "list": isinstance(e, list)}
                    for n, e in zip(rule.takes, rule.inputs, strict=True)
                ],
                "attrs": [a for a in whole["attrs"] if a["name"] in rule.attrs],
                "outputs": [{"name": n, "aux": False} for n in rule.gives],
            },
            "inputs": rule.inputs,
            "outputs": [n for n, _ in rule.outputs],
            "attrs": list(rule.attrs),
        }

    def wanted(self, request: Request) -> Wanted:
        """The spec and key of a request."""
        return self.resolve(self.spec_of(request), request)

    @staticmethod
    def resolve(spec: OpSpec, request: Request) -> Wanted:
        """The key of a request to this spec.  Raises `DomainError` where the spec does not admit it."""
        return Wanted(spec, *resolve(spec, request))

    def spec_of(self, request: Request) -> OpSpec:
        """The spec that a request means: of a program folder, or one that may serve."""
        name = str(request["op"])
        if path := request.get("group"):
            return self.group(str(path), name)
        with self._lock:
            if name not in self._specs:
                rows = self.catalog.serves
                if name not in rows:
                    hint = did_you_mean(name, rows, what="operators")
                    raise NotProvenError(f"`{name}` is not an operator that was accepted", hint=hint)
                self._specs[name] = load_row(rows[name])
            return self._specs[name]

    def group(self, path: str, name: str) -> OpSpec:
        """A fused group's spec, from the program folder that uses it."""
        with self._lock:
            if path not in self._groups:
                specs = load_spec(path)
                if len(specs) != 1:
                    raise NotProvenError(f"{path} holds {len(specs)} operators, a group is one")
                if specs[0].op != name:
                    raise NotProvenError(
                        f"{path} holds `{specs[0].op}`, and the program calls `{name}`",
                        place=specs[0].place,
                        hint="files of two programs were mixed: capture the model again",
                    )
                self._groups[path] = specs[0]
            return self._groups[path]

    @cached_property
    def catalog(self) -> Catalog:
        """The operators that the judge has proven, and the names of the others."""
        return catalog(self.bench)

    def admit(self, spec: OpSpec) -> None:
        """Let a spec serve that has no evidence: for what is being judged or tried out, in this process only."""
        with self._lock:
            self._specs[spec.op] = spec

    # ---- the runtime

    def install(self, extra: Iterable[OpSpec] = ()) -> None:
        """Fill the runtime's registry with what is proven (and `extra`), and answer its misses."""
        from .. import registry

        rows = dict(self.catalog.serves)
        for spec in extra:
            self.admit(spec)
            rows[spec.op] = row_of(spec)
        for row in rows.values():
            registry.register_op(row.signature)
            for overload, entry in row.aten:
                registry.register_aten(overload, entry)
        for name, overloads in self.catalog.waiting.items():
            registry.register_waiting(name, overloads, f"`opwright accept {name}` judges it; then it serves")
        registry.set_miss_hook(self)


def _said_when_slow(texts: Sequence[KernelText]) -> contextlib.AbstractContextManager[None]:
    """A call that waits for a compiler says so to whoever sits before it, as the command line does: on a terminal (or
    in a session of Python's), never in a log."""
    if not texts or not (sys.stderr.isatty() or hasattr(sys, "ps1")):
        return contextlib.nullcontext()
    names = list(dict.fromkeys(str(t.row.get("op", t.symbol)) for t in texts))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    kernels = f"{len(texts)} kernels" if len(texts) > 1 else "the kernel"
    return toolchain.patience(
        f"compiling {kernels} of {', '.join(names[:3])}{more} (once; they stay in the cache)"
    )


def _casts(request: Request, row: Mapping[str, Any]) -> list[str | None]:
    """Per flat input of a call the dtype that its kernel takes, where the call gives another."""
    wanted = iter(row["inputs"])
    out: list[str | None] = []
    for given in request["inputs"]:
        if given is None:
            out.append(None)
            continue
        dtype = next(wanted)["dtype"]
        for one in given if isinstance(given, list) else [given]:
            out.append(None if one["dtype"] == dtype and not one["weak"] else str(dtype))
    return out


class Emitted:
    """The judge's view of our own kernels: a `CandidateSource` (validators/candidate.py)."""

    def __init__(self, bridge: Bridge, spec: OpSpec, dialect: str | None = None) -> None:
        self.bridge, self.spec, self.dialect = bridge, spec, dialect or bridge.dialect
        self.texts: list[KernelText] = []  # all that were judged

    def forward(self, keys: Sequence[BindKey]) -> list[KernelText]:
        texts = [self.bridge.text(self.spec, k, self.dialect, judging=True) for k in keys]
        if body := self.bridge.bench.body_of(self.spec):
            digest = hashlib.sha256(body.text.encode()).hexdigest()
            said = {"file": body.path.name, "hash": digest, "author": body.author or "not said"}
            texts = [replace(t, row={**t.row, "body": said}) for t in texts]
        return self._kept(texts)

    def gradient(self, keys: Sequence[BindKey]) -> list[KernelText]:
        asked = [k for k in keys if differentiable(self.spec, k)]
        return self._kept([self.bridge.gradient_text(self.spec, k, self.dialect) for k in asked])

    def gradient_op(self, key: BindKey) -> BoundOp:
        return adjoint_of(self.spec, key)

    def _kept(self, texts: list[KernelText]) -> list[KernelText]:
        self.texts += texts
        return texts


def job_of(text: KernelText) -> toolchain.CompileJob:
    """How a kernel's text is built."""
    return toolchain.CompileJob(
        {"kernel.cpp": text.source}, str(text.row.get("op", text.symbol)), text.dialect
    )


def install(start: Path | None = None, *, extra: Iterable[OpSpec] = ()) -> Bridge:
    """Fill the runtime from the workbench at `start` (default: the working directory)."""
    bridge = Bridge(Workbench.here(start))
    bridge.install(extra)
    return bridge


def bootstrap() -> None:
    """What the runtime calls on the first use of a name that nobody registered (pyproject.toml, entry points)."""
    install()
