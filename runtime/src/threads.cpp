// See threads.h.
#include "threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "error.h"

namespace ow {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

thread_local bool inside_parallel = false;

constexpr int kSpins = 2000;         // some microseconds: kernels follow each other closely
constexpr int kChunksPerThread = 4;  // enough to even out rows of unequal work

struct Job {
  std::atomic<int64_t> next{0}, done{0};
  int64_t n = 0, chunk = 0, chunks = 0;
  OwChunk fn = nullptr;
  void* context = nullptr;
  int refs = 0;  // guarded by the pool's mutex
};

void run_chunks(Job& job, int32_t thread) {
  for (;;) {
    int64_t c = job.next.fetch_add(1, std::memory_order_relaxed);
    if (c >= job.chunks) return;
    int64_t low = c * job.chunk;
    job.fn(job.context, low, std::min(job.n, low + job.chunk), thread);
    if (job.done.fetch_add(1, std::memory_order_acq_rel) + 1 == job.chunks) job.done.notify_all();
  }
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Job*> active;                // jobs that may have unclaimed chunks
  std::vector<std::unique_ptr<Job>> jobs;  // all ever made
  std::vector<Job*> idle;                  // those nobody refers to
  std::atomic<uint64_t> epoch{0};          // raised with every job
  std::atomic<int> wanted{1};              // threads, the caller included
  int started = 0;                         // workers alive (the mutex)
  int sleeping = 0;                        // workers in wait (the mutex)
};

void ThreadPool::run_worker(State* state, int id) {
  inside_parallel = true;
  uint64_t seen = state->epoch.load(std::memory_order_acquire);
  std::unique_lock lock(state->mutex);
  for (;;) {
    if (id >= state->wanted.load(std::memory_order_relaxed)) {
      --state->started;
      return;
    }
    Job* job = nullptr;
    for (Job* candidate : state->active) {
      if (candidate->next.load(std::memory_order_relaxed) < candidate->chunks) {
        job = candidate;
        break;
      }
    }
    if (job != nullptr) {
      ++job->refs;
      lock.unlock();
      run_chunks(*job, id);
      lock.lock();
      if (--job->refs == 0) state->idle.push_back(job);
      continue;
    }
    seen = state->epoch.load(std::memory_order_acquire);
    lock.unlock();
    bool fresh = false;
    for (int spin = 0; spin < kSpins && !fresh; ++spin) {
      relax();
      fresh = state->epoch.load(std::memory_order_acquire) != seen;
    }
    lock.lock();
    if (!fresh && state->epoch.load(std::memory_order_acquire) == seen) {
      ++state->sleeping;
      state->wake.wait(lock);
      --state->sleeping;
    }
  }
}

// The child of a fork has the data of the pool, but none of its threads.
void renew_after_fork() {
  ThreadPool& pool = ThreadPool::instance();
  auto* fresh = new ThreadPool::State;
  fresh->wanted.store(pool.state_->wanted.load());
  pool.state_ = fresh;  // the old state is left behind: its mutex may be held for ever
  inside_parallel = false;
}

ThreadPool::ThreadPool() : state_(new State) { state_->wanted.store(default_threads()); }

ThreadPool& ThreadPool::instance() {
  static ThreadPool* pool = [] {  // never destroyed: workers may still sleep in it at exit
    auto* made = new ThreadPool;
    pthread_atfork(nullptr, nullptr, renew_after_fork);
    return made;
  }();
  return *pool;
}

int ThreadPool::default_threads() {
  if (const char* text = std::getenv("OPWRIGHT_NUM_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    long n = std::strtol(text, &end, 10);
    if (*end != '\0' || n < 1 || n > 4096)
      fail(ErrorKind::Value, "OPWRIGHT_NUM_THREADS must be a whole number from 1 to 4096, got '", text, "'");
    return static_cast<int>(n);
  }
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {  // a container's share of the machine
    long long quota = 0, period = 0;
    if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
      cores = std::clamp(static_cast<int>((quota + period - 1) / period), 1, cores);
    std::fclose(file);
  }
  return cores;
}

int ThreadPool::threads() const { return state_->wanted.load(std::memory_order_relaxed); }

void ThreadPool::set_threads(int n) {
  if (n < 1 || n > 4096) fail(ErrorKind::Value, "the number of threads must be from 1 to 4096, got ", n);
  std::unique_lock lock(state_->mutex);
  state_->wanted.store(n);
  state_->epoch.fetch_add(1);
  state_->wake.notify_all();
  while (state_->started > n - 1) {  // ids are reused: those who leave must have left
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, OwChunk fn, void* context) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  int threads = this->threads();
  if (n <= grain || threads == 1 || inside_parallel) {
    fn(context, 0, n, 0);
    return;
  }
  State& s = *state_;
  int64_t even = (n + threads * kChunksPerThread - 1) / (threads * kChunksPerThread);
  int64_t chunk = std::max(grain, even);
  Job* job;
  {
    std::lock_guard lock(s.mutex);
    while (s.started < threads - 1) {
      std::thread(run_worker, &s, s.started + 1).detach();
      ++s.started;
    }
    if (s.idle.empty()) {
      s.jobs.push_back(std::make_unique<Job>());
      s.idle.push_back(s.jobs.back().get());
      s.idle.reserve(s.jobs.size());
    }
    job = s.idle.back();
    s.idle.pop_back();
    job->n = n;
    job->chunk = chunk;
    job->chunks = (n + chunk - 1) / chunk;
    job->fn = fn;
    job->context = context;
    job->done.store(0, std::memory_order_relaxed);
    job->next.store(0, std::memory_order_relaxed);
    job->refs = 1;
    s.active.push_back(job);
    s.epoch.fetch_add(1, std::memory_order_release);
    int64_t helpers = std::min<int64_t>(job->chunks - 1, s.sleeping);
    for (int64_t k = 0; k < helpers; ++k) s.wake.notify_one();
  }
  inside_parallel = true;
  run_chunks(*job, 0);
  inside_parallel = false;
  for (int spin = 0; spin < kSpins && job->done.load(std::memory_order_acquire) != job->chunks; ++spin) relax();
  for (int64_t done; (done = job->done.load(std::memory_order_acquire)) != job->chunks;) job->done.wait(done);
  std::lock_guard lock(s.mutex);
  s.active.erase(std::find(s.active.begin(), s.active.end(), job));
  if (--job->refs == 0) s.idle.push_back(job);
}

void ThreadPool::entry(void* pool, int64_t n, int64_t grain, OwChunk fn, void* context) {
  static_cast<ThreadPool*>(pool)->parallel_for(n, grain, fn, context);
}

}  // namespace ow
