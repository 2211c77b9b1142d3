// The Python type `Tensor`: views, exchange with NumPy and DLPack, operators through the ops of the same meaning.
// What is written in Python (methods.py, indexing.py, printing.py) is handed in by `extend_tensor` and `set_tensor_parts`.
// To add a view: a function in tensor.h, a method here, a row in kMethods. Operators: OW_BINARY and the slot's table.
#include "py_common.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "allocator.h"
#include "dlpack.h"
#include "threads.h"

namespace owpy {

using ow::DType;
using ow::ErrorKind;
using ow::fail;
using ow::Tensor;
using Sizes = ow::SmallVec<int64_t, 16>;

PyObject* wrap(Tensor t) {
  auto* self = PyObject_New(TensorObject, &TensorType);
  if (self == nullptr) throw PyRaised{};
  new (&self->tensor) Tensor(std::move(t));
  self->weakrefs = nullptr;
  return reinterpret_cast<PyObject*>(self);
}

namespace {

// Small tensors that are gone, with their memory, by its size class: the next result takes them as they are. Under the
// GIL. Those that wait count as allocated; memory_stats() and empty_cache() give them back first.
class Pool {
 public:
  bool on = true;

  TensorObject* take(size_t bytes) {
    size_t size = ow::rounded_size(bytes);
    if (size > kBytes) return nullptr;
    Shelf& shelf = shelves_[size / ow::kAlignment];
    TensorObject* taken = shelf.first;
    if (taken == nullptr) return nullptr;
#if defined(__SANITIZE_ADDRESS__)  // a block ends where it was asked to end
    if (taken->tensor.storage->bytes() != bytes) return nullptr;
#endif
    shelf.first = next(taken);
    --shelf.count;
    return taken;
  }
  bool put(TensorObject* object) {
    const Tensor& t = object->tensor;
    if (!on || !t.storage || t.storage->bytes() > kBytes || t.storage->borrowed() || !t.storage->sole()) return false;
    size_t size = ow::rounded_size(t.storage->bytes());
    if (size > kBytes) return false;
    Shelf& shelf = shelves_[size / ow::kAlignment];
    if (shelf.count == kKept) return false;
    object->weakrefs = reinterpret_cast<PyObject*>(shelf.first);
    shelf.first = object;
    ++shelf.count;
    return true;
  }
  void drain() {
    for (Shelf& shelf : shelves_) {
      while (shelf.first != nullptr) {
        TensorObject* gone = shelf.first;
        shelf.first = next(gone);
        gone->tensor.~Tensor();
        PyObject_Free(gone);
      }
      shelf.count = 0;
    }
  }

 private:
  static constexpr size_t kBytes = 4096;
  static constexpr int kKept = 8;
  struct Shelf {
    TensorObject* first = nullptr;  // the next one lies in `weakrefs`
    int count = 0;
  };
  static TensorObject* next(TensorObject* object) { return reinterpret_cast<TensorObject*>(object->weakrefs); }
  Shelf shelves_[kBytes / ow::kAlignment + 1];
} pool;

void dealloc(PyObject* self) {
  auto* object = reinterpret_cast<TensorObject*>(self);
  if (object->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  if (pool.put(object)) return;
  object->tensor.~Tensor();
  PyObject_Free(self);
}

}  // namespace

PyObject* new_tensor(DType dtype, int32_t rank, const int64_t* sizes, const int64_t* strides, size_t bytes) {
  TensorObject* made = pool.take(bytes);
  if (made != nullptr) {
    PyObject_Init(reinterpret_cast<PyObject*>(made), &TensorType);
    made->tensor.storage->renew(bytes);
  } else {
    ow::StoragePtr storage = ow::new_storage(bytes);
    made = PyObject_New(TensorObject, &TensorType);
    if (made == nullptr) throw PyRaised{};
    new (&made->tensor) Tensor;
    made->tensor.storage = std::move(storage);
  }
  made->weakrefs = nullptr;
  Tensor& t = made->tensor;
  t.dtype = dtype;
  t.rank = rank;
  t.offset = 0;
  for (int32_t k = 0; k < rank; ++k) {
    t.sizes[k] = sizes[k];
    t.strides[k] = strides[k];
  }
  return reinterpret_cast<PyObject*>(made);
}

void empty_tensor_pool() { pool.drain(); }
bool tensor_pool_is_on() { return pool.on; }
void set_tensor_pool(bool on) {
  pool.on = on;
  pool.drain();
}

namespace {

PyObject* tuple_of(const int64_t* values, int32_t n) {
  Ref out = checked(PyTuple_New(n));
  for (int32_t k = 0; k < n; ++k) {
    PyObject* item = PyLong_FromLongLong(values[k]);
    if (item == nullptr) throw PyRaised{};
    PyTuple_SET_ITEM(out.get(), k, item);
  }
  return out.release();
}

// f(2, 3) and f((2, 3)) mean the same.
Sizes sizes_from(const char* function, PyObject* const* args, Py_ssize_t n) {
  Sizes out;
  if (n == 1 && ints_from(args[0], &out)) return out;
  out.clear();
  for (Py_ssize_t k = 0; k < n; ++k) out.push_back(int_from(args[k], function));
  return out;
}

// ---- attributes ----

PyObject* get_shape(PyObject* self, void*) {
  return guarded([&] { return tuple_of(tensor_of(self).sizes, tensor_of(self).rank); });
}
PyObject* get_strides(PyObject* self, void*) {
  return guarded([&] { return tuple_of(tensor_of(self).strides, tensor_of(self).rank); });
}
PyObject* get_dtype(PyObject* self, void*) { return PyUnicode_FromString(ow::dtype_name(tensor_of(self).dtype)); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(tensor_of(self).rank); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).numel()); }
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromSize_t(ow::item_size(tensor_of(self).dtype)); }
PyObject* get_nbytes(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).nbytes()); }
PyObject* get_offset(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).offset); }
PyObject* get_version(PyObject* self, void*) { return PyLong_FromUnsignedLong(tensor_of(self).storage->version()); }
PyObject* get_readonly(PyObject* self, void*) { return PyBool_FromLong(tensor_of(self).storage->readonly()); }
PyObject* get_device(PyObject*, void*) { return PyUnicode_FromString("cpu"); }
PyObject* get_transposed(PyObject* self, void*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    Sizes axes;
    for (int32_t k = t.rank - 1; k >= 0; --k) axes.push_back(k);
    return wrap(ow::permute(t, axes.data(), t.rank));
  });
}

