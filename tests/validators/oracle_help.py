"""Specs and short ways to run them through the oracle, for the tests of the judge's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import specs as shared
from opwright.generator.bind import bind
from opwright.generator.bind_key import key_for_call
from opwright.generator.bound import BoundOp
from opwright.generator.normal import normalise
from opwright.generator.spec import OpSpec, load_spec_text
from opwright.generator.types import Operand
from opwright.validators.ball import Ball, check
from opwright.validators.oracle import evaluate
from opwright.validators.values import Array, dtype_of

f32 = np.float32
bf16 = ml_dtypes.bfloat16

# What the judge's tests ask of the specs that all tests share (tests/specs.py): gradients, cases, values.
FIELDS = {
    "softmax": """
grad: {wrt: [x], derive: true}
test:
  cases: [{B: [3], N: 5}, {B: [2, 4], N: 33}, {B: [0], N: 4}]
  layouts: [contiguous, transposed]
  values: [normal, large, all_equal, one_neg_inf, all_neg_inf]
""",
    "matmul": """
grad: {wrt: [a, b], derive: true}
test: {cases: [{B: [], M: 3, K: 4, N: 5}, {a.B: [3, 1], b.B: [2], M: 17, K: 31, N: 9}], values: [exact, normal]}
""",
    "rms_norm": """
grad: {wrt: [x, w], derive: true}
test: {cases: [{B: [4], D: 16}, {B: [1], D: 1}], values: [exact, normal, tiny]}
""",
    "add": """
grad: {wrt: [a, b], derive: true}
test: {cases: [{B: [7, 5]}, {a.B: [4, 1, 3], b.B: [6, 1]}, {B: []}], values: [exact, normal, nan_inf, int_limits]}
""",
    "attention": """
grad: {wrt: [q, k, v], derive: true}
test: {cases: [{B: [1], H: 4, G: 2, L: 5, S: 9, E: 16, F: 4, causal: true}], values: [exact, normal, large]}
""",
    "sum": """
grad: {wrt: [x], derive: true}
""",
    "cumsum": """
grad: {wrt: [x], derive: true}
""",
    "argmax": """
grad: {none: integer output}
test: {cases: [{B: [3], N: 5}], values: [normal, nan_inf]}
""",
    "nonzero": """
grad: {none: integer output}
""",
    "dropout": """
grad: {none: not needed here}
""",
    "cat": """
grad: {none: not needed here}
test: {cases: [{B: [3], N: [5, 2]}, {B: [2, 4], N: [3, 0, 7], dim: 1}], values: [exact, nan_inf]}
""",
}

OWN = r"""
op: index_put
types: {T: any, I: index}
dims: {J: batch}
inputs: {x: "T[V]", i: "I[*J]", v: "T[*J]"}
attrs: {accumulate: {type: bool, default: false, static: true}}
outputs: {y: "T[V]"}
require: ["-V <= i[*J]", "i[*J] < V"]
compute: |
  y[r] = x[r]
  if accumulate:
    y[i[*J] + V if i[*J] < 0 else i[*J]] += v[*J]
  else:
    y[i[*J] + V if i[*J] < 0 else i[*J]]: set = v[*J]
grad: {none: not needed here}
test: {cases: [{V: 5, J: [4]}, {V: 7, J: [2, 3], accumulate: true}], values: [exact, normal]}
---
op: maximum
types: {T: real}
dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = max(a[*B], b[*B])
grad: {none: not needed here}
---
op: scans
types: {T: float}
inputs: {x: "T[N]"}
outputs: {strict: "T[N]", back: "T[N]", after: "T[N]", top: "T[N]"}
compute: |
  strict[i] = sum[j](x[j] if j < i else 0)
  back[i]   = sum[j](x[j] if i <= j else 0)
  after[i]  = sum[j](x[j] if j > i else 0)
  top[i]    = max[j](x[j] if j <= i else -inf)
grad: {none: not needed here}
---
op: argmax_exp
types: {T: float}
inputs: {x: "T[N]"}
outputs: {y: "i64[]"}
compute: |
  y[()] = argmax[n](exp(x[n]))
grad: {none: integer output}
---
op: round
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B]"}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = round(x[*B])
grad: {none: flat}
---
op: floor_divide
types: {T: real}
dims: {B: batch}
inputs: {a: "T[*B]", b: "T[*B]"}
outputs: {q: "T[*B]", r: "T[*B]"}
compute: |
  q[*B] = a[*B] // b[*B]
  r[*B] = a[*B] % b[*B]
grad: {none: flat}
---
op: extremes
types: {T: real, I: index}
inputs: {x: "T[P]", i: "I[P]"}
attrs: {count: {type: int}}
outputs: {hi: "T[count]", lo: "T[count]", seen: "bool[count]", all_seen: "bool[count]", product: "T[count]"}
compute: |
  hi[i[p]]: max = x[p]
  lo[i[p]]: min = x[p]
  seen[i[p]]: any = x[p] > 0
  all_seen[i[p]]: all = x[p] > 0
  product[i[p]] *= x[p]
