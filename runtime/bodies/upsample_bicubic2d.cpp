// Planes resampled along their rows: a block of columns of the result takes its places and weights once; for each row
// the rows of x are mixed, then the columns of the mixture.

constexpr int32_t taps = 4;

struct Taps {
  A weight[taps];
  int64_t at[taps];
};

// Where i lies in the input.
static inline A place_at(int64_t i, int64_t in, int64_t out) {
  if (align) return out > 1 ? A(i) * (A(in - 1) / A(out - 1)) : A(0);
  return (A(i) + A(0.5)) * (A(in) / A(out)) - A(0.5);
}

static inline Taps taps_at(int64_t i, int64_t in, int64_t out) {
  const A u = place_at(i, in, out), whole = __builtin_floor(u);
  Taps t;
  for (int32_t k = 0; k < 4; ++k) {
    const A off = u - whole - A(k - 1), d = off < 0 ? -off : off;
    t.weight[k] = d <= 1 ? (A(1.25) * d - A(2.25)) * d * d + 1 : ((A(-0.75) * d + A(3.75)) * d - 6) * d + 3;
    const int64_t at = static_cast<int64_t>(whole) + k - 1;
    t.at[k] = at < 0 ? 0 : at < in ? at : in - 1;
  }
  return t;
}

constexpr int64_t block = 128, most = 2048;

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t *const xs = a.x.strides, *const ys = a.y.strides;
  A mixed[most], weight[taps][block];
  int32_t at[taps][block];
  int64_t columns = (most - 8) / (a.W / a.ow + 1);  // whose sources are `most` at the most
  columns = columns < 1 ? 1 : columns < block ? columns : block;
  for (int64_t from = 0; from < a.ow; from += columns) {
    const int64_t count = a.ow - from < columns ? a.ow - from : columns;
    int64_t first = 0, end = 0;
    for (int64_t j = 0; j < count; ++j) {
      const Taps t = taps_at(from + j, a.W, a.ow);
      if (j == 0) first = t.at[0];
      end = t.at[taps - 1] + 1;
      for (int32_t l = 0; l < taps; ++l) weight[l][j] = t.weight[l], at[l][j] = static_cast<int32_t>(t.at[l] - first);
    }
    for (int64_t row = lo; row < hi; ++row) {
      const int64_t i = row % a.oh, c = row / a.oh % a.C, n = row / a.oh / a.C;
      const Taps t = taps_at(i, a.H, a.oh);
      const T* x[taps];
      for (int32_t k = 0; k < taps; ++k) x[k] = a.x.data + n * xs[0] + c * xs[1] + t.at[k] * xs[2] + first * xs[3];
      int64_t w = 0;
      for (; w + 16 <= end - first && xs[3] == 1; w += 16) {
        A sum[16] = {};
        for (int32_t k = 0; k < taps; ++k)
          for (int32_t e = 0; e < 16; ++e) sum[e] += t.weight[k] * load(x[k] + w + e);
        for (int32_t e = 0; e < 16; ++e) mixed[w + e] = sum[e];
      }
      for (; w < end - first; ++w) {
        mixed[w] = 0;
        for (int32_t k = 0; k < taps; ++k) mixed[w] += t.weight[k] * load(x[k] + w * xs[3]);
      }
      T* const y = a.y.data + n * ys[0] + c * ys[1] + i * ys[2] + from * ys[3];
      for (int64_t j = 0; j < count; ++j) {
        A sum = 0;
        for (int32_t l = 0; l < taps; ++l) sum += weight[l][j] * mixed[at[l][j]];
        store(y + j * ys[3], sum);
      }
    }
  }
}

static void body(const Args& a) {
  const int64_t n = a.N * a.C * a.oh;
  owk_parallel(a.call, n, a.ow, rows, const_cast<Args*>(&a));
}
