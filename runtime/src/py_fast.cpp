// See py_fast.h. The kinds of calls are told apart by a key of 64 bits: a byte an input, then four bits an attribute.
#include "py_fast.h"

#include <algorithm>
#include <bit>

#include "allocator.h"
#include "threads.h"
#include "tiles.h"

namespace owpy {

using ow::AttrKind;
using ow::AttrValue;
using ow::DType;
using ow::Operand;
using ow::Scalar;
using ow::Tensor;
using Tag = AttrValue::Tag;

Operand ShortCalls::Input::operand() const {
  if (kind == Operand::Kind::Tensor) return Operand::of(tensor);
  return kind == Operand::Kind::Weak ? Operand::weak(scalar()) : Operand{};
}

bool ShortCalls::Attr::operator==(const Attr& other) const {
  if (tag != other.tag) return false;
  if (tag == Tag::Ints) return n == other.n && std::equal(ints, ints + n, other.ints);
  return tag == Tag::Absent || (i == other.i && std::bit_cast<int64_t>(f) == std::bit_cast<int64_t>(other.f));
}

AttrValue ShortCalls::Attr::value() const {
  AttrValue out;
  out.tag = tag;
  out.i = i;
  out.f = f;
  if (tag == Tag::Ints) out.ints.append(ints, ints + n);
  return out;
}

namespace {

constexpr uint64_t kPresent = 0x80, kRankless = 0x40, kWeak = 0x20;

// Python's own numbers but complex ones; `f` holds the value of integers, too.
bool number_from(PyObject* object, Scalar::Kind* kind, int64_t* i, double* f) {
  if (PyFloat_CheckExact(object)) {
    *kind = Scalar::Kind::Float;
    *i = 0;
    *f = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    *i = PyLong_AsLongLongAndOverflow(object, &overflow);
    *kind = Scalar::Kind::Int;
    *f = static_cast<double>(*i);
    return overflow == 0;
  }
  if (!PyBool_Check(object)) return false;
  *kind = Scalar::Kind::Bool;
  *i = object == Py_True;
  *f = static_cast<double>(*i);
  return true;
}

bool int_of(PyObject* object, int64_t* out) {
  Scalar::Kind kind;
  double f;
  return PyLong_CheckExact(object) && number_from(object, &kind, out, &f);
}

void set_int(ShortCalls::Attr& attr, Tag tag, int64_t value) {
  attr.tag = tag;
  attr.i = value;
  attr.f = static_cast<double>(value);
}

void set_float(ShortCalls::Attr& attr, double value) {
  attr.tag = Tag::Float;
  attr.i = ow::convert<int64_t>(value);
  attr.f = value;
}

bool axes_from(PyObject* value, ShortCalls::Attr& attr) {
  attr.tag = Tag::Ints;
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) {
    attr.n = 1;
    return int_of(value, &attr.ints[0]);
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
  if (n > ShortCalls::kAxes) return false;
  for (Py_ssize_t k = 0; k < n; ++k)
    if (!int_of(PySequence_Fast_GET_ITEM(value, k), &attr.ints[k])) return false;
  attr.n = static_cast<int32_t>(n);
  return true;
}

// False: the general way reads it, or says what is wrong.
bool attr_of(PyObject* value, AttrKind kind, ShortCalls::Attr& attr) {
  if (kind == AttrKind::Axes) return axes_from(value, attr);
  Scalar::Kind number;
  int64_t i;
  double f;
  if (!number_from(value, &number, &i, &f)) return false;
  bool integer = number == Scalar::Kind::Int, boolean = number == Scalar::Kind::Bool;
  switch (kind) {
    case AttrKind::Int:
    case AttrKind::Axis:
      set_int(attr, Tag::Int, i);
      return integer;
    case AttrKind::Bool:
      set_int(attr, Tag::Bool, i);
      return boolean;
    case AttrKind::Float:
      set_float(attr, f);
      return !boolean;
    case AttrKind::Scalar:
      if (integer || boolean)
        set_int(attr, boolean ? Tag::Bool : Tag::Int, i);
      else
        set_float(attr, f);
      return true;
    default:
      return false;
  }
}

constexpr size_t kScratch = 2048;  // so much workspace needs no allocator

PyObject* out_name() {
  static PyObject* name = PyUnicode_InternFromString("out");
  return name;
}

struct Number {
  alignas(16) char bytes[16];
};

}  // namespace

// What the signature says of calls, read again when it was replaced.
void ShortCalls::learn() {
  generation_ = entry_->generation.load(std::memory_order_relaxed);
  serves_ = false;
  for (Slot& slot : slots_) slot = Slot{};
  const ow::Signature& sig = entry_->signature;
  if (sig.inputs.size() > kInputs || sig.attrs.size() > kAttrs || sig.outputs.size() != 1) return;
  n_in_ = static_cast<int>(sig.inputs.size());
  n_attr_ = static_cast<int>(sig.attrs.size());
  own_out_ = sig.find_input("out") >= 0 || sig.find_attr("out") >= 0;
  for (PyObject*& name : names_) name = nullptr;  // interned strings live on, so that nothing is released here
  for (int k = 0; k < n_in_; ++k) {
    const ow::InputSpec& input = sig.inputs[static_cast<size_t>(k)];
    if (input.list) return;
    optional_[k] = input.optional;
    names_[k] = PyUnicode_InternFromString(input.name.c_str());
  }
  for (int k = 0; k < n_attr_; ++k) {
    const ow::AttrSpec& attr = sig.attrs[static_cast<size_t>(k)];
    bool listed = attr.kind == AttrKind::Ints || attr.kind == AttrKind::Floats;
    if (listed && !(attr.has_default && !attr.default_value.present())) return;  // its length belongs to the key
    kinds_[k] = attr.kind;
    given_only_[k] = !attr.has_default && !attr.optional;
    flags_[k] = attr.is_static && attr.kind == AttrKind::Bool;  // its value is a part of the key
    fixed_[k] = (attr.is_static && !flags_[k]) || listed || attr.kind == AttrKind::DType || attr.kind == AttrKind::Text;
    const AttrValue& value = attr.default_value;
    if (value.ints.size() > kAxes) return;
    defaults_[k] = Attr{value.tag, static_cast<int32_t>(value.ints.size()), value.i, value.f, {}};
    std::copy(value.ints.begin(), value.ints.end(), defaults_[k].ints);
    names_[n_in_ + k] = PyUnicode_InternFromString(attr.name.c_str());
  }
  PyErr_Clear();  // no memory for a name: calls by that keyword go the general way
  serves_ = plain_ = true;
  plain_key_ = 0;
  for (int k = 0; k < n_attr_; ++k) {
    plain_ = plain_ && !given_only_[k];
    plain_key_ = plain_key_ << 4 | code_of(k, defaults_[k]);
  }
}

ShortCalls::Slot* ShortCalls::find(uint64_t key, const Input* inputs, const Attr* attrs) {
  for (Slot& slot : slots_)
    if (slot.key == key) return &slot;
  ow::Invocation call;
  AttrValue values[kAttrs];
  for (int k = 0; k < n_in_; ++k) call.flat.push_back(inputs[k].operand());
  for (int k = 0; k < n_attr_; ++k)
    values[k] = fixed_[k] ? entry_->signature.attrs[static_cast<size_t>(k)].default_value : attrs[k].value();
  call.attrs = values;
  const ow::Kernel* kernel = ow::Dispatcher::instance().lookup(*entry_, call);
  if (kernel == nullptr) return nullptr;  // the general way asks for one
  bool fits = !kernel->row.ranked && kernel->row.outputs.size() == 1;
  for (int k = 0; k < n_in_; ++k)
    fits = fits && (inputs[k].kind != Operand::Kind::Tensor || !kernel->casts[static_cast<size_t>(k)] ||
                    *kernel->casts[static_cast<size_t>(k)] == inputs[k].tensor->dtype);
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  slot.key = key;
  slot.kernel = fits ? kernel : nullptr;
  slot.known = false;
  return &slot;
}

bool ShortCalls::same(const Slot& slot, const Input* inputs, const Attr* attrs, int32_t threads) const {
  if (!slot.known || slot.threads != threads) return false;
  const int64_t* sizes = slot.sizes;
  for (int k = 0; k < n_in_; ++k) {
    if (inputs[k].kind != Operand::Kind::Tensor) continue;
    const Tensor& t = *inputs[k].tensor;
    if (t.rank != slot.ranks[k]) return false;
    for (int32_t d = 0; d < t.rank; ++d)
      if (t.sizes[d] != sizes[d]) return false;
    sizes += t.rank;
  }
  if (slot.plain && attrs == defaults_) return true;
  for (int k = 0; k < n_attr_; ++k)
    if (!(attrs[k] == slot.attrs[k])) return false;
  return true;
}

// Asks the kernel; false where it refuses, or the result is beyond what fits.
bool ShortCalls::measure(Slot& slot, OwCall& c, const Input* inputs, const Attr* attrs) const {
  const ow::Kernel& kernel = *slot.kernel;
  slot.known = false;
  c.shapes = &slot.shape;
  if (kernel.symbols.infer(&c) != OW_OK) return false;
  slot.workspace = kernel.symbols.workspace(&c);
  if (slot.workspace < 0) return false;
  const OwShape& shape = slot.shape;
  int64_t n = 1;
  bool overflow = shape.rank < 0 || shape.rank > OW_MAX_RANK;
  for (int32_t k = 0; k < shape.rank && !overflow; ++k)
    overflow = shape.dim[k] < 0 || __builtin_mul_overflow(n, std::max<int64_t>(shape.dim[k], 1), &n);
  if (overflow || n > (int64_t{1} << 56)) return false;
  for (int32_t k = 0; k < shape.rank; ++k) n = shape.dim[k] == 0 ? 0 : n;
  ow::set_contiguous_strides(shape.rank, shape.dim, slot.strides);
  slot.bytes = n * static_cast<int64_t>(ow::item_size(kernel.row.outputs[0].dtype));
  slot.elements = n;
  int axes = 0;
  for (int k = 0; k < n_in_; ++k) {
    if (inputs[k].kind != Operand::Kind::Tensor) continue;
    const Tensor& t = *inputs[k].tensor;
    slot.elements += t.numel();
    slot.ranks[k] = t.rank;
    for (int32_t d = 0; d < t.rank && axes < kSizes; ++d) slot.sizes[axes + d] = t.sizes[d];
    axes += t.rank;
  }
  std::copy(attrs, attrs + n_attr_, slot.attrs);
  slot.plain = attrs == defaults_;
  slot.threads = c.max_threads;
  slot.known = !kernel.row.from_data && axes <= kSizes;
  return true;
}

// What was given as `out=`, where the kernel may write to it as it is; else null.
Ref ShortCalls::given_out(PyObject* into, const Slot& slot, const Input* inputs, int32_t* flags) const {
  if (!is_tensor(into)) return Ref();
  const Tensor& out = tensor_of(into);
  const ow::Kernel& kernel = *slot.kernel;
  bool fits = out.dtype == kernel.row.outputs[0].dtype && out.rank == slot.shape.rank &&
              std::equal(out.sizes, out.sizes + out.rank, slot.shape.dim) && !out.storage->readonly() &&
              out.contiguous();
  for (int k = 0; k < n_in_ && fits; ++k) {
    if (inputs[k].kind != Operand::Kind::Tensor || !ow::may_share_memory(*inputs[k].tensor, out)) continue;
    fits = k == kernel.twin[0] && ow::identical(*inputs[k].tensor, out);  // else the general way copies the input
    if (fits) *flags |= 1;
  }
  return fits ? Ref::borrow(into) : Ref();
}

PyObject* ShortCalls::call(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) noexcept try {
  if (generation_ != entry_->generation.load(std::memory_order_relaxed)) learn();
  if (!serves_ || n > n_in_ + n_attr_) return nullptr;
  PyObject* given[kInputs + kAttrs] = {};
  PyObject* into = nullptr;  // `out=`
  for (Py_ssize_t k = 0; k < n; ++k) given[k] = args[k];
  if (kwnames != nullptr) {
    Py_ssize_t keywords = PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < keywords; ++k) {
      PyObject* name = PyTuple_GET_ITEM(kwnames, k);
      if (name == out_name() && !own_out_) {
        into = args[n + k];
        continue;
      }
      int at = 0;
      while (at < n_in_ + n_attr_ && names_[at] != name) ++at;
      if (at == n_in_ + n_attr_ || given[at] != nullptr) return nullptr;
      given[at] = args[n + k];
    }
  }

