// Dtypes: names, sizes, DLPack codes, and the element types with every conversion between them.
// May include: abi.h and the standard library.
// To add a dtype: append to DType and to kDTypeInfo, give it an Element<> and, if it is new to arithmetic, a convert().
#pragma once
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "opwright/abi.h"

namespace ow {

enum class DType : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, C64, C128 };
inline constexpr int kDTypes = 12;

struct DTypeInfo {
  const char* name;
  const char* long_name;  // NumPy's and torch's word for it
  const char* typestr;    // __array_interface__; bf16 has none and travels as u2
  uint8_t size;
  uint8_t dl_code, dl_bits;
};

inline constexpr DTypeInfo kDTypeInfo[kDTypes] = {
    {"bool", "bool", "|b1", 1, 6, 8},      {"u8", "uint8", "|u1", 1, 1, 8},
    {"i8", "int8", "|i1", 1, 0, 8},        {"i16", "int16", "<i2", 2, 0, 16},
    {"i32", "int32", "<i4", 4, 0, 32},     {"i64", "int64", "<i8", 8, 0, 64},
    {"f16", "float16", "<f2", 2, 2, 16},   {"bf16", "bfloat16", "<u2", 2, 4, 16},
    {"f32", "float32", "<f4", 4, 2, 32},   {"f64", "float64", "<f8", 8, 2, 64},
    {"c64", "complex64", "<c8", 8, 5, 64}, {"c128", "complex128", "<c16", 16, 5, 128},
};

inline constexpr const DTypeInfo& info(DType t) { return kDTypeInfo[static_cast<int>(t)]; }
inline constexpr size_t item_size(DType t) { return info(t).size; }
inline constexpr const char* dtype_name(DType t) { return info(t).name; }
inline constexpr bool is_complex(DType t) { return t >= DType::C64; }
inline constexpr bool is_floating(DType t) { return t >= DType::F16 && t <= DType::F64; }
inline constexpr bool is_integral(DType t) { return t <= DType::I64; }

// Accepts our names (f32), NumPy's (float32) and torch's (torch.float32). False: no such dtype.
inline bool parse_dtype(std::string_view text, DType* out) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  for (int k = 0; k < kDTypes; ++k) {
    if (text == kDTypeInfo[k].name || text == kDTypeInfo[k].long_name) {
      *out = static_cast<DType>(k);
      return true;
    }
  }
  return false;
}

inline OwDType to_dlpack(DType t) { return OwDType{info(t).dl_code, info(t).dl_bits, 1}; }
inline bool from_dlpack(OwDType dl, DType* out) {
  if (dl.lanes != 1) return false;
  for (int k = 0; k < kDTypes; ++k) {
    if (dl.code == kDTypeInfo[k].dl_code && dl.bits == kDTypeInfo[k].dl_bits) {
      *out = static_cast<DType>(k);
      return true;
    }
  }
  return false;
}

