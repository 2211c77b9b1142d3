// The Python side of the dispatcher: the Op type (vectorcall), registration, and the bridge to the miss hook.
// What a signature, a request and an answer hold: docs/internals.md, "The call path".
#include "py_common.h"
#include "py_fast.h"

#include <cmath>
#include <forward_list>
#include <memory>
#include <optional>
#include <vector>

namespace owpy {

using ow::AttrKind;
using ow::AttrSpec;
using ow::AttrValue;
using ow::ErrorKind;
using ow::fail;
using ow::OpEntry;
using ow::Tensor;

// ---- attributes ----

namespace {

[[noreturn]] void wrong_attr(const std::string& op, const AttrSpec& spec, const char* want, PyObject* got) {
  fail(ErrorKind::Type, op, ": attribute '", spec.name, "' must be ", want, ", got ", Py_TYPE(got)->tp_name);
}

double float_from(PyObject* value, const std::string& op, const AttrSpec& spec) {
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  if (!PyUnicode_Check(value) && PyNumber_Check(value) && !PyComplex_Check(value)) {
    double out = PyFloat_AsDouble(value);
    if (out == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      wrong_attr(op, spec, "a float", value);
    }
    return out;
  }
  wrong_attr(op, spec, "a float", value);
}

bool is_bool(PyObject* value) {
  if (PyBool_Check(value)) return true;
  std::string_view name = Py_TYPE(value)->tp_name;
  return name == "numpy.bool" || name == "numpy.bool_";
}

}  // namespace

AttrValue attr_from(PyObject* value, const AttrSpec& spec, const std::string& op) {
  AttrValue out;
  if (value == Py_None) {
    bool allowed = spec.optional || (spec.has_default && !spec.default_value.present());
    if (!allowed) fail(ErrorKind::Type, op, ": attribute '", spec.name, "' must not be None");
    return out;
  }
  auto is_int = [&] { return PyIndex_Check(value) && !(is_tensor(value) && !ow::is_integral(tensor_of(value).dtype)); };
  std::string what = op + ": attribute '" + spec.name + "'";
  switch (spec.kind) {
    case AttrKind::Bool:
      if (is_bool(value)) {
        int truth = PyObject_IsTrue(value);
        checked_status(truth);
        out.set_bool(truth != 0);
      } else if (PyLong_Check(value)) {
        int64_t number = int_from(value, what.c_str());
        if (number != 0 && number != 1) wrong_attr(op, spec, "a bool", value);
        out.set_bool(number != 0);
      } else {
        wrong_attr(op, spec, "a bool", value);
      }
      break;
    case AttrKind::Int:
    case AttrKind::Axis:
      if (!is_int()) wrong_attr(op, spec, "an int", value);
      out.set_int(int_from(value, what.c_str()));
      break;
    case AttrKind::Float:
      out.set_float(float_from(value, op, spec));
      break;
    case AttrKind::Scalar:
      if (is_bool(value))
        out.set_bool(PyObject_IsTrue(value) == 1);
      else if (is_int())
        out.set_int(int_from(value, what.c_str()));
      else
        out.set_float(float_from(value, op, spec));
      break;
    case AttrKind::Ints:
    case AttrKind::Axes: {
      out.tag = AttrValue::Tag::Ints;
      if (is_int()) {
        out.ints.push_back(int_from(value, what.c_str()));
        break;
      }
      ow::SmallVec<int64_t, 16> items;
      if (!ints_from(value, &items, what.c_str())) wrong_attr(op, spec, "a sequence of ints", value);
      out.ints.append(items.begin(), items.end());
      break;
    }
    case AttrKind::Floats: {
      out.tag = AttrValue::Tag::Floats;
      if (PyUnicode_Check(value) || !PySequence_Check(value)) wrong_attr(op, spec, "a sequence of floats", value);
      Ref items = checked(PySequence_Fast(value, "a sequence of floats is wanted"));
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k)
        out.floats.push_back(float_from(PySequence_Fast_GET_ITEM(items.get(), k), op, spec));
      break;
    }
    case AttrKind::DType:
      out.set_dtype(naming([&] { return what; }, [&] { return dtype_from(value); }));
      break;
    case AttrKind::Text:
      if (!PyUnicode_Check(value)) wrong_attr(op, spec, "a string", value);
      out.tag = AttrValue::Tag::Text;
      out.text = utf8(value, what.c_str());
      break;
  }
  return out;
}

