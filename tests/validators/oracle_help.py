"""Specs and short ways to run them through the oracle, for the tests of the judge's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from opwright.generator.bind import bind, key_for_call
from opwright.generator.bound import BoundOp
from opwright.generator.normal import normalise
from opwright.generator.spec import OpSpec, load_spec_text
from opwright.generator.types import Operand
from opwright.validators.ball import Ball, check
from opwright.validators.oracle import evaluate
from opwright.validators.values import Array, dtype_of

f32 = np.float32
bf16 = ml_dtypes.bfloat16

SPECS = r"""
op: softmax
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N@axis]"}
attrs: {axis: {type: axis, default: -1}}
outputs: {y: "T[*B, N@axis]"}
compute: |
  m[*B]    = max[j](A(x[*B, j]))
  e[*B, i] = exp(A(x[*B, i]) - m[*B])
  s[*B]    = sum[j](e[*B, j])
  y[*B, i] = T(e[*B, i] / s[*B])
grad: {wrt: [x], derive: true}
test:
  cases: [{B: [3], N: 5}, {B: [2, 4], N: 33}, {B: [0], N: 4}]
  layouts: [contiguous, transposed]
  values: [normal, large, all_equal, one_neg_inf, all_neg_inf]
---
op: matmul
types: {T: float, A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B, M, K]", b: "T[*B, K, N]"}
outputs: {y: "T[*B, M, N]"}
compute: |
  y[*B, m, n] = T(sum[k](A(a[*B, m, k]) * A(b[*B, k, n])))
grad: {wrt: [a, b], derive: true}
test: {cases: [{B: [], M: 3, K: 4, N: 5}, {a.B: [3, 1], b.B: [2], M: 17, K: 31, N: 9}], values: [exact, normal]}
---
op: rms_norm
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, D]", w: "optional T[D]"}
attrs: {eps: {type: float, default: 1.0e-6}}
outputs: {y: "T[*B, D]"}
compute: |
  r[*B]    = rsqrt(sum[k](A(x[*B, k]) * A(x[*B, k])) / D + eps)
  y[*B, d] = T(A(x[*B, d]) * r[*B] * (A(w[d]) if w is not None else 1))
grad: {wrt: [x, w], derive: true}
test: {cases: [{B: [4], D: 16}, {B: [1], D: 1}], values: [exact, normal, tiny]}
---
op: add
types: {T: "promote(a, b)", A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
attrs: {alpha: {type: scalar, default: 1}}
outputs: {y: "T[*B]"}
compute: |
  y[*B] = T(A(a[*B]) + A(alpha) * A(b[*B]))
grad: {wrt: [a, b], derive: true}
test: {cases: [{B: [7, 5]}, {a.B: [4, 1, 3], b.B: [6, 1]}, {B: []}], values: [exact, normal, nan_inf, int_limits]}
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
op: attention
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {q: "T[*B, H, L, E]", k: "T[*B, G, S, E]", v: "T[*B, G, S, F]"}
attrs: {causal: {type: bool, default: false, static: true}, scale: {type: float, default: "E ** -0.5"}}
outputs: {y: "T[*B, H, L, F]"}
require: ["H % G == 0"]
compute: |
  s[*B, h, i, j] = scale * sum[e](A(q[*B, h, i, e]) * A(k[*B, h // (H // G), j, e]))
  p[*B, h, i, j] = s[*B, h, i, j] if (not causal or j <= i + S - L) else -inf
  m[*B, h, i]    = max(max[j](p[*B, h, i, j]), -1e30)
  z[*B, h, i]    = sum[j](exp(p[*B, h, i, j] - m[*B, h, i]))
  o[*B, h, i, f] = sum[j](exp(p[*B, h, i, j] - m[*B, h, i]) * A(v[*B, h // (H // G), j, f]))
  y[*B, h, i, f] = T(o[*B, h, i, f] / max(z[*B, h, i], 1e-30))
grad: {wrt: [q, k, v], derive: true}
test: {cases: [{B: [1], H: 4, G: 2, L: 5, S: 9, E: 16, F: 4, causal: true}], values: [exact, normal, large]}
---
op: sum
types: {T: any, R: sum_type(T), A: accum(R)}
dims: {B: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs: {dim: {type: axes, default: null, empty: all}, keepdim: {type: bool, default: false, static: true}}
outputs: {y: "R[*B, 1@dim if keepdim]"}
compute: |
  y[*B] = R(sum[*n](A(x[*B, *n])))
grad: {wrt: [x], derive: true}
---
op: cumsum
types: {T: number, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N@dim]"}
attrs: {dim: {type: axis}}
outputs: {y: "T[*B, N@dim]"}
compute: |
  y[*B, i] = T(sum[j](A(x[*B, j]) if j <= i else 0))
grad: {wrt: [x], derive: true}
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
op: argmax
types: {T: real}
dims: {B: batch}
inputs: {x: "T[*B, N@dim]"}
attrs: {dim: {type: axis, default: -1}}
outputs: {y: "i64[*B]"}
require: ["N > 0"]
compute: |
  y[*B] = argmax[n](x[*B, n])
grad: {none: integer output}
test: {cases: [{B: [3], N: 5}], values: [normal, nan_inf]}
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
op: nonzero
types: {T: any}
dims: {B: batch}
inputs: {x: "T[*B]"}
sizes: {M: "sum[*b](1 if x[*b] != T(0) else 0)"}
outputs: {y: "i64[M, rank(B)]"}
compute: |
  p[*b in B] = sum[*c](1 if x[*c] != T(0) and linear(*c) < linear(*b) else 0)
  y[p[*b], d in rank(B)]: set = lane(b, d) if x[*b] != T(0) else skip
grad: {none: integer output}
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
op: dropout
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {p: {type: float, default: 0.5}, seed: {type: int}, offset: {type: int}}
outputs: {y: "T[*B]", mask: "bool[*B]"}
compute: |
  mask[*B] = uniform(philox(seed, offset + linear(*B) // 4, linear(*B) % 4)) >= f32(p)
  y[*B] = T(A(x[*B]) * (1 / (1 - p)) if mask[*B] else 0)
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
op: cat
types: {T: any}
dims: {B: batch}
inputs: {xs: "list T[*B, N@dim]"}
attrs: {dim: {type: axis, default: 0}}
outputs: {y: "T[*B, total(N)@dim]"}
compute: |
  y[*B, start(N, k) + i] = xs[k][*B, i]
grad: {none: not needed here}
test: {cases: [{B: [3], N: [5, 2]}, {B: [2, 4], N: [3, 0, 7], dim: 1}], values: [exact, nan_inf]}
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
    return {s.op: s for s in load_spec_text(SPECS, "oracle_help.yaml")}


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
