"""The two YAML parsers behind spec files give the same events wherever the quick one answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ruamel.yaml import YAML

from opwright.generator import source
from opwright.generator.errors import SpecError
from opwright.resources import specs_dir

FILES = sorted(specs_dir().rglob("*.yaml"))


def seen(e: Any) -> tuple[Any, ...]:
    """What the reader makes use of."""
    kind = type(e).__name__
    if kind.endswith("EndEvent"):
        return (kind,)
    facts = [kind, e.start_mark.line, e.start_mark.column, e.start_mark.index]
    facts += [getattr(e, "anchor", None), str(getattr(e, "tag", None)), getattr(e, "value", None)]
    if kind == "ScalarEvent" and e.style not in ("|", ">"):
        facts.append(e.end_mark.index)
    return (*facts, getattr(e, "style", None) or "")


def pure(text: str) -> list[Any]:
    return list(YAML(typ="safe", pure=True).parse(text))


@pytest.mark.parametrize("path", FILES[::8], ids=lambda p: p.stem)
def test_both_read_the_shipped_specs_alike(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    quick = source._quick(text)
    assert quick is not None, "the slow parser would be asked for a shipped file"
    assert [seen(e) for e in quick] == [seen(e) for e in pure(text)]


def test_what_the_quick_one_takes_the_other_reads_alike() -> None:
    rng = random.Random(5)
    texts = [p.read_text(encoding="utf-8")[:700] for p in FILES]
    odd = [
        *"\t:-{}[]#&*!|>'\"%@`,? \n",
        "---\n",
        "...\n",
        "\u2028",
        "é",
        "\x07",
        "%YAML 1.1\n",
        ": ",
        "? ",
        "<<",
    ]
    taken = 0
    for _ in range(150):
        text = list(rng.choice(texts))
        for _ in range(rng.randint(0, 2)):
            text[rng.randrange(len(text))] = rng.choice(odd)
        quick = source._quick("".join(text))
        if quick is not None:
            taken += 1
            assert [seen(e) for e in quick] == [seen(e) for e in pure("".join(text))], "".join(text)
    assert taken > 5


def test_a_tab_is_called_a_tab() -> None:
    with pytest.raises(SpecError, match="a tab stands here") as e:
        source.read_documents("op: x\ndoc:\tA sum.\n", "x.yaml")
    assert e.value.hint == "write a space after the `:`"
    assert e.value.place is not None and (e.value.place.line, e.value.place.column) == (2, 5)
