// Each box of x once, in order: of equals the first, and the last nan.
static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int32_t batch = a.x.rank - I_rank, last = a.x.rank - 1;
  for (int64_t o = lo; o < hi; ++o) {
    int64_t rest = o, x_at = 0, y_at = 0, n_at = 0, boxes = 1, first[I_rank], size[I_rank];
    for (int32_t d = last; d >= 0; --d) {
      const int64_t n = a.y.shape[d], i = rest % n;
      rest /= n;
      y_at += i * a.y.strides[d];
      n_at += i * a.indices.strides[d];
      if (d < batch) {
        x_at += i * a.x.strides[d];
        continue;
      }
      const int64_t extent = a.x.shape[d];
      first[d - batch] = i * extent / n;
      size[d - batch] = ((i + 1) * extent + n - 1) / n - first[d - batch];
      x_at += first[d - batch] * a.x.strides[d];
      if (d < last) boxes *= size[d - batch];
    }
    auto best = load(a.x.data + x_at);
    int64_t which = -1;
    for (int64_t b = 0; b < boxes; ++b) {
      int64_t at = x_at, of = b, position = first[I_rank - 1], step = a.x.shape[last];
      for (int32_t d = last - 1; d >= batch; --d) {
        const int64_t i = of % size[d - batch];
        of /= size[d - batch];
        at += i * a.x.strides[d];
        position += (first[d - batch] + i) * step;
        step *= a.x.shape[d];
      }
      for (int64_t i = 0; i < size[I_rank - 1]; ++i) {
        const auto v = load(a.x.data + at + i * a.x.strides[last]);
        const bool better = (which < 0) | (v > best) | (v != v);
        best = better ? v : best;
        which = better ? position + i : which;
      }
    }
    store(a.y.data + y_at, best);
    a.indices.data[n_at] = which;
  }
}

static void body(const Args& a) {
  int64_t n = 1, elements = 1;
  for (int32_t d = 0; d < a.y.rank; ++d) n *= a.y.shape[d], elements *= a.x.shape[d];
  owk_parallel(a.call, n, elements / (n + 1), rows, const_cast<Args*>(&a));
}
