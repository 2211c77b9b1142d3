"""Accepted operators against PyTorch, on their specs' workloads: python tests/speed_ops.py [OP ...] [--generated]

    PYTHONPATH=build/src python tests/speed_ops.py fft cummax --seconds 2

Without names all of them, by speed_measure.py; workloads are cut to 8 MiB.  `--generated` leaves out bodies that
are written by hand: the table as it was before them.  No test runs it.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
from speed_measure import measure, options, start

from opwright import registry, tensor
from opwright.workflows import bench, bench_child
from opwright.workflows.workbench import Workbench


def main() -> None:
    parser = options("operators against PyTorch")
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--generated", action="store_true", help="loops as they are printed, no bodies")
    args = parser.parse_args()
    with ExitStack() as stack:
        stack.enter_context(patch.object(bench, "CUT_BYTES", 8 << 20))
        if args.generated:
            stack.enter_context(patch.object(Workbench, "body_of", return_value=None))
        rows(args)


def rows(args: Namespace) -> None:
    here = Workbench.here(Path(__file__).resolve().parents[1])
    listed = [s for s in here.own() if s.aten and s.bench and here.evidence(s.op)]
    chosen = [s for s in listed if not args.ops or s.op in args.ops]
    clock = start([s.op for s in chosen], args.threads)
    print("| what | × eager | p10–p90 | ours |\n| --- | --- | --- | --- |")
    for spec in chosen:
        for work in bench.workloads(spec, spec.bench, ("f32",)):
            used, case = bench.workload_cases(spec, work, 0, full=False)
            request, arrays = bench.calls(spec, used, case)
            ours = bench_child._ours(tensor, registry.get(spec.op), request, arrays)
            theirs = bench_child._theirs(torch, request, arrays)
            print(f"| {spec.op} {used.show()} | {measure(ours, theirs, args.seconds, clock)} |", flush=True)


if __name__ == "__main__":
    main()
