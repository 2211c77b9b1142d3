// The Python side of Program. runtime/python/program.py is the face over this.
#include <forward_list>
#include "py_common.h"

#include "program.h"

namespace owpy {

using ow::ErrorKind;
using ow::fail;
using ow::Program;
using ow::Tensor;

namespace {

struct ProgramObject {
  PyObject_HEAD std::shared_ptr<Program> program;
};
PyTypeObject* program_type();

Program& program_of(PyObject* self) { return *reinterpret_cast<ProgramObject*>(self)->program; }

// Of a folder, or of (folder, folder of a kernel table, dialect or "").
PyObject* py_load(PyObject*, PyObject* given) {
  return guarded([&] {
    std::shared_ptr<ow::KernelTable> table;
    PyObject* folder = given;
    if (PyTuple_Check(given)) {
      const char *kernels, *dialect;
      if (!PyArg_ParseTuple(given, "Oss", &folder, &kernels, &dialect)) throw PyRaised{};
      table = ow::KernelTable::open(kernels, dialect);
    }
    Ref path = checked(PyOS_FSPath(folder));
    std::shared_ptr<Program> program = Program::load(utf8(path.get(), "folder"), table);
    auto* self = PyObject_New(ProgramObject, program_type());
    if (self == nullptr) throw PyRaised{};
    new (&self->program) std::shared_ptr<Program>(std::move(program));
    return reinterpret_cast<PyObject*>(self);
  });
}

PyObject* py_requests(PyObject*, PyObject* folder) {
  return guarded([&] {
    Ref path = checked(PyOS_FSPath(folder)), out = checked(PyList_New(0));
    for (const Program::Asked& asked : Program::requests(utf8(path.get(), "folder"))) {
      Ref request = checked(request_dict(asked.request));
      Ref item = checked(Py_BuildValue("(sO)", asked.text.c_str(), request.get()));
      checked_status(PyList_Append(out.get(), item.get()));
    }
    return out.release();
  });
}

void dealloc(PyObject* self) {
  reinterpret_cast<ProgramObject*>(self)->program.~shared_ptr();
  PyObject_Free(self);
}

// {name: array} -> tensors in the program's order.
std::vector<Tensor> tensors_from(const Program& p, PyObject* mapping) {
  if (!PyDict_Check(mapping))
    fail(ErrorKind::Type, p.name(), ": inputs must be a dict, got ", Py_TYPE(mapping)->tp_name);
  std::vector<Tensor> out;
  for (const Program::Port& port : p.inputs()) {
    PyObject* value = PyDict_GetItemString(mapping, port.name.c_str());
    if (value == nullptr) fail(ErrorKind::Value, p.name(), ": input '", port.name, "' is missing");
    Tensor t;
    if (!naming([&] { return p.name() + ": input '" + port.name + "'"; }, [&] { return tensor_from(value, &t); }))
      fail(ErrorKind::Type, p.name(), ": input '", port.name, "' must be an array, got ", Py_TYPE(value)->tp_name);
    out.push_back(std::move(t));
  }
  if (PyDict_Size(mapping) != static_cast<Py_ssize_t>(out.size())) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(mapping, &at, &key, &value)) {
      std::string name = utf8(key, "an input's name");
      bool known = false;
      for (const Program::Port& port : p.inputs()) known |= port.name == name;
      if (!known) fail(ErrorKind::Value, p.name(), ": has no input '", name, "'");
    }
  }
  return out;
}

PyObject* results_dict(const Program& p, std::vector<Program::Result> results) {
  Ref out = checked(PyDict_New());
  for (size_t k = 0; k < results.size(); ++k) {
    Program::Result& r = results[k];
    Ref value = checked(r.tensor.defined() ? wrap(std::move(r.tensor)) : scalar_to(r.scalar));
    checked_status(PyDict_SetItemString(out.get(), p.outputs()[k].name.c_str(), value.get()));
  }
  return out.release();
}

