"""Small specs, one for each thing that lowering has to know; the tests of the generator and of the judge share them."""

from __future__ import annotations

# ruff: noqa: E501  (statements of specs are read whole)

ADD = """
op: add
types: {T: "promote(a, b, alpha)", A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B]", b: "T[*B]"}
attrs: {alpha: {type: scalar, default: 1}}
outputs: {y: "T[*B]"}
variants: {inplace: [a]}
compute: |
  y[*B] = T(A(a[*B]) + A(alpha) * A(b[*B]))
"""

SOFTMAX = """
op: softmax
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N@axis]"}
attrs: {axis: {type: axis, default: -1}}
outputs: {y: "T[*B, N@axis]"}
variants: {inplace: [x]}
compute: |
  m[*B]    = max[j](A(x[*B, j]))
  e[*B, i] = exp(A(x[*B, i]) - m[*B])
  s[*B]    = sum[j](e[*B, j])
  y[*B, i] = T(e[*B, i] / s[*B])
"""

RMS_NORM = """
op: rms_norm
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, D]", w: "optional T[D]"}
attrs: {eps: {type: float, default: 1.0e-6}}
outputs: {y: "T[*B, D]"}
compute: |
  r[*B]    = rsqrt(sum[k](A(x[*B, k]) * A(x[*B, k])) / D + eps)
  y[*B, d] = T(A(x[*B, d]) * r[*B] * (A(w[d]) if w is not None else 1))
"""

MATMUL = """
op: matmul
types: {T: float, A: accum(T)}
dims: {B: broadcast}
inputs: {a: "T[*B, M, K]", b: "T[*B, K, N]"}
outputs: {y: "T[*B, M, N]"}
compute: |
  y[*B, m, n] = T(sum[k](A(a[*B, m, k]) * A(b[*B, k, n])))
"""

SUM = """
op: sum
types: {T: any, R: "attr(dtype, sum_type(T))", A: accum(R)}
dims: {B: batch, N: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs: {dim: {type: axes, default: null, empty: all}, keepdim: {type: bool, default: false, static: true}, dtype: {type: dtype, default: null, static: true}}
outputs: {y: "R[*B, 1@dim if keepdim]"}
compute: |
  y[*B] = R(sum[*n](A(x[*B, *n])))
"""

CAT = """
op: cat
types: {T: any}
dims: {B: batch}
inputs: {xs: "list T[*B, N@dim]"}
attrs: {dim: {type: axis, default: 0}}
outputs: {y: "T[*B, total(N)@dim]"}
compute: |
  y[*B, start(N, k) + i] = xs[k][*B, i]
"""

GATHER = """
op: gather
types: {T: any, I: index}
inputs: {x: "T[N, M]", idx: "I[P, Q]"}
outputs: {y: "T[P, Q]"}
compute: |
  y[p, q in Q] = x[idx[p, q], q]
"""

EMBEDDING = """
op: embedding
types: {T: any, I: index}
dims: {J: batch}
inputs: {w: "T[V, D]", i: "I[*J]"}
outputs: {y: "T[*J, D]"}
compute: |
  y[*J, d] = w[i[*J], d]
"""

INDEX_PUT = """
op: index_put
types: {T: any, I: index, A: accum(T)}
dims: {J: batch, C: batch}
inputs: {x: "T[V, *C]", i: "I[*J]", v: "T[*J, *C]"}
attrs: {accumulate: {type: bool, default: false, static: true}}
outputs: {y: "T[V, *C]"}
compute: |
  y[r, *C] = x[r, *C]
  if accumulate:
    y[i[*J] + V if i[*J] < 0 else i[*J], *C] += v[*J, *C]
  else:
    y[i[*J] + V if i[*J] < 0 else i[*J], *C]: set = v[*J, *C]
"""