PyObject* get_matrix_transposed(PyObject* self, void*) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    if (t.rank < 2) fail(ErrorKind::Value, "mT: a tensor of rank ", t.rank, " holds no matrices; rank 2 is wanted");
    return wrap(ow::transpose(t, -2, -1));
  });
}

void* address_of(const Tensor& t) {
  static char nowhere;  // NumPy takes a null pointer for a missing one
  void* data = t.data();
  return t.numel() == 0 && data == nullptr ? &nowhere : data;
}

PyObject* get_array_interface(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(self);
    if (t.dtype == DType::BF16) {  // has no type string: NumPy goes on to __array__
      PyErr_SetString(PyExc_AttributeError, "bf16 has no __array_interface__");
      return nullptr;
    }
    int64_t bytes[OW_MAX_RANK];
    for (int32_t k = 0; k < t.rank; ++k) bytes[k] = t.strides[k] * static_cast<int64_t>(ow::item_size(t.dtype));
    Ref shape = checked(tuple_of(t.sizes, t.rank)), strides = checked(tuple_of(bytes, t.rank));
    return Py_BuildValue("{s:i,s:s,s:O,s:O,s:(NO)}", "version", 3, "typestr", ow::info(t.dtype).typestr, "shape",
                         shape.get(), "strides", strides.get(), "data", PyLong_FromVoidPtr(address_of(t)),
                         t.storage->readonly() ? Py_True : Py_False);
  });
}

