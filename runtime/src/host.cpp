// The host API (opwright/host.h): the core without Python. Not part of the extension module; `toolchain.build_host`
// builds libopwright.so from this and the core's other files.
#define OPWRIGHT_BUILDS_HOST
#include "opwright/host.h"

#include <cstring>
#include <new>

#include "allocator.h"
#include "program.h"
#include "threads.h"
#include "version.h"  // generated

struct OpwrightArray {
  ow::Tensor tensor;
  OwTensor view;
};
struct OpwrightProgram {
  std::shared_ptr<ow::Program> program;
  std::string dialect;
};
struct OpwrightKernels {
  std::shared_ptr<ow::KernelTable> table;
};
struct OpwrightTensors {
  std::vector<std::string> names;
  std::vector<std::unique_ptr<OpwrightArray>> arrays;
};

namespace {

using ow::ErrorKind;
using ow::fail;
using ow::Tensor;

thread_local std::string last_error;

int32_t status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Value:
      return OPWRIGHT_VALUE;
    case ErrorKind::Index:
      return OPWRIGHT_INDEX;
    case ErrorKind::Type:
      return OPWRIGHT_TYPE;
    case ErrorKind::Missing:
      return OPWRIGHT_MISSING;
    case ErrorKind::Program:
      return OPWRIGHT_PROGRAM;
    case ErrorKind::Runtime:
      return OPWRIGHT_RUNTIME;
    case ErrorKind::Memory:
      return OPWRIGHT_MEMORY;
  }
  return OPWRIGHT_RUNTIME;
}

// No exception crosses the C boundary.
template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    body();
    return OPWRIGHT_OK;
  } catch (const ow::Error& error) {
    last_error = error.message();
    return status_of(error.kind());
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return OPWRIGHT_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return OPWRIGHT_RUNTIME;
  }
}

void need(const void* pointer, const char* what) {
  if (pointer == nullptr) fail(ErrorKind::Value, what, " must not be null");
}

OpwrightArray* array_of(Tensor tensor) {
  auto* made = new OpwrightArray{std::move(tensor), {}};
  made->view = made->tensor.describe();
  return made;
}

// The caller's memory, not copied. The caller keeps it while a call runs.
Tensor tensor_of(const OwTensor& t, const std::string& what) {
  Tensor out;
  if (t.device.device_type != 1) fail(ErrorKind::Type, what, " does not lie in the CPU's memory");
  if (!ow::from_dlpack(t.dtype, &out.dtype)) fail(ErrorKind::Type, what, " has a dtype that is not known here");
  if (t.ndim < 0 || t.ndim > OW_MAX_RANK) fail(ErrorKind::Value, what, " has rank ", t.ndim, "; at most ", OW_MAX_RANK);
  out.rank = t.ndim;
  if (t.ndim > 0) need(t.shape, "a shape");
  for (int32_t k = 0; k < t.ndim; ++k) out.sizes[k] = t.shape[k];
  int64_t n = ow::checked_numel(out.sizes, out.rank, out.dtype);
  if (t.strides == nullptr) {
    ow::set_contiguous_strides(out.rank, out.sizes, out.strides);
  } else {
    for (int32_t k = 0; k < t.ndim; ++k) out.strides[k] = t.strides[k];
  }
  if (n > 0 && t.data == nullptr) fail(ErrorKind::Value, what, " has no data");
  size_t item = ow::item_size(out.dtype), alignment = ow::is_complex(out.dtype) ? item / 2 : item;
  char* data = static_cast<char*>(t.data) + t.byte_offset;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
    fail(ErrorKind::Value, what, " does not lie at a multiple of ", alignment, " bytes, as its dtype must");
  out.storage = ow::StoragePtr::adopt(ow::Storage::make_borrowed(data, 0, false, [](void*) {}, nullptr));
  return out;
}

}  // namespace

