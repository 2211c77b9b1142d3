// Discrete Fourier transforms in mixed radices, decimated in time: the first pass reads its input in the order of
// reversed digits, the others turn the output where it lies.  Sums of a large prime's length are taken as they stand.

[[maybe_unused]] static inline float part(owk_c64 z) { return owk_real_c64(z); }
[[maybe_unused]] static inline double part(owk_c128 z) { return owk_real_c128(z); }
using Real = decltype(part(T()));
typedef Real Complex __attribute__((vector_size(2 * sizeof(Real)), may_alias));
typedef Real Reals __attribute__((vector_size(8 * sizeof(Real))));  // four complex numbers

constexpr int64_t short_row = 4096;  // what is held whole on the stack
constexpr int64_t wide_radix = 256;  // of a pass that works in place
constexpr int64_t level = 512;       // roots at a distance of 1, and of this

[[maybe_unused]] static inline Complex conj(Complex a) { return Complex{a[0], -a[1]}; }
static inline Complex mul(Complex a, Complex b) {
  return Complex{a[0] * b[0] - a[1] * b[1], a[1] * b[0] + a[0] * b[1]};
}
static inline Reals swapped(Reals a) { return __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6); }
static inline Reals mul(Reals a, Reals b) {
  const Reals sign = {-1, 1, -1, 1, -1, 1, -1, 1};
  return a * __builtin_shufflevector(b, b, 0, 0, 2, 2, 4, 4, 6, 6) +
         swapped(a) * (sign * __builtin_shufflevector(b, b, 1, 1, 3, 3, 5, 5, 7, 7));
}
// Times i * sign.
static inline Complex quarter(Complex a, Real sign) { return Complex{-a[1] * sign, a[0] * sign}; }
static inline Reals quarter(Reals a, Real sign) {
  const Reals signs = {-1, 1, -1, 1, -1, 1, -1, 1};
  return swapped(a) * (signs * sign);
}

// A row of complex numbers; a dense one holds them as pairs.
struct Row {
  Real *re, *im;
  int64_t step;
  bool dense() const { return step == 2 && im == re + 1; }
  Complex get(int64_t i) const { return Complex{re[i * step], im[i * step]}; }
  void put(int64_t i, Complex v) const { re[i * step] = v[0], im[i * step] = v[1]; }
  Row from(int64_t i) const { return {re + i * step, im + i * step, step}; }
  Reals four(int64_t i) const {
    Reals v;
    __builtin_memcpy(&v, re + 2 * i, sizeof v);
    return v;
  }
  void four(int64_t i, Reals v) const { __builtin_memcpy(re + 2 * i, &v, sizeof v); }
};

struct Plan;
// Where rows come from; an operator's file says what their element i is.
struct Source {
  const Real* x;
  int64_t step, n;
  Real scale;
  const Plan* plan;
};
static inline Complex input(const Source& from, int64_t i);

static inline Row row_of(Complex* z) {
  Real* const re = reinterpret_cast<Real*>(z);
  return {re, re + 1, 2};
}

struct Root {
  double re, im;
};

// e^(2 pi i k / n), 0 <= k < n, found in the eighth of the circle beside 1.
static inline Root root_at(int64_t k, int64_t n) {
  int64_t q = 4 * k;
  const bool below = q > 2 * n;
  if (below) q = 4 * n - q;
  const bool left = q > n;
  if (left) q = 2 * n - q;
  const bool steep = 2 * q > n;
  if (steep) q = n - q;
  const double angle = 1.5707963267948966 * (static_cast<double>(q) / static_cast<double>(n));
  const double c = __builtin_cos(angle), s = __builtin_sin(angle);
  const double re = steep ? s : c, im = steep ? c : s;
  return {left ? -re : re, below ? -im : im};
}

// How rows of n are transformed, with the roots of unity of `circle`, a multiple of n.
struct Plan {
  int64_t n, circle;
  Real sign;  // of the angles
  int32_t passes;
  int64_t radix[64], weight[64];
  Root low[level], high[level];
  Complex twiddles[short_row];

