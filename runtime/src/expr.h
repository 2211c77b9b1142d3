// Integer expressions and conditions of a program: extents, strides, offsets, registers, assertions.
// May include: json.h. JSON form: docs/internals.md, "A program folder".
// To add an operation: a row in kOps, a case in eval().
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "json.h"

namespace ow {

// What a symbol or a register holds. An i64, or a bool as 0 or 1, or an f64 with its truncation beside it.
struct Number {
  int64_t i = 0;
  double f = 0;
  static Number of(int64_t v) { return {v, static_cast<double>(v)}; }
};

class Expr {
 public:
  // Slot of a name in the environment; throws on a name that is not known.
  using Slots = std::function<int(const std::string& name)>;

  Expr() = default;
  static Expr parse(const Json& json, const Slots& slots, const std::string& where);
  static Expr condition(const Json& json, const Slots& slots, const std::string& where);
  static Expr constant(int64_t value);

  int64_t eval(const std::vector<Number>& environment) const;  // throws on overflow and division by zero
  bool is_constant() const { return code_.size() == 1 && code_[0].op == Op::Constant; }
  int64_t constant_value() const { return code_[0].value; }
  int only_slot() const { return code_.size() == 1 && code_[0].op == Op::Name ? static_cast<int>(code_[0].value) : -1; }
  template <class Visit>
  void each_slot(Visit visit) const {
    for (const Step& step : code_)
      if (step.op == Op::Name) visit(static_cast<int>(step.value));
  }
  const std::string& text() const { return text_; }

 private:
  enum class Op : uint8_t {
    Constant,
    Name,
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
    Max,
    Min,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not
  };
  struct Step {
    Op op;
    int64_t value;
  };
  struct Row {
    const char* name;
    Op op;
    const char* sign;
  };
  static const Row kOps[];
  void append(const Json& json, const Slots& slots, const std::string& where, bool condition, int depth);
  std::vector<Step> code_;  // postfix
  std::string text_;        // for errors
};

}  // namespace ow
