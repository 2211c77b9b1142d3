/* What generated CPU kernels share: walks over any strides, sums in blocks, checks of a call, chunks for threads.
 *
 * A kernel's text says which loops run over which operands; how an odometer turns, how a sum is blocked and what an
 * error looks like is said here once.  No allocation, no state, no system header: an include costs some 10 ms.
 *
 * May include: abi.h, scalar.h.  To add a helper: keep it free of statics; a template only where the operand count or
 * the element type differs.
 *
 * Note [Blocked sums]: a sum of n terms may be off by (4 sqrt(n) + 16) u sum|x|.  owk_sum keeps OWK_LANES partial sums
 * over blocks of at least 4 sqrt(n) terms and adds the blocks' sums; OwkCascade does the same for sums of sums, and
 * contractions break the summed index into blocks of about sqrt(n).  The order depends on extents only, so the bits
 * are the same for any number of threads.
 *
 * Note [Walks]: a walk runs over the product of axes (all axes of a pack, or one extent), for N operands that each have
 * a stride per axis.  owk_end drops axes of extent 1 and merges neighbours that all operands step through evenly, so a
 * contiguous tensor of any rank is one run.
 */
#ifndef OPWRIGHT_KERNEL_H
#define OPWRIGHT_KERNEL_H
#include "abi.h"
#include "scalar.h"

#define OWK_LANES 16
#define OWK_AXES 32 /* of one walk: two packs of the highest rank */
#define OWK_INLINE __attribute__((always_inline))
#if defined(__clang__)
#define OWK_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define OWK_IVDEP _Pragma("GCC ivdep")
#endif

/* Of a loop over a tile: all its vectors at once, so that they stay in registers. */
#define OWK_UNROLL _Pragma("GCC unroll 8")

typedef float _Complex owk_c64;
typedef double _Complex owk_c128;

/* ---- small integers ---- */
static inline int64_t owk_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t owk_most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t owk_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t owk_tiles(int64_t n, int64_t of) { return of > 0 ? (n + of - 1) / of : 0; }

/* Whether 64 bits do not hold an integer of this size. */
static inline bool owk_beyond(double v) { return !(v > -9.2e18 && v < 9.2e18); }

/* Terms between two additions to a running sum, see Note [Blocked sums]; a multiple of OWK_LANES. */
static inline int64_t owk_block(int64_t n) {
  int64_t b = 16 * OWK_LANES;
  while (b < n && b / 4 < n / (b / 4)) b *= 2;
  return b;
}
static inline int64_t owk_short_block(int64_t n) {
  int64_t b = 16;
  while (b < n / b) b *= 2;
  return b;
}

