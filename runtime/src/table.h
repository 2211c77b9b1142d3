// A kernel table: libraries that were built ahead of time, for machines without a compiler (docs/internals.md, "A
// kernel table"). It answers as a miss hook does, from files alone.
// May include: dispatcher.h. Everything about a table's form is checked when it is opened.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatcher.h"

namespace ow {

class KernelTable {
 public:
  // The table in `folder`, for the best dialect that this machine runs, or for the one that is named. Throws
  // Error(Program) for what is wrong with the files, Error(Missing) where no dialect of the table runs here.
  static std::shared_ptr<KernelTable> open(const std::string& folder, const std::string& dialect = "");

  const std::string& folder() const { return folder_; }
  const std::string& dialect() const { return dialect_; }
  const std::string& program() const { return program_; }  // digest of the program.json it is for; empty: any
  OpEntry* find(const std::string& name);                  // null: no such op
  OpEntry& local(Signature signature);                     // a group or gradient of a program folder
  std::vector<std::string> names() const;
  std::vector<Resolution> answer(const std::vector<Request>& requests) const;  // a miss hook

 private:
  struct Entry {
    Row row;
    std::vector<std::optional<DType>> casts;
    std::vector<std::pair<std::string, std::string>> statics;  // attribute, value as text
    std::vector<std::pair<std::string, bool>> present;
    std::vector<std::pair<std::string, int64_t>> lengths;
  };
  KernelTable() = default;
  void read(const std::string& path);
  const Entry* match(const Request& request) const;

  std::string folder_, dialect_, program_, library_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<OpEntry>> ops_, locals_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, const Entry*> asked_;               // by request_text
  std::unordered_map<std::string, std::vector<const Entry*>> by_op_;  // those that are for whoever asks
};

// What of a request decides its kernel, as one line: how a table finds what was asked for when it was made. Of a group,
// whose signature nobody knows, no attribute is static.
std::string request_text(const Request& request, const Signature& signature);

// The digest that binds a table to a text: FNV-1a of 64 bits, as 16 hex digits. It tells files apart; it is no guard.
std::string digest_of(std::string_view text);
std::string read_text_file(const std::string& path);  // throws Error(Program)
Signature signature_from_json(const Json& json, const std::string& where);
AttrValue attr_from_json(const Json& json, const AttrSpec& spec, const std::string& where);

}  // namespace ow
