// Rows of outputs in blocks: for each position in the window, all outputs of the block at once, those alone whose
// position lies in the input.  Of equals the first wins, and the last nan.

[[maybe_unused]] static inline float least(float) { return -__builtin_inff(); }
[[maybe_unused]] static inline double least(double) { return -__builtin_inf(); }
[[maybe_unused]] static inline int64_t least(int64_t) { return INT64_MIN; }
[[maybe_unused]] static inline int32_t least(int32_t) { return INT32_MIN; }
[[maybe_unused]] static inline int16_t least(int16_t) { return INT16_MIN; }
[[maybe_unused]] static inline int8_t least(int8_t) { return INT8_MIN; }
[[maybe_unused]] static inline uint8_t least(uint8_t) { return 0; }
[[maybe_unused]] static inline bool least(bool) { return false; }

using Value = decltype(load((const T*)nullptr));
constexpr int32_t last = I_rank - 1;
constexpr int64_t block = 128;

// best and which (position in the window, -1 before the first) of outputs first..end, whose inputs are `step` apart.
static inline void take(const T* x, int64_t step, int64_t first, int64_t end, int32_t at, Value* best, int32_t* which) {
  for (int64_t i = first; i < end; ++i) {
    const Value v = load(x + i * step);
    const bool better = (which[i] < 0) | (v > best[i]) | (v != v);
    best[i] = better ? v : best[i];
    which[i] = better ? at : which[i];
  }
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int32_t batch = a.x.rank - I_rank;
  const int64_t *const xs = a.x.strides, *const ys = a.y.strides, *const ns = a.indices.strides;
  const int64_t width = a.kernel[last], stride = a.stride[last];
  const int64_t in = a.x.shape[batch + last], out = a.y.shape[batch + last], sx = xs[batch + last];
  int64_t leading = 1, plane = in;
  for (int32_t d = 0; d < last; ++d) leading *= a.kernel[d], plane *= a.x.shape[batch + d];
  for (int64_t row = lo; row < hi; ++row) {
    int64_t rest = row, x_at = 0, y_at = 0, n_at = 0, o[I_rank] = {};
    for (int32_t d = batch + last - 1; d >= 0; --d) {
      const int64_t i = rest % a.y.shape[d];
      rest /= a.y.shape[d];
      y_at += i * ys[d];
      n_at += i * ns[d];
      if (d < batch)
        x_at += i * xs[d];
      else
        o[d - batch] = i;
    }
    for (int64_t from = 0; from < out; from += block) {
      const int64_t count = out - from < block ? out - from : block;
      Value best[block];
      int32_t which[block];
      for (int64_t i = 0; i < count; ++i) best[i] = Value(), which[i] = -1;
      for (int64_t w = 0; w < leading; ++w) {
        int64_t at = x_at, of = w;
        bool within = true;
        for (int32_t d = last - 1; d >= 0; --d) {
          const int64_t i = o[d] * a.stride[d] + of % a.kernel[d] * a.dilation[d] - a.padding[d];
          of /= a.kernel[d];
          within = within && 0 <= i && i < a.x.shape[batch + d];
          at += i * xs[batch + d];
        }
        if (!within) continue;
        for (int64_t k = 0; k < width; ++k) {
          const int64_t shift = from * stride + k * a.dilation[last] - a.padding[last];  // 0 <= i * stride + shift < in
          int64_t first = shift >= 0 ? 0 : (stride - 1 - shift) / stride;
          int64_t end = in <= shift ? 0 : (in - shift - 1) / stride + 1;
          if (end > count) end = count;
          const T* const x = a.x.data + at + shift * sx;
          const int32_t here = static_cast<int32_t>(w * width + k);
          if (stride * sx == 1)
            take(x, 1, first, end, here, best, which);
          else if (stride * sx == 2)
            take(x, 2, first, end, here, best, which);
          else
            take(x, stride * sx, first, end, here, best, which);
        }
      }
      for (int64_t i = 0; i < count; ++i) {
        int64_t position = 0, step = 1, of = which[i];
        for (int32_t d = last; d >= 0; --d) {
          const int64_t k = of % a.kernel[d], base = d == last ? from + i : o[d];
          of /= a.kernel[d];
          position += (base * a.stride[d] + k * a.dilation[d] - a.padding[d]) * step;
          step *= a.x.shape[batch + d];
        }
        store(a.y.data + y_at + (from + i) * ys[batch + last], which[i] < 0 ? least(Value()) : best[i]);
        a.indices.data[n_at + (from + i) * ns[batch + last]] = which[i] < 0 ? plane : position;
      }
    }
  }
}

static void body(const Args& a) {
  int64_t n = 1, work = a.y.shape[a.y.rank - 1];
  if (work == 0) return;
  for (int32_t d = 0; d < a.y.rank - 1; ++d) n *= a.y.shape[d];
  for (int32_t d = 0; d < I_rank; ++d) work *= a.kernel[d];
  owk_parallel(a.call, n, work, rows, const_cast<Args*>(&a));
}