/* ---- sums and other reductions over one counted loop: step(acc, j) gives acc with term j ---- */
/* Joins lane t with lane t + W, then halves again: each step is a vector's where there are enough. */
template <int W, class A, class J>
OWK_FN void owk_halve(A* lane, J join) {
  for (int t = 0; t < W; ++t) lane[t] = join(lane[t], lane[t + W]);
  if constexpr (W > 1) owk_halve<W / 2>(lane, join);
}
template <class A>
OWK_FN A owk_join_lanes(A* lane) {
  owk_halve<OWK_LANES / 2>(lane, [](A a, A b) OWK_INLINE { return a + b; });
  return lane[0];
}
template <class A, class F>
OWK_FN A owk_sum(int64_t lo, int64_t hi, F step) {
  A total = 0;
  const int64_t block = owk_block(hi - lo);
  for (int64_t b = lo; b < hi; b += block) {
    const int64_t end = owk_least(hi, b + block);
    A lane[OWK_LANES] = {};
    int64_t j = b;
    for (; j + OWK_LANES <= end; j += OWK_LANES)
      for (int t = 0; t < OWK_LANES; ++t) lane[t] = step(lane[t], j + t);
    for (int t = 0; j < end; ++j, ++t) lane[t] = step(lane[t], j);
    total = total + owk_join_lanes(lane);
  }
  return total;
}
template <class A, class F>
OWK_FN A owk_fold(int64_t lo, int64_t hi, A acc, F step) {
  for (int64_t j = lo; j < hi; ++j) acc = step(acc, j);
  return acc;
}
/* For max, min, any and all, whose order does not matter: four vectors of 512 bits at once, then one. */
template <class A, class F, class J>
OWK_FN A owk_fold_lanes(int64_t lo, int64_t hi, A init, F step, J join) {
  constexpr int lanes = 256 / (int)sizeof(A), few = lanes / 4;
  A lane[few];
  for (int t = 0; t < few; ++t) lane[t] = init;
  int64_t j = lo;
  if (hi - lo >= lanes) {
    A many[lanes];
    for (int t = 0; t < lanes; ++t) many[t] = init;
    for (; j + lanes <= hi; j += lanes) {
      OWK_UNROLL
      for (int t = 0; t < lanes; ++t) many[t] = step(many[t], j + t);
    }
    for (int t = 0; t < 2 * few; ++t) many[t] = join(many[t], many[t + 2 * few]);
    for (int t = 0; t < few; ++t) lane[t] = join(many[t], many[t + few]);
  }
  for (; j + few <= hi; j += few)
    for (int t = 0; t < few; ++t) lane[t] = step(lane[t], j + t);
  for (int t = 0; j < hi; ++j, ++t) lane[t] = step(lane[t], j);
  owk_halve<few / 2>(lane, join);
  return lane[0];
}

/* A sum of sums: `expected` of them, or about so many. */
template <class A>
struct OwkCascade {
  A total, part;
  int64_t block, left;
  OWK_INLINE explicit OwkCascade(int64_t expected) : total(0), part(0), block(owk_short_block(expected)), left(block) {}
  OWK_INLINE void add(A x) {
    part = part + x;
    if (--left == 0) {
      total = total + part;
      part = 0;
      left = block;
    }
  }
  OWK_INLINE A value() const { return total + part; }
};

/* The first place of the extreme value, NaN before all others. */
template <class A>
struct OwkArg {
  A value;
  int64_t at;
  int64_t seen;
};
template <class A>
OWK_FN OwkArg<A> owk_argmax(OwkArg<A> acc, A v, int64_t at) {
  const bool take = acc.seen == 0 || ((v > acc.value || v != v) && acc.value == acc.value);
  return take ? OwkArg<A>{v, at, 1} : acc;
}
template <class A>
OWK_FN OwkArg<A> owk_argmin(OwkArg<A> acc, A v, int64_t at) {
  const bool take = acc.seen == 0 || ((v < acc.value || v != v) && acc.value == acc.value);
  return take ? OwkArg<A>{v, at, 1} : acc;
}

/* The first extreme value of one counted loop; value(j) is a candidate.  Each lane keeps its own first one and the
 * step at which it came; the lanes are compared at the end. */
#define OWK_ARG_RUN(NAME, OP)                                                                              \
  template <class A, class F>                                                                              \
  OWK_FN OwkArg<A> owk_##NAME##_run(int64_t lo, int64_t hi, F value) {                                     \
    constexpr int lanes = 2 * OWK_LANES;                                                                   \
    OwkArg<A> best = {0, 0, 0};                                                                            \
    for (int64_t b = lo; b < hi;) {                                                                        \
      const int32_t steps = (int32_t)owk_least((hi - b) / lanes, 1 << 30);                                 \
      if (steps < 2) {                                                                                     \
        const int64_t end = owk_least(hi, b + lanes);                                                      \
        for (; b < end; ++b) best = owk_##NAME(best, value(b), b);                                         \
        continue;                                                                                          \
      }                                                                                                    \
      A lane[lanes];                                                                                       \
      int32_t step[lanes];                                                                                 \
      for (int t = 0; t < lanes; ++t) lane[t] = value(b + t), step[t] = 0;                                 \
      for (int32_t k = 1; k < steps; ++k)                                                                  \
        for (int t = 0; t < lanes; ++t) {                                                                  \
          const A v = value(b + (int64_t)k * lanes + t);                                                   \
          const bool take = ((v OP lane[t]) | (v != v)) & (lane[t] == lane[t]);                            \
          lane[t] = take ? v : lane[t];                                                                    \
          step[t] = take ? k : step[t];                                                                    \
        }                                                                                                  \
      OwkArg<A> here = {lane[0], b + (int64_t)step[0] * lanes, 1};                                         \
      for (int t = 1; t < lanes; ++t) {                                                                    \
        const int64_t at = b + (int64_t)step[t] * lanes + t;                                               \
        const bool better = ((lane[t] OP here.value) | (lane[t] != lane[t])) & (here.value == here.value); \
        const bool same = (lane[t] == here.value) | ((lane[t] != lane[t]) & (here.value != here.value));   \
        if (better || (same && at < here.at)) here = {lane[t], at, 1};                                     \
      }                                                                                                    \
      best = owk_##NAME(best, here.value, here.at);                                                        \
      b += (int64_t)steps * lanes;                                                                         \
    }                                                                                                      \
    return best;                                                                                           \
  }