PyObject* attr_to(const AttrValue& value, AttrKind kind) {
  auto list = [](const auto& items, auto make) -> PyObject* {
    Ref out = checked(PyList_New(0));
    for (auto item : items) checked_status(PyList_Append(out.get(), checked(make(item)).get()));
    return out.release();
  };
  switch (value.tag) {
    case AttrValue::Tag::Absent:
      Py_RETURN_NONE;
    case AttrValue::Tag::Bool:
      return PyBool_FromLong(value.i != 0);
    case AttrValue::Tag::Int:
      return PyLong_FromLongLong(value.i);
    case AttrValue::Tag::Float:
      return PyFloat_FromDouble(value.f);
    case AttrValue::Tag::DType:
      return PyUnicode_FromString(ow::dtype_name(static_cast<ow::DType>(value.i)));
    case AttrValue::Tag::Text:
      return PyUnicode_FromStringAndSize(value.text.data(), static_cast<Py_ssize_t>(value.text.size()));
    case AttrValue::Tag::Ints:
      if (kind == AttrKind::Floats) return list(value.floats, [](double v) { return PyFloat_FromDouble(v); });
      return list(value.ints, [](int64_t v) { return PyLong_FromLongLong(v); });
    case AttrValue::Tag::Floats:
      return list(value.floats, [](double v) { return PyFloat_FromDouble(v); });
  }
  Py_RETURN_NONE;
}

// ---- calls ----

namespace {

struct OpObject {
  PyObject_HEAD OpEntry* entry;
  vectorcallfunc vectorcall;
  ShortCalls* fast;
};

OpEntry& entry_of(PyObject* self) { return *reinterpret_cast<OpObject*>(self)->entry; }

PyObject* op_objects = nullptr;  // name -> Op, so that there is one of each

// Tensors made for foreign arguments; the first few without the heap.
class Holders {
 public:
  Tensor* next() {
    if (used_ < 4) return &inline_[used_++];
    more_.emplace_front();
    return &more_.front();
  }

