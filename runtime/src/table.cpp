// See table.h.
#include "table.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "allocator.h"

namespace ow {
namespace {

// What Linux calls the features of the first CPU, as runtime/python/toolchain.py reads them; empty where it does not
// say.
std::set<std::string> cpu_features() {
  std::set<std::string> out;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) out.insert(word);
    break;
  }
  return out;
}

std::string machine_name() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "";
}

// An attribute as the text by which rows and requests are compared. Names of dtypes are words as others are.
std::string attr_text(const Json& json) {
  switch (json.type) {
    case Json::Type::Null:
      return "-";
    case Json::Type::Bool:
      return json.boolean ? "b1" : "b0";
    case Json::Type::Int:
      return cat('i', json.integer);
    case Json::Type::Float:
      return cat('f', std::bit_cast<int64_t>(json.number));
    case Json::Type::String:
      return 's' + json.string;
    default: {
      std::string out = "[";
      for (const Json& item : json.array) out += attr_text(item) + ',';
      return out + ']';
    }
  }
}

std::string attr_text(const AttrValue& value) {
  auto list = [](const auto& items, char kind) {
    std::string out = "[";
    for (auto item : items) {
      if constexpr (std::is_same_v<decltype(item), double>)
        out += cat(kind, std::bit_cast<int64_t>(item), ',');
      else
        out += cat(kind, item, ',');
    }
    return out + ']';
  };
  switch (value.tag) {
    case AttrValue::Tag::Absent:
      return "-";
    case AttrValue::Tag::Bool:
      return value.i != 0 ? "b1" : "b0";
    case AttrValue::Tag::Int:
      return cat('i', value.i);
    case AttrValue::Tag::Float:
      return cat('f', std::bit_cast<int64_t>(value.f));
    case AttrValue::Tag::DType:
      return std::string("s") + dtype_name(static_cast<DType>(value.i));
    case AttrValue::Tag::Text:
      return 's' + value.text;
    case AttrValue::Tag::Ints:
      return list(value.ints, 'i');
    case AttrValue::Tag::Floats:
      return list(value.floats, 'f');
  }
  return "?";
}

// What was asked, for people: "softmax(f32 of rank 2)".
std::string shown(const Request& request) {
  std::string out = request.op + '(';
  for (const Request::Input& input : request.flat) {
    if (out.back() != '(') out += ", ";
    out +=
        !input.present ? "none" : cat(dtype_name(input.dtype), input.weak ? " scalar" : cat(" of rank ", input.rank));
  }
  out += ')';
  for (const auto& [name, value] : request.attrs)
    if (value.present()) out += cat(' ', name, '=', value.print());
  return out;
}

}  // namespace

// Ranks are part of it: whoever asked once asks with the same ranks again. Of attributes, the static ones whole; of
// others the presence, the category, and the length.
std::string request_text(const Request& request, const Signature& signature) {
  std::string out = request.op;
  size_t flat = 0, list = 0;
  auto one = [&] {
    const Request::Input& input = request.flat[flat++];
    out += input.present ? cat('|', dtype_name(input.dtype), input.weak ? " weak" : cat(' ', input.rank)) : "|-";
  };
  for (bool is_list : request.is_list) {
    if (!is_list) {
      one();
      continue;
    }
    int32_t n = request.list_len[list++];
    out += cat("|[", n);
    for (int32_t k = 0; k < n; ++k) one();
  }
  for (const auto& [name, value] : request.attrs) {
    std::string text = attr_text(value);
    int at = signature.find_attr(name);
    if (at < 0 || !signature.attrs[static_cast<size_t>(at)].is_static) {
      auto entries = std::count(text.begin(), text.end(), ',');
      text = text[0] == '[' ? cat('[', entries) : text.substr(0, 1);
    }
    out += cat('|', name, '=', text);
  }
  return out;
}

std::string digest_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  std::string out(16, '0');
  for (size_t k = 16; k-- > 0; hash >>= 4) out[k] = "0123456789abcdef"[hash & 15];
  return out;
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::Program, path, ": cannot be opened");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) fail(ErrorKind::Program, path, ": cannot be read");
  return text;
}

