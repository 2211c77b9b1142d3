// See signature.h.
#include "signature.h"

#include <unordered_set>

namespace ow {
namespace {
constexpr struct {
  const char* name;
  AttrKind kind;
} kKinds[] = {
    {"int", AttrKind::Int},     {"float", AttrKind::Float}, {"bool", AttrKind::Bool}, {"scalar", AttrKind::Scalar},
    {"axis", AttrKind::Axis},   {"axes", AttrKind::Axes},   {"ints", AttrKind::Ints}, {"floats", AttrKind::Floats},
    {"dtype", AttrKind::DType}, {"enum", AttrKind::Text},   {"str", AttrKind::Text},
};
}  // namespace

AttrKind parse_attr_kind(std::string_view text, const std::string& where) {
  for (const auto& known : kKinds)
    if (text == known.name) return known.kind;
  fail(ErrorKind::Runtime, where, ": unknown attribute kind '", text, "'");
}

const char* attr_kind_name(AttrKind kind) {
  for (const auto& known : kKinds)
    if (kind == known.kind) return known.name;
  return "?";
}

void AttrValue::set_bool(bool v) {
  tag = Tag::Bool;
  i = v;
  f = v;
}
void AttrValue::set_int(int64_t v) {
  tag = Tag::Int;
  i = v;
  f = static_cast<double>(v);
}
void AttrValue::set_float(double v) {
  tag = Tag::Float;
  i = convert<int64_t>(v);
  f = v;
}
void AttrValue::set_dtype(DType v) {
  tag = Tag::DType;
  i = static_cast<int64_t>(v);
  f = static_cast<double>(i);
}

OwAttr AttrValue::describe() const {
  switch (tag) {
    case Tag::Absent:
      return {-1, nullptr, nullptr};
    case Tag::Ints:  // a program's group fills both
      return {static_cast<int64_t>(ints.size()), ints.data(), floats.size() == ints.size() ? floats.data() : nullptr};
    case Tag::Floats:
      return {static_cast<int64_t>(floats.size()), nullptr, floats.data()};
    default:
      return {1, &i, &f};
  }
}

std::string AttrValue::print() const {
  auto list = [](const auto& items) {
    std::ostringstream out;
    out << '[';
    for (size_t k = 0; k < items.size(); ++k) out << (k > 0 ? ", " : "") << items[k];
    out << ']';
    return out.str();
  };
  switch (tag) {
    case Tag::Absent:
      return "None";
    case Tag::Bool:
      return i != 0 ? "True" : "False";
    case Tag::Int:
      return std::to_string(i);
    case Tag::Float:
      return cat(f);
    case Tag::DType:
      return dtype_name(static_cast<DType>(i));
    case Tag::Text:
      return "'" + text + "'";
    case Tag::Ints:
      return list(ints);
    case Tag::Floats:
      return list(floats);
  }
  return "?";
}

bool AttrValue::operator==(const AttrValue& other) const {
  if (tag != other.tag) return false;
  switch (tag) {
    case Tag::Absent:
      return true;
    case Tag::Text:
      return text == other.text;
    case Tag::Ints:
      return ints == other.ints;
    case Tag::Floats:
      return floats == other.floats;
    case Tag::Float:
      return std::bit_cast<int64_t>(f) == std::bit_cast<int64_t>(other.f);
    default:
      return i == other.i;
  }
}

void Signature::finish() {
  n_visible = 0;
  std::unordered_set<std::string> seen;
  auto once = [&](const std::string& what) {
    if (!seen.insert(what).second) fail(ErrorKind::Value, "op '", name, "': argument '", what, "' appears twice");
  };
  for (const InputSpec& input : inputs) once(input.name);
  for (const AttrSpec& attr : attrs) once(attr.name);
  for (const OutputSpec& output : outputs) n_visible += !output.aux;
}

int Signature::find_input(std::string_view wanted) const {
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].name == wanted) return static_cast<int>(k);
  return -1;
}

int Signature::find_attr(std::string_view wanted) const {
  for (size_t k = 0; k < attrs.size(); ++k)
    if (attrs[k].name == wanted) return static_cast<int>(k);
  return -1;
}

namespace {
DType dtype_of(const Json& json, const std::string& where) {
  DType dtype;
  if (!parse_dtype(json.as_string(where), &dtype))
    fail(ErrorKind::Runtime, where, ": unknown dtype '", json.string, "'");
  return dtype;
}
bool flag(const Json& json, std::string_view key, const std::string& where) {
  const Json* found = json.find(key);
  return found != nullptr && found->as_bool(where);
}
}  // namespace