PyObject* method_run(PyObject* self, PyObject* mapping) {
  return guarded([&] {
    Program& p = program_of(self);
    std::vector<Tensor> tensors = tensors_from(p, mapping);
    std::vector<Program::Result> results;
    {
      WithoutGil unlocked;
      results = p.run(tensors);
    }
    return results_dict(p, std::move(results));
  });
}

// Flat tensors back into one entry per input of the op.
PyObject* nested_inputs(const Program::Seen& seen, const std::vector<bool>& list) {
  Ref out = checked(PyList_New(0));
  size_t flat = 0, at_list = 0;
  auto one = [&]() -> Ref {
    const Tensor& t = seen.inputs[flat++];
    return t.defined() ? checked(wrap(t)) : Ref::borrow(Py_None);
  };
  for (bool is_list : list) {
    Ref item;
    if (is_list) {
      item = checked(PyList_New(0));
      for (int32_t k = 0; k < seen.list_len[at_list]; ++k) checked_status(PyList_Append(item.get(), one().get()));
      ++at_list;
    } else {
      item = one();
    }
    checked_status(PyList_Append(out.get(), item.get()));
  }
  return out.release();
}

PyObject* attrs_dict(const std::vector<std::pair<std::string, ow::AttrValue>>& attrs) {
  Ref out = checked(PyDict_New());
  for (const auto& [name, value] : attrs)
    checked_status(PyDict_SetItemString(out.get(), name.c_str(), checked(attr_to(value, ow::AttrKind::Scalar)).get()));
  return out.release();
}

ow::Perturbation perturbation_from(PyObject* value) {
  if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) >= 1 && PyUnicode_Check(PyTuple_GET_ITEM(value, 0))) {
    std::string kind = utf8(PyTuple_GET_ITEM(value, 0), "perturb");
    if (kind == "bf16" && PyTuple_GET_SIZE(value) == 1) return {ow::Perturbation::Kind::BFloat16, 1};
    if (kind == "scale" && PyTuple_GET_SIZE(value) == 2) {
      double factor = PyFloat_AsDouble(PyTuple_GET_ITEM(value, 1));
      if (factor == -1.0 && PyErr_Occurred()) throw PyRaised{};
      return {ow::Perturbation::Kind::Scale, factor};
    }
  }
  fail(ErrorKind::Value, "a perturbation is ('scale', factor) or ('bf16',)");
}

int call_named(const Program& p, PyObject* id) {
  std::string name = utf8(id, "a node's id");
  int call = p.find_call(name);
  if (call < 0) fail(ErrorKind::Value, p.name(), ": has no call '", name, "'");
  return call;
}

PyObject* method_run_debug(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[3];
    parse_args("run_debug", args, n, names, {"inputs", "observer", "perturb"}, 1, given);
    Program& p = program_of(self);
    std::vector<Tensor> tensors = tensors_from(p, given[0]);
    std::unordered_map<int, ow::Perturbation> perturb;
    if (given[2] != nullptr && given[2] != Py_None) {
      if (!PyDict_Check(given[2])) fail(ErrorKind::Type, "perturb must be a dict");
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(given[2], &at, &key, &value)) perturb.emplace(call_named(p, key), perturbation_from(value));
    }
    Program::Observer observer;
    std::vector<Program::CallInfo> calls;
    if (given[1] != nullptr && given[1] != Py_None) {
      calls = p.calls();
      observer = [&](const Program::Seen& seen) {
        WithGil gil;
        Ref inputs = checked(nested_inputs(seen, calls[static_cast<size_t>(seen.call)].list)),
            attrs = checked(attrs_dict(seen.attrs)), outputs = checked(PyList_New(0));
        for (const Tensor& t : seen.outputs) checked_status(PyList_Append(outputs.get(), checked(wrap(t)).get()));
        checked(PyObject_CallFunction(given[1], "iOOO", seen.call, inputs.get(), attrs.get(), outputs.get()));
      };
    }
    std::vector<Program::Result> results;
    {
      WithoutGil unlocked;
      results = p.run(tensors, observer, perturb);
    }
    return results_dict(p, std::move(results));
  });
}

