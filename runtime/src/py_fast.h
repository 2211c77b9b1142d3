// Short calls: an op of one output over own tensors and Python numbers, whose kernel is known, in as few steps as it
// takes. Whatever does not fit is left to the general way (py_ops.cpp), which also says what is wrong with a call.
// May include: py_common.h.
#pragma once
#include "py_common.h"

namespace owpy {

class ShortCalls {
 public:
  explicit ShortCalls(ow::OpEntry* entry) : entry_(entry) {}
  ShortCalls(const ShortCalls&) = delete;
  ShortCalls& operator=(const ShortCalls&) = delete;

  // The result; null with an error set where the kernel met one, null without where the general way is to be taken.
  // Under the GIL.
  PyObject* call(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) noexcept;

  static constexpr int kInputs = 4, kAttrs = 6, kSlots = 4, kAxes = 4, kSizes = 16;
  // Up to so many elements, inputs and output together, a kernel is done before another thread could use the GIL.
  static constexpr int64_t kHeldElements = 1024;

  // An input: absent, a tensor, or a Python number. Left unset on purpose: a call sets what it reads.
  struct Input {
    ow::Operand::Kind kind;
    ow::Scalar::Kind number;
    const ow::Tensor* tensor;
    int64_t i;
    double f;
    ow::Scalar scalar() const { return {number, i, f}; }
    ow::Operand operand() const;
  };
  // An attribute as kernels read it. `n` counts `ints`, which `axes` have.
  struct Attr {
    ow::AttrValue::Tag tag;
    int32_t n;
    int64_t i;
    double f;
    int64_t ints[kAxes];
    bool operator==(const Attr& other) const;
    ow::AttrValue value() const;
  };

 private:
  // What calls of one kind have in common; `known`: what `infer` and `workspace` said of the last one.
  struct Slot {
    uint64_t key = 0;
    const ow::Kernel* kernel = nullptr;  // null: such calls go the general way
    bool known = false;
    bool plain = false;  // all attributes are the defaults
    int32_t threads = 0, ranks[kInputs];
    int64_t sizes[kSizes];
    Attr attrs[kAttrs];
    OwShape shape;
    int64_t strides[OW_MAX_RANK];
    int64_t bytes = 0, workspace = 0, elements = 0;
  };

  void learn();
  uint64_t code_of(int k, const Attr& attr) const {
    return static_cast<uint64_t>(attr.tag) | (flags_[k] && attr.i != 0 ? 8u : 0u);
  }
  Slot* find(uint64_t key, const Input* inputs, const Attr* attrs);
  bool same(const Slot& slot, const Input* inputs, const Attr* attrs, int32_t threads) const;
  bool measure(Slot& slot, OwCall& call, const Input* inputs, const Attr* attrs) const;

  Ref given_out(PyObject* into, const Slot& slot, const Input* inputs, int32_t* flags) const;

  ow::OpEntry* entry_;
  uint32_t generation_ = UINT32_MAX;
  bool serves_ = false;
  bool own_out_ = false;    // an argument of the op is called `out`
  bool plain_ = false;      // calls may give no attribute at all
  uint64_t plain_key_ = 0;  // and then have this in their key
  int n_in_ = 0, n_attr_ = 0, next_ = 0;
  bool optional_[kInputs];
  ow::AttrKind kinds_[kAttrs];
  bool given_only_[kAttrs];  // no default: it must be given
  bool fixed_[kAttrs];       // static, or of a kind that only the general way reads: left out, it has its default
  bool flags_[kAttrs];       // a static bool
  Attr defaults_[kAttrs];
  PyObject* names_[kInputs + kAttrs];  // interned
  Slot slots_[kSlots];
};

}  // namespace owpy
