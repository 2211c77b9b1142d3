"""The scorecard: how many wrong kernels of the corpus the judge killed, by family, and how often it accused good ones.

A plugin of tests/conftest.py, not a conftest beside test_corpus.py: with xdist the process that prints collects
nothing, so it would never see that one.  Every test marked `scorecard` that judges an entry carries it; the counts
are printed after the tests with Wilson's interval, which says what so many kernels can show.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

MARK = "scorecard entry"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        entry = getattr(item, "callspec", None) and item.callspec.params.get("entry")  # type: ignore[attr-defined]
        if entry is not None and item.get_closest_marker("scorecard"):
            item.user_properties.append((MARK, [entry.gate is None, entry.family]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    right: Counter[tuple[bool, str]] = Counter()
    total: Counter[tuple[bool, str]] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == MARK and report.when == "call":
                    key = (bool(value[0]), str(value[1]))
                    total[key] += 1
                    right[key] += outcome == "passed"
    if not total:
        return
    from opwright.validators.corpus import said

    terminalreporter.section("scorecard")
    killed = sum(n for (honest, _), n in right.items() if not honest)
    wrong = sum(n for (honest, _), n in total.items() if not honest)
    fair = sum(n for (honest, _), n in right.items() if honest)
    honest = sum(n for (honest, _), n in total.items() if honest)
    write = terminalreporter.write_line
    write(f"wrong kernels killed by the gate that should: {said(killed, wrong)}")
    write(f"judgements of honest kernels that accused them: {said(honest - fair, honest)}")
    for key in sorted(k for k in total if not k[0]):
        write(f"  {key[1]:<28} {right[key]} of {total[key]}")
