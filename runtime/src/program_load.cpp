// From a program folder to a Program (program.h): read, check, map weights, resolve calls.
// Everything that can be wrong with a folder is found here, each as one error that names the file and the place.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "allocator.h"
#include "program.h"

namespace ow {
namespace {

bool is_float_word(const Json& json) { return json.is_object() && json.find("float") != nullptr; }

double float_word(const Json& json, const std::string& where) {
  const std::string& word = json.at("float", where).as_string(where);
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail(ErrorKind::Program, where, ": '", word, "' is none of inf, -inf, nan");
}

}  // namespace

class Loader {
 public:
  Loader(const std::string& folder, std::shared_ptr<KernelTable> table) : path_(folder + "/program.json") {
    program_ = std::shared_ptr<Program>(new Program);
    program_->folder_ = folder;
    program_->table_ = std::move(table);
  }

  std::shared_ptr<Program> load() {
    read();
    resolve();
    find_donations();
    return program_;
  }

  std::vector<Program::Asked> requests() {
    read();
    std::vector<Program::Asked> out;
    std::unordered_map<std::string, bool> seen;
    make_invocations();
    for (const auto& [op, call] : asked_) {
      Request request = Dispatcher::request_for(*op, *call);
      std::string text = request_text(request, op->group.empty() ? op->signature : Signature{});
      if (seen.emplace(text, true).second) out.push_back({std::move(text), std::move(request)});
    }
    return out;
  }

