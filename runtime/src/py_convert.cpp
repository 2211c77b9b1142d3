// Python objects to core values and back: dtypes, numbers, arrays (NumPy, buffers, DLPack), nested lists, JSON.
// To take a new kind of array: a Protocol, its detection in protocol_of(), its reader, a line in tensor_from().
#include "py_common.h"

#include <cstring>
#include <memory>
#include <unordered_map>

#include "dlpack.h"

namespace owpy {

using ow::DType;
using ow::ErrorKind;
using ow::fail;
using ow::Scalar;
using ow::Tensor;

std::string utf8(PyObject* text, const char* what) {
  if (!PyUnicode_Check(text)) fail(ErrorKind::Type, what, " must be a string, got ", Py_TYPE(text)->tp_name);
  Py_ssize_t n = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &n);
  if (data == nullptr) throw PyRaised{};
  return std::string(data, static_cast<size_t>(n));
}

DType dtype_from(PyObject* object) {
  DType out;
  std::string text;
  if (PyUnicode_Check(object)) {
    text = utf8(object, "dtype");
  } else if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    return DType::Bool;
  } else if (PyType_Check(object)) {  // numpy.float32, ml_dtypes.bfloat16
    Ref name = checked(PyObject_GetAttrString(object, "__name__"));
    text = utf8(name.get(), "dtype");
  } else {  // numpy.dtype('float32'), torch.float32
    Ref name = checked(PyObject_Str(object));
    text = utf8(name.get(), "dtype");
  }
  if (!ow::parse_dtype(text, &out))
    fail(ErrorKind::Type, "unknown dtype '", text, "'; dtypes: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128");
  return out;
}

namespace {
int64_t exact_int(PyObject* object, const char* what = "an integer") {
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) fail(ErrorKind::Value, what, " does not fit in 64 bits");
  if (value == -1 && PyErr_Occurred()) throw PyRaised{};
  return value;
}
}  // namespace

bool scalar_from(PyObject* object, Scalar* out) {
  if (PyBool_Check(object)) {
    *out = Scalar::of_bool(object == Py_True);
  } else if (PyLong_CheckExact(object)) {
    *out = Scalar::of_int(exact_int(object));
  } else if (PyFloat_CheckExact(object)) {
    *out = Scalar::of_float(PyFloat_AS_DOUBLE(object));
  } else if (PyComplex_CheckExact(object)) {
    *out = Scalar::of_complex({PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)});
  } else {
    return false;
  }
  return true;
}

PyObject* scalar_to(const Scalar& value) {
  switch (value.kind) {
    case Scalar::Kind::Bool:
      return PyBool_FromLong(value.i != 0);
    case Scalar::Kind::Int:
      return PyLong_FromLongLong(value.i);
    case Scalar::Kind::Float:
      return PyFloat_FromDouble(value.z.real());
    case Scalar::Kind::Complex:
      break;
  }
  return PyComplex_FromDoubles(value.z.real(), value.z.imag());
}

int64_t int_from(PyObject* object, const char* what) {
  if (PyLong_Check(object)) return exact_int(object, what);
  Ref index(PyIndex_Check(object) ? PyNumber_Index(object) : nullptr);
  if (!index) {  // an array of several elements has the method, and refuses
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PyRaised{};
    PyErr_Clear();
    fail(ErrorKind::Type, what, " must be an int, got ", Py_TYPE(object)->tp_name);
  }
  return exact_int(index.get(), what);
}

bool ints_from(PyObject* object, ow::SmallVec<int64_t, 16>* out, const char* what) {
  out->clear();
  if (PyUnicode_Check(object) || !PySequence_Check(object)) return false;
  Ref items(PySequence_Fast(object, ""));
  if (!items) {
    PyErr_Clear();
    return false;
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), k);
    if (!PyIndex_Check(item)) return false;
    out->push_back(int_from(item, what));
  }
  return true;
}