 private:
  Tensor inline_[4];
  int used_ = 0;
  std::forward_list<Tensor> more_;
};

// `at`: the entry of a list input, or -1.
ow::Operand operand_from(PyObject* value, Holders& holders, const std::string& op, const std::string& name,
                         Py_ssize_t at) {
  if (is_tensor(value)) return ow::Operand::of(&tensor_of(value));
  auto what = [&] { return ow::cat(op, ": input '", name, at < 0 ? "" : ow::cat("[", at, "]"), "'"); };
  std::optional<ow::Operand> found = naming(what, [&]() -> std::optional<ow::Operand> {
    ow::Scalar number;
    if (scalar_from(value, &number)) return ow::Operand::weak(number);
    Tensor* made = holders.next();
    if (tensor_from(value, made)) return ow::Operand::of(made);
    if (PyFloat_Check(value)) return ow::Operand::weak(ow::Scalar::of_float(PyFloat_AS_DOUBLE(value)));
    if (PyLong_Check(value)) return ow::Operand::weak(ow::Scalar::of_int(int_from(value, "an integer")));
    return std::nullopt;
  });
  if (found) return *found;
  if (value == Py_None) fail(ErrorKind::Type, what(), " is missing");
  fail(ErrorKind::Type, what(), " must be an array or a number, got ", Py_TYPE(value)->tp_name,
       PyList_Check(value) || PyTuple_Check(value) ? "; make one with ow.tensor(...)" : "");
}

// Fills `call` and `attrs` from arguments in the order inputs, attributes; null means not given.
void canonical(const ow::Signature& sig, PyObject* const* given, ow::Invocation& call, AttrValue* attrs,
               Holders& holders) {
  for (size_t k = 0; k < sig.inputs.size(); ++k) {
    const ow::InputSpec& input = sig.inputs[k];
    PyObject* value = given[k];
    bool absent = value == nullptr || value == Py_None;
    if (absent && !input.optional) fail(ErrorKind::Type, sig.name, ": input '", input.name, "' is missing");
    if (!input.list) {
      call.flat.push_back(absent ? ow::Operand{} : operand_from(value, holders, sig.name, input.name, -1));
      continue;
    }
    if (absent) {
      call.list_len.push_back(0);
      continue;
    }
    if (!PyList_Check(value) && !PyTuple_Check(value))
      fail(ErrorKind::Type, sig.name, ": input '", input.name, "' must be a list of arrays, got ",
           Py_TYPE(value)->tp_name);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
    call.list_len.push_back(static_cast<int32_t>(n));
    for (Py_ssize_t j = 0; j < n; ++j) {
      PyObject* item = PySequence_Fast_GET_ITEM(value, j);
      call.flat.push_back(operand_from(item, holders, sig.name, input.name, j));
    }
  }
  for (size_t k = 0; k < sig.attrs.size(); ++k) {
    const AttrSpec& attr = sig.attrs[k];
    PyObject* value = given[sig.inputs.size() + k];
    if (value != nullptr)
      attrs[k] = attr_from(value, attr, sig.name);
    else if (attr.has_default)
      attrs[k] = attr.default_value;
    else if (!attr.optional)
      fail(ErrorKind::Type, sig.name, ": attribute '", attr.name, "' is missing");
  }
  call.attrs = attrs;
}

void take_out(PyObject* out, const ow::Signature& sig, Tensor* outputs) {
  auto take = [&](PyObject* item, Tensor* into, const std::string& name) {
    if (item == Py_None) return;
    Tensor made;
    if (!naming([&] { return sig.name + ": out '" + name + "'"; }, [&] { return tensor_from(item, &made); }))
      fail(ErrorKind::Type, sig.name, ": out must be an array, got ", Py_TYPE(item)->tp_name);
    *into = std::move(made);
  };
  bool many = PyTuple_Check(out) || PyList_Check(out);
  Py_ssize_t n = many ? PySequence_Fast_GET_SIZE(out) : 1;
  if (n != sig.n_visible) fail(ErrorKind::Value, sig.name, ": ", sig.n_visible, " outputs wanted in out, got ", n);
  Py_ssize_t at = 0;
  for (size_t k = 0; k < sig.outputs.size(); ++k) {
    if (sig.outputs[k].aux) continue;
    take(many ? PySequence_Fast_GET_ITEM(out, at) : out, &outputs[k], sig.outputs[k].name);
    ++at;
  }
}

std::string arguments_of(const ow::Signature& sig) {
  std::string text;
  for (const ow::InputSpec& input : sig.inputs) text += input.name + ", ";
  for (const AttrSpec& attr : sig.attrs)
    if (attr.name != "out") text += attr.name + ", ";
  return text + "out";
}

PyObject* call_op(OpEntry& op, PyObject* const* args, Py_ssize_t n, PyObject* kwnames, bool all) {
  const ow::Signature& sig = op.signature;
  size_t total = sig.inputs.size() + sig.attrs.size();
  ow::SmallVec<PyObject*, 24> given(total, nullptr);
  PyObject* out = nullptr;
  if (static_cast<size_t>(n) > total) fail(ErrorKind::Type, sig.name, ": takes at most ", total, " arguments, got ", n);
  for (Py_ssize_t k = 0; k < n; ++k) given[static_cast<size_t>(k)] = args[k];
  Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(kwnames, k), &length);
    if (text == nullptr) throw PyRaised{};
    std::string_view name(text, static_cast<size_t>(length));
    PyObject* value = args[n + k];
    int at = sig.find_input(name);
    if (at < 0 && (at = sig.find_attr(name)) >= 0) at += static_cast<int>(sig.inputs.size());
    if (at < 0 && name == "out") {
      out = value;
      continue;
    }
    if (at < 0) fail(ErrorKind::Type, sig.name, ": has no argument '", name, "'; it takes ", arguments_of(sig));
    if (given[static_cast<size_t>(at)] != nullptr)
      fail(ErrorKind::Type, sig.name, ": argument '", name, "' is given twice");
    given[static_cast<size_t>(at)] = value;
  }

  Holders holders;
  ow::Invocation call;
  AttrValue few_attrs[6];
  std::vector<AttrValue> many_attrs(sig.attrs.size() > 6 ? sig.attrs.size() : 0);
  AttrValue* attrs = sig.attrs.size() > 6 ? many_attrs.data() : few_attrs;
  canonical(sig, given.data(), call, attrs, holders);

  Tensor few_outputs[3];
  std::vector<Tensor> many_outputs(sig.outputs.size() > 3 ? sig.outputs.size() : 0);
  Tensor* outputs = sig.outputs.size() > 3 ? many_outputs.data() : few_outputs;
  if (out != nullptr && out != Py_None) take_out(out, sig, outputs);

  ow::Dispatcher& dispatcher = ow::Dispatcher::instance();
  const ow::Kernel& kernel = dispatcher.resolve(op, call);
  {
    WithoutGil unlocked;
    dispatcher.run(op, kernel, call, outputs);
  }
  size_t count = kernel.row.outputs.size();
  Py_ssize_t shown = all ? static_cast<Py_ssize_t>(count) : sig.n_visible;
  Ref result;
  if (all || shown != 1) result = checked(PyTuple_New(shown));
  Py_ssize_t at = 0;
  bool reuse = out != nullptr && is_tensor(out);  // `out=` gives back the same object
  for (size_t k = 0; k < count; ++k) {
    if (!all && sig.outputs[k].aux) continue;
    PyObject* item = reuse ? Py_NewRef(out) : wrap(std::move(outputs[k]));
    if (!result) return item;
    PyTuple_SET_ITEM(result.get(), at++, item);
  }
  return result.release();
}

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (PyObject* done = reinterpret_cast<OpObject*>(self)->fast->call(args, n, kwnames)) return done;
  if (PyErr_Occurred()) return nullptr;
  return guarded([&] { return call_op(entry_of(self), args, n, kwnames, false); });
}

