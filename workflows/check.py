"""`opwright check`: a spec by itself: language, types, marks, and every key that it admits down to Normal.

Needs no compiler, and no torch: where there is one, the overloads that a spec names are looked for in it.

May import: workbench, generator (the meaning side), validators.{overloads, torch_server}.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import click

from ..generator.bind import bind
from ..generator.bind_key import keys_of
from ..generator.errors import DomainError, OpwrightError, SpecError, did_you_mean, raise_together
from ..generator.normal import classify, normalise, verify
from ..generator.spec import OpSpec
from ..validators.overloads import mistakes
from ..validators.torch_server import composition_names
from . import console
from .bridge import adjoint_of, differentiable
from .command import command, json_option
from .workbench import Workbench

__all__ = ["Checked", "check", "check_spec"]


@dataclass(frozen=True)
class Checked:
    """What was found of a sound spec: how many keys bind, and the classes of program that they give."""

    spec: OpSpec
    keys: int
    classes: tuple[str, ...]
    grad: str


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
    raise_together(errors)
    return Checked(spec, len(keys) - turned_down, tuple(classes), grad_text(spec))


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


def check_all(specs: Iterable[OpSpec]) -> tuple[list[Checked], list[OpwrightError]]:
    """The sound ones, and all mistakes of the others."""
    sound: list[Checked] = []
    errors: list[OpwrightError] = []
    for spec in specs:
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
    in one run.  Nothing is compiled.
    """
    bench = Workbench.here()
    specs = bench.select(ops) if ops else bench.own()
    sound, errors = check_all(specs)
    if ops:
        try:  # a file that was named must stand beside the others: an overload has one operator
            _ = bench.registry
        except SpecError as error:
            errors += error.errors
    if errors:
        from ..generator.errors import ErrorGroup

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
                ]
            }
        )
        return 0
    rows = [(c.spec.op, c.keys, ", ".join(c.classes), c.grad) for c in sound]
    console.print_table(("op", "keys", "class", "grad"), rows, right=(1,))
    return 0