  uint64_t key = 0;
  Input inputs[kInputs];
  for (int k = 0; k < n_in_; ++k) {
    PyObject* value = given[k];
    key <<= 8;
    inputs[k].kind = Operand::Kind::Absent;
    if (value == nullptr || value == Py_None) {
      if (!optional_[k]) return nullptr;
    } else if (is_tensor(value)) {
      const Tensor& t = tensor_of(value);
      inputs[k].kind = Operand::Kind::Tensor;
      inputs[k].tensor = &t;
      key |= kPresent | static_cast<uint64_t>(t.dtype) | (t.rank == 0 ? kRankless : 0);
    } else if (number_from(value, &inputs[k].number, &inputs[k].i, &inputs[k].f)) {
      inputs[k].kind = Operand::Kind::Weak;
      key |= kPresent | kWeak | static_cast<uint64_t>(inputs[k].scalar().natural_dtype());
    } else {
      return nullptr;
    }
  }
  Attr own[kAttrs];
  const Attr* attrs = defaults_;
  if (n <= n_in_ && kwnames == nullptr && plain_) {
    key = key << 4 * n_attr_ | plain_key_;
  } else {
    attrs = own;
    for (int k = 0; k < n_attr_; ++k) {
      PyObject* value = given[n_in_ + k];
      if (value == nullptr || (value == Py_None && defaults_[k].tag == Tag::Absent)) {
        if (value == nullptr && given_only_[k]) return nullptr;
        own[k] = defaults_[k];
      } else if (fixed_[k] || !attr_of(value, kinds_[k], own[k])) {
        return nullptr;
      }
      key = key << 4 | code_of(k, own[k]);
    }
  }
  key |= uint64_t{1} << 63;  // no call's key is 0
  Slot* slot = find(key, inputs, attrs);
  if (slot == nullptr || slot->kernel == nullptr) return nullptr;
  const ow::Kernel& kernel = *slot->kernel;