PyGetSetDef kGetSet[] = {
    {"shape", get_shape, nullptr, "Extents, a tuple of ints.", nullptr},
    {"strides", get_strides, nullptr, "Strides in elements, a tuple of ints.", nullptr},
    {"dtype", get_dtype, nullptr, "The dtype's name: 'f32', 'i64', ...", nullptr},
    {"ndim", get_ndim, nullptr, "The rank.", nullptr},
    {"size", get_size, nullptr, "The number of elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"offset", get_offset, nullptr, "Elements between the start of the storage and the first element.", nullptr},
    {"version", get_version, nullptr, "How often the storage was written through `out=` or copy_.", nullptr},
    {"readonly", get_readonly, nullptr, "Whether the memory may not be written.", nullptr},
    {"device", get_device, nullptr, "Where the memory is: 'cpu'.", nullptr},
    {"T", get_transposed, nullptr, "All axes reversed, a view.", nullptr},
    {"mT", get_matrix_transposed, nullptr, "The last two axes swapped, a view.", nullptr},
    {"__array_interface__", get_array_interface, nullptr, "NumPy's array interface.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// ---- exchange ----

PyObject* numpy_of(const Tensor& t, PyObject* self) {
  Ref numpy = checked(PyImport_ImportModule("numpy"));
  if (t.dtype != DType::BF16) return PyObject_CallMethod(numpy.get(), "asarray", "O", self);
  Ref types = checked(PyImport_ImportModule("ml_dtypes"));
  Ref bfloat16 = checked(PyObject_GetAttrString(types.get(), "bfloat16"));
  Tensor bits = t;
  bits.dtype = DType::I16;
  Ref wrapped = checked(wrap(std::move(bits)));
  Ref array = checked(PyObject_CallMethod(numpy.get(), "asarray", "O", wrapped.get()));
  return PyObject_CallMethod(array.get(), "view", "O", bfloat16.get());
}

PyObject* method_numpy(PyObject* self, PyObject*) {
  return guarded([&] { return numpy_of(tensor_of(self), self); });
}

PyObject* method_array(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&]() -> PyObject* {
    PyObject* given[2];
    parse_args("__array__", args, n, names, {"dtype", "copy"}, 0, given);
    Ref array = checked(numpy_of(tensor_of(self), self));
    if (given[0] != nullptr && given[0] != Py_None)
      array = checked(PyObject_CallMethod(array.get(), "astype", "OsOOO", given[0], "K", Py_None, Py_True, Py_False));
    if (given[1] == Py_True) array = checked(PyObject_CallMethod(array.get(), "copy", nullptr));
    return array.release();
  });
}

template <class Managed>
struct Export {
  Managed managed;
  ow::StoragePtr storage;
  int64_t shape[OW_MAX_RANK], strides[OW_MAX_RANK];
};

template <class Managed>
Export<Managed>* export_tensor(const Tensor& t) {
  auto made = std::make_unique<Export<Managed>>();
  made->storage = t.storage;
  std::copy_n(t.sizes, t.rank, made->shape);
  std::copy_n(t.strides, t.rank, made->strides);
  made->managed.tensor = OwTensor{t.data(), ow::kCpu, t.rank, ow::to_dlpack(t.dtype), made->shape, made->strides, 0};
  made->managed.context = made.get();
  made->managed.deleter = [](Managed* managed) { delete static_cast<Export<Managed>*>(managed->context); };
  return made.release();
}

template <class Managed>
void drop_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: the consumer deletes
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

PyObject* method_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&]() -> PyObject* {
    PyObject* given[4];
    parse_args("__dlpack__", args, n, names, {"stream", "max_version", "dl_device", "copy"}, 0, given);
    if (given[2] != nullptr && given[2] != Py_None) {
      Sizes device;
      if (!ints_from(given[2], &device) || device.size() != 2 || device[0] != ow::kCpu.device_type) {
        PyErr_SetString(PyExc_BufferError, "the tensor is in CPU memory: dl_device must be (1, 0)");
        return nullptr;
      }
    }
    Sizes version;
    bool versioned = given[1] != nullptr && given[1] != Py_None && ints_from(given[1], &version) && !version.empty() &&
                     version[0] >= 1;
    Tensor t = given[3] == Py_True ? ow::clone(tensor_of(self)) : tensor_of(self);
    if (versioned) {
      auto* made = export_tensor<ow::ManagedTensorVersioned>(t);
      made->managed.version = {1, 0};
      made->managed.flags = (t.storage->readonly() ? ow::kReadOnly : 0) | (given[3] == Py_True ? 2u : 0u);
      return PyCapsule_New(&made->managed, "dltensor_versioned",
                           [](PyObject* c) { drop_capsule<ow::ManagedTensorVersioned>(c, "dltensor_versioned"); });
    }
    if (t.storage->readonly()) {
      PyErr_SetString(
          PyExc_BufferError,
          "the tensor is read-only, which DLPack before 1.0 cannot say; ask for max_version=(1, 0) or a copy");
      return nullptr;
    }
    auto* made = export_tensor<ow::ManagedTensor>(t);
    return PyCapsule_New(&made->managed, "dltensor",
                         [](PyObject* c) { drop_capsule<ow::ManagedTensor>(c, "dltensor"); });
  });
}

PyObject* method_dlpack_device(PyObject*, PyObject*) {
  return Py_BuildValue("(ii)", ow::kCpu.device_type, ow::kCpu.device_id);
}

// ---- values ----

ow::Scalar only_item(const Tensor& t) {
  if (t.numel() != 1)
    fail(ErrorKind::Value, "only a tensor of one element is a number; this is ", ow::signature_text(t));
  return ow::load_scalar(t.data(), t.dtype);
}

PyObject* method_item(PyObject* self, PyObject*) {
  return guarded([&] { return scalar_to(only_item(tensor_of(self))); });
}
PyObject* method_tolist(PyObject* self, PyObject*) {
  return guarded([&] { return tensor_to_list(tensor_of(self)); });
}

// ---- what is written in Python ----

PyObject* get_part = nullptr;    // (tensor, key): a subscript that is no view
PyObject* set_part = nullptr;    // (tensor, key, value): the same, assigned to
PyObject* print_part = nullptr;  // (tensor): its text
PyObject* other_part = nullptr;  // (op's name, arguments, {}): what an operator's op does not take, or NotImplemented

PyObject* repr(PyObject* self) {
  if (print_part != nullptr) return PyObject_CallOneArg(print_part, self);
  return guarded([&] { return PyUnicode_FromFormat("tensor(<%s>)", ow::signature_text(tensor_of(self)).c_str()); });
}

