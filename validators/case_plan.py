"""Which cases a tier has: their names, in order, each once.

May import: draws, sizes, generator.{expr, spec, types}.
To add a source of cases: its names in `Plan.names`, its making in `case_calls.Calls.make_call` or `cases.Builder`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..generator.expr import Name
from ..generator.spec import OpSpec
from ..generator.spec_model import TensorType
from ..generator.types import DType
from .draws import INDEX_CLASSES, VALUE_CLASSES
from .sizes import RUNGS

if TYPE_CHECKING:
    from .cases import Builder

__all__ = ["MAX_ELEMENTS", "Plan"]

#: Elements of a moderate case.
MAX_ELEMENTS = 1 << 14


class Plan:
    """Names of the cases of a tier.  all_types: two cases at least of each type that the operator takes."""

    def __init__(
        self, builder: Builder, tier: str, dtypes: tuple[DType, ...], *, all_types: bool = False
    ) -> None:
        if tier not in ("quick", "full"):
            raise ValueError(f"no tier `{tier}`")
        self.b, self.spec, self.full = builder, builder.spec, tier == "full"
        self.all_types = all_types and not builder.spec.by_hand  # bodies are asked of every type as it is
        # A printer treats dtypes alike; whoever writes by hand may have forgotten one.  Complex numbers are asked of
        # those alone that take nothing else: a body serves what it was judged with, generated loops the rest.
        self.dtypes = dtypes
        if builder.spec.by_hand:
            only = all(d.is_complex for _, admitted in builder.choices for d in admitted)
            self.dtypes = (*dtypes, *(d for d in DType if d not in dtypes and (only or not d.is_complex)))
        self.values = self.spec.test.values or ("exact", "normal")
        self.layouts = ("contiguous", *(x for x in self.spec.test.layouts if x != "contiguous"))
        self.sources = [f"case{k}" for k in range(len(self.spec.test.cases))] or ["base"]
        self.index = (
            "uniform"
            if any(_integer(rule) for _, rule in self.b.choices)
            or any(_fixed(self.spec, t) in ("i64", "i32") for t in self.spec.inputs.values())
            else "-"
        )

    def combinations(self) -> list[str]:
        """Types of the cases: all f32 (i64 for integers) first, then each other dtype that some variable admits."""
        choices = self.b.choices
        if not choices:
            return ["-"]

        def usual(admitted: tuple[DType, ...]) -> DType:
            order = (DType.F32, DType.I64, *self.dtypes, *admitted)
            return next((d for d in order if d in admitted and d in self.dtypes), admitted[-1])

        out = ["+".join(usual(a).value for _, a in choices)]
        for d in self.dtypes:
            text = "+".join((d if d in a else usual(a)).value for _, a in choices)
            if text not in out:
                out.append(text)
        floats = [k for k, (_, a) in enumerate(choices) if DType.BF16 in a and DType.F32 in a]
        if len(floats) > 1 and DType.BF16 in self.dtypes:
            mixed = [usual(a).value for _, a in choices]
            mixed[floats[0]] = DType.BF16.value
            out.append("+".join(mixed))
        return list(dict.fromkeys(out))

    def names(self) -> list[str]:
        """In order, each once."""
        types = self.combinations()
        main, others = types[0], types[1:]
        out: list[str] = []

        def add(
            source: str, t: str, values: str, layout: str = "contiguous", index: str = "", given: str = "all"
        ) -> None:
            if source.startswith("case"):
                only = self.b.declared(int(source[4:])).types
                if only and t not in only and not any(n in only for n in t.split("+")):
                    return
            name = f"{source}/{t}/{values}/{layout}/{index or self.index}/{given}"
            if name not in out:
                out.append(name)

        roomy = self.roomy()
        self.declared_cases(add, main)
        for k, source in enumerate(self.sources):
            for t in self.b.declared(k).types if source.startswith("case") else ():
                if "+" in t:  # a mixture that is named, whatever else the tier has
                    add(source, t, self.finite())
        self.edges(add, main, roomy)
        for layout in (*self.layouts, "offset"):
            add(roomy, main, self.finite(), layout)
        if self.index != "-":
            for index in INDEX_CLASSES[1:]:
                add(roomy, main, self.finite(), index=index)
        self.presence(add, main)
        for a in self.spec.attrs.values():
            for k in range(len(self.b.domain(a))):
                add(f"attr.{a.name}.{k}", main, self.finite())
        for a in self.spec.attrs.values():
            for k in range({"axis": 1, "axes": 2}.get(a.kind, 0)):
                add(f"axes.{a.name}.{k}", main, self.finite())
        for a in self.spec.attrs.values():
            if a.kind == "scalar" and not isinstance(a.static, tuple):
                add(f"zero.{a.name}", main, "nan_inf")  # a factor of nothing may leave out what it multiplies
        for a in self.spec.attrs.values():
            for k in range(
                0 if a.static is True else len(self.b.edges_of(a))
            ):  # each a kernel: the gate meaning asks
                add(f"edge.{a.name}.{k}", main, self.finite())
        declared = [self.b.declared(k).attrs for k in range(len(self.spec.test.cases))]
        for a in self.spec.attrs.values():
            if a.has_default and declared and all(a.name in given for given in declared):
                add(f"default.{a.name}", main, self.finite())  # else nobody ever leaves it out
        all_types = self.full or self.spec.by_hand
        picked = others if all_types else [others[self.b.seed % len(others)]] if others else []
        for n, t in enumerate(picked):
            if self.full:
                self.declared_cases(add, t)
                self.edges(add, t, roomy)
            else:
                add(roomy, t, self.finite())
                add(roomy, t, self.values[0], self.layouts[-1])
                for values in (
                    "nan_inf",
                    "int_limits",
                    "wide",
                ):  # whoever writes by hand writes a branch for a type
                    add(roomy, t, values)
            for k in range(3 if self.full else 1):
                add(f"draw{20 + 3 * n + k}", t, self.finite())
        for k in range(12 if self.full else 4):
            add(
                f"draw{k}",
                main,
                self.values[k % len(self.values)] if k % 2 else self.finite(),
                self.layouts[k % len(self.layouts)],
            )
        if self.spec.inplace:
            # An output takes the storage of an input of its own shape: draws may leave none, where inputs broadcast.
            for k in range(4):
                add(f"alike{k}", main, self.values[k % len(self.values)] if k % 2 else self.finite())
        self.sizes(add, main, others)
        self.refusals(add, main)
        if self.all_types:
            seen = {n.split("/")[1] for n in out}
            for t in Plan(self.b, "quick", tuple(DType)).combinations():
                if t not in seen:
                    add(roomy, t, self.finite())
                    add(roomy, t, self.values[0], self.layouts[-1])
        return out

    def sizes(self, add: Any, main: str, others: Sequence[str]) -> None:
        """Every rung of the ladder: for the main types from each extent that can grow, else from one."""
        names = max(
            (len(self.b.growable(self.b.declared(k))) for k in range(len(self.spec.test.cases))), default=2
        )
        for rung, on in enumerate(RUNGS):
            if on.chain:
                for variant in range(names if self.full else min(names, 3)):
                    add(f"size{rung}.{variant}", main, "all_equal")
                    # Of equal numbers no wrong place shows; and one that is drawn may be a near one.
                    add(f"size{rung}.{variant}", main, "exact", index="" if self.index == "-" else "bounds")
                continue
            if on.few:
                for variant in range(names if self.full else min(names, 3)):
                    values = "exact" if (variant + self.b.seed) % 3 == 2 else self.finite()
                    add(f"size{rung}.{variant}", main, values)
                continue
            if not self.full:
                for variant in range(2):
                    add(f"size{rung}.{self.b.seed % 8 + variant}", main, self.finite())
                add(f"size{rung}.{(self.b.seed + rung) % 8}", main, "exact")
                if not rung:  # a number of the one size that is wrong takes some hundreds to draw
                    add(f"size{rung}.{self.b.seed % 8}", main, "wide")
                continue
            for variant in range(min(2 * names, 6)):
                for values in (self.finite(), "exact"):
                    add(f"size{rung}.{variant}", main, values)
            for values in ("nan", "mixed", "wide"):
                add(f"size{rung}.{names - 1}", main, values)
            for k, types in enumerate(others):
                add(f"size{rung}.{k + rung}", types, "exact" if (k + rung) % 2 else self.finite())

    def declared_cases(self, add: Any, types: str) -> None:
        for k, source in enumerate(self.sources):
            if self.full:
                for j, values in enumerate(self.values):
                    add(source, types, values, self.layouts[(j + k) % len(self.layouts)])
                for j, layout in enumerate(self.layouts):
                    add(source, types, self.values[j % len(self.values)], layout)
            else:
                add(source, types, self.values[k % len(self.values)])

    def edges(self, add: Any, types: str, source: str) -> None:
        extra = ("nan_inf", "zeros", "inf", "halves", "wide")
        if self.full:
            extra += (
                "large",
                "tiny",
                "denormal",
                "all_equal",
                "int_limits",
                "mixed",
                "exact",
                "nan",
            )  # type: ignore[assignment]
        for values in dict.fromkeys((*self.values, *extra)):
            add(source, types, values)

    def presence(self, add: Any, types: str) -> None:
        optional = [n for n, t in self.spec.inputs.items() if t.optional]
        masks = [optional, *([n] for n in optional)] if len(optional) > 1 else [optional] if optional else []
        for mask in masks:
            add(self.roomy(), types, self.finite(), given=f"no:{'+'.join(mask)}")

    def refusals(self, add: Any, types: str) -> None:
        for k in range(len(self.spec.require)):
            add(f"rule{k}", types, "normal", index="-")
        for a in self.spec.attrs.values():
            if a.kind in ("axis", "axes"):
                add(f"axis.{a.name}", types, "normal", index="-")
        if self.spec.inputs:
            add("shape", types, "normal", index="-")

    def finite(self) -> str:
        return next(
            (v for v in ("normal", *self.values) if v in self.values and VALUE_CLASSES[v].finite), "normal"
        )

    def roomy(self) -> str:
        """The declared case of most axes longer than 1, of moderate size."""
        best, source = -1.0, self.sources[0]
        for s in self.sources:
            if not s.startswith("case"):
                continue
            dims = self.b.declared(int(s[4:])).dims
            sizes = [
                e for v in dims.values() for e in (v if isinstance(v, tuple) else (v,)) if isinstance(e, int)
            ]
            if 0 in sizes or math.prod(sizes) > MAX_ELEMENTS:
                continue
            score = sum(e > 1 for e in sizes) + math.log2(1 + math.prod(sizes)) / 100
            if score > best:
                best, source = score, s
        return source


def _fixed(spec: OpSpec, t: TensorType) -> str:
    """The dtype that an input always has, written as it is or under a name; else the name of its variable."""
    rule = spec.types.get(t.dtype)
    return rule.id if isinstance(rule, Name) else t.dtype


def _integer(dtypes: tuple[DType, ...]) -> bool:
    return all(d.is_integer for d in dtypes)
