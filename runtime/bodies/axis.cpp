// Rows along one axis, over the threads of the call: a file that follows fills `rows`.

// Offset of row `row` of a tensor, its axis `axis` left out.
template <class E>
static inline int64_t row_at(const View<E>& t, int64_t axis, int64_t row) {
  int64_t at = 0;
  for (int32_t d = t.rank - 1; d >= 0; --d) {
    if (d == axis) continue;
    at += row % t.shape[d] * t.strides[d];
    row /= t.shape[d];
  }
  return at;
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t);

// All rows along `axis` of x; each is worth `work` steps.
static inline void each_row(const Args& a, int64_t axis, int64_t work) {
  int64_t n = 1;
  for (int32_t d = 0; d < a.x.rank; ++d)
    if (d != axis) n *= a.x.shape[d];
  owk_parallel(a.call, n, work, rows, const_cast<Args*>(&a));
}
