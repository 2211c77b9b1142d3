// A number whose order is that of the values; nan is largest.
[[maybe_unused]] static inline int64_t order_of(float v) { return owk_order_f32(v); }
[[maybe_unused]] static inline int64_t order_of(double v) { return owk_order_f64(v); }
template <class V>
[[maybe_unused]] static inline int64_t order_of(V v) {
  return v;
}
