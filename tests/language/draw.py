"""Random small specs of the language, each with a call: what the property tests are about.

    spec, call = draw(random.Random(7))

A draw is a program of a few statements over three extents and a batch pack: loads with computed and shifted indices,
casts, conditions, reductions (guarded ones too), updates with every mode, a recurrence, an attribute, an optional
input.  Every index is in range by construction, and every value is moderate, so that what must come out is a number.
To add a form: a line in `expr`, `reduction`, `statement` or `update`; say in `FORMS` how the text shows it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"i": ("N", 3), "j": ("M", 2), "k": ("K", 4)}
INPUTS = {"a": "ij", "b": "jk", "c": "k", "d": "i"}
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}

#: what a text contains when the form was drawn
FORMS = {
    "shifted index": "% ", "clamped index": "min(", "condition": " if ", "sum": "sum[", "max": "max[", "prod": "prod[",
    "guarded reduction": "<= i else 0", "update": "+=", "largest": ": max =", "smallest": ": min =",
    "skip": "else skip", "recurrence": "i - 1", "optional": "is not None", "attribute": "by", "cast": "A(",
    "data index": "r[", "last writer": ": set =", "integer": "// ",
}  # fmt: skip


@dataclass
class Call:
    """A call of a drawn spec: arrays (None: absent) and attributes."""

    inputs: dict[str, Any]
    attrs: dict[str, Any]


@dataclass
class _Draw:
    rng: random.Random
    smooth: bool
    tensors: dict[str, str] = field(default_factory=lambda: dict(INPUTS))
    lines: list[str] = field(default_factory=list)

    def one(self, *options: str) -> str:
        return self.rng.choice(options)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    # ---- expressions, all in the accumulator

    def load(self, scope: str) -> str:
        fits = [n for n, ix in self.tensors.items() if set(ix) <= set(scope)]
        name = self.one(*fits) if fits and self.maybe(0.8) else self.one(*self.tensors)
        at = [x if x in scope and self.maybe(0.8) else self.at(x, scope) for x in self.tensors[name]]
        text = f"{name}[{', '.join(at) or '()'}]"
        return f"A({text})" if name in INPUTS else text

    def at(self, x: str, scope: str) -> str:
        """A computed index within the extent of `x`."""
        size = SIZES[x][0]
        y = self.one(*scope) if scope else "1"
        options = [
            f"({y} + 1) % {size}",
            f"min({y}, {size} - 1)",
            f"{size} - 1",
            f"(2 * {y}) % {size}",
            f"min({y} // 2, {size} - 1)",
        ]
        return self.one(*options, "r[i]" if x == "i" and "i" in scope else options[0])

    def expr(self, scope: str, depth: int) -> str:
        if depth == 0:
            return self.load(scope)
        a, b = self.expr(scope, depth - 1), self.expr(scope, depth - 1)
        last = scope[-1] if scope else "0"
        smooth = (
            f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"({a} / (2 + {b} * {b}))", f"tanh({a})", f"-({a})",
            f"({a} if {last} > 0 else {b})", f"sigmoid({a}) * {b}", f"({a} * by + {b})",
            f"({a}) ** 2", f"exp(-({a}) ** 2)",
            f"({a} * (A(w[j]) if w is not None else 2))" if "j" in scope else f"sqrt(1 + ({a}) ** 2)",
        )  # fmt: skip
        rough = (f"max({a}, {b})", f"min({a}, A(T(0.3)))", f"abs({a})", f"({a} if {b} > 0.1 else 0.5)")
        return self.one(*smooth) if self.smooth else self.one(*smooth, *rough)

    def reduction(self, free: str, over: str) -> str:
        kind = self.one("sum", "sum", "sum") if self.smooth else self.one("sum", "sum", "max", "prod", "min")
        body = self.expr(free + over, 1)
        if kind == "sum" and over == "k" and "i" in free and self.maybe(0.5):
            body = f"{body} if k <= i else 0"  # a range
        text = f"{kind}[{over} in {SIZES[over][0]}]({body})"
        return f"{text} * {self.load(free)}" if self.maybe(0.3) else text

    # ---- statements

    def statement(self, name: str) -> None:
        free = self.one("ij", "jk", "ik", "i", "k", "", "ijk")
        rest = [x for x in "ijk" if x not in free]
        target = f"{name}[{', '.join(f'{x} in {SIZES[x][0]}' for x in free) or '()'}]"
        if free == "ij" and self.maybe(0.3):
            self.lines.append(
                f"{target} = tanh({self.load('ij')}) + 0.5 * ({name}[i - 1, j] if i > 0 else 0)"
            )
        elif rest and self.maybe(0.6):
            self.lines.append(f"{target} = {self.reduction(free, self.one(*rest))}")
        else:
            self.lines.append(f"{target} = {self.expr(free, 2)}")
        if free and "i - 1" not in self.lines[-1] and self.maybe(0.4):
            self.update(name, free)
        self.tensors[name] = free

    def update(self, name: str, free: str) -> None:
        y = self.one("i", "j", "k")
        where = ", ".join(self.at(x, y) for x in free)
        source = self.one(*[n for n, ix in INPUTS.items() if y in ix])
        scope = INPUTS[source]
        value = f"A({source}[{', '.join(scope)}])"
        guard = f" if {y} > 0 else skip" if self.maybe(0.4) else ""
        if self.smooth or self.maybe(0.5):
            self.lines.append(f"{name}[{where}] += {value} * {self.load(scope)}{guard}")
        else:
            mode = self.one("max", "min", *(["set"] if len(scope) == 1 else []))
            if mode == "set":  # the index of the value stands in the target: see the limit in test_drawn
                where = ", ".join(f"({y} + 1) % {SIZES[x][0]}" for x in free)
            self.lines.append(f"{name}[{where}]: {mode} = {value}{guard}")

    def text(self) -> str:
        names = [f"t{n}" for n in range(self.rng.randint(1, 4))]
        for n in names:
            self.statement(n)
        whole = []
        for n in names:
            ix = self.tensors[n]
            at = ", ".join({"i": "i", "j": "j"}.get(x, f"k_{n}") for x in ix) or "()"
            whole.append(f"sum[k_{n} in K]({n}[{at}])" if "k" in ix else f"{n}[{at}]")
        self.lines.append(f"y[i, j] = T({' + '.join([self.expr('ij', 1), *whole])})")
        body = "".join(f"  {line}\n" for line in self.lines)
        return f"""\