// ---- elements as they lie in memory ----
struct Bool8 {
  uint8_t v;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float to_float(F16 h) {
  uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  uint32_t exponent = (h.bits >> 10) & 0x1fu, mantissa = h.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: exact in float
    float tiny = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(tiny));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline F16 to_f16(float f) {  // round to nearest, ties to even
  uint32_t bits = std::bit_cast<uint32_t>(f);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return F16{static_cast<uint16_t>(sign | 0x7e00u)};
  if (bits >= 0x477ff000u) return F16{static_cast<uint16_t>(sign | 0x7c00u)};  // 65520 rounds to infinity
  if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded subnormal in the low bits
    float shifted = std::bit_cast<float>(bits) + 0.5f;
    return F16{static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u);  // rebias by 15 - 127, round half to even
  return F16{static_cast<uint16_t>(sign | (bits >> 13))};
}

inline float to_float(BF16 h) { return std::bit_cast<float>(static_cast<uint32_t>(h.bits) << 16); }
inline BF16 to_bf16(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return BF16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return BF16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <DType>
struct Element;
template <>
struct Element<DType::Bool> {
  using type = Bool8;
  using native = bool;
};
template <>
struct Element<DType::U8> {
  using type = uint8_t;
  using native = uint8_t;
};
template <>
struct Element<DType::I8> {
  using type = int8_t;
  using native = int8_t;
};
template <>
struct Element<DType::I16> {
  using type = int16_t;
  using native = int16_t;
};
template <>
struct Element<DType::I32> {
  using type = int32_t;
  using native = int32_t;
};
template <>
struct Element<DType::I64> {
  using type = int64_t;
  using native = int64_t;
};
template <>
struct Element<DType::F16> {
  using type = F16;
  using native = float;
};
template <>
struct Element<DType::BF16> {
  using type = BF16;
  using native = float;
};
template <>
struct Element<DType::F32> {
  using type = float;
  using native = float;
};
template <>
struct Element<DType::F64> {
  using type = double;
  using native = double;
};
template <>
struct Element<DType::C64> {
  using type = std::complex<float>;
  using native = std::complex<float>;
};
template <>
struct Element<DType::C128> {
  using type = std::complex<double>;
  using native = std::complex<double>;
};

// Memory may come from anywhere (DLPack, mmap): never a typed dereference.
template <DType D>
typename Element<D>::native load(const void* at) {
  typename Element<D>::type raw;
  std::memcpy(&raw, at, sizeof raw);
  if constexpr (D == DType::Bool)
    return raw.v != 0;
  else if constexpr (D == DType::F16 || D == DType::BF16)
    return to_float(raw);
  else
    return raw;
}
template <DType D>
void store(void* at, typename Element<D>::native value) {
  typename Element<D>::type raw;
  if constexpr (D == DType::Bool)
    raw.v = value ? 1 : 0;
  else if constexpr (D == DType::F16)
    raw = to_f16(value);
  else if constexpr (D == DType::BF16)
    raw = to_bf16(value);
  else
    raw = value;
  std::memcpy(at, &raw, sizeof raw);
}

template <class>
inline constexpr bool is_std_complex = false;
template <class R>
inline constexpr bool is_std_complex<std::complex<R>> = true;

// Float to integer, as the kernels' scalar.h and PyTorch's CPU kernels on x86: toward zero; NaN and what does not fit
// give the lowest i32 (to i32) or i64 (to the rest, which keep the low bits).
template <class Int>
Int truncate(double f) {
  using Wide = std::conditional_t<std::is_same_v<Int, int32_t>, int32_t, int64_t>;
  constexpr Wide low = std::numeric_limits<Wide>::min();
  double cut = std::trunc(f);
  bool fits = cut >= static_cast<double>(low) && cut < -static_cast<double>(low);  // false for NaN
  return static_cast<Int>(fits ? static_cast<Wide>(cut) : low);
}

// Between natives. To bool: not zero (NaN is true). Complex to real drops the imaginary part. Integers wrap.
// f64 to f16 or bf16 rounds to f32 first, as PyTorch does.
template <class To, class From>
To convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (is_std_complex<From>) {
    if constexpr (is_std_complex<To>) {
      using R = typename To::value_type;
      return To(static_cast<R>(from.real()), static_cast<R>(from.imag()));
    } else if constexpr (std::is_same_v<To, bool>) {
      return from.real() != 0 || from.imag() != 0;
    } else {
      return convert<To>(from.real());
    }
  } else if constexpr (is_std_complex<To>) {
    return To(convert<typename To::value_type>(from), 0);
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return truncate<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

// Calls fn.template operator()<D>() for the run-time dtype.
template <class Fn>
decltype(auto) with_dtype(DType t, Fn&& fn) {
  switch (t) {
    case DType::Bool:
      return fn.template operator()<DType::Bool>();
    case DType::U8:
      return fn.template operator()<DType::U8>();
    case DType::I8:
      return fn.template operator()<DType::I8>();
    case DType::I16:
      return fn.template operator()<DType::I16>();
    case DType::I32:
      return fn.template operator()<DType::I32>();
    case DType::I64:
      return fn.template operator()<DType::I64>();
    case DType::F16:
      return fn.template operator()<DType::F16>();
    case DType::BF16:
      return fn.template operator()<DType::BF16>();
    case DType::F32:
      return fn.template operator()<DType::F32>();
    case DType::F64:
      return fn.template operator()<DType::F64>();
    case DType::C64:
      return fn.template operator()<DType::C64>();
    case DType::C128:
      break;
  }
  return fn.template operator()<DType::C128>();
}

}  // namespace ow
