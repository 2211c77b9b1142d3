// See library.h.
#include "library.h"

#include <dlfcn.h>

#include <mutex>
#include <unordered_map>

#include "error.h"

namespace ow {
namespace {

void* open_library(const std::string& path) {
  static std::mutex mutex;
  static auto* open = new std::unordered_map<std::string, void*>;
  std::lock_guard lock(mutex);
  if (auto found = open->find(path); found != open->end()) return found->second;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    fail(ErrorKind::Runtime, "cannot load kernel library ", path, ": ", why == nullptr ? "no reason given" : why);
  }
  open->emplace(path, handle);
  return handle;
}

template <class Function>
Function symbol_of(void* handle, const std::string& path, const std::string& name) {
  void* address = dlsym(handle, name.c_str());
  if (address == nullptr) fail(ErrorKind::Runtime, "kernel library ", path, " has no symbol ", name);
  return reinterpret_cast<Function>(address);
}

}  // namespace

KernelSymbols load_kernel(const std::string& library, const std::string& symbol) {
  void* handle = open_library(library);
  return {symbol_of<OwKernel>(handle, library, symbol), symbol_of<OwKernel>(handle, library, symbol + "_infer"),
          symbol_of<OwWorkspace>(handle, library, symbol + "_workspace")};
}

}  // namespace ow
