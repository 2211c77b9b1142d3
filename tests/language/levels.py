"""One call taken through every level of the language: what each level must say of it.

parse    statements print, and parse to themselves again
bind     the Bound program prints, and binds to itself again
normal   the same of the Normal program, which the verifier accepts and which is Normal for good
loop     the Loop program is one that its verifier accepts
text     the kernel, built and run in every layout, gives what is wanted
oracle   what is wanted lies within the oracle's bound, of the Bound program and of the Normal one
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from kernels import Bench, Case, bound, flat_inputs, operands, parsed

from opwright.generator.bind import bind, rebind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp, show_statements
from opwright.generator.expr import parse_statements, show_block
from opwright.generator.loops import verify as verify_loops
from opwright.generator.lower import lower
from opwright.generator.normal import verify
from opwright.validators.ball import check
from opwright.validators.oracle import evaluate

LEVELS = ("parse", "bind", "normal", "loop", "text", "oracle")


def reads_back(op: BoundOp) -> None:
    """Printed, and bound again, it is the same program."""
    again = rebind(op, parse_statements(show_statements(op.body)))
    assert again.body == op.body
    assert {t.name: t for t in again.temps} == {t.name: t for t in op.temps}


def hold(level: str, cases: list[Case], bench: Callable[[], Bench]) -> None:
    """What `level` must say of each case; `bench` builds the kernels of all rules at once."""
    for c in cases:
        spec = parsed(c.spec)
        bound_op = bind(spec, key_for_call(spec, operands(c.inputs), c.attrs).key)
        normal, attrs = bound(spec, c.inputs, c.attrs)
        match level:
            case "parse":
                assert spec.compute is not None
                assert parse_statements(show_block(spec.compute)) == spec.compute
            case "bind":
                reads_back(bound_op)
            case "normal":
                verify(normal)
                reads_back(normal)
            case "loop":
                verify_loops(lower(normal))
            case "text":
                for layout in c.layouts:
                    bench().check(c, layout)
                bench().check(c, threads=2)
            case "oracle":
                flat, _ = flat_inputs(spec, c.inputs)
                given = dict(
                    zip((t.name for t in normal.inputs), (a for a in flat if a is not None), strict=True)
                )
                for op in (bound_op, normal):
                    balls = evaluate(op, given, attrs)
                    for want, (name, ball) in zip(c.want, balls.items(), strict=True):  # type: ignore[arg-type]
                        found = check(np.asarray(want), ball)
                        assert found.ratio <= 1, f"{c.name}: {name}: {found.reason}"
