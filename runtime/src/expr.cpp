// See expr.h.
#include "expr.h"

#include <algorithm>

#include "error.h"

namespace ow {

const Expr::Row Expr::kOps[] = {
    {"add", Op::Add, " + "}, {"sub", Op::Sub, " - "},   {"mul", Op::Mul, "*"},     {"floordiv", Op::FloorDiv, "//"},
    {"mod", Op::Mod, "%"},   {"max", Op::Max, nullptr}, {"min", Op::Min, nullptr}, {"eq", Op::Eq, " == "},
    {"ne", Op::Ne, " != "},  {"lt", Op::Lt, " < "},     {"le", Op::Le, " <= "},    {"gt", Op::Gt, " > "},
    {"ge", Op::Ge, " >= "},
};

void Expr::append(const Json& json, const Slots& slots, const std::string& where, bool condition, int depth) {
  if (depth > 100) fail(ErrorKind::Program, where, ": the expression is nested too deeply");
  if (json.is_int() && !condition) {
    code_.push_back({Op::Constant, json.integer});
    text_ += std::to_string(json.integer);
    return;
  }
  if (json.is_string() && !condition) {
    code_.push_back({Op::Name, slots(json.string)});
    text_ += json.string;
    return;
  }
  if (!json.is_array() || json.array.empty() || !json.array[0].is_string())
    fail(ErrorKind::Program, where, ": ", condition ? "a condition" : "an integer expression", " expected");
  const std::string& name = json.array[0].string;
  size_t n = json.array.size() - 1;
  if (condition && (name == "and" || name == "or")) {
    if (n == 0) fail(ErrorKind::Program, where, ": '", name, "' of nothing");
    text_ += '(';
    for (size_t k = 1; k <= n; ++k) {
      if (k > 1) text_ += " " + name + " ";
      append(json.array[k], slots, where, true, depth + 1);
      if (k > 1) code_.push_back({name == "and" ? Op::And : Op::Or, 0});
    }
    text_ += ')';
    return;
  }
  if (condition && name == "not" && n == 1) {
    text_ += "not ";
    append(json.array[1], slots, where, true, depth + 1);
    code_.push_back({Op::Not, 0});
    return;
  }
  const Row* row = std::find_if(std::begin(kOps), std::end(kOps), [&](const Row& r) { return name == r.name; });
  if (row == std::end(kOps) || n != 2 || (row->op >= Op::Eq) != condition)
    fail(ErrorKind::Program, where, ": '", name, "' of ", n, " operands is no ",
         condition ? "condition" : "integer expression");
  bool infix = row->sign != nullptr;
  if (!infix) text_ += name;
  if (!condition) text_ += '(';
  append(json.array[1], slots, where, false, depth + 1);
  text_ += infix ? row->sign : ", ";
  append(json.array[2], slots, where, false, depth + 1);
  if (!condition) text_ += ')';
  code_.push_back({row->op, 0});
}

Expr Expr::parse(const Json& json, const Slots& slots, const std::string& where) {
  Expr out;
  out.append(json, slots, where, false, 0);
  return out;
}

Expr Expr::condition(const Json& json, const Slots& slots, const std::string& where) {
  Expr out;
  out.append(json, slots, where, true, 0);
  return out;
}

Expr Expr::constant(int64_t value) {
  Expr out;
  out.code_.push_back({Op::Constant, value});
  out.text_ = std::to_string(value);
  return out;
}

int64_t Expr::eval(const std::vector<Number>& environment) const {
  if (is_constant()) return code_[0].value;
  int64_t few[16] = {};
  std::vector<int64_t> many;
  int64_t* stack = few;
  if (code_.size() > 16) {  // never deeper than it is long
    many.resize(code_.size());
    stack = many.data();
  }
  size_t top = 0;
  bool overflow = false;
  for (const Step& step : code_) {
    if (step.op == Op::Constant) {
      stack[top++] = step.value;
      continue;
    }
    if (step.op == Op::Name) {
      stack[top++] = environment[static_cast<size_t>(step.value)].i;
      continue;
    }
    if (step.op == Op::Not) {
      stack[top - 1] = stack[top - 1] == 0;
      continue;
    }
    int64_t b = stack[--top];
    int64_t& a = stack[top - 1];
    switch (step.op) {
      case Op::Add:
        overflow |= __builtin_add_overflow(a, b, &a);
        break;
      case Op::Sub:
        overflow |= __builtin_sub_overflow(a, b, &a);
        break;
      case Op::Mul:
        overflow |= __builtin_mul_overflow(a, b, &a);
        break;
      case Op::FloorDiv:
      case Op::Mod: {
        if (b == 0) fail(ErrorKind::Value, text_, " divides by zero");
        if (b == -1) {  // INT64_MIN // -1 overflows, and must not trap
          if (step.op == Op::Mod)
            a = 0;
          else
            overflow |= __builtin_sub_overflow(int64_t{0}, a, &a);
          break;
        }
        int64_t quotient = a / b, rest = a % b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
          --quotient;
          rest += b;
        }
        a = step.op == Op::Mod ? rest : quotient;
        break;
      }
      case Op::Max:
        a = std::max(a, b);
        break;
      case Op::Min:
        a = std::min(a, b);
        break;
      case Op::Eq:
        a = a == b;
        break;
      case Op::Ne:
        a = a != b;
        break;
      case Op::Lt:
        a = a < b;
        break;
      case Op::Le:
        a = a <= b;
        break;
      case Op::Gt:
        a = a > b;
        break;
      case Op::Ge:
        a = a >= b;
        break;
      case Op::And:
        a = a != 0 && b != 0;
        break;
      case Op::Or:
        a = a != 0 || b != 0;
        break;
      case Op::Constant:
      case Op::Name:
      case Op::Not:
        break;
    }
  }
  if (overflow) fail(ErrorKind::Value, text_, " does not fit in 64 bits");
  return stack[0];
}

}  // namespace ow
