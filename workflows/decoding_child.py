"""The process in which importing torch fails, for L4: it reads a text token by token through the step of a program.

    python -m opwright.workflows.decoding_child FOLDER TEXT OUT [OPERATOR…]

writes `OUT/logits.safetensors`: what the step said after each token, the cache being the program's own state.
`decoding.py` judges it.

May import: parity_child (what every such process does), generator.program, the runtime.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .parity_child import array, child, say


def _work(folder: Path, text: Path, out: Path, admit: Sequence[str]) -> None:
    import numpy as np

    from ..generator.program.folder import read_tensors, write_tensors
    from ..program import Program as Loaded
    from .bridge import install
    from .workbench import Workbench

    install(extra=[Workbench.here().registry.get(name) for name in admit] if admit else ())
    begun = time.perf_counter()
    loaded = Loaded.load(folder)
    say("load", time.perf_counter() - begun)
    given = dict(read_tensors(text / "inputs.safetensors"))
    tokens = given.pop("text")
    place = json.loads((text / "text.json").read_text(encoding="utf-8"))["token"]
    begun = time.perf_counter()
    said = []
    for at in range(tokens.shape[1]):
        results = loaded.run({**given, place: np.ascontiguousarray(tokens[:, at : at + 1])})
        said.append(array(results["logits"]))
    say("decode", time.perf_counter() - begun)
    write_tensors(out / "logits.safetensors", {"logits": np.concatenate(said, axis=1)})


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], _work))
