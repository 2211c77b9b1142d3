// See tensor.h.
#include "tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "smallvec.h"
#include "strided.h"

namespace ow {

Tensor& Tensor::operator=(const Tensor& other) {
  storage = other.storage;
  dtype = other.dtype;
  rank = other.rank;
  offset = other.offset;
  std::copy_n(other.sizes, rank, sizes);
  std::copy_n(other.strides, rank, strides);
  return *this;
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  storage = std::move(other.storage);
  dtype = other.dtype;
  rank = other.rank;
  offset = other.offset;
  std::copy_n(other.sizes, rank, sizes);
  std::copy_n(other.strides, rank, strides);
  return *this;
}

int64_t Tensor::numel() const {
  int64_t n = 1;
  for (int32_t k = 0; k < rank; ++k) n *= sizes[k];
  return n;
}

bool Tensor::contiguous() const {
  int64_t want = 1;
  for (int32_t k = rank - 1; k >= 0; --k) {
    if (sizes[k] == 0) return true;
    if (sizes[k] != 1 && strides[k] != want) {
      for (int32_t j = 0; j < k; ++j)
        if (sizes[j] == 0) return true;
      return false;
    }
    want *= sizes[k];
  }
  return true;
}

bool Tensor::same_shape(const Tensor& other) const {
  return rank == other.rank && std::equal(sizes, sizes + rank, other.sizes);
}

bool Tensor::same_layout(const Tensor& other) const {
  if (!same_shape(other)) return false;
  for (int32_t k = 0; k < rank; ++k)
    if (sizes[k] > 1 && strides[k] != other.strides[k]) return false;
  return true;
}

std::string shape_text(const int64_t* sizes, int32_t rank) {
  std::string text = "[";
  for (int32_t k = 0; k < rank; ++k) {
    if (k > 0) text += ", ";
    text += std::to_string(sizes[k]);
  }
  return text + "]";
}

std::string signature_text(const Tensor& t) { return dtype_name(t.dtype) + shape_text(t.sizes, t.rank); }

int64_t checked_numel(const int64_t* sizes, int32_t rank, DType dtype) {
  if (rank < 0 || rank > OW_MAX_RANK) fail(ErrorKind::Value, "rank ", rank, " is over the limit of ", OW_MAX_RANK);
  int64_t n = 1;
  bool overflow = false, zero = false;
  for (int32_t k = 0; k < rank; ++k) {
    if (sizes[k] < 0) fail(ErrorKind::Value, "negative extent in shape ", shape_text(sizes, rank));
    zero |= sizes[k] == 0;
    overflow |= __builtin_mul_overflow(n, std::max<int64_t>(sizes[k], 1), &n);
  }
  int64_t bytes;
  overflow |= __builtin_mul_overflow(n, static_cast<int64_t>(item_size(dtype)), &bytes);
  if (overflow) fail(ErrorKind::Value, "a tensor of shape ", shape_text(sizes, rank), " does not fit in memory");
  return zero ? 0 : n;
}

void set_contiguous_strides(int32_t rank, const int64_t* sizes, int64_t* strides) {
  int64_t step = 1;
  for (int32_t k = rank - 1; k >= 0; --k) {
    strides[k] = step;
    step *= std::max<int64_t>(sizes[k], 1);
  }
}

Tensor empty(const int64_t* sizes, int32_t rank, DType dtype) {
  int64_t n = checked_numel(sizes, rank, dtype);
  Tensor t;
  t.storage = new_storage(static_cast<size_t>(n) * item_size(dtype));
  t.dtype = dtype;
  t.rank = rank;
  std::copy_n(sizes, rank, t.sizes);
  set_contiguous_strides(rank, sizes, t.strides);
  return t;
}

Tensor empty_like(const Tensor& t) { return empty(t.sizes, t.rank, t.dtype); }

Tensor zeros(const int64_t* sizes, int32_t rank, DType dtype) {
  Tensor t = empty(sizes, rank, dtype);
  std::memset(t.storage->data(), 0, t.storage->bytes());
  return t;
}

int32_t checked_axis(int64_t axis, int32_t rank) {
  if (axis < -rank || axis >= rank) fail(ErrorKind::Index, "axis ", axis, " is out of range for rank ", rank);
  return static_cast<int32_t>(axis < 0 ? axis + rank : axis);
}

Tensor permute(const Tensor& t, const int64_t* axes, int32_t n) {
  if (n != t.rank) fail(ErrorKind::Value, "permute: ", n, " axes given for rank ", t.rank);
  Tensor out = t;
  uint32_t seen = 0;
  for (int32_t k = 0; k < n; ++k) {
    int32_t axis = checked_axis(axes[k], t.rank);
    if (seen & (1u << axis)) fail(ErrorKind::Value, "permute: axis ", axes[k], " appears twice");
    seen |= 1u << axis;
    out.sizes[k] = t.sizes[axis];
    out.strides[k] = t.strides[axis];
  }
  return out;
}

Tensor transpose(const Tensor& t, int64_t a, int64_t b) {
  Tensor out = t;
  if (t.rank == 0 && (a == 0 || a == -1) && (b == 0 || b == -1)) return out;
  int32_t i = checked_axis(a, t.rank), j = checked_axis(b, t.rank);
  std::swap(out.sizes[i], out.sizes[j]);
  std::swap(out.strides[i], out.strides[j]);
  return out;
}

Tensor expand(const Tensor& t, const int64_t* sizes, int32_t n) {
  if (n < t.rank || n > OW_MAX_RANK)
    fail(ErrorKind::Value, "expand: cannot expand ", shape_text(t.sizes, t.rank), " to ", shape_text(sizes, n));
  Tensor out;
  out.storage = t.storage;
  out.dtype = t.dtype;
  out.offset = t.offset;
  out.rank = n;
  int32_t lead = n - t.rank;
  for (int32_t k = 0; k < n; ++k) {
    bool fresh = k < lead;
    int64_t have = fresh ? 1 : t.sizes[k - lead];
    int64_t want = sizes[k] == -1 && !fresh ? have : sizes[k];
    if (want < 0 || (have != want && have != 1))
      fail(ErrorKind::Value, "expand: cannot expand ", shape_text(t.sizes, t.rank), " to ", shape_text(sizes, n));
    out.sizes[k] = want;
    out.strides[k] = have == want && !fresh ? t.strides[k - lead] : 0;
  }
  checked_numel(out.sizes, n, t.dtype);
  return out;
}

Tensor select(const Tensor& t, int64_t axis, int64_t index) {
  int32_t at = checked_axis(axis, t.rank);
  int64_t size = t.sizes[at];
  if (index < -size || index >= size)
    fail(ErrorKind::Index, "index ", index, " is out of range for axis ", at, " of extent ", size);
  Tensor out = t;
  out.offset += (index < 0 ? index + size : index) * t.strides[at];
  for (int32_t k = at; k + 1 < t.rank; ++k) {
    out.sizes[k] = t.sizes[k + 1];
    out.strides[k] = t.strides[k + 1];
  }
  out.rank = t.rank - 1;
  return out;
}

Tensor slice(const Tensor& t, int64_t axis, int64_t start, int64_t step, int64_t count) {
  int32_t at = checked_axis(axis, t.rank);
  Tensor out = t;
  if (count > 0) out.offset += start * t.strides[at];  // an empty slice keeps an address inside the storage
  out.sizes[at] = count;
  out.strides[at] = t.strides[at] * step;
  return out;
}

Tensor unsqueeze(const Tensor& t, int64_t axis) {
  if (t.rank == OW_MAX_RANK) fail(ErrorKind::Value, "rank ", t.rank + 1, " is over the limit of ", OW_MAX_RANK);
  int32_t at = checked_axis(axis, t.rank + 1);
  Tensor out = t;
  out.rank = t.rank + 1;
  for (int32_t k = t.rank; k > at; --k) {
    out.sizes[k] = t.sizes[k - 1];
    out.strides[k] = t.strides[k - 1];
  }
  out.sizes[at] = 1;
  out.strides[at] = at < t.rank ? t.sizes[at] * t.strides[at] : 1;
  return out;
}

Tensor as_strided(const Tensor& t, const int64_t* sizes, const int64_t* strides, int32_t n, int64_t offset) {
  checked_numel(sizes, n, t.dtype);
  Tensor out;
  out.storage = t.storage;
  out.dtype = t.dtype;
  out.offset = offset;
  out.rank = n;
  // Element positions from the storage's start: lowest and highest that the view reaches.
  int64_t low = offset, high = offset;
  bool overflow = false, none = false;
  for (int32_t k = 0; k < n; ++k) {
    out.sizes[k] = sizes[k];
    out.strides[k] = strides[k];
    none |= sizes[k] == 0;
    int64_t reach;
    overflow |= __builtin_mul_overflow(std::max<int64_t>(sizes[k] - 1, 0), strides[k], &reach);
    overflow |= __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
  }
  const char *from, *to;
  byte_range(t, &from, &to);
  int64_t item = static_cast<int64_t>(item_size(t.dtype));
  int64_t first = 0, past = static_cast<int64_t>(t.storage->bytes()) / item;
  if (past == 0 && from != to) {
    first = (from - t.storage->data()) / item;
    past = (to - t.storage->data()) / item;
  }
  if (none) {
    out.offset = t.offset;  // an address inside the storage
    return out;
  }
  if (overflow || low < first || high >= past)
    fail(ErrorKind::Value, "as_strided: shape ", shape_text(sizes, n), " with strides ", shape_text(strides, n),
         " from element ", offset, " leaves the storage, which holds elements ", first, " to ", past - 1);
  return out;
}

bool view_as(const Tensor& t, const int64_t* sizes, int32_t n, Tensor* out) {
  Tensor made;
  made.storage = t.storage;
  made.dtype = t.dtype;
  made.offset = t.offset;
  made.rank = n;
  std::copy_n(sizes, n, made.sizes);
  if (t.numel() == 0) {
    set_contiguous_strides(n, sizes, made.strides);
    *out = std::move(made);
    return true;
  }
  // Walk groups of old axes that step evenly; each must be filled exactly by some of the new axes.
  int32_t next = n - 1;
  int64_t group = 1, done = 1, step = 1;
  bool open = false;
  for (int32_t k = t.rank - 1; k >= 0; --k) {
    if (t.sizes[k] == 1) continue;
    if (!open) {
      step = t.strides[k];
      group = 1;
      open = true;
    }
    group *= t.sizes[k];
    int32_t outer = k - 1;
    while (outer >= 0 && t.sizes[outer] == 1) --outer;
    if (outer >= 0 && t.strides[outer] == step * group) continue;
    done = 1;
    while (next >= 0 && (done < group || sizes[next] == 1)) {
      made.strides[next] = step * done;
      done *= sizes[next];
      --next;
    }
    if (done != group) return false;
    open = false;
  }
  for (; next >= 0; --next) made.strides[next] = 1;  // leading ones
  *out = std::move(made);
  return true;
}

Tensor reshape(const Tensor& t, const int64_t* wanted, int32_t n) {
  if (n > OW_MAX_RANK) fail(ErrorKind::Value, "rank ", n, " is over the limit of ", OW_MAX_RANK);
  int64_t sizes[OW_MAX_RANK];
  int64_t known = 1, total = t.numel();
  int32_t open = -1;
  bool overflow = false;
  for (int32_t k = 0; k < n; ++k) {
    sizes[k] = wanted[k];
    if (wanted[k] == -1) {
      if (open >= 0) fail(ErrorKind::Value, "reshape: only one extent may be -1, got ", shape_text(wanted, n));
      open = k;
    } else if (wanted[k] < 0) {
      fail(ErrorKind::Value, "reshape: negative extent in ", shape_text(wanted, n));
    } else {
      overflow |= __builtin_mul_overflow(known, wanted[k], &known);
    }
  }
  if (open >= 0 && !overflow && known > 0 && total % known == 0) {
    sizes[open] = total / known;
    known = total;
  }
  if (overflow || known != total || (open >= 0 && sizes[open] < 0))
    fail(ErrorKind::Value, "reshape: shape ", shape_text(wanted, n), " does not hold the ", total, " elements of ",
         shape_text(t.sizes, t.rank));
  Tensor out;
  if (view_as(t, sizes, n, &out)) return out;
  view_as(contiguous(t), sizes, n, &out);
  return out;
}

void byte_range(const Tensor& t, const char** low, const char** high) {
  int64_t item = static_cast<int64_t>(item_size(t.dtype));
  const char* first = t.data();
  *low = *high = first;
  int64_t down = 0, up = 0;
  for (int32_t k = 0; k < t.rank; ++k) {
    if (t.sizes[k] == 0) return;
    int64_t reach = (t.sizes[k] - 1) * t.strides[k];
    (reach < 0 ? down : up) += reach;
  }
  *low = first + down * item;
  *high = first + (up + 1) * item;
}

bool may_share_memory(const Tensor& a, const Tensor& b) {
  const char *a_low, *a_high, *b_low, *b_high;
  byte_range(a, &a_low, &a_high);
  byte_range(b, &b_low, &b_high);
  return a_low < b_high && b_low < a_high && a_low != a_high && b_low != b_high;
}

bool overlaps_itself(const Tensor& t) {
  if (t.numel() <= 1) return false;
  struct Axis {
    int64_t step, size;
  };
  SmallVec<Axis, OW_MAX_RANK> axes;
  for (int32_t k = 0; k < t.rank; ++k)
    if (t.sizes[k] > 1) axes.push_back({std::abs(t.strides[k]), t.sizes[k]});
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.step < b.step; });
  int64_t reach = 0;
  for (auto [step, size] : axes) {
    if (step <= reach) return true;
    reach += step * (size - 1);
  }
  return false;
}

bool identical(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.data() == b.data() && a.same_layout(b);
}

}  // namespace ow
