// The first k seen, as a heap with the last of them on top; who comes before it takes its place.
static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t step = a.x.strides[a.dim], k = a.k;
  for (int64_t row = lo; row < hi && k > 0; ++row) {
    const T* const x = a.x.data + row_at(a.x, a.dim, row);
    const Pairs<largest> pairs = {a.values.data + row_at(a.values, a.dim, row),
                                  a.indices.data + row_at(a.indices, a.dim, row), a.values.strides[a.dim],
                                  a.indices.strides[a.dim]};
    for (int64_t i = 0; i < k; ++i) pairs.put(i, {load(x + i * step), i});
    pairs.heap(0, k);
    Pair worst = pairs.get(0);
    for (int64_t i = k; i < a.N; ++i) {
      const Pair p = {load(x + i * step), i};
      if (!pairs.before(p, worst)) continue;
      pairs.sink(0, 0, k, p);
      worst = pairs.get(0);
    }
    pairs.sort(k);
  }
}

static void body(const Args& a) { each_row(a, a.dim, a.N); }
