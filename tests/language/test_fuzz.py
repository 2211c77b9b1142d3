"""Random and mutated texts for the parser and the binder: what comes back is a spec, or an error with a place; nothing
else, and in bounded time.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

import pytest
from draw import draw

from opwright.generator.bind import bind, bind_grad
from opwright.generator.bind_key import keys_of
from opwright.generator.errors import SpecError
from opwright.generator.expr import parse_expr, parse_statements, show, show_block
from opwright.generator.normal import normalise
from opwright.generator.spec import load_spec_text
from opwright.resources import specs_dir

#: pieces of the language, for texts that look like it
WORDS = [
    "[", "]", "(", ")", "{", "}", ",", ":", "|", "*", "**", "//", "@", "=", "+=", ": set =", "\n",
    "  ", " if ", " else ", " in ", "not ", "is None", "sum[i]", "max[*k in kernel]", "A(", "T(",
    "x[*B, i]", "w[d]", "N", "*B", "i", "-inf", "0.1", "1e400", "0x10", "9" * 30, "λ", "\t", "'",
    '"', "#", "lambda: 0", "a.b", "x[::2]", "f'{x}'", "skip", "philox(1, 2, 3)",
]  # fmt: skip
#: seconds that one text may take; a hang is what this is about, not speed
PATIENCE = 60


@pytest.fixture
def impatient() -> Iterator[None]:
    """A text that takes for ever fails instead of stopping the tests."""

    def stop(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def texts() -> list[str]:
    shipped = [
        t
        for path in sorted(specs_dir().rglob("*.yaml"))
        for t in path.read_text(encoding="utf-8").split("\n---\n")
    ]
    return [*shipped, *(draw(random.Random(n))[0] for n in range(40))]


def mutated(rng: random.Random, all_texts: list[str]) -> str:
    text, other = rng.choice(all_texts), rng.choice(all_texts)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        end, start = at + rng.choice((0, 0, 1, 6, 40)), rng.randrange(len(other))
        piece = rng.choice(
            (rng.choice(WORDS), "", other[start : start + rng.choice((3, 20, 80))], text[at:end] * 2)
        )
        text = text[:at] + piece + text[end:]
    return text


def well_said(error: SpecError, *, placed: bool) -> None:
    """An error that a person can read; `placed`: each of its mistakes says where."""
    assert 0 < len(error.render()) < 100_000
    assert not placed or all(e.place is not None for e in error.errors), error


def taken(text: str) -> int:
    """How far a text gets: 0 refused as it is read, 1 at a key, 2 all the way.  Anything but `SpecError` is a fault."""
    signal.alarm(PATIENCE)
    reached = 0
    try:
        for spec in load_spec_text(text, "fuzz.yaml"):
            reached = 1
            for key in keys_of(spec, limit=2):
                normalise(bind(spec, key))
                if spec.grad is not None and spec.grad.compute is not None:
                    bind_grad(spec, key)
            reached = 2
    except SpecError as error:
        well_said(error, placed=reached == 0)
    finally:
        signal.alarm(0)
    return reached


def fuzz(numbers: range) -> list[int]:
    all_texts = texts()
    ends = []
    for number in numbers:
        text = mutated(random.Random(number), all_texts)
        try:
            ends.append(taken(text))
        except Exception as error:
            raise AssertionError(f"text {number}: {type(error).__name__}: {error}\n{text}") from error
    return ends


def test_mutated_specs_give_a_spec_or_an_error_with_a_place(impatient: None) -> None:
    ends = fuzz(range(250))
    assert {0, 2} <= set(ends), "the mutations are all too strong, or all too weak"


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(10_000, 40_000, 1000))
def test_many_mutated_specs(impatient: None, start: int) -> None:
    fuzz(range(start, start + 1000))


def soup(rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 30)))


def parsed_or_refused(text: str) -> bool:
    """Whether it parses; what does prints to a text that parses to the same."""
    signal.alarm(PATIENCE)
    try:
        block = parse_statements(text, file="fuzz.yaml", line=1, col=1)
        assert parse_statements(show_block(block)) == block
        return True
    except SpecError as error:
        well_said(error, placed=True)
        return False
    finally:
        signal.alarm(0)


def test_word_soup_is_refused_with_a_place_or_reads_back(impatient: None) -> None:
    rng = random.Random(1)
    assert not all(parsed_or_refused(soup(rng)) for _ in range(1500))
    assert parsed_or_refused("y[*B, i] = sum[k](x[*B, k] if k <= i else 0)")


def test_bytes_are_refused_too(impatient: None) -> None:
    rng = random.Random(2)
    for _ in range(500):
        text = bytes(rng.randrange(256) for _ in range(rng.randint(1, 60))).decode("latin-1")
        parsed_or_refused(text)
        taken(text)


@pytest.mark.parametrize(
    "deep", ["(" * 3000 + "x" + ")" * 3000, "-" * 5000 + "x", "x" + "[x" * 2000, "a if b else " * 2000 + "c"]
)
def test_what_is_nested_too_deeply_is_refused(impatient: None, deep: str) -> None:
    signal.alarm(PATIENCE)
    with pytest.raises(SpecError):
        parse_expr(deep, file="fuzz.yaml", line=1, col=1)


def test_every_drawn_expression_prints_and_parses_to_itself() -> None:
    for number in range(60):
        text = draw(random.Random(number))[0]
        (spec,) = load_spec_text(text, "drawn.yaml")
        assert spec.compute is not None
        for st in spec.compute:
            value = getattr(st, "value", None)
            if value is not None:
                assert parse_expr(show(value), file="f", line=1, col=1) == value


def test_found_a_control_character_says_where_it_stands() -> None:
    with pytest.raises(SpecError, match="unacceptable character") as caught:
        load_spec_text("op: a\ndoc: b\x1cc\n", "fuzz.yaml")
    place = caught.value.place
    assert place is not None and (place.line, place.column, place.text) == (2, 7, "doc: b\x1cc")
    assert "\x1c" not in caught.value.render()
