// One binding of a program's symbols (program.h): solving them from the inputs, layouts, prepared calls, memory plan.
#include <algorithm>

#include "allocator.h"
#include "program.h"
#include "threads.h"
#include "tiles.h"

namespace ow {

namespace {
constexpr size_t kKeptBindings = 32;

int64_t aligned(int64_t bytes) {
  return (bytes + static_cast<int64_t>(kAlignment) - 1) & ~(static_cast<int64_t>(kAlignment) - 1);
}
}  // namespace

// ---- symbols ----

void Program::check_symbol(const Slot& slot, int64_t extent, const std::string& where) const {
  if (extent < slot.min || extent > slot.max)
    fail(ErrorKind::Value, name_, ": ", where, " has extent ", extent, " along axis ", slot.axis, ", which must be ",
         slot.max == INT64_MAX ? cat("at least ", slot.min) : cat("from ", slot.min, " to ", slot.max), " (symbol ",
         slot.name, ")");
  if (extent % slot.divisor != 0)
    fail(ErrorKind::Value, name_, ": ", where, " has extent ", extent, " along axis ", slot.axis,
         ", which must be a multiple of ", slot.divisor, " (symbol ", slot.name, ")");
}

std::vector<Number> Program::solve(const std::vector<Tensor>& tensors) const {
  if (tensors.size() != inputs_.size())
    fail(ErrorKind::Value, name_, ": ", inputs_.size(), " inputs wanted, got ", tensors.size());
  std::vector<Number> environment(slots_.size());
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const Port& port = inputs_[k];
    if (tensors[k].dtype != port.dtype)
      fail(ErrorKind::Value, name_, ": input '", port.name, "' is ", dtype_name(tensors[k].dtype),
           ", the program wants ", dtype_name(port.dtype));
    if (tensors[k].rank != port.rank)
      fail(ErrorKind::Value, name_, ": input '", port.name, "' has rank ", tensors[k].rank, ", the program wants ",
           port.rank);
  }
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    if (!slot.is_symbol || slot.dynamic) continue;
    int port = values_[static_cast<size_t>(slot.source)].port;
    int64_t extent = tensors[static_cast<size_t>(port)].sizes[slot.axis];
    check_symbol(slot, extent, "input '" + inputs_[static_cast<size_t>(port)].name + "'");
    environment[k] = Number::of(extent);
  }
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const Value& v = values_[static_cast<size_t>(inputs_[k].value)];
    for (size_t axis = 0; axis < v.shape.size(); ++axis) {
      int64_t want = v.shape[axis].eval(environment), got = tensors[k].sizes[axis];
      if (want != got)
        fail(ErrorKind::Value, name_, ": input '", inputs_[k].name, "' has extent ", got, " along axis ", axis,
             ", which must be ", want, v.shape[axis].is_constant() ? "" : " = " + v.shape[axis].text());
    }
  }
  return environment;
}

std::map<std::string, int64_t> Program::symbols(const std::vector<Tensor>& tensors) const {
  std::vector<Number> environment = solve(tensors);
  std::map<std::string, int64_t> out;
  for (size_t k = 0; k < slots_.size(); ++k)
    if (slots_[k].is_symbol && !slots_[k].dynamic) out[slots_[k].name] = environment[k].i;
  return out;
}

std::unique_ptr<Binding> Program::bind(const std::vector<Tensor>& tensors) {
  std::vector<Number> solved = solve(tensors);
  std::vector<int64_t> key;
  for (size_t k = 0; k < slots_.size(); ++k)
    if (slots_[k].is_symbol && !slots_[k].dynamic) key.push_back(solved[k].i);
  key.push_back(ThreadPool::instance().threads());  // workspace is for so many
  {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return b->key == key; });
    if (found != bindings_.end()) {
      std::unique_ptr<Binding> out = std::move(*found);
      bindings_.erase(found);
      return out;
    }
  }
  auto made = std::make_unique<Binding>(*this, std::move(solved));
  made->key = std::move(key);
  return made;
}

