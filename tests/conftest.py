"""Fixtures for every test; the link tree is brought up to date before anything is imported.

Hypothesis draws few examples here and many at night (`--hypothesis-profile=nightly`).  A test that needs other numbers
than its neighbours should rather be split; `max_examples` in a test would hold at night as well.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

_TREE = str(runpy.run_path(str(ROOT / ".ci" / "link.py"))["link"]())
for _path in (_TREE, str(ROOT / "tests")):  # helpers that tests of several rooms share lie beside this file
    if _path not in sys.path:
        sys.path.insert(0, _path)

# No deadline: a shared machine stalls, and a slow example is no wrong one.  By day each test draws the same examples
# every time, so that a change is judged by what it changes, not by luck; at night they are new ones.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("nightly", max_examples=3000, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """The scorecard prints in the process that collects nothing, so it is registered here, not found."""
    path = ROOT / "tests" / "scorecard.py"
    spec = importlib.util.spec_from_file_location("scorecard_plugin", path)
    assert spec is not None and spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    config.pluginmanager.register(plugin, "opwright-scorecard")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty artifact cache of this test's own."""
    path = tmp_path / "cache"
    monkeypatch.setenv("OPWRIGHT_CACHE", str(path))
    return path