OWK_ARG_RUN(argmax, >)
OWK_ARG_RUN(argmin, <)

/* The same for one of many candidates side by side: `at` is -1 before the first. */
template <class A>
OWK_FN void owk_take_argmax(A& value, int64_t& best, A v, int64_t at) {
  const bool take = (best < 0) | (((v > value) | (v != v)) & (value == value));
  value = take ? v : value;
  best = take ? at : best;
}
template <class A>
OWK_FN void owk_take_argmin(A& value, int64_t& best, A v, int64_t at) {
  const bool take = (best < 0) | (((v < value) | (v != v)) & (value == value));
  value = take ? v : value;
  best = take ? at : best;
}

/* A running sum with what its additions lost (Knuth's two-sum): off by some u of sum|x| however many terms it has.
 * Once it is inf or nan, so is what was lost, and the sum alone is the answer. */
template <class A>
OWK_FN A owk_scan(A& sum, A& lost, A x) {
  const A next = sum + x;
  const A part = next - sum;
  lost = lost + ((sum - (next - part)) + (x - part));
  sum = next;
  const A value = next + lost;
  return value == value ? value : next;
}

/* A running sum along one counted loop: value(j) is a term, use(j, sum) takes what it comes to.  Sixteen terms are added
 * up among themselves in four steps, and only their total goes into the state. */
