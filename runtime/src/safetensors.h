// Weights mapped from a .safetensors file: no bytes are read before a kernel reads them.
// May include: json.h, tensor.h. Everything about the file's form is checked when it is opened.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor.h"

namespace ow {

class SafeTensors {
 public:
  static SafeTensors open(const std::string& path);  // throws Error(Program) that names the file

  // Whole or not at all: written beside `path`, then renamed.
  static void write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  // A read-only tensor over the mapping, which lives as long as any tensor of it; a copy where bytes are not aligned.
  Tensor get(const std::string& name) const;
  bool changed() const;  // since it was opened: what is mapped is then another file's
  const std::string& path() const { return path_; }

 private:
  struct Mapping;
  struct Entry {
    DType dtype;
    int32_t rank = 0;
    int64_t sizes[OW_MAX_RANK];
    const char* data;
    size_t bytes;
  };
  std::string path_;
  std::shared_ptr<Mapping> mapping_;
  std::map<std::string, Entry> entries_;
};

}  // namespace ow