AttrValue attr_from_json(const Json& json, const AttrSpec& spec, const std::string& where) {
  AttrValue out;
  auto refuse = [&](const char* wanted) {
    fail(ErrorKind::Type, where, ": attribute '", spec.name, "' wants ", wanted, ", got ", json.type_name());
  };
  if (json.is_null()) return out;
  switch (spec.kind) {
    case AttrKind::Bool:
      if (json.type != Json::Type::Bool) refuse("true or false");
      out.set_bool(json.boolean);
      break;
    case AttrKind::Int:
    case AttrKind::Axis:
      if (!json.is_int()) refuse("an integer");
      out.set_int(json.integer);
      break;
    case AttrKind::Float:
      if (!json.is_number()) refuse("a number");
      out.set_float(json.number);
      break;
    case AttrKind::Scalar:
      if (json.type == Json::Type::Bool)
        out.set_bool(json.boolean);
      else if (json.is_int())
        out.set_int(json.integer);
      else if (json.is_number())
        out.set_float(json.number);
      else
        refuse("a number");
      break;
    case AttrKind::DType: {
      DType dtype;
      if (!json.is_string() || !parse_dtype(json.string, &dtype)) refuse("the name of a dtype");
      out.set_dtype(dtype);
      break;
    }
    case AttrKind::Text:
      if (!json.is_string()) refuse("a word");
      out.tag = AttrValue::Tag::Text;
      out.text = json.string;
      break;
    case AttrKind::Axes:
    case AttrKind::Ints:
    case AttrKind::Floats: {
      bool floats = spec.kind == AttrKind::Floats;
      out.tag = floats ? AttrValue::Tag::Floats : AttrValue::Tag::Ints;
      std::vector<Json> single{json};
      for (const Json& item : json.is_array() ? json.array : single) {
        if (floats ? !item.is_number() : !item.is_int()) refuse(floats ? "a list of numbers" : "a list of integers");
        if (floats)
          out.floats.push_back(item.number);
        else
          out.ints.push_back(item.integer);
      }
      break;
    }
  }
  return out;
}

Signature signature_from_json(const Json& json, const std::string& where) {
  Signature out;
  out.name = json.at("name", where).as_string(where);
  std::string here = where + ": op '" + out.name + "'";
  auto flag = [&](const Json& item, const char* key) {
    const Json* found = item.find(key);
    return found != nullptr && found->as_bool(here);
  };
  if (const Json* doc = json.find("doc")) out.doc = doc->as_string(here);
  for (const Json& item : json.at("inputs", here).as_array(here))
    out.inputs.push_back({item.at("name", here).as_string(here), flag(item, "optional"), flag(item, "list")});
  for (const Json& item : json.at("attrs", here).as_array(here)) {
    AttrSpec attr;
    attr.name = item.at("name", here).as_string(here);
    attr.kind = parse_attr_kind(item.at("kind", here).as_string(here), here);
    attr.is_static = flag(item, "static");
    attr.optional = flag(item, "optional");
    for (const auto& [key, value] : item.object) {  // `find` takes null for absence; here it is a default
      if (key != "default") continue;
      attr.has_default = true;
      attr.default_value = attr_from_json(value, attr, here);
    }
    out.attrs.push_back(std::move(attr));
  }
  for (const Json& item : json.at("outputs", here).as_array(here))
    out.outputs.push_back({item.at("name", here).as_string(here), flag(item, "aux")});
  if (out.outputs.empty() || out.outputs.size() > 31) fail(ErrorKind::Program, here, " must have 1 to 31 outputs");
  out.finish();
  return out;
}

std::shared_ptr<KernelTable> KernelTable::open(const std::string& folder, const std::string& dialect) {
  auto table = std::shared_ptr<KernelTable>(new KernelTable);
  table->folder_ = folder;
  std::string path = folder + "/kernels.json";
  Json json = Json::parse(read_text_file(path), path);
  int64_t schema = json.at("schema", path).as_int(path), abi = json.at("abi", path).as_int(path);
  if (schema != 1) fail(ErrorKind::Program, path, ": schema ", schema, " is not known; this runtime reads 1");
  if (abi != OW_ABI)
    fail(ErrorKind::Program, path, ": kernels of call convention ", abi, "; this runtime has ", OW_ABI,
         ": build them again");
  if (const Json* program = json.find("program")) table->program_ = program->as_string(path);
  std::set<std::string> features = cpu_features();
  std::string machine = machine_name(), known, lacks;
  for (const Json& item : json.at("dialects", path).as_array(path)) {
    const std::string& name = item.at("name", path).as_string(path);
    known += (known.empty() ? "" : ", ") + name;
    if (!dialect.empty() && dialect != name) continue;
    std::string missing;
    if (const Json* wanted = item.find("machine"); wanted != nullptr && wanted->as_string(path) != machine)
      missing = "a CPU of the kind " + wanted->string;
    for (const Json& feature : item.at("features", path).as_array(path))
      if (features.count(feature.as_string(path)) == 0) missing += (missing.empty() ? "" : ", ") + feature.string;
    if (!missing.empty()) {
      lacks += cat("; ", name, " needs ", missing);
      continue;
    }
    table->dialect_ = name;
    table->library_ = folder + '/' + item.at("library", path).as_string(path);
    for (const Json& op : json.at("ops", path).as_array(path)) {
      auto entry = std::make_unique<OpEntry>();
      entry->signature = signature_from_json(op, path);
      entry->name = entry->signature.name;
      entry->tag = lasting_text(entry->name);
      std::string key = entry->name;
      table->ops_.emplace(std::move(key), std::move(entry));
    }
    table->read(folder + '/' + item.at("table", path).as_string(path));
    return table;
  }
  if (!lacks.empty()) fail(ErrorKind::Missing, path, ": this machine runs none of its dialects", lacks);
  fail(ErrorKind::Missing, path, ": has no dialect '", dialect, "'; it has ", known);
}

