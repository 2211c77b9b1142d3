// Copying and converting between any two layouts, and filling. The only arithmetic that the runtime itself does.
// May include: tensor.h, threads.h.
#pragma once
#include <complex>

#include "tensor.h"

namespace ow {

// dst[i] = convert(src[i]); the shapes are equal, the dtypes may differ (rules: dtype.h). dst must not overlap itself or src.
void copy_into(const Tensor& dst, const Tensor& src);
// The same over raw descriptors, for the executor.
struct Layout {
  char* data;
  DType dtype;
  int32_t rank;
  const int64_t* sizes;
  const int64_t* strides;
};
void copy_layout(const Layout& dst, const Layout& src);

Tensor contiguous(const Tensor& t);         // t itself when it is
Tensor clone(const Tensor& t);              // always a copy, contiguous
Tensor cast(const Tensor& t, DType dtype);  // t itself when it has the dtype

// One Python or JSON number.
struct Scalar {
  enum class Kind : uint8_t { Bool, Int, Float, Complex } kind = Kind::Int;
  int64_t i = 0;
  std::complex<double> z = 0;  // Float: z.real()

  static Scalar of_bool(bool v) { return {Kind::Bool, v, static_cast<double>(v)}; }
  static Scalar of_int(int64_t v) { return {Kind::Int, v, static_cast<double>(v)}; }
  static Scalar of_float(double v) { return {Kind::Float, 0, v}; }
  static Scalar of_complex(std::complex<double> v) { return {Kind::Complex, 0, v}; }
  double as_double() const { return kind == Kind::Bool || kind == Kind::Int ? static_cast<double>(i) : z.real(); }
  DType natural_dtype() const;  // bool, i64, f64, c128
};
void store_scalar(void* at, DType dtype, const Scalar& value);
Scalar load_scalar(const void* at, DType dtype);
void fill(const Tensor& t, const Scalar& value);

// Rewrites every floating element x as convert(x * factor), or rounds it through bf16. For the sensitivity count only.
void perturb_scale(const Tensor& t, double factor);
void perturb_bf16(const Tensor& t);

}  // namespace ow
