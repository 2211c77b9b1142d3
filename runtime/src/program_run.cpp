// Running a bound program (program.h): addresses, then node after node. Holds no GIL and calls no Python, except
// through an observer.
#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "program.h"

namespace ow {

std::string Program::describe(const Node& node) const {
  std::string text = name_ + ": node '" + node.id + "' (" + node.op_name;
  if (!node.site.empty()) text += ", " + node.site;
  return text + ")";
}

void Program::fail_in(const Node& node, const Error& error) const {
  throw Error(error.kind(), describe(node) + ": " + error.message());
}

void Program::check_assertion(const Node& node, const std::vector<Number>& environment) const {
  if (node.expr.eval(environment) == 0)
    fail(ErrorKind::Value, node.message.empty() ? "an assertion of the model" : node.message,
         " does not hold: ", node.expr.text());
}

int Program::find_call(const std::string& id) const {
  for (size_t k = 0; k < calls_.size(); ++k)
    if (nodes_[static_cast<size_t>(calls_[k])].id == id) return static_cast<int>(k);
  return -1;
}

std::vector<Program::CallInfo> Program::calls() const {
  std::vector<CallInfo> out;
  for (int index : calls_) {
    const Node& node = nodes_[static_cast<size_t>(index)];
    out.push_back(
        {node.id, node.op_name, node.site, node.aten, node.kernel->row.symbol, node.kernel->library, node.list});
  }
  return out;
}

// ---- addresses ----

void Binding::point(const Program::Node& node) {
  PreparedCall& c = calls[static_cast<size_t>(node.call)];
  size_t n_in = node.args.size();
  char* base = arena ? arena->data() : nullptr;
  auto temporary = [&](int64_t offset, int64_t bytes) -> char* {
    if (!node.dynamic) return base + offset;
    c.temporaries.push_back(new_storage(static_cast<size_t>(bytes)));
    return c.temporaries.back()->data();
  };
  for (size_t k = 0; k < n_in; ++k) {
    int value = node.args[k].value;
    if (value < 0 || (node.dynamic && c.cast_offset[k] >= 0)) continue;  // a dynamic call was prepared with its copy
    c.tensors[k].data = c.cast_offset[k] >= 0 ? base + c.cast_offset[k] : data[static_cast<size_t>(value)];
  }
  for (size_t k = 0; k < node.outs.size(); ++k) {
    OwTensor& t = c.tensors[n_in + k];
    t.data = node.outs[k] < 0 ? temporary(c.unread_offset[k], dense_bytes(t)) : data[static_cast<size_t>(node.outs[k])];
  }
  c.call.workspace_bytes = c.workspace_bytes;
  c.call.workspace = c.workspace_bytes > 0 ? temporary(c.workspace_offset, c.workspace_bytes) : nullptr;
}

namespace {

Layout layout_of(const OwTensor& t, DType dtype) {
  return {static_cast<char*>(t.data), dtype, t.ndim, t.shape, t.strides};
}

DType dtype_of(const OwTensor& t) {
  DType out = DType::F32;
  from_dlpack(t.dtype, &out);
  return out;
}

Tensor copy_of(const OwTensor& t) {
  Tensor copy = empty(t.shape, t.ndim, dtype_of(t));
  copy_layout({copy.data(), copy.dtype, copy.rank, copy.sizes, copy.strides}, layout_of(t, copy.dtype));
  return copy;
}

}  // namespace

std::vector<std::pair<std::string, AttrValue>> Program::named_attrs(const Node& node,
                                                                    const std::vector<AttrValue>& attrs) const {
  std::vector<std::pair<std::string, AttrValue>> out;
  for (size_t k = 0; k < attrs.size(); ++k) out.emplace_back(node.attr_names[k], attrs[k]);
  return out;
}

void Binding::view(const Program& p, int value) {
  const Program::Value& v = p.values_[static_cast<size_t>(value)];
  data[static_cast<size_t>(value)] = data[static_cast<size_t>(v.root)] + layouts[static_cast<size_t>(value)].offset *
                                                                             static_cast<int64_t>(item_size(v.dtype));
}

void Binding::allocate_value(const Program& p, int value) {
  const Program::Value& v = p.values_[static_cast<size_t>(value)];
  StoragePtr& held = storage[static_cast<size_t>(value)];
  held = new_storage(static_cast<size_t>(layouts[static_cast<size_t>(value)].numel()) * item_size(v.dtype));
  data[static_cast<size_t>(value)] = held->data();
}

void Program::execute(Binding& b, const Observer& observer, const std::unordered_map<int, Perturbation>& perturb) {
  if (b.arena_bytes > 0) b.arena = new_storage(static_cast<size_t>(b.arena_bytes));
  for (size_t k = 0; k < values_.size(); ++k) {
    const Value& v = values_[k];
    if (v.scalar || v.dynamic) continue;
    if (v.origin == Origin::Weight) b.data[k] = v.data.data();
    if (v.origin != Origin::Made || v.donor >= 0) continue;
    if (b.arena_offset[k] >= 0)
      b.data[k] = b.arena->data() + b.arena_offset[k];
    else
      b.allocate_value(*this, static_cast<int>(k));
  }
  for (size_t k = 0; k < values_.size(); ++k)
    if (values_[k].donor >= 0) b.data[k] = b.data[static_cast<size_t>(values_[k].donor)];
  for (size_t k = 0; k < values_.size(); ++k)
    if (!values_[k].dynamic && values_[k].origin == Origin::View) b.view(*this, static_cast<int>(k));

  for (const Node& node : nodes_) {
    try {
      if (node.kind == Kind::Call)
        execute_call(b, node, observer, perturb);
      else
        execute_other(b, node);
    } catch (const Error& error) {
      fail_in(node, error);
    }
    for (int value : node.last_uses) b.storage[static_cast<size_t>(value)] = StoragePtr();
  }
}

void Program::execute_other(Binding& b, const Node& node) {
  switch (node.kind) {
    case Kind::View:
      if (!node.dynamic) break;
      b.place(*this, node.out);
      b.view(*this, node.out);
      break;
    case Kind::Register:
      if (node.dynamic) b.environment[static_cast<size_t>(node.out)] = Number::of(node.expr.eval(b.environment));
      break;
    case Kind::Assert:
      if (node.dynamic) check_assertion(node, b.environment);
      break;
    case Kind::Read: {
      const Value& v = values_[static_cast<size_t>(node.in)];
      if (b.layouts[static_cast<size_t>(node.in)].numel() != 1)
        fail(ErrorKind::Value, "'", v.id, "' is read as one number, but has more elements");
      Scalar value = load_scalar(b.data[static_cast<size_t>(node.in)], v.dtype);
      Number& into = b.environment[static_cast<size_t>(node.out)];
      into.f = value.as_double();
      into.i = value.kind == Scalar::Kind::Float ? convert<int64_t>(into.f) : value.i;
      break;
    }
    case Kind::Copy: {
      if (node.dynamic) {
        b.place(*this, node.out);
        b.allocate_value(*this, node.out);
      }
      const ValueLayout &from = b.layouts[static_cast<size_t>(node.in)], &to = b.layouts[static_cast<size_t>(node.out)];
      if (from.rank != to.rank || !std::equal(from.sizes, from.sizes + from.rank, to.sizes))
        fail(ErrorKind::Program, "'", values_[static_cast<size_t>(node.out)].id, "' is a copy of another shape");
      copy_layout({b.data[static_cast<size_t>(node.out)], values_[static_cast<size_t>(node.out)].dtype, to.rank,
                   to.sizes, to.strides},
                  {b.data[static_cast<size_t>(node.in)], values_[static_cast<size_t>(node.in)].dtype, from.rank,
                   from.sizes, from.strides});
      break;
    }
    case Kind::Call:
      break;
  }
}

void Program::execute_call(Binding& b, const Node& node, const Observer& observer,
                           const std::unordered_map<int, Perturbation>& perturb) {
  PreparedCall& c = b.calls[static_cast<size_t>(node.call)];
  size_t n_in = node.args.size();
  if (node.dynamic) {
    b.prepare(*this, node);
    for (int out : node.outs)
      if (out >= 0) b.allocate_value(*this, out);
  }
  b.point(node);
  for (size_t k = 0; k < n_in; ++k) {
    if (c.cast_offset[k] < 0 || node.dynamic) continue;
    size_t value = static_cast<size_t>(node.args[k].value);
    const ValueLayout& from = b.layouts[value];
    copy_layout(layout_of(c.tensors[k], dtype_of(c.tensors[k])),
                {b.data[value], values_[value].dtype, from.rank, from.sizes, from.strides});
  }
  std::vector<Tensor> inputs;
  auto copy_inputs = [&] {
    inputs.resize(n_in);
    for (size_t k = 0; k < n_in; ++k) {
      const Argument& arg = node.args[k];
      if (arg.kind == Argument::Kind::Absent) continue;
      OwTensor shown = c.tensors[k];
      if (arg.kind == Argument::Kind::Value) {  // as the program has it, before any cast
        ValueLayout& layout = b.layouts[static_cast<size_t>(arg.value)];
        shown = {b.data[static_cast<size_t>(arg.value)],
                 kCpu,
                 layout.rank,
                 to_dlpack(values_[static_cast<size_t>(arg.value)].dtype),
                 layout.sizes,
                 layout.strides,
                 0};
      }
      inputs[k] = copy_of(shown);
    }
  };
  if (observer) copy_inputs();  // before the call, which may overwrite one
  b.touched |= node.inplace != 0;
  c.error = OwError{OW_OK, -1, -1, -1, 0, 0};
  int32_t status = node.kernel->symbols.run(&c.call);
  if (status != OW_OK) raise_status(node.op_name, *node.kernel, status, c.error, c.call.list_len);
  if (auto found = perturb.find(node.call); found != perturb.end()) {
    for (size_t k = 0; k < node.outs.size(); ++k) {
      const OwTensor& t = c.tensors[n_in + k];
      Tensor changed = copy_of(t);
      if (found->second.kind == Perturbation::Kind::Scale)
        perturb_scale(changed, found->second.factor);
      else
        perturb_bf16(changed);
      copy_layout(layout_of(t, changed.dtype),
                  {changed.data(), changed.dtype, changed.rank, changed.sizes, changed.strides});
    }
  }
  if (observer) {
    std::vector<Tensor> outputs;
    for (size_t k = 0; k < node.outs.size(); ++k) outputs.push_back(copy_of(c.tensors[n_in + k]));
    observer({node.call, inputs, node.list_len, named_attrs(node, c.attrs), outputs});
  }
  c.temporaries.clear();
}

// ---- what may not be at once ----

namespace {

// Memory that runs in progress update, of all programs.
class Updated {
 public:
  struct Range {
    const char *low, *high;
  };
  static Updated& instance() {
    static auto* made = new Updated;
    return *made;
  }
  // False: a run in progress updates some of it.
  bool take(const std::vector<Range>& ranges) {
    std::lock_guard lock(mutex_);
    for (const Range& a : ranges)
      for (const Range& b : held_)
        if (a.low < b.high && b.low < a.high) return false;
    held_.insert(held_.end(), ranges.begin(), ranges.end());
    return true;
  }
  void drop(const std::vector<Range>& ranges) {
    std::lock_guard lock(mutex_);
    for (const Range& a : ranges)
      held_.erase(std::find_if(held_.begin(), held_.end(), [&](const Range& b) { return b.low == a.low; }));
  }

