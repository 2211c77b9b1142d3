// See allocator.h.
#include "allocator.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "error.h"

namespace ow {
namespace {

struct Allocator {
  std::mutex mutex;
  std::vector<void*> small[65];  // blocks of 64·k bytes, k <= 64
  std::unordered_map<size_t, std::vector<void*>> large;
  AllocatorStats stats{};
  int64_t max_cached = 0;
  bool poison = false;

  std::vector<void*>& bucket(size_t size) { return size <= 4096 ? small[size / 64] : large[size]; }

  void drop_cached() {
    auto drop = [&](std::vector<void*>& blocks, size_t size) {
      for (void* block : blocks) std::free(block);
      stats.reserved -= static_cast<int64_t>(blocks.size() * size);
      blocks.clear();
    };
    for (size_t k = 0; k <= 64; ++k) drop(small[k], k * 64);
    for (auto& [size, blocks] : large) drop(blocks, size);
  }
};

// Never destroyed: tensors may outlive every static object.
Allocator& the() {
  static Allocator* allocator = [] {
    auto* made = new Allocator;
    int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGE_SIZE)};
    made->max_cached = physical / 4;
    return made;
  }();
  static std::once_flag once;
  std::call_once(once, [] {  // a fork while another thread allocates must not leave the lock taken in the child
    pthread_atfork([] { the().mutex.lock(); }, [] { the().mutex.unlock(); }, [] { the().mutex.unlock(); });
  });
  return *allocator;
}

}  // namespace

size_t rounded_size(size_t bytes) {
  if (bytes <= 64) return 64;
  if (bytes <= 4096) return (bytes + 63) & ~size_t{63};
  size_t step = std::bit_floor(bytes - 1) / 8;  // eight classes per power of two: at most an eighth is lost
  return (bytes + step - 1) / step * step;
}

void* allocate(size_t bytes) {
  if (bytes > (size_t{1} << 62)) fail(ErrorKind::Value, "cannot allocate ", bytes, " bytes");
  Allocator& a = the();
  size_t size = rounded_size(bytes);
  void* block = nullptr;
  bool poison;
  {
    std::lock_guard lock(a.mutex);
    poison = a.poison;
    std::vector<void*>& cached = a.bucket(size);
    if (!cached.empty()) {
      block = cached.back();
      cached.pop_back();
      ++a.stats.cache_hits;
    } else {
      block = std::aligned_alloc(kAlignment, size);
      if (block == nullptr) {
        a.drop_cached();
        block = std::aligned_alloc(kAlignment, size);
      }
      if (block == nullptr)
        fail(ErrorKind::Runtime, "out of memory: ", bytes, " bytes wanted, ", a.stats.allocated, " in use");
      a.stats.reserved += static_cast<int64_t>(size);
    }
    ++a.stats.allocations;
    a.stats.allocated += static_cast<int64_t>(size);
    if (a.stats.allocated > a.stats.peak) a.stats.peak = a.stats.allocated;
  }
  if (poison) std::memset(block, 0xff, size);
  return block;
}

void deallocate(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  Allocator& a = the();
  size_t size = rounded_size(bytes);
  std::lock_guard lock(a.mutex);
  a.stats.allocated -= static_cast<int64_t>(size);
  int64_t cached = a.stats.reserved - a.stats.allocated;
  if (cached <= a.max_cached) {
    try {
      a.bucket(size).push_back(block);
      return;
    } catch (const std::bad_alloc&) {
      // no room to remember the block: hand it back to the system below
    }
  }
  a.stats.reserved -= static_cast<int64_t>(size);
  std::free(block);
}

AllocatorStats allocator_stats() {
  std::lock_guard lock(the().mutex);
  return the().stats;
}

void allocator_reset_peak() {
  std::lock_guard lock(the().mutex);
  the().stats.peak = the().stats.allocated;
}

void allocator_empty_cache() {
  std::lock_guard lock(the().mutex);
  the().drop_cached();
}

void allocator_set_poison(bool on) {
  std::lock_guard lock(the().mutex);
  the().poison = on;
}

void allocator_configure(const char* conf) {
  if (conf == nullptr) return;
  std::string text(conf);
  size_t at = 0;
  while (at < text.size()) {
    size_t end = std::min(text.find(',', at), text.size());
    std::string item = text.substr(at, end - at);
    at = end + 1;
    size_t colon = item.find(':');
    std::string key = item.substr(0, colon), value = colon == std::string::npos ? "" : item.substr(colon + 1);
    char* rest = nullptr;
    long long number = std::strtoll(value.c_str(), &rest, 10);
    bool valid = !value.empty() && *rest == '\0' && number >= 0;
    std::lock_guard lock(the().mutex);
    if (key == "max_cached_mb" && valid && number < (1LL << 40)) {
      the().max_cached = number << 20;
    } else if (key == "poison" && valid && number <= 1) {
      the().poison = number == 1;
    } else {
      fail(ErrorKind::Value, "OPWRIGHT_ALLOC_CONF: cannot read '", item, "'; known: max_cached_mb:N, poison:0|1");
    }
  }
}

}  // namespace ow