// ---- arrays ----

namespace {

// A Python object kept alive by a Storage; released under the GIL, whoever drops the last reference.
void release_object(void* context) {
  if (!Py_IsInitialized()) return;
  WithGil gil;
  Py_DECREF(static_cast<PyObject*>(context));
}

void release_buffer(void* context) {
  std::unique_ptr<Py_buffer> view(static_cast<Py_buffer*>(context));
  if (!Py_IsInitialized()) return;
  WithGil gil;
  PyBuffer_Release(view.get());
}

// Byte strides to elements; what cannot be told in elements, or is not aligned for its dtype, is copied.
Tensor from_bytes(const char* data, DType dtype, int rank, const Py_ssize_t* shape, const Py_ssize_t* strides,
                  bool readonly, ow::Storage::Deleter deleter, void* context) {
  auto owner =
      ow::StoragePtr::adopt(ow::Storage::make_borrowed(const_cast<char*>(data), 0, readonly, deleter, context));
  if (rank > OW_MAX_RANK) fail(ErrorKind::Value, "rank ", rank, " is over the limit of ", OW_MAX_RANK);
  int64_t item = static_cast<int64_t>(ow::item_size(dtype));
  int64_t alignment = ow::is_complex(dtype) ? item / 2 : item;
  Tensor t;
  t.dtype = dtype;
  t.rank = rank;
  int64_t step = item;
  bool expressible = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0;
  int64_t bytes[OW_MAX_RANK];
  for (int k = rank - 1; k >= 0; --k) {
    t.sizes[k] = shape[k];
    bytes[k] = strides != nullptr ? strides[k] : step;
    step *= shape[k] > 1 ? shape[k] : 1;
    t.strides[k] = bytes[k] / item;
    if (shape[k] > 1 && bytes[k] % item != 0) expressible = false;
  }
  int64_t n = ow::checked_numel(t.sizes, rank, dtype);
  if (expressible || n == 0) {
    t.storage = std::move(owner);
    return t;
  }
  Tensor out = ow::empty(t.sizes, rank, dtype);
  int64_t index[OW_MAX_RANK] = {};
  const char* from = data;
  for (int64_t k = 0; k < n; ++k) {
    std::memcpy(out.data() + k * item, from, static_cast<size_t>(item));
    for (int axis = rank - 1; axis >= 0; --axis) {
      from += bytes[axis];
      if (++index[axis] < shape[axis]) break;
      from -= bytes[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return out;
}

struct ArrayInterface {  // NumPy's __array_struct__
  int two;
  int rank;
  char kind;
  int item_size;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* descr;
};
constexpr int kNotSwapped = 0x200, kWriteable = 0x400;

[[noreturn]] void no_such_dtype(const std::string& name) {
  fail(ErrorKind::Type, "arrays of dtype ", name,
       " are not supported; dtypes: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128");
}

DType numpy_dtype(PyObject* object, char kind, int size) {
  for (int k = 0; k < ow::kDTypes; ++k) {
    const ow::DTypeInfo& info = ow::kDTypeInfo[k];
    if (k != static_cast<int>(DType::BF16) && info.typestr[1] == kind && info.size == size)
      return static_cast<DType>(k);
  }
  Ref dtype = checked(PyObject_GetAttrString(object, "dtype"));
  Ref name = checked(PyObject_Str(dtype.get()));
  std::string text = utf8(name.get(), "dtype");
  if (text == "bfloat16") return DType::BF16;
  no_such_dtype(text);
}

Tensor from_array_struct(PyObject* object) {
  Ref capsule = checked(PyObject_GetAttrString(object, "__array_struct__"));
  auto* array = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule.get(), nullptr));
  if (array == nullptr) throw PyRaised{};
  DType dtype = numpy_dtype(object, array->kind, array->item_size);
  if (array->item_size > 1 && !(array->flags & kNotSwapped))
    fail(ErrorKind::Type,
         "the array is not in this machine's byte order; convert it with x.astype(x.dtype.newbyteorder('='))");
  // The capsule holds the array (or the temporary one that a NumPy scalar made).
  return from_bytes(static_cast<char*>(array->data), dtype, array->rank, array->shape, array->strides,
                    !(array->flags & kWriteable), release_object, capsule.release());
}

Tensor from_buffer(PyObject* object) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object, view.get(), PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) throw PyRaised{};
  std::string_view format = view->format == nullptr ? "B" : view->format;
  if (format.starts_with('@') || format.starts_with('=') || format.starts_with('<')) format.remove_prefix(1);
  char kind = 0;
  if (format == "?")
    kind = 'b';
  else if (format.size() == 1 && std::strchr("bhilqn", format[0]) != nullptr)
    kind = 'i';
  else if (format.size() == 1 && std::strchr("BHILQN", format[0]) != nullptr)
    kind = 'u';
  else if (format.size() == 1 && std::strchr("efd", format[0]) != nullptr)
    kind = 'f';
  else if (format == "Zf" || format == "Zd")
    kind = 'c';
  DType dtype = DType::U8;
  bool known = false;
  for (int k = 0; k < ow::kDTypes && !known; ++k) {
    const ow::DTypeInfo& info = ow::kDTypeInfo[k];
    known = k != static_cast<int>(DType::BF16) && info.typestr[1] == kind && info.size == view->itemsize;
    if (known) dtype = static_cast<DType>(k);
  }
  if (!known) {
    std::string text = "'" + std::string(format) + "'";
    PyBuffer_Release(view.get());
    no_such_dtype(text);
  }
  Py_buffer& b = *view;
  return from_bytes(static_cast<char*>(b.buf), dtype, b.ndim, b.shape, b.strides, b.readonly, release_buffer,
                    view.release());
}