int truth(PyObject* self) {
  return guarded_int([&] {
    ow::Scalar value = only_item(tensor_of(self));
    return value.i != 0 || value.z != 0.0 ? 1 : 0;
  });
}
PyObject* as_float(PyObject* self) {
  return guarded([&]() -> PyObject* {
    ow::Scalar value = only_item(tensor_of(self));
    if (value.kind == ow::Scalar::Kind::Complex) fail(ErrorKind::Type, "a complex number is no float");
    return PyFloat_FromDouble(value.as_double());
  });
}
PyObject* as_int(PyObject* self) {
  return guarded([&] { return PyNumber_Long(checked(scalar_to(only_item(tensor_of(self)))).get()); });
}
PyObject* as_index(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(self);
    if (!ow::is_integral(t.dtype) && t.dtype != DType::Bool)
      fail(ErrorKind::Type, "a ", ow::dtype_name(t.dtype), " tensor is no index");
    return PyLong_FromLongLong(only_item(t).i);
  });
}

// ---- layouts ----

Tensor cloned(const Tensor& t) {
  return copying(t.nbytes(), [&] { return ow::clone(t); });
}

PyObject* method_reshape(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    Sizes sizes = sizes_from("reshape", args, n);
    const Tensor& t = tensor_of(self);
    return wrap(copying(t.contiguous() ? 0 : t.nbytes(),
                        [&] { return ow::reshape(t, sizes.data(), static_cast<int32_t>(sizes.size())); }));
  });
}
PyObject* method_permute(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    Sizes axes = sizes_from("permute", args, n);
    return wrap(ow::permute(tensor_of(self), axes.data(), static_cast<int32_t>(axes.size())));
  });
}
PyObject* method_expand(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    Sizes sizes = sizes_from("expand", args, n);
    return wrap(ow::expand(tensor_of(self), sizes.data(), static_cast<int32_t>(sizes.size())));
  });
}
PyObject* method_transpose(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[2];
    parse_args("transpose", args, n, names, {"a", "b"}, 2, given);
    return wrap(ow::transpose(tensor_of(self), int_from(given[0], "a"), int_from(given[1], "b")));
  });
}
PyObject* method_unsqueeze(PyObject* self, PyObject* axis) {
  return guarded([&] { return wrap(ow::unsqueeze(tensor_of(self), int_from(axis, "axis"))); });
}
PyObject* method_as_strided(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[3];
    parse_args("as_strided", args, n, names, {"sizes", "strides", "offset"}, 2, given);
    const Tensor& t = tensor_of(self);
    Sizes sizes, strides;
    if (!ints_from(given[0], &sizes) || !ints_from(given[1], &strides) || sizes.size() != strides.size())
      fail(ErrorKind::Type, "as_strided: sizes and strides are two sequences of ints of one length");
    bool own = given[2] == nullptr || given[2] == Py_None;
    return wrap(ow::as_strided(t, sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()),
                               own ? t.offset : int_from(given[2], "offset")));
  });
}
PyObject* method_contiguous(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    if (tensor_of(self).contiguous()) return Py_NewRef(self);
    return wrap(cloned(tensor_of(self)));
  });
}
PyObject* method_is_contiguous(PyObject* self, PyObject*) { return PyBool_FromLong(tensor_of(self).contiguous()); }
PyObject* method_clone(PyObject* self, PyObject*) {
  return guarded([&] { return wrap(cloned(tensor_of(self))); });
}
PyObject* method_to(PyObject* self, PyObject* dtype) {
  return guarded([&]() -> PyObject* {
    DType want = dtype_from(dtype);
    if (want == tensor_of(self).dtype) return Py_NewRef(self);
    const Tensor& t = tensor_of(self);
    return wrap(copying(t.nbytes(), [&] { return ow::cast(t, want); }));
  });
}
PyObject* method_copy(PyObject* self, PyObject* source) {
  return guarded([&]() -> PyObject* {
    Tensor& t = tensor_of(self);
    Tensor from;
    ow::Scalar number;
    if (t.storage->readonly()) fail(ErrorKind::Value, "copy_: the tensor is read-only");
    if (ow::overlaps_itself(t)) fail(ErrorKind::Value, "copy_: the tensor overlaps itself");
    if (scalar_from(source, &number)) {
      copying(t.nbytes(), [&] { return ow::fill(t, number); });
    } else {
      if (!tensor_from(source, &from)) fail(ErrorKind::Type, "copy_: ", Py_TYPE(source)->tp_name, " is no array");
      from = ow::expand(from, t.sizes, t.rank);
      copying(t.nbytes(), [&] {
        if (ow::may_share_memory(t, from)) from = ow::clone(from);
        ow::copy_into(t, from);
      });
    }
    t.storage->bump_version();
    return Py_NewRef(self);
  });
}
PyObject* method_data_ptr(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(tensor_of(self).data()); }

// ---- indexing ----

