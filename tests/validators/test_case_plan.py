"""Names of cases: those that `all_types` adds."""

from __future__ import annotations

from opwright.generator.types import DType
from opwright.validators.cases import make_cases
from opwright.validators.judge import judged_keys

from .oracle_help import specs


def test_all_types_add_keys_and_change_none() -> None:
    spec = specs()["rms_norm"]
    few, every = judged_keys(spec, "quick"), judged_keys(spec, "quick", all_types=True)
    assert every[: len(few)] == few
    assert {k.dtype("T") for k in every} == {DType.F16, DType.BF16, DType.F32, DType.F64}
    assert {k.dtype("T") for k in few} < {k.dtype("T") for k in every}
    extra = [c.name for c in make_cases(spec, "quick", all_types=True) if "/f16/" in c.name]
    assert len(extra) == 2
