/* Contractions of bf16 by pairs of terms, on the processor's tiles (AMX), where the caller says that it may (OW_TILES).
 *
 * As gemm.h, whose factors it takes: a kernel's text says what they are.  An element is one bf16 (a bf16 as it lies in
 * memory) or three whose sum it is (an f32), so that every product is exact in f32.
 *
 * May include: gemm.h.
 *
 * Note [Order of pairs]: terms are taken 32 at a time.  Those at even places are added up in one chain of fma, those at
 * odd places in another, both from 0; their sum is added to what came before.  A chain of n terms then passes 17 + n / 32
 * roundings (three times as many additions where an element is in three parts), which stays within the 4 sqrt(n) + 16 of
 * Note [Blocked sums] up to OWK_PAIR_CHAIN terms; longer sums begin anew every OWK_PAIR_TERMS.
 *
 * Note [Nothing is flushed]: `tdpbf16ps` takes subnormal numbers for 0, read or computed.  While factors are packed their
 * smallest magnitudes are kept.  All sums of products are multiples of the smallest possible product's last place: where
 * that is a normal number, nothing can be subnormal, and tiles give the sum that is defined above.  Else the same sum is
 * computed in the same order by vectors, so that no bit depends on what shared a tile with it.  So it is where an element
 * in parts meets inf or nan: a part that is 0 would make inf a nan.
 */
#ifndef OPWRIGHT_PAIRS_H
#define OPWRIGHT_PAIRS_H
#include "gemm.h"

#define OW_TILES 0x40000000   /* of OwCall.flags: the process may use tiles */
#define OWK_PAIR_DOWN 256     /* rows of a tile, at most, */
#define OWK_PAIR_ACROSS 512   /* and columns */
#define OWK_PAIR_TERMS 512    /* of a piece: what is packed at once */
#define OWK_PAIR_STAGE 128    /* terms that are packed as f32 first, where a factor knows no other way */
#define OWK_PAIR_AHEAD 4      /* lines from the one that is read to the one that is fetched */
#define OWK_PAIR_ROWS 16      /* up to here lines of the other factor are not packed, */
#define OWK_PAIR_LONG 2048    /* of so many terms at once */
#define OWK_PAIR_CHAIN 16384  /* terms of one chain of additions, at most */
#define OWK_PAIR_MOST 4194304 /* terms of a sum, at most */

typedef uint16_t owk_u16x32 __attribute__((vector_size(64)));
typedef uint32_t owk_u32x16 __attribute__((vector_size(64)));
typedef uint16_t owk_u16x16 __attribute__((vector_size(32)));
typedef float owk_f32x16 __attribute__((vector_size(64)));

struct OwkPairs : OwkGemm {
  bool tiles;
};
OWK_FN bool owk_may_tile(const OwCall* c) { return c->flags & OW_TILES; }
/* How many bf16 an element is. */
template <class T>
struct OwkParts;
template <>
struct OwkParts<float> {
  enum { of = 3 };
};
template <>
struct OwkParts<owk_bf16> {
  enum { of = 1 };
};
template <class A, class T>
static constexpr int owk_parts(const OwkPlain<A, T>*) {
  return OwkParts<T>::of;
}
template <class T, int W, bool APART, class F, class P, class X, class Y>
static constexpr int owk_parts(const OwkWindowed<T, W, APART, F, P, X, Y>*) {
  return OwkParts<T>::of;
}
template <class F>
static constexpr int owk_parts(const OwkComputed<F>*) {
  return OwkParts<float>::of;
}

