"""The rows of a suite, read from its YAML file beside this module: what is measured, by class, and the goals.

    - class: elementwise at 1M        # the class of SPEED.md
      goals: {best: 1.3}              # as `rounds.goals_of` reads them; a row may have its own
      rows:
        - {name: "gelu, 1M", op: gelu, with: {B: [1048576]}, types: [f32, bf16]}
        - {name: "rope, 1M", model: rope}         # a module of whole.py, measured as a program

May import: rows, workload, models.  To add a row: a line of speed.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ..workbench import Workbench
from .rows import Plan, measure_op
from .sides import Sides
from .workload import Workload

__all__ = ["SuiteRow", "chosen", "read"]


@dataclass(frozen=True)
class SuiteRow:
    """One row: an operator at a workload, or a model of whole.py."""

    name: str
    cls: str
    dtype: str
    op: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "contiguous"
    absent: tuple[str, ...] = ()
    model: str = ""
    goals: Mapping[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return {"class": self.cls}

    @property
    def limited(self) -> bool:
        """Whether a goal is a share of what memory gives."""
        return bool({"copy", "read"} & set(self.goals))

    def measurer(self, bench: Workbench, progress: Any) -> Callable[[Sides, Plan], dict[str, Any]]:
        if self.model:
            from . import models

            row = models.row_named(self.model, self.dtype)
            return row.measurer(bench, progress, self.goals)
        spec = bench.registry.get(self.op)
        work = Workload(self.given, self.dtype, layout=self.layout, absent=self.absent)
        # A suite's rows are as large as they say.
        return lambda sides, plan: measure_op(sides, spec, work, replace(plan, full=True), self.goals)


def read(name: str) -> list[SuiteRow]:
    """All rows of a suite, one for each dtype."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    out = []
    for group in yaml.safe_load(text):
        for r in group["rows"]:
            for dtype in r.get("types", ["f32"]):
                goals = r.get("goals", group.get("goals", {}))
                goals = goals.get(dtype, {}) if any(isinstance(g, dict) for g in goals.values()) else goals
                out.append(
                    SuiteRow(
                        f"{r['name']}, {dtype}",
                        group["class"],
                        dtype,
                        r.get("op", ""),
                        r.get("with", {}),
                        r.get("layout", "contiguous"),
                        tuple(r.get("without", ())),
                        r.get("model", ""),
                        {k: float(v) for k, v in goals.items()},
                    )
                )
    return out


def chosen(row: SuiteRow, only: str, dtypes: Sequence[str]) -> bool:
    """Whether a row is asked for, by a part of its name or class and its dtype."""
    asked = only in row.name or only in row.cls
    return asked and (not dtypes or row.dtype in dtypes)
