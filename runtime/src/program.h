// A program folder in memory, and its execution: no Python between nodes.
// May include: dispatcher.h, expr.h, table.h. The format is docs/internals.md, "A program folder".
//
//   load   program_load.cpp   JSON -> Program; weights mapped; every call resolved to a kernel
//   bind   program_bind.cpp   sizes of one binding of the symbols: layouts, prepared calls, the memory plan; cached
//   run    program_run.cpp    patch pointers, run the nodes
//
// What depends on data (a register that is read, an extent that a call decides) is *dynamic*: its layout, its call's
// preparation and its memory are made when its node is reached; everything else is made once per binding.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dispatcher.h"
#include "expr.h"
#include "safetensors.h"
#include "table.h"

namespace ow {

struct Binding;

struct Perturbation {
  enum class Kind { Scale, BFloat16 } kind;
  double factor = 1;
};

class Program {
 public:
  struct Port {  // an input or output by name
    std::string name;
    int value;
    DType dtype;
    int32_t rank;
    bool scalar;
    std::vector<std::string> shape;  // the extents' expressions, for people
  };
  struct CallInfo {
    std::string id, op, site, aten, symbol, library;
    std::vector<bool> list;  // per input of the op
  };
  // After each call: its index among the calls, its tensors (undefined: absent; weak scalars as rank-0 tensors), its
  // attributes. Called while other nodes wait.
  struct Seen {
    int call;
    const std::vector<Tensor>& inputs;
    const std::vector<int32_t>& list_len;
    const std::vector<std::pair<std::string, AttrValue>>& attrs;
    const std::vector<Tensor>& outputs;
  };
  using Observer = std::function<void(const Seen&)>;
  struct Result {
    Tensor tensor;  // undefined for a register
    Scalar scalar;
  };
  struct Plan {  // what a binding costs
    int64_t arena, unshared;
    int calls, dynamic;
    int donated;  // states that are updated in place
  };

  // Needs the GIL: calls the miss hook. With a table, ops and kernels come from it alone, and no hook is called.
  static std::shared_ptr<Program> load(const std::string& folder, std::shared_ptr<KernelTable> table = nullptr);
  // What its calls ask a miss hook for, each once; nothing is resolved. Needs the GIL.
  struct Asked {
    std::string text;  // request_text
    Request request;
  };
  static std::vector<Asked> requests(const std::string& folder);
  ~Program();

