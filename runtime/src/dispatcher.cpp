// See dispatcher.h.
#include "dispatcher.h"

#include <algorithm>

#include "allocator.h"
#include "threads.h"
#include "tiles.h"

namespace ow {

Dispatcher& Dispatcher::instance() {
  static Dispatcher* dispatcher = new Dispatcher;  // never destroyed: Python objects point into it until exit
  return *dispatcher;
}

OpEntry& Dispatcher::register_op(Signature signature) {
  signature.finish();
  std::lock_guard lock(mutex_);
  std::unique_ptr<OpEntry>& entry = ops_[signature.name];
  if (entry == nullptr) entry = std::make_unique<OpEntry>();
  if (entry->name.empty()) {
    entry->name = signature.name;
    entry->tag = lasting_text(signature.name);
  }
  std::lock_guard entry_lock(entry->mutex_);
  entry->signature = std::move(signature);
  entry->cache_.clear();
  entry->generation.fetch_add(1);
  return *entry;
}

OpEntry* Dispatcher::find(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto found = ops_.find(std::string(name));
  return found == ops_.end() ? nullptr : found->second.get();
}

OpEntry& Dispatcher::group(const std::string& path, Signature signature) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<OpEntry>& entry = groups_[signature.name + '\n' + path];
  if (entry == nullptr) {
    entry = std::make_unique<OpEntry>();
    signature.finish();
    entry->name = signature.name;
    entry->tag = lasting_text(signature.name);
    entry->signature = std::move(signature);
    entry->group = path;
  }
  return *entry;
}

std::vector<std::string> Dispatcher::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, entry] : ops_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