PyObject* method_all(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&] { return call_op(entry_of(self), args, n, kwnames, true); });
}

PyObject* method_forget(PyObject* self, PyObject*) {
  ow::Dispatcher::instance().forget(entry_of(self));
  Py_RETURN_NONE;
}

// "softmax(x, axis=-1) -> y"
std::string call_text(const ow::Signature& sig) {
  std::string text = sig.name + "(";
  bool first = true;
  auto item = [&](const std::string& name) {
    if (!first) text += ", ";
    first = false;
    text += name;
  };
  for (const ow::InputSpec& input : sig.inputs)
    item((input.list ? "[" + input.name + ", ...]" : input.name) + (input.optional ? "=None" : ""));
  for (const AttrSpec& attr : sig.attrs)
    item(attr.name + (attr.has_default ? "=" + attr.default_value.print() : attr.optional ? "=None" : ""));
  text += ") -> ";
  first = true;
  for (const ow::OutputSpec& output : sig.outputs)
    if (!output.aux) item(output.name);
  return text;
}

PyObject* get_name(PyObject* self, void*) { return PyUnicode_FromString(entry_of(self).signature.name.c_str()); }
PyObject* get_doc(PyObject* self, void*) {
  return guarded([&] {
    const ow::Signature& sig = entry_of(self).signature;
    std::string text = call_text(sig);
    if (!sig.doc.empty()) text += "\n\n" + sig.doc;
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  });
}

PyObject* get_signature(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const ow::Signature& sig = entry_of(self).signature;
    Ref inputs = checked(PyList_New(0)), attrs = checked(PyList_New(0)), outputs = checked(PyList_New(0));
    auto flag = [](bool value) { return value ? Py_True : Py_False; };
    for (const ow::InputSpec& input : sig.inputs)
      checked_status(
          PyList_Append(inputs.get(), checked(Py_BuildValue("{s:s,s:O,s:O}", "name", input.name.c_str(), "optional",
                                                            flag(input.optional), "list", flag(input.list)))
                                          .get()));
    for (const AttrSpec& attr : sig.attrs) {
      Ref item =
          checked(Py_BuildValue("{s:s,s:s,s:O,s:O}", "name", attr.name.c_str(), "kind", ow::attr_kind_name(attr.kind),
                                "static", flag(attr.is_static), "optional", flag(attr.optional)));
      if (attr.has_default)
        checked_status(
            PyDict_SetItemString(item.get(), "default", checked(attr_to(attr.default_value, attr.kind)).get()));
      checked_status(PyList_Append(attrs.get(), item.get()));
    }
    for (const ow::OutputSpec& output : sig.outputs)
      checked_status(PyList_Append(
          outputs.get(),
          checked(Py_BuildValue("{s:s,s:O}", "name", output.name.c_str(), "aux", flag(output.aux))).get()));
    return Py_BuildValue("{s:s,s:s,s:O,s:O,s:O}", "name", sig.name.c_str(), "doc", sig.doc.c_str(), "inputs",
                         inputs.get(), "attrs", attrs.get(), "outputs", outputs.get());
  });
}

