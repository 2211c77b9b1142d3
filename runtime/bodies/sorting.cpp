// Rows put in order where they lie, as pairs of a value and the position it came from: no two are equal, so that any
// sort is stable.  nan is the largest; `before` says which of two comes first.

using Value = decltype(load((const T*)nullptr));

struct Pair {
  Value value;
  int64_t at;
};

template <bool down>
struct Pairs {
  T* values;
  int64_t* at;
  int64_t values_step, at_step;

  Pair get(int64_t i) const { return {load(values + i * values_step), at[i * at_step]}; }
  void put(int64_t i, Pair p) const {
    store(values + i * values_step, p.value);
    at[i * at_step] = p.at;
  }
  static bool before(Pair a, Pair b) {
    const int64_t p = order_of(a.value), q = order_of(b.value);
    return (down ? p > q : p < q) || (p == q && a.at < b.at);
  }
  void swap(int64_t i, int64_t j) const {
    const Pair p = get(i);
    put(i, get(j));
    put(j, p);
  }
  // Of a heap with the last in order on top, the pair `p` sinks from place `i` of `n`, all counted from `first`.
  void sink(int64_t first, int64_t i, int64_t n, Pair p) const {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
      if (child + 1 < n && before(get(first + child), get(first + child + 1))) ++child;
      if (!before(p, get(first + child))) break;
      put(first + i, get(first + child));
    }
    put(first + i, p);
  }
  void heap(int64_t first, int64_t n) const {
    for (int64_t i = n / 2 - 1; i >= 0; --i) sink(first, i, n, get(first + i));
  }
  void insert(int64_t first, int64_t end) const {
    for (int64_t i = first + 1; i < end; ++i) {
      const Pair p = get(i);
      int64_t j = i;
      for (; j > first && before(p, get(j - 1)); --j) put(j, get(j - 1));
      put(j, p);
    }
  }
  // Quicksort about the middle of three; a part that is cut badly too often is sorted as a heap.
  void sort(int64_t n) const {
    struct Part {
      int64_t first, end, depth;
    } parts[64];
    int32_t open = 0;
    int64_t depth = 4;
    for (int64_t left = n; left > 1; left >>= 1) depth += 2;
    parts[open++] = {0, n, depth};
    while (open > 0) {
      Part part = parts[--open];
      while (part.end - part.first > 16) {
        const int64_t first = part.first, count = part.end - first;
        if (part.depth-- == 0) {
          heap(first, count);
          for (int64_t i = count - 1; i > 0; --i) {
            const Pair p = get(first + i);
            put(first + i, get(first));
            sink(first, 0, i, p);
          }
          part.end = first;
          break;
        }
        const int64_t middle = first + count / 2, last = part.end - 1;
        if (before(get(middle), get(first))) swap(first, middle);
        if (before(get(last), get(middle))) {
          swap(middle, last);
          if (before(get(middle), get(first))) swap(first, middle);
        }
        const Pair pivot = get(middle);
        int64_t i = first, j = last;
        while (i <= j) {
          while (before(get(i), pivot)) ++i;
          while (before(pivot, get(j))) --j;
          if (i <= j) swap(i++, j--);
        }
        const Part low = {first, j + 1, part.depth}, high = {i, part.end, part.depth};
        const bool less = low.end - low.first < high.end - high.first;
        parts[open++] = less ? high : low;  // the larger waits: never more than log2 n do
        part = less ? low : high;
      }
      insert(part.first, part.end);
    }
  }
};