void Program::give_back(std::unique_ptr<Binding> binding) {
  binding->arena = StoragePtr();  // the run's memory does not outlive the run, however it ended
  for (StoragePtr& storage : binding->storage) storage = StoragePtr();
  for (PreparedCall& call : binding->calls) call.temporaries.clear();
  std::unique_ptr<Binding> oldest;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  bindings_.insert(bindings_.begin(), std::move(binding));
  if (bindings_.size() > kKeptBindings) {
    oldest = std::move(bindings_.back());
    bindings_.pop_back();
  }
}

Program::Plan Program::plan(const std::vector<Tensor>& tensors) {
  std::unique_ptr<Binding> binding = bind(tensors);
  int dynamic = 0;
  for (int node : calls_) dynamic += nodes_[static_cast<size_t>(node)].dynamic;
  Plan out{binding->arena_bytes, binding->unshared_bytes, static_cast<int>(calls_.size()), dynamic, 0};
  for (const State& state : state_) out.donated += state.donated;
  give_back(std::move(binding));
  return out;
}

// ---- calls without addresses ----

int64_t dense_bytes(const OwTensor& t) {
  int64_t n = t.dtype.bits / 8;
  for (int32_t k = 0; k < t.ndim; ++k) n *= t.shape[k];
  return n;
}

Binding::Binding(const Program& p, std::vector<Number> solved)
    : environment(std::move(solved)),
      layouts(p.values_.size()),
      calls(p.calls_.size()),
      arena_offset(p.values_.size(), -1),
      leaves(p.values_.size(), false),
      data(p.values_.size(), nullptr),
      storage(p.values_.size()) {
  for (size_t k = 0; k < p.values_.size(); ++k) {
    const Program::Value& v = p.values_[k];
    if (!v.scalar && (v.origin == Program::Origin::Input || v.origin == Program::Origin::Weight))
      place(p, static_cast<int>(k));
  }
  for (const Program::Node& node : p.nodes_) {
    if (node.dynamic) continue;
    try {
      switch (node.kind) {
        case Program::Kind::Register:
          environment[static_cast<size_t>(node.out)] = Number::of(node.expr.eval(environment));
          break;
        case Program::Kind::Assert:
          p.check_assertion(node, environment);
          break;
        case Program::Kind::View:
        case Program::Kind::Copy:
          place(p, node.out);
          break;
        case Program::Kind::Read:
          break;
        case Program::Kind::Call:
          for (int out : node.outs)
            if (out >= 0) place(p, out);
          prepare(p, node);
          break;
      }
    } catch (const Error& error) {
      p.fail_in(node, error);
    }
  }
  for (const Program::Port& out : p.outputs_)
    if (!out.scalar) leaves[static_cast<size_t>(p.values_[static_cast<size_t>(out.value)].root)] = true;
  plan(p);
}

void Binding::place(const Program& p, int value) {
  const Program::Value& v = p.values_[static_cast<size_t>(value)];
  ValueLayout& layout = layouts[static_cast<size_t>(value)];
  layout.rank = static_cast<int32_t>(v.shape.size());
  for (int32_t k = 0; k < layout.rank; ++k) layout.sizes[k] = v.shape[static_cast<size_t>(k)].eval(environment);
  checked_numel(layout.sizes, layout.rank, v.dtype);
  if (v.strides.empty()) {
    set_contiguous_strides(layout.rank, layout.sizes, layout.strides);
  } else {
    for (int32_t k = 0; k < layout.rank; ++k) layout.strides[k] = v.strides[static_cast<size_t>(k)].eval(environment);
  }
  layout.offset = v.offset.eval(environment);
  if (v.origin != Program::Origin::View) {
    Tensor dense;
    dense.rank = layout.rank;
    std::copy_n(layout.sizes, layout.rank, dense.sizes);
    std::copy_n(layout.strides, layout.rank, dense.strides);
    if (!dense.contiguous()) fail(ErrorKind::Program, "value '", v.id, "' is not contiguous; only views may be");
    set_contiguous_strides(layout.rank, layout.sizes, layout.strides);  // one form for extents of 0 and 1
    return;
  }
  if (layout.numel() == 0) return;
  int64_t low = layout.offset, high = layout.offset, count = layouts[static_cast<size_t>(v.root)].numel();
  for (int32_t k = 0; k < layout.rank; ++k) {
    int64_t reach = (layout.sizes[k] - 1) * layout.strides[k];
    (reach < 0 ? low : high) += reach;
  }
  if (low < 0 || high >= count)
    fail(ErrorKind::Program, "view '", v.id, "' reaches elements ", low, " to ", high, " of the ", count, " in '",
         p.values_[static_cast<size_t>(v.root)].id, "'");
}

