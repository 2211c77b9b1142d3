// Tensor: a dtype, sizes, strides and an offset over a Storage. A value type: copying one shares the storage.
// May include: dtype.h, storage.h, error.h. Strides and offsets count elements; strides may be zero or negative.
#pragma once
#include <cstdint>
#include <string>

#include "dtype.h"
#include "error.h"
#include "storage.h"

namespace ow {

struct Tensor {
  StoragePtr storage;
  DType dtype = DType::F32;
  int32_t rank = 0;
  int64_t offset = 0;
  int64_t sizes[OW_MAX_RANK];
  int64_t strides[OW_MAX_RANK];

  Tensor() = default;
  // Only the axes in use are copied.
  Tensor(const Tensor& other) { *this = other; }
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(const Tensor& other);
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;

  bool defined() const { return static_cast<bool>(storage); }
  char* data() const { return storage->data() + offset * static_cast<int64_t>(item_size(dtype)); }
  int64_t numel() const;
  int64_t nbytes() const { return numel() * static_cast<int64_t>(item_size(dtype)); }
  bool contiguous() const;
  bool same_shape(const Tensor& other) const;
  bool same_layout(const Tensor& other) const;  // shape, and strides along every axis longer than 1

  // The descriptor that a kernel gets; it points into this Tensor, which must outlive it. Offsets are folded into data.
  OwTensor describe() const {
    return OwTensor{
        data(), storage->device(), rank, to_dlpack(dtype), const_cast<int64_t*>(sizes), const_cast<int64_t*>(strides),
        0};
  }
};

std::string shape_text(const int64_t* sizes, int32_t rank);  // "[2, 3]"
std::string signature_text(const Tensor& t);                 // "f32[2, 3]"

// Throws on a negative extent or when the size in bytes does not fit 63 bits.
int64_t checked_numel(const int64_t* sizes, int32_t rank, DType dtype);
void set_contiguous_strides(int32_t rank, const int64_t* sizes, int64_t* strides);
Tensor empty(const int64_t* sizes, int32_t rank, DType dtype);
Tensor empty_like(const Tensor& t);  // contiguous
Tensor zeros(const int64_t* sizes, int32_t rank, DType dtype);

// ---- views: each shares the storage; axes may be negative ----
int32_t checked_axis(int64_t axis, int32_t rank);
Tensor permute(const Tensor& t, const int64_t* axes, int32_t n);
Tensor transpose(const Tensor& t, int64_t a, int64_t b);
Tensor expand(const Tensor& t, const int64_t* sizes, int32_t n);  // -1 keeps an extent
Tensor select(const Tensor& t, int64_t axis, int64_t index);
Tensor slice(const Tensor& t, int64_t axis, int64_t start, int64_t step, int64_t count);
Tensor unsqueeze(const Tensor& t, int64_t axis);
// Any layout within the storage (for borrowed memory of unknown extent: within what `t` spans). `offset` counts elements
// from the storage's start.
Tensor as_strided(const Tensor& t, const int64_t* sizes, const int64_t* strides, int32_t n, int64_t offset);
bool view_as(const Tensor& t, const int64_t* sizes, int32_t n, Tensor* out);  // false: strides do not allow it
Tensor reshape(const Tensor& t, const int64_t* sizes, int32_t n);             // a view where possible, else a copy

// ---- overlap ----
// Lowest and one past the highest byte that the elements touch; equal when there are none.
void byte_range(const Tensor& t, const char** low, const char** high);
bool may_share_memory(const Tensor& a, const Tensor& b);  // by range: never misses, may be over-cautious
bool overlaps_itself(const Tensor& t);                    // two indices, one address (over-cautious for exotic strides)
bool identical(const Tensor& a, const Tensor& b);         // same memory read the same way

}  // namespace ow
