// Storage: a counted piece of memory, ours (from the allocator) or borrowed (DLPack, a buffer, a mapped file).
// May include: abi.h, allocator.h.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "opwright/abi.h"

namespace ow {

inline constexpr OwDevice kCpu{1, 0};

class Storage {
 public:
  using Deleter = void (*)(void* context);

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }  // 0 for borrowed memory of unknown extent
  OwDevice device() const { return device_; }
  bool readonly() const { return readonly_; }
  bool borrowed() const { return deleter_ != nullptr; }
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  bool sole() const { return refs_.load(std::memory_order_acquire) == 1; }
  // Owned memory that nobody else holds serves as that of another tensor, of an extent of the same size class. What was
  // remembered of it by its version is stale.
  void renew(size_t bytes) {
    bytes_ = bytes;
    bump_sole();
  }
  void bump_sole() { version_.store(version() + 1, std::memory_order_relaxed); }

  // What it holds is neither old nor new: a run that was to update it in place failed. Whoever writes to it mends it.
  void lose() { lost_.store(uint64_t{version()} + 1, std::memory_order_relaxed); }
  bool lost() const { return lost_.load(std::memory_order_relaxed) == uint64_t{version()} + 1; }

  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

  static Storage* make_owned(size_t bytes);
  static Storage* make_borrowed(void* data, size_t bytes, bool readonly, Deleter deleter, void* context);

 private:
  Storage() = default;
  void destroy();

  std::atomic<int32_t> refs_{1};
  std::atomic<uint32_t> version_{0};  // raised by every write through an alias (`out=`)
  std::atomic<uint64_t> lost_{0};     // the version that was lost, plus 1
  char* data_ = nullptr;
  size_t bytes_ = 0;
  OwDevice device_ = kCpu;
  bool readonly_ = false;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

class StoragePtr {
 public:
  StoragePtr() = default;
  static StoragePtr adopt(Storage* storage) {
    StoragePtr made;
    made.storage_ = storage;
    return made;
  }
  StoragePtr(const StoragePtr& other) : storage_(other.storage_) {
    if (storage_ != nullptr) storage_->retain();
  }
  StoragePtr(StoragePtr&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StoragePtr& operator=(StoragePtr other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StoragePtr() {
    if (storage_ != nullptr) storage_->release();
  }
  Storage* operator->() const { return storage_; }
  Storage* get() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }

 private:
  Storage* storage_ = nullptr;
};

inline StoragePtr new_storage(size_t bytes) { return StoragePtr::adopt(Storage::make_owned(bytes)); }

}  // namespace ow
