static inline Wanted wanted(const Args&, const T* x, int64_t n, int64_t step) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += load(x + i * step) == load(x + i * step);
  return {count > 0 ? (count - 1) / 2 : 0, -1};
}
