// Resampled along lines: a block of columns of the result takes its places and weights once; for each row the rows of x
// are mixed, then the columns of the mixture.

struct Taps {
  A weight[2];
  int64_t at[2];
};

// Where place i of `out` lies among `in`.
static inline Taps taps_at(int64_t i, int64_t in, int64_t out) {
  A u;
  if (align)
    u = A(i) * (A(in - 1) / A(out > 1 ? out - 1 : 1));
  else
    u = (A(i) + A(0.5)) * (A(in) / A(out)) - A(0.5);
  if (!align && u < 0) u = 0;
  const A whole = __builtin_floor(u);
  Taps t;
  for (int32_t k = 0; k < 2; ++k) {
    const A off = u - whole - A(k), near = 1 - (off < 0 ? -off : off);
    const int64_t at = static_cast<int64_t>(whole) + (in == out ? 0 : k);
    t.weight[k] = near < 0 ? A(0) : near;
    t.at[k] = at < 0 ? 0 : at < in ? at : in - 1;
  }
  return t;
}

constexpr int64_t block = 128, most = 2048;
constexpr int32_t outer = I_rank - 1, corners = 1 << outer;

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t *const xs = a.x.strides, *const ys = a.y.strides;
  const int32_t last = a.x.rank - 1;
  const int64_t width = a.x.shape[last], wide = a.y.shape[last], step = xs[last];
  A mixed[most], weight[2][block];
  int32_t at[2][block];
  int64_t columns = (most - 8) / (width / wide + 1);  // whose sources are `most` at the most
  columns = columns < 1 ? 1 : columns < block ? columns : block;
  for (int64_t from = 0; from < wide; from += columns) {
    const int64_t count = wide - from < columns ? wide - from : columns;
    int64_t first = 0, end = 0;
    for (int64_t j = 0; j < count; ++j) {
      const Taps t = taps_at(from + j, width, wide);
      if (j == 0) first = t.at[0];
      end = t.at[1] + 1;
      for (int32_t l = 0; l < 2; ++l) weight[l][j] = t.weight[l], at[l][j] = static_cast<int32_t>(t.at[l] - first);
    }
    for (int64_t row = lo; row < hi; ++row) {
      Taps t[outer + 1];
      int64_t rest = row, x_at = first * step, y_at = from * ys[last];
      for (int32_t d = last - 1; d >= 0; --d) {
        const int64_t n = a.y.shape[d], i = rest % n;
        rest /= n;
        y_at += i * ys[d];
        if (d < 2)
          x_at += i * xs[d];
        else
          t[d - 2] = taps_at(i, a.x.shape[d], n);
      }
      const T* x[corners];
      A share[corners];
      for (int32_t c = 0; c < corners; ++c) {
        x[c] = a.x.data + x_at;
        share[c] = 1;
        for (int32_t d = 0; d < outer; ++d) {
          x[c] += t[d].at[c >> d & 1] * xs[2 + d];
          share[c] *= t[d].weight[c >> d & 1];
        }
      }
      int64_t w = 0;
      for (; w + 16 <= end - first && step == 1; w += 16) {
        A sum[16] = {};
        for (int32_t c = 0; c < corners; ++c)
          for (int32_t e = 0; e < 16; ++e) sum[e] += share[c] * load(x[c] + w + e);
        for (int32_t e = 0; e < 16; ++e) mixed[w + e] = sum[e];
      }
      for (; w < end - first; ++w) {
        mixed[w] = 0;
        for (int32_t c = 0; c < corners; ++c) mixed[w] += share[c] * load(x[c] + w * step);
      }
      T* const y = a.y.data + y_at;
      for (int64_t j = 0; j < count; ++j)
        store(y + j * ys[last], weight[0][j] * mixed[at[0][j]] + weight[1][j] * mixed[at[1][j]]);
    }
  }
}

static void body(const Args& a) {
  int64_t n = 1;
  for (int32_t d = 0; d + 1 < a.y.rank; ++d) n *= a.y.shape[d];
  owk_parallel(a.call, n, a.y.shape[a.y.rank - 1], rows, const_cast<Args*>(&a));
}
