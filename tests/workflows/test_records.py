"""Records of support: append-only, whole or not at all, and stale when what they rest on has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwright.workflows import records
from opwright.workflows.records import Attempt, RecordError

DONE = Attempt(
    architecture="llama",
    target="cpu",
    dtype="f32",
    at="2026-01-02T03:04:05Z",
    source="transformers:llama",
    levels={"L0": True, "L1": True, "L2": True, "L3": None},
    reasons={"L3": "not measured"},
    seconds={"captured": 3.25},
    operators=2,
    hashes={"softmax": "aa", "mm": "bb"},
    supplied=[{"op": "mm", "by": "person", "seconds": 1.5}],
)
TODAY = {"softmax": "aa", "mm": "bb", "add": "cc"}


def test_an_attempt_comes_back_as_it_was(tmp_path: Path) -> None:
    records.append(tmp_path, DONE)
    (found,) = records.load(tmp_path, "llama")
    assert found == replace(DONE, supplied=[dict(s) for s in DONE.supplied])
    assert found.level == "L2"


def test_appending_leaves_the_bytes_before_as_they_are(tmp_path: Path) -> None:
    path = records.append(tmp_path, DONE)
    path.write_text(path.read_text().replace("schema: 1", "# a person's note\nschema: 1"))
    before = path.read_text()
    records.append(tmp_path, replace(DONE, at="2026-02-02T00:00:00Z"))
    assert path.read_text().startswith(before)
    assert [a.at[:7] for a in records.load(tmp_path, "llama")] == ["2026-01", "2026-02"]


def test_a_file_that_cannot_be_read_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "llama.yaml"
    path.write_text("schema: 1\nattempts: [")
    with pytest.raises(RecordError, match="cannot be read"):
        records.append(tmp_path, DONE)
    assert path.read_text() == "schema: 1\nattempts: ["


@pytest.mark.parametrize("name", ["../llama", "", "a/b", ".hidden", "x" * 200])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError):
        records.append(tmp_path, replace(DONE, architecture=name))


def test_a_level_holds_only_with_all_below_it() -> None:
    assert replace(DONE, levels={"L0": True, "L1": False, "L2": True}).level == "L0"
    assert replace(DONE, levels={"L0": None}).level is None


def test_what_rests_on_a_changed_operator_is_stale_and_holds_no_level() -> None:
    (now,) = records.standing([DONE], TODAY | {"mm": "other"})
    assert (now.state, now.level) == ("stale", None) and "mm" in now.reason
    (gone,) = records.standing([DONE], {"softmax": "aa"})
    assert gone.state == "stale"


GOOD = replace(
    DONE, levels=dict.fromkeys(("L0", "L1", "L2", "L3"), True), reasons={"L4": "it does not generate"}
)


def test_a_claim_is_verified_by_a_gate_at_a_commit_only() -> None:
    (claimed,) = records.standing([GOOD], TODAY)
    assert (claimed.state, claimed.level, claimed.supported) == ("claimed", "L3", None)
    again = replace(GOOD, by="gate", commit="c0ffee", at="2026-03-01T00:00:00Z")
    (verified,) = records.standing([GOOD, again], TODAY)
    assert (verified.state, verified.supported, verified.attempts) == ("verified", "2026-03-01T00:00:00Z", 1)
    for other in (replace(again, dirty=True), replace(again, commit=None)):
        (not_yet,) = records.standing([GOOD, other], TODAY)
        assert (not_yet.state, not_yet.supported) == ("claimed", None)
    # verified once, changed since: stale, though it was supported then
    (changed,) = records.standing([GOOD, again], TODAY | {"mm": "other"})
    assert (changed.state, changed.level, changed.supported) == ("stale", None, "2026-03-01T00:00:00Z")


@pytest.mark.parametrize(
    ("levels", "reasons", "holds"),
    [
        ({"L3": True, "L4": True}, {}, True),
        ({"L3": True, "L4": None}, {"L4": "it does not generate"}, True),
        ({"L3": True, "L4": None}, {"L4": "not measured by this version"}, False),
        ({"L3": True, "L4": None}, {}, False),
        ({"L3": True, "L4": False}, {"L4": "token 7 differs"}, False),
        ({"L3": None, "L4": True}, {}, False),
        ({"L1": False, "L3": True, "L4": True}, {}, False),
    ],
)
def test_supported_is_L0_to_L3_and_L4_where_it_generates(
    levels: dict[str, bool | None], reasons: dict[str, str], holds: bool
) -> None:
    attempt = replace(GOOD, levels={**GOOD.levels, **levels}, reasons=reasons)
    assert records.supports(attempt) is holds


def test_a_gate_that_does_not_hold_it_again_makes_it_stale() -> None:
    again = replace(GOOD, by="gate", commit="c0ffee")
    broken = replace(again, failed="parity: it does not hold L2", levels={"L0": True}, commit="decade")
    (now,) = records.standing([GOOD, again, broken], TODAY)
    assert (now.state, now.level) == ("stale", None)
    assert now.reason == "the gate did not hold it again: parity: it does not hold L2"
    (held,) = records.standing([GOOD, again, broken, replace(again, commit="facade")], TODAY)
    assert (held.state, held.reason) == ("verified", "at facade")


def test_a_failed_attempt_counts_and_does_not_hide_a_good_one() -> None:
    failed = replace(DONE, failed="captured: it raised", levels={"L0": False}, at="2026-05-01T00:00:00Z")
    (now,) = records.standing([failed], TODAY)
    assert now.level is None and now.reason == "captured: it raised"
    (now,) = records.standing([DONE, failed], TODAY)
    assert (now.level, now.attempts) == ("L2", 2)


def test_targets_and_dtypes_stand_apart() -> None:
    other = replace(DONE, dtype="bf16", levels={"L0": True})
    assert [(s.attempt.dtype, s.level) for s in records.standing([DONE, other], TODAY)] == [
        ("f32", "L2"),
        ("bf16", "L0"),
    ]


def test_all_architectures_are_read_an_earlier_folder_first(tmp_path: Path) -> None:
    records.append(tmp_path / "a", DONE)
    records.append(tmp_path / "b", replace(DONE, dtype="bf16"))
    records.append(tmp_path / "b", replace(DONE, architecture="vit"))
    found = records.load_all([tmp_path / "a", tmp_path / "b", tmp_path / "none"])
    assert {k: v[0].dtype for k, v in found.items()} == {"llama": "f32", "vit": "f32"}
