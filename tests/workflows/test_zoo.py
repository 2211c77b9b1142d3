"""Every module of the zoo to parity with PyTorch, or refused with the right reason.

A module is one that no listed architecture resembles; what it is expected to give is in the tables below, parity where
it stands in none.  An operator that is missing and not named here fails the test, and so does one that is named and
there.  A few run by day; all of them run at night.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.judge]

from opwright.workflows import console  # noqa: E402
from opwright.workflows.enable import Trial, enable_target  # noqa: E402
from opwright.workflows.workbench import Workbench  # noqa: E402

FILES = [Path(__file__).with_name(f"zoo{part}.py") for part in ("", "_layers", "_algorithms", "_traps")]
#: Function → what its refusal must say: a program cannot say it.
REFUSED = {
    "branchy": "data-dependent",
    "data_loop": "while_loop ends when its data says so",
    "gaussian": "data-dependent",
}
#: Function → the operators that nobody supplies.
MISSING = {
    "physics": {"aten.special_erfcx.default", "aten.special_zeta.other_scalar"},
    "spectrum": {
        "aten._linalg_eigh.default",
        "aten._linalg_svd.default",
        "aten.linalg_pinv.atol_rtol_tensor",
    },
}
#: What runs by day: composed calls, extents that data tell, a state.  A refusal: tests/workflows/test_enable.py.
BY_DAY = {"capacity_router"}


def names(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line.removeprefix("def ").partition("(")[0] for line in lines if line.startswith("def ")]
    return [n for n in found if n != "seed"]


ALL = [(path, name) for path in FILES for name in names(path)]


def test_the_tables_name_modules_of_the_zoo() -> None:
    have = [name for _, name in ALL]
    assert len(have) == len(set(have)) >= 75
    assert (REFUSED.keys() | MISSING.keys() | BY_DAY) <= set(have)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, id=name, marks=[] if name in BY_DAY else pytest.mark.nightly)
        for path, name in ALL
    ],
)
def test_a_module_nobody_has_seen(path: Path, name: str, tmp_path: Path) -> None:
    bench = Workbench.here()
    with console.progress(name, quiet=True) as progress:
        found = enable_target(bench, f"{path}:{name}", progress, out=tmp_path / "program", trial=Trial())
    if name in REFUSED:
        assert REFUSED[name] in found.failed and found.cause is not None and found.cause.place is not None
        return
    assert {m.op for m in found.missing} == MISSING.get(name, set())
    if name not in MISSING:
        assert found.reached == "parity", found.failed
        assert found.levels["L2"], found.reasons