void Dispatcher::set_miss_hook(MissHook hook) {
  std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void Dispatcher::forget(OpEntry& op) {
  std::lock_guard lock(op.mutex_);
  op.cache_.clear();
  op.generation.fetch_add(1);
}

// ---- keys ----

void Dispatcher::append_key(const OpEntry& op, const Invocation& call, bool ranked, Key& key) {
  auto bytes = [&](const void* data, size_t n) {
    const char* first = static_cast<const char*>(data);
    key.append(first, first + n);
  };
  for (int32_t n : call.list_len) bytes(&n, sizeof n);
  for (const Operand& operand : call.flat) {
    if (operand.kind == Operand::Kind::Absent) {
      key.push_back(static_cast<char>(0x80));
      continue;
    }
    int code = static_cast<int>(operand.dtype());
    if (operand.kind == Operand::Kind::Weak) code |= 0x20;
    if (operand.rank() == 0) code |= 0x40;  // rank 0 promotes less than a tensor with axes
    key.push_back(static_cast<char>(code));
    if (ranked) key.push_back(static_cast<char>(operand.rank()));
  }
  for (size_t k = 0; k < op.signature.attrs.size(); ++k) {
    const AttrValue& value = call.attrs[k];
    key.push_back(static_cast<char>(value.tag));  // presence, and the category of a `scalar`
    // The length of a list is constant in a kernel; a set of axes is not, unless ranks are.
    AttrKind kind = op.signature.attrs[k].kind;
    if (kind == AttrKind::Ints || kind == AttrKind::Floats || (ranked && kind == AttrKind::Axes)) {
      int32_t n = static_cast<int32_t>(std::max(value.ints.size(), value.floats.size()));
      bytes(&n, sizeof n);
    }
    if (!op.signature.attrs[k].is_static) continue;
    switch (value.tag) {
      case AttrValue::Tag::Absent:
        break;
      case AttrValue::Tag::Float:
        bytes(&value.f, sizeof value.f);
        break;
      case AttrValue::Tag::Bool:
      case AttrValue::Tag::Int:
      case AttrValue::Tag::DType:
        bytes(&value.i, sizeof value.i);
        break;
      case AttrValue::Tag::Ints: {
        size_t n = value.ints.size();
        bytes(&n, sizeof n);
        bytes(value.ints.data(), n * sizeof(int64_t));
        break;
      }
      case AttrValue::Tag::Floats: {
        size_t n = value.floats.size();
        bytes(&n, sizeof n);
        bytes(value.floats.data(), n * sizeof(double));
        break;
      }
      case AttrValue::Tag::Text: {
        size_t n = value.text.size();
        bytes(&n, sizeof n);
        bytes(value.text.data(), n);
        break;
      }
    }
  }
  key.push_back(ranked ? 'r' : 'f');
}

const Kernel* Dispatcher::lookup(OpEntry& op, const Invocation& call) {
  Key key;
  append_key(op, call, false, key);
  std::lock_guard lock(op.mutex_);
  auto found = op.cache_.find(std::string_view(key.data(), key.size()));
  if (found == op.cache_.end()) return nullptr;
  if (!found->second.ranked) return found->second.kernel;
  key.clear();
  append_key(op, call, true, key);
  found = op.cache_.find(std::string_view(key.data(), key.size()));
  return found == op.cache_.end() ? nullptr : found->second.kernel;
}

const Kernel& Dispatcher::resolve(OpEntry& op, const Invocation& call) {
  if (const Kernel* kernel = lookup(op, call)) return *kernel;
  return *resolve_many({{&op, &call}})[0];
}

Request Dispatcher::request_for(const OpEntry& op, const Invocation& call) {
  Request request;
  request.op = op.signature.name;
  request.group = op.group;
  for (const Operand& operand : call.flat) {
    Request::Input input;
    if (operand.kind != Operand::Kind::Absent)
      input = {true, operand.kind == Operand::Kind::Weak, operand.dtype(), operand.rank()};
    request.flat.push_back(input);
  }
  request.list_len.assign(call.list_len.begin(), call.list_len.end());
  for (const InputSpec& input : op.signature.inputs) request.is_list.push_back(input.list);
  for (size_t k = 0; k < op.signature.attrs.size(); ++k)
    request.attrs.emplace_back(op.signature.attrs[k].name, call.attrs[k]);
  return request;
}

// Ranks are asked about twice at most: first one call of each key without them, then, where the rows say that ranks
// matter, one call of each key with them.
std::vector<const Kernel*> Dispatcher::resolve_many(const std::vector<std::pair<OpEntry*, const Invocation*>>& calls,
                                                    const MissHook& given) {
  std::vector<const Kernel*> kernels(calls.size(), nullptr);
  MissHook hook = given;
  if (!hook) {
    std::lock_guard lock(mutex_);
    hook = hook_;
  }
  for (bool ranked : {false, true}) {
    std::vector<Request> requests;
    std::vector<size_t> missing;  // the first call of each distinct key
    std::unordered_map<std::string, bool> asked;
    for (size_t k = 0; k < calls.size(); ++k) {
      auto [op, call] = calls[k];
      if (kernels[k] == nullptr) kernels[k] = lookup(*op, *call);
      if (kernels[k] != nullptr) continue;
      Key key;
      append_key(*op, *call, ranked, key);
      std::string identity = op->signature.name + '\n' + op->group + '\n' + std::string(key.data(), key.size());
      if (!asked.emplace(std::move(identity), true).second) continue;
      requests.push_back(request_for(*op, *call));
      missing.push_back(k);
    }
    if (missing.empty()) return kernels;
    if (!hook)
      fail(ErrorKind::Missing, "no kernel of op '", requests[0].op,
           "' is loaded for these arguments, and nothing that could supply one is installed");
    std::vector<Resolution> answers = hook(requests);
    if (answers.size() != requests.size())
      fail(ErrorKind::Runtime, "the miss hook answered ", answers.size(), " of ", requests.size(), " requests");
    for (size_t k = 0; k < missing.size(); ++k) {
      auto [op, call] = calls[missing[k]];
      kernels[missing[k]] = insert(*op, *call, std::move(answers[k]));
    }
  }
  for (size_t k = 0; k < calls.size(); ++k) {
    if (kernels[k] == nullptr) kernels[k] = lookup(*calls[k].first, *calls[k].second);
    if (kernels[k] == nullptr) fail(ErrorKind::Runtime, "op '", calls[k].first->signature.name, "' was not resolved");
  }
  return kernels;
}

// Checks the answer against the call before anything is run with it.
const Kernel* Dispatcher::insert(OpEntry& op, const Invocation& call, Resolution resolution) {
  auto kernel = std::make_unique<Kernel>();
  kernel->row = std::move(resolution.row);
  kernel->casts = std::move(resolution.casts);
  const Row& row = kernel->row;
  std::string where = "op '" + op.signature.name + "': the table row " + row.symbol;
  const Signature& signature = op.signature;
  if (row.outputs.size() != signature.outputs.size())
    fail(ErrorKind::Runtime, where, " has ", row.outputs.size(), " outputs, the op ", signature.outputs.size());
  if (kernel->casts.empty()) kernel->casts.resize(call.flat.size());
  if (kernel->casts.size() != call.flat.size())
    fail(ErrorKind::Runtime, where, ": ", kernel->casts.size(), " casts for ", call.flat.size(), " inputs");
  // Row inputs are the op's, in order, but for optional ones that this call leaves out. Groups have no names yet.
  size_t at_row = 0, flat = 0, list = 0;
  std::vector<size_t> first_flat;
  for (const InputSpec& input : signature.inputs) {
    int32_t n = input.list ? call.list_len[list++] : 1;
    bool absent = !input.list && call.flat[flat].kind == Operand::Kind::Absent;
    bool listed = at_row < row.inputs.size() && (op.group.empty() ? row.inputs[at_row].name == input.name : !absent);
    first_flat.push_back(flat);
    kernel->inputs.push_back(input);
    if (!listed) {
      if (!absent && n > 0) fail(ErrorKind::Runtime, where, " lacks input '", input.name, "', which the call gives");
      flat += static_cast<size_t>(n);
      continue;
    }
    const Row::Input& have = row.inputs[at_row++];
    kernel->inputs.back().name = have.name;
    if (have.list != input.list)
      fail(ErrorKind::Runtime, where, ": input '", have.name, "' is a list in one place only");
    for (int32_t j = 0; j < n; ++j, ++flat) {
      const Operand& operand = call.flat[flat];
      if (operand.kind == Operand::Kind::Absent) continue;
      if (!have.dtype) fail(ErrorKind::Runtime, where, ": input '", have.name, "' has no dtype");
      if (operand.kind == Operand::Kind::Weak && !kernel->casts[flat]) kernel->casts[flat] = have.dtype;
      DType got = kernel->casts[flat].value_or(operand.dtype());
      if (got != *have.dtype)
        fail(ErrorKind::Runtime, where, ": input '", have.name, "' is ", dtype_name(got), ", the kernel takes ",
             dtype_name(*have.dtype));
    }
  }
  if (at_row != row.inputs.size())
    fail(ErrorKind::Runtime, where, " has an input '", row.inputs[at_row].name, "' that the op has not, or not there");
  for (const Row::Output& output : row.outputs) {
    int twin = -1;
    for (const auto& [out, in] : row.inplace)
      for (size_t k = 0; k < kernel->inputs.size(); ++k)
        if (out == output.name && in == kernel->inputs[k].name && !kernel->inputs[k].list)
          twin = static_cast<int>(first_flat[k]);
    kernel->twin.push_back(twin);
  }
  for (const Row::Attr& attr : row.attrs) {
    int at = signature.find_attr(attr.name);
    if (at < 0) fail(ErrorKind::Runtime, where, ": the op has no attribute '", attr.name, "'");
    kernel->attr_index.push_back(at);
  }
  kernel->symbols = load_kernel(resolution.library, row.symbol);
  kernel->library = resolution.library;

  const Kernel* made = kernel.get();
  {
    std::lock_guard lock(mutex_);
    kernels_.push_back(std::move(kernel));
  }
  Key key;
  append_key(op, call, false, key);
  std::lock_guard lock(op.mutex_);
  std::string flat_key(key.data(), key.size());
  if (row.ranked) {
    op.cache_.insert_or_assign(std::move(flat_key), OpEntry::Slot{nullptr, true});
    key.clear();
    append_key(op, call, true, key);
    op.cache_.insert_or_assign(std::string(key.data(), key.size()), OpEntry::Slot{made, false});
  } else {
    op.cache_.insert_or_assign(std::move(flat_key), OpEntry::Slot{made, false});
  }
  return made;
}

// ---- calls ----

OwTensor describe_scalar(void* slot, DType dtype) {
  static int64_t none[1] = {1};
  return OwTensor{slot, kCpu, 0, to_dlpack(dtype), none, none, 0};
}

namespace {

void check_given(const std::string& op, const Row::Output& want, const OwShape& shape, const Tensor& out) {
  if (out.dtype != want.dtype)
    fail(ErrorKind::Type, op, ": out '", want.name, "' is ", dtype_name(out.dtype), ", the result is ",
         dtype_name(want.dtype));
  if (out.rank != shape.rank || !std::equal(out.sizes, out.sizes + out.rank, shape.dim))
    fail(ErrorKind::Value, op, ": out '", want.name, "' has shape ", shape_text(out.sizes, out.rank),
         ", the result has ", shape_text(shape.dim, shape.rank));
  if (out.storage->readonly()) fail(ErrorKind::Value, op, ": out '", want.name, "' is read-only");
  if (overlaps_itself(out))
    fail(ErrorKind::Value, op, ": out '", want.name, "' overlaps itself: several indices share one address");
}

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
  ~Workspace() { deallocate(data, bytes); }
};

}  // namespace

