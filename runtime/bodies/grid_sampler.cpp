// Points in blocks: the places and weights of their corners once, then each channel.

constexpr int32_t corners = mode == 1 ? 1 : 1 << axes;
constexpr int64_t block = 64;

// The place along an axis of `extent`, that a point's coordinate g means.
static inline A place_at(A g, int64_t extent) {
  A u = align ? (g + 1) / 2 * A(extent - 1) : ((g + 1) * A(extent) - 1) / 2;
  if (padding == 1 && axes == 3 && u != u) return A(extent - 1);
  if (padding == 1) u = u < 0 ? 0 : u > A(extent - 1) ? A(extent - 1) : u;
  return mode == 1 ? __builtin_rint(u) : u;
}

// Offset of point `point` of a tensor whose `axes` axes from `first` on the points lie in.
template <class E>
static inline int64_t point_at(const View<E>& t, int32_t first, int64_t point) {
  int64_t at = 0;
  for (int32_t d = first + axes - 1; d >= first; --d) {
    at += point % t.shape[d] * t.strides[d];
    point /= t.shape[d];
  }
  return at;
}

static inline int64_t points(const Args& a) {
  int64_t n = 1;
  for (int32_t d = 1; d <= axes; ++d) n *= a.g.shape[d];
  return n;
}

static void blocks(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t all = points(a), each = (all + block - 1) / block;
  A weight[corners][block];
  int64_t at[corners][block], y_at[block];
  for (int64_t b = lo; b < hi; ++b) {
    const int64_t n = b / each, first = b % each * block, count = all - first < block ? all - first : block;
    for (int64_t j = 0; j < count; ++j) {
      const T* const g = a.g.data + n * a.g.strides[0] + point_at(a.g, 1, first + j);
      y_at[j] = n * a.y.strides[0] + point_at(a.y, 2, first + j);
      A u[axes];
      for (int32_t d = 0; d < axes; ++d)
        u[d] = place_at(load(g + (axes - 1 - d) * a.g.strides[axes + 1]), a.x.shape[2 + d]);
      for (int32_t k = 0; k < corners; ++k) {
        weight[k][j] = 1;
        at[k][j] = n * a.x.strides[0];
        for (int32_t d = 0; d < axes; ++d) {
          const bool upper = k >> (axes - 1 - d) & 1;
          const A low = mode == 1 ? u[d] : __builtin_floor(u[d]), whole = low + A(upper), part = u[d] - low;
          if (mode != 1) weight[k][j] *= upper ? part : 1 - part;
          if (at[k][j] == INT64_MIN || !(0 <= whole && whole < A(a.x.shape[2 + d])))
            at[k][j] = INT64_MIN;
          else
            at[k][j] += static_cast<int64_t>(whole) * a.x.strides[2 + d];
        }
        if (axes == 3 && at[k][j] == INT64_MIN) weight[k][j] = 0;  // in a volume, of nan too
      }
    }
    for (int64_t c = 0; c < a.C; ++c) {
      const T* const x = a.x.data + c * a.x.strides[1];
      T* const y = a.y.data + c * a.y.strides[1];
      for (int64_t j = 0; j < count; ++j) {
        A sum = 0;
        for (int32_t k = 0; k < corners; ++k) {
          const A v = at[k][j] == INT64_MIN ? A(0) : A(load(x + at[k][j]));
          sum = mode == 1 ? v : sum + weight[k][j] * v;
        }
        store(y + y_at[j], sum);
      }
    }
  }
}

static void body(const Args& a) {
  const int64_t n = a.N * ((points(a) + block - 1) / block);
  owk_parallel(a.call, n, block * a.C, blocks, const_cast<Args*>(&a));
}