  OwTensor descriptors[kInputs + 1];
  const OwTensor* pointers[kInputs + 1];
  Number numbers[kInputs];
  for (int k = 0; k < n_in_; ++k) {
    pointers[k] = &descriptors[k];
    switch (inputs[k].kind) {
      case Operand::Kind::Absent:
        pointers[k] = nullptr;
        break;
      case Operand::Kind::Tensor:
        descriptors[k] = inputs[k].tensor->describe();
        break;
      case Operand::Kind::Weak: {
        DType dtype = *kernel.casts[static_cast<size_t>(k)];
        if (dtype == DType::F32)
          ow::store<DType::F32>(&numbers[k], static_cast<float>(inputs[k].f));
        else
          ow::store_scalar(&numbers[k], dtype, inputs[k].scalar());
        descriptors[k] = ow::describe_scalar(&numbers[k], dtype);
        break;
      }
    }
  }
  OwAttr given_attrs[kAttrs];
  int n_row = static_cast<int>(kernel.attr_index.size());
  for (int k = 0; k < n_row; ++k) {
    const Attr& attr = attrs[kernel.attr_index[static_cast<size_t>(k)]];
    if (attr.tag == Tag::Absent)
      given_attrs[k] = OwAttr{-1, nullptr, nullptr};
    else if (attr.tag == Tag::Ints)
      given_attrs[k] = OwAttr{attr.n, attr.ints, nullptr};
    else
      given_attrs[k] = OwAttr{1, &attr.i, &attr.f};
  }
  OwError error{OW_OK, -1, -1, -1, 0, 0};
  ow::ThreadPool& pool = ow::ThreadPool::instance();
  OwCall c;
  c.workspace = nullptr;
  c.workspace_bytes = 0;
  c.list_len = nullptr;
  c.shapes = nullptr;
  c.stream = nullptr;
  c.flags = ow::tile_flag();
  c.abi = OW_ABI;
  c.n_in = n_in_;
  c.n_out = 1;
  c.n_attr = n_row;
  c.in = pointers;
  c.out = pointers + n_in_;
  c.attr = given_attrs;
  c.error = &error;
  c.parallel = ow::ThreadPool::entry;
  c.pool = &pool;
  c.max_threads = pool.threads();
  if (!same(*slot, inputs, attrs, c.max_threads) && !measure(*slot, c, inputs, attrs)) return nullptr;