template <class Managed>
Tensor adopt_managed(Managed* managed, bool readonly) {
  const OwTensor& dl = managed->tensor;
  // From here on the storage owns `managed`, whatever goes wrong below.
  auto owner = ow::StoragePtr::adopt(ow::Storage::make_borrowed(
      static_cast<char*>(dl.data) + dl.byte_offset, 0, readonly,
      [](void* context) {
        auto* m = static_cast<Managed*>(context);
        if (m->deleter != nullptr) m->deleter(m);
      },
      managed));
  if (dl.device.device_type != ow::kCpu.device_type)
    fail(ErrorKind::Value, "the array is on device type ", dl.device.device_type, "; only CPU memory (1) is supported");
  Tensor t;
  if (!ow::from_dlpack(dl.dtype, &t.dtype))
    no_such_dtype(ow::cat("(code ", static_cast<int>(dl.dtype.code), ", bits ", static_cast<int>(dl.dtype.bits),
                          ", lanes ", dl.dtype.lanes, ")"));
  if (dl.ndim < 0 || dl.ndim > OW_MAX_RANK)
    fail(ErrorKind::Value, "rank ", dl.ndim, " is over the limit of ", OW_MAX_RANK);
  t.rank = dl.ndim;
  for (int k = 0; k < dl.ndim; ++k) t.sizes[k] = dl.shape[k];
  ow::checked_numel(t.sizes, t.rank, t.dtype);
  if (dl.strides != nullptr) {
    for (int k = 0; k < dl.ndim; ++k) t.strides[k] = dl.strides[k];
  } else {
    ow::set_contiguous_strides(t.rank, t.sizes, t.strides);
  }
  t.storage = std::move(owner);
  return t;
}

Tensor from_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed = static_cast<ow::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major > 1)
      fail(ErrorKind::Type, "DLPack version ", managed->version.major, " is newer than the supported 1");
    checked_status(PyCapsule_SetName(capsule, "used_dltensor_versioned"));
    return adopt_managed(managed, (managed->flags & ow::kReadOnly) != 0);
  }
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    auto* managed = static_cast<ow::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    checked_status(PyCapsule_SetName(capsule, "used_dltensor"));
    return adopt_managed(managed, false);
  }
  fail(ErrorKind::Value, "the capsule is no DLPack tensor, or was consumed before");
}

