/* Contractions on the CPU: sums of products over tiles of rows and columns, with register-blocked microkernels.
 *
 * A kernel's text says what the two factors are and what becomes of the sums (emit/gemm.py); how a tile is cut, packed
 * and multiplied is said here once, for any accumulator and any dialect.  Vectors are the compiler's own (vector_size);
 * no intrinsics header.
 *
 * May include: kernel.h.  To add a microkernel: a branch of owk_gemm_tile that depends on extents and strides only, so
 * that the bits are the same for any number of threads and any cut into tiles.
 *
 * Note [Order of sums]: each sum is cut along k into blocks of owk_gemm_block(K) terms; a block is summed in a register
 * in the order of k, and blocks are added in order.  A chain of b terms and the K / b blocks after it stay within the
 * 4 sqrt(K) + 16 of Note [Blocked sums].  owk_dot has one chain per vector lane, joined as a tree.
 */
#ifndef OPWRIGHT_GEMM_H
#define OPWRIGHT_GEMM_H
#include "kernel.h"

#if defined(__AVX512F__)
#define OWK_VECTOR 64
#define OWK_MR 8
#elif defined(__AVX__)
#define OWK_VECTOR 32
#define OWK_MR 6
#else
#define OWK_VECTOR 16
#define OWK_MR 4
#endif

template <class A>
struct OwkVector {
  typedef A type __attribute__((vector_size(OWK_VECTOR)));
  enum { lanes = OWK_VECTOR / (int)sizeof(A), columns = 2 * lanes };
  /* what is transposed in registers: `edge` by `edge` */
  enum { bytes = OWK_VECTOR < 32 ? OWK_VECTOR : 32, edge = bytes / (int)sizeof(A) };
  typedef A line __attribute__((vector_size(bytes)));
};
typedef uint16_t owk_u16xl __attribute__((vector_size(OwkVector<float>::bytes / 2)));
typedef uint32_t owk_u32xl __attribute__((vector_size(OwkVector<float>::bytes)));
typedef uint16_t owk_u16xv __attribute__((vector_size(OWK_VECTOR / 2)));
typedef uint32_t owk_u32xv __attribute__((vector_size(OWK_VECTOR)));
typedef OwkVector<float>::type owk_f32xv;
typedef OwkVector<double>::type owk_f64xv;
typedef OwkVector<float>::line owk_f32xl;
typedef OwkVector<double>::line owk_f64xl;

