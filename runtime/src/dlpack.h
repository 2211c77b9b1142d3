// The managed structs of DLPack (1.0 and before), layout only: what travels in a "dltensor" capsule.
// May include: abi.h.
#pragma once
#include "opwright/abi.h"

namespace ow {

struct ManagedTensor {
  OwTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct ManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  uint64_t flags;
  OwTensor tensor;
};

inline constexpr uint64_t kReadOnly = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY

}  // namespace ow