PyObject* method_run_call(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return guarded([&] {
    PyObject* given[3];
    parse_args("run_call", args, n, names, {"id", "inputs", "symbols"}, 2, given);
    Program& p = program_of(self);
    int call = call_named(p, given[0]);
    std::vector<bool> list = p.calls()[static_cast<size_t>(call)].list;
    Ref items = checked(PySequence_Fast(given[1], "inputs must be a list, one entry per input of the op"));
    if (PySequence_Fast_GET_SIZE(items.get()) != static_cast<Py_ssize_t>(list.size()))
      fail(ErrorKind::Value, "run_call: ", list.size(), " inputs wanted, got ", PySequence_Fast_GET_SIZE(items.get()));
    std::forward_list<Tensor> held;
    std::vector<ow::Operand> flat;
    std::vector<int32_t> list_len;
    auto take = [&](PyObject* value) {
      ow::Scalar number;
      if (value == Py_None) {
        flat.push_back({});
      } else if (scalar_from(value, &number)) {
        flat.push_back(ow::Operand::weak(number));
      } else {
        held.emplace_front();
        if (!tensor_from(value, &held.front()))
          fail(ErrorKind::Type, "run_call: ", Py_TYPE(value)->tp_name, " is no array");
        flat.push_back(ow::Operand::of(&held.front()));
      }
    };
    for (size_t k = 0; k < list.size(); ++k) {
      PyObject* value = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k));
      if (!list[k]) {
        take(value);
        continue;
      }
      if (value == Py_None) {
        list_len.push_back(0);
        continue;
      }
      Ref inner = checked(PySequence_Fast(value, "run_call: a list of arrays is wanted"));
      list_len.push_back(static_cast<int32_t>(PySequence_Fast_GET_SIZE(inner.get())));
      for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(inner.get()); ++j)
        take(PySequence_Fast_GET_ITEM(inner.get(), j));
    }
    std::map<std::string, int64_t> environment;
    if (given[2] != nullptr && given[2] != Py_None) {
      if (!PyDict_Check(given[2])) fail(ErrorKind::Type, "symbols must be a dict");
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(given[2], &at, &key, &value))
        environment[utf8(key, "a symbol's name")] = int_from(value, "a symbol's value");
    }
    std::vector<Tensor> outputs;
    {
      WithoutGil unlocked;
      outputs = p.run_call(call, flat, list_len, environment);
    }
    Ref out = checked(PyList_New(0));
    for (Tensor& t : outputs) checked_status(PyList_Append(out.get(), checked(wrap(std::move(t))).get()));
    return out.release();
  });
}

PyObject* method_symbols(PyObject* self, PyObject* mapping) {
  return guarded([&] {
    Program& p = program_of(self);
    Ref out = checked(PyDict_New());
    for (const auto& [name, value] : p.symbols(tensors_from(p, mapping)))
      checked_status(PyDict_SetItemString(out.get(), name.c_str(), checked(PyLong_FromLongLong(value)).get()));
    return out.release();
  });
}

PyObject* method_plan(PyObject* self, PyObject* mapping) {
  return guarded([&] {
    Program& p = program_of(self);
    std::vector<Tensor> tensors = tensors_from(p, mapping);
    Program::Plan plan;
    {
      WithoutGil unlocked;
      plan = p.plan(tensors);
    }
    return Py_BuildValue("{s:L,s:L,s:i,s:i,s:i}", "arena_bytes", static_cast<long long>(plan.arena), "unshared_bytes",
                         static_cast<long long>(plan.unshared), "calls", plan.calls, "dynamic_calls", plan.dynamic,
                         "donated_states", plan.donated);
  });
}