/* ---- vectors: fma, loads with conversion ---- */
#if !OWK_HAS_FMA
OWK_FN owk_f32xv owk_vfma(owk_f32xv a, owk_f32xv b, owk_f32xv c) { return a * b + c; }
OWK_FN owk_f64xv owk_vfma(owk_f64xv a, owk_f64xv b, owk_f64xv c) { return a * b + c; }
#elif defined(__clang__)
OWK_FN owk_f32xv owk_vfma(owk_f32xv a, owk_f32xv b, owk_f32xv c) { return __builtin_elementwise_fma(a, b, c); }
OWK_FN owk_f64xv owk_vfma(owk_f64xv a, owk_f64xv b, owk_f64xv c) { return __builtin_elementwise_fma(a, b, c); }
#elif defined(__AVX512F__)
OWK_FN owk_f32xv owk_vfma(owk_f32xv a, owk_f32xv b, owk_f32xv c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4);
}
OWK_FN owk_f64xv owk_vfma(owk_f64xv a, owk_f64xv b, owk_f64xv c) {
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, (uint8_t)-1, 4);
}
#elif defined(__x86_64__)
OWK_FN owk_f32xv owk_vfma(owk_f32xv a, owk_f32xv b, owk_f32xv c) { return __builtin_ia32_vfmaddps256(a, b, c); }
OWK_FN owk_f64xv owk_vfma(owk_f64xv a, owk_f64xv b, owk_f64xv c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
#else
template <class V>
OWK_FN V owk_vfma(V a, V b, V c) {
  for (unsigned t = 0; t < sizeof(V) / sizeof(a[0]); ++t) c[t] = owk_fma(a[t], b[t], c[t]);
  return c;
}
#endif

template <class V, class T>
OWK_FN V owk_unaligned(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class F, class U>
OWK_FN F owk_cast_bits(U u) {
  static_assert(sizeof(F) == sizeof(U), "bits move one to one");
  F f;
  __builtin_memcpy(&f, &u, sizeof(F));
  return f;
}
/* As owk_f16_to_f32, on lanes of 32 bits. */
template <class F, class U>
OWK_FN F owk_widen_f16(U h) {
  const U sign = (h & 0x8000u) << 16, body = (h & 0x7FFFu) << 13;
  const U scaled = owk_cast_bits<U>(owk_cast_bits<F>(body) * 5.192296858534828e33f);
  const U top = (U)((h & 0x7C00u) == 0x7C00u);
  return owk_cast_bits<F>(sign | (top & (body | 0x7F800000u)) | (~top & scaled));
}
OWK_FN owk_f32xv owk_vload(const float* p) { return owk_unaligned<owk_f32xv>(p); }
OWK_FN owk_f64xv owk_vload(const double* p) { return owk_unaligned<owk_f64xv>(p); }
OWK_FN owk_f32xv owk_vload(const owk_bf16* p) {
  return owk_cast_bits<owk_f32xv>(__builtin_convertvector(owk_unaligned<owk_u16xv>(p), owk_u32xv) << 16);
}
OWK_FN owk_f32xv owk_vload(const owk_f16* p) {
  return owk_widen_f16<owk_f32xv>(__builtin_convertvector(owk_unaligned<owk_u16xv>(p), owk_u32xv));
}
/* Two vectors of neighbours, those at even places and those at odd ones: of bf16 that is less work than in order. */
template <class T>
struct OwkHalves {
  enum { are = 0 };
};
template <>
struct OwkHalves<owk_bf16> {
  enum { are = 1 };
};
template <class A, class T>
OWK_FN void owk_vload_halves(const T*, A*, A*) {}
OWK_FN void owk_vload_halves(const owk_bf16* p, owk_f32xv* even, owk_f32xv* odd) {
  const owk_u32xv x = owk_unaligned<owk_u32xv>(p);
  *even = owk_cast_bits<owk_f32xv>(x << 16);
  *odd = owk_cast_bits<owk_f32xv>(x & 0xFFFF0000u);
}
/* The neighbours of a line. */
OWK_FN owk_f32xl owk_load_line(const float* p) { return owk_unaligned<owk_f32xl>(p); }
OWK_FN owk_f64xl owk_load_line(const double* p) { return owk_unaligned<owk_f64xl>(p); }
OWK_FN owk_f32xl owk_load_line(const owk_bf16* p) {
  return owk_cast_bits<owk_f32xl>(__builtin_convertvector(owk_unaligned<owk_u16xl>(p), owk_u32xl) << 16);
}
OWK_FN owk_f32xl owk_load_line(const owk_f16* p) {
  return owk_widen_f16<owk_f32xl>(__builtin_convertvector(owk_unaligned<owk_u16xl>(p), owk_u32xl));
}
/* The square of `edge` lines, transposed. */
template <class V>
OWK_FN void owk_transpose(V* x) {
  const int n = sizeof(V) / sizeof(x[0][0]);
  V y[n];
  if constexpr (n == 8) {
#pragma GCC unroll 16
    for (int r = 0; r < 8; r += 2) {
      y[r] = __builtin_shufflevector(x[r], x[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      y[r + 1] = __builtin_shufflevector(x[r], x[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 8; r += 4)
#pragma GCC unroll 16
      for (int h = 0; h < 2; ++h) {
        x[r + 2 * h] = __builtin_shufflevector(y[r + h], y[r + h + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        x[r + 2 * h + 1] = __builtin_shufflevector(y[r + h], y[r + h + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      }
#pragma GCC unroll 16
    for (int r = 0; r < 4; ++r) {
      y[r] = __builtin_shufflevector(x[r], x[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
      y[r + 4] = __builtin_shufflevector(x[r], x[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
  } else if constexpr (n == 4 && sizeof(x[0][0]) == 8) {
#pragma GCC unroll 16
    for (int r = 0; r < 4; r += 2) {
      x[r] = __builtin_shufflevector(y[r] = x[r], x[r + 1], 0, 4, 2, 6);
      x[r + 1] = __builtin_shufflevector(y[r], x[r + 1], 1, 5, 3, 7);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 2; ++r) {
      y[r] = __builtin_shufflevector(x[r], x[r + 2], 0, 1, 4, 5);
      y[r + 2] = __builtin_shufflevector(x[r], x[r + 2], 2, 3, 6, 7);
    }
  } else if constexpr (n == 4) {
#pragma GCC unroll 16
    for (int r = 0; r < 4; r += 2) {
      x[r] = __builtin_shufflevector(y[r] = x[r], x[r + 1], 0, 4, 1, 5);
      x[r + 1] = __builtin_shufflevector(y[r], x[r + 1], 2, 6, 3, 7);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 2; ++r) {
      y[2 * r] = __builtin_shufflevector(x[r], x[r + 2], 0, 1, 4, 5);
      y[2 * r + 1] = __builtin_shufflevector(x[r], x[r + 2], 2, 3, 6, 7);
    }
  } else {
    y[0] = __builtin_shufflevector(x[0], x[1], 0, 2);
    y[1] = __builtin_shufflevector(x[0], x[1], 1, 3);
  }
#pragma GCC unroll 16
  for (int r = 0; r < n; ++r) x[r] = y[r];
}
OWK_FN float owk_wide(float x) { return x; }
OWK_FN double owk_wide(double x) { return x; }
OWK_FN float owk_wide(owk_bf16 x) { return owk_bf16_to_f32(x); }
OWK_FN float owk_wide(owk_f16 x) { return owk_f16_to_f32(x); }

/* ---- plans: how the tasks of one nest are cut; tasks are (outer, columns, rows), rows fastest ---- */
typedef struct {
  int64_t m, n, k;       /* extents of rows, columns and terms */
  int64_t rows, columns; /* of a tile */
  int64_t block;         /* terms of one chain */
  int64_t down, across;  /* tiles */
} OwkGemm;
typedef struct {
  int64_t outer, m0, m1, n0, n1;
  int64_t read; /* no sum from this column on is read; they are 0 */
} OwkTile;

#define OWK_TILE_ROWS 384    /* at most */
#define OWK_TILE_BYTES 1024  /* of a row of sums, at most */
#define OWK_FEW_ROWS 16      /* up to here a factor is not packed where it can be read in line */
#define OWK_SLIDE_ROWS 4     /* up to here a window's columns are read where they lie, */
#define OWK_SLIDE_TERMS 128  /* of up to so many terms, */
#define OWK_SLIDE_RUN 64     /* or copied in lines of so many */
#define OWK_NEAR_BYTES 512   /* lines this near each other stay in the cache together: they are never packed */
#define OWK_GEMM_WORK 262144 /* terms that are worth a task of their own */

/* Terms of one chain: the most for which the chain and the blocks after it stay within the bound. */
static inline int64_t owk_gemm_block(int64_t k) {
  int64_t b = 16;
  while (b < 256) {
    const int64_t next = 2 * b, longest = next + (k + next - 1) / next - 14;
    if (next >= 2 * k || (longest > 0 && longest * longest > 16 * k)) break;
    b = next;
  }
  while (b < k / b / 2) b *= 2;
  return b;
}
/* The size of even pieces of n of at most `most`, in whole units. */
static inline int64_t owk_gemm_cut(int64_t n, int64_t most, int64_t unit) {
  const int64_t pieces = owk_most(1, (n + most - 1) / most);
  return owk_round_up((n + pieces - 1) / pieces, unit);
}
/* Columns of a tile at most: many for a single row. */
template <class A>
static inline int64_t owk_gemm_most(int64_t m) {
  return (m == 1 ? 8 * OWK_TILE_BYTES : OWK_TILE_BYTES) / (int64_t)sizeof(A);
}
template <class A>
static inline int64_t owk_gemm_bytes(int64_t m, int64_t n, int64_t k) {
  const int64_t rows = owk_gemm_cut(m, OWK_TILE_ROWS, OWK_MR);
  const int64_t columns = owk_gemm_cut(n, owk_gemm_most<A>(m), OwkVector<A>::columns);
  const int64_t lanes = OwkVector<A>::lanes, block = owk_gemm_block(k);
  const int64_t packed = block * (columns + rows);
  const int64_t lines = OWK_FEW_ROWS * owk_round_up(k, lanes);
  const int64_t slide = m > OWK_SLIDE_ROWS ? 0 : owk_least(k, OWK_SLIDE_TERMS) * (OWK_SLIDE_ROWS + OWK_SLIDE_RUN);
  return owk_round_up((rows * columns + owk_most(packed, owk_most(lines, slide))) * (int64_t)sizeof(A), 64);
}
template <class A>
static inline void owk_gemm_plan(OwkGemm& g, int64_t outer, int64_t m, int64_t n, int64_t k, int32_t threads) {
  const int64_t nr = OwkVector<A>::columns;
  g.m = m;
  g.n = n;
  g.k = k;
  g.block = owk_gemm_block(k);
  g.rows = owk_gemm_cut(m, OWK_TILE_ROWS, OWK_MR);
  g.columns = owk_gemm_cut(n, owk_gemm_most<A>(m), nr);
  while (true) {
    g.down = m ? (m + g.rows - 1) / g.rows : 0;
    g.across = n ? (n + g.columns - 1) / g.columns : 0;
    if (threads < 2 || outer * g.down * g.across >= 4 * threads) break;
    if (g.rows * g.columns * owk_most(1, k) < 2 * OWK_GEMM_WORK) break;
    if (g.columns >= 2 * g.rows && g.columns > nr)
      g.columns = owk_round_up(g.columns / 2, nr);
    else if (g.rows > OWK_MR)
      g.rows = owk_round_up(g.rows / 2, OWK_MR);
    else if (g.columns > nr)
      g.columns = owk_round_up(g.columns / 2, nr);
    else
      break;
  }
}
/* What a task costs, in elements touched, for owk_parallel. */
static inline int64_t owk_gemm_work(const OwkGemm& g) {
  return owk_least(g.rows, g.m) * owk_least(g.columns, g.n) / 16 * owk_most(g.k, 16) / 16;
}
static inline OwkTile owk_tile(const OwkGemm& g, int64_t task) {
  const int64_t i = task % g.down, j = task / g.down % g.across;
  OwkTile t;
  t.outer = task / g.down / g.across;
  t.m0 = i * g.rows;
  t.m1 = owk_least(g.m, t.m0 + g.rows);
  t.n0 = j * g.columns;
  t.n1 = owk_least(g.n, t.n0 + g.columns);
  t.read = t.n1;
  return t;
}

/* ---- factors: pack(dst, width, i0, i1, k0, k1) writes dst[(k - k0) * width + i - i0]; the caller zeroed the rest ---- */

/* Elements `p[own(i) + sum(k)]` for positions i and k of two walks. */
template <class A, class T>
struct OwkPlain {
  const T* p;
  const OwkWalk<1>* own; /* of the factor's own axes */
  const OwkWalk<1>* sum;
  OWK_INLINE int64_t at(int64_t i) const {
    if (own->rank == 1) return i * own->step[0][0];
    OwkAt<1> a;
    owk_seek(*own, i, a);
    return a.at[0];
  }
  OWK_INLINE int64_t own_step() const { return own->step[0][0]; }
  OWK_INLINE int64_t sum_step() const { return sum->step[0][0]; }
  OWK_INLINE bool even() const { return own->rank == 1 && sum->rank == 1; }
  /* Whether neighbours along k lie in line. */
  OWK_INLINE bool lines() const { return sum->rank == 1 && (sum_step() == 1 || sum->total == 1); }
  OWK_INLINE bool columns() const { return even() && own_step() == 1; }

  /* R lines of n elements each, transposed to rows that are `width` apart; lines `ahead` elements on come next. */
  template <int R>
  OWK_FN void lines_of(A* to, int64_t width, const T* const* from, int64_t n, int64_t ahead) {
    typedef typename OwkVector<A>::line line;
    const int edge = OwkVector<A>::edge;
    int64_t k = 0;
    if (R == 1 && width == 1)
      for (; k + edge <= n; k += edge) {
        const line x = owk_load_line(from[0] + k);
        __builtin_memcpy(to + k, &x, sizeof(line));
      }
    for (; R > 1 && k + edge <= n; k += edge) {
      line x[edge];
#pragma GCC unroll 16
      for (int r = 0; r < edge; ++r) {
        x[r] = r < R ? owk_load_line(from[r] + k) : line{};
        if (r < R) __builtin_prefetch((const void*)((intptr_t)(from[r] + k) + ahead * (int64_t)sizeof(T)));
      }
      owk_transpose(x);
      if (R < edge && width == R && k + edge < n) { /* what is written beyond a row, the next one overwrites */
#pragma GCC unroll 16
        for (int r = 0; r < edge; ++r) __builtin_memcpy(to + (k + r) * width, &x[r], sizeof(line));
      } else {
#pragma GCC unroll 16
        for (int r = 0; r < edge; ++r) __builtin_memcpy(to + (k + r) * width, &x[r], R * sizeof(A));
      }
    }
    for (; k < n; ++k)
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) to[k * width + r] = owk_wide(from[r][k]);
  }
  void run(A* dst, int64_t width, int64_t i0, int64_t i1, const T* q, int64_t ks, int64_t n) const {
    typedef typename OwkVector<A>::type vec;
    const int64_t lanes = OwkVector<A>::lanes;
    const int edge = OwkVector<A>::edge, odd = OWK_MR % edge;
    const int64_t ahead = own->rank == 1 ? edge * own_step() : 0;
    if (ks == 1) {
      for (int64_t i = i0; i < i1;) {
        const int64_t left = i1 - i;
        const T* from[edge];
        for (int r = 0; r < edge; ++r) from[r] = q + at(r < left ? i + r : i);
        A* to = dst + (i - i0);
        if (left >= edge) {
          lines_of<edge>(to, width, from, n, ahead);
          i += edge;
        } else if (odd && left >= odd) {
          lines_of<odd ? odd : edge>(to, width, from, n, ahead);
          i += odd;
        } else if (left >= edge / 2) {
          lines_of<edge / 2>(to, width, from, n, ahead);
          i += edge / 2;
        } else {
          lines_of<1>(to, width, from, n, ahead);
          i += 1;
        }
      }
      return;
    }
    if (own->rank == 1 && own_step() == 1) {
      for (int64_t k = 0; k < n; ++k) {
        const T* from = q + i0 + k * ks;
        A* to = dst + k * width;
        int64_t i = 0;
        for (; i + lanes <= i1 - i0; i += lanes) {
          const vec v = owk_vload(from + i);
          __builtin_memcpy(to + i, &v, sizeof(vec));
        }
        for (; i < i1 - i0; ++i) to[i] = owk_wide(from[i]);
      }
      return;
    }
    for (int64_t i = i0; i < i1; ++i) {
      const T* from = q + at(i);
      for (int64_t k = 0; k < n; ++k) dst[k * width + i - i0] = owk_wide(from[k * ks]);
    }
  }
  void operator()(A* dst, int64_t width, int64_t i0, int64_t i1, int64_t k0, int64_t k1) const {
    OwkAt<1> a;
    owk_seek(*sum, k0, a);
    for (int64_t k = k0; k < k1;) {
      const int64_t n = owk_run(*sum, a, k1 - k);
      run(dst + (k - k0) * width, width, i0, i1, p + a.at[0], sum->step[0][sum->rank - 1], n);
      owk_move(*sum, a, n);
      k += n;
    }
  }
};
/* Narrow [first, last) of [0, n) to where value(t), which changes evenly with t, is at least 0. */
template <class F>
OWK_FN void owk_clip(F value, int64_t n, int64_t* first, int64_t* last) {
  const int64_t begin = value(0), step = value(1) - begin;
  if (begin >= 0 && begin + step * (n - 1) >= 0) return;
  if (begin < 0 && begin + step * (n - 1) < 0)
    *last = 0;
  else if (step > 0)
    *first = owk_most(*first, step == 1 ? -begin : (step - 1 - begin) / step);
  else
    *last = owk_least(*last, (step == -1 ? begin : begin / -step) + 1);
}
/* The last vector of a copy takes some elements once more: no loop is left over. */
template <class A, class T>
OWK_FN void owk_copy(A* to, const T* from, int64_t step, int64_t n) {
  const int64_t lanes = OwkVector<A>::lanes, edge = OwkVector<A>::edge;
  if (step == 1 && n >= lanes) {
    for (int64_t t = 0; t < n; t += lanes) {
      const int64_t at = owk_least(t, n - lanes);
      const auto v = owk_vload(from + at);
      __builtin_memcpy(to + at, &v, sizeof(v));
    }
  } else if (step == 1 && n >= edge) {
    for (int64_t t = 0; t < n; t += edge) {
      const int64_t at = owk_least(t, n - edge);
      const auto v = owk_load_line(from + at);
      __builtin_memcpy(to + at, &v, sizeof(v));
    }
  } else {
    for (int64_t t = 0; t < n; ++t) to[t] = owk_wide(from[t * step]);
  }
}
/* The next column of panels that are `width` wide and `jump` apart. */
template <class A>
struct OwkCursor {
  A* panel;
  int64_t width, jump, x;
};
/* The next n columns: p[place + (t - first) * step] for t in [first, last), 0 in the rest of [0, n). */
template <class A, class T>
OWK_FN void owk_window(OwkCursor<A>& at, int64_t n, int64_t first, int64_t last, const T* p, int64_t place,
                       int64_t step) {
  const int64_t lanes = OwkVector<A>::lanes;
  if (first >= last) first = last = n;
  for (int64_t t = 0; t < n;) {
    if (step == 1 && at.x == 0 && t >= first && t + at.width <= last && at.width % lanes == 0) {
      for (int64_t x = 0; x < at.width; x += lanes) {
        const auto v = owk_vload(p + place + (t - first) + x);
        __builtin_memcpy(at.panel + x, &v, sizeof(v));
      }
      at.panel += at.jump;
      t += at.width;
      continue;
    }
    const int64_t end = owk_least(n, t + at.width - at.x);
    A* const to = at.panel + at.x - t;
    at.x += end - t;
    if (at.x == at.width) {
      at.x = 0;
      at.panel += at.jump;
    }
    const int64_t lo = owk_least(owk_most(first, t), end), hi = owk_most(owk_least(last, end), lo);
    for (; t < lo; ++t) to[t] = 0;
    if (lo < hi) owk_copy(to + lo, p + place + (lo - first) * step, step, hi - lo);
    for (t = hi; t < end; ++t) to[t] = 0;
  }
}
/* Values that the kernel's text computes. */
template <class F>
struct OwkComputed {
  const F& f;
  OWK_INLINE bool lines() const { return false; }
  OWK_INLINE bool columns() const { return false; }
  template <class A>
  OWK_INLINE void operator()(A* dst, int64_t width, int64_t i0, int64_t i1, int64_t k0, int64_t k1) const {
    f(dst, width, i0, i1, k0, k1);
  }
};
/* A window slid over memory.  `f` copies it (`jump` elements lie between panels, so that many are filled at once);
 * `point` says of one place where its element lies, and W numbers that are at least 0 inside, each with its step along a
 * run.  APART: all of these are a part that `sum` moves plus one that `own` moves. */
template <class T, int W, bool APART, class F, class P, class X, class Y>
struct OwkWindowed {
  const F& f;
  const P& point;
  const X& own;
  const Y& sum;
  OWK_INLINE bool lines() const { return false; }
  OWK_INLINE bool columns() const { return false; }
  template <class A>
  OWK_INLINE void operator()(A* dst, int64_t width, int64_t i0, int64_t i1, int64_t k0, int64_t k1) const {
    f(dst, width, width * (k1 - k0), i0, i1, k0, k1);
  }
};
template <class T, int W, bool APART, class F, class P, class X, class Y>
OWK_FN OwkWindowed<T, W, APART, F, P, X, Y> owk_windowed(const F& f, const P& point, const X& own, const Y& sum) {
  return OwkWindowed<T, W, APART, F, P, X, Y>{f, point, own, sum};
}
template <class F>
OWK_FN OwkComputed<F> owk_computed(const F& f) {
  return OwkComputed<F>{f};
}

/* ---- microkernels ---- */

/* c[i][0 .. V * lanes) (+)= sum over n terms of a[k * MR + i] * b[k * ldb + …]. */
template <int MR, int V, class A, class T>
static inline __attribute__((noinline)) void owk_micro(int64_t n, const A* __restrict__ a, const T* __restrict__ b,
                                                       int64_t ldb, A* __restrict__ c, int64_t ldc, bool first) {
  typedef typename OwkVector<A>::type vec;
  const int lanes = OwkVector<A>::lanes;
  vec acc[MR][V];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      acc[i][v] = vec{};
      __builtin_prefetch(c + i * ldc + v * lanes, 1);
    }
  for (int64_t k = 0; k < n; ++k) {
    vec y[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) y[v] = owk_vload(b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const vec x = a[i] - vec{}; /* minus: 0 + -0 is another number */
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) acc[i][v] = owk_vfma(x, y[v], acc[i][v]);
    }
    a += MR;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      A* to = c + i * ldc + v * lanes;
      vec s = acc[i][v];
      if (!first) s = s + owk_vload(to);
      __builtin_memcpy(to, &s, sizeof(vec));
    }
}

/* The rows that the microkernel for `have` of them takes. */
OWK_FN int64_t owk_micro_rows(int64_t have) {
  return have <= 1 ? have : have <= OWK_MR / 2 ? OWK_MR / 2 : have <= 4 ? 4 : OWK_MR;
}
template <int V, class A, class T>
OWK_FN void owk_micro_few(int64_t mr, int64_t n, const A* a, const T* b, int64_t ldb, A* c, int64_t ldc, bool first) {
  if (mr == OWK_MR)
    owk_micro<OWK_MR, V>(n, a, b, ldb, c, ldc, first);
  else if (mr == 1)
    owk_micro<1, V>(n, a, b, ldb, c, ldc, first);
  else if (mr == 4)
    owk_micro<4, V>(n, a, b, ldb, c, ldc, first);
  else
    owk_micro<OWK_MR / 2, V>(n, a, b, ldb, c, ldc, first);
}

/* The sums of N vectors' lanes, each joined as a tree: halves, then quarters, … are added. */
template <int N, class A, class V>
OWK_FN void owk_join(const V* x, A* sum) {
  const int lanes = sizeof(V) / sizeof(A);
  if constexpr (N == 4 && sizeof(A) == 4 && lanes >= 4) { /* the last two steps of all four at once */
    typedef A four __attribute__((vector_size(16)));
    four h[4];
#pragma GCC unroll 16
    for (int j = 0; j < 4; ++j) {
      A lane[lanes];
      __builtin_memcpy(lane, &x[j], sizeof(V));
#pragma GCC unroll 16
      for (int w = lanes / 2; w >= 4; w /= 2)
#pragma GCC unroll 16
        for (int t = 0; t < w; t += 4) {
          four p, q;
          __builtin_memcpy(&p, lane + t, 16);
          __builtin_memcpy(&q, lane + t + w, 16);
          p = p + q;
          __builtin_memcpy(lane + t, &p, 16);
        }
      __builtin_memcpy(&h[j], lane, 16);
    }
    const four a = __builtin_shufflevector(h[0], h[1], 0, 4, 1, 5), b = __builtin_shufflevector(h[0], h[1], 2, 6, 3, 7);
    const four c = __builtin_shufflevector(h[2], h[3], 0, 4, 1, 5), d = __builtin_shufflevector(h[2], h[3], 2, 6, 3, 7);
    const four u = a + b, v = c + d; /* lanes 0 and 2, lanes 1 and 3: of two vectors each */
    const four s = __builtin_shufflevector(u, v, 0, 1, 4, 5) + __builtin_shufflevector(u, v, 2, 3, 6, 7);
    __builtin_memcpy(sum, &s, 16);
  } else {
#pragma GCC unroll 16
    for (int j = 0; j < N; ++j) {
      A lane[lanes];
      __builtin_memcpy(lane, &x[j], sizeof(V));
      for (int w = lanes / 2; w > 0; w /= 2)
        for (int t = 0; t < w; ++t) lane[t] = lane[t] + lane[t + w];
      sum[j] = lane[0];
    }
  }
}
/* c[i * ci + j * cj] = sum of x[i][k] * w[j][k] for MR lines of x, padded with zeros to whole vectors, and NR of w.  Where
 * w is read in halves, so is x: two whole vectors hold what is at even and at odd places. */
template <int MR, int NR, class A, class T>
static inline __attribute__((noinline)) void owk_dot(int64_t n, const A* __restrict__ x, int64_t ldx, const T* const* w,
                                                     A* __restrict__ c, int64_t ci, int64_t cj) {
  typedef typename OwkVector<A>::type vec;
  const int64_t lanes = OwkVector<A>::lanes, block = lanes * owk_short_block(n);
  vec total[MR][NR];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < NR; ++j) total[i][j] = vec{};
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = owk_least(n, begin + block);
    vec acc[MR][NR];
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 16
      for (int j = 0; j < NR; ++j) acc[i][j] = vec{};
    int64_t k = begin;
    if constexpr (OwkHalves<T>::are) /* x is in halves, too */
      for (; k + 2 * lanes <= end; k += 2 * lanes) {
        vec even[MR], odd[MR];
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) even[i] = owk_vload(x + i * ldx + k), odd[i] = owk_vload(x + i * ldx + k + lanes);
#pragma GCC unroll 16
        for (int j = 0; j < NR; ++j) {
          vec p, q;
          owk_vload_halves(w[j] + k, &p, &q);
#pragma GCC unroll 16
          for (int i = 0; i < MR; ++i) acc[i][j] = owk_vfma(odd[i], q, owk_vfma(even[i], p, acc[i][j]));
        }
      }
    for (; k + lanes <= end; k += lanes) {
      vec a[MR];
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) a[i] = owk_vload(x + i * ldx + k);
#pragma GCC unroll 16
      for (int j = 0; j < NR; ++j) {
        const vec b = owk_vload(w[j] + k);
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) acc[i][j] = owk_vfma(a[i], b, acc[i][j]);
      }
    }
    if (k < end) { /* the last lanes of w are not ours to read */
#pragma GCC unroll 16
      for (int j = 0; j < NR; ++j) {
        A tail[OwkVector<A>::lanes] = {};
        for (int64_t t = k; t < end; ++t) tail[t - k] = owk_wide(w[j][t]);
        const vec b = owk_vload(tail);
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) acc[i][j] = owk_vfma(owk_vload(x + i * ldx + k), b, acc[i][j]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 16
      for (int j = 0; j < NR; ++j) total[i][j] = total[i][j] + acc[i][j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    A sum[NR];
    owk_join<NR>(total[i], sum);
#pragma GCC unroll 16
    for (int j = 0; j < NR; ++j) c[i * ci + j * cj] = sum[j];
  }
}

/* ---- tiles ---- */

/* The few lines [i0, i1) of one factor against the many [j0, j1) of another, both in line along k. */
template <class A, class F, class T>
static inline void owk_dots(int64_t k, const F& few, int64_t i0, int64_t i1, const OwkPlain<A, T>& many, int64_t j0,
                            int64_t j1, A* __restrict__ c, int64_t ci, int64_t cj, A* __restrict__ lines) {
  const int64_t ldx = owk_round_up(k, (int64_t)OwkVector<A>::lanes);
  for (int64_t t = 0; t < ldx * (i1 - i0); ++t) lines[t] = 0;
  for (int64_t i = i0; i < i1; ++i) few(lines + (i - i0) * ldx, 1, i, i + 1, 0, k);
  if constexpr (OwkHalves<T>::are) {
    const int64_t lanes = OwkVector<A>::lanes;
    for (A* x = lines; x < lines + ldx * (i1 - i0); x += ldx)
      for (int64_t at = 0; at + 2 * lanes <= k; at += 2 * lanes) {
        A odd[OwkVector<A>::lanes];
        for (int64_t t = 0; t < lanes; ++t) odd[t] = x[at + 2 * t + 1], x[at + t] = x[at + 2 * t];
        for (int64_t t = 0; t < lanes; ++t) x[at + lanes + t] = odd[t];
      }
  }
  for (int64_t j = j0; j < j1;) {
    const int64_t left = j1 - j;
    const T* w[4];
    for (int64_t t = 0; t < 4; ++t) w[t] = many.p + many.at(j + (t < left ? t : 0));
    A* to = c + (j - j0) * cj;
    int64_t i = i0;
    if (left >= 4) {
      for (; i + 4 <= i1; i += 4) owk_dot<4, 4>(k, lines + (i - i0) * ldx, ldx, w, to + (i - i0) * ci, ci, cj);
      for (; i < i1; ++i) owk_dot<1, 4>(k, lines + (i - i0) * ldx, ldx, w, to + (i - i0) * ci, ci, cj);
      j += 4;
    } else {
      for (; i < i1; ++i) owk_dot<1, 1>(k, lines + (i - i0) * ldx, ldx, w, to + (i - i0) * ci, ci, cj);
      j += 1;
    }
  }
}
/* A factor that the text computes is never in line. */
template <class A, class F, class G>
static inline void owk_dots(int64_t, const F&, int64_t, int64_t, const G&, int64_t, int64_t, A*, int64_t, int64_t, A*) {
}

template <class A, class T>
OWK_FN const T* owk_in_line(const OwkPlain<A, T>& f, int64_t m, int64_t j, int64_t k, int64_t* step) {
  const int64_t bytes = f.sum_step() * (int64_t)sizeof(T);
  if (!f.columns() || (m > OWK_FEW_ROWS && (bytes < 0 || bytes > OWK_NEAR_BYTES))) return nullptr;
  *step = f.sum_step();
  return f.p + j + k * f.sum_step();
}
template <class A, class F>
OWK_FN const A* owk_in_line(const F&, int64_t, int64_t, int64_t, int64_t*) {
  return nullptr;
}
/* Columns [j0, j1) as panels of `width`: one after the other, or all at once where the text can. */
template <class A, class F>
OWK_FN void owk_panels(const F& f, A* to, int64_t width, int64_t j0, int64_t j1, int64_t k0, int64_t k1) {
  for (int64_t j = j0; j < j1; j += width) f(to + (j - j0) * (k1 - k0), width, j, owk_least(j1, j + width), k0, k1);
}
template <class A, class T>
OWK_FN void owk_panels(const OwkPlain<A, T>& f, A* to, int64_t width, int64_t j0, int64_t j1, int64_t k0, int64_t k1) {
  if (f.columns() && width % OwkVector<A>::lanes == 0) { /* memory is read in long runs */
    const int64_t lanes = OwkVector<A>::lanes, jump = width * (k1 - k0);
    for (int64_t k = k0; k < k1; ++k) {
      const T* from = f.p + k * f.sum_step() + j0;
      A* row = to + (k - k0) * width;
      int64_t left = j1 - j0;
      for (; left >= width; left -= width, from += width, row += jump)
        for (int64_t t = 0; t < width; t += lanes) {
          const auto v = owk_vload(from + t);
          __builtin_memcpy(row + t, &v, sizeof(v));
        }
      for (int64_t t = 0; t < left; ++t) row[t] = owk_wide(from[t]);
    }
    return;
  }
  for (int64_t j = j0; j < j1; j += width) f(to + (j - j0) * (k1 - k0), width, j, owk_least(j1, j + width), k0, k1);
}
template <int N>
OWK_FN OwkAt<N> owk_position(const OwkWalk<N>& w, int64_t linear) {
  OwkAt<N> a;
  owk_seek(w, linear, a);
  return a;
}
/* Terms [k0, k1) of a window whose parts are apart, for runs from column j on: what each adds to the first. */
template <class T, int W>
struct OwkTerms {
  int64_t part[W][OWK_SLIDE_TERMS], place[OWK_SLIDE_TERMS];
  int64_t inside[W], by[W], span[W], step; /* of the first term, where `run` last stood */
  const T* at;

  template <class R, class I, class J>
  OWK_INLINE bool find(const R& right, const I& own, J sum, int64_t n) {
    for (int64_t k = 0; k < n; ++k, owk_move(right.sum, sum, 1)) {
      const T* const p = right.point(sum, own, inside, by, &step);
      if (!p) return false;
      if (k == 0) at = p;
      place[k] = ((intptr_t)p - (intptr_t)at) / (int64_t)sizeof(T);
      for (int w = 0; w < W; ++w) part[w][k] = inside[w] - (k ? part[w][0] : 0);
    }
    for (int w = 0; w < W; ++w) part[w][0] = 0;
    return true;
  }
  template <class R, class I, class J>
  OWK_INLINE void run(const R& right, const I& own, const J& sum, int64_t n) {
    at = right.point(sum, own, inside, by, &step);
    for (int w = 0; w < W; ++w) span[w] = by[w] * (n - 1);
  }
  /* Which columns [first, last) of a run of n lie inside. */
  OWK_INLINE void clip(int64_t k, int64_t n, int64_t* first, int64_t* last) const {
    *first = 0, *last = n;
    for (int w = 0; w < W; ++w) {
      const int64_t begin = inside[w] + part[w][k];
      if ((begin | (begin + span[w])) < 0)
        owk_clip([&](int64_t t) OWK_INLINE { return begin + t * by[w]; }, n, first, last);
    }
    if (*first >= *last) *first = *last = n;
  }
  OWK_INLINE const T* element(int64_t k) const { return (const T*)((intptr_t)at + place[k] * (int64_t)sizeof(T)); }
};
template <class A, class T, int W, bool APART, class F, class P, class X, class Y>
static inline void owk_panels(const OwkWindowed<T, W, APART, F, P, X, Y>& f, A* to, int64_t width, int64_t j0,
                              int64_t j1, int64_t k0, int64_t k1) {
  if (!APART || j0 >= j1) {
    f(to, width, j0, j1, k0, k1);
    return;
  }
  const auto start = owk_position(f.own, j0);
  OwkTerms<T, W> terms;
  for (int64_t k = k0; k < k1; k += OWK_SLIDE_TERMS) {
    const int64_t n = owk_least(k1 - k, OWK_SLIDE_TERMS), jump = width * (k1 - k0);
    const auto sum = owk_position(f.sum, k);
    if (!terms.find(f, start, sum, n)) {
      f(to, width, j0, j1, k0, k1); /* which says what is wrong, should an element be read */
      return;
    }
    auto own = start;
    for (int64_t j = j0; j < j1;) {
      const int64_t m = owk_run(f.own, own, j1 - j), panel = (j - j0) / width, x = (j - j0) % width;
      terms.run(f, own, sum, m);
      for (int64_t i = 0; i < n; ++i) {
        int64_t first, last;
        terms.clip(i, m, &first, &last);
        OwkCursor<A> at = {to + panel * jump + (k - k0 + i) * width, width, jump, x};
        owk_window(at, m, first, last, terms.element(i), first * terms.step, terms.step);
      }
      owk_move(f.own, own, m);
      j += m;
    }
  }
}

/* One line of sums against columns that lie in line, a few rows of them at a time: memory is read in long runs.  There are
 * pairs of whole vectors of columns; where they are read in halves, `part` is in halves, too. */
template <int K, class A, class T>
static inline __attribute__((noinline)) void owk_add_rows(const A* a, const T* __restrict__ b, int64_t ldb, int64_t n,
                                                          A* __restrict__ part) {
  typedef typename OwkVector<A>::type vec;
  const int64_t lanes = OwkVector<A>::lanes;
  vec x[K];
#pragma GCC unroll 16
  for (int k = 0; k < K; ++k) x[k] = a[k] - vec{};
  if constexpr (OwkHalves<T>::are) {
    for (int64_t j = 0; j < n; j += 2 * lanes) {
      vec even = owk_vload(part + j), odd = owk_vload(part + j + lanes);
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) {
        vec p, q;
        owk_vload_halves(b + k * ldb + j, &p, &q);
        even = owk_vfma(x[k], p, even);
        odd = owk_vfma(x[k], q, odd);
      }
      __builtin_memcpy(part + j, &even, sizeof(vec));
      __builtin_memcpy(part + j + lanes, &odd, sizeof(vec));
    }
    return;
  }
  for (int64_t j = 0; j < n; j += lanes) {
    vec s = owk_vload(part + j);
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) s = owk_vfma(x[k], owk_vload(b + k * ldb + j), s);
    __builtin_memcpy(part + j, &s, sizeof(vec));
  }
}
template <class A, class T>
static inline void owk_line(const T* b, int64_t ldb, const A* a, int64_t terms, int64_t n, A* part, A* c, bool first) {
  for (int64_t j = 0; j < n; ++j) part[j] = 0;
  int64_t k = 0;
  for (; k + 8 <= terms; k += 8) owk_add_rows<8>(a + k, b + k * ldb, ldb, n, part);
  for (; k < terms; ++k) owk_add_rows<1>(a + k, b + k * ldb, ldb, n, part);
  const int64_t lanes = OwkVector<A>::lanes;
  if (OwkHalves<T>::are) {
    for (int64_t j = 0; j < n; j += 2 * lanes)
      for (int64_t t = 0; t < lanes; ++t) {
        A *const to = c + j + 2 * t, *const even = part + j + t, *const odd = even + lanes;
        to[0] = first ? *even : to[0] + *even;
        to[1] = first ? *odd : to[1] + *odd;
      }
    return;
  }
  if (first)
    for (int64_t j = 0; j < n; ++j) c[j] = part[j];
  else
    for (int64_t j = 0; j < n; ++j) c[j] = c[j] + part[j];
}

/* ---- few rows against a window: columns are read where they lie ---- */

/* As a lane of owk_vfma. */
OWK_FN float owk_term(float a, float b, float c) { return OWK_HAS_FMA ? __builtin_fmaf(a, b, c) : a * b + c; }
OWK_FN double owk_term(double a, double b, double c) { return OWK_HAS_FMA ? __builtin_fma(a, b, c) : a * b + c; }

/* Sums of runs of columns: c[i][0 .. n) = sum over terms k of x[i][k] * element k of a column.  The elements of term k
 * are at[k][t * step] for t in [first[k], last[k]), all of them in [from, to), and 0 elsewhere. */
template <class A, class T>
struct OwkSlide {
  typedef typename OwkVector<A>::type vec;
  int64_t rows, terms, block, ldx, ldc;
  const A* x; /* rows of `ldx` elements */
  A* c;
  A* spare; /* a line of OWK_SLIDE_RUN elements per term */
  const T* at[OWK_SLIDE_TERMS];
  int64_t first[OWK_SLIDE_TERMS], last[OWK_SLIDE_TERMS], step, from, to;

  /* V vectors of columns from t on, for every row. */
  template <int V, class U>
  OWK_INLINE void columns(const U* const* p, int64_t t, A* out, int64_t apart) const {
    const int64_t lanes = OwkVector<A>::lanes;
    for (int64_t i = 0; i < rows; ++i) {
      const A* const w = x + i * ldx;
      vec total[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) total[v] = vec{};
      for (int64_t k0 = 0; k0 < terms; k0 += block) {
        const int64_t k1 = owk_least(terms, k0 + block);
        vec acc[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) acc[v] = vec{};
        for (int64_t k = k0; k < k1; ++k) {
          const vec y = w[k] - vec{};
          const U* const q = p[k] + t;
#pragma GCC unroll 16
          for (int v = 0; v < V; ++v) acc[v] = owk_vfma(y, owk_vload(q + v * lanes), acc[v]);
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) total[v] = k0 ? total[v] + acc[v] : acc[v];
      }
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) __builtin_memcpy(out + i * apart + v * lanes, &total[v], sizeof(vec));
    }
  }
  template <class U>
  OWK_INLINE void stretch(const U* const* p, int64_t lo, int64_t hi, A* out) const {
    const int64_t lanes = OwkVector<A>::lanes;
    int64_t t = lo;
    for (; t + 4 * lanes <= hi; t += 4 * lanes) columns<4>(p, t, out + t, ldc);
    for (; t + lanes <= hi; t += lanes) columns<1>(p, t, out + t, ldc);
    if (t < hi) columns<1>(p, hi - lanes, out + hi - lanes, ldc); /* some once more */
  }
  /* One column, whose terms may lie outside. */
  OWK_INLINE void edge(int64_t t, A* out) const {
    for (int64_t i = 0; i < rows; ++i) {
      A total = 0;
      for (int64_t k0 = 0; k0 < terms; k0 += block) {
        const int64_t k1 = owk_least(terms, k0 + block);
        A acc = 0;
        for (int64_t k = k0; k < k1; ++k)
          acc = owk_term(x[i * ldx + k], t >= first[k] && t < last[k] ? owk_wide(at[k][t]) : (A)0, acc);
        total = k0 ? total + acc : acc;
      }
      out[i * ldc + t] = total;
    }
  }
  void run(int64_t n) {
    const int64_t lanes = OwkVector<A>::lanes;
    if (to - from >= lanes) {
      stretch(at, from, to, c);
      for (int64_t t = 0; t < from; ++t) edge(t, c);
      for (int64_t t = to; t < n; ++t) edge(t, c);
      return;
    }
    const A* line[OWK_SLIDE_TERMS];
    for (int64_t t0 = 0; t0 < n; t0 += OWK_SLIDE_RUN) {
      const int64_t m = owk_least(n - t0, OWK_SLIDE_RUN), whole = owk_round_up(m, lanes);
      for (int64_t k = 0; k < terms; ++k) {
        A* const to_line = spare + k * OWK_SLIDE_RUN;
        const int64_t lo = owk_least(owk_most(first[k] - t0, 0), m), hi = owk_most(owk_least(last[k] - t0, m), lo);
        line[k] = to_line;
        for (int64_t t = 0; t < lo; ++t) to_line[t] = 0;
        owk_copy(to_line + lo, at[k] + (t0 + lo) * step, step, hi - lo);
        for (int64_t t = hi; t < whole; ++t) to_line[t] = 0;
      }
      if (m >= lanes) {
        stretch(line, 0, m, c + t0);
      } else { /* a row of sums has room for whole vectors, but the columns after these are not ours */
        A few[OWK_SLIDE_ROWS * OwkVector<A>::lanes];
        columns<1>(line, 0, few, lanes);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t t = 0; t < m; ++t) c[i * ldc + t0 + t] = few[i * lanes + t];
      }
    }
  }
};

template <class A, class L, class T, int W, class F, class P, class X, class Y>
static inline bool owk_slid(const OwkGemm& g, const OwkTile& t, const L& left,
                            const OwkWindowed<T, W, true, F, P, X, Y>& right, A* c, int64_t ldc, A* rest) {
  if (g.m > OWK_SLIDE_ROWS || g.k > OWK_SLIDE_TERMS || g.k == 0 || t.read <= t.n0) return false;
  OwkSlide<A, T> slide;
  OwkTerms<T, W> terms;
  auto own = owk_position(right.own, t.n0);
  const auto sum = owk_position(right.sum, 0);
  if (!terms.find(right, own, sum, g.k)) return false;
  slide.rows = t.m1 - t.m0;
  slide.terms = slide.ldx = g.k;
  slide.block = g.block;
  slide.ldc = ldc;
  slide.x = rest;
  slide.spare = rest + OWK_SLIDE_ROWS * g.k;
  for (int64_t x = 0; x < slide.rows * g.k; ++x) rest[x] = 0;
  for (int64_t i = 0; i < slide.rows; ++i) left(rest + i * g.k, 1, t.m0 + i, t.m0 + i + 1, 0, g.k);
  for (int64_t j = t.n0; j < t.read;) {
    const int64_t n = owk_run(right.own, own, t.read - j);
    terms.run(right, own, sum, n);
    slide.step = terms.step;
    slide.from = 0, slide.to = slide.step == 1 ? n : 0;
    for (int64_t k = 0; k < g.k; ++k) {
      terms.clip(k, n, &slide.first[k], &slide.last[k]);
      slide.at[k] = terms.element(k);
      slide.from = owk_most(slide.from, slide.first[k]);
      slide.to = owk_least(slide.to, slide.last[k]);
    }
    slide.c = c + (j - t.n0);
    slide.run(n);
    owk_move(right.own, own, n);
    j += n;
  }
  return true;
}
template <class A, class L, class R>
static inline bool owk_slid(const OwkGemm&, const OwkTile&, const L&, const R&, A*, int64_t, A*) {
  return false;
}

/* Whether n elements are all zero, or all finite; n is of whole vectors. */
template <class A>
static inline bool owk_all_zero(const A* p, int64_t n) {
  typedef typename OwkVector<A>::type vec;
  const int64_t lanes = OwkVector<A>::lanes;
  vec most = {};
  for (int64_t t = 0; t < n; t += lanes) {
    const vec v = owk_vload(p + t);
    most = v != vec{} ? vec{} + (A)1 : most;
  }
  A any = 0;
  for (int64_t t = 0; t < lanes; ++t) any += most[t];
  return any == 0;
}
template <class A, class T>
static inline bool owk_all_finite(const T* p, int64_t n) {
  typedef typename OwkVector<A>::type vec;
  const int64_t lanes = OwkVector<A>::lanes;
  vec sum = {};
  for (int64_t t = 0; t < n; t += lanes) sum = sum + owk_vload(p + t) * (A)0;
  A any = 0;
  for (int64_t t = 0; t < lanes; ++t) any += sum[t];
  return any == 0;
}

/* The sums of one tile: returned row-major with `stride` elements a row, in `scratch`.
 * SPARSE: terms whose row factors are zero (exponentials of what a mask hides) are left out where the other factor is
 * finite: they would add +0 to sums that are never -0, so that no bit differs. */
template <class A, bool SPARSE = false, class L, class R>
static inline const A* owk_gemm_tile(const OwkGemm& g, const OwkTile& t, const L& left, const R& right, A* scratch,
                                     int64_t* stride) {
  const int64_t nr = OwkVector<A>::columns, rows = t.m1 - t.m0, columns = t.read - t.n0;
  const int64_t ldc = owk_round_up(t.n1 - t.n0, nr), padded = owk_round_up(columns, nr);
  A* const c = scratch;
  A* const rest = scratch + owk_round_up(rows, OWK_MR) * ldc;
  *stride = ldc;
  if (padded < ldc)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t x = columns; x < ldc; ++x) c[i * ldc + x] = 0;
  if (g.m <= OWK_FEW_ROWS && right.lines() && g.k >= OwkVector<A>::lanes) {
    owk_dots<A>(g.k, left, t.m0, t.m1, right, t.n0, t.read, c, ldc, 1, rest);
    return c;
  }
  if (g.n <= OWK_FEW_ROWS / 2 && left.lines() && g.k >= OwkVector<A>::lanes) {
    owk_dots<A>(g.k, right, t.n0, t.read, left, t.m0, t.m1, c, 1, ldc, rest);
    return c;
  }
  if (owk_slid<A>(g, t, left, right, c, ldc, rest)) return c;
  A* const panels = rest;                                        /* of rows, all of the tile's */
  A* const packed = rest + owk_round_up(rows, OWK_MR) * g.block; /* of columns, all of the tile's */
  bool skip[OWK_TILE_ROWS / OWK_MR + 1];
  if (g.k == 0)
    for (int64_t x = 0; x < rows * ldc; ++x) c[x] = 0;
  const int64_t whole = columns / nr * nr, full = rows / OWK_MR * OWK_MR;
  for (int64_t k0 = 0; k0 < g.k; k0 += g.block) {
    const int64_t k1 = owk_least(g.k, k0 + g.block), n = k1 - k0;
    const bool first = k0 == 0;
    int64_t ldb = nr;
    const auto* line = owk_in_line<A>(right, g.m, t.n0, k0, &ldb);
    const int64_t from = line ? whole : 0;
    if (columns > whole)
      for (int64_t x = whole * n; x < padded * n; ++x) packed[x] = 0;
    owk_panels<A>(right, packed + from * n, nr, t.n0 + from, t.read, k0, k1);
    owk_panels<A>(left, panels, OWK_MR, t.m0, t.m0 + full, k0, k1);
    const int64_t rest_rows = rows - full, mr = owk_micro_rows(rest_rows);
    if (rest_rows < mr)
      for (int64_t x = 0; x < mr * n; ++x) panels[full * n + x] = 0;
    if (rest_rows) left(panels + full * n, mr, t.m0 + full, t.m1, k0, k1);
    bool finite = false; /* asked where some rows are zero */
    for (int64_t i = 0; SPARSE && n % OwkVector<A>::lanes == 0 && i < full; i += OWK_MR)
      finite |= skip[i / OWK_MR] = owk_all_zero(panels + i * n, OWK_MR * n);
    if (finite) finite = owk_all_finite<A>(packed + from * n, (padded - from) * n);
    for (int64_t k = 0; line && finite && k < n; ++k) finite = owk_all_finite<A>(line + k * ldb, whole);
    for (int64_t j = 0; j < columns; j += nr) {
      const bool in_line = line && j < whole;
      if (in_line && rows == 1) {
        owk_line<A>(line, ldb, panels, n, whole, packed, c, first);
        j = whole - nr;
        continue;
      }
      for (int64_t i = 0; i < rows; i += OWK_MR) {
        const A* const a = panels + i * n;
        A* const to = c + i * ldc + j;
        if (finite && i < full && skip[i / OWK_MR]) {
          for (int64_t r = 0; first && r < OWK_MR; ++r)
            for (int64_t x = 0; x < nr; ++x) to[r * ldc + x] = 0;
        } else if (in_line) {
          owk_micro_few<2>(i < full ? OWK_MR : mr, n, a, line + j, ldb, to, ldc, first);
        } else {
          owk_micro_few<2>(i < full ? OWK_MR : mr, n, a, packed + j * n, nr, to, ldc, first);
        }
      }
    }
  }
  return c;
}

#endif
