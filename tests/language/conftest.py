"""The helpers that run kernels lie beside the tests of the printers, and are imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "generator" / "emit"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
