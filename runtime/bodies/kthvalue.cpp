static inline Wanted wanted(const Args& a, const T*, int64_t, int64_t) { return {a.k - 1, -1}; }
