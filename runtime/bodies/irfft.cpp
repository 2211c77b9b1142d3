// Neighbours of the result are the complex numbers of a transform of half the length.
static inline Complex term(const Source& from, int64_t k) {
  const R* const x = from.x + 2 * k * from.step;
  return Complex{x[0], k == 0 || 2 * k == from.n ? 0 : x[1]} * from.scale;
}

static inline Complex input(const Source& from, int64_t k) {
  if (from.n % 2 != 0) return 2 * k < from.n ? term(from, k) : conj(term(from, from.n - k));
  const Complex p = term(from, k), q = conj(term(from, from.n / 2 - k));
  return p + q + quarter(mul(p - q, from.plan->root(k, from.n)), 1);
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t n = a.length, half = n / 2, sy = a.y.strides[a.dim];
  const bool even = n % 2 == 0;
  Plan plan;
  plan.make(even ? half : n, n, 1);
  Complex held[short_row];
  for (int64_t row = lo; row < hi; ++row) {
    const R* const x = reinterpret_cast<const R*>(a.x.data + row_at(a.x, a.dim, row));
    R* const y = a.y.data + row_at(a.y, a.dim, row);
    const Row inner = row_of(held), outer = {y, y + sy, 2 * sy};
    const Source source = {x, a.x.strides[a.dim], n, static_cast<R>(a.scale), &plan};
    if (!even) {
      if (n <= short_row) plan.run(source, inner);
      for (int64_t i = 0; i < n; ++i) y[i * sy] = n <= short_row ? held[i][0] : plan.term(source, 0, 1, n, i)[0];
    } else if (sy == 1 || half > short_row) {
      plan.run(source, outer);
    } else {
      plan.run(source, inner);
      for (int64_t i = 0; i < half; ++i) outer.put(i, held[i]);
    }
  }
}

static void body(const Args& a) { each_row(a, a.dim, 4 * a.length); }
