// Where a row's value of a given rank stands; nan is largest, and of equals the first stands first.  What follows says
// the rank.

static inline uint64_t key_of(const T* x) { return static_cast<uint64_t>(order_of(load(x))) ^ 1ull << 63; }

// The rank in a row of n, or the place that is taken instead where it is not negative.
struct Wanted {
  int64_t rank, instead;
};
static inline Wanted wanted(const Args& a, const T* x, int64_t n, int64_t step);

constexpr int64_t held = 4096;

// keys[first..] in three parts: those before `than`, no branch in them (`last`: and those equal to it).
template <bool last>
static inline int64_t part(uint64_t* keys, int64_t first, int64_t end, uint64_t than) {
  for (int64_t i = first; i < end; ++i) {
    const uint64_t key = keys[i];
    keys[i] = keys[first];
    keys[first] = key;
    first += last ? key <= than : key < than;
  }
  return first;
}

static inline uint64_t quickselect(uint64_t* keys, int64_t n, int64_t rank) {
  int64_t first = 0, end = n;
  while (end - first > 1) {
    const uint64_t a = keys[first], b = keys[first + (end - first) / 2], c = keys[end - 1];
    const uint64_t low = a < b ? a : b, high = a < b ? b : a, middle = c < low ? low : c < high ? c : high;
    const int64_t less = part<false>(keys, first, end, middle);
    if (rank < less) {
      end = less;
      continue;
    }
    first = part<true>(keys, less, end, middle);
    if (rank < first) return middle;
  }
  return keys[first];
}

// A long row is narrowed to the values that agree in their highest bytes, until they can be held.
static inline uint64_t key_at(const T* x, int64_t n, int64_t step, int64_t rank) {
  uint64_t found = 0, mask = 0;
  int64_t left = n;
  for (int32_t shift = 56; left > held && shift >= 0; shift -= 8) {
    int64_t count[256] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t key = key_of(x + i * step);
      if ((key & mask) == found) ++count[key >> shift & 255];
    }
    uint64_t byte = 0;
    while (rank >= count[byte]) rank -= count[byte++];
    found |= byte << shift;
    mask |= 255ull << shift;
    left = count[byte];
  }
  if (left > held) return found;
  uint64_t keys[held + 1];
  int64_t m = 0;
  for (int64_t i = 0; i < n; ++i) {
    keys[m] = key_of(x + i * step);
    m += (keys[m] & mask) == found;
  }
  return quickselect(keys, m, rank);
}

static void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Args& a = *static_cast<const Args*>(ctx);
  const int64_t n = a.N, step = a.x.strides[a.dim], dim = keepdim ? a.dim : -1;
  for (int64_t row = lo; row < hi; ++row) {
    const T* const x = a.x.data + row_at(a.x, a.dim, row);
    const Wanted want = wanted(a, x, n, step);
    int64_t at = want.instead;
    if (at < 0) {
      const uint64_t key = key_at(x, n, step, want.rank);
      int64_t before = want.rank;
      for (int64_t i = 0; i < n; ++i) before -= key_of(x + i * step) < key;
      for (at = 0; key_of(x + at * step) != key || before-- > 0;) ++at;
    }
    a.indices.data[row_at(a.indices, dim, row)] = at;
    store(a.values.data + row_at(a.values, dim, row), load(x + at * step));
  }
}

static void body(const Args& a) { each_row(a, a.dim, 8 * a.N); }