// PyTorch's `__dlpack__` refuses the conjugate bit but hands over the memory of a tensor with the negative bit, whose
// elements are the negatives of what lies there.
void refuse_negative_bit(PyObject* object) {
  static PyObject* name = PyUnicode_InternFromString("is_neg");
  if (PyObject_HasAttr(reinterpret_cast<PyObject*>(Py_TYPE(object)), name) == 0) return;
  Ref answer = checked(PyObject_CallMethodNoArgs(object, name));
  if (answer.get() == Py_True)
    fail(ErrorKind::Type, "a tensor with the negative bit set cannot be read, use tensor.resolve_neg()");
}

Tensor from_dlpack_method(PyObject* object) {
  refuse_negative_bit(object);
  static PyObject* name = PyUnicode_InternFromString("__dlpack__");
  static PyObject* kwnames = Py_BuildValue("(s)", "max_version");
  static PyObject* version = Py_BuildValue("(ii)", 1, 0);
  PyObject* args[] = {object, version};
  PyObject* capsule = PyObject_VectorcallMethod(name, args, 1, kwnames);
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {  // an exporter from before DLPack 1.0
    PyErr_Clear();
    capsule = PyObject_VectorcallMethod(name, args, 1, nullptr);
  }
  Ref held = checked(capsule);
  return from_capsule(held.get());
}

enum class Protocol { None, ArrayStruct, Buffer, DlPack, Masked };

const char* const kMasked = "a masked array cannot be read: its mask would be lost; use x.filled(value)";

// What instances of a type speak; asked once per type.
Protocol protocol_of(PyObject* object) {
  static auto* known = new std::unordered_map<PyTypeObject*, Protocol>;
  PyTypeObject* type = Py_TYPE(object);
  if (auto found = known->find(type); found != known->end()) return found->second;
  auto has = [&](const char* name) { return PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), name) != 0; };
  Protocol protocol = Protocol::None;
  if (has("filled") && has("mask"))  // numpy.ma: the memory alone does not say which elements count
    protocol = Protocol::Masked;
  else if (has("__array_struct__"))
    protocol = Protocol::ArrayStruct;
  else if (has("__dlpack__"))
    protocol = Protocol::DlPack;
  else if (PyObject_CheckBuffer(object))
    protocol = Protocol::Buffer;
  if (known->size() < 1024) {  // the map keeps its types alive
    Py_INCREF(type);
    known->emplace(type, protocol);
  }
  return protocol;
}

}  // namespace

bool tensor_from(PyObject* object, Tensor* out) {
  if (is_tensor(object)) {
    *out = tensor_of(object);
    return true;
  }
  switch (protocol_of(object)) {
    case Protocol::ArrayStruct:
      *out = from_array_struct(object);
      return true;
    case Protocol::DlPack:
      *out = from_dlpack_method(object);
      return true;
    case Protocol::Buffer:
      *out = from_buffer(object);
      return true;
    case Protocol::Masked:
      fail(ErrorKind::Type, kMasked);
    case Protocol::None:
      break;
  }
  return false;
}

Tensor tensor_from_dlpack(PyObject* object) {
  if (PyCapsule_CheckExact(object)) return from_capsule(object);
  if (is_tensor(object)) return tensor_of(object);
  Protocol protocol = protocol_of(object);
  if (protocol == Protocol::Masked) fail(ErrorKind::Type, kMasked);
  if (protocol == Protocol::ArrayStruct) return from_array_struct(object);  // read-only arrays too
  if (PyObject_HasAttrString(object, "__dlpack__")) return from_dlpack_method(object);
  fail(ErrorKind::Type, "from_dlpack: ", Py_TYPE(object)->tp_name, " has no __dlpack__ method");
}

