// See storage.h.
#include "storage.h"

#include <memory>

#include "allocator.h"

namespace ow {

Storage* Storage::make_owned(size_t bytes) {
  std::unique_ptr<Storage> made(new Storage);
  made->data_ = static_cast<char*>(allocate(bytes));
  made->bytes_ = bytes;
  return made.release();
}

Storage* Storage::make_borrowed(void* data, size_t bytes, bool readonly, Deleter deleter, void* context) {
  Storage* made = new Storage;
  made->data_ = static_cast<char*>(data);
  made->bytes_ = bytes;
  made->readonly_ = readonly;
  made->deleter_ = deleter;
  made->context_ = context;
  return made;
}

void Storage::destroy() {
  if (deleter_ != nullptr) {
    deleter_(context_);
  } else {
    deallocate(data_, bytes_);
  }
  delete this;
}

}  // namespace ow
