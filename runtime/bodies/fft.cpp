static inline Complex input(const Source& from, int64_t i) {
  return Complex{from.x[2 * i * from.step], from.x[2 * i * from.step + 1]} * from.scale;
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t step = a.x.strides[a.dim], sy = a.y.strides[a.dim];
  Plan plan;
  plan.make(a.N, a.N, forward ? -1 : 1);
  Complex held[short_row];
  for (int64_t row = lo; row < hi; ++row) {
    const Real* const x = reinterpret_cast<const Real*>(a.x.data + row_at(a.x, a.dim, row));
    Real* const out = reinterpret_cast<Real*>(a.y.data + row_at(a.y, a.dim, row));
    const Source source = {x, step, a.N, static_cast<Real>(a.scale), &plan};
    const Row y = {out, out + 1, 2 * sy}, inner = row_of(held);
    if (sy == 1 || a.N > short_row) {
      plan.run(source, y);
      continue;
    }
    plan.run(source, inner);
    for (int64_t i = 0; i < a.N; ++i) y.put(i, held[i]);
  }
}

static void body(const Args& a) { each_row(a, a.dim, 8 * a.N); }
