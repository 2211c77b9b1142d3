// See strided.h.
#include "strided.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "threads.h"

namespace ow {
namespace {

using Row = void (*)(char* dst, int64_t dst_step, const char* src, int64_t src_step, int64_t n);  // steps in bytes

template <DType D, DType S>
void convert_row(char* dst, int64_t dst_step, const char* src, int64_t src_step, int64_t n) {
  constexpr int64_t d = sizeof(typename Element<D>::type), s = sizeof(typename Element<S>::type);
  using To = typename Element<D>::native;
  if (dst_step == d && src_step == s) {  // constant steps let the compiler vectorise
    if constexpr (D == S && D != DType::Bool) {
      std::memcpy(dst, src, static_cast<size_t>(n * d));
    } else {
      for (int64_t k = 0; k < n; ++k) store<D>(dst + k * d, convert<To>(load<S>(src + k * s)));
    }
    return;
  }
  for (int64_t k = 0; k < n; ++k) {
    if constexpr (D == S && D != DType::Bool) {  // bits, so that a NaN keeps its payload
      std::memcpy(dst + k * dst_step, src + k * src_step, static_cast<size_t>(d));
    } else {
      store<D>(dst + k * dst_step, convert<To>(load<S>(src + k * src_step)));
    }
  }
}

template <int D, int... S>
constexpr std::array<Row, kDTypes> rows_to(std::integer_sequence<int, S...>) {
  return {convert_row<static_cast<DType>(D), static_cast<DType>(S)>...};
}
template <int... D>
constexpr std::array<std::array<Row, kDTypes>, kDTypes> all_rows(std::integer_sequence<int, D...>) {
  return {rows_to<D>(std::make_integer_sequence<int, kDTypes>{})...};
}
constexpr auto kRows = all_rows(std::make_integer_sequence<int, kDTypes>{});

struct Axis {
  int64_t size, dst, src;
};  // steps in bytes

struct CopyPlan {
  Row row;
  Axis axes[OW_MAX_RANK];
  int32_t rank = 0;  // the last axis is the inner one
  char* dst;
  const char* src;
};

void copy_rows(void* context, int64_t low, int64_t high, int32_t) {
  const CopyPlan& plan = *static_cast<const CopyPlan*>(context);
  int32_t outer = plan.rank - 1;
  int64_t index[OW_MAX_RANK];
  int64_t rest = low, dst = 0, src = 0;
  for (int32_t k = outer - 1; k >= 0; --k) {
    index[k] = rest % plan.axes[k].size;
    rest /= plan.axes[k].size;
    dst += index[k] * plan.axes[k].dst;
    src += index[k] * plan.axes[k].src;
  }
  const Axis& inner = plan.axes[outer];
  for (int64_t row = low; row < high; ++row) {
    plan.row(plan.dst + dst, inner.dst, plan.src + src, inner.src, inner.size);
    for (int32_t k = outer - 1; k >= 0; --k) {
      dst += plan.axes[k].dst;
      src += plan.axes[k].src;
      if (++index[k] < plan.axes[k].size) break;
      index[k] = 0;
      dst -= plan.axes[k].dst * plan.axes[k].size;
      src -= plan.axes[k].src * plan.axes[k].size;
    }
  }
}

}  // namespace

void copy_layout(const Layout& dst, const Layout& src) {
  CopyPlan plan;
  plan.row = kRows[static_cast<size_t>(dst.dtype)][static_cast<size_t>(src.dtype)];
  plan.dst = dst.data;
  plan.src = src.data;
  int64_t d = static_cast<int64_t>(item_size(dst.dtype)), s = static_cast<int64_t>(item_size(src.dtype));
  for (int32_t k = 0; k < dst.rank; ++k) {
    if (dst.sizes[k] == 0) return;
    if (dst.sizes[k] > 1) plan.axes[plan.rank++] = {dst.sizes[k], dst.strides[k] * d, src.strides[k] * s};
  }
  // The axis that dst steps along most closely becomes the inner one; then neighbours that step evenly are joined.
  std::stable_sort(plan.axes, plan.axes + plan.rank,
                   [](const Axis& a, const Axis& b) { return std::abs(a.dst) > std::abs(b.dst); });
  int32_t joined = 0;
  for (int32_t k = 0; k < plan.rank; ++k) {
    Axis& next = plan.axes[k];
    if (joined > 0) {
      Axis& last = plan.axes[joined - 1];
      if (last.dst == next.dst * next.size && last.src == next.src * next.size) {
        last = {last.size * next.size, next.dst, next.src};
        continue;
      }
    }
    plan.axes[joined++] = next;
  }
  plan.rank = joined;
  if (plan.rank == 0) plan.axes[plan.rank++] = {1, d, s};
  if (plan.rank == 1 && plan.axes[0].size > 65536) {  // one long row: cut it, so that threads can share it
    Axis whole = plan.axes[0];
    constexpr int64_t kPiece = 16384;
    int64_t pieces = whole.size / kPiece, tail = whole.size % kPiece;
    plan.axes[0] = {pieces, whole.dst * kPiece, whole.src * kPiece};
    plan.axes[1] = {kPiece, whole.dst, whole.src};
    plan.rank = 2;
    if (tail > 0)
      plan.row(plan.dst + pieces * kPiece * whole.dst, whole.dst, plan.src + pieces * kPiece * whole.src, whole.src,
               tail);
  }
  int64_t rows = 1;
  for (int32_t k = 0; k + 1 < plan.rank; ++k) rows *= plan.axes[k].size;
  int64_t inner = plan.axes[plan.rank - 1].size;
  int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(inner, 1));
  ThreadPool::instance().parallel_for(rows, grain, copy_rows, &plan);
}

