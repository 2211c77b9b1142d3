// The judge's own `parallel`: pieces as small as the grain allows, in an order that the judge chooses, on threads that
// begin at the same moment.  Built by the judge and loaded into the worker before any candidate.
//
// Note [Preemption]: pieces take microseconds, and a machine with one idle core runs them one after another, which
// hides every race.  So on demand each thread has a timer that interrupts it while it works; the piece is left half done
// until another thread has done a whole one.
//
// Note [Stack]: what a local variable holds before it is written is what some call before left there, mostly zeros.  So
// every run fills the stack that a kernel's locals will lie in with the byte that its outputs hold: two runs with two
// bytes give the same bits, or the kernel read what it never wrote.
//
// To add an order: a value of `order` here and its name in `child.py`.
#include <unistd.h>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "opwright/abi.h"

namespace {

constexpr int64_t kPieces = 64;

struct Job {
  OwChunk fn = nullptr;
  void* ctx = nullptr;
  int64_t n = 0, step = 1, count = 0;
  std::vector<int32_t> order;
  std::atomic<int64_t> next{0};
  std::atomic<int> ready{0};
  int threads = 1;
  bool preempt = false;
};

struct Pool {
  std::mutex mutex;
  std::condition_variable wake, done;
  Job job;
  uint64_t turn = 0;
  int waiting = 0, workers = 0;
  int threads = 1, order = 0;
  uint64_t seed = 0, calls = 0;
  bool preempt = false;
  int soil = 0;
};

Pool& pool() {
  static Pool* p = new Pool;  // never destroyed: its threads outlive main
  return *p;
}

// One timer a thread, made before the sandbox closes; it interrupts its own thread, once in a piece.
constexpr long kNap = 50000;              // ns
constexpr int kPauses = 12, kNaps = 100;  // of one call, of one pause

thread_local volatile sig_atomic_t in_piece = 0;
thread_local timer_t timer;
std::atomic<bool> paused{false};
std::atomic<int> pauses{0};

void arm(long delay) {
  itimerspec when = {{0, 0}, {0, delay}};
  timer_settime(timer, 0, &when, nullptr);
}

// Stop in the middle of a piece until another thread has done a whole one.  One thread at a time, or all would wait.
void interrupted(int) {
  if (!in_piece || paused.exchange(true)) return;
  pauses.fetch_add(1);
  Job& job = pool().job;
  const int64_t goal = job.next.load() + job.threads;
  for (int k = 0; k < kNaps && job.next.load() < goal && job.next.load() < job.count; ++k) {
    timespec nap = {0, kNap};
    nanosleep(&nap, nullptr);
  }
  paused = false;
}

void make_timer() {
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = gettid();
  timer_create(CLOCK_MONOTONIC, &event, &timer);
}

// See note [Stack].  Its frame begins where that of the kernel, called next from the same place, will.
constexpr int kStack = 1 << 17;
__attribute__((noinline)) void soil_stack(int byte) {
  volatile unsigned char room[kStack];
  for (int k = 0; k < kStack; ++k) room[k] = static_cast<unsigned char>(byte);
}

// Wait for the others, so that the first pieces really run at once.
void together(Job& job) {
  job.ready.fetch_add(1);
  for (int spins = 0; job.ready.load() < job.threads; ++spins)
    if (spins > 2000) std::this_thread::yield();
}

void drain(Job& job, int thread) {
  if (job.threads > 1) together(job);
  for (int64_t k; (k = job.next.fetch_add(1)) < job.count;) {
    const int64_t lo = job.order[static_cast<size_t>(k)] * job.step;
    const int64_t hi = lo + job.step < job.n ? lo + job.step : job.n;
    const bool stop = job.preempt && pauses.load() < kPauses;
    in_piece = 1;
    // Pieces last from under a microsecond to milliseconds: any delay is the right one for some.
    soil_stack(pool().soil);
    if (stop) arm(500L << ((k + thread) % 10));
    job.fn(job.ctx, lo, hi, thread);
    in_piece = 0;
    if (stop) arm(0);
  }
}

void serve(int thread) {
  make_timer();
  Pool& p = pool();
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(p.mutex);
      p.wake.wait(lock, [&] { return p.turn != seen; });
      seen = p.turn;
      if (thread >= p.job.threads) continue;
    }
    drain(p.job, thread);
    std::lock_guard lock(p.mutex);
    if (--p.waiting == 0) p.done.notify_one();
  }
}

}  // namespace

// Start `workers` threads; once in a process.
extern "C" void ow_pool_start(int32_t workers) {
  Pool& p = pool();
  struct sigaction action = {};
  action.sa_handler = interrupted;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  make_timer();
  for (int k = 1; k <= workers; ++k) std::thread(serve, k).detach();
  p.workers = workers;
}

// How the next calls are cut: order 0 forward, 1 reverse, 2 shuffled by `seed`; preempt, soil: see the
// notes above.
extern "C" void ow_pool_set(int32_t threads, int32_t order, uint64_t seed, int32_t preempt, int32_t soil) {
  Pool& p = pool();
  p.threads = threads <= p.workers + 1 ? threads : p.workers + 1;
  p.order = order;
  p.seed = seed;
  p.calls = 0;
  p.preempt = preempt != 0;
  p.soil = soil;
}

// Run a kernel on a stack that holds what `ow_pool_set` said.
extern "C" int32_t ow_pool_run(int32_t (*kernel)(const OwCall*), const OwCall* call) {
  soil_stack(pool().soil);
  return kernel(call);
}

// The `OwParallelFor`.
extern "C" void ow_pool_for(void*, int64_t n, int64_t grain, OwChunk fn, void* ctx) {
  if (n <= 0) return;
  Pool& p = pool();
  Job& job = p.job;
  {
    std::lock_guard lock(p.mutex);
    const int64_t least = (n + kPieces - 1) / kPieces;
    job.fn = fn;
    job.ctx = ctx;
    job.n = n;
    job.step = grain > least ? grain : least;
    job.count = (n + job.step - 1) / job.step;
    job.order.resize(static_cast<size_t>(job.count));
    for (int64_t k = 0; k < job.count; ++k)
      job.order[static_cast<size_t>(k)] = static_cast<int32_t>(p.order == 1 ? job.count - 1 - k : k);
    uint64_t state = p.seed * 0x9E3779B97F4A7C15u + ++p.calls;
    for (int64_t k = job.count - 1; p.order == 2 && k > 0; --k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(job.order[static_cast<size_t>(k)], job.order[static_cast<size_t>((state >> 33) % (k + 1))]);
    }
    job.threads = static_cast<int>(p.threads < job.count ? p.threads : job.count);
    job.next = 0;
    job.ready = 0;
    p.waiting = job.threads - 1;
    job.preempt = p.preempt && job.threads > 1;
    pauses = 0;
    if (job.threads > 1) ++p.turn;
  }
  if (job.threads > 1) p.wake.notify_all();
  drain(job, 0);
  std::unique_lock lock(p.mutex);
  p.done.wait(lock, [&] { return p.waiting == 0; });
}