PyObject* signature_maker = nullptr;  // (op) -> inspect.Signature

PyObject* get_python_signature(PyObject* self, void*) {
  if (signature_maker != nullptr) return PyObject_CallOneArg(signature_maker, self);
  PyErr_SetString(PyExc_AttributeError, "__signature__");
  return nullptr;
}

PyObject* set_signature_maker(PyObject*, PyObject* callable) {
  Py_XSETREF(signature_maker, Py_NewRef(callable));
  Py_RETURN_NONE;
}

PyObject* op_repr(PyObject* self) {
  return guarded([&] { return PyUnicode_FromFormat("<op %s>", call_text(entry_of(self).signature).c_str()); });
}

PyGetSetDef kOpGetSet[] = {
    {"__name__", get_name, nullptr, "The op's name.", nullptr},
    {"__doc__", get_doc, nullptr, "How it is called, and what it does.", nullptr},
    {"signature", get_signature, nullptr, "Inputs, attributes and outputs, as registered.", nullptr},
    {"__signature__", get_python_signature, nullptr, "The same for inspect and notebooks.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef kOpMethods[] = {
    {"all", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method_all)), METH_FASTCALL | METH_KEYWORDS,
     "all(...) -> every output, the auxiliary ones too, as a tuple."},
    {"forget", method_forget, METH_NOARGS, "forget(): the next calls ask the miss hook again."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* object_of(OpEntry& entry) {
  const std::string& name = entry.signature.name;
  if (PyObject* known = PyDict_GetItemString(op_objects, name.c_str())) return Py_NewRef(known);
  auto* made = PyObject_New(OpObject, &OpType);
  if (made == nullptr) throw PyRaised{};
  made->entry = &entry;
  made->vectorcall = vectorcall;
  made->fast = new ShortCalls(&entry);  // as long as the op, which is for ever
  Ref held(reinterpret_cast<PyObject*>(made));
  checked_status(PyDict_SetItemString(op_objects, name.c_str(), held.get()));
  return held.release();
}

// ---- registration ----

PyObject* register_op(PyObject*, PyObject* signature) {
  return guarded([&] {
    if (!PyDict_Check(signature))
      fail(ErrorKind::Type, "register_op: a dict is wanted, got ", Py_TYPE(signature)->tp_name);
    auto field = [&](PyObject* dict, const char* key) { return PyDict_GetItemString(dict, key); };
    auto text = [&](PyObject* dict, const char* key, bool required) -> std::string {
      PyObject* value = field(dict, key);
      if (value == nullptr || value == Py_None) {
        if (required) fail(ErrorKind::Value, "register_op: '", key, "' is missing");
        return "";
      }
      return utf8(value, key);
    };
    auto flag = [&](PyObject* dict, const char* key) {
      PyObject* value = field(dict, key);
      return value != nullptr && PyObject_IsTrue(value) == 1;
    };
    auto each = [&](const char* key, auto&& body) {
      PyObject* items = field(signature, key);
      if (items == nullptr) return;
      Ref list = checked(PySequence_Fast(items, "register_op: a list is wanted"));
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(list.get()); ++k) {
        PyObject* item = PySequence_Fast_GET_ITEM(list.get(), k);
        if (!PyDict_Check(item)) fail(ErrorKind::Type, "register_op: items of '", key, "' must be dicts");
        body(item);
      }
    };
    ow::Signature sig;
    sig.name = text(signature, "name", true);
    sig.doc = text(signature, "doc", false);
    each("inputs", [&](PyObject* item) {
      sig.inputs.push_back({text(item, "name", true), flag(item, "optional"), flag(item, "list")});
    });
    each("attrs", [&](PyObject* item) {
      AttrSpec attr;
      attr.name = text(item, "name", true);
      attr.kind = ow::parse_attr_kind(text(item, "kind", true), "op '" + sig.name + "', attribute '" + attr.name + "'");
      attr.is_static = flag(item, "static");
      attr.optional = flag(item, "optional");
      if (PyObject* value = field(item, "default")) {
        attr.has_default = true;
        attr.default_value = attr_from(value, attr, sig.name);
      }
      sig.attrs.push_back(std::move(attr));
    });
    each("outputs", [&](PyObject* item) { sig.outputs.push_back({text(item, "name", true), flag(item, "aux")}); });
    if (sig.outputs.empty()) fail(ErrorKind::Value, "register_op: op '", sig.name, "' has no outputs");
    if (sig.outputs.size() > 31) fail(ErrorKind::Value, "register_op: op '", sig.name, "' has more than 31 outputs");
    return object_of(ow::Dispatcher::instance().register_op(std::move(sig)));
  });
}