/* ---- plans ---- */
static inline int64_t owk_pairs_bytes(int64_t m, int64_t n, int64_t k) {
  const int64_t rows = owk_gemm_cut(m, OWK_PAIR_DOWN, 32), columns = owk_gemm_cut(n, OWK_PAIR_ACROSS, 32);
  const int64_t terms = owk_round_up(owk_least(k, OWK_PAIR_TERMS), 32);
  /* sums, both factors of which one is in parts, a stage */
  const int64_t bytes = (rows + 16) * columns * 4 + (rows + columns + 2 * owk_most(rows, columns)) * terms * 2 +
                        owk_most(rows, columns) * OWK_PAIR_STAGE * 4;
  return owk_most(owk_gemm_bytes<float>(m, n, k), owk_round_up(bytes, 64));
}
static inline void owk_pairs_plan(OwkPairs& g, int64_t outer, int64_t m, int64_t n, int64_t k, int32_t threads,
                                  bool tiles) {
  owk_gemm_plan<float>(g, outer, m, n, k, threads);
  g.tiles = tiles && m > 1 && n > 1 && k <= OWK_PAIR_MOST;
  if (!g.tiles) return;
  g.rows = owk_gemm_cut(m, OWK_PAIR_DOWN, 32);
  g.columns = owk_gemm_cut(n, OWK_PAIR_ACROSS, 32);
  while (true) {
    g.down = (m + g.rows - 1) / g.rows;
    g.across = (n + g.columns - 1) / g.columns;
    const bool more = threads > 1 && outer * g.down * g.across < 4 * threads && g.rows * g.columns > 32 * 32;
    if (!more || g.rows * g.columns * owk_most(1, k) < 16 * OWK_GEMM_WORK) break;
    int64_t& side = g.columns >= g.rows ? g.columns : g.rows;
    side = owk_round_up(side / 2, 32);
  }
}

/* ---- packing: squares of 16 rows of 32 terms (of a left factor) or of 16 pairs of terms by 16 columns ---- */

