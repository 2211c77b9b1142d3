"""`opwright check`: a spec by itself: language, types, marks, and every key that it admits down to Normal.

Needs no compiler, and no torch: where there is one, the overloads that a spec names are looked for in it.

What is surely wrong is an error; what seldom is what was meant (a name that nothing reads, a draft's own words) is a
warning, and changes no exit code.

May import: workbench, new (what a draft leaves open), generator (the meaning side), validators.{cases, overloads,
torch_server}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..generator.bind import bind
from ..generator.bind_key import keys_of
from ..generator.errors import (
    DomainError,
    ErrorGroup,
    OpwrightError,
    Place,
    SpecError,
    did_you_mean,
    raise_together,
)
from ..generator.normal import classify, normalise, verify
from ..generator.spec import OpSpec
from ..generator.spec_check import unused
from ..generator.types import DType
from ..validators.cases import impossible
from ..validators.overloads import mistakes
from ..validators.torch_server import composition_names
from . import console
from .bridge import adjoint_of, differentiable
from .command import command, json_option
from .new import undecided
from .workbench import Workbench

__all__ = ["Checked", "Warned", "check", "check_spec"]

_DTYPES = re.compile(rf"\b({'|'.join(d.value for d in DType)})\b")


@dataclass(frozen=True)
class Warned:
    """What may be meant and seldom is."""

    message: str
    place: Place
    hint: str = ""

    def render(self) -> str:
        """As errors are rendered, under another word."""
        return (
            SpecError(self.message, place=self.place, hint=self.hint)
            .render()
            .replace("error: ", "warning: ", 1)
        )

    def to_json(self) -> dict[str, Any]:
        data = {"message": self.message, "file": self.place.file, "line": self.place.line}
        return data | ({"hint": self.hint} if self.hint else {})


@dataclass(frozen=True)
class Checked:
    """What was found of a sound spec: how many keys bind, and the classes of program that they give."""

    spec: OpSpec
    keys: int
    classes: tuple[str, ...]
    grad: str
    warnings: tuple[Warned, ...] = ()


def check_spec(spec: OpSpec) -> Checked:
    """Bind and normalise every key; then the gradient.  Raises one `SpecError` with all mistakes."""
    errors: list[SpecError] = []
    if missing := missing_composition(spec):
        errors.append(missing)
    errors += [SpecError(m.message, place=m.place, hint=m.hint) for m in mistakes(spec)]
    classes: dict[str, None] = {}
    keys = keys_of(spec)
    turned_down = 0
    if not keys:
        raise SpecError(f"`{spec.op}` admits no key: no dtypes fit its `types`", place=spec.place)
    for key in keys:
        try:
            op = normalise(bind(spec, key))
            verify(op)
            classes[classify(op)] = None
            if differentiable(spec, key):
                adjoint_of(spec, key)
        except (
            DomainError
        ) as error:  # a rule over dtypes or presence: no key of this operator, unless it is every one
            turned_down += 1
            if turned_down == len(keys):
                errors.append(_placed(error, spec))
        except SpecError as error:
            errors.append(_placed(error, spec))
    if not errors:  # a case is asked of what is sound
        errors += [_case_error(spec, k, why) for k, why in impossible(spec)]
    raise_together(_alike(errors))
    return Checked(spec, len(keys) - turned_down, tuple(classes), grad_text(spec), warnings_of(spec))


def warnings_of(spec: OpSpec) -> tuple[Warned, ...]:
    """What a sound spec says that was hardly meant."""
    found = [Warned(what, span.place if span else spec.place, hint) for span, what, hint in unused(spec)]
    found += [Warned(what, spec.place, hint) for what, hint in undecided(spec)]
    return tuple(found)


def _case_error(spec: OpSpec, k: int, why: str) -> SpecError:
    spans = spec.test.spans
    return SpecError(
        f"case {k} is no call that `{spec.op}` takes: {why}",
        place=spans[k].place if k < len(spans) else spec.place,
        hint="write a case that it takes; the judge makes calls that it must refuse by itself",
    )


def _alike(errors: Sequence[SpecError]) -> list[SpecError]:
    """Errors of one place that differ in a dtype alone are one, which names them all."""
    groups: dict[object, list[SpecError]] = {}
    for error in [single for e in errors for single in e.errors]:
        at = (error.place.file, error.place.line, error.place.column) if error.place else None
        groups.setdefault((at, _DTYPES.sub("…", error.message)), []).append(error)  # type: ignore[arg-type]
    out = []
    for group in groups.values():
        first = group[0]
        found = _DTYPES.findall(first.message)
        if len(group) > 1 and len(found) == 1:
            names = dict.fromkeys(d for e in group for d in _DTYPES.findall(e.message))
            first.message = _DTYPES.sub(", ".join(names), first.message)
        out.append(first)
    return out


def composition_of(spec: OpSpec) -> str:
    """NAME of `reference: compositions.NAME`; empty where the spec names something else."""
    module, _, name = (spec.reference or "").rpartition(".")
    return name if module == "compositions" else ""


def missing_composition(spec: OpSpec) -> SpecError | None:
    """What is wrong with `reference: compositions.NAME`, if NAME is not there."""
    name, names = composition_of(spec), composition_names()
    if not name or name in names:
        return None
    return SpecError(
        f"`{spec.op}` names the composition `{name}`, which validators/compositions*.py do not have",
        place=spec.place,
        hint=did_you_mean(name, sorted(names), what="compositions"),
    )


def _placed(error: SpecError, spec: OpSpec) -> SpecError:
    if error.place is None:
        error.place = spec.place
    return error


def grad_text(spec: OpSpec) -> str:
    """How the spec has its gradient, in one word or two."""
    g = spec.grad
    if g is None or g.none is not None:
        return "none"
    return "declared" if g.compute is not None else "derived"


def check_all(
    specs: Iterable[OpSpec], said: Callable[[str], None] = lambda _: None
) -> tuple[list[Checked], list[OpwrightError]]:
    """The sound ones, and all mistakes of the others.  said: is told of each operator before it is read."""
    sound: list[Checked] = []
    errors: list[OpwrightError] = []
    for spec in specs:
        said(spec.op)
        try:
            sound.append(check_spec(spec))
        except SpecError as error:
            errors += error.errors
    return sound, errors


@command(
    "check",
    example=[
        "opwright check softmax",
        "opwright check specs/ops/norm/softmax.yaml",
        "opwright check                 # every operator of this workbench",
    ],
)
@click.argument("ops", nargs=-1, metavar="[OP]...")
@json_option
def check(ops: tuple[str, ...], as_json: bool) -> int:
    """Read specs: language, types, and every key that they admit.

    OP is an operator's name or the path of a spec file.  Mistakes are shown with file, line and column, all of them
    in one run.  Nothing is compiled.  Warnings change no exit code.
    """
    with console.progress("reading specs", quiet=as_json, after_s=2.0) as progress:
        bench = Workbench.here()
        specs = bench.select(ops) if ops else bench.own()
        sound, errors = check_all(specs, lambda op: progress.step(f"checking {op}"))
        if ops:
            progress.step("reading the other specs: an overload has one operator")
            try:  # a file that was named must stand beside the others
                _ = bench.registry
            except SpecError as error:
                errors += error.errors
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(errors)
    if as_json:
        console.print_json(
            {
                "ops": [
                    {
                        "name": c.spec.op,
                        "family": c.spec.family,
                        "file": c.spec.file,
                        "line": c.spec.line,
                        "keys": c.keys,
                        "classes": list(c.classes),
                        "grad": c.grad,
                        "meaning": c.spec.meaning_hash(),
                    }
                    for c in sound
                ],
                "warnings": [w.to_json() for c in sound for w in c.warnings],
            }
        )
        return 0
    rows = [(c.spec.op, c.keys, ", ".join(c.classes), c.grad) for c in sound]
    for w in (w for c in sound for w in c.warnings):
        console.note(w.render())
    console.print_table(("op", "keys", "class", "grad"), rows, right=(1,))
    return 0