void Program::evaluate_attrs(const Node& node, const std::vector<Number>& environment,
                             std::vector<AttrValue>& attrs) const {
  attrs = node.attrs;
  for (const Patch& patch : node.patches) {
    AttrValue& value = attrs[static_cast<size_t>(patch.attr)];
    int slot = patch.expr.only_slot();
    Number number = slot >= 0 ? environment[static_cast<size_t>(slot)] : Number::of(patch.expr.eval(environment));
    if (patch.at < 0) {
      value.i = number.i;
      value.f = number.f;
    } else if (value.tag == AttrValue::Tag::Floats) {
      value.floats[static_cast<size_t>(patch.at)] = number.f;
    } else {
      value.ints[static_cast<size_t>(patch.at)] = number.i;
    }
  }
}

void Binding::prepare(const Program& p, const Program::Node& node) {
  PreparedCall& c = calls[static_cast<size_t>(node.call)];
  const Kernel& kernel = *node.kernel;
  size_t n_in = node.args.size(), n_out = node.outs.size(), n_attr = kernel.row.attrs.size();
  p.evaluate_attrs(node, environment, c.attrs);
  c.tensors.assign(n_in + n_out, OwTensor{});
  c.pointers.assign(n_in + n_out, nullptr);
  c.scalars.assign(n_in, PreparedCall::Item{});
  c.attr_words.resize(n_attr);
  c.shapes.assign(n_out, OwShape{});
  c.cast_offset.assign(n_in, -1);
  c.unread_offset.assign(n_out, -1);
  for (size_t k = 0; k < n_attr; ++k) c.attr_words[k] = c.attrs[static_cast<size_t>(kernel.attr_index[k])].describe();
  for (size_t k = 0; k < n_in; ++k) {
    const Program::Argument& arg = node.args[k];
    switch (arg.kind) {
      case Program::Argument::Kind::Absent:
        continue;
      case Program::Argument::Kind::Value: {
        ValueLayout& layout = layouts[static_cast<size_t>(arg.value)];
        DType dtype = p.values_[static_cast<size_t>(arg.value)].dtype;
        c.tensors[k] = {
            data[static_cast<size_t>(arg.value)], kCpu, layout.rank, to_dlpack(dtype), layout.sizes, layout.strides, 0};
        break;
      }
      default: {
        Scalar value = arg.scalar;
        if (arg.kind == Program::Argument::Kind::Symbolic) {
          int slot = arg.expr.only_slot();
          Number number = slot >= 0 ? environment[static_cast<size_t>(slot)] : Number::of(arg.expr.eval(environment));
          value.i = number.i;
          value.z = number.f;
        }
        store_scalar(&c.scalars[k], *kernel.casts[k], value);
        c.tensors[k] = describe_scalar(&c.scalars[k], *kernel.casts[k]);
      }
    }
    c.pointers[k] = &c.tensors[k];
  }
  ThreadPool& pool = ThreadPool::instance();
  c.call = OwCall{};
  c.call.abi = OW_ABI;
  c.call.n_in = static_cast<int32_t>(n_in);
  c.call.n_out = static_cast<int32_t>(n_out);
  c.call.n_attr = static_cast<int32_t>(n_attr);
  c.call.in = c.pointers.data();
  c.call.list_len = node.list_len.empty() ? nullptr : node.list_len.data();
  c.call.out = c.pointers.data() + n_in;
  c.call.attr = c.attr_words.data();
  c.call.shapes = c.shapes.data();
  c.call.error = &c.error;
  c.call.parallel = ThreadPool::entry;
  c.call.pool = &pool;
  c.call.max_threads = pool.threads();
  c.call.flags = node.inplace | tile_flag();
  c.error = OwError{OW_OK, -1, -1, -1, 0, 0};

  // Converted copies and unread outputs are dense; their strides lie here.
  c.dense_strides.assign((n_in + n_out) * OW_MAX_RANK, 0);
  auto make_dense = [&](size_t k) {
    int64_t* strides = c.dense_strides.data() + k * OW_MAX_RANK;
    set_contiguous_strides(c.tensors[k].ndim, c.tensors[k].shape, strides);
    c.tensors[k].strides = strides;
  };
  for (size_t k = 0; k < n_in; ++k) {
    const Program::Argument& arg = node.args[k];
    if (arg.kind != Program::Argument::Kind::Value || !kernel.casts[k]) continue;
    DType from = p.values_[static_cast<size_t>(arg.value)].dtype, to = *kernel.casts[k];
    if (to == from) continue;
    OwTensor source = c.tensors[k];
    c.cast_offset[k] = 0;  // the plan finds the place
    c.tensors[k].dtype = to_dlpack(to);
    make_dense(k);
    if (!node.dynamic) continue;
    c.temporaries.push_back(new_storage(static_cast<size_t>(dense_bytes(c.tensors[k]))));  // infer may read it
    c.tensors[k].data = c.temporaries.back()->data();
    copy_layout({static_cast<char*>(c.tensors[k].data), to, source.ndim, source.shape, c.tensors[k].strides},
                {static_cast<char*>(source.data), from, source.ndim, source.shape, source.strides});
  }

  if (int32_t status = kernel.symbols.infer(&c.call); status != OW_OK)
    raise_status(node.op_name, kernel, status, c.error, c.call.list_len);
  for (size_t k = 0; k < n_out; ++k) {
    const Row::Output& output = kernel.row.outputs[k];
    OwShape& shape = c.shapes[k];
    checked_numel(shape.dim, shape.rank, output.dtype);
    int value = node.outs[k];
    if (value < 0) {
      c.unread_offset[k] = 0;
      c.tensors[n_in + k] = OwTensor{nullptr, kCpu, shape.rank, to_dlpack(output.dtype), shape.dim, nullptr, 0};
      make_dense(n_in + k);
    } else {
      const Program::Value& v = p.values_[static_cast<size_t>(value)];
      if (static_cast<size_t>(shape.rank) != v.shape.size())
        fail(ErrorKind::Value, node.op_name, " makes '", output.name, "' of rank ", shape.rank, ", the program wants ",
             v.shape.size());
      for (int slot : v.symbols) {  // extents that only this call knows
        int64_t extent = shape.dim[p.slots_[static_cast<size_t>(slot)].axis];
        p.check_symbol(p.slots_[static_cast<size_t>(slot)], extent, "value '" + v.id + "'");
        environment[static_cast<size_t>(slot)] = Number::of(extent);
      }
      place(p, value);
      ValueLayout& layout = layouts[static_cast<size_t>(value)];
      if (!std::equal(shape.dim, shape.dim + shape.rank, layout.sizes))
        fail(ErrorKind::Value, node.op_name, " makes '", output.name, "' of shape ", shape_text(shape.dim, shape.rank),
             ", the program wants ", shape_text(layout.sizes, layout.rank));
      c.tensors[n_in + k] = OwTensor{nullptr, kCpu, layout.rank, to_dlpack(v.dtype), layout.sizes, layout.strides, 0};
    }
    c.pointers[n_in + k] = &c.tensors[n_in + k];
  }
  c.workspace_bytes = kernel.symbols.workspace(&c.call);
  if (c.workspace_bytes < 0) raise_status(node.op_name, kernel, -c.workspace_bytes, c.error, c.call.list_len);
}