PyObject* ports_list(const std::vector<Program::Port>& ports) {
  Ref out = checked(PyList_New(0));
  for (const Program::Port& port : ports) {
    Ref shape = checked(PyList_New(0));
    for (const std::string& extent : port.shape)
      checked_status(PyList_Append(shape.get(), checked(PyUnicode_FromString(extent.c_str())).get()));
    Ref item =
        checked(Py_BuildValue("{s:s,s:s,s:O,s:O}", "name", port.name.c_str(), "dtype", ow::dtype_name(port.dtype),
                              "shape", shape.get(), "scalar", port.scalar ? Py_True : Py_False));
    checked_status(PyList_Append(out.get(), item.get()));
  }
  return out.release();
}

PyObject* get_name(PyObject* self, void*) { return PyUnicode_FromString(program_of(self).name().c_str()); }
PyObject* get_json(PyObject* self, void*) {
  return guarded([&] { return json_to(program_of(self).json()); });
}
PyObject* get_inputs(PyObject* self, void*) {
  return guarded([&] { return ports_list(program_of(self).inputs()); });
}
PyObject* get_outputs(PyObject* self, void*) {
  return guarded([&] { return ports_list(program_of(self).outputs()); });
}
PyObject* get_calls(PyObject* self, void*) {
  return guarded([&] {
    Ref out = checked(PyList_New(0));
    for (const Program::CallInfo& call : program_of(self).calls()) {
      Ref item = checked(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", call.id.c_str(), "op", call.op.c_str(),
                                       "site", call.site.c_str(), "aten", call.aten.c_str(), "symbol",
                                       call.symbol.c_str(), "library", call.library.c_str()));
      checked_status(PyList_Append(out.get(), item.get()));
    }
    return out.release();
  });
}

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"run", method_run, METH_O, "run({name: array}) -> {name: Tensor}."},
    {"run_debug", method(method_run_debug), METH_FASTCALL | METH_KEYWORDS,
     "run_debug(inputs, observer=None, perturb=None) -> {name: Tensor}; observer(call, inputs, attrs, outputs) after "
     "each call."},
    {"run_call", method(method_run_call), METH_FASTCALL | METH_KEYWORDS,
     "run_call(id, inputs, symbols=None) -> the call's outputs."},
    {"symbols", method_symbols, METH_O, "symbols(inputs) -> {symbol: extent}."},
    {"plan", method_plan, METH_O, "plan(inputs) -> what the memory plan of these sizes costs."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kGetSet[] = {
    {"name", get_name, nullptr, "The program's name.", nullptr},
    {"json", get_json, nullptr, "program.json as Python data.", nullptr},
    {"inputs", get_inputs, nullptr, "Names, dtypes and extents of the inputs.", nullptr},
    {"outputs", get_outputs, nullptr, "Names, dtypes and extents of the outputs.", nullptr},
    {"calls", get_calls, nullptr, "The calls in order: id, op, site, aten, and the kernel that runs them.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

OW_PYTHON_TYPE(ProgramType);
PyTypeObject* program_type() { return &ProgramType; }

PyMethodDef kFunctions[] = {
    {"load_program", py_load, METH_O,
     "load_program(folder) -> a program, every call resolved; load_program((folder, kernels, dialect)) by a table."},
    {"program_requests", py_requests, METH_O, "program_requests(folder) -> [(text, request), …]: what its calls ask."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_program(PyObject* module) {
  ProgramType.tp_name = "opwright.CoreProgram";
  ProgramType.tp_basicsize = sizeof(ProgramObject);
  ProgramType.tp_dealloc = dealloc;
  ProgramType.tp_flags = Py_TPFLAGS_DEFAULT;
  ProgramType.tp_methods = kMethods;
  ProgramType.tp_getset = kGetSet;
  if (PyType_Ready(&ProgramType) < 0) return -1;
  return PyModule_AddFunctions(module, kFunctions);
}

}  // namespace owpy