 private:
  void read() {
    Program& p = *program_;
    std::string text = read_text_file(path_);
    if (p.table_ && !p.table_->program().empty() && p.table_->program() != digest_of(text))
      fail(ErrorKind::Program, p.table_->folder(), "/kernels.json: was built for another program.json than ", path_,
           ": run `opwright build ", p.folder_, "` again");
    p.json_ = Json::parse(text, path_);
    const Json& json = p.json_;
    int64_t schema = json.at("schema", path_).as_int(path_);
    if (schema != 1) fail(ErrorKind::Program, path_, ": schema ", schema, " is not known; this runtime reads 1");
    p.name_ = json.at("name", path_).as_string(path_);
    p.tag_ = lasting_text("program " + p.name_);
    if (const Json* target = json.find("target"); target != nullptr && target->as_string(path_) != "cpu")
      fail(ErrorKind::Program, path_, ": target '", target->string, "' is not supported; this runtime runs cpu");
    read_names(json);
    read_values(json);
    read_inputs(json);
    read_weights(json);
    read_nodes(json);
    read_outputs(json);
    find_dynamic();
  }

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorKind::Program, path_, ": ", parts...);
  }

  int value_of(const std::string& id, const std::string& where) const {
    auto found = value_index_.find(id);
    if (found == value_index_.end()) bad(where, " names '", id, "', which is not among the values");
    return found->second;
  }

  int slot_of(const std::string& name, const std::string& where) const {
    auto found = slot_index_.find(name);
    if (found == slot_index_.end()) bad(where, " reads '", name, "', which is neither a symbol nor a register");
    return found->second;
  }

  Expr expr(const Json& json, const std::string& where) const {
    return Expr::parse(json, [&](const std::string& name) { return slot_of(name, where); }, path_ + ": " + where);
  }

  std::vector<Expr> exprs(const Json& json, const std::string& where) const {
    std::vector<Expr> out;
    for (const Json& item : json.as_array(path_ + ": " + where)) out.push_back(expr(item, where));
    if (out.size() > OW_MAX_RANK) bad(where, " has a rank over ", OW_MAX_RANK);
    return out;
  }

  DType dtype(const Json& json, const std::string& where) const {
    DType out;
    if (!parse_dtype(json.as_string(path_ + ": " + where), &out)) bad(where, ": unknown dtype '", json.string, "'");
    return out;
  }

  // Names first, so that expressions anywhere may use them.
  void read_names(const Json& json) {
    Program& p = *program_;
    if (const Json* symbols = json.find("symbols")) {
      for (const auto& [name, value] : symbols->as_object(path_)) {
        std::string where = path_ + ": symbol '" + name + "'";
        Program::Slot slot;
        slot.name = name;
        slot.is_symbol = true;
        if (const Json* min = value.find("min")) slot.min = min->as_int(where);
        if (const Json* max = value.find("max")) slot.max = max->as_int(where);
        if (const Json* divisor = value.find("divisor")) slot.divisor = divisor->as_int(where);
        if (slot.divisor < 1 || slot.min > slot.max) fail(ErrorKind::Program, where, " has an empty range");
        slot_index_.emplace(name, static_cast<int>(p.slots_.size()));
        p.slots_.push_back(std::move(slot));
      }
    }
    for (const auto& [id, value] : json.at("values", path_).as_object(path_)) {
      std::string where = path_ + ": value '" + id + "'";
      Program::Value made;
      made.id = id;
      made.dtype = dtype(value.at("dtype", where), "value '" + id + "'");
      const Json* kind = value.find("kind");
      made.scalar = kind != nullptr && kind->as_string(where) == "scalar";
      made.root = static_cast<int>(p.values_.size());
      if (made.scalar) {
        if (made.dtype != DType::I64 && made.dtype != DType::F64 && made.dtype != DType::Bool)
          fail(ErrorKind::Program, where, " is a register of ", dtype_name(made.dtype),
               "; registers are i64, f64 or bool");
        Program::Slot slot;
        slot.name = id;
        slot.dtype = made.dtype;
        made.slot = static_cast<int>(p.slots_.size());
        if (!slot_index_.emplace(id, made.slot).second) fail(ErrorKind::Program, where, " has the name of a symbol");
        p.slots_.push_back(std::move(slot));
      }
      value_index_.emplace(id, made.root);
      p.values_.push_back(std::move(made));
    }
  }

  void read_values(const Json& json) {
    Program& p = *program_;
    size_t at = 0;
    for (const auto& [id, value] : json.at("values", path_).as_object(path_)) {
      Program::Value& made = p.values_[at++];
      if (made.scalar) continue;
      std::string where = "value '" + id + "'";
      made.shape = exprs(value.at("shape", path_ + ": " + where), where);
      made.offset = Expr::constant(0);
      if (const Json* strides = value.find("strides")) {
        made.strides = exprs(*strides, where);
        if (made.strides.size() != made.shape.size())
          bad(where, " has ", made.shape.size(), " extents and ", made.strides.size(), " strides");
      }
    }
  }

  Program::Port port(const Json& item, const std::string& where) const {
    const Json& value = item.at("value", path_ + ": " + where);
    const std::string& name = item.at("name", path_ + ": " + where).as_string(path_ + ": " + where);
    int index = value_of(value.as_string(path_ + ": " + where), where + " '" + name + "'");
    const Program::Value& v = program_->values_[static_cast<size_t>(index)];
    Program::Port out{name, index, v.dtype, static_cast<int32_t>(v.shape.size()), v.scalar, {}};
    for (const Expr& extent : v.shape) out.shape.push_back(extent.text());
    return out;
  }

  void define(int value, const std::string& where) {
    if (!defined_.insert({value, true}).second)
      bad(where, " makes '", program_->values_[static_cast<size_t>(value)].id, "' again");
  }

  void use(int value, const std::string& where, bool scalar = false) const {
    const Program::Value& v = program_->values_[static_cast<size_t>(value)];
    if (defined_.count(value) == 0) bad(where, " reads '", v.id, "' before it is made");
    if (v.scalar != scalar) bad(where, " reads '", v.id, "', which is a ", v.scalar ? "register" : "tensor");
  }

  void read_inputs(const Json& json) {
    Program& p = *program_;
    for (const Json& item : json.at("inputs", path_).as_array(path_)) {
      Program::Port made = port(item, "input");
      if (made.scalar) bad("input '", made.name, "' is a register; inputs are tensors");
      for (const Program::Port& other : p.inputs_)
        if (other.name == made.name) bad("input '", made.name, "' appears twice");
      define(made.value, "input '" + made.name + "'");
      Program::Value& v = p.values_[static_cast<size_t>(made.value)];
      v.origin = Program::Origin::Input;
      v.port = static_cast<int>(p.inputs_.size());
      p.inputs_.push_back(std::move(made));
    }
    if (const Json* symbols = json.find("symbols")) {
      size_t at = 0;
      for (const auto& [name, value] : symbols->object) {
        Program::Slot& slot = p.slots_[at];
        std::string where = "symbol '" + name + "'";
        const std::vector<Json>& from = value.at("from", path_ + ": " + where).as_array(path_ + ": " + where);
        if (from.size() != 2) bad(where, ": from must be a name and an axis");
        const std::string& source = from[0].as_string(path_ + ": " + where);
        int64_t axis = from[1].as_int(path_ + ": " + where);
        for (const Program::Port& input : p.inputs_)
          if (input.name == source) slot.source = input.value;
        if (slot.source < 0) {
          slot.source = value_of(source, where);
          slot.dynamic = true;
        }
        Program::Value& v = p.values_[static_cast<size_t>(slot.source)];
        if (axis < 0 || axis >= static_cast<int64_t>(v.shape.size()) ||
            v.shape[static_cast<size_t>(axis)].only_slot() != static_cast<int>(at))
          bad(where, " is not the extent along axis ", axis, " of '", source, "'");
        slot.axis = static_cast<int>(axis);
        if (slot.dynamic) v.symbols.push_back(static_cast<int>(at));
        ++at;
      }
    }
  }

  void read_weights(const Json& json) {
    Program& p = *program_;
    const Json* lists[] = {json.find("weights"), json.find("constants")};
    bool any = false;
    for (const Json* list : lists) any |= list != nullptr && !list->as_array(path_).empty();
    std::unordered_map<std::string, bool> mutable_values;
    if (const Json* state = json.find("state"))
      for (const Json& item : state->as_array(path_)) mutable_values[item.at("input", path_).as_string(path_)] = true;
    if (!any) return;
    const SafeTensors& file = p.weights_ = SafeTensors::open(p.folder_ + "/weights.safetensors");
    for (const Json* list : lists) {
      if (list == nullptr) continue;
      const char* what = list == lists[0] ? "weight" : "constant";
      for (const Json& item : list->array) {
        std::string tensor = item.at("tensor", path_).as_string(path_);
        std::string where = std::string(what) + " '" + tensor + "'";
        int index = value_of(item.at("value", path_ + ": " + where).as_string(path_ + ": " + where), where);
        define(index, where);
        Program::Value& v = p.values_[static_cast<size_t>(index)];
        const Json* tie = item.find("tie");
        std::string stored = tensor;
        if (!file.contains(stored) && tie != nullptr) stored = tie->as_string(path_ + ": " + where);
        if (!file.contains(stored)) fail(ErrorKind::Program, file.path(), ": ", where, " is missing");
        v.origin = Program::Origin::Weight;
        v.data = file.get(stored);
        Tensor want;
        want.rank = static_cast<int32_t>(v.shape.size());
        for (size_t k = 0; k < v.shape.size(); ++k) {
          if (!v.shape[k].is_constant()) bad(where, " has an extent that is not a number: ", v.shape[k].text());
          want.sizes[k] = v.shape[k].constant_value();
        }
        if (v.data.dtype != v.dtype)
          fail(ErrorKind::Program, file.path(), ": ", where, " is ", dtype_name(v.data.dtype), ", the program wants ",
               dtype_name(v.dtype));
        if (!v.data.same_shape(want))
          fail(ErrorKind::Program, file.path(), ": ", where, " has shape ", shape_text(v.data.sizes, v.data.rank),
               ", the program wants ", shape_text(want.sizes, want.rank));
        if (mutable_values.count(v.id) != 0) v.data = clone(v.data);
      }
    }
  }

  // ---- nodes ----

  std::string node_name(const Json& json, size_t index) const {
    if (const Json* id = json.find("id")) return "node '" + id->as_string(path_) + "'";
    return cat("node ", index);
  }

  void read_nodes(const Json& json) {
    Program& p = *program_;
    size_t index = 0;
    for (const Json& item : json.at("nodes", path_).as_array(path_)) {
      std::string where = node_name(item, index++);
      const std::string& kind = item.at("kind", path_ + ": " + where).as_string(path_ + ": " + where);
      Program::Node node;
      node.op_name = kind;
      node.id = cat('#', index - 1);
      if (const Json* id = item.find("id")) node.id = id->as_string(path_ + ": " + where);
      if (const Json* site = item.find("site")) node.site = site->as_string(path_ + ": " + where);
      int number = static_cast<int>(p.nodes_.size());
      auto text = [&](const char* key) -> const std::string& {
        return item.at(key, path_ + ": " + where).as_string(path_ + ": " + where);
      };
      auto make = [&](int value) -> Program::Value& {
        define(value, where);
        Program::Value& v = p.values_[static_cast<size_t>(value)];
        v.maker = number;
        return v;
      };
      if (kind == "call") {
        read_call(item, where, number, node);
      } else if (kind == "view") {
        node.kind = Program::Kind::View;
        node.in = value_of(text("in"), where);
        use(node.in, where);
        node.out = value_of(text("out"), where);
        Program::Value& v = make(node.out);
        const Program::Value& base = p.values_[static_cast<size_t>(node.in)];
        if (base.origin == Program::Origin::View)
          bad(where, " is a view of '", base.id, "', itself a view: name the base");
        if (base.dtype != v.dtype) bad(where, " turns ", dtype_name(base.dtype), " into ", dtype_name(v.dtype));
        v.origin = Program::Origin::View;
        v.root = node.in;
        v.shape = exprs(item.at("shape", path_ + ": " + where), where);
        v.strides = exprs(item.at("strides", path_ + ": " + where), where);
        if (v.shape.size() != v.strides.size())
          bad(where, " has ", v.shape.size(), " extents and ", v.strides.size(), " strides");
        v.offset = expr(item.at("offset", path_ + ": " + where), where);
      } else if (kind == "scalar") {
        node.kind = Program::Kind::Register;
        node.out = make_register(text("out"), where);
        node.expr = expr(item.at("expr", path_ + ": " + where), where);
      } else if (kind == "read") {
        node.kind = Program::Kind::Read;
        node.in = value_of(text("in"), where);
        use(node.in, where);
        node.out = make_register(text("out"), where);
      } else if (kind == "copy") {
        node.kind = Program::Kind::Copy;
        if (text("device") != "cpu") bad(where, " copies to '", text("device"), "'; this runtime has cpu only");
        node.in = value_of(text("in"), where);
        use(node.in, where);
        node.out = value_of(text("out"), where);
        make(node.out);
        if (p.values_[static_cast<size_t>(node.out)].scalar) bad(where, " copies to a register");
      } else if (kind == "assert") {
        node.kind = Program::Kind::Assert;
        node.expr = Expr::condition(
            item.at("cond", path_ + ": " + where), [&](const std::string& name) { return slot_of(name, where); },
            path_ + ": " + where);
        if (const Json* message = item.find("message")) node.message = message->as_string(path_ + ": " + where);
      } else {
        bad(where, " is of the kind '", kind, "', which is not known");
      }
      p.nodes_.push_back(std::move(node));
    }
    for (const Program::Value& v : p.values_)
      if (defined_.count(value_index_.at(v.id)) == 0) bad("value '", v.id, "' is never made");
  }

  int make_register(const std::string& id, const std::string& where) {
    int value = value_of(id, where);
    define(value, where);
    const Program::Value& v = program_->values_[static_cast<size_t>(value)];
    if (!v.scalar) bad(where, " makes '", id, "', which is no register");
    return v.slot;
  }

  Program::Argument argument(const Json& json, const std::string& where) const {
    Program::Argument out;
    if (json.is_null()) return out;
    if (json.is_string()) {
      out.kind = Program::Argument::Kind::Value;
      out.value = value_of(json.string, where);
      use(out.value, where);
      return out;
    }
    const Json& number = json.at("scalar", path_ + ": " + where);
    out.kind = Program::Argument::Kind::Scalar;
    if (number.is_object() && number.find("sym") != nullptr) {
      out.kind = Program::Argument::Kind::Symbolic;
      out.expr = expr(*number.find("sym"), where);
      int slot = out.expr.only_slot();
      DType type = slot < 0 ? DType::I64 : program_->slots_[static_cast<size_t>(slot)].dtype;
      out.scalar = type == DType::F64    ? Scalar::of_float(0)
                   : type == DType::Bool ? Scalar::of_bool(false)
                                         : Scalar::of_int(0);
    } else if (is_float_word(number)) {
      out.scalar = Scalar::of_float(float_word(number, path_ + ": " + where));
    } else if (number.type == Json::Type::Bool) {
      out.scalar = Scalar::of_bool(number.boolean);
    } else if (number.is_int()) {
      out.scalar = Scalar::of_int(number.integer);
    } else if (number.is_number()) {
      out.scalar = Scalar::of_float(number.number);
    } else {
      bad(where, ": a scalar must be a number, got ", number.type_name());
    }
    return out;
  }

  // One number of an attribute; expressions leave a patch behind.
  bool attr_number(const Json& json, const std::string& where, int attr, int at, Program::Node& node, double* f,
                   int64_t* i, bool* is_float) const {
    *is_float = false;
    if (json.is_object() && json.find("sym") != nullptr) {
      Expr value = expr(*json.find("sym"), where);
      int slot = value.only_slot();
      *is_float = slot >= 0 && program_->slots_[static_cast<size_t>(slot)].dtype == DType::F64;
      *i = 0;
      *f = 0;
      node.patches.push_back({attr, at, std::move(value)});
      return true;
    }
    if (is_float_word(json)) {
      *is_float = true;
      *f = float_word(json, path_ + ": " + where);
      *i = convert<int64_t>(*f);
      return true;
    }
    if (json.type == Json::Type::Bool) {
      *i = json.boolean;
      *f = static_cast<double>(*i);
      return true;
    }
    if (!json.is_number()) return false;
    *is_float = !json.is_int();
    *f = json.number;
    *i = json.is_int() ? json.integer : convert<int64_t>(*f);
    return true;
  }

  AttrValue attr_value(const Json& json, const AttrSpec& spec, int attr, Program::Node& node,
                       const std::string& where) const {
    AttrValue out;
    auto refuse = [&](const char* want) {
      bad(where, ": attribute '", spec.name, "' must be ", want, ", got ", json.type_name());
    };
    if (json.is_null()) {
      bool allowed = spec.optional || (spec.has_default && !spec.default_value.present());
      if (!allowed) bad(where, ": attribute '", spec.name, "' must not be null");
      return out;
    }
    double f;
    int64_t i;
    bool is_float;
    switch (spec.kind) {
      case AttrKind::DType:
        out.set_dtype(dtype(json, where + ": attribute '" + spec.name + "'"));
        return out;
      case AttrKind::Text:
        if (!json.is_string()) refuse("a string");
        out.tag = AttrValue::Tag::Text;
        out.text = json.string;
        return out;
      case AttrKind::Ints:
      case AttrKind::Axes:
      case AttrKind::Floats: {
        bool floats = spec.kind == AttrKind::Floats;
        out.tag = floats ? AttrValue::Tag::Floats : AttrValue::Tag::Ints;
        std::vector<Json> single{json};
        int at = 0;
        for (const Json& item : json.is_array() ? json.array : single) {
          if (!attr_number(item, where, attr, at++, node, &f, &i, &is_float) || (is_float && !floats))
            refuse(floats ? "a list of numbers" : "a list of integers");
          if (floats)
            out.floats.push_back(f);
          else
            out.ints.push_back(i);
        }
        return out;
      }
      default:
        break;
    }
    if (!attr_number(json, where, attr, -1, node, &f, &i, &is_float)) refuse("a number");
    switch (spec.kind) {
      case AttrKind::Bool:
        if (is_float || i < 0 || i > 1) refuse("true or false");
        out.set_bool(i != 0);
        break;
      case AttrKind::Float:
        out.set_float(f);
        break;
      case AttrKind::Scalar:
        if (is_float)
          out.set_float(f);
        else if (json.type == Json::Type::Bool)
          out.set_bool(i != 0);
        else
          out.set_int(i);
        break;
      default:
        if (is_float) refuse("an integer");
        out.set_int(i);
    }
    return out;
  }

  // Groups are registered nowhere: what the node shows of one stands for its signature. Numbers keep both forms, so
  // that the kernel finds the one it reads.
  Signature shown_signature(const Json& item, const std::string& name, const std::string& where) const {
    Signature out;
    out.name = name;
    size_t at = 0;
    for (const Json& input : item.at("in", path_ + ": " + where).as_array(path_ + ": " + where))
      out.inputs.push_back({cat("in", at++), true, input.is_array()});
    if (const Json* attrs = item.find("attrs")) {
      for (const auto& [attr, value] : attrs->as_object(path_ + ": " + where)) {
        AttrSpec spec;
        spec.name = attr;
        spec.optional = true;
        bool floats = false;
        for (const Json& number : value.array) floats |= number.type == Json::Type::Float || is_float_word(number);
        spec.kind = value.is_array()    ? (floats ? AttrKind::Floats : AttrKind::Ints)
                    : value.is_string() ? AttrKind::Text
                                        : AttrKind::Scalar;
        out.attrs.push_back(std::move(spec));
      }
    }
    for (size_t k = 0; k < item.at("out", path_ + ": " + where).as_array(path_ + ": " + where).size(); ++k)
      out.outputs.push_back({cat("out", k), false});
    return out;
  }

  OpEntry* find_op(const Json& item, const std::string& name, const std::string& where, const std::string& site) const {
    constexpr std::string_view kMissing = "missing:";
    if (name.starts_with(kMissing)) {
      const Json* why = item.find("why");
      bad(where, site, " calls ", name.substr(kMissing.size()), ", which no op supplies",
          why != nullptr ? ": " + why->as_string(path_) : "");
    }
    // What is local to a program: fused groups, and gradients of its calls.
    constexpr struct {
      std::string_view prefix, folder, suffix;
    } kLocal[] = {{"group:", "groups/", ".yaml"}, {"grad:", "grads/", ".json"}};
    for (const auto& local : kLocal) {
      if (!name.starts_with(local.prefix)) continue;
      std::string hash = name.substr(local.prefix.size());
      bool plain = !hash.empty() && std::all_of(hash.begin(), hash.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '_' || c == '-';
      });
      if (!plain) bad(where, site, ": '", name, "' names no file in ", local.folder);
      std::string file = cat(local.folder, hash, local.suffix), path = program_->folder_ + '/' + file;
      if (program_->table_) return &program_->table_->local(shown_signature(item, name, where));
      if (access(path.c_str(), R_OK) != 0) bad(where, site, ": ", file, " is missing");
      return &Dispatcher::instance().group(path, shown_signature(item, name, where));
    }
    OpEntry* entry = program_->table_ ? program_->table_->find(name) : Dispatcher::instance().find(name);
    if (entry == nullptr)
      fail(ErrorKind::Missing, path_, ": ", where, site, " calls op '", name, "', which is not registered");
    return entry;
  }

  void read_call(const Json& item, const std::string& where, int number, Program::Node& node) {
    Program& p = *program_;
    const std::string full = path_ + ": " + where;
    node.kind = Program::Kind::Call;
    node.call = static_cast<int>(p.calls_.size());
    node.op_name = item.at("op", full).as_string(full);
    if (const Json* aten = item.find("aten")) node.aten = aten->as_string(full);
    std::string site = node.site.empty() ? "" : " (" + node.site + ")";
    if (!call_ids_.emplace(node.id, true).second) bad(where, " is not the only one of this id");
    node.op = find_op(item, node.op_name, where, site);
    const Signature& sig = node.op->signature;

    const std::vector<Json>& inputs = item.at("in", full).as_array(full);
    if (inputs.size() != sig.inputs.size())
      bad(where, site, ": op '", node.op_name, "' has ", sig.inputs.size(), " inputs, the call gives ", inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) {
      const InputSpec& spec = sig.inputs[k];
      node.list.push_back(spec.list);
      if (!spec.list) {
        if (inputs[k].is_array()) bad(where, site, ": input '", spec.name, "' is no list");
        if (inputs[k].is_null() && !spec.optional) bad(where, site, ": input '", spec.name, "' is missing");
        node.args.push_back(argument(inputs[k], where));
        continue;
      }
      if (inputs[k].is_null()) {
        if (!spec.optional) bad(where, site, ": input '", spec.name, "' is missing");
        node.list_len.push_back(0);
        continue;
      }
      const std::vector<Json>& items = inputs[k].as_array(full + ": input '" + spec.name + "'");
      node.list_len.push_back(static_cast<int32_t>(items.size()));
      for (const Json& one : items) node.args.push_back(argument(one, where));
    }

    node.attrs.resize(sig.attrs.size());
    for (const AttrSpec& attr : sig.attrs) node.attr_names.push_back(attr.name);
    std::vector<bool> given(sig.attrs.size(), false);
    if (const Json* attrs = item.find("attrs")) {
      for (const auto& [name, value] : attrs->as_object(full)) {
        int at = sig.find_attr(name);
        if (at < 0) bad(where, site, ": op '", node.op_name, "' has no attribute '", name, "'");
        size_t before = node.patches.size();
        node.attrs[static_cast<size_t>(at)] =
            attr_value(value, sig.attrs[static_cast<size_t>(at)], at, node, where + site);
        given[static_cast<size_t>(at)] = true;
        if (sig.attrs[static_cast<size_t>(at)].is_static && node.patches.size() != before)
          bad(where, site, ": attribute '", name, "' is static: it cannot depend on a symbol");
      }
    }
    for (size_t k = 0; k < sig.attrs.size(); ++k) {
      if (given[k]) continue;
      if (sig.attrs[k].has_default)
        node.attrs[k] = sig.attrs[k].default_value;
      else if (!sig.attrs[k].optional)
        bad(where, site, ": attribute '", sig.attrs[k].name, "' is missing");
    }

    const std::vector<Json>& outs = item.at("out", full).as_array(full);
    if (outs.size() != sig.outputs.size())
      bad(where, site, ": op '", node.op_name, "' has ", sig.outputs.size(), " outputs, the call takes ", outs.size());
    for (const Json& out : outs) {
      if (out.is_null()) {
        node.outs.push_back(-1);
        continue;
      }
      int value = value_of(out.as_string(full), where);
      define(value, where);
      Program::Value& v = p.values_[static_cast<size_t>(value)];
      if (v.scalar) bad(where, " makes '", v.id, "', which is a register");
      v.maker = number;
      node.outs.push_back(value);
    }
    p.calls_.push_back(number);
  }

  void read_outputs(const Json& json) {
    Program& p = *program_;
    for (const Json& item : json.at("outputs", path_).as_array(path_)) p.outputs_.push_back(port(item, "output"));
    if (const Json* state = json.find("state")) {
      for (const Json& item : state->as_array(path_)) {
        const std::string& input = item.at("input", path_ + ": state").as_string(path_ + ": state");
        const std::string& output = item.at("output", path_ + ": state").as_string(path_ + ": state");
        int in = -1, out = value_of(output, "state '" + input + "'");
        for (const Program::Port& candidate : p.inputs_)
          if (candidate.name == input) in = candidate.value;
        if (in < 0) in = value_of(input, "state '" + input + "'");
        const Program::Value &a = p.values_[static_cast<size_t>(in)], &b = p.values_[static_cast<size_t>(out)];
        if (a.origin != Program::Origin::Input && a.origin != Program::Origin::Weight)
          bad("state '", input, "' is neither an input nor a constant");
        if (b.scalar || a.dtype != b.dtype || a.shape.size() != b.shape.size())
          bad("state '", input, "' becomes '", output, "', which is of another type");
        p.updates_constants_ |= a.origin == Program::Origin::Weight;
        p.state_.push_back({in, out, false});
      }
    }
  }

  // ---- what is known before any data is ----

  bool dynamic(const Expr& e) const {
    bool any = false;
    e.each_slot([&](int slot) { any |= program_->slots_[static_cast<size_t>(slot)].dynamic; });
    return any;
  }
  bool dynamic(const std::vector<Expr>& list) const {
    return std::any_of(list.begin(), list.end(), [&](const Expr& e) { return dynamic(e); });
  }
  bool dynamic_value(int value) const { return value >= 0 && program_->values_[static_cast<size_t>(value)].dynamic; }

  // Nodes are in order, so one pass does.
  void find_dynamic() {
    Program& p = *program_;
    for (Program::Value& v : p.values_)
      if ((v.origin == Program::Origin::Input || v.origin == Program::Origin::Weight) &&
          (dynamic(v.shape) || dynamic(v.strides)))
        bad("value '", v.id, "' is given, but has an extent that depends on data");
    auto declared = [&](int value) {
      if (value < 0) return false;
      const Program::Value& v = p.values_[static_cast<size_t>(value)];
      return dynamic(v.shape) || dynamic(v.strides) || dynamic(v.offset);
    };
    auto made = [&](int value, bool is_dynamic) {
      if (value >= 0) p.values_[static_cast<size_t>(value)].dynamic = is_dynamic;
    };
    for (Program::Node& node : p.nodes_) {
      switch (node.kind) {
        case Program::Kind::Read:
          node.dynamic = p.slots_[static_cast<size_t>(node.out)].dynamic = true;
          break;
        case Program::Kind::Register:
          node.dynamic = p.slots_[static_cast<size_t>(node.out)].dynamic = dynamic(node.expr);
          break;
        case Program::Kind::Assert:
          node.dynamic = dynamic(node.expr);
          break;
        case Program::Kind::View:
        case Program::Kind::Copy:
          node.dynamic = dynamic_value(node.in) || declared(node.out);
          made(node.out, node.dynamic);
          break;
        case Program::Kind::Call:
          for (const Program::Argument& arg : node.args)
            node.dynamic |=
                dynamic_value(arg.value) || (arg.kind == Program::Argument::Kind::Symbolic && dynamic(arg.expr));
          for (const Program::Patch& patch : node.patches) node.dynamic |= dynamic(patch.expr);
          for (int out : node.outs) node.dynamic |= declared(out);
          for (int out : node.outs) made(out, node.dynamic);
          break;
      }
    }
    find_last_uses();
  }

  void find_last_uses() {
    Program& p = *program_;
    std::vector<int> last(p.values_.size(), -1);
    auto root = [&](int value) { return static_cast<size_t>(p.values_[static_cast<size_t>(value)].root); };
    for (size_t k = 0; k < p.nodes_.size(); ++k) {
      const Program::Node& node = p.nodes_[k];
      for (const Program::Argument& arg : node.args)
        if (arg.value >= 0) last[root(arg.value)] = static_cast<int>(k);
      if (node.in >= 0) last[root(node.in)] = static_cast<int>(k);
      for (int out : node.outs)
        if (out >= 0) last[root(out)] = std::max(last[root(out)], static_cast<int>(k));
    }
    for (const Program::Port& out : p.outputs_)
      if (!out.scalar) last[root(out.value)] = -1;
    for (const Program::State& state : p.state_) last[root(state.output)] = -1;
    for (size_t v = 0; v < p.values_.size(); ++v)
      if (last[v] >= 0 && p.values_[v].dynamic && p.values_[v].origin == Program::Origin::Made)
        p.nodes_[static_cast<size_t>(last[v])].last_uses.push_back(static_cast<int>(v));
  }

  // ---- kernels ----

  // The calls as the dispatcher is asked for them. What they point at lives as long as this.
  void make_invocations() {
    Program& p = *program_;
    ranked_.resize(p.values_.size());
    for (size_t k = 0; k < p.values_.size(); ++k) {
      Tensor& t = ranked_[k];
      t.dtype = p.values_[k].dtype;
      std::fill_n(t.sizes, OW_MAX_RANK, 0);
      std::fill_n(t.strides, OW_MAX_RANK, 0);
      t.rank = static_cast<int32_t>(p.values_[k].shape.size());
    }
    invocations_.resize(p.calls_.size());
    for (size_t k = 0; k < p.calls_.size(); ++k) {
      const Program::Node& node = p.nodes_[static_cast<size_t>(p.calls_[k])];
      Invocation& call = invocations_[k];
      for (const Program::Argument& arg : node.args) {
        switch (arg.kind) {
          case Program::Argument::Kind::Absent:
            call.flat.push_back(Operand{});
            break;
          case Program::Argument::Kind::Value:
            call.flat.push_back(Operand::of(&ranked_[static_cast<size_t>(arg.value)]));
            break;
          default:
            call.flat.push_back(Operand::weak(arg.scalar));
        }
      }
      for (int32_t n : node.list_len) call.list_len.push_back(n);
      call.attrs = node.attrs.data();
      asked_.emplace_back(node.op, &call);
    }
  }

  void resolve() {
    Program& p = *program_;
    make_invocations();
    MissHook hook;
    if (p.table_) hook = [table = p.table_](const std::vector<Request>& requests) { return table->answer(requests); };
    std::vector<const Kernel*> kernels = Dispatcher::instance().resolve_many(asked_, hook);
    for (size_t k = 0; k < p.calls_.size(); ++k) {
      Program::Node& node = p.nodes_[static_cast<size_t>(p.calls_[k])];
      node.kernel = kernels[k];
      const Row& row = node.kernel->row;
      for (size_t j = 0; j < node.outs.size(); ++j) {
        if (node.outs[j] < 0) continue;
        const Program::Value& v = p.values_[static_cast<size_t>(node.outs[j])];
        if (row.outputs[j].dtype != v.dtype)
          bad("node '", node.id, "': op '", node.op_name, "' makes ", dtype_name(row.outputs[j].dtype), " as '",
              row.outputs[j].name, "', the program wants ", dtype_name(v.dtype));
      }
    }
  }

  // ---- state in place ----

  // State whose new value may be written where the old one is: from its output back to its input, each value is made by
  // a call whose kernel may overwrite one input with that output, and nobody reads that input then or later.
  void find_donations() {
    Program& p = *program_;
    auto value = [&](int v) -> Program::Value& { return p.values_[static_cast<size_t>(v)]; };
    auto is_root_of = [&](int root, int v) { return v >= 0 && value(v).root == root; };
    for (Program::State& state : p.state_) {
      std::vector<std::pair<int, int>> chain;  // value, and which output of its maker it is
      int v = state.output;
      bool good = true;
      auto shared = [&](int root) {  // somebody outside the nodes reads it
        bool any = false;
        for (const Program::Port& out : p.outputs_) any |= !out.scalar && is_root_of(root, out.value);
        for (const Program::State& other : p.state_)
          any |= &other != &state && (is_root_of(root, other.output) || other.input == root);
        return any;
      };
      while (good && v != state.input) {
        const Program::Value& made = value(v);
        good = made.origin == Program::Origin::Made && !made.dynamic && made.maker >= 0 && !shared(v) && made.donor < 0;
        if (!good) break;
        const Program::Node& node = p.nodes_[static_cast<size_t>(made.maker)];
        if (node.kind != Program::Kind::Call || node.dynamic) good = false;
        if (!good) break;
        auto at = static_cast<size_t>(std::find(node.outs.begin(), node.outs.end(), v) - node.outs.begin());
        int twin = node.kernel->twin[at];
        if (twin < 0 || node.args[static_cast<size_t>(twin)].kind != Program::Argument::Kind::Value) good = false;
        if (!good) break;
        int from = node.args[static_cast<size_t>(twin)].value;
        const Program::Value& old = value(from);
        good = old.root == from && old.dtype == made.dtype && old.shape.size() == made.shape.size();
        for (size_t k = 0; good && k < old.shape.size(); ++k) good = old.shape[k].text() == made.shape[k].text();
        for (int k = made.maker; good && k < static_cast<int>(p.nodes_.size()); ++k) {
          const Program::Node& reader = p.nodes_[static_cast<size_t>(k)];
          int reads = reader.kind != Program::Kind::View && is_root_of(from, reader.in);
          for (const Program::Argument& arg : reader.args) reads += is_root_of(from, arg.value);
          good = reads == (k == made.maker ? 1 : 0);
        }
        chain.emplace_back(v, static_cast<int>(at));
        v = from;
      }
      if (!good || chain.empty() || shared(state.input)) continue;
      state.donated = true;
      for (auto [member, at] : chain) {
        value(member).donor = state.input;
        p.nodes_[static_cast<size_t>(value(member).maker)].inplace |= int32_t{1} << at;
      }
    }
  }

  std::shared_ptr<Program> program_;
  std::string path_;
  std::unordered_map<std::string, int> value_index_, slot_index_;
  std::unordered_map<int, bool> defined_;
  std::unordered_map<std::string, bool> call_ids_;
  std::vector<Tensor> ranked_;  // dtype and rank are all that a request tells
  std::vector<Invocation> invocations_;
  std::vector<std::pair<OpEntry*, const Invocation*>> asked_;
};

std::vector<Program::Asked> Program::requests(const std::string& folder) { return Loader(folder, nullptr).requests(); }

std::shared_ptr<Program> Program::load(const std::string& folder, std::shared_ptr<KernelTable> table) {
  return Loader(folder, std::move(table)).load();
}

Program::~Program() = default;

}  // namespace ow