// ---- nested lists ----

namespace {

struct Leaf {
  bool any = false, boolean = false, integer = false, floating = false, complex = false;
};

bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

// One pass for the shape and the kinds of number, a second one for the values.
void measure(PyObject* data, int depth, ow::SmallVec<int64_t, 16>& shape, Leaf& leaf) {
  if (!is_list(data)) {
    if (depth != static_cast<int>(shape.size())) fail(ErrorKind::Value, "the nested lists are ragged");
    Scalar value;
    Tensor item;
    if (!scalar_from(data, &value)) {
      if (!tensor_from(data, &item) || item.rank != 0)
        fail(ErrorKind::Type, "cannot make a tensor of ", Py_TYPE(data)->tp_name);
      value = ow::load_scalar(item.data(), item.dtype);
    }
    leaf.any = true;
    leaf.boolean |= value.kind == Scalar::Kind::Bool;
    leaf.integer |= value.kind == Scalar::Kind::Int;
    leaf.floating |= value.kind == Scalar::Kind::Float;
    leaf.complex |= value.kind == Scalar::Kind::Complex;
    return;
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(data);
  if (depth == static_cast<int>(shape.size())) {
    if (leaf.any || depth >= OW_MAX_RANK) fail(ErrorKind::Value, "the nested lists are ragged, or too deep");
    shape.push_back(n);
  } else if (shape[static_cast<size_t>(depth)] != n) {
    fail(ErrorKind::Value, "the nested lists are ragged");
  }
  for (Py_ssize_t k = 0; k < n; ++k) measure(PySequence_Fast_GET_ITEM(data, k), depth + 1, shape, leaf);
  if (n == 0 && depth + 1 < static_cast<int>(shape.size())) fail(ErrorKind::Value, "the nested lists are ragged");
}

char* write_values(PyObject* data, DType dtype, char* at) {
  if (is_list(data)) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(data);
    for (Py_ssize_t k = 0; k < n; ++k) at = write_values(PySequence_Fast_GET_ITEM(data, k), dtype, at);
    return at;
  }
  Scalar value;
  if (!scalar_from(data, &value)) {
    Tensor item;
    if (!tensor_from(data, &item) || item.rank != 0)
      fail(ErrorKind::Type, "cannot make a tensor of ", Py_TYPE(data)->tp_name);
    value = ow::load_scalar(item.data(), item.dtype);
  }
  ow::store_scalar(at, dtype, value);
  return at + ow::item_size(dtype);
}

}  // namespace

Tensor tensor_from_data(PyObject* data, PyObject* dtype) {
  bool given = dtype != nullptr && dtype != Py_None;
  Scalar number;
  Tensor array;
  if (!is_list(data) && !scalar_from(data, &number) && tensor_from(data, &array)) {
    DType want = given ? dtype_from(dtype) : array.dtype;
    return copying(array.nbytes(), [&] { return want == array.dtype ? ow::clone(array) : ow::cast(array, want); });
  }
  ow::SmallVec<int64_t, 16> shape;
  Leaf leaf;
  measure(data, 0, shape, leaf);
  DType want = DType::F32;
  if (given)
    want = dtype_from(dtype);
  else if (leaf.complex)
    want = DType::C64;
  else if (leaf.floating || !leaf.any)
    want = DType::F32;
  else if (leaf.integer)
    want = DType::I64;
  else if (leaf.boolean)
    want = DType::Bool;
  Tensor out = ow::empty(shape.data(), static_cast<int32_t>(shape.size()), want);
  write_values(data, want, out.data());
  return out;
}

