// A caching allocator for CPU memory: 64-byte aligned blocks, kept by size class and given out again.
// May include: error.h. Thread-safe. $OPWRIGHT_ALLOC_CONF: `max_cached_mb:N` and `poison:0|1` (fresh blocks are filled
// with 0xff, a NaN in every float type, so that a kernel that reads what it never wrote shows).
#pragma once
#include <cstddef>
#include <cstdint>

namespace ow {

inline constexpr size_t kAlignment = 64;

struct AllocatorStats {
  int64_t allocated;    // bytes in use now
  int64_t reserved;     // bytes held from the system: in use and cached
  int64_t peak;         // highest `allocated` since the start or reset_peak()
  int64_t allocations;  // calls
  int64_t cache_hits;   // calls served from the cache
};

size_t rounded_size(size_t bytes);  // the size class that serves a request
void* allocate(size_t bytes);       // throws Error when memory is out, even after the cache was emptied
void deallocate(void* block, size_t bytes) noexcept;
AllocatorStats allocator_stats();
void allocator_reset_peak();
void allocator_empty_cache();
void allocator_set_poison(bool on);
void allocator_configure(const char* conf);  // the text of $OPWRIGHT_ALLOC_CONF; throws on what it does not know

}  // namespace ow
