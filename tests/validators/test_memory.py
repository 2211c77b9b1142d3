"""A judgement takes no more memory than it may, and says so where it would."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from opwright.validators import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's limit is Linux's")


def test_a_process_within_takes_no_more_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(memory, "OWN", 64 << 20)
    with memory.limited():
        np.zeros(1 << 20)
        with pytest.raises(MemoryError):
            np.zeros(1 << 27)
        with memory.limited(), pytest.raises(MemoryError):
            np.zeros(1 << 27)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_all_bounds_together_stay_under_four_gibibytes() -> None:
    assert memory.OWN + memory.ARENA + memory.WORKER < 4 << 30