grad: {none: not needed here}
---
op: resize
types: {T: real}
inputs: {x: "T[N]"}
attrs: {out: {type: int}}
outputs: {y: "T[out]"}
require: ["N > 0", "out > 0"]
compute: |
  y[o] = x[min(i64(floor(f32(o) * (f32(N) / f32(out)))), N - 1)]
grad: {none: not needed here}
---
op: decay
types: {T: float}
dims: {B: batch}
inputs: {x: "T[*B, L]", g: "T[*B]"}
outputs: {s: "T[*B, L]"}
compute: |
  s[*B, t] = g[*B] * (s[*B, t - 1] if t > 0 else 0) + x[*B, t]
grad: {none: not needed here}
---
op: window
types: {T: float}
inputs: {x: "T[N]"}
attrs: {k: {type: int}}
outputs: {y: "T[N]"}
compute: |
  y[o] = sum[j in k](x[o + j - k // 2] if 0 <= o + j - k // 2 < N else 0)
grad: {none: not needed here}
---
op: layer_mean
types: {T: float, A: accum(T)}
dims: {B: batch, D: {rank: len(shape)}}
inputs: {x: "T[*B, *D]"}
attrs: {shape: {type: ints, static: rank}}
outputs: {mean: "T[*B, *(D ** 0)]"}
compute: |
  mean[*B] = T(sum[*k](A(x[*B, *k])) / prod(D))
grad: {none: not needed here}
---
op: addmm
types: {T: float, A: accum(T)}
inputs: {c: "expand T[M, N]", a: "T[M, K]", b: "T[K, N]"}
outputs: {y: "T[M, N]"}
compute: |
  y[m, n] = T(A(c[m, n]) + sum[k](A(a[m, k]) * A(b[k, n])))
grad: {wrt: [c, a, b], derive: true}
test: {cases: [{M: 3, K: 4, N: 5}, {M: 2, K: 3, N: 4, c.shape: [4]}], values: [exact, normal]}
---
op: conv
types: {T: float, A: accum(T)}
dims: {I: static, K: static}
inputs: {x: "T[N, C, *I]", w: "T[O, G, *K]"}
attrs: {stride: {type: ints}, padding: {type: ints}, groups: {type: int, default: 1}}
let: {"*P": "(I + 2 * padding - K) // stride + 1"}
outputs: {y: "T[N, O, *P]"}
require: ["groups > 0", "C == G * groups", "O % groups == 0"]
compute: |
  a[n, o, *p in P] = sum[g, *k](A(
    x[n, o // (O // groups) * G + g, *(p * stride + k - padding)] if all(0 <= p * stride + k - padding < I) else 0
  ) * A(w[o, g, *k]))
  y[n, o, *p] = T(a[n, o, *p])
grad: {none: not needed here}
test:
  cases: [{N: 2, C: 4, I: [8, 7], O: 6, G: 2, K: [3, 2], stride: [1, 2], padding: [1, 0], groups: 2}]
  values: [exact, normal]
---
op: clip
types: {T: real}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {lo: {type: optional scalar, default: null}, k: {type: int, default: 2}}
outputs: {y: "T[*B]"}
require: ["k >= 1", "k <= 9"]
compute: |
  y[*B] = (x[*B] if x[*B] >= T(lo) or isnan(x[*B]) else T(lo)) if lo is not None else x[*B]
grad: {none: not needed here}
test: {cases: [{B: [7]}, {B: [3], lo: 1}]}
"""


@cache
def specs() -> dict[str, OpSpec]:
    """The specs above, by name."""
    texts = [shared.text_of(name) + fields for name, fields in FIELDS.items()]
    return {s.op: s for s in load_spec_text("---\n".join([*texts, OWN]), "oracle_help.yaml")}


def operands(inputs: Mapping[str, Any]) -> dict[str, Any]:
    def one(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return [one(x) for x in v]
        return None if v is None else Operand(dtype_of(v), v.ndim)

    return {name: one(v) for name, v in inputs.items()}


def bound(
    name: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None
) -> tuple[BoundOp, dict[str, Any]]:
    """The Bound program of a call, and its run-time attributes."""
    resolved = key_for_call(specs()[name], operands(inputs), attrs or {})
    return bind(specs()[name], resolved.key), resolved.attrs


def run(
    name: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    normal: bool = False,
    **options: Any,
) -> dict[str, Ball]:
    """The oracle's balls for a call."""
    op, run_attrs = bound(name, inputs, attrs)
    given = {k: v for k, v in inputs.items() if v is not None}
    return evaluate(normalise(op) if normal else op, given, run_attrs, **options)


def ratio(got: Array, want: Ball) -> float:
    """Worst error over radius; <= 1 passes."""
    return check(got, want).ratio
