// One pass in row-major order: the position of each value that is not zero, a row of y.

static void body(const Args& a) {
  const int32_t rank = a.x.rank;
  if (rank == 0 || a.M == 0) return;  // a row of no positions
  const int32_t last = rank - 1;
  int64_t rows = 1, at[OW_MAX_RANK] = {}, from = 0, found = 0;
  for (int32_t d = 0; d < last; ++d) rows *= a.x.shape[d];
  const int64_t n = a.x.shape[last], step = a.x.strides[last], sy = a.y.strides[0], sd = a.y.strides[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      if (load(a.x.data + from + i * step) == 0) continue;
      int64_t* const y = a.y.data + found++ * sy;
      for (int32_t d = 0; d < last; ++d) y[d * sd] = at[d];
      y[last * sd] = i;
    }
    for (int32_t d = last - 1; d >= 0; --d) {  // the next row
      from += a.x.strides[d];
      if (++at[d] < a.x.shape[d]) break;
      from -= at[d] * a.x.strides[d];
      at[d] = 0;
    }
  }
}