namespace {
PyObject* list_level(const Tensor& t, int32_t axis, const char* at) {
  if (axis == t.rank) return scalar_to(ow::load_scalar(at, t.dtype));
  Ref out = checked(PyList_New(t.sizes[axis]));
  for (int64_t k = 0; k < t.sizes[axis]; ++k) {
    PyObject* item = list_level(t, axis + 1, at + k * t.strides[axis] * static_cast<int64_t>(ow::item_size(t.dtype)));
    if (item == nullptr) throw PyRaised{};
    PyList_SET_ITEM(out.get(), k, item);
  }
  return out.release();
}
}  // namespace

PyObject* tensor_to_list(const Tensor& t) { return list_level(t, 0, t.data()); }

// ---- JSON ----

ow::Json json_from(PyObject* object, const std::string& where) {
  ow::Json out;
  if (object == Py_None) return out;
  if (PyBool_Check(object)) return ow::Json::of(object == Py_True);
  if (PyLong_Check(object)) return ow::Json::of(exact_int(object));
  if (PyFloat_Check(object)) return ow::Json::of(PyFloat_AS_DOUBLE(object));
  if (PyUnicode_Check(object)) return ow::Json::of(utf8(object, where.c_str()));
  if (PyDict_Check(object)) {
    out.type = ow::Json::Type::Object;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &value))
      out.object.emplace_back(utf8(key, where.c_str()), json_from(value, where));
    return out;
  }
  if (is_list(object)) {
    out.type = ow::Json::Type::Array;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t k = 0; k < n; ++k) out.array.push_back(json_from(PySequence_Fast_GET_ITEM(object, k), where));
    return out;
  }
  fail(ErrorKind::Type, where, ": ", Py_TYPE(object)->tp_name, " is no JSON value");
}

PyObject* json_to(const ow::Json& json) {
  switch (json.type) {
    case ow::Json::Type::Null:
      Py_RETURN_NONE;
    case ow::Json::Type::Bool:
      return PyBool_FromLong(json.boolean);
    case ow::Json::Type::Int:
      return PyLong_FromLongLong(json.integer);
    case ow::Json::Type::Float:
      return PyFloat_FromDouble(json.number);
    case ow::Json::Type::String:
      return PyUnicode_DecodeUTF8(json.string.data(), static_cast<Py_ssize_t>(json.string.size()), "replace");
    case ow::Json::Type::Array: {
      Ref out = checked(PyList_New(0));
      for (const ow::Json& item : json.array) checked_status(PyList_Append(out.get(), checked(json_to(item)).get()));
      return out.release();
    }
    case ow::Json::Type::Object: {
      Ref out = checked(PyDict_New());
      for (const auto& [key, value] : json.object)
        checked_status(PyDict_SetItemString(out.get(), key.c_str(), checked(json_to(value)).get()));
      return out.release();
    }
  }
  Py_RETURN_NONE;
}

// ---- arguments ----

void parse_args(const char* function, PyObject* const* args, Py_ssize_t n, PyObject* kwnames,
                std::initializer_list<const char*> names, size_t required, PyObject** out) {
  size_t count = names.size();
  for (size_t k = 0; k < count; ++k) out[k] = nullptr;
  if (static_cast<size_t>(n) > count)
    fail(ErrorKind::Type, function, "() takes at most ", count, " arguments, got ", n);
  for (Py_ssize_t k = 0; k < n; ++k) out[k] = args[k];
  Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* key = PyTuple_GET_ITEM(kwnames, k);
    size_t at = 0;
    for (; at < count; ++at)
      if (PyUnicode_CompareWithASCIIString(key, names.begin()[at]) == 0) break;
    if (at == count) fail(ErrorKind::Type, function, "() has no argument '", utf8(key, "name"), "'");
    if (out[at] != nullptr) fail(ErrorKind::Type, function, "() got '", names.begin()[at], "' twice");
    out[at] = args[n + k];
  }
  for (size_t k = 0; k < required; ++k)
    if (out[k] == nullptr) fail(ErrorKind::Type, function, "() is missing '", names.begin()[k], "'");
}

}  // namespace owpy
