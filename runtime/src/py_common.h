// What the Python files (py_*.cpp) share. Only they include Python.h.
// May include: the core's headers and Python.h.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <utility>

#include "dispatcher.h"
#include "tensor.h"

namespace owpy {

// A static type, filled in before PyType_Ready: C++ has no designated initialisers after Python's head macro.
#define OW_PYTHON_TYPE(name)                                                                        \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"") \
      PyTypeObject name = {PyVarObject_HEAD_INIT(nullptr, 0)};                                      \
  _Pragma("GCC diagnostic pop") static_assert(true)

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A Python exception is set; the C++ stack unwinds to the boundary with it.
struct PyRaised {};

inline Ref checked(PyObject* owned) {
  if (owned == nullptr) throw PyRaised{};
  return Ref(owned);
}
inline void checked_status(int status) {
  if (status < 0) throw PyRaised{};
}

// Kernels and copies run without the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Runs a copy of so many bytes, without the GIL where it takes a while.
template <class Body>
auto copying(int64_t bytes, Body&& body) {
  if (bytes < (1 << 15)) return body();
  WithoutGil unlocked;
  return body();
}

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// ---- errors (py_errors.cpp) ----
void set_python_error(const ow::Error& error);
void translate_exception() noexcept;  // inside a catch block: sets the Python error
PyObject* py_set_error_classes(PyObject*, PyObject* mapping);

// Runs a body that may throw; null with the error set when it does.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    translate_exception();
    return nullptr;
  }
}
template <class Body>
int guarded_int(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    translate_exception();
    return -1;
  }
}

// What Python raised becomes an OpTypeError that says of what, caused by it; a lack of memory and Ctrl-C stay.
void name_raised(const std::string& what);

// Runs a conversion; an error in it says of which argument it is: `what()` gives "relu: input 'x'".
template <class What, class Body>
auto naming(What&& what, Body&& body) {
  try {
    return body();
  } catch (const ow::Error& error) {
    throw ow::Error(error.kind(), what() + ": " + error.message());
  } catch (const PyRaised&) {
    name_raised(what());
    throw;
  }
}

// ---- conversions (py_convert.cpp) ----
std::string utf8(PyObject* text, const char* what);
ow::DType dtype_from(PyObject* object);               // name, NumPy dtype, torch dtype
bool scalar_from(PyObject* object, ow::Scalar* out);  // Python's own numbers only
PyObject* scalar_to(const ow::Scalar& value);
// Reads a sequence of integers; false (no error set) when the object is not one.
bool ints_from(PyObject* object, ow::SmallVec<int64_t, 16>* out, const char* what = "an item");
int64_t int_from(PyObject* object, const char* what);

// Any array, without a copy where its layout can be told in elements. Null when the object is no array; throws when it
// is one that cannot be taken.
bool tensor_from(PyObject* object, ow::Tensor* out);
ow::Tensor tensor_from_dlpack(PyObject* object);
ow::Tensor tensor_from_data(PyObject* data, PyObject* dtype);  // nested lists, numbers and arrays; always a copy
PyObject* tensor_to_list(const ow::Tensor& t);

ow::Json json_from(PyObject* object, const std::string& where);
PyObject* json_to(const ow::Json& json);

// ---- the Tensor type (py_tensor.cpp) ----
struct TensorObject {
  PyObject_HEAD ow::Tensor tensor;
  PyObject* weakrefs;
};
extern PyTypeObject TensorType;
inline bool is_tensor(PyObject* object) { return Py_IS_TYPE(object, &TensorType); }
inline ow::Tensor& tensor_of(PyObject* object) { return reinterpret_cast<TensorObject*>(object)->tensor; }
PyObject* wrap(ow::Tensor t);
// A dense tensor of unset values; small ones take the object and the memory of one that is gone. Throws.
PyObject* new_tensor(ow::DType dtype, int32_t rank, const int64_t* sizes, const int64_t* strides, size_t bytes);
void empty_tensor_pool();       // gives those memories back to the allocator
void set_tensor_pool(bool on);  // off: memory comes from the allocator alone, which may poison it
bool tensor_pool_is_on();
PyObject* py_extend(PyObject*, PyObject* members);  // members written in Python
PyObject* py_set_parts(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names);
PyObject* py_empty(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names);
PyObject* py_full(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names);
PyObject* py_tensor(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names);
PyObject* py_from_dlpack(PyObject*, PyObject* object);
int add_tensor_type(PyObject* module);

// ---- ops and registry (py_ops.cpp) ----
extern PyTypeObject OpType;
PyObject* op_by_name(const char* name);  // bootstraps; new reference, or null with MissingKernelError set
// `op` with arguments by position, as from Python.
PyObject* call_op_object(PyObject* op, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
ow::AttrValue attr_from(PyObject* value, const ow::AttrSpec& spec, const std::string& op);
PyObject* attr_to(const ow::AttrValue& value, ow::AttrKind kind);
PyObject* request_dict(const ow::Request& request);  // what a miss hook is given
// Calls with canonical arguments, and returns all outputs as a tuple.
int add_ops(PyObject* module);

// ---- programs (py_program.cpp) ----
int add_program(PyObject* module);

// Splits a METH_FASTCALL|METH_KEYWORDS call over `names`; missing ones stay null.
void parse_args(const char* function, PyObject* const* args, Py_ssize_t n, PyObject* kwnames,
                std::initializer_list<const char*> names, size_t required, PyObject** out);

}  // namespace owpy
