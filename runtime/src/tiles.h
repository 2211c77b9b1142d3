// Whether kernels may use the processor's tiles (AMX), which Linux asks each process to ask for.
// May include: nothing of ours.
#pragma once
#include <cstdint>

namespace ow {

// What to put into OwCall.flags (OW_TILES of opwright/pairs.h); asks once. 0 where there are none, or they were refused.
int32_t tile_flag();

}  // namespace ow