op: drawn
types: {{T: float, A: accum(T)}}
inputs: {{a: "T[N, M]", b: "T[M, K]", c: "T[K]", d: "T[N]", r: "i64[N]", w: "optional T[M]"}}
attrs: {{by: {{type: float, default: 1.5}}}}
outputs: {{y: "T[N, M]"}}
require: ["r[i] >= 0", "r[i] < N"]
compute: |
{body}grad: {{wrt: [a, b, c, d, w], derive: true}}
"""


def draw(rng: random.Random, *, smooth: bool = False) -> tuple[str, Call]:
    """A spec's text and a call of it; `smooth`: its derivative exists everywhere."""
    text = _Draw(rng, smooth).text()
    dtype = rng.choice(("f32", "f32", "f64", "bf16"))
    numbers = np.random.default_rng(rng.getrandbits(32))
    n, m, k = (rng.choice((size, size, 1, size + 2)) for _, size in SIZES.values())
    shapes = {"a": (n, m), "b": (m, k), "c": (k,), "d": (n,), "w": (m,)}
    inputs: dict[str, Any] = {
        name: numbers.uniform(-1.5, 1.5, shape).astype(NUMPY[dtype]) for name, shape in shapes.items()
    }
    inputs["r"] = numbers.integers(0, n, (n,))
    if rng.random() < 0.5:
        inputs["w"] = None
    order = ("a", "b", "c", "d", "r", "w")
    return text, Call({name: inputs[name] for name in order}, {"by": rng.choice((1.5, -0.75, 0.0))})
