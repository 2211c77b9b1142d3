// A small JSON reader for program.json, safetensors headers and table rows. Reads NaN, Infinity and -Infinity too.
// May include: error.h. Errors carry line and column. Duplicate keys are refused.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ow {

class Json {
 public:
  enum class Type : uint8_t { Null, Bool, Int, Float, String, Array, Object };
  using Member = std::pair<std::string, Json>;

  Type type = Type::Null;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // the value of Int and Float
  std::string string;
  std::vector<Json> array;
  std::vector<Member> object;  // in the file's order

  // `source` names the text in errors.
  static Json parse(std::string_view text, const std::string& source);

  static Json of(bool v);
  static Json of(int64_t v);
  static Json of(double v);
  static Json of(std::string v);

  bool is_null() const { return type == Type::Null; }
  bool is_string() const { return type == Type::String; }
  bool is_array() const { return type == Type::Array; }
  bool is_object() const { return type == Type::Object; }
  bool is_int() const { return type == Type::Int; }
  bool is_number() const { return type == Type::Int || type == Type::Float; }

  const Json* find(std::string_view key) const;  // null when absent or JSON null

  // Each throws Error(Program) that starts with `where` when the value is of another type.
  const Json& at(std::string_view key, const std::string& where) const;
  const std::string& as_string(const std::string& where) const;
  int64_t as_int(const std::string& where) const;
  bool as_bool(const std::string& where) const;
  const std::vector<Json>& as_array(const std::string& where) const;
  const std::vector<Member>& as_object(const std::string& where) const;
  const char* type_name() const;
};

}  // namespace ow
