static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t step = a.x.strides[a.dim];
  for (int64_t row = lo; row < hi; ++row) {
    const T* const x = a.x.data + row_at(a.x, a.dim, row);
    const Pairs<descending> pairs = {a.values.data + row_at(a.values, a.dim, row),
                                     a.indices.data + row_at(a.indices, a.dim, row), a.values.strides[a.dim],
                                     a.indices.strides[a.dim]};
    for (int64_t i = 0; i < a.N; ++i) pairs.put(i, {load(x + i * step), i});
    pairs.sort(a.N);
  }
}

static void body(const Args& a) { each_row(a, a.dim, a.N); }
