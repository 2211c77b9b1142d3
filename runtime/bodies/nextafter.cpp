// Neighbours by their bits: of one sign floats are in the order of these as integers.
template <class U>
static inline U next(U a, U b, T x, T y) {
  const U top = U(1) << (8 * sizeof(U) - 1);
  U v = (y > x) == (x > 0) ? U(a + 1) : U(a - 1);
  v = x == 0 ? U((b & top) | 1) : v;
  v = x == y ? b : v;
  return (x != x) | (y != y) ? owk_bits(x + y) : v;
}

// A line of the last axis; the steps of the usual layouts are known to the compiler.
static inline void line(const T* a, int64_t sa, const T* b, int64_t sb, T* y, int64_t sy, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T p = a[i * sa], q = b[i * sb];
    const auto v = next(owk_bits(p), owk_bits(q), p, q);
    __builtin_memcpy(y + i * sy, &v, sizeof(v));
  }
}

constexpr int64_t most = 4096;  // of a line at once

static void lines(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& args = *static_cast<const Args*>(ctx);
  const int32_t last = args.y.rank - 1;
  const int64_t n = last < 0 ? 1 : args.y.shape[last];
  // The stride of an input along axis k of y: 0 where it has no such axis, or one of extent 1.
  const auto stride = [&](const View<const T>& v, int32_t k) -> int64_t {
    const int32_t at = k - (args.y.rank - v.rank);
    return at < 0 || v.shape[at] == 1 ? 0 : v.strides[at];
  };
  const int64_t sa = last < 0 ? 0 : stride(args.a, last), sb = last < 0 ? 0 : stride(args.b, last);
  const int64_t sy = last < 0 ? 0 : args.y.strides[last];
  const int64_t parts = (n + most - 1) / most;
  for (int64_t piece = lo; piece < hi; ++piece) {
    const int64_t from = piece % parts * most, count = n - from < most ? n - from : most;
    int64_t at_a = from * sa, at_b = from * sb, at_y = from * sy, rest = piece / parts;
    for (int32_t k = last - 1; k >= 0; --k) {
      const int64_t i = rest % args.y.shape[k];
      rest /= args.y.shape[k];
      at_a += i * stride(args.a, k), at_b += i * stride(args.b, k), at_y += i * args.y.strides[k];
    }
    const T *const a = args.a.data + at_a, *const b = args.b.data + at_b;
    T* const y = args.y.data + at_y;
    if (sy == 1 && sa == 1 && sb == 1)
      line(a, 1, b, 1, y, 1, count);
    else if (sy == 1 && sa == 1 && sb == 0)
      line(a, 1, b, 0, y, 1, count);
    else
      line(a, sa, b, sb, y, sy, count);
  }
}

static void body(const Args& a) {
  int64_t n = 1;
  for (int32_t k = 0; k + 1 < a.y.rank; ++k) n *= a.y.shape[k];
  const int64_t length = a.y.rank == 0 ? 1 : a.y.shape[a.y.rank - 1];
  owk_parallel(a.call, n * ((length + most - 1) / most), length < most ? length : most, lines, const_cast<Args*>(&a));
}
