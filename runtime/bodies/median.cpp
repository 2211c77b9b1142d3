static inline Wanted wanted(const Args&, const T* x, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; ++i)
    if (load(x + i * step) != load(x + i * step)) return {0, i};
  return {(n - 1) / 2, -1};
}
