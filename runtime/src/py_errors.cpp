// From ow::Error and other C++ exceptions to Python's. The classes are defined in runtime/python/exceptions.py.
#include "py_common.h"

namespace owpy {
namespace {

constexpr const char* kKindNames[] = {"value", "index", "type", "missing", "program", "runtime", "memory"};
PyObject* classes[7] = {};

PyObject* class_of(ow::ErrorKind kind) {
  if (PyObject* known = classes[static_cast<int>(kind)]) return known;
  switch (kind) {  // before exceptions.py is imported
    case ow::ErrorKind::Value:
      return PyExc_ValueError;
    case ow::ErrorKind::Index:
      return PyExc_IndexError;
    case ow::ErrorKind::Type:
      return PyExc_TypeError;
    case ow::ErrorKind::Memory:
      return PyExc_MemoryError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void set_python_error(const ow::Error& error) {
  // Text that C++ took from a file need not be UTF-8.
  PyObject* message =
      PyUnicode_DecodeUTF8(error.message().data(), static_cast<Py_ssize_t>(error.message().size()), "replace");
  if (message == nullptr) return;
  PyErr_SetObject(class_of(error.kind()), message);
  Py_DECREF(message);
}

void name_raised(const std::string& what) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) return;
  PyObject *type, *cause, *trace, *made;
  PyErr_Fetch(&type, &cause, &trace);
  PyErr_NormalizeException(&type, &cause, &trace);
  if (trace != nullptr) PyException_SetTraceback(cause, trace);
  Ref text(PyObject_Str(cause));
  const char* said = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (said == nullptr) PyErr_Clear();
  set_python_error(ow::Error(ow::ErrorKind::Type, ow::cat(what, ": ", said == nullptr ? "it cannot be read" : said)));
  Py_XDECREF(type);
  Py_XDECREF(trace);
  PyErr_Fetch(&type, &made, &trace);
  PyErr_NormalizeException(&type, &made, &trace);
  PyException_SetCause(made, cause);  // takes the reference
  PyErr_Restore(type, made, trace);
}

void translate_exception() noexcept {
  try {
    throw;
  } catch (const PyRaised&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an error was raised without being set");
  } catch (const ow::Error& error) {
    set_python_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_SystemError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "unknown C++ exception");
  }
}

PyObject* py_set_error_classes(PyObject*, PyObject* mapping) {
  for (int k = 0; k < 7; ++k) {
    PyObject* found = PyDict_GetItemString(mapping, kKindNames[k]);
    if (found == nullptr) {
      PyErr_Format(PyExc_KeyError, "%s", kKindNames[k]);
      return nullptr;
    }
    Py_INCREF(found);
    Py_XSETREF(classes[k], found);
  }
  Py_RETURN_NONE;
}

}  // namespace owpy