Row Row::from_json(const Json& json, const std::string& where) {
  Row row;
  row.op = json.at("op", where).as_string(where);
  row.symbol = json.at("symbol", where).as_string(where);
  if (const Json* key = json.find("key"))
    if (const Json* ranks = key->find("ranks")) row.ranked = !ranks->as_object(where).empty();
  if (const Json* data = json.find("from_data")) row.from_data = data->as_bool(where);
  for (const Json& item : json.at("inputs", where).as_array(where)) {
    Input input{item.at("name", where).as_string(where), std::nullopt, flag(item, "list", where),
                flag(item, "optional", where)};
    if (const Json* dtype = item.find("dtype")) input.dtype = dtype_of(*dtype, where);
    row.inputs.push_back(std::move(input));
  }
  for (const Json& item : json.at("attrs", where).as_array(where))
    row.attrs.push_back(
        {item.at("name", where).as_string(where), parse_attr_kind(item.at("kind", where).as_string(where), where)});
  for (const Json& item : json.at("outputs", where).as_array(where))
    row.outputs.push_back(
        {item.at("name", where).as_string(where), dtype_of(item.at("dtype", where), where), flag(item, "aux", where)});
  if (const Json* rules = json.find("rules")) {
    for (const Json& item : rules->as_array(where)) {
      const Json* line = item.find("line");
      auto optional = [&](const char* name) {
        const Json* found = item.find(name);
        return found != nullptr ? found->as_string(where) : std::string();
      };
      row.rules.push_back({item.at("text", where).as_string(where), line != nullptr ? line->as_int(where) : 0,
                           optional("file"), optional("said")});
    }
  }
  if (const Json* inplace = json.find("inplace"))
    for (const auto& [output, input] : inplace->as_object(where))
      row.inplace.emplace_back(output, input.as_string(where));
  return row;
}

namespace {

std::string input_name(const Kernel& kernel, int32_t flat, const int32_t* list_len) {
  int32_t at = 0, list = 0;
  for (const InputSpec& input : kernel.inputs) {
    int32_t n = input.list && list_len != nullptr ? list_len[list++] : 1;
    if (flat < at + n) return input.list ? cat("'", input.name, "[", flat - at, "]'") : "'" + input.name + "'";
    at += n;
  }
  return cat("#", flat);
}

std::string rule_text(const Row& row, int32_t which) {
  if (which < 0 || static_cast<size_t>(which) >= row.rules.size()) return "";
  const Row::Rule& rule = row.rules[static_cast<size_t>(which)];
  std::string text = "`" + rule.text + "`";
  if (rule.line > 0) text += cat(" (line ", rule.line, " of ", rule.file.empty() ? "the spec" : rule.file, ")");
  return text;
}

// "integer division by zero in 'b': ", where the rule alone would have to be read.
std::string rule_said(const Row& row, int32_t which) {
  if (which < 0 || static_cast<size_t>(which) >= row.rules.size()) return "";
  const std::string& said = row.rules[static_cast<size_t>(which)].said;
  return said.empty() ? "" : said + ": ";
}

}  // namespace

void raise_status(const std::string& op, const Kernel& kernel, int64_t status, const OwError& e,
                  const int32_t* list_len) {
  const Row& row = kernel.row;
  std::string rule = rule_text(row, e.which);
  auto input = [&] { return input_name(kernel, e.arg, list_len); };
  auto attr = [&] {
    bool known = e.arg >= 0 && static_cast<size_t>(e.arg) < row.attrs.size();
    return known ? "'" + row.attrs[static_cast<size_t>(e.arg)].name + "'" : cat("#", e.arg);
  };
  switch (status) {
    case OW_E_REQUIRE:
      fail(ErrorKind::Value, op, ": ", rule_said(row, e.which), rule.empty() ? "a requirement" : rule,
           " does not hold");
    case OW_E_DATA:
      fail(ErrorKind::Value, op, ": ", rule_said(row, e.which), rule.empty() ? "a requirement" : rule,
           " does not hold for the data");
    case OW_E_SHAPE:
      if (e.got == INT64_MIN)
        fail(ErrorKind::Value, op, ": ", e.arg < 0 ? "" : "input " + input() + ": ",
             "these arguments give an extent that is too large for 64 bits");
      if (e.got < 0)  // an extent that was computed from the arguments
        fail(ErrorKind::Value, op, ": ", e.arg < 0 ? "" : "input " + input() + ": ",
             "these arguments give an extent of ", e.got, "; 0 or more is wanted");
      if (e.arg < 0) fail(ErrorKind::Value, op, ": extents disagree: ", e.want, " wanted, got ", e.got);
      if (e.axis < 0)
        fail(ErrorKind::Value, op, ": input ", input(), " has rank ", e.got, ", at most ", e.want, " is wanted");
      fail(ErrorKind::Value, op, ": input ", input(), " has extent ", e.got, " along axis ", e.axis, ", ", e.want,
           " is wanted");
    case OW_E_RANK:
      if (e.arg < 0) fail(ErrorKind::Value, op, ": the result has rank ", e.got, ", over the limit of ", e.want);
      fail(ErrorKind::Value, op, ": input ", input(), " has rank ", e.got, ", at ", e.got < e.want ? "least " : "most ",
           e.want, " is wanted");
    case OW_E_AXIS:
      if (-e.want <= e.got && e.got < e.want)
        fail(ErrorKind::Value, op, ": attribute ", attr(), " names axis ", e.got, " twice");
      fail(ErrorKind::Index, op, ": attribute ", attr(), " = ", e.got, " is out of range for rank ", e.want);
    case OW_E_INDEX:
      fail(ErrorKind::Index, op, ": index ", e.got, " is out of range for extent ", e.want,
           rule.empty() ? "" : "; rule: ", rule);
    case OW_E_OVERLAP:
      fail(ErrorKind::Value, op, ": an output overlaps an input in a way that the op does not allow");
    case OW_E_WORKSPACE:
      fail(ErrorKind::Runtime, op, ": the kernel found its workspace too small");
    case OW_E_ABI:
      fail(ErrorKind::Runtime, op, ": the kernel was built for another call convention than ", OW_ABI, "; rebuild it");
    default:
      fail(ErrorKind::Runtime, op, ": the kernel returned status ", status);
  }
}

}  // namespace ow