 private:
  std::mutex mutex_;
  std::vector<Range> held_;
};

}  // namespace

// What the tensors themselves say against a run: memory that is read-only, shared, or lost.
void Program::check_inputs(const std::vector<Tensor>& given) const {
  for (const State& state : state_) {
    const Value& v = values_[static_cast<size_t>(state.input)];
    if (v.origin != Origin::Input) continue;
    auto at = static_cast<size_t>(v.port);
    const Tensor& t = given[at];
    const std::string& name = inputs_[at].name;
    if (t.storage->readonly())
      fail(ErrorKind::Value, name_, ": input '", name, "' is state, which the run updates, but it is read-only");
    if (t.storage->lost())
      fail(ErrorKind::Value, name_, ": input '", name,
           "' was being updated in place by a run that failed: it holds neither its old nor its new value; fill it "
           "again, or give another");
    for (size_t k = 0; k < given.size(); ++k)
      if (k != at && may_share_memory(given[k], t))
        fail(ErrorKind::Value, name_, ": inputs '", name, "' and '", inputs_[k].name,
             "' share memory, and the run updates '", name, "'; give one of them a copy");
  }
}

std::vector<Program::Result> Program::run(const std::vector<Tensor>& given, const Observer& observer,
                                          const std::unordered_map<int, Perturbation>& perturb) {
  AllocationTag tag(tag_);
  if (weights_.changed())
    fail(ErrorKind::Program, weights_.path(), ": was written to after the program was loaded; load it again");
  std::vector<Tensor> tensors = given;
  solve(tensors);  // whether there is an input for each at all
  check_inputs(given);
  std::unique_lock exclusive(constants_mutex_, std::defer_lock);
  if (updates_constants_) {
    if (updating_.load() == std::this_thread::get_id())
      fail(ErrorKind::Value, name_, ": a run of it is in progress on this thread, and updates its constants");
    exclusive.lock();
    if (constants_lost_)
      fail(ErrorKind::Value, name_, ": a run failed while it updated the program's constants; load the program again");
  }
  struct Held {  // until the run is over, however it ends
    Program& program;
    std::unique_ptr<Binding> binding;
    std::vector<Updated::Range> ranges;
    ~Held() {
      if (binding) program.give_back(std::move(binding));
      if (!ranges.empty()) Updated::instance().drop(ranges);
      if (program.updates_constants_) program.updating_.store(std::thread::id{});
    }
  } held{*this, nullptr, {}};
  if (updates_constants_) updating_.store(std::this_thread::get_id());
  std::vector<Updated::Range> ranges;
  for (const State& state : state_) {
    const Value& v = values_[static_cast<size_t>(state.input)];
    if (v.origin != Origin::Input) continue;
    Updated::Range range{};
    byte_range(given[static_cast<size_t>(v.port)], &range.low, &range.high);
    if (range.low != range.high) ranges.push_back(range);
  }
  if (!ranges.empty() && !Updated::instance().take(ranges))
    fail(ErrorKind::Value, name_, ": another run in progress updates an input that is state here as well; ",
         "each run needs its own");
  held.ranges = std::move(ranges);
  held.binding = bind(tensors);
  Binding& b = *held.binding;
  b.touched = false;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    tensors[k] = contiguous(tensors[k]);
    b.data[static_cast<size_t>(inputs_[k].value)] = tensors[k].data();
  }
  try {
    execute(b, observer, perturb);
  } catch (...) {
    if (b.touched) {
      for (const State& state : state_) {
        const Value& v = values_[static_cast<size_t>(state.input)];
        if (!state.donated) continue;
        if (v.origin == Origin::Weight)
          constants_lost_ = true;
        else if (tensors[static_cast<size_t>(v.port)].data() == given[static_cast<size_t>(v.port)].data())
          given[static_cast<size_t>(v.port)].storage->lose();
      }
    }
    throw;
  }

