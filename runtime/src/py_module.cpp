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

PyObject* stats_dict(const ow::AllocatorStats& s) {
  Ref out = checked(PyDict_New());
  const std::pair<const char*, int64_t> items[] = {
      {"allocated", s.allocated},
      {"requested", s.requested},
      {"reserved", s.reserved},
      {"peak", s.peak},
      {"peak_reserved", s.peak_reserved},
      {"allocations", s.allocations},
      {"cache_hits", s.cache_hits},
      {"segments", s.segments},
      {"live_blocks", s.live_blocks},
      {"free_blocks", s.free_blocks},
      {"largest_free", s.largest_free},
      {"segment_allocations", s.segment_allocations},
      {"segment_releases", s.segment_releases},
      {"collections", s.collections},
      {"failures", s.failures},
      {"limit", s.limit},
  };
  for (const auto& [name, value] : items)
    checked_status(PyDict_SetItemString(out.get(), name, checked(PyLong_FromLongLong(value)).get()));
  return out.release();
}

PyObject* memory_stats(PyObject*, PyObject*) {
  empty_tensor_pool();  // what waits there is nobody's
  return guarded([] { return stats_dict(ow::allocator_stats()); });
}

PyObject* memory_snapshot(PyObject*, PyObject*) {
  empty_tensor_pool();
  return guarded([] {
    ow::MemorySnapshot shot = ow::host_allocator().snapshot();
    Ref segments = checked(PyList_New(0)), pools = checked(PyDict_New());
    for (const auto& [id, name] : shot.pools)
      checked_status(PyDict_SetItem(
          pools.get(), checked(PyLong_FromLong(id)).get(),
          checked(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace")).get()));
    for (const auto& segment : shot.segments) {
      Ref blocks = checked(PyList_New(0));
      for (const auto& b : segment.blocks) {
        const char* state = b.state == ow::MemorySnapshot::State::Live      ? "live"
                            : b.state == ow::MemorySnapshot::State::Resting ? "resting"
                                                                            : "free";
        Ref item =
            checked(Py_BuildValue("{s:L,s:L,s:L,s:s,s:s,s:K}", "offset", static_cast<long long>(b.offset), "size",
                                  static_cast<long long>(b.size), "requested", static_cast<long long>(b.requested),
                                  "state", state, "tag", b.tag, "serial", static_cast<unsigned long long>(b.serial)));
        checked_status(PyList_Append(blocks.get(), item.get()));
      }
      Ref item = checked(Py_BuildValue("{s:K,s:L,s:i,s:O}", "address", static_cast<unsigned long long>(segment.address),
                                       "bytes", static_cast<long long>(segment.bytes), "pool", segment.pool, "blocks",
                                       blocks.get()));
      checked_status(PyList_Append(segments.get(), item.get()));
    }
    Ref stats = checked(stats_dict(shot.stats));
    return Py_BuildValue("{s:O,s:O,s:O}", "stats", stats.get(), "pools", pools.get(), "segments", segments.get());
  });
}

PyObject* memory_limit(PyObject*, PyObject* bytes) {
  return guarded([&]() -> PyObject* {
    int64_t n = int_from(bytes, "bytes");
    if (n < 0) ow::fail(ow::ErrorKind::Value, "a limit of memory must not be negative, got ", n);
    empty_tensor_pool();
    ow::host_allocator().set_limit(n);
    Py_RETURN_NONE;
  });
}

PyObject* memory_collect_at(PyObject*, PyObject* share) {
  return guarded([&]() -> PyObject* {
    double value = PyFloat_AsDouble(share);
    if (value == -1.0 && PyErr_Occurred()) throw PyRaised{};
    if (!(value > 0 && value <= 1))
      ow::fail(ow::ErrorKind::Value, "a share must be above 0 and at most 1, got ", value);
    ow::host_allocator().set_collect_at(value);
    Py_RETURN_NONE;
  });
}

PyObject* memory_total(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromLongLong(ow::total_memory()); });
}

PyObject* pool_make(PyObject*, PyObject* name) {
  return guarded([&] { return PyLong_FromLong(ow::host_allocator().make_pool(utf8(name, "name"))); });
}

PyObject* pool_drop(PyObject*, PyObject* id) {
  return guarded([&]() -> PyObject* {
    empty_tensor_pool();
    ow::host_allocator().drop_pool(static_cast<int>(int_from(id, "pool")));
    Py_RETURN_NONE;
  });
}

PyObject* pool_enter(PyObject*, PyObject* id) {
  empty_tensor_pool();  // what waits there is another pool's
  return guarded([&] { return PyLong_FromLong(ow::exchange_pool(static_cast<int>(int_from(id, "pool")))); });
}

// (allocate, release, context) as addresses, or None for the system's.
PyObject* set_memory_backend(PyObject*, PyObject* given) {
  return guarded([&]() -> PyObject* {
    ow::MemoryBackend backend = ow::system_backend();
    if (given != Py_None) {
      unsigned long long allocate, release, context;
      if (!PyArg_ParseTuple(given, "KKK", &allocate, &release, &context)) throw PyRaised{};
      if (allocate == 0 || release == 0) ow::fail(ow::ErrorKind::Value, "a backend has two functions; one is null");
      backend.allocate = reinterpret_cast<void* (*)(void*, size_t, size_t)>(allocate);
      backend.release = reinterpret_cast<void (*)(void*, void*, size_t)>(release);
      backend.context = reinterpret_cast<void*>(context);
    }
    ow::host_allocator().set_backend(backend);
    Py_RETURN_NONE;
  });
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
    {"memory_snapshot", memory_snapshot, METH_NOARGS, "Segments and their blocks, pools, and the statistics."},
    {"memory_limit", memory_limit, METH_O, "memory_limit(bytes): no more is taken from the system."},
    {"memory_collect_at", memory_collect_at, METH_O, "memory_collect_at(share of the limit)."},
    {"memory_total", memory_total, METH_NOARGS, "Bytes of memory that this process may have at most."},
    {"pool_make", pool_make, METH_O, "pool_make(name) -> the number of a new memory pool."},
    {"pool_drop", pool_drop, METH_O, "pool_drop(number): its memory goes back when nothing of it is in use."},
    {"pool_enter", pool_enter, METH_O, "pool_enter(number) -> the pool that this thread allocated from before."},
    {"set_memory_backend", set_memory_backend, METH_O, "set_memory_backend((allocate, release, context) or None)."},
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