  Ref made = into != nullptr ? given_out(into, *slot, inputs, &c.flags)
                             : Ref(new_tensor(kernel.row.outputs[0].dtype, slot->shape.rank, slot->shape.dim,
                                              slot->strides, static_cast<size_t>(slot->bytes)));
  if (!made) return nullptr;
  Tensor& out = tensor_of(made.get());
  descriptors[n_in_] = out.describe();
  pointers[n_in_] = &descriptors[n_in_];
  OwShape shape;
  c.shapes = &shape;
  // From here on the slot may become another call's: the GIL is released, or a finaliser runs.
  bool held = slot->elements <= kHeldElements;
  size_t workspace = static_cast<size_t>(slot->workspace);
  alignas(ow::kAlignment) char scratch[kScratch];
  bool allocated = workspace > kScratch || (workspace > 0 && !tensor_pool_is_on());
  if (workspace > 0) {
    c.workspace = allocated ? ow::allocate(workspace) : scratch;
    c.workspace_bytes = static_cast<int64_t>(workspace);
  }
  int32_t status;
  if (held) {
    status = kernel.symbols.run(&c);
  } else {
    WithoutGil unlocked;
    status = kernel.symbols.run(&c);
  }
  if (allocated) ow::deallocate(c.workspace, workspace);
  into == nullptr ? out.storage->bump_sole() : out.storage->bump_version();
  if (status == OW_OK) return made.release();
  try {
    ow::raise_status(entry_->name, kernel, status, error, nullptr);
  } catch (...) {
    translate_exception();
  }
  return nullptr;
} catch (...) {  // no memory, say: the general way says for what
  PyErr_Clear();
  return nullptr;
}

}  // namespace owpy
