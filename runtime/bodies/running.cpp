// The best so far, and where it stands: of equals the last, and a nan gives its place to nans alone.
static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t step = a.x.strides[a.dim], sv = a.values.strides[a.dim], si = a.indices.strides[a.dim];
  for (int64_t row = lo; row < hi && a.N > 0; ++row) {
    const T* const x = a.x.data + row_at(a.x, a.dim, row);
    T* const values = a.values.data + row_at(a.values, a.dim, row);
    int64_t* const indices = a.indices.data + row_at(a.indices, a.dim, row);
    auto best = load(x);
    int64_t at = 0;
    for (int64_t i = 0; i < a.N; ++i) {
      const auto v = load(x + i * step);
      const bool better = (largest ? v >= best : v <= best) | (v != v);
      best = better ? v : best;
      at = better ? i : at;
      store(values + i * sv, best);
      indices[i * si] = at;
    }
  }
}

static void body(const Args& a) { each_row(a, a.dim, a.N); }