Tensor apply_item(const Tensor& t, PyObject* item, int32_t* axis) {
  if (item == Py_None) return ow::unsqueeze(t, (*axis)++);
  if (PySlice_Check(item)) {
    Py_ssize_t start, stop, step;
    checked_status(PySlice_Unpack(item, &start, &stop, &step));
    Py_ssize_t count = PySlice_AdjustIndices(t.sizes[*axis], &start, &stop, step);
    return ow::slice(t, (*axis)++, start, step, count);
  }
  return ow::select(t, *axis, int_from(item, "index"));
}

// An int, or what stands for one: a NumPy integer, an integer tensor of rank 0.
bool is_position(PyObject* part) {
  if (PyLong_CheckExact(part)) return true;
  if (PyBool_Check(part) || !PyIndex_Check(part)) return false;
  if (is_tensor(part)) {
    const Tensor& t = tensor_of(part);
    return t.rank == 0 && t.dtype != DType::Bool && ow::is_integral(t.dtype);
  }
  Ref number(PyNumber_Index(part));  // arrays have the method, and refuse
  if (!number) PyErr_Clear();
  return static_cast<bool>(number);
}

// The view that a subscript of ints, slices, None and ... names; false where something else stands in it.
bool view_of(const Tensor& whole, PyObject* key, Tensor* out) {
  bool tuple = PyTuple_Check(key);
  Py_ssize_t n = tuple ? PyTuple_GET_SIZE(key) : 1;
  auto item = [&](Py_ssize_t k) { return tuple ? PyTuple_GET_ITEM(key, k) : key; };
  int32_t used = 0, ellipses = 0;
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* part = item(k);
    if (part == Py_Ellipsis)
      ++ellipses;
    else if (PySlice_Check(part) || is_position(part))
      ++used;
    else if (part != Py_None)
      return false;
  }
  if (ellipses > 1) fail(ErrorKind::Index, "an index holds ... more than once");
  if (used > whole.rank) fail(ErrorKind::Index, "too many indices: ", used, " for rank ", whole.rank);
  Tensor t = whole;
  int32_t axis = 0, skip = t.rank - used;
  for (Py_ssize_t k = 0; k < n; ++k) {
    if (item(k) == Py_Ellipsis)
      axis += skip;
    else
      t = apply_item(t, item(k), &axis);
  }
  *out = std::move(t);
  return true;
}

PyObject* subscript(PyObject* self, PyObject* key) {
  return guarded([&]() -> PyObject* {
    Tensor view;
    if (view_of(tensor_of(self), key, &view)) return wrap(std::move(view));
    if (get_part == nullptr)
      fail(ErrorKind::Type, "ints, slices, None and ... index a Tensor before the face is loaded");
    return PyObject_CallFunctionObjArgs(get_part, self, key, nullptr);
  });
}

int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  return guarded_int([&] {
    if (value == nullptr) fail(ErrorKind::Type, "elements of a tensor cannot be deleted");
    if (set_part == nullptr) fail(ErrorKind::Type, "nothing is assigned to before the face is loaded");
    checked(PyObject_CallFunctionObjArgs(set_part, self, key, value, nullptr));
    return 0;
  });
}

Py_ssize_t length(PyObject* self) {
  const Tensor& t = tensor_of(self);
  if (t.rank > 0) return static_cast<Py_ssize_t>(t.sizes[0]);
  PyErr_SetString(PyExc_TypeError, "a tensor of rank 0 has no length");
  return -1;
}
PyObject* sequence_item(PyObject* self, Py_ssize_t index) {
  if (tensor_of(self).rank == 0) {  // an IndexError would end a loop over it as if it were empty
    PyErr_SetString(PyExc_TypeError, "a tensor of rank 0 has no items");
    return nullptr;
  }
  return guarded([&] { return wrap(ow::select(tensor_of(self), 0, index)); });
}

// ---- operators: Python's symbol -> the op of that meaning ----

bool takes_part(PyObject* object) {
  if (is_tensor(object) || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
      PyComplex_CheckExact(object))
    return true;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return PyObject_HasAttrString(type, "__array_struct__") != 0 || PyObject_HasAttrString(type, "__dlpack__") != 0;
}

// An operator's op: looked up once, for an op object lives as long as the process.
struct Operator {
  const char* name;
  bool vectors = false;  // takes tensors of rank 1, which its op does not
  PyObject* op = nullptr;

