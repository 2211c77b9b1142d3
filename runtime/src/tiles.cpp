// See tiles.h.
#include "tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ow {
namespace {

int32_t ask() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, of which state
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) == 0 || (d & kBf16) == 0) return 0;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0 ? 0x40000000 : 0;
#else
  return 0;
#endif
}

}  // namespace

int32_t tile_flag() {
  static const int32_t flag = ask();
  return flag;
}

}  // namespace ow