template <class A, class F, class G>
OWK_FN void owk_scan_run(int64_t lo, int64_t hi, A& sum, A& lost, F value, G use) {
  typedef A V __attribute__((vector_size(OWK_LANES * sizeof(A))));
  int64_t j = lo;
  for (; j + OWK_LANES <= hi; j += OWK_LANES) {
    A term[OWK_LANES];
    for (int t = 0; t < OWK_LANES; ++t) term[t] = value(j + t);
    V v;
    const V zero = {};
    __builtin_memcpy(&v, term, sizeof(v));
    v += __builtin_shufflevector(zero, v, 0, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
    v += __builtin_shufflevector(zero, v, 0, 0, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29);
    v += __builtin_shufflevector(zero, v, 0, 0, 0, 0, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27);
    v += __builtin_shufflevector(zero, v, 0, 0, 0, 0, 0, 0, 0, 0, 16, 17, 18, 19, 20, 21, 22, 23);
    const V plain = v + sum, whole = plain + lost;
    const V out = whole == whole ? whole : plain;
    __builtin_memcpy(term, &out, sizeof(v));
    owk_scan(sum, lost, v[OWK_LANES - 1]);
    for (int t = 0; t < OWK_LANES; ++t) use(j + t, term[t]);
  }
  for (; j < hi; ++j) use(j, owk_scan(sum, lost, value(j)));
}

/* ---- packs and walks ---- */
/* How many rows' buffers of so many bytes one thread gets, for rows taken together: half a MiB of them. */
static inline int64_t owk_column_rows(int64_t bytes) {
  const int64_t n = bytes ? (512 << 10) / bytes / OWK_LANES * OWK_LANES : 1;
  return n < 1 ? 1 : n > 512 ? 512 : n;
}
/* Whether elements this far apart are read by whole vectors. */
static inline int owk_in_line(int64_t step) { return step == 0 || step == 1; }
typedef struct {
  int32_t rank;
  int64_t dim[OW_MAX_RANK];
} OwkPack;

static inline int64_t owk_count(const OwkPack& p) {
  int64_t n = 1;
  for (int32_t l = 0; l < p.rank; ++l) n *= p.dim[l];
  return n;
}
/* Row-major strides of a pack whose elements lie `inner` apart; returns the stride of what stands before it. */
static inline int64_t owk_linear(const OwkPack& p, int64_t inner, int64_t* stride) {
  for (int32_t l = p.rank - 1; l >= 0; --l) {
    stride[l] = inner;
    inner *= p.dim[l];
  }
  return inner;
}
/* Index `axis` of the element at row-major position `at` of a pack. */
static inline int64_t owk_lane(const OwkPack& p, int64_t at, int64_t axis) {
  for (int32_t l = p.rank - 1; l > axis; --l) at /= p.dim[l] == 0 ? 1 : p.dim[l];
  return axis >= 0 && axis < p.rank && p.dim[axis] ? at % p.dim[axis] : 0;
}

template <int N>
struct OwkWalk {
  int32_t rank;
  int64_t total;
  int64_t dim[OWK_AXES];
  int64_t step[N][OWK_AXES];
};
template <int N>
struct OwkAt {
  int64_t pos[OWK_AXES];
  int64_t at[N];
};
template <int N>
static inline void owk_begin(OwkWalk<N>& w) {
  w.rank = 0;
  w.total = 1;
}
template <int N>
static inline void owk_axis(OwkWalk<N>& w, int64_t extent, const int64_t (&step)[N]) {
  w.total *= extent;
  if (extent == 1) return;
  w.dim[w.rank] = extent;
  for (int k = 0; k < N; ++k) w.step[k][w.rank] = step[k];
  ++w.rank;
}
template <int N> /* a null pointer: an operand that does not move along the pack */
static inline void owk_axes(OwkWalk<N>& w, const OwkPack& p, const int64_t* const (&stride)[N]) {
  for (int32_t l = 0; l < p.rank; ++l) {
    int64_t step[N];
    for (int k = 0; k < N; ++k) step[k] = stride[k] ? stride[k][l] : 0;
    owk_axis(w, p.dim[l], step);
  }
}
/* For loops whose order does not matter: the axis along which operand 0 moves least goes innermost. */
template <int N>
static inline void owk_sort(OwkWalk<N>& w) {
  for (int32_t i = 1; i < w.rank; ++i)
    for (int32_t j = i; j > 0; --j) {
      const int64_t a = w.step[0][j - 1], b = w.step[0][j];
      if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) break;
      int64_t t = w.dim[j];
      w.dim[j] = w.dim[j - 1];
      w.dim[j - 1] = t;
      for (int k = 0; k < N; ++k) {
        t = w.step[k][j];
        w.step[k][j] = w.step[k][j - 1];
        w.step[k][j - 1] = t;
      }
    }
}
template <int N>
static inline void owk_end(OwkWalk<N>& w) {
  int32_t r = 0;
  for (int32_t l = 1; l < w.rank; ++l) {
    bool even = true;
    for (int k = 0; k < N; ++k) even = even && w.step[k][r] == w.step[k][l] * w.dim[l];
    if (even) {
      w.dim[r] *= w.dim[l];
    } else {
      ++r;
      w.dim[r] = w.dim[l];
    }
    for (int k = 0; k < N; ++k) w.step[k][r] = w.step[k][l];
  }
  if (w.rank == 0) { /* one element: unit steps, so that the plain branch takes it */
    w.dim[0] = 1;
    for (int k = 0; k < N; ++k) w.step[k][0] = 1;
  }
  w.rank = r + 1;
}
template <int N>
static inline void owk_seek(const OwkWalk<N>& w, int64_t linear, OwkAt<N>& a) {
  for (int k = 0; k < N; ++k) a.at[k] = 0;
  for (int32_t l = w.rank - 1; l >= 0; --l) {
    const int64_t d = w.dim[l], p = l ? linear % d : linear;
    linear /= d;
    a.pos[l] = p;
    for (int k = 0; k < N; ++k) a.at[k] += p * w.step[k][l];
  }
}
template <int N>
static inline void owk_start(const OwkWalk<N>& w, OwkAt<N>& a) {
  for (int32_t l = 0; l < w.rank; ++l) a.pos[l] = 0;
  for (int k = 0; k < N; ++k) a.at[k] = 0;
}
/* Move n elements along the innermost axis, never past its end. */
template <int N>
static inline void owk_move(const OwkWalk<N>& w, OwkAt<N>& a, int64_t n) {
  int32_t l = w.rank - 1;
  a.pos[l] += n;
  for (int k = 0; k < N; ++k) a.at[k] += n * w.step[k][l];
  while (l > 0 && a.pos[l] == w.dim[l]) {
    for (int k = 0; k < N; ++k) a.at[k] += w.step[k][l - 1] - w.dim[l] * w.step[k][l];
    a.pos[l] = 0;
    ++a.pos[--l];
  }
}
template <int N> /* how many runs a walk has */
static inline int64_t owk_runs(const OwkWalk<N>& w) {
  return w.total ? w.total / w.dim[w.rank - 1] : 0;
}
template <int N> /* how many elements lie in line from here, at most `left` */
static inline int64_t owk_run(const OwkWalk<N>& w, const OwkAt<N>& a, int64_t left) {
  return owk_least(left, w.dim[w.rank - 1] - a.pos[w.rank - 1]);
}

