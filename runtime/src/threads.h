// The thread pool behind OwParallelFor. Chunks are claimed from one atomic counter; the caller works too, and waits
// only for threads that have claimed a chunk, never for one that has yet to wake up.
// May include: abi.h. Thread count: $OPWRIGHT_NUM_THREADS, else the cores that this process may use.
#pragma once
#include <cstdint>

#include "opwright/abi.h"

namespace ow {

class ThreadPool {
 public:
  static ThreadPool& instance();

  int threads() const;
  void set_threads(int n);  // not while a kernel runs

  // fn(context, low, high, thread) over chunks of [0, n). At or below the grain, and inside another parallel_for,
  // everything runs on the calling thread as thread 0. Several threads may call at once.
  void parallel_for(int64_t n, int64_t grain, OwChunk fn, void* context);
  static void entry(void* pool, int64_t n, int64_t grain, OwChunk fn, void* context);  // an OwParallelFor

  static int default_threads();  // throws Error on a bad $OPWRIGHT_NUM_THREADS

 private:
  ThreadPool();
  struct State;
  static void run_worker(State* state, int id);
  State* state_;
  friend void renew_after_fork();
};

}  // namespace ow