  PyObject* call(PyObject* const* args, Py_ssize_t n, PyObject* kwnames = nullptr) {
    if (op == nullptr) {
      op = op_by_name(name);
      if (op == nullptr) return nullptr;
    }
    bool other = false;
    for (Py_ssize_t k = 0; k < n; ++k) other = other || other_way_first(args[k]);
    PyObject* out = nullptr;
    if (other && kwnames == nullptr) {
      out = another_way(args, n);
      if (out != Py_NotImplemented) return out;
      Py_DECREF(out);
    }
    out = call_op_object(op, args, n, kwnames);
    if (out != nullptr || other || kwnames != nullptr || !PyErr_ExceptionMatches(PyExc_TypeError)) return out;
    PyObject *type, *value, *trace;  // an array of another kind, say, whose dtype was not looked at
    PyErr_Fetch(&type, &value, &trace);
    out = another_way(args, n);
    if (out != Py_NotImplemented) {
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      return out;
    }
    Py_DECREF(out);
    PyErr_Restore(type, value, trace);
    return nullptr;
  }
  PyObject* binary(PyObject* a, PyObject* b) {
    if (!takes_part(a) || !takes_part(b)) Py_RETURN_NOTIMPLEMENTED;
    PyObject* args[] = {a, b};
    return call(args, 2);
  }

 private:
  bool other_way_first(PyObject* arg) const {
    if (!is_tensor(arg)) return PyComplex_Check(arg);
    return ow::is_complex(tensor_of(arg).dtype) || (vectors && tensor_of(arg).rank < 2);
  }
  PyObject* another_way(PyObject* const* args, Py_ssize_t n) const {
    if (other_part == nullptr) Py_RETURN_NOTIMPLEMENTED;
    Ref given(PyTuple_New(n));
    if (!given) return nullptr;
    for (Py_ssize_t k = 0; k < n; ++k) PyTuple_SET_ITEM(given.get(), k, Py_NewRef(args[k]));
    return PyObject_CallFunction(other_part, "sO{}", name, given.get());
  }
};

int category(DType t) { return t == DType::Bool ? 0 : ow::is_integral(t) ? 1 : ow::is_complex(t) ? 3 : 2; }

// Whether a call's result is of the dtype of `t`: then it is written to its memory at once.
bool keeps_dtype(const Tensor& t, PyObject* other) {
  if (is_tensor(other)) return tensor_of(other).dtype == t.dtype;
  ow::Scalar number;
  return scalar_from(other, &number) && category(number.natural_dtype()) <= category(t.dtype);
}

// `a += b`: in the memory of `a`, whose dtype must hold numbers of the result's kind.
PyObject* in_place(Operator& op, bool integral, PyObject* self, PyObject* other) {
  if (!takes_part(other)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&]() -> PyObject* {
    static PyObject* out_name = PyTuple_Pack(1, checked(PyUnicode_InternFromString("out")).get());
    PyObject* args[] = {self, other, self};
    const Tensor& t = tensor_of(self);
    if (category(t.dtype) >= (integral ? 1 : 2) && keeps_dtype(t, other)) {
      Ref same = checked(op.call(args, 2, out_name));
      return same.release();
    }
    Ref made = checked(op.call(args, 2));
    if (!is_tensor(made.get())) return made.release();
    const Tensor& result = tensor_of(made.get());
    if (!result.same_shape(t))
      fail(ErrorKind::Value, op.name, ": a result of shape ", ow::shape_text(result.sizes, result.rank),
           " does not fit into ", ow::shape_text(t.sizes, t.rank), ", which is written in place");
    if (category(result.dtype) > category(t.dtype))
      fail(ErrorKind::Type, op.name, ": a result of ", ow::dtype_name(result.dtype), " cannot be written in place as ",
           ow::dtype_name(t.dtype));
    checked(PyObject_CallMethod(self, "copy_", "O", made.get()));
    return Py_NewRef(self);
  });
}

#define OW_BINARY(function, op_name, integral)                                                   \
  Operator operator_##function{op_name, std::string_view(op_name) == "matmul"};                  \
  PyObject* op_##function(PyObject* a, PyObject* b) { return operator_##function.binary(a, b); } \
  PyObject* in_place_##function(PyObject* a, PyObject* b) { return in_place(operator_##function, integral, a, b); }
OW_BINARY(add, "add", true)
OW_BINARY(subtract, "sub", true)
OW_BINARY(multiply, "mul", true)
OW_BINARY(true_divide, "div", false)
OW_BINARY(floor_divide, "floor_divide", true)
OW_BINARY(remainder, "remainder", true)
OW_BINARY(matrix_multiply, "matmul", true)
OW_BINARY(and, "bitwise_and", true)
OW_BINARY(or, "bitwise_or", true)
OW_BINARY(xor, "bitwise_xor", true)
OW_BINARY(lshift, "bitwise_left_shift", true)
OW_BINARY(rshift, "bitwise_right_shift", true)
#undef OW_BINARY

Operator operator_pow{"pow"};
PyObject* op_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return operator_pow.binary(a, b);
}
PyObject* in_place_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place(operator_pow, true, a, b);
}
PyObject* op_divmod(PyObject* a, PyObject* b) {
  Ref quotient(op_floor_divide(a, b));
  if (!quotient || quotient.get() == Py_NotImplemented) return quotient.release();
  Ref rest(op_remainder(a, b));
  return rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
}