  void make(int64_t length, int64_t whole, Real way) {
    n = length, circle = whole, sign = way, passes = 0;
    for (int64_t i = 0; i < level && i < circle; ++i) low[i] = root_at(i, circle);
    for (int64_t i = 0; i < level && i * level < circle; ++i) high[i] = root_at(i * level, circle);
    int64_t left = n, wide = 1;
    while (left % 4 == 0) radix[passes++] = 4, left /= 4;
    for (int64_t p = 2; left > 1; ++p) {
      if (p * p > left) p = left;
      for (; left % p == 0; left /= p)
        if (p <= wide_radix)
          radix[passes++] = p;
        else
          wide *= p;
    }
    if (wide > 1 || passes == 0) {
      for (int32_t p = passes++; p > 0; --p) radix[p] = radix[p - 1];
      radix[0] = wide;
    }
    int64_t m = 1;
    Complex* w = twiddles;
    for (int32_t p = 0; p < passes; ++p) {
      if (p > 0 && n <= short_row) twiddle(w, radix[p], m, 0, m), w += (radix[p] - 1) * m;
      m *= radix[p];
      weight[p] = n / m;
    }
  }
  // The root of unity e^(2 pi i k / length), or its conjugate, 0 <= k < length, a divisor of `circle`.
  Complex root(int64_t k, int64_t length) const {
    k *= circle / length;
    Root r;
    if (k < level) {
      r = low[k];
    } else if (k < level * level) {
      const Root a = low[k % level], b = high[k / level];
      r = {a.re * b.re - a.im * b.im, a.im * b.re + a.re * b.im};
    } else {
      r = root_at(k, circle);
    }
    return Complex{static_cast<Real>(r.re), sign * static_cast<Real>(r.im)};
  }
  // What parts 1.. of a pass over r parts of m are multiplied by, from place k on.
  void twiddle(Complex* w, int64_t r, int64_t m, int64_t k, int64_t count) const {
    for (int64_t q = 1; q < r; ++q)
      for (int64_t i = 0; i < count; ++i) *w++ = root(q * (k + i), r * m);
  }
  // Term k of a transform of `length`, by its sum.
  Complex term(const Source& from, int64_t at, int64_t step, int64_t length, int64_t k) const {
    Complex sum = {};
    for (int64_t j = 0, turn = 0; j < length; ++j) {
      sum = sum + mul(input(from, at + j * step), root(turn, length));
      turn += k;
      if (turn >= length) turn -= length;
    }
    return sum;
  }
  void four(const Complex* x, Complex* y) const {
    const Complex s = x[0] + x[2], d = x[0] - x[2], t = x[1] + x[3], e = quarter(x[1] - x[3], sign);
    y[0] = s + t, y[1] = d + e, y[2] = s - t, y[3] = d - e;
  }
  void first(const Source& from, Row y) const {
    const int64_t r = radix[0], apart = n / r;
    int64_t digit[64] = {}, at = 0;
    for (int64_t b = 0; b < n; b += r) {
      if (r == 4) {
        const Complex x[4] = {input(from, at), input(from, at + apart), input(from, at + 2 * apart),
                              input(from, at + 3 * apart)};
        Complex z[4];
        four(x, z);
        for (int64_t q = 0; q < 4; ++q) y.put(b + q, z[q]);
      } else {
        for (int64_t q = 0; q < r; ++q) y.put(b + q, term(from, at, apart, r, q));
      }
      for (int32_t p = 1; p < passes; ++p) {
        at += weight[p];
        if (++digit[p] < radix[p]) break;
        at -= digit[p] * weight[p];
        digit[p] = 0;
      }
    }
  }
  // Four places from k on.
  void turn4(Row y, int64_t m, Row w, int64_t k, int64_t count) const {
    const Reals a = y.four(0), b = mul(y.four(m), w.four(k)), c = mul(y.four(2 * m), w.four(count + k));
    const Reals f = mul(y.four(3 * m), w.four(2 * count + k));
    const Reals s = a + c, d = a - c, t = b + f, e = quarter(b - f, sign);
    y.four(0, s + t), y.four(m, d + e), y.four(2 * m, s - t), y.four(3 * m, d - e);
  }
  static void turn2(Row y, int64_t m, Row w, int64_t k) {
    const Reals a = y.four(0), b = mul(y.four(m), w.four(k));
    y.four(0, a + b), y.four(m, a - b);
  }
  // Places first..first + count of each m, of all blocks of r parts of m.
  void pass(Row y, int64_t r, int64_t m, int64_t first, int64_t count, Complex* twiddle) const {
    const Row w = row_of(twiddle);
    const int64_t fours = y.dense() && r <= 4 && r != 3 ? count / 4 * 4 : 0;
    Complex unit[wide_radix], x[wide_radix];
    for (int64_t q = 0; q < r && fours < count; ++q) unit[q] = root(q, r);
    for (int64_t b = first; b < n; b += r * m) {
      for (int64_t k = 0; k < fours; k += 4)
        if (r == 4)
          turn4(y.from(b + k), m, w, k, count);
        else
          turn2(y.from(b + k), m, w, k);
      for (int64_t k = fours; k < count; ++k) {
        for (int64_t q = 0; q < r; ++q) x[q] = y.get(b + k + q * m);
        for (int64_t q = 1; q < r; ++q) x[q] = mul(x[q], w.get((q - 1) * count + k));
        for (int64_t p = 0; p < r; ++p) {
          Complex sum = x[0];
          for (int64_t q = 1, turn = p; q < r; ++q) {
            sum = sum + mul(x[q], unit[turn]);
            turn += p;
            if (turn >= r) turn -= r;
          }
          y.put(b + k + p * m, sum);
        }
      }
    }
  }
  void run(const Source& from, Row y) {
    first(from, y);
    Complex* w = twiddles;
    for (int32_t p = 1; p < passes; ++p) {
      const int64_t r = radix[p], m = n / weight[p] / r;
      if (n <= short_row) {
        pass(y, r, m, 0, m, w);
        w += (r - 1) * m;
        continue;
      }
      const int64_t most = short_row / r / 4 * 4;
      for (int64_t k = 0; k < m; k += most) {
        const int64_t count = m - k < most ? m - k : most;
        twiddle(w, r, m, k, count);
        pass(y, r, m, k, count, w);
      }
    }
  }
};
