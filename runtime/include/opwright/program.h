// The host API in C++17: a program folder is loaded and run by a few lines (docs/host_api.md). Over opwright/host.h, so
// that a program and the library may come from different compilers.
// May include: host.h and the standard library.
#pragma once
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "host.h"

namespace opwright {

// `kind`: one of OPWRIGHT_VALUE … in host.h.
class Error : public std::runtime_error {
 public:
  Error(int kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  int kind() const { return kind_; }

 private:
  int kind_;
};

namespace detail {
inline void check(int32_t status) {
  if (status != OPWRIGHT_OK) throw Error(status, opwright_error());
}
template <class T>
constexpr OwDType dtype() {
  constexpr auto bits = static_cast<uint8_t>(sizeof(T) * 8);
  if constexpr (std::is_same_v<T, bool>)
    return {6, 8, 1};
  else if constexpr (std::is_floating_point_v<T>)
    return {2, bits, 1};
  else if constexpr (std::is_unsigned_v<T>)
    return {1, bits, 1};
  else
    return {0, bits, 1};
}
}  // namespace detail

// An array: the runtime's memory, or memory of yours that outlives it. Copies share.
class Tensor {
 public:
  Tensor() = default;
  // Unset memory.
  Tensor(OwDType dtype, const std::vector<int64_t>& shape) {
    OpwrightArray* made = nullptr;
    detail::check(opwright_array_new(dtype, static_cast<int32_t>(shape.size()), shape.data(), &made));
    take(made);
  }
  template <class T>
  static Tensor of(const std::vector<T>& values, const std::vector<int64_t>& shape) {
    Tensor out(detail::dtype<T>(), shape);
    if (out.size() != static_cast<int64_t>(values.size()))
      throw Error(OPWRIGHT_VALUE, "Tensor::of: " + std::to_string(values.size()) + " values for a shape of " +
                                      std::to_string(out.size()));
    if (!values.empty()) std::memcpy(out.view_.data, values.data(), values.size() * sizeof(T));
    return out;
  }
  // No copy: `data`, contiguous, must outlive what is made of it.
  template <class T>
  static Tensor over(T* data, std::vector<int64_t> shape) {
    Tensor out;
    auto held = std::make_shared<std::vector<int64_t>>(std::move(shape));
    out.view_ =
        OwTensor{data, {1, 0}, static_cast<int32_t>(held->size()), detail::dtype<T>(), held->data(), nullptr, 0};
    out.held_ = std::move(held);
    return out;
  }
  static Tensor adopt(OpwrightArray* array) {
    Tensor out;
    out.take(array);
    return out;
  }
  static Tensor within(const OwTensor& view, std::shared_ptr<void> held) {
    Tensor out;
    out.view_ = view;
    out.held_ = std::move(held);
    return out;
  }

  const OwTensor& view() const { return view_; }
  int32_t rank() const { return view_.ndim; }
  int64_t extent(int32_t axis) const { return view_.shape[axis]; }
  std::vector<int64_t> shape() const { return std::vector<int64_t>(view_.shape, view_.shape + view_.ndim); }
  int64_t size() const {
    int64_t n = 1;
    for (int32_t k = 0; k < view_.ndim; ++k) n *= view_.shape[k];
    return n;
  }
  // Of memory that lies close, as all outputs do. Throws where the dtype is another one.
  template <class T>
  T* data() const {
    constexpr OwDType want = detail::dtype<T>();
    if (view_.dtype.code != want.code || view_.dtype.bits != want.bits)
      throw Error(OPWRIGHT_TYPE, "Tensor::data: the elements are of another dtype");
    return static_cast<T*>(view_.data);
  }

 private:
  void take(OpwrightArray* array) {
    held_ = std::shared_ptr<void>(array, [](void* p) { opwright_array_free(static_cast<OpwrightArray*>(p)); });
    view_ = *opwright_array_tensor(array);
  }
  OwTensor view_{};
  std::shared_ptr<void> held_;
};

using Tensors = std::map<std::string, Tensor>;

class Program {
 public:
  // `dialect`: empty for the best one that this machine runs.
  explicit Program(const std::string& folder, const std::string& dialect = "") {
    OpwrightProgram* made = nullptr;
    detail::check(opwright_program_load(folder.c_str(), dialect.empty() ? nullptr : dialect.c_str(), &made));
    program_.reset(made);
  }
  std::string name() const { return opwright_program_name(program_.get()); }
  std::string dialect() const { return opwright_program_dialect(program_.get()); }
  std::vector<std::string> inputs() const { return names(opwright_program_inputs, opwright_program_input); }
  std::vector<std::string> outputs() const { return names(opwright_program_outputs, opwright_program_output); }