// ---- the memory plan ----

namespace {

// First fit over time: places are asked for in the order of their first use, and given back after their last.
class FirstFit {
 public:
  // The lowest offset where `bytes` are free from `now` on; taken until the end of node `until`.
  int64_t take(int64_t bytes, int now, int until) {
    std::erase_if(taken_, [&](const Place& place) { return place.until < now; });
    bytes = aligned(std::max<int64_t>(bytes, 1));
    int64_t at = 0;
    size_t before = 0;
    for (; before < taken_.size(); ++before) {
      if (taken_[before].offset - at >= bytes) break;
      at = taken_[before].offset + taken_[before].bytes;
    }
    taken_.insert(taken_.begin() + static_cast<std::ptrdiff_t>(before), Place{at, bytes, until});
    size_ = std::max(size_, at + bytes);
    unshared_ += bytes;
    return at;
  }
  int64_t size() const { return size_; }
  int64_t unshared() const { return unshared_; }

 private:
  struct Place {
    int64_t offset, bytes;
    int until;
  };
  std::vector<Place> taken_;  // by offset
  int64_t size_ = 0, unshared_ = 0;
};

}  // namespace

void Binding::plan(const Program& p) {
  int end = static_cast<int>(p.nodes_.size());
  std::vector<int> last(p.values_.size(), -1);
  auto read = [&](int value, int node) {
    if (value >= 0) last[static_cast<size_t>(p.values_[static_cast<size_t>(value)].root)] = node;
  };
  for (int k = 0; k < end; ++k) {
    const Program::Node& node = p.nodes_[static_cast<size_t>(k)];
    for (const Program::Argument& arg : node.args) read(arg.value, k);
    read(node.in, k);
  }
  for (const Program::State& state : p.state_) read(state.output, end);

  FirstFit fit;
  auto place_root = [&](int value, int node) {
    if (value < 0 || leaves[static_cast<size_t>(value)]) return;
    if (p.values_[static_cast<size_t>(value)].donor >= 0) return;
    const Program::Value& v = p.values_[static_cast<size_t>(value)];
    int64_t bytes = layouts[static_cast<size_t>(value)].numel() * static_cast<int64_t>(item_size(v.dtype));
    arena_offset[static_cast<size_t>(value)] = fit.take(bytes, node, std::max(last[static_cast<size_t>(value)], node));
  };
  for (int k = 0; k < end; ++k) {
    const Program::Node& node = p.nodes_[static_cast<size_t>(k)];
    if (node.dynamic) continue;
    if (node.kind == Program::Kind::Copy) place_root(node.out, k);
    if (node.kind != Program::Kind::Call) continue;
    PreparedCall& c = calls[static_cast<size_t>(node.call)];
    size_t n_in = node.args.size();
    for (int out : node.outs) place_root(out, k);
    for (size_t j = 0; j < n_in; ++j)
      if (c.cast_offset[j] >= 0) c.cast_offset[j] = fit.take(dense_bytes(c.tensors[j]), k, k);
    for (size_t j = 0; j < node.outs.size(); ++j)
      if (c.unread_offset[j] >= 0) c.unread_offset[j] = fit.take(dense_bytes(c.tensors[n_in + j]), k, k);
    if (c.workspace_bytes > 0) c.workspace_offset = fit.take(c.workspace_bytes, k, k);
  }
  arena_bytes = fit.size();
  unshared_bytes = fit.unshared();
}

}  // namespace ow
