"""The corpus of this checkout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from opwright.generator.spec import OpSpec
from opwright.validators.corpus import Corpus, Entry

CORPUS = Path(__file__).parent / "corpus"


@cache
def _corpus() -> Corpus:
    return Corpus(CORPUS)


def honest() -> tuple[Entry, ...]:
    """Kernels that must pass every gate."""
    return _corpus().honest


def wrong() -> tuple[Entry, ...]:
    """Kernels that must be rejected, each by the gate that it names and no other."""
    return _corpus().wrong


def spec_of(op: str, edits: Sequence[Sequence[str]] = ()) -> OpSpec:
    """The corpus spec of this name, after edits of its own document."""
    return _corpus().spec(op, edits)