void KernelTable::read(const std::string& path) {
  Json json = Json::parse(read_text_file(path), path);
  const std::vector<Json>& kernels = json.at("kernels", path).as_array(path);
  entries_.reserve(kernels.size());  // entries are pointed at
  for (const Json& item : kernels) {
    Entry entry;
    const Json& row = item.at("row", path);
    entry.row = Row::from_json(row, path);
    if (const Json* casts = item.find("casts")) {
      for (const Json& cast : casts->as_array(path)) {
        DType dtype;
        if (cast.is_null())
          entry.casts.push_back(std::nullopt);
        else if (parse_dtype(cast.as_string(path), &dtype))
          entry.casts.push_back(dtype);
        else
          fail(ErrorKind::Program, path, ": unknown dtype '", cast.string, "'");
      }
    }
    const Json& key = row.at("key", path);
    for (const auto& [name, value] : key.at("static", path).as_object(path))
      entry.statics.emplace_back(name, attr_text(value));
    for (const auto& [name, value] : key.at("present", path).as_object(path))
      entry.present.emplace_back(name, value.as_bool(path));
    for (const auto& [name, value] : key.at("lengths", path).as_object(path))
      entry.lengths.emplace_back(name, value.as_int(path));
    entries_.push_back(std::move(entry));
    const Entry* made = &entries_.back();
    if (const Json* asked = item.find("asked"))
      asked_.emplace(asked->as_string(path), made);
    else
      by_op_[made->row.op].push_back(made);
  }
}

OpEntry* KernelTable::find(const std::string& name) {
  auto found = ops_.find(name);
  return found == ops_.end() ? nullptr : found->second.get();
}

OpEntry& KernelTable::local(Signature signature) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<OpEntry>& entry = locals_[signature.name];
  if (entry == nullptr) {
    entry = std::make_unique<OpEntry>();
    signature.finish();
    entry->name = signature.name;
    entry->tag = lasting_text(signature.name);
    entry->group = folder_ + '/' + signature.name;  // its inputs have no names of their own
    entry->signature = std::move(signature);
  }
  return *entry;
}

std::vector<std::string> KernelTable::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : ops_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

// Of the rows that are for whoever asks, the one whose key says what the request says. Nothing is promoted here: dtypes
// are those of the row, but for scalars, which take them.
const KernelTable::Entry* KernelTable::match(const Request& request) const {
  auto op = ops_.find(request.op);
  auto rows = by_op_.find(request.op);
  if (op == ops_.end() || rows == by_op_.end()) return nullptr;
  const Signature& signature = op->second->signature;
  auto attr_of = [&](const std::string& name) -> const AttrValue* {
    for (const auto& [known, value] : request.attrs)
      if (known == name) return &value;
    return nullptr;
  };
  auto fits = [&](const Entry& entry) {
    if (entry.row.ranked) return false;  // a request does not say which axes belong to which pack
    size_t flat = 0, list = 0, at_row = 0;
    for (const InputSpec& input : signature.inputs) {
      int32_t n = input.list ? request.list_len[list++] : 1;
      bool present = input.list ? n > 0 : request.flat[flat].present;
      bool listed = at_row < entry.row.inputs.size() && entry.row.inputs[at_row].name == input.name;
      if (present != listed) return false;
      for (int32_t k = 0; k < n; ++k, ++flat)
        if (present && !request.flat[flat].weak && entry.row.inputs[at_row].dtype != request.flat[flat].dtype)
          return false;
      for (const auto& [name, length] : entry.lengths)
        if (name == input.name && length != n) return false;
      at_row += listed;
    }
    for (const auto& [name, wanted] : entry.statics)
      if (const AttrValue* value = attr_of(name); value == nullptr || attr_text(*value) != wanted) return false;
    for (const auto& [name, wanted] : entry.present)
      if (const AttrValue* value = attr_of(name); value != nullptr && value->present() != wanted) return false;
    for (const auto& [name, length] : entry.lengths)
      if (const AttrValue* value = attr_of(name);
          value != nullptr && length != static_cast<int64_t>(std::max(value->ints.size(), value->floats.size())))
        return false;
    return true;
  };
  for (const Entry* entry : rows->second)
    if (fits(*entry)) return entry;
  return nullptr;
}

std::vector<Resolution> KernelTable::answer(const std::vector<Request>& requests) const {
  std::vector<Resolution> out;
  for (const Request& request : requests) {
    auto op = ops_.find(request.op);
    auto asked = asked_.find(request_text(request, op == ops_.end() ? Signature{} : op->second->signature));
    const Entry* found = asked != asked_.end() ? asked->second : match(request);
    if (found == nullptr)
      fail(ErrorKind::Missing, folder_, ": no kernel for ", shown(request), " was built; `opwright build` builds them");
    out.push_back({library_, found->row, found->casts});
  }
  return out;
}

}  // namespace ow