#define OW_UNARY(function, op_name)      \
  Operator operator_##function{op_name}; \
  PyObject* op_##function(PyObject* a) { return operator_##function.call(&a, 1); }
OW_UNARY(negative, "neg")
OW_UNARY(absolute, "abs")
OW_UNARY(invert, "bitwise_not")
#undef OW_UNARY
PyObject* op_positive(PyObject* a) { return Py_NewRef(a); }

PyObject* compare(PyObject* a, PyObject* b, int which) {
  static Operator operators[] = {{"lt"}, {"le"}, {"eq"}, {"ne"}, {"gt"}, {"ge"}};  // in the order of Py_LT ...
  return operators[which].binary(a, b);
}

// `value in x`: whether any element equals it.
int contains(PyObject* self, PyObject* value) {
  static Operator any{"any"};
  Ref same(compare(self, value, Py_EQ));
  if (!same) return -1;
  if (same.get() == Py_NotImplemented) return 0;
  PyObject* args[] = {same.get()};
  Ref found(any.call(args, 1));
  return found ? PyObject_IsTrue(found.get()) : -1;
}

PyNumberMethods number_methods;
PySequenceMethods sequence_methods;
PyMappingMethods mapping_methods;

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"numpy", method_numpy, METH_NOARGS, "numpy() -> the same memory as a NumPy array (bf16 through ml_dtypes)."},
    {"__array__", method(method_array), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"__dlpack__", method(method_dlpack), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", method_dlpack_device, METH_NOARGS, nullptr},
    {"item", method_item, METH_NOARGS, "item() -> the one element as a Python number."},
    {"tolist", method_tolist, METH_NOARGS, "tolist() -> nested lists of Python numbers."},
    {"reshape", method(method_reshape), METH_FASTCALL,
     "reshape(*sizes) -> a view where strides allow it, else a copy. One extent may be -1."},
    {"permute", method(method_permute), METH_FASTCALL, "permute(*axes) -> a view."},
    {"transpose", method(method_transpose), METH_FASTCALL | METH_KEYWORDS,
     "transpose(a, b) -> a view with two axes swapped."},
    {"expand", method(method_expand), METH_FASTCALL,
     "expand(*sizes) -> a view that repeats axes of extent 1. -1 keeps an extent."},
    {"unsqueeze", method_unsqueeze, METH_O, "unsqueeze(axis) -> a view with an axis of extent 1 more."},
    {"as_strided", method(method_as_strided), METH_FASTCALL | METH_KEYWORDS,
     "as_strided(sizes, strides, offset=None) -> a view of any layout within the storage; offset counts elements from "
     "its start (None: where this tensor begins)."},
    {"contiguous", method_contiguous, METH_NOARGS, "contiguous() -> itself, or a dense copy."},
    {"is_contiguous", method_is_contiguous, METH_NOARGS, "Whether the elements lie densely in row-major order."},
    {"clone", method_clone, METH_NOARGS, "clone() -> a dense copy."},
    {"to", method_to, METH_O, "to(dtype) -> itself, or a converted copy."},
    {"copy_", method_copy, METH_O, "copy_(source) -> itself, overwritten with source (broadcast and converted)."},
    {"data_ptr", method_data_ptr, METH_NOARGS, "Address of the first element."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

OW_PYTHON_TYPE(TensorType);

int add_tensor_type(PyObject* module) {
  number_methods.nb_add = op_add;
  number_methods.nb_inplace_add = in_place_add;
  number_methods.nb_subtract = op_subtract;
  number_methods.nb_inplace_subtract = in_place_subtract;
  number_methods.nb_multiply = op_multiply;
  number_methods.nb_inplace_multiply = in_place_multiply;
  number_methods.nb_true_divide = op_true_divide;
  number_methods.nb_inplace_true_divide = in_place_true_divide;
  number_methods.nb_floor_divide = op_floor_divide;
  number_methods.nb_inplace_floor_divide = in_place_floor_divide;
  number_methods.nb_remainder = op_remainder;
  number_methods.nb_inplace_remainder = in_place_remainder;
  number_methods.nb_power = op_power;
  number_methods.nb_inplace_power = in_place_power;
  number_methods.nb_and = op_and;
  number_methods.nb_inplace_and = in_place_and;
  number_methods.nb_or = op_or;
  number_methods.nb_inplace_or = in_place_or;
  number_methods.nb_xor = op_xor;
  number_methods.nb_inplace_xor = in_place_xor;
  number_methods.nb_lshift = op_lshift;
  number_methods.nb_inplace_lshift = in_place_lshift;
  number_methods.nb_rshift = op_rshift;
  number_methods.nb_inplace_rshift = in_place_rshift;
  number_methods.nb_matrix_multiply = op_matrix_multiply;
  number_methods.nb_inplace_matrix_multiply = in_place_matrix_multiply;
  number_methods.nb_divmod = op_divmod;
  number_methods.nb_negative = op_negative;
  number_methods.nb_positive = op_positive;
  number_methods.nb_absolute = op_absolute;
  number_methods.nb_invert = op_invert;
  number_methods.nb_bool = truth;
  number_methods.nb_float = as_float;
  number_methods.nb_int = as_int;
  number_methods.nb_index = as_index;
  sequence_methods.sq_length = length;
  sequence_methods.sq_item = sequence_item;
  sequence_methods.sq_contains = contains;
  mapping_methods.mp_length = length;
  mapping_methods.mp_subscript = subscript;
  mapping_methods.mp_ass_subscript = assign_subscript;
  TensorType.tp_name = "opwright.Tensor";
  TensorType.tp_doc =
      "An n-dimensional array: dtype, extents and strides over shared memory. Made by tensor, empty, zeros, "
      "from_dlpack and ops.";
  TensorType.tp_basicsize = sizeof(TensorObject);
  TensorType.tp_dealloc = dealloc;
  TensorType.tp_repr = repr;
  TensorType.tp_as_number = &number_methods;
  TensorType.tp_as_sequence = &sequence_methods;
  TensorType.tp_as_mapping = &mapping_methods;
  TensorType.tp_flags = Py_TPFLAGS_DEFAULT;
  TensorType.tp_weaklistoffset = offsetof(TensorObject, weakrefs);
  TensorType.tp_methods = kMethods;
  TensorType.tp_getset = kGetSet;
  TensorType.tp_richcompare = compare;
  TensorType.tp_hash = PyBaseObject_Type.tp_hash;  // by identity, for == is elementwise
  if (PyType_Ready(&TensorType) < 0) return -1;
  // NumPy must not take `array + tensor` for itself.
  if (PyDict_SetItemString(TensorType.tp_dict, "__array_ufunc__", Py_None) < 0) return -1;
  PyType_Modified(&TensorType);
  return PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(&TensorType));
}

PyObject* py_extend(PyObject*, PyObject* members) {
  if (!PyDict_Check(members)) {
    PyErr_SetString(PyExc_TypeError, "extend_tensor: a dict of members is wanted");
    return nullptr;
  }
  if (PyDict_Update(TensorType.tp_dict, members) < 0) return nullptr;
  PyType_Modified(&TensorType);
  Py_RETURN_NONE;
}

PyObject* py_set_parts(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&]() -> PyObject* {
    PyObject* given[4];
    parse_args("set_tensor_parts", args, n, names, {"getitem", "setitem", "repr", "another_way"}, 4, given);
    PyObject** parts[] = {&get_part, &set_part, &print_part, &other_part};
    for (int k = 0; k < 4; ++k) Py_XSETREF(*parts[k], Py_NewRef(given[k]));
    Py_RETURN_NONE;
  });
}

