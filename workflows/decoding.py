"""Level L4: with a key/value cache the greedy text is eager's, token for token (DESIGN.md).

Eager's text is that of whole forwards without a cache.  The step of the program is given that text one token at a
time, so its cache holds what it computed itself, and each token that it would write is compared with the one that eager
wrote next.  Where they differ, eager's own choice must have been open: the gap between its two largest logits, in f64,
at most

    4 × max |eager f32's − f64|  +  8 u max |f64|      over the logits of that place

May import: parity (its rule), generator.program (folder), numpy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..generator.program.folder import read_tensors
from .parity import float_rule

__all__ = ["Decoded", "judge_decoding"]


@dataclass(frozen=True)
class Decoded:
    """What the comparison found: tokens compared, how many of them eager's choice left open; of the logits the largest
    error, its bound by the L2 rule and eager's own."""

    held: bool
    reason: str = ""
    tokens: int = 0
    open: int = 0
    error: Mapping[str, float] = field(default_factory=dict)


def judge_decoding(text: Path, ran: Path) -> Decoded:
    """Compare what the child wrote (`ran`) with what eager wrote (`text`)."""
    f32, f64 = (read_tensors(text / f"logits_{n}.safetensors")["logits"] for n in ("f32", "f64"))
    got = read_tensors(ran / "logits.safetensors")["logits"]
    tokens = read_tensors(text / "inputs.safetensors")["text"]
    prompt = int(json.loads((text / "text.json").read_text(encoding="utf-8"))["prompt"])
    if got.shape != f64.shape:
        return Decoded(False, f"logits of shape {list(got.shape)}, eager's have {list(f64.shape)}")
    _, error = float_rule(got, f32, f64)
    count = undecided = 0
    for at in range(prompt - 1, tokens.shape[1] - 1):
        for row in range(tokens.shape[0]):
            count += 1
            exact = f64[row, at]
            ours, written = int(np.argmax(got[row, at])), int(tokens[row, at + 1])
            if ours == written and np.isfinite(got[row, at][ours]):
                continue
            _, limit = float_rule(got[row, at], f32[row, at], exact)
            second, first = np.sort(exact[np.isfinite(exact)])[-2:]
            if first - second > limit["bound"] or exact[ours] < second:
                reason = f"token {at + 2 - prompt} of text {row} is {ours}, eager's is {written}"
                return Decoded(False, reason, count, undecided, error)
            undecided += 1
    return Decoded(True, "", count, undecided, error)
