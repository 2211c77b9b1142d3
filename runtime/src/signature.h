// What is known of an op without any kernel (Signature), of one kernel (Row, Kernel), and values of attributes.
// May include: dtype.h, json.h, library.h, smallvec.h, strided.h (Scalar).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "dtype.h"
#include "json.h"
#include "library.h"
#include "smallvec.h"
#include "strided.h"

namespace ow {

enum class AttrKind : uint8_t { Int, Float, Bool, Scalar, Axis, Axes, Ints, Floats, DType, Text };
AttrKind parse_attr_kind(std::string_view text, const std::string& where);
const char* attr_kind_name(AttrKind kind);

// One canonical attribute value: the tag follows from the kind, except for `scalar`, which keeps Bool, Int or Float.
struct AttrValue {
  enum class Tag : uint8_t { Absent, Bool, Int, Float, DType, Text, Ints, Floats };
  Tag tag = Tag::Absent;
  int64_t i = 0;  // Bool, Int, DType; Float: truncated
  double f = 0;   // Bool, Int, Float
  SmallVec<int64_t, 6> ints;
  SmallVec<double, 4> floats;
  std::string text;

  bool present() const { return tag != Tag::Absent; }
  void set_bool(bool v);
  void set_int(int64_t v);
  void set_float(double v);
  void set_dtype(DType v);
  OwAttr describe() const;  // points into this value
  std::string print() const;
  bool operator==(const AttrValue&) const;
};

struct InputSpec {
  std::string name;
  bool optional = false, list = false;
};
struct AttrSpec {
  std::string name;
  AttrKind kind = AttrKind::Int;
  bool is_static = false, optional = false, has_default = false;
  AttrValue default_value;
};
struct OutputSpec {
  std::string name;
  bool aux = false;
};

struct Signature {
  std::string name, doc;
  std::vector<InputSpec> inputs;
  std::vector<AttrSpec> attrs;
  std::vector<OutputSpec> outputs;
  int n_visible = 0;  // outputs that are not aux

  void finish();  // fills n_visible; throws on a name used twice
  int find_input(std::string_view name) const;
  int find_attr(std::string_view name) const;
};

// The table row of one kernel (docs/internals.md). `inputs` leaves out optional ones that are absent in its calls.
struct Row {
  struct Input {
    std::string name;
    std::optional<DType> dtype;
    bool list = false, optional = false;
  };
  struct Attr {
    std::string name;
    AttrKind kind;
  };
  struct Output {
    std::string name;
    DType dtype;
    bool aux = false;
  };
  struct Rule {
    std::string text;
    int64_t line = 0;
    std::string file;  // the spec's, within its folder of specs
    std::string said;  // what it means that the rule does not hold, in words; empty: the rule says it
  };

  std::string op, symbol;
  bool ranked = false;    // the kernel holds for some ranks only
  bool from_data = true;  // `infer` may read the inputs' elements, not their shapes alone
  std::vector<Input> inputs;
  std::vector<Attr> attrs;
  std::vector<Output> outputs;
  std::vector<Rule> rules;
  std::vector<std::pair<std::string, std::string>> inplace;  // output, and the input whose memory it may take

  static Row from_json(const Json& json, const std::string& where);
};

// A resolved kernel: a row joined with the signature and with the calls it serves. Lives for ever.
struct Kernel {
  Row row;
  KernelSymbols symbols;
  std::vector<InputSpec> inputs;            // of the op, all of them
  std::vector<std::optional<DType>> casts;  // per flat input
  std::vector<int> attr_index;              // per row attribute: index in the signature
  std::vector<int> twin;                    // per output: the flat input that it may overwrite, or -1
  std::string library;                      // path
};

// What the status of a kernel means in words: names op, argument and rule. `list_len` as in the call.
[[noreturn]] void raise_status(const std::string& op, const Kernel& kernel, int64_t status, const OwError& error,
                               const int32_t* list_len);

}  // namespace ow