// ---- makers ----

namespace {
Sizes shape_from(PyObject* object) {
  Sizes out;
  if (!ints_from(object, &out)) {
    out.clear();
    out.push_back(int_from(object, "shape"));
  }
  return out;
}
}  // namespace

PyObject* py_empty(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[2];
    parse_args("empty", args, n, names, {"shape", "dtype"}, 1, given);
    Sizes sizes = shape_from(given[0]);
    DType dtype = given[1] == nullptr ? DType::F32 : dtype_from(given[1]);
    return wrap(ow::empty(sizes.data(), static_cast<int32_t>(sizes.size()), dtype));
  });
}

PyObject* py_full(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[3];
    parse_args("full", args, n, names, {"shape", "value", "dtype"}, 2, given);
    Sizes sizes = shape_from(given[0]);
    ow::Scalar value;
    if (!scalar_from(given[1], &value))
      fail(ErrorKind::Type, "full: value must be a number, got ", Py_TYPE(given[1])->tp_name);
    DType dtype = DType::F32;
    if (given[2] != nullptr && given[2] != Py_None)
      dtype = dtype_from(given[2]);
    else if (value.kind == ow::Scalar::Kind::Bool)
      dtype = DType::Bool;
    else if (value.kind == ow::Scalar::Kind::Int)
      dtype = DType::I64;
    else if (value.kind == ow::Scalar::Kind::Complex)
      dtype = DType::C64;
    Tensor t = ow::empty(sizes.data(), static_cast<int32_t>(sizes.size()), dtype);
    copying(t.nbytes(), [&] { return ow::fill(t, value); });
    return wrap(std::move(t));
  });
}

PyObject* py_tensor(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[2];
    parse_args("tensor", args, n, names, {"data", "dtype"}, 1, given);
    return wrap(tensor_from_data(given[0], given[1]));
  });
}

PyObject* py_from_dlpack(PyObject*, PyObject* object) {
  return guarded([&] { return wrap(tensor_from_dlpack(object)); });
}

}  // namespace owpy