  const std::string& name() const { return name_; }
  const Json& json() const { return json_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  std::vector<CallInfo> calls() const;
  int find_call(const std::string& id) const;  // -1: none

  // `tensors` in the order of inputs(). Several threads may run at once, and an observer may run the program again; runs
  // that update constants (state that is no input) wait for each other.
  std::vector<Result> run(const std::vector<Tensor>& tensors, const Observer& observer = {},
                          const std::unordered_map<int, Perturbation>& perturb = {});
  std::map<std::string, int64_t> symbols(const std::vector<Tensor>& tensors) const;  // those that the inputs decide
  Plan plan(const std::vector<Tensor>& tensors);

  // One call by itself, on given inputs; `environment` gives what its attributes read.
  std::vector<Tensor> run_call(int call, const std::vector<Operand>& flat, const std::vector<int32_t>& list_len,
                               const std::map<std::string, int64_t>& environment);

 private:
  friend class Loader;
  friend struct Binding;

  struct Slot {  // a symbol or a register
    std::string name;
    bool is_symbol = false, dynamic = false;
    DType dtype = DType::I64;
    int64_t min = 0, max = INT64_MAX, divisor = 1;
    int source = -1;  // value whose axis this symbol is
    int axis = 0;
  };

  enum class Origin : uint8_t { Input, Weight, Made, View };
  struct Value {
    std::string id;
    bool scalar = false, dynamic = false;
    int slot = -1;  // registers
    DType dtype = DType::F32;
    std::vector<Expr> shape, strides;
    Expr offset;
    Origin origin = Origin::Made;
    int root = -1;             // itself, or the base of a view
    int port = -1;             // inputs: index among them
    int maker = -1;            // node
    Tensor data;               // weights and constants
    std::vector<int> symbols;  // dynamic symbols that this value decides
    int donor = -1;            // the input or constant whose memory it takes, to update it in place
  };

  struct Argument {
    enum class Kind : uint8_t { Absent, Value, Scalar, Symbolic } kind = Kind::Absent;
    int value = -1;
    Scalar scalar;  // Symbolic: its kind tells the category
    Expr expr;
  };
  struct Patch {  // an attribute (or item `at` of a list) that an expression decides
    int attr, at;
    Expr expr;
  };
  enum class Kind : uint8_t { Call, View, Register, Read, Copy, Assert };
  struct Node {
    Kind kind = Kind::Call;
    bool dynamic = false;
    int in = -1, out = -1;          // View, Read, Copy; Register: out is a slot; Read: out is a slot
    Expr expr;                      // Register, Assert
    std::string message;            // Assert
    std::string id, site, op_name;  // the last: of other nodes than calls the kind
    // calls
    int call = -1;  // index among the calls
    std::string aten;
    OpEntry* op = nullptr;
    const Kernel* kernel = nullptr;
    std::vector<Argument> args;  // flat
    std::vector<int32_t> list_len;
    std::vector<bool> list;
    std::vector<std::string> attr_names;  // in the order of the signature, as are the values
    std::vector<AttrValue> attrs;
    std::vector<Patch> patches;
    std::vector<int> outs;       // value, or -1
    int32_t inplace = 0;         // bit k: output k takes the memory of its twin
    std::vector<int> last_uses;  // dynamic roots that nothing reads after this node
  };
  struct State {
    int input;  // value: an input or a constant
    int output;
    bool donated = false;  // calls write the new value where the old one is; else it is copied there after the run
  };

  Program() = default;
  // A binding that nobody else uses; give_back() returns it.
  std::unique_ptr<Binding> bind(const std::vector<Tensor>& tensors);
  void give_back(std::unique_ptr<Binding> binding);
  void check_inputs(const std::vector<Tensor>& given) const;
  std::vector<Number> solve(const std::vector<Tensor>& tensors) const;
  void check_symbol(const Slot& slot, int64_t extent, const std::string& where) const;
  void evaluate_attrs(const Node& node, const std::vector<Number>& environment, std::vector<AttrValue>& attrs) const;
  std::vector<std::pair<std::string, AttrValue>> named_attrs(const Node& node,
                                                             const std::vector<AttrValue>& attrs) const;
  void check_assertion(const Node& node, const std::vector<Number>& environment) const;
  [[noreturn]] void fail_in(const Node& node, const Error& error) const;
  std::string describe(const Node& node) const;
  void execute(Binding& binding, const Observer& observer, const std::unordered_map<int, Perturbation>& perturb);
  void execute_call(Binding& binding, const Node& node, const Observer& observer,
                    const std::unordered_map<int, Perturbation>& perturb);
  void execute_other(Binding& binding, const Node& node);

  std::string folder_, name_;
  const char* tag_ = "";                // what its memory is allocated for
  std::shared_ptr<KernelTable> table_;  // owns the ops of its calls; null: the dispatcher does
  Json json_;
  std::vector<Slot> slots_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<int> calls_;  // node of each call
  std::vector<Port> inputs_, outputs_;
  std::vector<State> state_;
  SafeTensors weights_;
  bool updates_constants_ = false, constants_lost_ = false;
  std::mutex constants_mutex_;               // held by runs that update constants
  std::atomic<std::thread::id> updating_{};  // the thread that holds it
  std::mutex mutex_;
  std::vector<std::unique_ptr<Binding>> bindings_;  // that no run uses, the last used first
};

// ---- one binding of the symbols ----

struct ValueLayout {
  int32_t rank = 0;
  int64_t offset = 0;  // in elements of the root
  int64_t sizes[OW_MAX_RANK];
  int64_t strides[OW_MAX_RANK];
  int64_t numel() const {
    int64_t n = 1;
    for (int32_t k = 0; k < rank; ++k) n *= sizes[k];
    return n;
  }
};

// A call with everything but addresses.
struct PreparedCall {
  struct alignas(16) Item {
    char bytes[16];
  };
  std::vector<OwTensor> tensors;  // inputs, then outputs
  std::vector<const OwTensor*> pointers;
  std::vector<Item> scalars;
  std::vector<AttrValue> attrs;
  std::vector<OwAttr> attr_words;
  std::vector<OwShape> shapes;
  std::vector<int64_t> cast_offset;     // per input: where its converted copy lies in the arena; -1: none
  std::vector<int64_t> unread_offset;   // per output that nobody reads: its place in the arena; -1: it is a value
  std::vector<int64_t> dense_strides;   // of converted copies and unread outputs
  std::vector<StoragePtr> temporaries;  // dynamic calls own theirs
  int64_t workspace_offset = -1, workspace_bytes = 0;
  OwError error{};
  OwCall call{};
};

int64_t dense_bytes(const OwTensor& t);  // of its elements, laid out densely

struct Binding {
  std::vector<int64_t> key;  // static symbols, and the number of threads
  std::vector<Number> environment;
  std::vector<ValueLayout> layouts;
  std::vector<PreparedCall> calls;
  std::vector<int64_t> arena_offset;  // per root value made by a static node that does not leave the program; else -1
  std::vector<bool> leaves;           // per value: its memory is handed out
  int64_t arena_bytes = 0, unshared_bytes = 0;

  // of the run in progress
  bool touched = false;     // a call that updates state in place has begun
  std::vector<char*> data;  // first element of each root, of each view
  std::vector<StoragePtr> storage;
  StoragePtr arena;

  Binding(const Program& program, std::vector<Number> solved);
  void place(const Program& program, int value);                    // evaluates its layout
  void prepare(const Program& program, const Program::Node& node);  // everything but addresses; runs infer
  void point(const Program::Node& node);                            // fills in the addresses
  void view(const Program& program, int value);                     // its address
  void allocate_value(const Program& program, int value);

 private:
  void plan(const Program& program);
};

}  // namespace ow
