// A row at a time: what is kept rules out, of those behind it, what it overlaps too much.  Nothing but the result is
// written, so that rows of many boxes need no room for pairs.
using Real = decltype(load((const T*)nullptr));

struct Box {
  Real low0, low1, high0, high1;
  Real area() const { return (high0 - low0) * (high1 - low1); }
};

static Real least(Real a, Real b) { return a < b ? a : b; }
static Real most(Real a, Real b) { return a > b ? a : b; }

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const Real limit = load(a.limit.data);
  const int64_t step = a.x.strides[1], corner = a.x.strides[2], out = a.keep.strides[1];
  for (int64_t r = lo; r < hi; ++r) {
    const T* const x = a.x.data + r * a.x.strides[0];
    uint8_t* const keep = a.keep.data + r * a.keep.strides[0];
    const int64_t given = load(a.many.data + r * a.many.strides[0]);
    const int64_t n = given < a.N ? given : a.N;
    const auto box = [=](int64_t i) {
      const T* const p = x + i * step;
      return Box{load(p), load(p + corner), load(p + 2 * corner), load(p + 3 * corner)};
    };
    for (int64_t i = 0; i < a.N; ++i) store(keep + i * out, i < n);
    for (int64_t t = 0; t < n; ++t) {
      if (!load(keep + t * out)) continue;
      const Box b = box(t);
      const Real area = b.area();
      for (int64_t j = t + 1; j < n; ++j) {
        if (!load(keep + j * out)) continue;
        const Box c = box(j);
        const Real side = least(b.high0, c.high0) - most(b.low0, c.low0);
        const Real other = least(b.high1, c.high1) - most(b.low1, c.low1);
        const Real shared = most(side, 0) * most(other, 0);
        if (shared > 0 && shared / (area + c.area() - shared) > limit) store(keep + j * out, false);
      }
    }
  }
}

static void body(const Args& a) {
  if (a.R > 0 && a.N > 0) owk_parallel(a.call, a.R, a.N * a.N / 2 + 1, rows, const_cast<Args*>(&a));
}
