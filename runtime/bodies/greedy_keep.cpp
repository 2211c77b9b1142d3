// One matrix after the other: what is kept rules out what it overlaps, in place.
static void matrices(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int32_t batch = a.keep.rank - 1;
  for (int64_t k = lo; k < hi; ++k) {
    const uint8_t* m = a.m.data;
    uint8_t* keep = a.keep.data;
    int64_t rest = k;
    for (int32_t d = batch - 1; d >= 0; --d) {
      const int64_t at = rest % a.keep.shape[d];
      rest /= a.keep.shape[d];
      m += at * a.m.strides[d];
      keep += at * a.keep.strides[d];
    }
    const int64_t out = a.keep.strides[batch], row = a.m.strides[batch], column = a.m.strides[batch + 1];
    for (int64_t j = 0; j < a.N; ++j) store(keep + j * out, true);
    for (int64_t t = 0; t < a.N; ++t) {
      if (!load(keep + t * out)) continue;
      for (int64_t j = t + 1; j < a.N; ++j)
        if (load(m + t * row + j * column)) store(keep + j * out, false);
    }
  }
}

static void body(const Args& a) {
  int64_t n = 1;
  for (int32_t d = 0; d < a.keep.rank - 1; ++d) n *= a.keep.shape[d];
  if (a.N > 0) owk_parallel(a.call, n, a.N * a.N / 2 + 1, matrices, const_cast<Args*>(&a));
}