namespace {
Layout layout_of(const Tensor& t) { return {t.data(), t.dtype, t.rank, t.sizes, t.strides}; }
}  // namespace

void copy_into(const Tensor& dst, const Tensor& src) {
  if (!dst.same_shape(src))
    fail(ErrorKind::Value, "copy: shapes differ: ", shape_text(dst.sizes, dst.rank), " and ",
         shape_text(src.sizes, src.rank));
  copy_layout(layout_of(dst), layout_of(src));
}

Tensor contiguous(const Tensor& t) { return t.contiguous() ? t : clone(t); }

Tensor clone(const Tensor& t) {
  Tensor out = empty_like(t);
  copy_into(out, t);
  return out;
}

Tensor cast(const Tensor& t, DType dtype) {
  if (t.dtype == dtype) return t;
  Tensor out = empty(t.sizes, t.rank, dtype);
  copy_into(out, t);
  return out;
}

DType Scalar::natural_dtype() const {
  switch (kind) {
    case Kind::Bool:
      return DType::Bool;
    case Kind::Int:
      return DType::I64;
    case Kind::Float:
      return DType::F64;
    case Kind::Complex:
      break;
  }
  return DType::C128;
}

void store_scalar(void* at, DType dtype, const Scalar& value) {
  with_dtype(dtype, [&]<DType D>() {
    using To = typename Element<D>::native;
    switch (value.kind) {
      case Scalar::Kind::Bool:
      case Scalar::Kind::Int:
        store<D>(at, convert<To>(value.i));
        return;
      case Scalar::Kind::Float:
        store<D>(at, convert<To>(value.z.real()));
        return;
      case Scalar::Kind::Complex:
        store<D>(at, convert<To>(value.z));
        return;
    }
  });
}

Scalar load_scalar(const void* at, DType dtype) {
  return with_dtype(dtype, [&]<DType D>() {
    auto value = load<D>(at);
    if constexpr (D == DType::Bool)
      return Scalar::of_bool(value);
    else if constexpr (is_complex(D))
      return Scalar::of_complex(convert<std::complex<double>>(value));
    else if constexpr (is_floating(D))
      return Scalar::of_float(value);
    else
      return Scalar::of_int(value);
  });
}

void fill(const Tensor& t, const Scalar& value) {
  if (t.numel() == 0) return;
  alignas(16) char item[16];
  store_scalar(item, t.dtype, value);
  int64_t zero_strides[OW_MAX_RANK] = {};
  copy_layout(layout_of(t), Layout{item, t.dtype, t.rank, t.sizes, zero_strides});
}

namespace {
template <class Change>
void change_floats(const Tensor& t, Change change) {
  if (is_integral(t.dtype)) return;
  Tensor work = clone(t);
  int64_t n = work.numel();
  with_dtype(t.dtype, [&]<DType D>() {
    if constexpr (!is_integral(D)) {
      using Native = typename Element<D>::native;
      char* at = work.data();
      for (int64_t k = 0; k < n; ++k, at += item_size(D)) store<D>(at, convert<Native>(change(load<D>(at))));
    }
  });
  copy_into(t, work);
}
}  // namespace

void perturb_scale(const Tensor& t, double factor) {
  change_floats(t, [factor](auto x) {
    if constexpr (is_std_complex<decltype(x)>)
      return std::complex<double>(x) * factor;
    else
      return static_cast<double>(x) * factor;
  });
}

void perturb_bf16(const Tensor& t) {
  auto through = [](auto x) { return to_float(to_bf16(static_cast<float>(x))); };
  change_floats(t, [through](auto x) {
    if constexpr (is_std_complex<decltype(x)>)
      return std::complex<float>(through(x.real()), through(x.imag()));
    else
      return through(x);
  });
}

}  // namespace ow
