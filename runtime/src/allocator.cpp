// See allocator.h.
#include "allocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>

#include "error.h"

// What lies between blocks, and free blocks, are out of bounds for the sanitizer.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define OW_FORBID(data, bytes) __asan_poison_memory_region(data, bytes)
#define OW_PERMIT(data, bytes) __asan_unpoison_memory_region(data, bytes)
#else
#define OW_FORBID(data, bytes) static_cast<void>(0)
#define OW_PERMIT(data, bytes) static_cast<void>(0)
#endif

namespace ow {
namespace {

constexpr size_t kHuge = size_t{2} << 20;     // a huge page, and the least that a backend is asked for
constexpr size_t kResting = size_t{1} << 20;  // blocks up to this rest by size class
constexpr size_t kSmall = size_t{256} << 10;  // requests up to this share segments of 2 MiB,
constexpr size_t kMiddle = size_t{8} << 20;   // up to this segments of 16 MiB; larger ones have their own
constexpr size_t kShared = size_t{16} << 20;
// A remainder below this stays with its block, by kind of segment: nobody would ask for it.
constexpr size_t kLeast[] = {kAlignment, size_t{64} << 10, kMiddle};
constexpr int kShown = 8;  // groups of live blocks that an error lists

struct Asker {  // one of these a thread, so that one look-up finds it
  const char* tag = "";
  int pool = 0;
};
thread_local Asker asker;

// A size class: 64 bytes apart up to 4 KiB, then eight for each power of two, so that at most an eighth is lost.
struct SizeClass {
  size_t size;
  int32_t number;
};
SizeClass class_of(size_t bytes) {
  if (bytes <= 4096) {
    size_t k = bytes <= 64 ? 1 : (bytes + 63) >> 6;
    return {k << 6, static_cast<int32_t>(k)};
  }
  int log = std::bit_width(bytes - 1) - 1;    // 2^log < bytes <= 2^(log + 1)
  size_t k = ((bytes - 1) >> (log - 3)) + 1;  // in steps of an eighth of 2^log: 9 to 16
  return {k << (log - 3), 65 + (log - 12) * 8 + static_cast<int32_t>(k) - 9};
}
constexpr size_t kClasses = 65 + 8 * 8 + 1;  // those of up to kResting

struct Segment;

struct Block {
  char* data = nullptr;
  size_t size = 0, requested = 0;
  Segment* segment = nullptr;
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  const char* tag = "";
  uint64_t serial = 0;
  int32_t number = -1;  // of the size class whose list it rests in; -1: it does not rest
  MemorySnapshot::State state = MemorySnapshot::State::Free;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : std::less<>{}(a->data, b->data);
  }
};

struct Pool {
  int id = 0;
  std::string name;
  bool dropped = false;
  std::vector<Block*> resting[kClasses];
  int64_t resting_blocks = 0;
  std::set<Block*, BySize> free[3];  // by kind of segment
};

struct Segment {
  char* data = nullptr;
  size_t bytes = 0;
  int kind = 0;  // 0: small requests, 1: middling ones, 2: one large request
  Pool* pool = nullptr;
  Block* first = nullptr;
  MemoryBackend backend;
  uint64_t used = 0;  // serial of the last request that it served
};

// Address -> block, by open addressing: one of these look-ups is in the path of every deallocation.
class BlockMap {
 public:
  BlockMap() : slots_(1 << 10) {}
  void insert(Block* block) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place(block);
    ++count_;
  }
  Block* find(const void* data) const {
    size_t at = home(data);
    while (slots_[at] != nullptr && slots_[at]->data != data) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void erase(const void* data) {
    size_t mask = slots_.size() - 1, hole = home(data);
    while (slots_[hole]->data != data) hole = (hole + 1) & mask;
    for (size_t at = (hole + 1) & mask; slots_[at] != nullptr; at = (at + 1) & mask) {
      size_t wanted = home(slots_[at]->data);
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;  // it may not stand before its home
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = nullptr;
    --count_;
  }

 private:
  size_t home(const void* data) const {
    return ((reinterpret_cast<uintptr_t>(data) >> 6) * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
  }
  void place(Block* block) {
    size_t at = home(block->data);
    while (slots_[at] != nullptr) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = block;
  }
  void grow() {
    std::vector<Block*> old(slots_.size() * 2);
    old.swap(slots_);
    for (Block* block : old)
      if (block != nullptr) place(block);
  }
  std::vector<Block*> slots_;
  size_t count_ = 0;
};

size_t rounded_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

struct CachingAllocator::State {
  mutable std::mutex mutex;
  MemoryBackend backend;
  int64_t limit = 0, max_cached = 0;
  double collect_at = 1;
  AllocatorStats stats;
  std::deque<Block> storage;  // of all blocks that there ever were at once
  std::vector<Block*> spare;
  BlockMap blocks;
  std::map<char*, std::unique_ptr<Segment>> segments;
  std::map<int, std::unique_ptr<Pool>> pools;
  Pool* base = nullptr;  // number 0
  int next_pool = 1;
  uint64_t serial = 0;

  Pool& pool(int id) {
    if (id == 0) return *base;
    auto found = pools.find(id);
    if (found == pools.end() || found->second->dropped)
      fail(ErrorKind::Value, "memory pool ", id, " was closed; allocate outside it");
    return *found->second;
  }

  Block* new_block(char* data, size_t size, Segment* segment) {
    Block* block;
    if (spare.empty()) {
      block = &storage.emplace_back();
    } else {
      block = spare.back();
      spare.pop_back();
    }
    *block = Block{};
    block->data = data;
    block->size = size;
    block->segment = segment;
    return block;
  }

  void forget(Block* block) {
    blocks.erase(block->data);
    spare.push_back(block);
  }

  // The first `size` bytes of a free block that is in no list; the rest, if it is worth it, is free again.
  void split(Block* block, size_t size) {
    Segment& segment = *block->segment;
    size_t rest = block->size - size;
    if (rest < kLeast[segment.kind]) return;
    Block* tail = new_block(block->data + size, rest, &segment);
    blocks.insert(tail);
    tail->before = block;
    tail->after = block->after;
    if (tail->after != nullptr) tail->after->before = tail;
    block->after = tail;
    block->size = size;
    segment.pool->free[segment.kind].insert(tail);
  }

  // A block that is in no list becomes free: joined with its free neighbours.
  Block* merge(Block* block) {
    Segment& segment = *block->segment;
    auto& free = segment.pool->free[segment.kind];
    block->state = MemorySnapshot::State::Free;
    if (Block* other = block->before; other != nullptr && other->state == MemorySnapshot::State::Free) {
      free.erase(other);
      other->size += block->size;
      other->after = block->after;
      if (block->after != nullptr) block->after->before = other;
      other->serial = std::max(other->serial, block->serial);
      forget(block);
      block = other;
    }
    if (Block* other = block->after; other != nullptr && other->state == MemorySnapshot::State::Free) {
      free.erase(other);
      block->size += other->size;
      block->after = other->after;
      if (other->after != nullptr) other->after->before = block;
      forget(other);
    }
    block->requested = 0;
    free.insert(block);
    return block;
  }

  void merge_resting(Pool& p) {
    if (p.resting_blocks == 0) return;
    for (auto& list : p.resting) {
      for (Block* block : list) merge(block);
      list.clear();
    }
    p.resting_blocks = 0;
  }

  Block* take_free(Pool& p, size_t size, int kind) {
    Block wanted;
    wanted.size = size;
    auto found = p.free[kind].lower_bound(&wanted);  // the smallest that fits, at the lowest address
    // A segment of a large request serves one of its size, not a small part of it.
    if (found == p.free[kind].end() || (kind == 2 && (*found)->size > size + size / 4)) return nullptr;
    Block* block = *found;
    p.free[kind].erase(found);
    split(block, size);
    return block;
  }

  void release(Segment* segment) {
    Block* block = segment->first;
    segment->pool->free[segment->kind].erase(block);
    forget(block);
    OW_PERMIT(segment->data, segment->bytes);
    segment->backend.release(segment->backend.context, segment->data, segment->bytes);
    stats.reserved -= static_cast<int64_t>(segment->bytes);
    --stats.segments;
    ++stats.segment_releases;
    segments.erase(segment->data);
  }

  static bool whole(const Block* block) { return block->before == nullptr && block->after == nullptr; }

  // Gives free segments back, those that were used longest ago first, until `reserved` is at most `goal`.
  bool release_free(int64_t goal) {
    std::vector<Segment*> idle;
    for (auto& [id, p] : pools) {
      merge_resting(*p);
      for (auto& list : p->free)
        for (Block* block : list)
          if (whole(block)) idle.push_back(block->segment);
    }
    std::sort(idle.begin(), idle.end(), [](Segment* a, Segment* b) { return a->used < b->used; });
    bool any = false;
    for (Segment* segment : idle) {
      if (stats.reserved <= goal) break;
      release(segment);
      any = true;
    }
    return any;
  }

  // A new segment as one free block that is in no list; null: memory is out.
  Block* take_segment(Pool& p, size_t size, int kind) {
    size_t bytes = kind == 0 ? kHuge : kind == 1 ? kShared : rounded_up(size, kHuge);
    auto fits = [&](double share) {
      return static_cast<double>(stats.reserved) + static_cast<double>(bytes) <= share * static_cast<double>(limit);
    };
    if (!fits(std::min(1.0, collect_at)) &&
        release_free(static_cast<int64_t>(collect_at * static_cast<double>(limit)) - static_cast<int64_t>(bytes)))
      ++stats.collections;
    if (!fits(1)) {
      if (release_free(std::max<int64_t>(0, limit - static_cast<int64_t>(bytes)))) ++stats.collections;
      if (!fits(1)) return nullptr;
    }
    void* data = backend.allocate(backend.context, bytes, kHuge);
    if (data == nullptr) {
      if (release_free(0)) ++stats.collections;
      data = backend.allocate(backend.context, bytes, kHuge);
      if (data == nullptr) return nullptr;
    }
    auto made = std::make_unique<Segment>();
    made->data = static_cast<char*>(data);
    made->bytes = bytes;
    made->kind = kind;
    made->pool = &p;
    made->backend = backend;
    Block* block = new_block(made->data, bytes, made.get());
    blocks.insert(block);
    made->first = block;
    segments.emplace(made->data, std::move(made));
    stats.reserved += static_cast<int64_t>(bytes);
    stats.peak_reserved = std::max(stats.peak_reserved, stats.reserved);
    ++stats.segments;
    ++stats.segment_allocations;
    OW_FORBID(data, bytes);
    split(block, size);
    return block;
  }

  // Largest first; equal ones of one asker together.
  std::string largest_live() const {
    std::map<std::pair<size_t, std::string>, int> groups;
    for (const auto& [data, segment] : segments)
      for (const Block* block = segment->first; block != nullptr; block = block->after)
        if (block->state == MemorySnapshot::State::Live) ++groups[{block->size, block->tag}];
    std::vector<std::pair<std::pair<size_t, std::string>, int>> sorted(groups.begin(), groups.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.first.first * static_cast<size_t>(a.second) > b.first.first * static_cast<size_t>(b.second);
    });
    std::string out;
    for (size_t k = 0; k < sorted.size() && k < kShown; ++k) {
      const auto& [key, count] = sorted[k];
      out += k == 0 ? "" : ", ";
      if (count > 1) out += cat(count, " × ");
      out += bytes_text(static_cast<int64_t>(key.first));
      if (!key.second.empty()) out += " (" + key.second + ")";
    }
    return out.empty() ? "nothing is in use" : "the largest in use: " + out;
  }

  [[noreturn]] void out_of_memory(size_t bytes, const char* tag) {
    ++stats.failures;
    fail(ErrorKind::Memory, "out of memory: ", bytes_text(static_cast<int64_t>(bytes)), " wanted",
         *tag != '\0' ? cat(" by ", tag) : "", ", ", bytes_text(stats.allocated), " in use, ",
         bytes_text(stats.reserved - stats.allocated), " cached, limit ", bytes_text(limit), "; ", largest_live());
  }

  // Under the lock.
  void give_back(Block* block) {
    Pool& p = *block->segment->pool;
    stats.allocated -= static_cast<int64_t>(block->size);
    stats.requested -= static_cast<int64_t>(block->requested);
    --stats.live_blocks;
    OW_FORBID(block->data, block->size);
    if (p.dropped) {
      Block* merged = merge(block);
      if (whole(merged)) release(merged->segment);
      forget_pool(p);
      return;
    }
    if (block->number >= 0) {
      block->state = MemorySnapshot::State::Resting;
      p.resting[block->number].push_back(block);
      ++p.resting_blocks;
    } else {
      merge(block);
    }
    if (stats.reserved - stats.allocated > max_cached) release_free(stats.allocated + max_cached);
  }

  void forget_pool(Pool& p) {
    for (const auto& [data, segment] : segments)
      if (segment->pool == &p) return;
    pools.erase(p.id);
  }
};

CachingAllocator::CachingAllocator(MemoryBackend backend, int64_t limit) : state_(std::make_unique<State>()) {
  state_->backend = backend;
  state_->limit = limit;
  state_->max_cached = INT64_MAX;
  state_->pools.emplace(0, std::make_unique<Pool>());
  state_->base = state_->pools[0].get();
  state_->base->name = "default";
}

CachingAllocator::~CachingAllocator() { empty_cache(); }

void* CachingAllocator::allocate(size_t bytes, int pool, const char* tag) {
  if (bytes > (size_t{1} << 62)) fail(ErrorKind::Value, "cannot allocate ", bytes, " bytes");
  State& s = *state_;
  const auto [size, number] = class_of(bytes);
  int kind = size <= kSmall ? 0 : size <= kMiddle ? 1 : 2;
  std::lock_guard lock(s.mutex);
  Pool& p = s.pool(pool);
  ++s.stats.allocations;
  Block* block = nullptr;
  if (size <= kResting) {
    if (auto& list = p.resting[number]; !list.empty()) {
      block = list.back();
      list.pop_back();
      --p.resting_blocks;
    }
  }
  if (block == nullptr) block = s.take_free(p, size, kind);
  if (block == nullptr && p.resting_blocks > 0) {
    s.merge_resting(p);
    block = s.take_free(p, size, kind);
  }
  if (block != nullptr) {
    ++s.stats.cache_hits;
  } else {
    block = s.take_segment(p, size, kind);
    if (block == nullptr) s.out_of_memory(bytes, tag);
  }
  // A class list holds blocks of exactly its size; a block that kept its remainder is another.
  block->number = size <= kResting && block->size == size ? number : -1;
  block->state = MemorySnapshot::State::Live;
  block->requested = bytes;
  block->tag = tag;
  block->serial = block->segment->used = ++s.serial;
  ++s.stats.live_blocks;
  s.stats.requested += static_cast<int64_t>(bytes);
  s.stats.allocated += static_cast<int64_t>(block->size);
  s.stats.peak = std::max(s.stats.peak, s.stats.allocated);
  OW_PERMIT(block->data, std::max<size_t>(bytes, 1));
  return block->data;
}

void CachingAllocator::deallocate(void* data) noexcept {
  if (data == nullptr) return;
  std::lock_guard lock(state_->mutex);
  Block* block = state_->blocks.find(data);
  if (block == nullptr || block->state != MemorySnapshot::State::Live) {
    std::fprintf(stderr, "opwright: memory at %p is given back, but is not in use: a fault of whoever gives it\n",
                 data);
    std::abort();
  }
  state_->give_back(block);
}

AllocatorStats CachingAllocator::stats() const {
  std::lock_guard lock(state_->mutex);
  AllocatorStats out = state_->stats;
  out.limit = state_->limit;
  for (const auto& [id, p] : state_->pools) {
    out.free_blocks += p->resting_blocks;
    for (const auto& list : p->free) {
      out.free_blocks += static_cast<int64_t>(list.size());
      if (!list.empty()) out.largest_free = std::max(out.largest_free, static_cast<int64_t>((*list.rbegin())->size));
    }
    for (const auto& list : p->resting)
      if (!list.empty()) out.largest_free = std::max(out.largest_free, static_cast<int64_t>(list.back()->size));
  }
  return out;
}

MemorySnapshot CachingAllocator::snapshot() const {
  MemorySnapshot out;
  out.stats = stats();
  std::lock_guard lock(state_->mutex);
  for (const auto& [id, p] : state_->pools) out.pools.emplace_back(id, p->name);
  for (const auto& [data, segment] : state_->segments) {
    MemorySnapshot::Segment& shown = out.segments.emplace_back();
    shown.address = reinterpret_cast<uintptr_t>(data);
    shown.bytes = static_cast<int64_t>(segment->bytes);
    shown.pool = segment->pool->id;
    for (const Block* b = segment->first; b != nullptr; b = b->after)
      shown.blocks.push_back({b->data - data, static_cast<int64_t>(b->size), static_cast<int64_t>(b->requested),
                              b->state, b->tag, b->serial});
  }
  return out;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(state_->mutex);
  state_->stats.peak = state_->stats.allocated;
  state_->stats.peak_reserved = state_->stats.reserved;
}

void CachingAllocator::empty_cache() {
  std::lock_guard lock(state_->mutex);
  state_->release_free(0);
}

int CachingAllocator::make_pool(const std::string& name) {
  std::lock_guard lock(state_->mutex);
  auto made = std::make_unique<Pool>();
  made->id = state_->next_pool++;
  made->name = name;
  int id = made->id;
  state_->pools.emplace(id, std::move(made));
  return id;
}

void CachingAllocator::drop_pool(int pool) {
  std::lock_guard lock(state_->mutex);
  if (pool == 0) fail(ErrorKind::Value, "the default memory pool cannot be closed");
  auto found = state_->pools.find(pool);
  if (found == state_->pools.end() || found->second->dropped) return;
  Pool& p = *found->second;
  p.dropped = true;
  state_->merge_resting(p);
  std::vector<Segment*> idle;
  for (const auto& list : p.free)
    for (Block* block : list)
      if (State::whole(block)) idle.push_back(block->segment);
  for (Segment* segment : idle) state_->release(segment);
  state_->forget_pool(p);
}

void CachingAllocator::set_backend(MemoryBackend backend) {
  std::lock_guard lock(state_->mutex);
  state_->backend = backend;
}

void CachingAllocator::set_limit(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
  if (state_->stats.reserved > bytes) state_->release_free(bytes);
}

void CachingAllocator::set_max_cached(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->max_cached = bytes;
}

void CachingAllocator::set_collect_at(double share) {
  std::lock_guard lock(state_->mutex);
  state_->collect_at = share;
}

void CachingAllocator::lock_for_fork() { state_->mutex.lock(); }
void CachingAllocator::unlock_after_fork() { state_->mutex.unlock(); }

// ---- the system's memory ----

namespace {

// A first touch then costs a sixth, and later ones less too. Set before the first allocation, by allocator_configure.
bool huge_pages = true;
std::atomic<bool> poison{false};

void* map_pages(void*, size_t bytes, size_t alignment) {
  size_t wide = bytes + alignment;
  void* found = mmap(nullptr, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto base = reinterpret_cast<uintptr_t>(found), start = (base + alignment - 1) / alignment * alignment;
  if (start > base) munmap(found, start - base);
  if (uintptr_t end = base + wide; end > start + bytes)
    munmap(reinterpret_cast<void*>(start + bytes), end - start - bytes);
  auto* data = reinterpret_cast<void*>(start);
  if (huge_pages) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void unmap_pages(void*, void* data, size_t bytes) { munmap(data, bytes); }

int64_t number_in(const char* path) {
  long long value = 0;
  if (std::FILE* file = std::fopen(path, "r")) {
    if (std::fscanf(file, "%lld", &value) != 1) value = 0;  // "max"
    std::fclose(file);
  }
  return value;
}

}  // namespace

MemoryBackend system_backend() { return {map_pages, unmap_pages, nullptr}; }

int64_t total_memory() {
  int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGE_SIZE)};
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (int64_t limit = number_in(path); limit > 0) total = std::min(total, limit);
  return total;
}

// Never destroyed: tensors may outlive every static object.
CachingAllocator& host_allocator() {
  static CachingAllocator* made = [] {
    auto* allocator = new CachingAllocator(system_backend(), total_memory());
    allocator->set_max_cached(total_memory() / 4);
    return allocator;
  }();
  return *made;
}

namespace {
// A fork while another thread allocates must not leave the lock taken in the child.
[[maybe_unused]] const int forks_are_watched =
    pthread_atfork([] { host_allocator().lock_for_fork(); }, [] { host_allocator().unlock_after_fork(); },
                   [] { host_allocator().unlock_after_fork(); });
}  // namespace

size_t rounded_size(size_t bytes) { return class_of(bytes).size; }

void* allocate(size_t bytes) {
  void* block = host_allocator().allocate(bytes, asker.pool, asker.tag);
  if (poison.load(std::memory_order_relaxed)) std::memset(block, 0xff, bytes);
  return block;
}

void deallocate(void* block, size_t) noexcept { host_allocator().deallocate(block); }

AllocatorStats allocator_stats() { return host_allocator().stats(); }
void allocator_reset_peak() { host_allocator().reset_peak(); }
void allocator_empty_cache() { host_allocator().empty_cache(); }
void allocator_set_poison(bool on) { poison.store(on, std::memory_order_relaxed); }
int exchange_pool(int pool) { return std::exchange(asker.pool, pool); }

AllocationTag::AllocationTag(const char* tag) : held_(&asker.tag), before_(std::exchange(*held_, tag)) {}
AllocationTag::~AllocationTag() { *held_ = before_; }

const char* lasting_text(const std::string& text) {
  static std::mutex mutex;
  static auto* texts = new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return texts->insert(text).first->c_str();
}

std::string bytes_text(int64_t bytes) {
  double value = static_cast<double>(bytes);
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

void allocator_configure(const char* conf) {
  if (conf == nullptr) return;
  std::string text(conf);
  CachingAllocator& host = host_allocator();
  size_t at = 0;
  while (at < text.size()) {
    size_t end = std::min(text.find(',', at), text.size());
    std::string item = text.substr(at, end - at);
    at = end + 1;
    size_t colon = item.find(':');
    std::string key = item.substr(0, colon), value = colon == std::string::npos ? "" : item.substr(colon + 1);
    char* rest = nullptr;
    double number = std::strtod(value.c_str(), &rest);
    bool valid = !value.empty() && *rest == '\0' && number >= 0;
    bool whole = valid && number < 1e12 && number == static_cast<double>(static_cast<int64_t>(number));
    bool flag = whole && number <= 1, share = valid && number > 0 && number <= 1;
    auto bytes = [&] { return static_cast<int64_t>(number) << 20; };
    if (key == "max_cached_mb" && whole) {
      host.set_max_cached(bytes());
    } else if (key == "limit_mb" && whole) {
      host.set_limit(bytes());
    } else if (key == "fraction" && share) {
      host.set_limit(static_cast<int64_t>(number * static_cast<double>(total_memory())));
    } else if (key == "collect_at" && share) {
      host.set_collect_at(number);
    } else if (key == "huge_pages" && flag) {
      huge_pages = number == 1;
    } else if (key == "poison" && flag) {
      allocator_set_poison(number == 1);
    } else {
      fail(ErrorKind::Value, "OPWRIGHT_ALLOC_CONF: cannot read '", item,
           "'; known: max_cached_mb:N, limit_mb:N, fraction:X and collect_at:X up to 1, huge_pages:0|1, poison:0|1");
    }
  }
}

}  // namespace ow
