/* Windows packed by lines: a term's elements of all columns are put into one line, which is then cut into panels.
 *
 * Runs of a window are as long as a row of an image, so nearly every one ends inside a panel; a line takes it in whole
 * vectors wherever it ends.  May include: gemm.h.
 */
#ifndef OPWRIGHT_LINED_H
#define OPWRIGHT_LINED_H
#include "gemm.h"

#define OWK_LINE 512 /* columns of a line, at most */
#define OWK_RUNS 64  /* runs in it */

template <class T, int W, bool APART, class F, class P, class X, class Y>
struct OwkLined : OwkWindowed<T, W, APART, F, P, X, Y> {};
template <class T, int W, bool APART, class F, class P, class X, class Y>
OWK_FN OwkLined<T, W, APART, F, P, X, Y> owk_lined(const F& f, const P& point, const X& own, const Y& sum) {
  return OwkLined<T, W, APART, F, P, X, Y>{{f, point, own, sum}};
}
/* One run: where its element of the first term lies, and by how much that and the last one are inside. */
template <class T, int W>
struct OwkRun {
  const T* at;
  int64_t n, step, inside[W], by[W], span[W];
};
template <class A, class T, int W>
OWK_FN void owk_line_run(const OwkTerms<T, W>& terms, const OwkRun<T, W>& r, int64_t k, A* to) {
  int64_t first = 0, last = r.n;
  for (int w = 0; w < W; ++w) {
    const int64_t begin = r.inside[w] + terms.part[w][k], by = r.by[w];
    if ((begin | (begin + r.span[w])) < 0)
      owk_clip([&](int64_t t) OWK_INLINE { return begin + t * by; }, r.n, &first, &last);
  }
  if (first >= last) first = last = r.n;
  for (int64_t t = 0; t < first; ++t) to[t] = 0;
  for (int64_t t = last; t < r.n; ++t) to[t] = 0;
  if (first < last)
    owk_copy(to + first, (const T*)((intptr_t)r.at + (terms.place[k] + first * r.step) * (int64_t)sizeof(T)), r.step,
             last - first);
}
template <class A, class T, int W, bool APART, class F, class P, class X, class Y>
static inline void owk_panels(const OwkLined<T, W, APART, F, P, X, Y>& f, A* to, int64_t width, int64_t j0, int64_t j1,
                              int64_t k0, int64_t k1) {
  const OwkWindowed<T, W, APART, F, P, X, Y>& plain = f;
  const int64_t columns = j1 - j0, jump = width * (k1 - k0), lanes = OwkVector<A>::lanes;
  OwkTerms<T, W> terms;
  OwkRun<T, W> runs[OWK_RUNS];
  int64_t count = 0;
  bool fits = APART && columns > 0 && columns <= OWK_LINE && width % lanes == 0;
  auto own = owk_position(f.own, fits ? j0 : 0);
  const auto start = own;
  for (int64_t k = k0; fits && k < k1; k += OWK_SLIDE_TERMS) {
    const int64_t n = owk_least(k1 - k, OWK_SLIDE_TERMS);
    const auto sum = owk_position(f.sum, k);
    fits = terms.find(f, start, sum, n);
    own = start;
    count = 0;
    for (int64_t j = j0; fits && j < j1; ++count) {
      OwkRun<T, W>& r = runs[count];
      r.n = owk_run(f.own, own, j1 - j);
      terms.run(f, own, sum, r.n);
      r.at = terms.at;
      r.step = terms.step;
      for (int w = 0; w < W; ++w) r.inside[w] = terms.inside[w], r.by[w] = terms.by[w], r.span[w] = terms.span[w];
      owk_move(f.own, own, r.n);
      j += r.n;
      fits = count + 1 < OWK_RUNS || j >= j1;
    }
    for (int64_t i = 0; fits && i < n; ++i) {
      A line[OWK_LINE];
      A* at = line;
      for (int64_t c = 0; c < count; at += runs[c++].n) owk_line_run(terms, runs[c], i, at);
      for (int64_t x = columns; x % width; ++x) line[x] = 0;
      A* row = to + (k - k0 + i) * width;
      for (int64_t x = 0; x < columns; x += width, row += jump)
        for (int64_t t = 0; t < width; t += lanes) {
          const auto v = owk_vload(line + x + t);
          __builtin_memcpy(row + t, &v, sizeof(v));
        }
    }
  }
  if (!fits) owk_panels<A>(plain, to, width, j0, j1, k0, k1);
}
template <class A, class L, class T, int W, class F, class P, class X, class Y>
static inline bool owk_slid(const OwkGemm& g, const OwkTile& t, const L& left,
                            const OwkLined<T, W, true, F, P, X, Y>& f, A* c, int64_t ldc, A* rest) {
  const OwkWindowed<T, W, true, F, P, X, Y>& plain = f;
  return owk_slid<A>(g, t, left, plain, c, ldc, rest);
}

#endif
