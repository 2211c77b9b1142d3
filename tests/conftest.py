"""Fixtures for every test; the link tree is brought up to date before anything is imported."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

_TREE = str(runpy.run_path(str(ROOT / ".ci" / "link.py"))["link"]())
if _TREE not in sys.path:
    sys.path.insert(0, _TREE)


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