PyObject* lookup_op(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    OpEntry* entry = ow::Dispatcher::instance().find(utf8(name, "name"));
    if (entry == nullptr) Py_RETURN_NONE;
    return object_of(*entry);
  });
}

PyObject* op_names(PyObject*, PyObject*) {
  return guarded([&] {
    Ref out = checked(PyList_New(0));
    for (const std::string& name : ow::Dispatcher::instance().names())
      checked_status(PyList_Append(out.get(), checked(PyUnicode_FromString(name.c_str())).get()));
    return out.release();
  });
}

PyObject* op_lookup = nullptr;

PyObject* set_op_lookup(PyObject*, PyObject* callable) {
  Py_INCREF(callable);
  Py_XSETREF(op_lookup, callable);
  Py_RETURN_NONE;
}

// ---- the miss hook ----

}  // namespace

PyObject* request_dict(const ow::Request& request) {
  auto one = [](const ow::Request::Input& input) -> PyObject* {
    if (!input.present) Py_RETURN_NONE;
    return Py_BuildValue("{s:s,s:i,s:O}", "dtype", ow::dtype_name(input.dtype), "rank", input.rank, "weak",
                         input.weak ? Py_True : Py_False);
  };
  Ref inputs = checked(PyList_New(0)), attrs = checked(PyDict_New());
  size_t flat = 0, list = 0;
  for (bool is_list : request.is_list) {
    Ref item;
    if (is_list) {
      item = checked(PyList_New(0));
      for (int32_t k = 0; k < request.list_len[list]; ++k)
        checked_status(PyList_Append(item.get(), checked(one(request.flat[flat++])).get()));
      ++list;
    } else {
      item = checked(one(request.flat[flat++]));
    }
    checked_status(PyList_Append(inputs.get(), item.get()));
  }
  for (const auto& [name, value] : request.attrs)
    checked_status(PyDict_SetItemString(attrs.get(), name.c_str(), checked(attr_to(value, AttrKind::Scalar)).get()));
  Ref out =
      checked(Py_BuildValue("{s:s,s:O,s:O}", "op", request.op.c_str(), "inputs", inputs.get(), "attrs", attrs.get()));
  if (!request.group.empty())
    checked_status(
        PyDict_SetItemString(out.get(), "group", checked(PyUnicode_DecodeFSDefault(request.group.c_str())).get()));
  return out.release();
}

