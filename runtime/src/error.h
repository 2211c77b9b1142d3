// The one exception of the core. Its kind picks the Python class (py_errors.cpp); the message names op, argument, rule.
// May include: the standard library only.
#pragma once
#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace ow {

enum class ErrorKind {
  Value,    // OpValueError: shapes, rules, values
  Index,    // OpIndexError: an axis or a data-dependent index out of range
  Type,     // OpTypeError: an argument of a kind that the op does not take
  Missing,  // MissingKernelError: no op or no kernel of this name
  Program,  // ProgramError: a program folder that cannot be loaded or bound
  Runtime,  // OpError: everything that is our fault (bad table row, wrong library)
  Memory,   // OutOfMemoryError: no memory is left
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }

 private:
  ErrorKind kind_;
  std::string message_;
};

// Errors are the cold path: a stream is good enough here, and nowhere else.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, cat(parts...));
}

}  // namespace ow