/* The least and the largest magnitude that was packed, without the sign; zeros are not among the least. */
struct OwkRange {
  owk_u16x32 low, high;
  OWK_INLINE void note(owk_u16x32 x) {
    const owk_u16x32 twice = x << 1, less = twice - 1; /* 0 is the largest of `less` */
    low = less < low ? less : low;
    high = twice > high ? twice : high;
  }
};
OWK_FN OwkRange owk_range() { return OwkRange{~owk_u16x32{}, owk_u16x32{}}; }
/* Its exponent's field; beyond all others where there are only zeros. */
static inline int32_t owk_least_exponent(const OwkRange& r) {
  uint16_t least = 0xFFFF;
  for (int t = 0; t < 32; ++t) least = r.low[t] < least ? r.low[t] : least;
  return least == 0xFFFF ? 1000 : (least + 1) >> 8;
}
static inline bool owk_is_finite(const OwkRange& r) {
  uint16_t most = 0;
  for (int t = 0; t < 32; ++t) most = r.high[t] > most ? r.high[t] : most;
  return most < 0xFF00;
}
/* A square of 16 by 16 pairs, transposed where it lies. */
static inline __attribute__((noinline)) void owk_turn(uint16_t* square) {
  owk_u32x16 x[16], y[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) __builtin_memcpy(&x[r], square + 32 * r, 64);
#pragma GCC unroll 16
  for (int r = 0; r < 16; r += 2) {
    y[r] = __builtin_shufflevector(x[r], x[r + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    y[r + 1] = __builtin_shufflevector(x[r], x[r + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; r += 4)
#pragma GCC unroll 16
    for (int h = 0; h < 2; ++h) {
      const owk_u32x16 p = y[r + h], q = y[r + h + 2];
      x[r + 2 * h] = __builtin_shufflevector(p, q, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      x[r + 2 * h + 1] = __builtin_shufflevector(p, q, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
#pragma GCC unroll 16
  for (int r = 0; r < 16; r += 8)
#pragma GCC unroll 16
    for (int h = 0; h < 4; ++h) {
      const owk_u32x16 p = x[r + h], q = x[r + h + 4];
      y[r + h] = __builtin_shufflevector(p, q, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      y[r + h + 4] = __builtin_shufflevector(p, q, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
#pragma GCC unroll 16
  for (int h = 0; h < 8; ++h) {
    const owk_u32x16 p = y[h], q = y[h + 8];
    x[h] = __builtin_shufflevector(p, q, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    x[h + 8] = __builtin_shufflevector(p, q, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) __builtin_memcpy(square + 32 * r, &x[r], 64);
}
/* The parts of f32 numbers, each the upper half of a lane; their sum is the number.  Of inf and nan the first is all. */
template <int PARTS>
OWK_FN void owk_part(owk_u32x16 x, owk_u32x16* part) {
  const owk_u32x16 upper = owk_u32x16{} + 0xFFFF0000u;
  if constexpr (PARTS == 1) {
    part[0] = x & upper;
  } else {
    const owk_u32x16 size = x & 0x7FFFFFFFu, nan = (owk_u32x16)(size > 0x7F800000u);
    const owk_u32x16 finite = (owk_u32x16)(size < 0x7F800000u);
    part[0] = (x | (nan & 0x00400000u)) & upper;
    const owk_f32x16 rest = (owk_f32x16)x - (owk_f32x16)part[0];
    part[1] = (owk_u32x16)rest & upper & finite;
    part[2] = (owk_u32x16)(rest - (owk_f32x16)part[1]) & finite;
  }
}
/* Lines [i0, i1) along k as squares of 16 lines by 32 terms: square (i / 16, k / 32), one part after the other.  */
template <int PARTS, class T>
static inline void owk_pair_lines(const OwkPlain<float, T>& f, uint16_t* to, int64_t i0, int64_t i1, int64_t k0,
                                  int64_t k1, int64_t apart, OwkRange& seen) {
  const int64_t steps = (k1 - k0 + 31) / 32, whole = (k1 - k0) / 32;
  OwkRange range = seen; /* a copy, which no store can change */
  for (int64_t i = i0; i < i1; ++i) {
    const T* const from = f.p + f.at(i) + k0 * f.sum_step();
    const T* const ahead = f.p + f.at(owk_least(i + OWK_PAIR_AHEAD, i1 - 1)) + k0 * f.sum_step();
    uint16_t* const line = to + (i - i0) / 16 * steps * 512 + (i - i0) % 16 * 32;
    for (int64_t s = 0; s < steps; ++s) {
      T tail[32] = {};
      const T* p = from + 32 * s;
      __builtin_prefetch(ahead + 32 * s);
      if (s == whole) {
        for (int64_t t = 0; t < k1 - k0 - 32 * whole; ++t) tail[t] = p[t];
        p = tail;
      }
      if constexpr (PARTS == 1) {
        owk_u16x32 x;
        __builtin_memcpy(&x, p, 64);
        range.note(x);
        __builtin_memcpy(line + s * 512, &x, 64);
      } else {
        owk_u32x16 x[2], part[2][3];
        __builtin_memcpy(x, p, 128);
        owk_part<PARTS>(x[0], part[0]);
        owk_part<PARTS>(x[1], part[1]);
#pragma GCC unroll 16
        for (int q = 0; q < PARTS; ++q) {
          const owk_u16x16 a = __builtin_convertvector(part[0][q] >> 16, owk_u16x16);
          const owk_u16x16 b = __builtin_convertvector(part[1][q] >> 16, owk_u16x16);
          const owk_u16x32 both =
              __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                      21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
          range.note(both);
          __builtin_memcpy(line + q * apart + s * 512, &both, 64);
        }
      }
    }
  }
  for (int64_t i = i1 - i0; i % 16; ++i) /* lines that are not there */
    for (int64_t s = 0; s < steps; ++s)
      for (int q = 0; q < PARTS; ++q)
        __builtin_memset(to + q * apart + i / 16 * steps * 512 + i % 16 * 32 + s * 512, 0, 64);
  seen = range;
}
/* Columns [j0, j1) that lie in line, as squares of 16 pairs by 16 columns. */
static inline void owk_pair_columns(const OwkPlain<float, owk_bf16>& f, uint16_t* to, int64_t j0, int64_t j1,
                                    int64_t k0, int64_t k1, OwkRange& seen) {
  const int64_t steps = (k1 - k0 + 31) / 32, step = f.sum_step();
  OwkRange range = seen;
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t k = k0 + 32 * s + 2 * r;
      const owk_bf16* const even = f.p + k * step + j0;
      for (int64_t j = 0; j < j1 - j0; j += 32) {
        const int64_t left = j1 - j0 - j;
        owk_u16x32 x = {}, y = {};
        if (left >= 32) {
          if (k < k1) __builtin_memcpy(&x, even + j, 64);
          if (k + 1 < k1) __builtin_memcpy(&y, even + step + j, 64);
        } else {
          uint16_t tail[2][32] = {};
          for (int64_t t = 0; k < k1 && t < left; ++t) __builtin_memcpy(&tail[0][t], even + j + t, 2);
          for (int64_t t = 0; k + 1 < k1 && t < left; ++t) __builtin_memcpy(&tail[1][t], even + step + j + t, 2);
          __builtin_memcpy(&x, tail[0], 64);
          __builtin_memcpy(&y, tail[1], 64);
        }
        range.note(x);
        range.note(y);
        const owk_u16x32 first = __builtin_shufflevector(x, y, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
                                                         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
        const owk_u16x32 second =
            __builtin_shufflevector(x, y, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25,
                                    57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
        uint16_t* const square = to + j / 16 * steps * 512 + s * 512 + r * 32;
        __builtin_memcpy(square, &first, 64);
        if (left > 16) __builtin_memcpy(square + steps * 512, &second, 64);
      }
    }
  seen = range;
}
/* Any factor, as squares of 16 pairs by 16 of its own places, by way of f32. */
template <int PARTS, class F>
static inline void owk_pair_any(const F& f, uint16_t* to, int64_t j0, int64_t j1, int64_t k0, int64_t k1, int64_t apart,
                                float* stage, OwkRange& seen) {
  OwkRange range = seen;
  const int64_t steps = (k1 - k0 + 31) / 32, padded = owk_round_up(j1 - j0, 32);
  for (int64_t b = k0; b < k1; b += OWK_PAIR_STAGE) {
    const int64_t e = owk_least(k1, b + OWK_PAIR_STAGE), n = e - b;
    if (padded > j1 - j0) __builtin_memset(stage + (padded - 32) * n, 0, 32 * n * sizeof(float));
    owk_panels<float>(f, stage, 32, j0, j1, b, e);
    for (int64_t j = 0; j < owk_round_up(j1 - j0, 16); j += 16) {
      const float* const panel = stage + j / 32 * 32 * n + j % 32;
      uint16_t* const square = to + (j / 16 * steps + (b - k0) / 32) * 512;
      for (int64_t k = 0; k < owk_round_up(n, 32); k += 2) {
        owk_u32x16 x = {}, y = {}, even[3], odd[3];
        if (k < n) __builtin_memcpy(&x, panel + k * 32, 64);
        if (k + 1 < n) __builtin_memcpy(&y, panel + (k + 1) * 32, 64);
        owk_part<PARTS>(x, even);
        owk_part<PARTS>(y, odd);
#pragma GCC unroll 16
        for (int q = 0; q < PARTS; ++q) {
          const owk_u32x16 both = even[q] >> 16 | (odd[q] & 0xFFFF0000u);
          owk_u16x32 bits;
          __builtin_memcpy(&bits, &both, 64);
          range.note(bits);
          __builtin_memcpy(square + q * apart + k / 2 * 32, &both, 64);
        }
      }
    }
  }
  seen = range;
}
template <class F>
OWK_FN bool owk_pair_in_line(const F&, uint16_t*, int64_t, int64_t, int64_t, int64_t, int64_t, OwkRange&) {
  return false;
}
template <class T>
OWK_FN bool owk_pair_in_line(const OwkPlain<float, T>& f, uint16_t* to, int64_t i0, int64_t i1, int64_t k0, int64_t k1,
                             int64_t apart, OwkRange& range) {
  if (!f.lines()) return false;
  owk_pair_lines<OwkParts<T>::of>(f, to, i0, i1, k0, k1, apart, range);
  return true;
}
template <class F>
OWK_FN bool owk_pair_across(const F&, uint16_t*, int64_t, int64_t, int64_t, int64_t, OwkRange&) {
  return false;
}
OWK_FN bool owk_pair_across(const OwkPlain<float, owk_bf16>& f, uint16_t* to, int64_t j0, int64_t j1, int64_t k0,
                            int64_t k1, OwkRange& range) {
  if (!f.columns()) return false;
  owk_pair_columns(f, to, j0, j1, k0, k1, range);
  return true;
}
/* Places [i0, i1) of a factor: squares of lines (LEFT) or of pairs. */
template <bool LEFT, int PARTS, class F>
static inline OwkRange owk_pair_pack(const F& f, uint16_t* to, int64_t i0, int64_t i1, int64_t k0, int64_t k1,
                                     int64_t apart, float* stage) {
  OwkRange range = owk_range();
  const bool lines = owk_pair_in_line(f, to, i0, i1, k0, k1, apart, range);
  if (!lines && !owk_pair_across(f, to, i0, i1, k0, k1, range))
    owk_pair_any<PARTS>(f, to, i0, i1, k0, k1, apart, stage, range);
  if (lines != LEFT)
    for (int q = 0; q < PARTS; ++q)
      for (int64_t s = 0; s < (i1 - i0 + 15) / 16 * ((k1 - k0 + 31) / 32); ++s) owk_turn(to + q * apart + s * 512);
  return range;
}

/* ---- sums ---- */

/* Instructions by their bytes: assemblers that know them ask for flags that no dialect has.  (rax, rdx) is a tile in
 * memory and how far its rows are apart; DOT: tile c += a b. */
#define OWK_TILE_LOAD(t, p, stride) \
  __asm__ volatile(".byte 0xc4,0xe2,0x7b,0x4b,0x04+8*" #t ",0x10" ::"a"(p), "d"((int64_t)(stride)) : "memory")
#define OWK_TILE_STORE(t, p, stride) \
  __asm__ volatile(".byte 0xc4,0xe2,0x7a,0x4b,0x04+8*" #t ",0x10" ::"a"(p), "d"((int64_t)(stride)) : "memory")
#define OWK_TILE_ZERO(t) __asm__ volatile(".byte 0xc4,0xe2,0x7b,0x49,0xc0+8*" #t::)
#define OWK_TILE_DOT(c, a, b) __asm__ volatile(".byte 0xc4,0xe2,0x7a-8*" #b ",0x5c,0xc0+8*" #c "+" #a::)

OWK_FN void owk_tiles_begin() {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {};
  shape.palette = 1;
  for (int t = 0; t < 8; ++t) shape.bytes[t] = 64, shape.rows[t] = 16;
  __asm__ volatile(".byte 0xc4,0xe2,0x78,0x49,0x00" ::"a"(&shape), "m"(shape));
}
OWK_FN void owk_tiles_end() { __asm__ volatile(".byte 0xc4,0xe2,0x78,0x49,0xc0" ::); }

/* Two by two squares of sums (R, C of them are there), rows `ldc` apart, over `steps` squares of each factor. */
template <int PL, int PR>
static inline __attribute__((noinline)) void owk_pair_tiles(const uint16_t* a, const uint16_t* b, int64_t steps,
                                                            int64_t whole, int64_t apart_a, int64_t apart_b, float* c,
                                                            int64_t ldc, int R, int C, bool first) {
  const uint16_t* const a1 = R == 2 ? a + whole * 512 : a;
  const uint16_t* const b1 = C == 2 ? b + whole * 512 : b;
  float* const c1 = c + 16 * ldc;
  if (first) {
    OWK_TILE_ZERO(0);
    OWK_TILE_ZERO(1);
    OWK_TILE_ZERO(2);
    OWK_TILE_ZERO(3);
  } else {
    OWK_TILE_LOAD(0, c, 4 * ldc);
    if (C == 2) OWK_TILE_LOAD(1, c + 16, 4 * ldc);
    if (R == 2) OWK_TILE_LOAD(2, c1, 4 * ldc);
    if (R == 2 && C == 2) OWK_TILE_LOAD(3, c1 + 16, 4 * ldc);
  }
  for (int64_t s = 0; s < steps; ++s)
#pragma GCC unroll 16
    for (int q = PL * PR - 1; q >= 0; --q) {
      const int64_t at = (PL > 1 ? q : 0) * apart_a + s * 512, bt = (PR > 1 ? q : 0) * apart_b + s * 512;
      OWK_TILE_LOAD(6, b + bt, 64);
      OWK_TILE_LOAD(4, a + at, 64);
      OWK_TILE_DOT(0, 4, 6);
      if (C == 2) {
        OWK_TILE_LOAD(7, b1 + bt, 64);
        OWK_TILE_DOT(1, 4, 7);
      }
      if (R == 2) {
        OWK_TILE_LOAD(5, a1 + at, 64);
        OWK_TILE_DOT(2, 5, 6);
        if (C == 2) OWK_TILE_DOT(3, 5, 7);
      }
    }
  OWK_TILE_STORE(0, c, 4 * ldc);
  if (C == 2) OWK_TILE_STORE(1, c + 16, 4 * ldc);
  if (R == 2) OWK_TILE_STORE(2, c1, 4 * ldc);
  if (R == 2 && C == 2) OWK_TILE_STORE(3, c1 + 16, 4 * ldc);
}
/* What is multiplied by the lesser parts of an element: 0 for inf and nan, which the first part has had. */
OWK_FN owk_f32x16 owk_tame(owk_u32x16 x, bool lesser) {
  const owk_u32x16 finite = (owk_u32x16)((x & 0x7FFFFFFFu) < 0x7F800000u);
  return (owk_f32x16)(lesser ? x & finite : x);
}
/* One square of sums, as tiles would give it were nothing flushed. */
template <int PL, int PR>
static inline __attribute__((noinline)) void owk_pair_vectors(const uint16_t* a, const uint16_t* b, int64_t steps,
                                                              int64_t apart_a, int64_t apart_b, float* c, int64_t ldc,
                                                              bool first) {
  for (int i = 0; i < 16; i += 4) {
    owk_f32x16 sum[4];
#pragma GCC unroll 16
    for (int x = 0; x < 4; ++x) {
      sum[x] = owk_f32x16{};
      if (!first) __builtin_memcpy(&sum[x], c + (i + x) * ldc, 64);
    }
    for (int64_t s = 0; s < steps; ++s)
      for (int q = PL * PR - 1; q >= 0; --q) {
        const uint16_t* const p = a + (PL > 1 ? q : 0) * apart_a + s * 512 + i * 32;
        const uint16_t* const w = b + (PR > 1 ? q : 0) * apart_b + s * 512;
        owk_f32x16 even[4], odd[4];
#pragma GCC unroll 16
        for (int x = 0; x < 4; ++x) even[x] = odd[x] = owk_f32x16{};
        for (int r = 0; r < 16; ++r) {
          owk_u32x16 y;
          __builtin_memcpy(&y, w + 32 * r, 64);
#pragma GCC unroll 16
          for (int x = 0; x < 4; ++x) {
            uint32_t pair;
            __builtin_memcpy(&pair, p + x * 32 + 2 * r, 4);
            const owk_u32x16 both = owk_u32x16{} + pair;
            even[x] = owk_vfma(owk_tame(both << 16, PR > 1 && q), owk_tame(y << 16, PL > 1 && q), even[x]);
            odd[x] =
                owk_vfma(owk_tame(both & 0xFFFF0000u, PR > 1 && q), owk_tame(y & 0xFFFF0000u, PL > 1 && q), odd[x]);
          }
        }
#pragma GCC unroll 16
        for (int x = 0; x < 4; ++x) sum[x] = sum[x] + (even[x] + odd[x]);
      }
#pragma GCC unroll 16
    for (int x = 0; x < 4; ++x) __builtin_memcpy(c + (i + x) * ldc, &sum[x], 64);
  }
}
/* How many of the squares before the first that is zero in all rows, and remains so. */
static inline int64_t owk_pair_reach(const uint16_t* a, int64_t rows, int64_t steps) {
  for (int64_t s = steps; s > 0; --s)
    for (int64_t i = 0; i < rows; i += 16) {
      owk_u32x16 any = {}, x;
      for (int r = 0; r < 16; ++r) {
        __builtin_memcpy(&x, a + (i / 16 * steps + s - 1) * 512 + 32 * r, 64);
        any = any | (x << 1);
      }
      uint32_t some = 0;
      for (int t = 0; t < 16; ++t) some |= any[t];
      if (some) return s;
    }
  return 0;
}

/* Few rows: lines of the right factor are tiles as they lie.  They stand on the left, so sums come out transposed. */
struct OwkFew {
  const uint16_t* line[4]; /* of the first of 16 lines */
  int64_t stride;          /* of lines, in bytes */
  int64_t whole;           /* squares that lie in line */
  uint16_t tail[4][512];   /* the one after these */
  bool more;
};
template <int N>
static inline __attribute__((noinline)) void owk_few_tiles(const OwkFew& f, const uint16_t* x, float* c, bool first) {
  OWK_TILE_ZERO(0);
  OWK_TILE_ZERO(1);
  OWK_TILE_ZERO(2);
  OWK_TILE_ZERO(3);
  if (!first) {
    OWK_TILE_LOAD(0, c, 64);
    if (N > 1) {
      OWK_TILE_LOAD(1, c + 256, 64);
      OWK_TILE_LOAD(2, c + 512, 64);
      OWK_TILE_LOAD(3, c + 768, 64);
    }
  }
  for (int64_t s = 0; s < f.whole + f.more; ++s) {
    const bool in_line = s < f.whole;
    const int64_t stride = in_line ? f.stride : 64;
    OWK_TILE_LOAD(6, x + s * 512, 64);
    OWK_TILE_LOAD(4, in_line ? f.line[0] + s * 32 : f.tail[0], stride);
    OWK_TILE_DOT(0, 4, 6);
    if (N > 1) {
      OWK_TILE_LOAD(5, in_line ? f.line[1] + s * 32 : f.tail[1], stride);
      OWK_TILE_DOT(1, 5, 6);
      OWK_TILE_LOAD(7, in_line ? f.line[2] + s * 32 : f.tail[2], stride);
      OWK_TILE_DOT(2, 7, 6);
      OWK_TILE_LOAD(4, in_line ? f.line[3] + s * 32 : f.tail[3], stride);
      OWK_TILE_DOT(3, 4, 6);
    }
  }
  OWK_TILE_STORE(0, c, 64);
  if (N > 1) {
    OWK_TILE_STORE(1, c + 256, 64);
    OWK_TILE_STORE(2, c + 512, 64);
    OWK_TILE_STORE(3, c + 768, 64);
  }
}
template <class L>
static inline bool owk_pair_few(const OwkPairs& g, const OwkTile& t, const L& left,
                                const OwkPlain<float, owk_bf16>& right, float* c, int64_t ldc) {
  if (g.m > OWK_PAIR_ROWS || g.k > OWK_PAIR_CHAIN || !right.even() || !right.lines() || owk_parts(&left) > 1)
    return false;
  const int64_t rows = t.m1 - t.m0, columns = t.read - t.n0, long_terms = owk_least(g.k, OWK_PAIR_LONG);
  float* const sums = c + 32 * ldc; /* a square for every 16 columns */
  uint16_t* const x = (uint16_t*)(sums + 16 * ldc);
  uint16_t* const y = x + 16 * owk_round_up(long_terms, 32);
  float* const stage = (float*)(y + 16 * owk_round_up(long_terms, 32));
  int32_t least[OWK_PAIR_ACROSS / 16], least_x = 1000;
  for (int32_t& v : least) v = 1000;
  OwkFew few;
  few.stride = right.own_step() * 2;
  owk_tiles_begin();
  for (int64_t k0 = 0; k0 < g.k; k0 += OWK_PAIR_LONG) {
    const int64_t k1 = owk_least(g.k, k0 + OWK_PAIR_LONG), steps = (k1 - k0 + 31) / 32;
    few.whole = (k1 - k0) / 32;
    few.more = steps > few.whole;
    const OwkRange rx = owk_pair_pack<false, 1>(left, x, t.m0, t.m1, k0, k1, 0, stage);
    least_x = (int32_t)owk_least(least_x, owk_least_exponent(rx));
    for (int64_t j = 0; j < columns;) {
      const int n = columns - j >= 64 ? 4 : 1;
      const bool full = columns - j >= 16;
      const int64_t end = owk_least(columns, j + 16 * n);
      bool normal = full;
      for (int q = 0; q < n && full; ++q) {
        OwkRange range = owk_range();
        few.line[q] = (const uint16_t*)(right.p + right.at(t.n0 + j + 16 * q) + k0);
        for (int64_t r = 0; r < 16; ++r)
          for (int64_t s = 0; s < few.whole; ++s) {
            owk_u16x32 v;
            __builtin_memcpy(&v, few.line[q] + r * right.own_step() + s * 32, 64);
            __builtin_prefetch(few.line[q] + (r + OWK_PAIR_AHEAD) * right.own_step() + s * 32);
            range.note(v);
          }
        if (few.more) {
          const int64_t at = t.n0 + j + 16 * q;
          owk_pair_lines<1>(right, few.tail[q], at, at + 16, k0 + 32 * few.whole, k1, 0, range);
        }
        int32_t& low = least[j / 16 + q];
        low = (int32_t)owk_least(low, owk_least_exponent(range));
        normal = normal && low > 0 && least_x > 0 && low + least_x >= 142;
      }
      if (normal && n == 4)
        owk_few_tiles<4>(few, x, sums + j * 16, k0 == 0);
      else if (normal)
        owk_few_tiles<1>(few, x, sums + j * 16, k0 == 0);
      for (; !normal && j < end; j += 16) {
        OwkRange range = owk_range();
        owk_pair_lines<1>(right, y, t.n0 + j, t.n0 + owk_least(j + 16, columns), k0, k1, 0, range);
        owk_pair_vectors<1, 1>(y, x, steps, 0, 0, sums + j * 16, 16, k0 == 0);
      }
      j = end;
    }
  }
  owk_tiles_end();
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) c[i * ldc + j] = sums[j * 16 + i];
  return true;
}
template <class L, class R>
static inline bool owk_pair_few(const OwkPairs&, const OwkTile&, const L&, const R&, float*, int64_t) {
  return false;
}

/* As owk_gemm_tile; SPARSE: terms at the end whose row factors are all zero are left out where the other is finite. */
template <bool SPARSE = false, class L, class R>
static inline const float* owk_pairs_tile(const OwkPairs& g, const OwkTile& t, const L& left, const R& right,
                                          float* scratch, int64_t* stride) {
  constexpr int pl = owk_parts((const L*)nullptr), pr = owk_parts((const R*)nullptr);
  static_assert(pl == 1 || pr == 1, "one factor is in parts at most");
  if (!g.tiles || (pl * pr > 1 && g.k < 32)) return owk_gemm_tile<float, SPARSE>(g, t, left, right, scratch, stride);
  const int64_t rows = t.m1 - t.m0, columns = t.read - t.n0, padded_rows = owk_round_up(rows, 32);
  const int64_t ldc = owk_round_up(t.n1 - t.n0, 32), terms = owk_round_up(owk_least(g.k, OWK_PAIR_TERMS), 32);
  float* const c = scratch;
  *stride = ldc;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t x = g.k ? owk_round_up(columns, 16) : 0; x < ldc; ++x) c[i * ldc + x] = 0;
  if (columns <= 0 || owk_pair_few(g, t, left, right, c, ldc)) return c;
  uint16_t* const a = (uint16_t*)(c + padded_rows * ldc);
  const int64_t apart_a = padded_rows * terms, apart_b = ldc * terms;
  uint16_t* const b = a + pl * apart_a;
  float* const stage = (float*)(b + pr * apart_b);
  const bool anew = g.k > (pl * pr > 1 ? OWK_PAIR_CHAIN / 16 : OWK_PAIR_CHAIN);
  int32_t least_a = 1000, least_b = 1000;
  owk_tiles_begin();
  for (int64_t k0 = 0; k0 < g.k; k0 += OWK_PAIR_TERMS) {
    const int64_t k1 = owk_least(g.k, k0 + OWK_PAIR_TERMS), whole = (k1 - k0 + 31) / 32;
    const OwkRange ra = owk_pair_pack<true, pl>(left, a, t.m0, t.m1, k0, k1, apart_a, stage);
    const OwkRange rb = owk_pair_pack<false, pr>(right, b, t.n0, t.read, k0, k1, apart_b, stage);
    least_a = (int32_t)owk_least(least_a, owk_least_exponent(ra));
    least_b = (int32_t)owk_least(least_b, owk_least_exponent(rb));
    const bool plain = (pl == 1 || owk_is_finite(rb)) && (pr == 1 || owk_is_finite(ra));
    const bool normal = plain && least_a > 0 && least_b > 0 && least_a + least_b >= 142;
    const int64_t steps = SPARSE && owk_is_finite(rb) ? owk_pair_reach(a, rows, whole) : whole;
    const bool first = k0 == 0;
    for (int64_t j = 0; j < columns; j += 32)
      for (int64_t i = 0; i < rows; i += 32) {
        const uint16_t *const x = a + i / 16 * whole * 512, *const y = b + j / 16 * whole * 512;
        const int down = rows - i > 16 ? 2 : 1, across = columns - j > 16 ? 2 : 1;
        float* const to = c + i * ldc + j;
        float piece[32 * 32];
        float* const at = anew && !first ? piece : to;
        const int64_t ld = anew && !first ? 32 : ldc;
        if (normal) {
          if (down == 2 && across == 2)
            owk_pair_tiles<pl, pr>(x, y, steps, whole, apart_a, apart_b, at, ld, 2, 2, first || anew);
          else
            owk_pair_tiles<pl, pr>(x, y, steps, whole, apart_a, apart_b, at, ld, down, across, first || anew);
        } else {
          for (int u = 0; u < down; ++u)
            for (int v = 0; v < across; ++v)
              owk_pair_vectors<pl, pr>(x + u * whole * 512, y + v * whole * 512, steps, apart_a, apart_b,
                                       at + u * 16 * ld + v * 16, ld, first || anew);
        }
        if (anew && !first)
          for (int r = 0; r < 16 * down; ++r)
            for (int s = 0; s < 16 * across; ++s) to[r * ldc + s] = to[r * ldc + s] + piece[r * 32 + s];
      }
  }
  owk_tiles_end();
  return c;
}

#endif