void Dispatcher::run(const OpEntry& op, const Kernel& kernel, const Invocation& call, Tensor* outputs) {
  struct Slot {
    alignas(16) char bytes[16];
  };
  AllocationTag tag(op.tag);
  const Row& row = kernel.row;
  const std::string& name = op.name;
  size_t n_in = call.flat.size(), n_out = row.outputs.size(), n_attr = row.attrs.size();

  SmallVec<OwTensor, 8> descriptors(n_in + n_out);
  SmallVec<const OwTensor*, 12> pointers(n_in + n_out);
  SmallVec<Slot, 4> slots(n_in);
  SmallVec<OwAttr, 8> attrs(n_attr);
  SmallVec<OwShape, 2> shapes(n_out);
  std::forward_list<Tensor> copies;  // rarely any: casts, and inputs that an output would overwrite

  for (size_t k = 0; k < n_in; ++k) {
    const Operand& operand = call.flat[k];
    switch (operand.kind) {
      case Operand::Kind::Absent:
        continue;
      case Operand::Kind::Weak:
        store_scalar(&slots[k], *kernel.casts[k], operand.scalar);
        descriptors[k] = describe_scalar(&slots[k], *kernel.casts[k]);
        break;
      case Operand::Kind::Tensor:
        if (kernel.casts[k] && *kernel.casts[k] != operand.tensor->dtype) {
          copies.push_front(cast(*operand.tensor, *kernel.casts[k]));
          descriptors[k] = copies.front().describe();
        } else {
          descriptors[k] = operand.tensor->describe();
        }
        break;
    }
    pointers[k] = &descriptors[k];
  }
  for (size_t k = 0; k < n_attr; ++k) attrs[k] = call.attrs[kernel.attr_index[k]].describe();

  OwError error{OW_OK, -1, -1, -1, 0, 0};
  ThreadPool& pool = ThreadPool::instance();
  OwCall c{};
  c.flags = tile_flag();
  c.abi = OW_ABI;
  c.n_in = static_cast<int32_t>(n_in);
  c.n_out = static_cast<int32_t>(n_out);
  c.n_attr = static_cast<int32_t>(n_attr);
  c.in = pointers.data();
  c.list_len = call.list_len.empty() ? nullptr : call.list_len.data();
  c.out = pointers.data() + n_in;
  c.attr = attrs.data();
  c.shapes = shapes.data();
  c.error = &error;
  c.parallel = ThreadPool::entry;
  c.pool = &pool;
  c.max_threads = pool.threads();

  if (int32_t status = kernel.symbols.infer(&c); status != OW_OK) raise_status(name, kernel, status, error, c.list_len);

  for (size_t k = 0; k < n_out; ++k) {
    Tensor& out = outputs[k];
    const OwShape& shape = shapes[k];
    if (!out.defined()) {
      try {
        out = empty(shape.dim, shape.rank, row.outputs[k].dtype);
      } catch (const Error& error) {
        throw Error(error.kind(), cat(name, ": output '", row.outputs[k].name, "': ", error.message()));
      }
    } else {
      check_given(name, row.outputs[k], shape, out);
      for (size_t j = 0; j < k; ++j)
        if (may_share_memory(outputs[j], out))
          fail(ErrorKind::Value, name, ": outputs '", row.outputs[j].name, "' and '", row.outputs[k].name, "' overlap");
      for (size_t j = 0; j < n_in; ++j) {
        const Operand& operand = call.flat[j];
        bool uncast = operand.kind == Operand::Kind::Tensor && descriptors[j].data == operand.tensor->data();
        if (!uncast || !may_share_memory(*operand.tensor, out)) continue;
        if (static_cast<int>(j) == kernel.twin[k] && identical(*operand.tensor, out)) {
          c.flags |= int32_t{1} << k;
          continue;
        }
        copies.push_front(clone(*operand.tensor));  // the result is as if the input had been copied
        descriptors[j] = copies.front().describe();
      }
    }
    descriptors[n_in + k] = out.describe();
    pointers[n_in + k] = &descriptors[n_in + k];
  }

  Workspace workspace;
  int64_t bytes = kernel.symbols.workspace(&c);
  if (bytes < 0) raise_status(name, kernel, -bytes, error, c.list_len);
  if (bytes > 0) {
    workspace.data = allocate(static_cast<size_t>(bytes));
    workspace.bytes = static_cast<size_t>(bytes);
    c.workspace = workspace.data;
    c.workspace_bytes = bytes;
  }
  int32_t status = kernel.symbols.run(&c);
  for (size_t k = 0; k < n_out; ++k) outputs[k].storage->bump_version();
  if (status != OW_OK) raise_status(name, kernel, status, error, c.list_len);
}

}  // namespace ow