CONV = """
op: convolution
types: {T: float, A: accum(T)}
inputs: {x: "T[N, C, *I]", w: "T[O, G, *K]", b: "optional T[O]"}
attrs: {stride: {type: ints}, padding: {type: ints}, dilation: {type: ints}, groups: {type: int, default: 1}}
dims: {I: static, K: static}
let: {"*P": "(I + 2 * padding - dilation * (K - 1) - 1) // stride + 1"}
outputs: {y: "T[N, O, *P]"}
require: ["C == G * groups", "O % groups == 0"]
compute: |
  a[n, o, *p in P] = sum[g, *k](A(x[n, o // (O // groups) * G + g, *(p * stride + k * dilation - padding)] if all(0 <= p * stride + k * dilation - padding < I) else 0) * A(w[o, g, *k]))
  y[n, o, *p] = T(a[n, o, *p] + (A(b[o]) if b is not None else 0))
"""

CUMSUM = """
op: cumsum
types: {T: number, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B, N@dim]"}
attrs: {dim: {type: axis}}
outputs: {y: "T[*B, N@dim]"}
compute: |
  y[*B, i] = T(sum[j](A(x[*B, j]) if j <= i else 0))
"""

ARGMAX = """
op: argmax
types: {T: real}
dims: {B: batch}
inputs: {x: "T[*B, N@dim]"}
attrs: {dim: {type: axis, default: -1}}
outputs: {y: "i64[*B]"}
require: ["N > 0"]
compute: |
  y[*B] = argmax[n](x[*B, n])
"""

AMAX = """
op: amax
types: {T: real}
dims: {B: batch, N: batch}
inputs: {x: "T[*B, *N@dim]"}
attrs: {dim: {type: axes, default: null, empty: all}, keepdim: {type: bool, default: false, static: true}}
outputs: {y: "T[*B, 1@dim if keepdim]"}
compute: |
  y[*B] = max[*n](x[*B, *n])
"""

ATTENTION = """
op: attention
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {q: "T[*B, H, L, E]", k: "T[*B, G, S, E]", v: "T[*B, G, S, F]"}
attrs:
  causal: {type: bool, default: false, static: true}
  scale: {type: float, default: "E ** -0.5"}
outputs: {y: "T[*B, H, L, F]", lse: "aux A[*B, H, L]"}
require: ["H % G == 0"]
compute: |
  s[*B, h, i, j] = scale * sum[e](A(q[*B, h, i, e]) * A(k[*B, h // (H // G), j, e]))
  p[*B, h, i, j] = s[*B, h, i, j] if (not causal or j <= i + S - L) else -inf
  m[*B, h, i]    = max(max[j](p[*B, h, i, j]), -1e30)
  z[*B, h, i]    = sum[j](exp(p[*B, h, i, j] - m[*B, h, i]))
  o[*B, h, i, f] = sum[j](exp(p[*B, h, i, j] - m[*B, h, i]) * A(v[*B, h // (H // G), j, f]))
  y[*B, h, i, f] = T(o[*B, h, i, f] / max(z[*B, h, i], 1e-30))
  lse[*B, h, i]  = m[*B, h, i] + log(z[*B, h, i])
"""

LAYER_NORM = """
op: native_layer_norm
types: {T: float, W: float, A: accum(T), S: "stat_type(T, W)"}
dims: {B: batch, D: {rank: len(normalized_shape)}}
inputs: {x: "T[*B, *D]", w: "optional W[*D]", b: "optional W[*D]"}
attrs: {normalized_shape: {type: ints, static: rank}, eps: {type: float, default: 1.0e-5}}
outputs: {y: "T[*B, *D]", mean: "S[*B, *(D ** 0)]", rstd: "S[*B, *(D ** 0)]"}
compute: |
  u[*B] = sum[*d](A(x[*B, *d])) / prod(D)
  v[*B] = sum[*d]((A(x[*B, *d]) - u[*B]) * (A(x[*B, *d]) - u[*B])) / prod(D)
  r[*B] = rsqrt(v[*B] + eps)
  y[*B, *d] = T((A(x[*B, *d]) - u[*B]) * r[*B] * (A(w[*d]) if w is not None else 1) + (A(b[*d]) if b is not None else 0))
  mean[*B]: set = S(u[*B])
  rstd[*B]: set = S(r[*B])
"""