  auto tensor_of = [&](int value) {
    const Value& v = values_[static_cast<size_t>(value)];
    const Value& root = values_[static_cast<size_t>(v.root)];
    const ValueLayout& layout = b.layouts[static_cast<size_t>(value)];
    Tensor out;
    out.dtype = v.dtype;
    out.rank = layout.rank;
    std::copy_n(layout.sizes, layout.rank, out.sizes);
    std::copy_n(layout.strides, layout.rank, out.strides);
    out.offset = layout.offset;
    switch (root.origin) {
      case Origin::Input:
        out.storage = tensors[static_cast<size_t>(root.port)].storage;
        out.offset += tensors[static_cast<size_t>(root.port)].offset;
        break;
      case Origin::Weight:
        out.storage = root.data.storage;
        out.offset += root.data.offset;
        break;
      default:
        out.storage = b.storage[static_cast<size_t>(v.root)];
        if (!out.storage) {  // a state's new value that is no output lies in the arena
          out.storage = b.arena;
          out.offset += b.arena_offset[static_cast<size_t>(v.root)] / static_cast<int64_t>(item_size(v.dtype));
        }
    }
    return out;
  };
  // All new states are read before any is written: one may be what another was.
  std::vector<Tensor> news;
  for (const State& state : state_) {
    if (state.donated) {
      news.emplace_back();
      continue;
    }
    Tensor fresh = tensor_of(state.output);
    Origin origin = values_[static_cast<size_t>(values_[static_cast<size_t>(state.output)].root)].origin;
    news.push_back(origin == Origin::Made ? fresh : clone(fresh));
  }
  std::vector<Result> results;
  for (const Port& port : outputs_) {
    Result result;
    if (port.scalar) {
      const Slot& slot = slots_[static_cast<size_t>(values_[static_cast<size_t>(port.value)].slot)];
      Number number = b.environment[static_cast<size_t>(values_[static_cast<size_t>(port.value)].slot)];
      result.scalar = slot.dtype == DType::F64    ? Scalar::of_float(number.f)
                      : slot.dtype == DType::Bool ? Scalar::of_bool(number.i != 0)
                                                  : Scalar::of_int(number.i);
    } else {
      result.tensor = tensor_of(port.value);
      Origin origin = values_[static_cast<size_t>(values_[static_cast<size_t>(port.value)].root)].origin;
      if (!state_.empty() && origin != Origin::Made)
        result.tensor = clone(result.tensor);  // what it was before the update
    }
    results.push_back(std::move(result));
  }
  for (size_t k = 0; k < state_.size(); ++k) {
    const Value& v = values_[static_cast<size_t>(state_[k].input)];
    const Tensor& into = v.origin == Origin::Input ? given[static_cast<size_t>(v.port)] : v.data;
    if (!state_[k].donated)
      copy_into(into, news[k]);
    else if (v.origin == Origin::Input && tensors[static_cast<size_t>(v.port)].data() != into.data())
      copy_into(into, tensors[static_cast<size_t>(v.port)]);  // it was not contiguous: a copy was updated
    into.storage->bump_version();
  }
  return results;
}

