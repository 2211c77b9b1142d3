// The dispatcher: op name and the constants of a call -> kernel, then infer, allocate, run.
// May include: signature.h, tensor.h. Python enters only through the miss hook.
// The path of a call is in docs/internals.md, "The call path".
#pragma once
#include <atomic>
#include <forward_list>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "signature.h"
#include "tensor.h"

namespace ow {

// One flat input of a call: absent, a tensor, or a Python scalar (weak).
struct Operand {
  enum class Kind : uint8_t { Absent, Tensor, Weak } kind = Kind::Absent;
  const Tensor* tensor = nullptr;
  Scalar scalar;

  static Operand of(const Tensor* t) { return {Kind::Tensor, t, {}}; }
  static Operand weak(const Scalar& s) { return {Kind::Weak, nullptr, s}; }
  DType dtype() const { return kind == Kind::Weak ? scalar.natural_dtype() : tensor->dtype; }
  int32_t rank() const { return kind == Kind::Weak ? 0 : tensor->rank; }
};

// A call with canonical arguments. Points at tensors and attributes that the caller keeps alive.
struct Invocation {
  SmallVec<Operand, 8> flat;
  SmallVec<int32_t, 4> list_len;     // one per list input
  const AttrValue* attrs = nullptr;  // one per attribute of the signature
};

// What a miss hook is asked, free of any tensor so that it can outlive the call.
struct Request {
  struct Input {
    bool present = false, weak = false;
    DType dtype = DType::F32;
    int32_t rank = 0;
  };
  std::string op;
  std::string group;  // path of the spec, for ops local to a program
  std::vector<Input> flat;
  std::vector<int32_t> list_len;
  std::vector<bool> is_list;  // per input
  std::vector<std::pair<std::string, AttrValue>> attrs;
};

struct Resolution {
  std::string library;
  Row row;
  std::vector<std::optional<DType>> casts;
};

// Answers all requests, in order, or throws.
using MissHook = std::function<std::vector<Resolution>(const std::vector<Request>&)>;

class OpEntry {
 public:
  std::string name;                     // never changes: calls that run without the GIL read it
  Signature signature;                  // read and replaced under the GIL only
  std::string group;                    // path of its spec; empty unless the op is local to a program
  std::atomic<uint32_t> generation{0};  // raised when its kernels are forgotten, or its signature replaced
  const char* tag = "";                 // its name, for ever: what memory is allocated for

 private:
  friend class Dispatcher;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
  };
  struct Slot {
    const Kernel* kernel = nullptr;
    bool ranked = false;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Slot, Hash, std::equal_to<>> cache_;
};

class Dispatcher {
 public:
  static Dispatcher& instance();

  OpEntry& register_op(Signature signature);  // again: replaces the signature and forgets its kernels
  OpEntry* find(std::string_view name);
  // An op local to a program folder, known by name and path; the signature is what its first call shows of it.
  OpEntry& group(const std::string& path, Signature signature);
  std::vector<std::string> names() const;
  void set_miss_hook(MissHook hook);
  void forget(OpEntry& op);  // its next calls ask the hook again

  // The cached kernel, or the hook's.
  const Kernel& resolve(OpEntry& op, const Invocation& call);
  const Kernel* lookup(OpEntry& op, const Invocation& call);  // null on a miss
  // Many at once, so that the builder can compile them together. `hook`: asked instead of the one that is installed.
  std::vector<const Kernel*> resolve_many(const std::vector<std::pair<OpEntry*, const Invocation*>>& calls,
                                          const MissHook& hook = {});

  static Request request_for(const OpEntry& op, const Invocation& call);

  // infer -> allocate -> workspace -> run. outputs[k] that are defined are written in place (`out=`); the others are
  // allocated. Calls no Python; several threads may run at once.
  void run(const OpEntry& op, const Kernel& kernel, const Invocation& call, Tensor* outputs);

 private:
  using Key = SmallVec<char, 256>;
  static void append_key(const OpEntry& op, const Invocation& call, bool ranked, Key& key);
  const Kernel* insert(OpEntry& op, const Invocation& call, Resolution resolution);

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<OpEntry>> ops_, groups_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  MissHook hook_;
};

OwTensor describe_scalar(void* slot, DType dtype);  // a rank-0 tensor over a value

}  // namespace ow
