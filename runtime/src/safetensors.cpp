// See safetensors.h. The format: u64 length of the header, a JSON header, then the bytes of all tensors.
#include "safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "error.h"
#include "json.h"
#include "strided.h"

namespace ow {

struct SafeTensors::Mapping {
  char* data = nullptr;
  size_t bytes = 0;
  int file = -1;
  timespec written{};
  ~Mapping() {
    if (data != nullptr) munmap(data, bytes);
    if (file >= 0) ::close(file);
  }
};

namespace {
constexpr struct {
  const char* name;
  DType dtype;
} kNames[] = {
    {"BOOL", DType::Bool}, {"U8", DType::U8},   {"I8", DType::I8},   {"I16", DType::I16},
    {"I32", DType::I32},   {"I64", DType::I64}, {"F16", DType::F16}, {"BF16", DType::BF16},
    {"F32", DType::F32},   {"F64", DType::F64}, {"C64", DType::C64}, {"C128", DType::C128},
};
}  // namespace

SafeTensors SafeTensors::open(const std::string& path) {
  SafeTensors out;
  out.path_ = path;
  out.mapping_ = std::make_shared<Mapping>();
  Mapping& map = *out.mapping_;
  int file = map.file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(ErrorKind::Program, path, ": cannot be opened: ", std::strerror(errno));
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) fail(ErrorKind::Program, path, ": is not a file");
  map.bytes = static_cast<size_t>(status.st_size);
  map.written = status.st_mtim;
  if (map.bytes > 0) {
    void* data = mmap(nullptr, map.bytes, PROT_READ, MAP_PRIVATE, file, 0);
    int error = errno;
    if (data == MAP_FAILED) fail(ErrorKind::Program, path, ": cannot be mapped: ", std::strerror(error));
    map.data = static_cast<char*>(data);
  }
  if (map.bytes < 8) fail(ErrorKind::Program, path, ": is truncated: ", map.bytes, " bytes are no safetensors file");
  uint64_t header;
  std::memcpy(&header, map.data, 8);
  if (header > map.bytes - 8)
    fail(ErrorKind::Program, path, ": is truncated or no safetensors file: a header of ", header,
         " bytes in a file of ", map.bytes);
  const char* body = map.data + 8 + header;
  size_t body_bytes = map.bytes - 8 - header;
  Json json = Json::parse(std::string_view(map.data + 8, header), path + " (header)");
  for (const auto& [name, value] : json.as_object(path)) {
    if (name == "__metadata__") continue;
    std::string where = path + ": tensor '" + name + "'";
    Entry entry{};
    const std::string& dtype = value.at("dtype", where).as_string(where);
    bool known = false;
    for (const auto& candidate : kNames) {
      if (dtype == candidate.name) {
        entry.dtype = candidate.dtype;
        known = true;
      }
    }
    if (!known) fail(ErrorKind::Program, where, " has the dtype ", dtype, ", which is not supported");
    for (const Json& size : value.at("shape", where).as_array(where)) {
      if (entry.rank == OW_MAX_RANK) fail(ErrorKind::Program, where, " has a rank over ", OW_MAX_RANK);
      entry.sizes[entry.rank++] = size.as_int(where);
    }
    const std::vector<Json>& offsets = value.at("data_offsets", where).as_array(where);
    if (offsets.size() != 2) fail(ErrorKind::Program, where, ": data_offsets must be two numbers");
    int64_t begin = offsets[0].as_int(where), end = offsets[1].as_int(where);
    int64_t want;
    try {
      want = checked_numel(entry.sizes, entry.rank, entry.dtype) * static_cast<int64_t>(item_size(entry.dtype));
    } catch (const Error& error) {
      fail(ErrorKind::Program, where, ": ", error.message());
    }
    if (begin < 0 || end < begin || end - begin != want)
      fail(ErrorKind::Program, where, " of shape ", shape_text(entry.sizes, entry.rank), " needs ", want,
           " bytes, the header gives it ", end - begin);
    if (static_cast<uint64_t>(end) > body_bytes)
      fail(ErrorKind::Program, path, ": is truncated: tensor '", name, "' ends at byte ", end,
           " of the data, which has ", body_bytes);
    entry.data = body + begin;
    entry.bytes = static_cast<size_t>(want);
    out.entries_.emplace(name, entry);
  }
  return out;
}

bool SafeTensors::changed() const {
  struct stat status;
  if (mapping_ == nullptr || fstat(mapping_->file, &status) != 0) return false;
  return static_cast<size_t>(status.st_size) != mapping_->bytes || status.st_mtim.tv_sec != mapping_->written.tv_sec ||
         status.st_mtim.tv_nsec != mapping_->written.tv_nsec;
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : entries_) out.push_back(name);
  return out;
}

void SafeTensors::write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (static_cast<unsigned char>(c) < 0x20) {
        char code[8];
        std::snprintf(code, sizeof code, "\\u%04x", c);
        out += code;
      } else {
        out += c;
      }
    }
    return out + '"';
  };
  std::string header = "{";
  int64_t at = 0;
  for (const auto& [name, t] : tensors) {
    const char* tag = nullptr;
    for (const auto& candidate : kNames)
      if (candidate.dtype == t.dtype) tag = candidate.name;
    header += cat(header.size() > 1 ? "," : "", quoted(name), ":{\"dtype\":\"", tag, "\",\"shape\":[");
    for (int32_t k = 0; k < t.rank; ++k) header += cat(k > 0 ? "," : "", t.sizes[k]);
    header += cat("],\"data_offsets\":[", at, ",", at + t.nbytes(), "]}");
    at += t.nbytes();
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string beside = cat(path, ".", getpid(), ".tmp");
  std::FILE* file = std::fopen(beside.c_str(), "wbx");
  if (file == nullptr) fail(ErrorKind::Program, path, ": cannot be written: ", std::strerror(errno));
  uint64_t length = header.size();
  bool good = std::fwrite(&length, 8, 1, file) == 1 && std::fwrite(header.data(), 1, length, file) == length;
  for (const auto& [name, t] : tensors) {
    Tensor dense = contiguous(t);
    size_t bytes = static_cast<size_t>(dense.nbytes());
    good = good && std::fwrite(dense.data(), 1, bytes, file) == bytes;
  }
  good = std::fclose(file) == 0 && good;
  if (!good || std::rename(beside.c_str(), path.c_str()) != 0) {
    int error = errno;
    std::remove(beside.c_str());
    fail(ErrorKind::Program, path, ": cannot be written: ", std::strerror(error));
  }
}

Tensor SafeTensors::get(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  size_t item = item_size(entry.dtype), alignment = is_complex(entry.dtype) ? item / 2 : item;
  if (reinterpret_cast<uintptr_t>(entry.data) % alignment != 0) {
    Tensor copy = empty(entry.sizes, entry.rank, entry.dtype);
    std::memcpy(copy.data(), entry.data, entry.bytes);
    return copy;
  }
  Tensor t;
  t.storage = StoragePtr::adopt(Storage::make_borrowed(
      const_cast<char*>(entry.data), entry.bytes, true,
      [](void* context) { delete static_cast<std::shared_ptr<Mapping>*>(context); },
      new std::shared_ptr<Mapping>(mapping_)));
  t.dtype = entry.dtype;
  t.rank = entry.rank;
  std::memcpy(t.sizes, entry.sizes, sizeof(int64_t) * static_cast<size_t>(entry.rank));
  set_contiguous_strides(t.rank, t.sizes, t.strides);
  return t;
}

}  // namespace ow
