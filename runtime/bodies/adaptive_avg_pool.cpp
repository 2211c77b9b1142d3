// Sums over boxes of x: rows of a box in lanes, and what they come to in pairs.

constexpr int64_t long_row = 1024;

static inline A row_sum(const T* x, int64_t n, int64_t step) {
  A lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int32_t e = 0; e < 16; ++e) lane[e] += load(x + (i + e) * step);
  A sum = 0;
  for (; i < n; ++i) sum += load(x + i * step);
  for (int32_t e = 0; e < 16 && n >= 16; ++e) sum += lane[e];
  return sum;
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int32_t batch = a.x.rank - I_rank, last = a.x.rank - 1;
  const int64_t step = a.x.strides[last];
  for (int64_t o = lo; o < hi; ++o) {
    int64_t rest = o, x_at = 0, y_at = 0, count = 1, boxes = 1, size[I_rank];
    for (int32_t d = last; d >= 0; --d) {
      const int64_t n = a.y.shape[d], i = rest % n;
      rest /= n;
      y_at += i * a.y.strides[d];
      if (d < batch) {
        x_at += i * a.x.strides[d];
        continue;
      }
      const int64_t extent = a.x.shape[d], first = i * extent / n;
      size[d - batch] = ((i + 1) * extent + n - 1) / n - first;
      x_at += first * a.x.strides[d];
      count *= size[d - batch];
      if (d < last) boxes *= size[d - batch];
    }
    const int64_t width = size[I_rank - 1], parts = (width + long_row - 1) / long_row;
    A pairs[64];  // of a binary counter's digits that are 1: the sums so far
    int32_t open = 0;
    for (int64_t b = 0; b < boxes * parts; ++b) {
      const int64_t from = b % parts * long_row;
      int64_t at = x_at + from * step, of = b / parts;
      for (int32_t d = last - 1; d >= batch; --d) {
        at += of % size[d - batch] * a.x.strides[d];
        of /= size[d - batch];
      }
      A sum = row_sum(a.x.data + at, width - from < long_row ? width - from : long_row, step);
      for (int64_t bits = b; bits & 1; bits >>= 1) sum = pairs[--open] + sum;
      pairs[open++] = sum;
    }
    A sum = 0;
    while (open > 0) sum += pairs[--open];
    store(a.y.data + y_at, static_cast<A>(sum / static_cast<A>(count)));
  }
}

static void body(const Args& a) {
  int64_t n = 1, elements = 1;
  for (int32_t d = 0; d < a.y.rank; ++d) n *= a.y.shape[d], elements *= a.x.shape[d];
  owk_parallel(a.call, n, elements / (n + 1), rows, const_cast<Args*>(&a));
}
