// SmallVec: a vector of trivially copyable items whose first N live inline, so that a call needs no heap.
// May include: the standard library only.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

namespace ow {

template <class T, size_t N>
class SmallVec {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  SmallVec() = default;
  explicit SmallVec(size_t n, const T& value = T{}) { resize(n, value); }
  SmallVec(const T* first, const T* last) { append(first, last); }
  SmallVec(const SmallVec& other) { append(other.begin(), other.end()); }
  SmallVec(SmallVec&& other) noexcept { steal(other); }
  SmallVec& operator=(const SmallVec& other) {
    if (this != &other) {
      size_ = 0;
      append(other.begin(), other.end());
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& other) noexcept {
    if (this != &other) {
      release();
      steal(other);
    }
    return *this;
  }
  ~SmallVec() { release(); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  void clear() { size_ = 0; }
  void pop_back() { --size_; }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    size_t capacity = capacity_ * 2 > n ? capacity_ * 2 : n;
    T* grown = static_cast<T*>(std::malloc(capacity * sizeof(T)));
    if (grown == nullptr) throw std::bad_alloc();
    std::memcpy(static_cast<void*>(grown), data_, size_ * sizeof(T));
    if (data_ != inline_items()) std::free(data_);
    data_ = grown;
    capacity_ = capacity;
  }
  void push_back(const T& value) {
    T copy = value;  // value may live in this vector
    reserve(size_ + 1);
    data_[size_++] = copy;
  }
  void append(const T* first, const T* last) {
    size_t n = static_cast<size_t>(last - first);
    if (n == 0) return;
    reserve(size_ + n);
    std::memcpy(static_cast<void*>(data_ + size_), first, n * sizeof(T));
    size_ += n;
  }
  void resize(size_t n, const T& value = T{}) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data_[i] = value;
    size_ = n;
  }
  bool operator==(const SmallVec& other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  T* inline_items() { return reinterpret_cast<T*>(inline_); }
  void release() {
    if (data_ != inline_items()) std::free(data_);
  }
  void steal(SmallVec& other) {
    size_ = other.size_;
    if (other.data_ == other.inline_items()) {
      data_ = inline_items();
      capacity_ = N;
      std::memcpy(static_cast<void*>(data_), other.data_, size_ * sizeof(T));
    } else {
      data_ = other.data_;
      capacity_ = other.capacity_;
      other.data_ = other.inline_items();
      other.capacity_ = N;
    }
    other.size_ = 0;
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = reinterpret_cast<T*>(inline_);
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace ow
