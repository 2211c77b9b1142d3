// A caching allocator: memory is taken from a backend in segments, cut into blocks, and given out again. It never reads
// or writes the memory that it manages, so one class serves the CPU and, with another backend, a device.
// May include: error.h. Thread-safe.
//
//   Segment   what the backend gave, 2 MiB or more. A block is a part of one; blocks tile their segment.
//   Block     live, resting or free. Small ones rest after their use in lists by size class, as they are: the next
//             request of that class takes one at once. Free ones are merged with free neighbours and split on demand.
//   Pool      segments of its own: what is allocated in one pool never shares a segment with another's.
//
// Before a new segment is taken, resting blocks are merged and tried; before memory is out, all free segments go back.
// $OPWRIGHT_ALLOC_CONF: `key:value,…`, the keys in allocator_configure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ow {

inline constexpr size_t kAlignment = 64;

// Where segments come from. `allocate` gives null when there is nothing; alignment is a power of two.
struct MemoryBackend {
  void* (*allocate)(void* context, size_t bytes, size_t alignment) = nullptr;
  void (*release)(void* context, void* data, size_t bytes) = nullptr;
  void* context = nullptr;
};

struct AllocatorStats {
  int64_t allocated = 0;      // bytes in use now, rounded up to size classes
  int64_t requested = 0;      // bytes asked for of those
  int64_t reserved = 0;       // bytes held from the backend
  int64_t peak = 0;           // highest `allocated` since the start or reset_peak()
  int64_t peak_reserved = 0;  // of `reserved`
  int64_t allocations = 0;    // calls
  int64_t cache_hits = 0;     // calls that needed no new segment
  int64_t segments = 0;       // held now
  int64_t live_blocks = 0;
  int64_t free_blocks = 0;  // resting ones too
  int64_t largest_free = 0;
  int64_t segment_allocations = 0, segment_releases = 0;  // calls of the backend
  int64_t collections = 0;  // times that free segments were given back to stay under a limit
  int64_t failures = 0;     // requests that could not be served
  int64_t limit = 0;
};

// What the allocator holds at one moment, in order of addresses.
struct MemorySnapshot {
  enum class State : uint8_t { Live, Resting, Free };
  struct Block {
    int64_t offset, size, requested;
    State state;
    const char* tag;  // who asked for it
    uint64_t serial;  // number of the request that it serves or served last
  };
  struct Segment {
    uintptr_t address;
    int64_t bytes;
    int pool;
    std::vector<Block> blocks;
  };
  AllocatorStats stats;
  std::vector<std::pair<int, std::string>> pools;
  std::vector<Segment> segments;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(MemoryBackend backend, int64_t limit);
  ~CachingAllocator();  // gives everything back: no block may be in use
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Throws Error(Memory) that lists the largest live blocks. `tag`: who asks, a text that lives for ever.
  void* allocate(size_t bytes, int pool = 0, const char* tag = "");
  void deallocate(void* data) noexcept;  // null is fine

  AllocatorStats stats() const;
  MemorySnapshot snapshot() const;
  void reset_peak();
  void empty_cache();

  int make_pool(const std::string& name);
  void drop_pool(int pool);  // its segments go back as soon as nothing in them is in use

  void set_backend(MemoryBackend backend);  // for segments to come
  void set_limit(int64_t bytes);            // of `reserved`
  void set_max_cached(int64_t bytes);       // above it, free segments go back at once
  void set_collect_at(double share);        // of the limit: above it, free segments go back before new ones are taken

  void lock_for_fork();
  void unlock_after_fork();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// ---- the CPU's ----

CachingAllocator& host_allocator();

size_t rounded_size(size_t bytes);  // the size class that serves a request
void* allocate(size_t bytes);       // from the pool of this thread
void deallocate(void* block, size_t bytes) noexcept;
AllocatorStats allocator_stats();
void allocator_reset_peak();
void allocator_empty_cache();
void allocator_set_poison(bool on);
// The text of $OPWRIGHT_ALLOC_CONF; throws on what it does not know.
void allocator_configure(const char* conf);
int64_t total_memory();          // this machine's, or less where a container's limit says so
MemoryBackend system_backend();  // mmap
int exchange_pool(int pool);     // what this thread allocates from, until it is set again; returns what it was

// Who asks, while this lives: blocks that are allocated on this thread carry the text, which must live for ever.
class AllocationTag {
 public:
  explicit AllocationTag(const char* tag);
  ~AllocationTag();
  AllocationTag(const AllocationTag&) = delete;
  AllocationTag& operator=(const AllocationTag&) = delete;

 private:
  const char** held_;
  const char* before_;
};
const char* lasting_text(const std::string& text);  // equal texts, one address; never freed

std::string bytes_text(int64_t bytes);  // "3.2 MiB"

}  // namespace ow