  // By name; what is not there or is too much is an error. Inputs that are state are updated in place.
  Tensors run(const Tensors& given) const {
    std::vector<const OwTensor*> in;
    for (const std::string& name : inputs()) {
      auto found = given.find(name);
      if (found == given.end()) throw Error(OPWRIGHT_VALUE, this->name() + ": input '" + name + "' is missing");
      in.push_back(&found->second.view());
    }
    if (in.size() != given.size())
      throw Error(OPWRIGHT_VALUE, name() + ": has " + std::to_string(in.size()) + " inputs, " +
                                      std::to_string(given.size()) + " are given");
    std::vector<std::string> wanted = outputs();
    std::vector<OpwrightArray*> out(wanted.size() + 1, nullptr);
    detail::check(opwright_program_run(program_.get(), in.data(), out.data()));
    Tensors results;
    for (size_t k = 0; k < wanted.size(); ++k) results.emplace(wanted[k], Tensor::adopt(out[k]));
    return results;
  }

 private:
  template <class Count, class Name>
  std::vector<std::string> names(Count count, Name name) const {
    std::vector<std::string> out;
    for (int32_t k = 0; k < count(program_.get()); ++k) out.emplace_back(name(program_.get(), k));
    return out;
  }
  struct Free {
    void operator()(OpwrightProgram* p) const { opwright_program_free(p); }
  };
  std::unique_ptr<OpwrightProgram, Free> program_;
};

// Single operators of a table that `opwright build` made.
class Kernels {
 public:
  explicit Kernels(const std::string& folder, const std::string& dialect = "") {
    OpwrightKernels* made = nullptr;
    detail::check(opwright_kernels_open(folder.c_str(), dialect.empty() ? nullptr : dialect.c_str(), &made));
    kernels_.reset(made);
  }
  // `attrs`: a JSON object, such as R"({"axis": -1})". All outputs, the auxiliary ones too.
  std::vector<Tensor> call(const std::string& op, const std::vector<Tensor>& inputs,
                           const std::string& attrs = "{}") const {
    std::vector<const OwTensor*> in;
    for (const Tensor& t : inputs) in.push_back(t.view().data == nullptr && t.size() != 0 ? nullptr : &t.view());
    std::vector<OpwrightArray*> out(32, nullptr);
    int32_t n = 32;
    detail::check(opwright_call(kernels_.get(), op.c_str(), static_cast<int32_t>(in.size()), in.data(), attrs.c_str(),
                                &n, out.data()));
    std::vector<Tensor> results;
    for (int32_t k = 0; k < n; ++k) results.push_back(Tensor::adopt(out[static_cast<size_t>(k)]));
    return results;
  }

 private:
  struct Free {
    void operator()(OpwrightKernels* p) const { opwright_kernels_free(p); }
  };
  std::unique_ptr<OpwrightKernels, Free> kernels_;
};

// ---- .safetensors files ----

inline Tensors read_tensors(const std::string& path) {
  OpwrightTensors* file = nullptr;
  detail::check(opwright_tensors_read(path.c_str(), &file));
  std::shared_ptr<void> held(file, [](void* p) { opwright_tensors_free(static_cast<OpwrightTensors*>(p)); });
  Tensors out;
  for (int32_t k = 0; k < opwright_tensors_count(file); ++k)
    out.emplace(opwright_tensors_name(file, k), Tensor::within(*opwright_tensors_tensor(file, k), held));
  return out;
}

inline void write_tensors(const std::string& path, const Tensors& tensors) {
  std::vector<const char*> names;
  std::vector<const OwTensor*> views;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name.c_str());
    views.push_back(&tensor.view());
  }
  detail::check(opwright_tensors_write(path.c_str(), static_cast<int32_t>(names.size()), names.data(), views.data()));
}

}  // namespace opwright
