/* What generated CUDA kernels share: walks, sums by a thread and by a block, the error word.
 *
 * Compiled by NVRTC, which reads no other header: the emitter puts scalar.h and this file into every kernel text.  The
 * functions of kernel.h that a printed loop calls have the same names here.
 *
 * Note [Blocks]: in a `block` nest all threads of a block run one row.  Straight code is uniform: every thread computes the
 * same scalars; loops over independent elements are dealt out by thread; reductions give every thread the result; memory
 * that one thread wrote is read after a barrier, which the printer places.
 *
 * To add a helper: keep it free of statics; barriers only in functions named owk_block_*.
 */
#ifndef OPWRIGHT_DEVICE_H
#define OPWRIGHT_DEVICE_H

#define OWK_DEVICE_AXES 8
#ifndef OW_MAX_RANK
#define OW_MAX_RANK 16
enum { OW_E_INDEX = 5, OW_E_DATA = 8 };
typedef struct {
  int32_t code, which, arg, axis;
  int64_t want, got;
} OwError;
#endif

typedef struct {
  int32_t rank;
  int64_t dim[OW_MAX_RANK];
} OwkPack;
OWK_FN int64_t owk_lane(const OwkPack& p, int64_t at, int64_t axis) {
  for (int32_t l = p.rank - 1; l > axis; --l) at /= p.dim[l] == 0 ? 1 : p.dim[l];
  return axis >= 0 && axis < p.rank && p.dim[axis] ? at % p.dim[axis] : 0;
}

/* ---- walks: each step is found from its number ---- */
template <int N>
struct OwkWalk {
  int32_t rank;
  int64_t total;
  int64_t dim[OWK_DEVICE_AXES];
  int64_t step[N][OWK_DEVICE_AXES];
};
template <int N>
struct OwkAt {
  int64_t at[N];
};
template <int N>
OWK_FN void owk_seek(const OwkWalk<N>& w, int64_t linear, OwkAt<N>& a) {
  for (int k = 0; k < N; ++k) a.at[k] = 0;
  for (int32_t l = w.rank - 1; l >= 0; --l) {
    const int64_t p = l ? linear % w.dim[l] : linear;
    linear /= w.dim[l];
    for (int k = 0; k < N; ++k) a.at[k] += p * w.step[k][l];
  }
}

/* ---- the error word: the first report is kept; the host reads it at its next synchronisation ---- */
OWK_FN void owk_report(OwError* e, int32_t code, int32_t which, int64_t want, int64_t got) {
  if (atomicCAS((int*)&e->code, 0, code) != 0) return;
  e->which = which;
  e->arg = -1;
  e->axis = -1;
  e->want = want;
  e->got = got;
}

/* ---- reductions by one thread; for blocks of terms see Note [Blocked sums] in kernel.h ---- */
OWK_FN int64_t owk_short_block(int64_t n) {
  int64_t b = 16;
  while (b < n / b) b *= 2;
  return b;
}
template <class A>
struct OwkCascade {
  A total, part;
  int64_t block, left;
  __device__ __forceinline__ explicit OwkCascade(int64_t expected)
      : total(0), part(0), block(owk_short_block(expected)), left(block) {}
  __device__ __forceinline__ void add(A x) {
    part = part + x;
    if (--left == 0) {
      total = total + part;
      part = 0;
      left = block;
    }
  }
  __device__ __forceinline__ A value() const { return total + part; }
};
template <class A, class F>
OWK_FN A owk_strided_sum(int64_t lo, int64_t hi, int64_t step_by, F step) {
  A total = 0;
  const int64_t block = owk_short_block((hi - lo) / step_by) * step_by;
  for (int64_t b = lo; b < hi; b += block) {
    const int64_t end = hi - b < block ? hi : b + block;
    A part = 0;
    for (int64_t j = b; j < end; j += step_by) part = step(part, j);
    total = total + part;
  }
  return total;
}
template <class A, class F>
OWK_FN A owk_sum(int64_t lo, int64_t hi, F step) {
  return owk_strided_sum<A>(lo, hi, 1, step);
}
template <class A, class F>
OWK_FN A owk_fold(int64_t lo, int64_t hi, A acc, F step) {
  for (int64_t j = lo; j < hi; ++j) acc = step(acc, j);
  return acc;
}
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
/* The first extreme value of one counted loop; value(j) is a candidate. */
template <class A, class F>
OWK_FN OwkArg<A> owk_argmax_run(int64_t lo, int64_t hi, F value) {
  OwkArg<A> best = {0, 0, 0};
  for (int64_t j = lo; j < hi; ++j) best = owk_argmax(best, value(j), j);
  return best;
}
template <class A, class F>
OWK_FN OwkArg<A> owk_argmin_run(int64_t lo, int64_t hi, F value) {
  OwkArg<A> best = {0, 0, 0};
  for (int64_t j = lo; j < hi; ++j) best = owk_argmin(best, value(j), j);
  return best;
}

/* A running sum with what its additions lost (Knuth's two-sum), as in kernel.h. */
template <class A>
OWK_FN A owk_scan(A& sum, A& lost, A x) {
  const A next = sum + x;
  const A part = next - sum;
  lost = lost + ((sum - (next - part)) + (x - part));
  sum = next;
  const A value = next + lost;
  return value == value ? value : next;
}
/* A running sum along one counted loop: value(j) is a term, use(j, sum) takes what it comes to. */
template <class A, class F, class G>
OWK_FN void owk_scan_run(int64_t lo, int64_t hi, A& sum, A& lost, F value, G use) {
  for (int64_t j = lo; j < hi; ++j) use(j, owk_scan(sum, lost, value(j)));
}

/* ---- reductions by a block: lanes of a warp by shuffles, warps through shared memory; every thread gets the result ---- */
template <class A, class J>
OWK_FN A owk_block_join(A v, A unit, J join) {
  __shared__ A warps[32];
  for (int w = 16; w > 0; w /= 2) v = join(v, (A)__shfl_xor_sync(0xffffffffu, v, w));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = (blockDim.x + 31) / 32;
  __syncthreads(); /* a result that a slower warp still reads */
  if (lane == 0) warps[warp] = v;
  __syncthreads();
  v = lane < count ? warps[lane] : unit;
  for (int w = 16; w > 0; w /= 2) v = join(v, (A)__shfl_xor_sync(0xffffffffu, v, w));
  return v;
}
template <class A, class F>
OWK_FN A owk_block_sum(int64_t lo, int64_t hi, F step) {
  const A mine = owk_strided_sum<A>(lo + threadIdx.x, hi, blockDim.x, step);
  return owk_block_join(mine, (A)0, [](A p, A q) { return p + q; });
}
template <class A, class F, class J>
OWK_FN A owk_block_fold(int64_t lo, int64_t hi, A unit, F step, J join) {
  A acc = unit;
  for (int64_t j = lo + threadIdx.x; j < hi; j += blockDim.x) acc = step(acc, j);
  return owk_block_join(acc, unit, join);
}

#endif
