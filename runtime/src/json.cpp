// See json.h.
#include "json.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "error.h"

namespace ow {
namespace {

constexpr int kMaxDepth = 256;

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Json document() {
    Json value = read(0);
    skip();
    if (at_ != text_.size()) bad("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    int64_t line = 1, column = 1;
    for (size_t k = 0; k < at_ && k < text_.size(); ++k) {
      if (text_[k] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    fail(ErrorKind::Program, source_, ":", line, ":", column, ": not valid JSON: ", what);
  }

  void skip() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json read(int depth) {
    if (depth > kMaxDepth) bad("nested too deeply");
    skip();
    if (at_ == text_.size()) bad("unexpected end");
    switch (text_[at_]) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        return Json::of(read_string());
      default:
        break;
    }
    if (take("true")) return Json::of(true);
    if (take("false")) return Json::of(false);
    if (take("null")) return Json{};
    if (take("NaN")) return Json::of(std::numeric_limits<double>::quiet_NaN());
    if (take("Infinity")) return Json::of(std::numeric_limits<double>::infinity());
    if (take("-Infinity")) return Json::of(-std::numeric_limits<double>::infinity());
    return read_number();
  }

  Json read_object(int depth) {
    Json out;
    out.type = Json::Type::Object;
    std::unordered_set<std::string> seen;
    ++at_;
    skip();
    if (take("}")) return out;
    for (;;) {
      skip();
      if (at_ == text_.size() || text_[at_] != '"') bad("a key in quotes expected");
      std::string key = read_string();
      if (!seen.insert(key).second) bad("key '" + key + "' appears twice");
      skip();
      if (!take(":")) bad("':' expected");
      Json value = read(depth + 1);
      out.object.emplace_back(std::move(key), std::move(value));
      skip();
      if (take("}")) return out;
      if (!take(",")) bad("',' or '}' expected");
    }
  }

  Json read_array(int depth) {
    Json out;
    out.type = Json::Type::Array;
    ++at_;
    skip();
    if (take("]")) return out;
    for (;;) {
      out.array.push_back(read(depth + 1));
      skip();
      if (take("]")) return out;
      if (!take(",")) bad("',' or ']' expected");
    }
  }

  uint32_t read_hex4() {
    if (text_.size() - at_ < 4) bad("bad escape");
    uint32_t code = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    if (error != std::errc{} || end != text_.data() + at_ + 4) bad("bad escape");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, uint32_t code) {
    auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | (code >> 6));
      put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      put(0xe0 | (code >> 12));
      put(0x80 | ((code >> 6) & 0x3f));
      put(0x80 | (code & 0x3f));
    } else {
      put(0xf0 | (code >> 18));
      put(0x80 | ((code >> 12) & 0x3f));
      put(0x80 | ((code >> 6) & 0x3f));
      put(0x80 | (code & 0x3f));
    }
  }

  std::string read_string() {
    std::string out;
    ++at_;
    for (;;) {
      if (at_ == text_.size()) bad("a string does not end");
      char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) bad("a control character in a string");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ == text_.size()) bad("a string does not end");
      char escape = text_[at_++];
      switch (escape) {
        case '"':
        case '\\':
        case '/':
          out += escape;
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'u': {
          uint32_t code = read_hex4();
          if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
            uint32_t low = read_hex4();
            if (low < 0xdc00 || low > 0xdfff) bad("half a surrogate pair");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          } else if (code >= 0xd800 && code <= 0xdfff) {
            bad("half a surrogate pair");
          }
          append_utf8(out, code);
          break;
        }
        default:
          bad("bad escape");
      }
    }
  }

  Json read_number() {
    size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    size_t digits = at_;
    while (at_ < text_.size() && std::strchr("0123456789+-.eE", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
    std::string_view token = text_.substr(start, at_ - start);
    auto give_up = [&] {
      at_ = start;
      bad("a value expected");
    };
    if (at_ == digits || text_[digits] < '0' || text_[digits] > '9') give_up();
    const char *first = token.data(), *last = token.data() + token.size();
    if (token.find_first_of(".eE") == std::string_view::npos) {
      int64_t value = 0;
      auto [end, error] = std::from_chars(first, last, value);
      if (error == std::errc{} && end == last) return Json::of(value);
      if (error != std::errc::result_out_of_range) give_up();
    }
    double value = 0;
    auto [end, error] = std::from_chars(first, last, value);
    if (end != last || error == std::errc::invalid_argument) give_up();
    if (error == std::errc::result_out_of_range) value = std::strtod(std::string(token).c_str(), nullptr);
    return Json::of(value);
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& source) { return Reader(text, source).document(); }

Json Json::of(bool v) {
  Json out;
  out.type = Type::Bool;
  out.boolean = v;
  return out;
}
Json Json::of(int64_t v) {
  Json out;
  out.type = Type::Int;
  out.integer = v;
  out.number = static_cast<double>(v);
  return out;
}
Json Json::of(double v) {
  Json out;
  out.type = Type::Float;
  out.number = v;
  return out;
}
Json Json::of(std::string v) {
  Json out;
  out.type = Type::String;
  out.string = std::move(v);
  return out;
}

const Json* Json::find(std::string_view key) const {
  for (const Member& member : object)
    if (member.first == key) return member.second.is_null() ? nullptr : &member.second;
  return nullptr;
}

const Json& Json::at(std::string_view key, const std::string& where) const {
  as_object(where);
  const Json* found = find(key);
  if (found == nullptr) fail(ErrorKind::Program, where, ": '", key, "' is missing");
  return *found;
}

namespace {
[[noreturn]] void wrong_type(const std::string& where, const char* want, const Json& got) {
  fail(ErrorKind::Program, where, ": ", want, " expected, got ", got.type_name());
}
}  // namespace

const std::string& Json::as_string(const std::string& where) const {
  if (type != Type::String) wrong_type(where, "a string", *this);
  return string;
}
int64_t Json::as_int(const std::string& where) const {
  if (type != Type::Int) wrong_type(where, "an integer", *this);
  return integer;
}
bool Json::as_bool(const std::string& where) const {
  if (type != Type::Bool) wrong_type(where, "true or false", *this);
  return boolean;
}
const std::vector<Json>& Json::as_array(const std::string& where) const {
  if (type != Type::Array) wrong_type(where, "a list", *this);
  return array;
}
const std::vector<Json::Member>& Json::as_object(const std::string& where) const {
  if (type != Type::Object) wrong_type(where, "an object", *this);
  return object;
}

const char* Json::type_name() const {
  switch (type) {
    case Type::Null:
      return "null";
    case Type::Bool:
      return "a boolean";
    case Type::Int:
      return "an integer";
    case Type::Float:
      return "a float";
    case Type::String:
      return "a string";
    case Type::Array:
      return "a list";
    case Type::Object:
      return "an object";
  }
  return "?";
}

}  // namespace ow
