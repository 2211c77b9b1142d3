// The extension module opwright._core: puts the pieces together, and shows threads and memory.
#include "py_common.h"

#include "allocator.h"
#include "threads.h"

namespace owpy {
namespace {

PyObject* num_threads(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromLong(ow::ThreadPool::instance().threads()); });
}

PyObject* set_num_threads(PyObject*, PyObject* value) {
  return guarded([&]() -> PyObject* {
    int64_t n = int_from(value, "n");
    if (n < 1 || n > 4096) ow::fail(ow::ErrorKind::Value, "the number of threads must be from 1 to 4096, got ", n);
    {
      WithoutGil unlocked;
      ow::ThreadPool::instance().set_threads(static_cast<int>(n));
    }
    Py_RETURN_NONE;
  });
}

PyObject* parallel_pointers(PyObject*, PyObject*) {
  return guarded([] {
    return Py_BuildValue("(NN)", PyLong_FromVoidPtr(reinterpret_cast<void*>(ow::ThreadPool::entry)),
                         PyLong_FromVoidPtr(&ow::ThreadPool::instance()));
  });
}

PyObject* memory_stats(PyObject*, PyObject*) {
  empty_tensor_pool();  // what waits there is nobody's
  ow::AllocatorStats s = ow::allocator_stats();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "allocated", static_cast<long long>(s.allocated), "reserved",
                       static_cast<long long>(s.reserved), "peak", static_cast<long long>(s.peak), "allocations",
                       static_cast<long long>(s.allocations), "cache_hits", static_cast<long long>(s.cache_hits));
}

PyObject* reset_peak(PyObject*, PyObject*) {
  empty_tensor_pool();
  ow::allocator_reset_peak();
  Py_RETURN_NONE;
}

PyObject* empty_cache(PyObject*, PyObject*) {
  empty_tensor_pool();
  ow::allocator_empty_cache();
  Py_RETURN_NONE;
}

PyObject* set_poison(PyObject*, PyObject* value) {
  int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  ow::allocator_set_poison(on != 0);
  set_tensor_pool(on == 0);  // memory of the pool is not fresh
  Py_RETURN_NONE;
}

PyObject* configure(PyObject*, PyObject* text) {
  return guarded([&]() -> PyObject* {
    ow::ThreadPool::instance();  // reads OPWRIGHT_NUM_THREADS
    std::string conf = utf8(text, "conf");
    ow::allocator_configure(conf.c_str());
    if (conf.find("poison:1") != std::string::npos) set_tensor_pool(false);
    Py_RETURN_NONE;
  });
}

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kFunctions[] = {
    {"set_error_classes", py_set_error_classes, METH_O, "set_error_classes({kind: class})."},
    {"empty", method(py_empty), METH_FASTCALL | METH_KEYWORDS,
     "empty(shape, dtype='f32') -> a tensor of unset values."},
    {"full", method(py_full), METH_FASTCALL | METH_KEYWORDS,
     "full(shape, value, dtype=None) -> a tensor of one value."},
    {"tensor", method(py_tensor), METH_FASTCALL | METH_KEYWORDS,
     "tensor(data, dtype=None) -> a copy of nested lists, a number or an array.\n\nFloats become f32, ints i64, "
     "complex c64."},
    {"from_dlpack", py_from_dlpack, METH_O, "from_dlpack(x) -> the memory of x, not copied."},
    {"extend_tensor", py_extend, METH_O,
     "extend_tensor({name: member}): members of Tensor that are written in Python."},
    {"set_tensor_parts", method(py_set_parts), METH_FASTCALL | METH_KEYWORDS,
     "set_tensor_parts(getitem=, setitem=, repr=, another_way=): what subscripts that are no views, assignments, "
     "printing, and operators on what their op does not take call."},
    {"num_threads", num_threads, METH_NOARGS, "Threads that kernels may use."},
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(n): not while an op runs."},
    {"parallel_pointers", parallel_pointers, METH_NOARGS,
     "Addresses of the OwParallelFor function and of its pool, for callers by ctypes."},
    {"memory_stats", memory_stats, METH_NOARGS, "Bytes allocated, reserved and at peak; allocations and cache hits."},
    {"reset_peak_memory", reset_peak, METH_NOARGS, "Sets peak to what is allocated now."},
    {"empty_cache", empty_cache, METH_NOARGS, "Gives cached memory back to the system."},
    {"set_poison", set_poison, METH_O, "set_poison(on): fill fresh memory with 0xff."},
    {"configure", configure, METH_O, "configure(text of OPWRIGHT_ALLOC_CONF): once, after set_error_classes."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT,
                          "opwright._core",
                          "The C++ core of opwright's runtime.",
                          -1,
                          kFunctions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace owpy

PyMODINIT_FUNC PyInit__core() {
  using namespace owpy;
  PyObject* module = PyModule_Create(&module_def);
  if (module == nullptr) return nullptr;
  Ref held(module);
  if (add_tensor_type(module) < 0 || add_ops(module) < 0 || add_program(module) < 0) return nullptr;
  if (PyModule_AddIntConstant(module, "ABI", OW_ABI) < 0) return nullptr;
  return held.release();
}