extern "C" {

const char* opwright_version(void) { return OPWRIGHT_VERSION; }
const char* opwright_error(void) { return last_error.c_str(); }
int32_t opwright_threads(void) {
  int32_t n = 1;
  guarded([&] { n = ow::ThreadPool::instance().threads(); });
  return n;
}
int32_t opwright_set_threads(int32_t n) {
  return guarded([&] { ow::ThreadPool::instance().set_threads(n); });
}

int32_t opwright_array_new(OwDType dtype, int32_t rank, const int64_t* shape, OpwrightArray** out) {
  return guarded([&] {
    need(out, "out");
    ow::DType known;
    if (!ow::from_dlpack(dtype, &known)) fail(ErrorKind::Type, "a dtype that is not known here");
    if (rank < 0 || rank > OW_MAX_RANK) fail(ErrorKind::Value, "rank ", rank, "; at most ", OW_MAX_RANK);
    if (rank > 0) need(shape, "shape");
    *out = array_of(ow::empty(shape, rank, known));
  });
}
const OwTensor* opwright_array_tensor(const OpwrightArray* array) { return array == nullptr ? nullptr : &array->view; }
void opwright_array_free(OpwrightArray* array) { delete array; }

int32_t opwright_program_load(const char* folder, const char* dialect, OpwrightProgram** out) {
  return guarded([&] {
    need(folder, "folder");
    need(out, "out");
    std::string path = folder;
    auto table = ow::KernelTable::open(path + "/kernels", dialect == nullptr ? "" : dialect);
    *out = new OpwrightProgram{ow::Program::load(path, table), table->dialect()};
  });
}
void opwright_program_free(OpwrightProgram* program) { delete program; }
const char* opwright_program_name(const OpwrightProgram* program) { return program->program->name().c_str(); }
const char* opwright_program_dialect(const OpwrightProgram* program) { return program->dialect.c_str(); }
int32_t opwright_program_inputs(const OpwrightProgram* program) {
  return static_cast<int32_t>(program->program->inputs().size());
}
const char* opwright_program_input(const OpwrightProgram* program, int32_t k) {
  const auto& ports = program->program->inputs();
  return k < 0 || static_cast<size_t>(k) >= ports.size() ? nullptr : ports[static_cast<size_t>(k)].name.c_str();
}
int32_t opwright_program_outputs(const OpwrightProgram* program) {
  return static_cast<int32_t>(program->program->outputs().size());
}
const char* opwright_program_output(const OpwrightProgram* program, int32_t k) {
  const auto& ports = program->program->outputs();
  return k < 0 || static_cast<size_t>(k) >= ports.size() ? nullptr : ports[static_cast<size_t>(k)].name.c_str();
}
int32_t opwright_program_run(OpwrightProgram* program, const OwTensor* const* inputs, OpwrightArray** outputs) {
  return guarded([&] {
    need(program, "program");
    ow::Program& p = *program->program;
    std::vector<Tensor> tensors;
    for (size_t k = 0; k < p.inputs().size(); ++k) {
      std::string what = p.name() + ": input '" + p.inputs()[k].name + "'";
      need(inputs, "inputs");
      if (inputs[k] == nullptr) fail(ErrorKind::Value, what, " is missing");
      tensors.push_back(tensor_of(*inputs[k], what));
    }
    std::vector<ow::Program::Result> results = p.run(tensors);
    std::vector<std::unique_ptr<OpwrightArray>> made;
    for (size_t k = 0; k < results.size(); ++k) {
      if (!results[k].tensor.defined()) {
        results[k].tensor = ow::empty(nullptr, 0, p.outputs()[k].dtype);
        ow::store_scalar(results[k].tensor.data(), p.outputs()[k].dtype, results[k].scalar);
      }
      made.emplace_back(array_of(std::move(results[k].tensor)));
    }
    for (size_t k = 0; k < made.size(); ++k) outputs[k] = made[k].release();
  });
}

int32_t opwright_kernels_open(const char* folder, const char* dialect, OpwrightKernels** out) {
  return guarded([&] {
    need(folder, "folder");
    need(out, "out");
    *out = new OpwrightKernels{ow::KernelTable::open(folder, dialect == nullptr ? "" : dialect)};
  });
}
void opwright_kernels_free(OpwrightKernels* kernels) { delete kernels; }

int32_t opwright_call(OpwrightKernels* kernels, const char* op, int32_t n_in, const OwTensor* const* inputs,
                      const char* attrs, int32_t* n_out, OpwrightArray** outputs) {
  return guarded([&] {
    need(kernels, "kernels");
    need(op, "op");
    need(n_out, "n_out");
    ow::OpEntry* entry = kernels->table->find(op);
    if (entry == nullptr) fail(ErrorKind::Missing, kernels->table->folder(), ": has no op '", op, "'");
    const ow::Signature& sig = entry->signature;
    std::vector<Tensor> tensors;
    for (int32_t k = 0; k < n_in; ++k)
      tensors.push_back(inputs[k] == nullptr ? Tensor() : tensor_of(*inputs[k], ow::cat(op, ": input ", k)));
    ow::Invocation call;
    int32_t lists = 0, at = 0;
    for (const ow::InputSpec& input : sig.inputs) lists += input.list;
    int32_t spare = n_in - (static_cast<int32_t>(sig.inputs.size()) - lists);
    if (spare < 0 || lists > 1 || (lists == 0 && spare > 0))
      fail(ErrorKind::Value, op, ": ", n_in, " inputs are given, it has ", sig.inputs.size(),
           lists > 1 ? ", and more than one list, which this call cannot say" : "");
    for (const ow::InputSpec& input : sig.inputs) {
      int32_t n = input.list ? spare : 1;
      if (input.list) call.list_len.push_back(n);
      for (int32_t k = 0; k < n; ++k, ++at) {
        const Tensor& t = tensors[static_cast<size_t>(at)];
        if (!t.defined() && (input.list || !input.optional))
          fail(ErrorKind::Value, op, ": input '", input.name, "' is missing");
        call.flat.push_back(t.defined() ? ow::Operand::of(&t) : ow::Operand{});
      }
    }
    ow::Json given = ow::Json::parse(attrs == nullptr ? "{}" : attrs, ow::cat(op, ": attributes"));
    for (const auto& [name, value] : given.as_object(op))
      if (sig.find_attr(name) < 0) fail(ErrorKind::Type, op, ": has no attribute '", name, "'");
    std::vector<ow::AttrValue> values;
    for (const ow::AttrSpec& attr : sig.attrs) {
      const ow::Json* value = given.find(attr.name);
      if (value == nullptr && !attr.has_default && !attr.optional)
        fail(ErrorKind::Type, op, ": attribute '", attr.name, "' is missing");
      values.push_back(value != nullptr ? ow::attr_from_json(*value, attr, op)
                                        : (attr.has_default ? attr.default_value : ow::AttrValue{}));
    }
    call.attrs = values.data();
    if (*n_out < static_cast<int32_t>(sig.outputs.size()))
      fail(ErrorKind::Value, op, ": has ", sig.outputs.size(), " outputs, there is room for ", *n_out);
    ow::MissHook hook = [&](const std::vector<ow::Request>& requests) { return kernels->table->answer(requests); };
    ow::Dispatcher& dispatcher = ow::Dispatcher::instance();
    const ow::Kernel& kernel = *dispatcher.resolve_many({{entry, &call}}, hook)[0];
    std::vector<Tensor> results(sig.outputs.size());
    dispatcher.run(*entry, kernel, call, results.data());
    for (size_t k = 0; k < results.size(); ++k) outputs[k] = array_of(std::move(results[k]));
    *n_out = static_cast<int32_t>(results.size());
  });
}

int32_t opwright_tensors_read(const char* path, OpwrightTensors** out) {
  return guarded([&] {
    need(path, "path");
    need(out, "out");
    ow::SafeTensors file = ow::SafeTensors::open(path);
    auto made = std::make_unique<OpwrightTensors>();
    for (const std::string& name : file.names()) {
      made->names.push_back(name);
      made->arrays.emplace_back(array_of(ow::clone(file.get(name))));  // the caller may write to it
    }
    *out = made.release();
  });
}
void opwright_tensors_free(OpwrightTensors* tensors) { delete tensors; }
int32_t opwright_tensors_count(const OpwrightTensors* tensors) { return static_cast<int32_t>(tensors->names.size()); }
const char* opwright_tensors_name(const OpwrightTensors* tensors, int32_t k) {
  return tensors->names[static_cast<size_t>(k)].c_str();
}
const OwTensor* opwright_tensors_tensor(const OpwrightTensors* tensors, int32_t k) {
  return &tensors->arrays[static_cast<size_t>(k)]->view;
}
int32_t opwright_tensors_write(const char* path, int32_t n, const char* const* names, const OwTensor* const* tensors) {
  return guarded([&] {
    need(path, "path");
    std::vector<std::pair<std::string, Tensor>> all;
    for (int32_t k = 0; k < n; ++k)
      all.emplace_back(names[k], tensor_of(*tensors[k], ow::cat(path, ": '", names[k], "'")));
    ow::SafeTensors::write(path, all);
  });
}

int64_t opwright_memory_allocated(void) { return ow::allocator_stats().allocated; }
int64_t opwright_memory_reserved(void) { return ow::allocator_stats().reserved; }
void opwright_memory_empty_cache(void) { ow::allocator_empty_cache(); }
int32_t opwright_memory_set_limit(int64_t bytes) {
  return guarded([&] {
    if (bytes < 0) fail(ErrorKind::Value, "a limit of memory must not be negative, got ", bytes);
    ow::host_allocator().set_limit(bytes);
  });
}
int32_t opwright_memory_set_backend(void* (*allocate)(void*, size_t, size_t), void (*release)(void*, void*, size_t),
                                    void* context) {
  return guarded([&] {
    if ((allocate == nullptr) != (release == nullptr))
      fail(ErrorKind::Value, "a backend has two functions; one is null");
    ow::MemoryBackend own{allocate, release, context};
    ow::host_allocator().set_backend(allocate == nullptr ? ow::system_backend() : own);
  });
}

}  // extern "C"
