"""Every module of zoo.py to parity with PyTorch, or refused with the right reason."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.judge, pytest.mark.nightly]

from opwright.workflows import console  # noqa: E402
from opwright.workflows.enable import Trial, enable_target  # noqa: E402
from opwright.workflows.workbench import Workbench  # noqa: E402

ZOO = Path(__file__).with_name("zoo.py")
#: Function → what its refusal must say: no operator is there (yet), or a program cannot say it.
REFUSED = {"branchy": "data-dependent"}
NAMES = [
    line.removeprefix("def ").partition("(")[0]
    for line in ZOO.read_text().splitlines()
    if line.startswith("def ") and not line.startswith("def seed")
]


@pytest.mark.parametrize("name", NAMES)
def test_a_module_nobody_has_seen(name: str, tmp_path: Path) -> None:
    bench = Workbench.here()
    with console.progress(name, quiet=True) as progress:
        found = enable_target(bench, f"{ZOO}:{name}", progress, out=tmp_path / "program", trial=Trial())
    if name in REFUSED:
        assert REFUSED[name] in found.failed and found.cause is not None and found.cause.place is not None
    elif found.missing:
        pytest.xfail(f"no operator yet: {', '.join(sorted({m.op for m in found.missing}))}")
    else:
        assert found.reached == "parity", found.failed
        assert found.levels["L2"], found.reasons