namespace {

ow::Resolution resolution_from(PyObject* answer, const std::string& op) {
  std::string where = "the miss hook's answer for op '" + op + "'";
  if (!PyDict_Check(answer)) fail(ErrorKind::Runtime, where, " is no dict but ", Py_TYPE(answer)->tp_name);
  PyObject* library = PyDict_GetItemString(answer, "library");
  PyObject* row = PyDict_GetItemString(answer, "row");
  PyObject* casts = PyDict_GetItemString(answer, "casts");
  if (library == nullptr || row == nullptr) fail(ErrorKind::Runtime, where, " lacks 'library' or 'row'");
  ow::Resolution out;
  Ref path = checked(PyOS_FSPath(library));
  out.library = utf8(path.get(), "library");
  out.row = ow::Row::from_json(json_from(row, where), where);
  if (casts != nullptr && casts != Py_None) {
    Ref items = checked(PySequence_Fast(casts, "casts must be a list"));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.get(), k);
      if (item == Py_None)
        out.casts.push_back(std::nullopt);
      else
        out.casts.push_back(dtype_from(item));
    }
  }
  return out;
}

PyObject* miss_hook = nullptr;

PyObject* set_miss_hook(PyObject*, PyObject* callable) {
  if (callable == Py_None) {
    Py_CLEAR(miss_hook);
    ow::Dispatcher::instance().set_miss_hook(nullptr);
    Py_RETURN_NONE;
  }
  Py_INCREF(callable);
  Py_XSETREF(miss_hook, callable);
  ow::Dispatcher::instance().set_miss_hook([](const std::vector<ow::Request>& requests) {
    Ref hook = Ref::borrow(miss_hook), list = checked(PyList_New(0));
    for (const ow::Request& request : requests)
      checked_status(PyList_Append(list.get(), checked(request_dict(request)).get()));
    Ref answer = checked(PyObject_CallOneArg(hook.get(), list.get()));
    Ref items = checked(PySequence_Fast(answer.get(), "the miss hook must answer with a list"));
    if (PySequence_Fast_GET_SIZE(items.get()) != static_cast<Py_ssize_t>(requests.size()))
      fail(ErrorKind::Runtime, "the miss hook gave ", PySequence_Fast_GET_SIZE(items.get()), " answers to ",
           requests.size(), " requests");
    std::vector<ow::Resolution> out;
    for (size_t k = 0; k < requests.size(); ++k)
      out.push_back(resolution_from(PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k)), requests[k].op));
    return out;
  });
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"register_op", register_op, METH_O, "register_op(signature) -> the Op of that name."},
    {"lookup_op", lookup_op, METH_O, "lookup_op(name) -> the Op, or None."},
    {"op_names", op_names, METH_NOARGS, "op_names() -> sorted names of the registered ops."},
    {"set_signature_maker", set_signature_maker, METH_O, "set_signature_maker(f): f(op) -> its inspect.Signature."},
    {"set_op_lookup", set_op_lookup, METH_O, "set_op_lookup(f): f(name) -> Op serves the operators of Tensor."},
    {"set_miss_hook", set_miss_hook, METH_O, "set_miss_hook(f): f([request, ...]) -> [answer, ...]."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

OW_PYTHON_TYPE(OpType);

PyObject* call_op_object(PyObject* op, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return vectorcall(op, args, static_cast<size_t>(n), kwnames);
}

PyObject* op_by_name(const char* name) {
  PyObject* known = op_objects == nullptr ? nullptr : PyDict_GetItemString(op_objects, name);
  if (known != nullptr) return Py_NewRef(known);
  if (op_lookup == nullptr) {
    ow::Error error(ErrorKind::Missing, ow::cat("op '", name, "' is not registered"));
    set_python_error(error);
    return nullptr;
  }
  return PyObject_CallFunction(op_lookup, "s", name);
}

int add_ops(PyObject* module) {
  op_objects = PyDict_New();
  if (op_objects == nullptr) return -1;
  OpType.tp_name = "opwright.Op";
  OpType.tp_basicsize = sizeof(OpObject);
  OpType.tp_vectorcall_offset = offsetof(OpObject, vectorcall);
  OpType.tp_call = PyVectorcall_Call;
  OpType.tp_repr = op_repr;
  OpType.tp_dealloc = [](PyObject* self) { PyObject_Free(self); };
  OpType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  OpType.tp_methods = kOpMethods;
  OpType.tp_getset = kOpGetSet;
  if (PyType_Ready(&OpType) < 0) return -1;
  if (PyModule_AddObjectRef(module, "Op", reinterpret_cast<PyObject*>(&OpType)) < 0) return -1;
  return PyModule_AddFunctions(module, kFunctions);
}

}  // namespace owpy
