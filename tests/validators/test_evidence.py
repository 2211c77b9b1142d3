"""Evidence: sorted, atomic, merged by dialect, and honest about what it is worth."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from opwright.generator.bound import KernelText
from opwright.validators import evidence
from opwright.validators.evidence import (
    EvidenceError,
    evidence_path,
    freshness,
    load,
    record,
    reproduces,
    text_hash,
)
from opwright.validators.verdict import FAILED, NOT_APPLICABLE, NOT_HERE, PASSED, Failure, GateResult, Verdict


def verdict(
    dialect: str = "cpu-portable",
    *,
    meaning: str = "m1",
    text: str = "t1",
    worst: float = 0.25,
    state: str = PASSED,
) -> Verdict:
    gates = (
        GateResult("numerics", state, cases=12, minimum=8, worst=worst),
        GateResult("inplace", NOT_APPLICABLE),
    )
    return Verdict(
        "softmax",
        meaning,
        "aten._softmax.default",
        dialect,
        text,
        "full",
        0,
        gates,
        ("T=f32",),
        ("namespaces",),
        (("compiler", "g++ 12"), ("torch", "2.13")),
    )


def test_the_file_is_sorted_and_round_trips(tmp_path: Path) -> None:
    path = record(tmp_path, verdict())
    text = path.read_text(encoding="utf-8")
    top = [line.split(":")[0] for line in text.splitlines() if not line.startswith(" ")]
    assert top == sorted(top) == ["dialects", "meaning", "meaning_source", "op", "schema"]
    back = load(tmp_path, "softmax")
    assert back is not None
    proof = back.proofs["cpu-portable"]
    assert proof.gates["numerics"] == {"state": "passed", "cases": 12, "minimum": 8, "worst": 0.25}
    assert proof.sandbox_missing == ("namespaces",)
    assert evidence.dump(back) == text


def test_dialects_are_kept_while_the_meaning_is_the_same(tmp_path: Path) -> None:
    record(tmp_path, verdict("cpu-avx2"))
    record(tmp_path, verdict("cpu-portable"))
    both = load(tmp_path, "softmax")
    assert both is not None
    assert sorted(both.proofs) == ["cpu-avx2", "cpu-portable"]
    record(tmp_path, verdict("cpu-portable", meaning="m2"))
    one = load(tmp_path, "softmax")
    assert one is not None
    assert sorted(one.proofs) == ["cpu-portable"]


def test_a_proof_of_a_text_that_is_no_longer_printed_is_dropped(tmp_path: Path) -> None:
    printed = {"cpu-avx2": "t1", "cpu-avx512": "t2"}
    record(tmp_path, verdict("cpu-avx512"))
    record(tmp_path, verdict("cpu-avx2"))
    record(tmp_path, verdict("cpu-portable"), text_of=lambda dialect, _tier: printed[dialect])
    found = load(tmp_path, "softmax")
    assert found is not None
    assert sorted(found.proofs) == ["cpu-avx2", "cpu-portable"]


def test_a_quick_proof_takes_no_full_one_s_place_that_holds(tmp_path: Path) -> None:
    quick = replace(verdict(text="t0"), tier="quick")
    for printed, kept in (("t1", "full"), ("t2", "quick")):
        record(tmp_path, verdict(text="t1"))
        record(tmp_path, quick, text_of=lambda _dialect, _tier, now=printed: now)
        found = load(tmp_path, "softmax")
        assert found is not None
        assert found.proofs["cpu-portable"].tier == kept


def test_the_same_verdict_twice_does_not_touch_the_file(tmp_path: Path) -> None:
    path = record(tmp_path, verdict())
    before = path.stat().st_mtime_ns
    record(tmp_path, verdict())
    assert path.stat().st_mtime_ns == before
    assert [p.name for p in tmp_path.iterdir()] == ["softmax.yaml"]


def test_a_failed_verdict_leaves_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="did not pass: numerics"):
        record(tmp_path, verdict(state=FAILED))
    assert not list(tmp_path.iterdir())


def _accept(folder: str, dialect: str) -> None:
    record(folder, verdict(dialect))


def test_accepts_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"dialect-{k}" for k in range(6)]
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_accept, args=(str(tmp_path), name)) for name in names]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    found = load(tmp_path, "softmax")
    assert found is not None
    assert sorted(found.proofs) == names


@pytest.mark.parametrize("name", ["../softmax", "a/b", "", "a::b::c", "1x"])
def test_names_that_are_no_operators_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="not an operator's name"):
        evidence_path(tmp_path, name)


def test_a_namespace_is_part_of_the_file_name(tmp_path: Path) -> None:
    assert evidence_path(tmp_path, "myco::rope2d").name == "myco.rope2d.yaml"


@pytest.mark.parametrize(
    "text", ["schema: 2\nop: softmax\n", "[1, 2", "schema: 1\nop: softmax\n", "schema: 1\ndialects: 3\n"]
)
def test_a_damaged_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "softmax.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(EvidenceError, match=r"softmax\.yaml"):
        load(tmp_path, "softmax")


def test_freshness(tmp_path: Path) -> None:
    record(tmp_path, verdict())
    have = load(tmp_path, "softmax")

    def state(
        meaning: str = "m1", dialect: str = "cpu-portable", text: str | None = "t1", **place: str
    ) -> str:
        return freshness(have, meaning=meaning, dialect=dialect, text=text, place=place).state

    assert state() == "fresh"
    assert state(compiler="g++ 12") == "fresh"
    assert state(meaning="m2") == "stale"
    assert state(text="t2") == "stale"
    assert state(dialect="sm_80") == "not_here"
    assert state(compiler="g++ 13") == "not_here"
    assert freshness(None, meaning="m1", dialect="x", text=None).state == "absent"


def test_reproduces() -> None:
    old = evidence.merged(None, verdict()).proofs["cpu-portable"]
    assert reproduces(old, old) == []
    better = evidence.merged(None, verdict(worst=0.5)).proofs["cpu-portable"]
    assert reproduces(old, better) == []
    for other, said in (
        (verdict(worst=1.5), "worst error 1.5"),
        (verdict(worst=float("inf")), "worst error inf"),
        (verdict(text="t2"), "the text differs"),
        (verdict(state=NOT_HERE), "not proven here"),
    ):
        assert any(
            said in line for line in reproduces(old, evidence.merged(None, other).proofs["cpu-portable"])
        )
    more = replace(old, keys=(*old.keys, "T=f16"), text="t2")
    assert reproduces(old, more) == []
    assert reproduces(more, old) == ["no longer judged: T=f16"]
    less = replace(old, gates={"inplace": old.gates["inplace"]})
    assert reproduces(old, less) == ["gate numerics did not run"]


def test_comments_and_layout_do_not_change_the_hash() -> None:
    a = 'int f() {\n  // a comment\n  return 1;   /* two\n lines */\n}\nconst char* s = "a // b";\n'
    b = 'int f() {return 1;}\n\nconst char *s =\n    "a // b";'
    one, two = KernelText("a", a, {}, "d"), KernelText("b", b.replace("1", "2"), {}, "d")
    assert text_hash([one]) == text_hash([replace(one, source=b)])
    assert text_hash([one, two]) == text_hash([two, one])
    assert text_hash([one]) != text_hash([two])


def test_the_verdicts_lines_say_how_to_repeat() -> None:
    failing = GateResult(
        "numerics", FAILED, 3, 8, 2, (Failure("off", "c1", "N=1", "opwright validate x"),), 4.0
    )
    lines = list(Verdict("x", "m", "s", "d", "t", "quick", 1, (failing,)).lines())
    assert lines[0].startswith("✗ numerics     failed: 3 of at least 8, worst 4 of the bound")
    assert any("opwright validate x" in line for line in lines)
    assert "… and 1 more" in lines[-1]