std::vector<Tensor> Program::run_call(int call, const std::vector<Operand>& flat, const std::vector<int32_t>& list_len,
                                      const std::map<std::string, int64_t>& known) {
  const Node& node = nodes_[static_cast<size_t>(calls_[static_cast<size_t>(call)])];
  if (flat.size() != node.args.size() || list_len != node.list_len)
    fail(ErrorKind::Value, describe(node), ": ", node.args.size(), " inputs wanted, got ", flat.size());
  std::vector<Number> environment(slots_.size());
  auto need = [&](const Expr& expr) {
    expr.each_slot([&](int slot) {
      auto found = known.find(slots_[static_cast<size_t>(slot)].name);
      if (found == known.end())
        fail(ErrorKind::Value, describe(node), ": the value of '", slots_[static_cast<size_t>(slot)].name,
             "' must be given");
      environment[static_cast<size_t>(slot)] = Number::of(found->second);
    });
  };
  for (const Patch& patch : node.patches) need(patch.expr);
  std::vector<AttrValue> attrs;
  evaluate_attrs(node, environment, attrs);
  Invocation invocation;
  for (size_t k = 0; k < flat.size(); ++k) {
    const Argument& arg = node.args[k];
    Operand operand = flat[k];
    bool absent = arg.kind == Argument::Kind::Absent;
    if (absent != (operand.kind == Operand::Kind::Absent))
      fail(ErrorKind::Value, describe(node), ": input ", k, absent ? " must be None" : " is missing");
    if (arg.kind == Argument::Kind::Value) {
      DType want = values_[static_cast<size_t>(arg.value)].dtype;
      if (operand.kind != Operand::Kind::Tensor || operand.tensor->dtype != want)
        fail(ErrorKind::Value, describe(node), ": input ", k, " must be a tensor of ", dtype_name(want));
    }
    invocation.flat.push_back(operand);
  }
  for (int32_t n : list_len) invocation.list_len.push_back(n);
  invocation.attrs = attrs.data();
  std::vector<Tensor> outputs(node.kernel->row.outputs.size());
  try {
    Dispatcher::instance().run(*node.op, *node.kernel, invocation, outputs.data());
  } catch (const Error& error) {
    fail_in(node, error);
  }
  return outputs;
}

}  // namespace ow
