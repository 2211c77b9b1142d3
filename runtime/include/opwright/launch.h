/* What a CUDA launcher gives its caller: launches to make, in order, on the call's stream.
 *
 * A launcher <k> exports <k>_infer and <k>_workspace as abi.h has them, and
 *   int32_t <k>_plan(const OwCall*, OwkLaunch* out, int32_t capacity)
 * which checks the call and writes its launches; it returns their number, or -status.  The caller starts them
 * (cuLaunchKernel with `args` as the one parameter) and reads the OwError at the start of the workspace, which it sets to
 * zero before, at its next synchronisation.  Nothing here includes or needs CUDA.
 */
#ifndef OPWRIGHT_LAUNCH_H
#define OPWRIGHT_LAUNCH_H
#include "kernel.h"

#define OWK_DEVICE_AXES 8
#define OWK_MOST_BLOCKS 2048 /* of one nest that keeps rows in the workspace */
#define OWK_ERROR_BYTES 64

typedef struct {
  const char* kernel;
  uint32_t blocks, threads;
  uint32_t args_bytes;
  uint32_t pad;
  unsigned char args[4032];
} OwkLaunch;

/* OwkWalk of device.h: the same, with as many axes as a kernel's parameter can hold. */
template <int N>
struct OwkDeviceWalk {
  int32_t rank;
  int64_t total;
  int64_t dim[OWK_DEVICE_AXES];
  int64_t step[N][OWK_DEVICE_AXES];
};
template <int N>
static inline bool owk_to_device(const OwkWalk<N>& w, OwkDeviceWalk<N>& d) {
  if (w.rank > OWK_DEVICE_AXES) return false;
  d.rank = w.rank;
  d.total = w.total;
  for (int32_t l = 0; l < OWK_DEVICE_AXES; ++l) {
    d.dim[l] = l < w.rank ? w.dim[l] : 1;
    for (int k = 0; k < N; ++k) d.step[k][l] = l < w.rank ? w.step[k][l] : 0;
  }
  return true;
}
template <class A>
static inline void owk_launch(OwkLaunch& out, const char* kernel, int64_t blocks, int64_t threads, const A& args) {
  static_assert(sizeof(A) <= sizeof(out.args), "a kernel's parameter has at most 4 KB");
  out.kernel = kernel;
  out.blocks = (uint32_t)owk_most(1, blocks);
  out.threads = (uint32_t)threads;
  out.args_bytes = sizeof(A);
  out.pad = 0;
  __builtin_memcpy(out.args, &args, sizeof(A));
}
/* Threads for rows of `work` elements: whole warps, at most 256. */
static inline int64_t owk_row_threads(int64_t work) { return owk_least(256, owk_round_up(owk_most(1, work), 32)); }

#endif
