"""The process in which importing torch fails, for L5: it trains a training program on recorded inputs.

    python -m opwright.workflows.training_child FOLDER RECORDS OUT [OPERATOR…]

For each record it begins with the weights of the folder, and writes `OUT/<k>/gradients.safetensors`, by weight, of the
first step, and `OUT/<k>/losses.json`: the loss before each of as many steps as the record tells of, and the outputs
that it is made of.  `training.py` judges them.

May import: parity_child (what every such process does), generator.program, the runtime.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .parity_child import array, child, say


def _work(folder: Path, records: Path, out: Path, admit: Sequence[str]) -> None:
    from ..generator.program.folder import read_tensors, write_tensors
    from ..generator.program.training import COTANGENT, GRADIENT_OF, LOSS
    from ..program import Program as Loaded
    from .bridge import install
    from .workbench import Workbench

    install(extra=[Workbench.here().registry.get(name) for name in admit] if admit else ())
    for path in sorted(p for p in records.iterdir() if p.is_dir()):
        target = out / path.name
        target.mkdir(exist_ok=True)
        begun = time.perf_counter()
        loaded = Loaded.load(folder)  # every record begins with the weights of the capture
        say("load", time.perf_counter() - begun)
        given = dict(read_tensors(path / "inputs.safetensors"))
        cotangents = read_tensors(path / "cotangents.safetensors")
        of = [n for n in cotangents if any(i["name"] == COTANGENT + n for i in loaded.inputs)]
        given |= {COTANGENT + n: cotangents[n] for n in of}
        steps = len(json.loads((path / "training.json").read_text(encoding="utf-8"))["losses"]["f64"])
        losses: list[float] = []
        begun = time.perf_counter()
        for step in range(steps):
            results = loaded.run(given)
            losses.append(float(array(results[LOSS])))
            if step == 0:
                write_tensors(
                    target / "gradients.safetensors",
                    {
                        n.removeprefix(GRADIENT_OF): array(t)
                        for n, t in results.items()
                        if n.startswith(GRADIENT_OF)
                    },
                )
        say("train", time.perf_counter() - begun)
        (target / "losses.json").write_text(json.dumps({"of": of, "losses": losses}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:], _work))
