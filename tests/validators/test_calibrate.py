"""The bounds against known kernels: honest ones within, every cheat outside at one size at least."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwright.validators.calibrate import STUDIES, Kernel, Measured, Study, calibrate, faults


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.op)
def test_the_bounds_are_calibrated(study: Study) -> None:
    small = replace(study, sizes=study.sizes[:2])
    measured = calibrate([small])
    assert len(measured) == 2 * len(study.kernels)
    assert faults(measured) == []
    assert max(m.ratio for m in measured if m.honest) < 0.5
    assert min(m.ratio for m in measured if not m.honest) > 1


def test_a_small_jitter_in_a_long_row_is_the_one_known_miss() -> None:
    softmax = next(s for s in STUDIES if s.op == "softmax")
    measured = calibrate([replace(softmax, sizes=(8193,))])
    assert {m.kernel for m in measured if not m.honest and m.within} == {"1e-5 jitter"}


def test_what_is_not_as_it_should_be_is_said() -> None:
    rows = [
        Measured("f", "N=1", "good", True, 1.5),
        Measured("f", "N=1", "bad", False, 0.5),
        Measured("f", "N=2", "bad", False, 0.9),
        Measured("f", "N=1", "worse", False, 0.5),
        Measured("f", "N=2", "worse", False, 2.0),
    ]
    assert faults(rows) == [
        "f N=1: good is honest, 1.5 of the bound",
        "f: bad is within the bound at every size",
    ]
    rms = next(s for s in STUDIES if s.op == "rms_norm")
    zero = replace(rms, sizes=(16,), kernels=[Kernel("zeros", True, lambda a: a["x"] * 0)])
    assert len(faults(calibrate([zero]))) == 1