NONZERO = """
op: nonzero
types: {T: any}
dims: {B: batch}
inputs: {x: "T[*B]"}
sizes: {M: "sum[*b](1 if x[*b] != 0 else 0)"}
outputs: {y: "i64[M, rank(B)]"}
compute: |
  p[*b in B] = sum[*c](1 if x[*c] != 0 and linear(*c) < linear(*b) else 0)
  y[p[*b], d in rank(B)]: set = lane(b, d) if x[*b] != 0 else skip
"""

REPEAT = """
op: repeat_interleave
types: {T: any, I: index}
dims: {C: batch}
inputs: {x: "T[N, *C]", r: "I[N]"}
sizes: {M: "sum[i](r[i])"}
outputs: {y: "T[M, *C]"}
require: ["r[i] >= 0"]
compute: |
  e[i in N] = sum[j](r[j] if j <= i else 0)
  src[m in M] = sum[i](1 if e[i] <= m else 0)
  y[m, *C] = x[src[m], *C]
"""

DELTA = """
op: gated_delta_rule
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {q: "T[*B, L, E]", k: "T[*B, L, E]", v: "T[*B, L, F]", g: "T[*B, L]", beta: "T[*B, L]", s0: "optional A[*B, E, F]"}
outputs: {y: "T[*B, L, F]", s: "A[*B, L, E, F]"}
compute: |
  s[*B, t, i, j] = (exp(A(g[*B, t])) * (s[*B, t - 1, i, j] if t > 0 else s0[*B, i, j] if s0 is not None else 0)) + A(k[*B, t, i]) * A(beta[*B, t]) * (A(v[*B, t, j]) - sum[l](exp(A(g[*B, t])) * (s[*B, t - 1, l, j] if t > 0 else s0[*B, l, j] if s0 is not None else 0) * A(k[*B, t, l])))
  y[*B, t, j] = T(sum[i](A(q[*B, t, i]) * s[*B, t, i, j]))
"""

SORT = """
op: sort
types: {T: real}
dims: {B: batch}
inputs: {x: "T[*B, N@dim]"}
attrs: {dim: {type: axis, default: -1}}
outputs: {values: "T[*B, N@dim]", indices: "i64[*B, N@dim]"}
compute: |
  r[*B, i] = sum[j](1 if order(x[*B, j]) < order(x[*B, i]) or order(x[*B, j]) == order(x[*B, i]) and j < i else 0)
  values[*B, r[*B, i]]: set = x[*B, i]
  indices[*B, r[*B, i]]: set = i
"""

BINCOUNT = """
op: bincount
types: {I: integer}
inputs: {x: "I[N]"}
attrs: {minlength: {type: int, default: 0}}
sizes: {M: "max(max[i](i64(x[i])) + 1 if N > 0 else 0, minlength)"}
outputs: {y: "i64[M]"}
require: ["x[i] >= 0"]
compute: |
  y[x[i]] += 1
"""

CLAMP = """
op: clamp
types: {T: real}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {lo: {type: "optional scalar", default: null}, hi: {type: "optional scalar", default: null}}
outputs: {y: "T[*B]"}
compute: |
  z[*B] = (x[*B] if x[*B] >= T(lo) or isnan(x[*B]) else T(lo)) if lo is not None else x[*B]
  y[*B] = (z[*B] if z[*B] <= T(hi) or isnan(z[*B]) else T(hi)) if hi is not None else z[*B]
"""

DROPOUT = """
op: dropout
types: {T: float, A: accum(T)}
dims: {B: batch}
inputs: {x: "T[*B]"}
attrs: {p: {type: float, default: 0.5}, seed: {type: int}, offset: {type: int}}
outputs: {y: "T[*B]", mask: "bool[*B]"}
compute: |
  mask[*B] = uniform(philox(seed, offset + linear(*B) // 4, linear(*B) % 4)) >= f32(p)
  y[*B] = T(A(x[*B]) * (1 / (1 - p)) if mask[*B] else 0)
"""


def text_of(op: str) -> str:
    """The spec of an operator above."""
    return next(t for t in globals().values() if isinstance(t, str) and t.startswith(f"\nop: {op}\n")).lstrip(
        "\n"
    )