/* ---- the call: errors, axes, shapes ---- */
static inline __attribute__((noinline, cold)) int32_t owk_fail(OwError* e, int32_t code, int32_t which, int32_t arg,
                                                               int32_t axis, int64_t want, int64_t got) {
  e->which = which;
  e->arg = arg;
  e->axis = axis;
  e->want = want;
  e->got = got;
  __atomic_store_n(&e->code, code, __ATOMIC_RELEASE);
  return code;
}
/* From inside a loop, maybe of many threads: the first one is kept. */
static inline __attribute__((noinline, cold)) void owk_report(OwError* e, int32_t code, int32_t which, int64_t want,
                                                              int64_t got) {
  int32_t none = OW_OK;
  if (!__atomic_compare_exchange_n(&e->code, &none, code, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
  e->which = which;
  e->arg = -1;
  e->axis = -1;
  e->want = want;
  e->got = got;
}

typedef struct {
  int32_t n;
  int32_t axis[OW_MAX_RANK];
} OwkOrder; /* physical axes, in order */

/* The axes of a tensor of this rank that are not in `taken` (bits). */
static inline OwkOrder owk_free_axes(int32_t rank, uint32_t taken) {
  OwkOrder o;
  o.n = 0;
  for (int32_t k = 0; k < rank; ++k)
    if (!(taken >> k & 1u)) o.axis[o.n++] = k;
  return o;
}
/* Normalise `axis`: false when it is not in [-rank, rank). */
static inline bool owk_norm_axis(int64_t axis, int32_t rank, int32_t* out) {
  if (axis < -(int64_t)rank || axis >= rank) return false;
  *out = (int32_t)(axis < 0 ? axis + rank : axis);
  return true;
}
/* Normalise a set of axes to ascending order; `all` when the attribute is absent, or empty and that means all.
 * -1: fine; else the position in the attribute of one that is out of range or named twice. */
static inline int32_t owk_norm_axes(const OwAttr* a, int32_t rank, bool empty_all, OwkOrder* out, uint32_t* taken) {
  const bool every = a->count < 0 || (a->count == 0 && empty_all);
  *taken = 0;
  for (int64_t k = 0; k < (every ? rank : a->count); ++k) {
    int32_t at = (int32_t)k;
    if (!every && (!owk_norm_axis(a->i[k], rank, &at) || (*taken >> at & 1u))) return (int32_t)k;
    *taken |= 1u << at;
  }
  out->n = 0;
  for (int32_t k = 0; k < rank; ++k)
    if (*taken >> k & 1u) out->axis[out->n++] = k;
  return -1;
}
static inline int32_t owk_count_axes(const OwAttr* a, int32_t rank, bool empty_all) {
  return a->count < 0 || (a->count == 0 && empty_all) ? rank : (int32_t)owk_least(a->count, OW_MAX_RANK + 1);
}
static inline void owk_all_axes(int32_t rank, OwkOrder* out, uint32_t* taken) {
  const OwAttr absent = {-1, nullptr, nullptr};
  owk_norm_axes(&absent, rank, true, out, taken);
}
/* Axes first … first + rank of `o` as a pack. */
static inline void owk_take_pack(const OwTensor* t, const OwkOrder& o, int32_t first, int32_t rank, OwkPack* p) {
  p->rank = rank;
  for (int32_t l = 0; l < rank; ++l) p->dim[l] = t->shape[o.axis[first + l]];
}
static inline void owk_take_strides(const OwTensor* t, const OwkOrder& o, int32_t first, int32_t rank,
                                    int64_t* stride) {
  for (int32_t l = 0; l < rank; ++l) stride[l] = t->strides[o.axis[first + l]];
}
static inline int32_t owk_same_pack(OwError* e, const OwTensor* t, const OwkOrder& o, int32_t first, const OwkPack& p,
                                    int32_t arg) {
  for (int32_t l = 0; l < p.rank; ++l) {
    const int32_t axis = o.axis[first + l];
    if (t->shape[axis] != p.dim[l]) return owk_fail(e, OW_E_SHAPE, -1, arg, axis, p.dim[l], t->shape[axis]);
  }
  return OW_OK;
}
/* Broadcasting: join the shape of one operand into the pack, aligned at the end. */
static inline int32_t owk_join_pack(OwError* e, const OwTensor* t, const OwkOrder& o, int32_t first, int32_t rank,
                                    OwkPack* p, int32_t arg) {
  if (rank > p->rank) {
    const int32_t shift = rank - p->rank;
    for (int32_t l = p->rank - 1; l >= 0; --l) p->dim[l + shift] = p->dim[l];
    for (int32_t l = 0; l < shift; ++l) p->dim[l] = 1;
    p->rank = rank;
  }
  for (int32_t l = 0; l < rank; ++l) {
    const int32_t axis = o.axis[first + l];
    int64_t* have = &p->dim[p->rank - rank + l];
    const int64_t d = t->shape[axis];
    if (*have == 1)
      *have = d;
    else if (d != 1 && d != *have)
      return owk_fail(e, OW_E_SHAPE, -1, arg, axis, *have, d);
  }
  return OW_OK;
}
static inline void owk_join_strides(const OwTensor* t, const OwkOrder& o, int32_t first, int32_t rank, const OwkPack& p,
                                    int64_t* stride) {
  for (int32_t l = 0; l < p.rank; ++l) {
    const int32_t mine = l - (p.rank - rank);
    const int32_t axis = mine < 0 ? 0 : o.axis[first + mine];
    stride[l] = mine < 0 || t->shape[axis] == 1 ? 0 : t->strides[axis];
  }
}
/* Strides of a tensor's pack along the axes of one that it is a share of: 0 where it lacks an axis or has extent 1. */
static inline void owk_align(const OwkPack& own, const int64_t* stride, const OwkPack& to, int64_t* out) {
  for (int32_t l = 0; l < to.rank; ++l) {
    const int32_t mine = l - (to.rank - own.rank);
    out[l] = mine < 0 || own.dim[mine] == 1 ? 0 : stride[mine];
  }
}
/* The first axis along which a pack reaches past another one; -1 when it lies inside. */
static inline int32_t owk_outside(const OwkPack& have, const OwkPack& want) {
  for (int32_t l = 0; l < have.rank && l < want.rank; ++l)
    if (have.dim[l] > want.dim[l]) return l;
  return -1;
}
/* The axes of `whole` that a share of it has, and those that it lacks; extent 1 in the other's place. */
static inline void owk_split_pack(const OwkPack& whole, const OwkPack& share, OwkPack* own, OwkPack* gone) {
  own->rank = gone->rank = whole.rank;
  for (int32_t l = 0; l < whole.rank; ++l) {
    const int32_t mine = l - (whole.rank - share.rank);
    const bool has = mine >= 0 && share.dim[mine] == whole.dim[l];
    own->dim[l] = has ? whole.dim[l] : 1;
    gone->dim[l] = has ? 1 : whole.dim[l];
  }
}
/* An `expand` tensor stands right-aligned among `total` axes: which of its own axes is `at`, -1 when it lacks it. */
static inline int32_t owk_expand_axis(int32_t rank, const int64_t* shape, int32_t total, int32_t at) {
  const int32_t mine = at - (total - rank);
  return mine < 0 || shape[mine] == 1 ? -1 : mine;
}
static inline void owk_split_extent(int32_t rank, const int64_t* shape, int32_t total, int32_t at, int64_t extent,
                                    int64_t* own, int64_t* gone) {
  const bool has = extent == 1 || owk_expand_axis(rank, shape, total, at) >= 0;
  *own = has ? extent : 1;
  *gone = has ? 1 : extent;
}
static inline int32_t owk_expand(OwError* e, const OwTensor* t, int32_t total, int32_t at, int64_t extent,
                                 int32_t arg) {
  const int32_t mine = owk_expand_axis(t->ndim, t->shape, total, at);
  if (t->ndim > total) return owk_fail(e, OW_E_SHAPE, -1, arg, -1, total, t->ndim);
  if (mine >= 0 && t->shape[mine] != extent) return owk_fail(e, OW_E_SHAPE, -1, arg, mine, extent, t->shape[mine]);
  return OW_OK;
}
static inline int64_t owk_expand_stride(int32_t rank, const int64_t* shape, const int64_t* stride, int32_t total,
                                        int32_t at) {
  const int32_t mine = owk_expand_axis(rank, shape, total, at);
  return mine < 0 ? 0 : stride[mine];
}
static inline int32_t owk_same_shape(OwError* e, const OwTensor* t, const OwShape& s, int32_t arg) {
  if (t->ndim != s.rank) return owk_fail(e, OW_E_RANK, -1, arg, -1, s.rank, t->ndim);
  for (int32_t k = 0; k < s.rank; ++k)
    if (t->shape[k] != s.dim[k]) return owk_fail(e, OW_E_SHAPE, -1, arg, k, s.dim[k], t->shape[k]);
  return OW_OK;
}

/* ---- overlap ---- */
typedef struct {
  const char* lo;
  const char* hi;
} OwkSpan;
static inline const char* owk_data(const OwTensor* t) { return (const char*)t->data + t->byte_offset; }
static inline OwkSpan owk_span(const OwTensor* t) {
  const int64_t bytes = (t->dtype.bits + 7) / 8;
  OwkSpan s = {owk_data(t), owk_data(t) + bytes};
  for (int32_t k = 0; k < t->ndim; ++k) {
    const int64_t reach = (t->shape[k] - 1) * t->strides[k] * bytes;
    if (t->shape[k] == 0) {
      s.hi = s.lo;
      return s;
    }
    if (reach > 0)
      s.hi += reach;
    else
      s.lo += reach;
  }
  return s;
}
static inline bool owk_meet(const OwkSpan& a, const OwkSpan& b) {
  return a.lo < b.hi && b.lo < a.hi && a.lo < a.hi && b.lo < b.hi;
}
static inline bool owk_twins(const OwTensor* a, const OwTensor* b) {
  if (owk_data(a) != owk_data(b) || a->ndim != b->ndim) return false;
  for (int32_t k = 0; k < a->ndim; ++k)
    if (a->shape[k] != b->shape[k] || (a->shape[k] > 1 && a->strides[k] != b->strides[k])) return false;
  return true;
}
/* Whether two indices of an output may name one element: strides, in ascending order, must each pass what lies below. */
static inline bool owk_folded(const OwTensor* t) {
  int32_t order[OW_MAX_RANK];
  int32_t n = 0;
  for (int32_t k = 0; k < t->ndim; ++k) {
    if (t->shape[k] == 0) return false;
    if (t->shape[k] == 1) continue;
    int32_t j = n++;
    const int64_t s = t->strides[k] < 0 ? -t->strides[k] : t->strides[k];
    for (; j > 0; --j) {
      const int64_t o = t->strides[order[j - 1]];
      if ((o < 0 ? -o : o) <= s) break;
      order[j] = order[j - 1];
    }
    order[j] = k;
  }
  int64_t reach = 0;
  for (int32_t j = 0; j < n; ++j) {
    const int64_t s = t->strides[order[j]] < 0 ? -t->strides[order[j]] : t->strides[order[j]];
    if (s <= reach) return true;
    reach += s * (t->shape[order[j]] - 1);
  }
  return false;
}

/* ---- threads ---- */
#define OWK_SERIAL_WORK 32768 /* elements: below, one thread is quicker */
static inline void owk_parallel(const OwCall* c, int64_t n, int64_t work, OwChunk fn, void* ctx) {
  if (n <= 0) return;
  if (work < 1) work = 1;
  if (!c->parallel || c->max_threads < 2 || n == 1 || n < (OWK_SERIAL_WORK + work - 1) / work) {
    fn(ctx, 0, n, 0);
    return;
  }
  c->parallel(c->pool, n, owk_most(1, OWK_SERIAL_WORK / 2 / work), fn, ctx);
}

/* ---- complex numbers ---- */
OWK_FN owk_c64 owk_complex_c64(float re, float im) {
  owk_c64 z;
  __real__ z = re;
  __imag__ z = im;
  return z;
}
OWK_FN owk_c128 owk_complex_c128(double re, double im) {
  owk_c128 z;
  __real__ z = re;
  __imag__ z = im;
  return z;
}
OWK_FN float owk_real_c64(owk_c64 z) { return __real__ z; }
OWK_FN double owk_real_c128(owk_c128 z) { return __real__ z; }
OWK_FN float owk_imag_c64(owk_c64 z) { return __imag__ z; }
OWK_FN double owk_imag_c128(owk_c128 z) { return __imag__ z; }
OWK_FN owk_c64 owk_conj_c64(owk_c64 z) { return owk_complex_c64(__real__ z, -__imag__ z); }
OWK_FN owk_c128 owk_conj_c128(owk_c128 z) { return owk_complex_c128(__real__ z, -__imag__ z); }
OWK_FN float owk_abs_c64(owk_c64 z) { return __builtin_hypotf(__real__ z, __imag__ z); }
OWK_FN double owk_abs_c128(owk_c128 z) { return __builtin_hypot(__real__ z, __imag__ z); }
OWK_FN owk_c64 owk_exp_c64(owk_c64 z) { return __builtin_cexpf(z); }
OWK_FN owk_c128 owk_exp_c128(owk_c128 z) { return __builtin_cexp(z); }
OWK_FN owk_c64 owk_pow_c64(owk_c64 a, owk_c64 b) { return __builtin_cpowf(a, b); }
OWK_FN owk_c128 owk_pow_c128(owk_c128 a, owk_c128 b) { return __builtin_cpow(a, b); }
OWK_FN owk_c64 owk_sqrt_c64(owk_c64 z) { return __builtin_csqrtf(z); }
OWK_FN owk_c128 owk_sqrt_c128(owk_c128 z) { return __builtin_csqrt(z); }
OWK_FN owk_c64 owk_log_c64(owk_c64 z) { return __builtin_clogf(z); }
OWK_FN owk_c128 owk_log_c128(owk_c128 z) { return __builtin_clog(z); }

#endif
