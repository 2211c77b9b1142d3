"""What this machine's memory gives one thread at most, measured now: reading, and copying past the cache (GB/s).

Built once by the toolchain, run in a process of its own, pinned as the sides are.  May import: runtime.toolchain.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ...errors import OpwrightError

__all__ = ["memory_limits"]

_TEXT = r"""
#if defined(__x86_64__)
#include <emmintrin.h>
#define STREAM(to, v) _mm_stream_si128((__m128i*)(to), *(const __m128i*)(v))
#define FENCE() _mm_sfence()
#else
#define STREAM(to, v) __builtin_memcpy((to), (v), 16)
#define FENCE()
#endif
typedef unsigned long long u64x8 __attribute__((vector_size(64)));
extern "C" void ow_copy(char* to, const char* from, long bytes) {
  for (long k = 0; k < bytes; k += 64)
    for (long j = 0; j < 64; j += 16) STREAM(to + k + j, from + k + j);
  FENCE();
}
extern "C" unsigned long long ow_read(const char* from, long bytes) {
  u64x8 a = {}, b = {}, c = {}, d = {};
  for (long k = 0; k < bytes; k += 256) {
    __builtin_prefetch(from + k + 2048);
    a ^= *(const u64x8*)(from + k);
    b ^= *(const u64x8*)(from + k + 64);
    c ^= *(const u64x8*)(from + k + 128);
    d ^= *(const u64x8*)(from + k + 192);
  }
  a ^= b ^ c ^ d;
  unsigned long long x = 0;
  for (int j = 0; j < 8; j++) x ^= a[j];
  return x;
}
"""
#: Larger than caches are shared out to one of many tenants.
_BYTES = 64 << 20
_ROUNDS = 12


def memory_limits(cpus: Sequence[int]) -> dict[str, float]:
    """`{"read": GB/s, "copy": GB/s}`, the latter counting what is read and what is written; empty where it cannot be
    measured."""
    from ... import toolchain

    try:
        library = toolchain.compile_library({"limits.cpp": _TEXT}, name="limits")
    except OpwrightError:
        return {}
    words = [sys.executable, "-c", _CHILD, str(library), ",".join(map(str, cpus))]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        read, copy = map(float, ran.stdout.split())
    except ValueError:
        return {}
    return {"read": read, "copy": copy}


_CHILD = f"""
import ctypes, os, sys, time
cpus = [int(c) for c in sys.argv[2].split(",") if c]
if cpus:
    os.sched_setaffinity(0, cpus)
lib = ctypes.CDLL(sys.argv[1])
n = {_BYTES}
def block():
    raw = ctypes.create_string_buffer(n + 64)
    ctypes.memset(raw, 1, n + 64)
    return raw, (ctypes.addressof(raw) + 63) // 64 * 64
a, x = block()
b, y = block()
lib.ow_read.argtypes = [ctypes.c_void_p, ctypes.c_long]
lib.ow_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
def best(f):
    took = []
    for _ in range({_ROUNDS}):
        begun = time.process_time()
        f()
        took.append(time.process_time() - begun)
    return sorted(took)[len(took) // 4]
print(n / best(lambda: lib.ow_read(x, n)) / 1e9, 2 * n / best(lambda: lib.ow_copy(y, x, n)) / 1e9)
"""
