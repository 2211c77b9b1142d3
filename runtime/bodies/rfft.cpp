// Pairs of neighbours are the complex numbers of a transform of half the length; its terms k and -k give two of ours.
static inline Complex input(const Source& from, int64_t i) {
  const R* const x = from.x;
  if (from.n % 2 != 0) return Complex{x[i * from.step] * from.scale, 0};
  return Complex{x[2 * i * from.step], x[(2 * i + 1) * from.step]} * from.scale;
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t n = a.N, half = n / 2, step = a.x.strides[a.dim], sy = a.y.strides[a.dim];
  const R scale = static_cast<R>(a.scale);
  const bool even = n % 2 == 0;
  Plan plan;
  plan.make(even ? half : n, n, -1);
  Complex held[short_row];
  for (int64_t row = lo; row < hi; ++row) {
    const R* const x = a.x.data + row_at(a.x, a.dim, row);
    R* const out = reinterpret_cast<R*>(a.y.data + row_at(a.y, a.dim, row));
    const Row y = {out, out + 1, 2 * sy}, inner = row_of(held);
    const Source source = {x, step, n, scale, &plan};
    if (!even) {
      if (n <= short_row) plan.run(source, inner);
      for (int64_t k = 0; k <= half; ++k) y.put(k, n <= short_row ? held[k] : plan.term(source, 0, 1, n, k));
      continue;
    }
    const Row z = sy == 1 || half >= short_row ? y : inner;
    plan.run(source, z);
    const Complex sum = z.get(0);
    for (int64_t k = 1; k <= half - k; ++k) {
      const Complex p = z.get(k), q = conj(z.get(half - k));
      const Complex e = (p + q) * R(0.5), o = mul(quarter((p - q) * R(0.5), -1), plan.root(k, n));
      y.put(half - k, conj(e - o));
      y.put(k, e + o);
    }
    y.put(0, Complex{sum[0] + sum[1], 0});
    y.put(half, Complex{sum[0] - sum[1], 0});
  }
}

static void body(const Args& a) { each_row(a, a.dim, 4 * a.N); }
