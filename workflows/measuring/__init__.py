"""How speed is measured (JUDGE.md, "Measuring speed"): processes, rounds, rivals, workloads, pictures.

    workload.py   a row as data: what is called, with which arrays; the spec's own workloads
    suite.py      the rows of `--suite speed` (speed.yaml), with their goals
    whole.py      the models of `--model NAME`; models.py makes programs of them
    rounds.py     the measuring core: interleaved blocks, paired ratios, the control, the verdict, goals
    sides.py      one process for each framework, as the parent sees it; child.py is that process
    ours.py eager.py onnx_side.py jax_side.py   what such a process calls
    agreement.py  whether two answers are the same, and by which bound
    limits.py     what this machine's memory gives at most
    table.py picture.py   rows for people

`opwright bench` (../bench.py) asks and prints.  To add a rival: a module with `Side`, a row in `sides.RIVALS`.
"""
