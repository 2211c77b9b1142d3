"""Judge a share of the accepted operators again, in full; the commit chooses which, so that over time all come round.

    python .ci/rejudge.py [--share 0.1] [--jobs N]

The share is `[gate] sample` of opwright.toml unless one is given; at least one operator.  The commit's hash is the seed
of the cases as well.  Exit codes are those of `opwright validate`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def chosen(names: list[str], commit: str, share: float) -> list[str]:
    """The operators of this commit: those whose hash with it comes first."""
    if not names:
        raise SystemExit("nothing was accepted: runtime/accepted is empty")
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())
    return sorted(ranked[: max(1, math.ceil(share * len(ranked)))])


def main() -> int:
    """Choose, say what was chosen, judge."""
    config = tomllib.loads((ROOT / "opwright.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=config["gate"]["sample"])
    parser.add_argument("--jobs", default="0", help="how many at once (default: the cores)")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    names = sorted(path.stem for path in (ROOT / config["paths"]["evidence"]).glob("*.yaml"))
    ops = chosen(names, commit, arguments.share)
    print(f"judging {len(ops)} of {len(names)} accepted operators again: {' '.join(ops)}", flush=True)
    command = [sys.executable, "-m", "opwright.workflows.cli", "validate", *ops, "--tier", "full"]
    command += ["--seed", str(int(commit[:8], 16)), "--jobs", arguments.jobs]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
