// What test_sanitizers.py runs under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer: the core without
// Python, from several threads and on damaged files.
//
//   driver FOLDER ROUNDS            FOLDER: a program with kernels, as test_sanitizers.py writes it
//   driver 'write past the end' 0   a fault that must be seen; so 'read after'
//
// May include: the core's headers. To add a scenario: a function, and a line in run_all().
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator.h"
#include "opwright/program.h"
#include "program.h"
#include "safetensors.h"
#include "table.h"
#include "threads.h"

namespace {

#define CHECK(what)                                                              \
  do {                                                                           \
    if (!(what)) {                                                               \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

void on_threads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int k = 0; k < n; ++k) threads.emplace_back(work, k);
  for (std::thread& t : threads) t.join();
}

void* take_pages(void*, size_t bytes, size_t alignment) { return std::aligned_alloc(alignment, bytes); }
void give_pages(void*, void* data, size_t) { std::free(data); }

// Threads take, write, read and give back; one looks on and empties the cache.
void allocator(int rounds) {
  ow::CachingAllocator own({take_pages, give_pages, nullptr}, int64_t{256} << 20);
  std::atomic<bool> done{false};
  std::thread looks([&] {
    while (!done) {
      ow::MemorySnapshot shot = own.snapshot();
      for (const auto& segment : shot.segments) {
        int64_t at = 0;
        for (const auto& block : segment.blocks) {
          CHECK(block.offset == at);
          at += block.size;
        }
        CHECK(at == segment.bytes);
      }
      own.empty_cache();
      std::this_thread::yield();
    }
  });
  on_threads(3, [&](int id) {
    std::mt19937 random(static_cast<unsigned>(id));
    int pool = id == 2 ? own.make_pool("third") : 0;
    std::vector<std::pair<unsigned char*, size_t>> held;
    for (int k = 0; k < rounds * 20; ++k) {
      size_t bytes = random() % (random() % 10 == 0 ? 3000000 : 3000);
      auto* data = static_cast<unsigned char*>(own.allocate(bytes, pool, "driver"));
      CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
      std::memset(data, id + 1, bytes);
      held.emplace_back(data, bytes);
      if (held.size() < 6) continue;
      auto [gone, size] = held[random() % held.size()];
      std::erase_if(held, [&, at = gone](const auto& item) { return item.first == at; });
      for (size_t j = 0; j < size; j += 61) CHECK(gone[j] == id + 1);
      own.deallocate(gone);
    }
    for (auto [data, bytes] : held) own.deallocate(data);
    if (pool != 0) own.drop_pool(pool);
  });
  done = true;
  looks.join();
  CHECK(own.stats().allocated == 0);
  try {
    own.allocate(size_t{1} << 40);
    CHECK(false);
  } catch (const ow::Error& error) {
    CHECK(error.kind() == ow::ErrorKind::Memory);
  }
}

void thread_pool(int rounds) {
  ow::ThreadPool& pool = ow::ThreadPool::instance();
  for (int threads : {1, 3}) {
    pool.set_threads(threads);
    on_threads(3, [&](int) {
      for (int k = 0; k < rounds; ++k) {
        std::vector<int> seen(1000, 0);
        pool.parallel_for(
            1000, 10,
            [](void* context, int64_t low, int64_t high, int32_t) {
              for (int64_t j = low; j < high; ++j) ++(*static_cast<std::vector<int>*>(context))[static_cast<size_t>(j)];
            },
            &seen);
        for (int n : seen) CHECK(n == 1);
      }
    });
  }
  pool.set_threads(2);
}

// y = 2 * (x + w + 1), from several threads at several sizes, through the host API.
void programs(const std::string& folder, int rounds) {
  opwright::Program program(folder);
  on_threads(3, [&](int id) {
    std::mt19937 random(static_cast<unsigned>(id));
    for (int k = 0; k < rounds; ++k) {
      int64_t rows = 1 + static_cast<int64_t>(random() % 20);
      std::vector<float> x(static_cast<size_t>(rows * 4));
      for (float& v : x) v = static_cast<float>(random() % 100);
      opwright::Tensors out = program.run({{"x", opwright::Tensor::over(x.data(), {rows, 4})}});
      const float w[] = {1, -1, 0.5f, 2};
      const float* y = out.at("y").data<float>();
      for (size_t j = 0; j < x.size(); ++j) CHECK(y[j] == 2 * (x[j] + w[j % 4] + 1));
      try {
        program.run({{"x", opwright::Tensor(OwDType{2, 32, 1}, {rows, 5})}});
        CHECK(false);
      } catch (const opwright::Error& error) {
        CHECK(error.kind() == OPWRIGHT_VALUE && std::string(error.what()).find("input 'x'") != std::string::npos);
      }
    }
  });
  opwright::Kernels kernels(folder + "/kernels");
  on_threads(3, [&](int) {
    for (int k = 0; k < rounds; ++k) {
      opwright::Tensor a = opwright::Tensor::of<float>({1, 2, 3}, {3});
      CHECK(kernels.call("add", {a, a}, R"({"alpha": 2})")[0].data<float>()[2] == 9);
    }
  });
}

// c becomes c + x where it lies; each thread has a state of its own, and all fight for one.
void states(const std::string& folder, int rounds) {
  opwright::Program program(folder + "/state");
  std::vector<float> shared(4, 0);
  std::atomic<int> updated{0}, refused{0};
  on_threads(3, [&](int) {
    std::vector<float> own(4, 0), x(4, 1);
    opwright::Tensor one = opwright::Tensor::over(x.data(), {4});
    for (int k = 0; k < rounds; ++k) {
      program.run({{"c", opwright::Tensor::over(own.data(), {4})}, {"x", one}});
      CHECK(own[3] == static_cast<float>(k + 1));
      try {
        program.run({{"c", opwright::Tensor::over(shared.data(), {4})}, {"x", one}});
        ++updated;
      } catch (const opwright::Error& error) {
        CHECK(std::string(error.what()).find("another run in progress updates") != std::string::npos);
        ++refused;
      }
    }
  });
  CHECK(updated + refused == 3 * rounds && shared[0] == static_cast<float>(updated.load()));
}

std::atomic<int> taken{0};

// Limits and a backend through the host API.
void memory() {
  CHECK(opwright_memory_set_backend(take_pages, nullptr, nullptr) == OPWRIGHT_VALUE);
  auto count = [](void*, size_t bytes, size_t alignment) {
    ++taken;
    return std::aligned_alloc(alignment, bytes);
  };
  CHECK(opwright_memory_set_backend(count, give_pages, nullptr) == OPWRIGHT_OK);
  {
    opwright::Tensor large(OwDType{1, 8, 1}, {int64_t{9} << 20});
    CHECK(taken == 1);
  }
  CHECK(opwright_memory_set_backend(nullptr, nullptr, nullptr) == OPWRIGHT_OK);
  opwright_memory_empty_cache();
  CHECK(opwright_memory_set_limit(-1) == OPWRIGHT_VALUE);
  CHECK(opwright_memory_set_limit(opwright_memory_reserved() + (int64_t{64} << 20)) == OPWRIGHT_OK);
  try {
    opwright::Tensor(OwDType{1, 8, 1}, {int64_t{65} << 20});
    CHECK(false);
  } catch (const opwright::Error& error) {
    CHECK(error.kind() == OPWRIGHT_MEMORY && std::string(error.what()).find("65.0 MiB wanted") != std::string::npos);
  }
  CHECK(opwright_memory_set_limit(ow::total_memory()) == OPWRIGHT_OK);
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Files that were cut off, or have wrong bytes: an error, or a program that still runs; nothing else.
void damaged(const std::string& folder, int rounds) {
  std::string copy = folder + "/damaged";
  mkdir(copy.c_str(), 0700);
  mkdir((copy + "/kernels").c_str(), 0700);
  std::vector<std::string> names = {"program.json", "weights.safetensors", "kernels/kernels.json", "kernels/table.json"};
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(read(folder + '/' + name));
  std::mt19937 random(7);
  int loaded = 0, refused = 0;
  for (int k = 0; k < rounds * 12; ++k) {
    for (size_t j = 0; j < names.size(); ++j) {
      std::string text = texts[j];
      if (j == static_cast<size_t>(k) % names.size()) {
        switch (random() % 3) {
          case 0:
            text.resize(random() % text.size());
            break;
          case 1:
            text[random() % text.size()] = static_cast<char>(random());
            break;
          default: {  // a number becomes another one
            size_t at = text.find_first_of("0123456789", random() % text.size());
            if (at != std::string::npos) text.replace(at, 1, random() % 2 == 0 ? "9223372036854775807" : "-3");
          }
        }
      }
      write(copy + '/' + names[j], text);
    }
    try {
      auto table = ow::KernelTable::open(copy + "/kernels");
      auto program = ow::Program::load(copy, table);
      std::vector<ow::Tensor> inputs;
      int64_t sizes[] = {3, 4};
      for (const auto& port : program->inputs()) inputs.push_back(ow::zeros(sizes, 2, port.dtype));
      program->run(inputs);
      ++loaded;
    } catch (const ow::Error& error) {
      CHECK(!error.message().empty());
      ++refused;
    }
  }
  CHECK(refused > 0);
  std::printf("damaged: %d refused, %d ran\n", refused, loaded);
}

void tensors(const std::string& folder, int rounds) {
  for (int k = 0; k < rounds; ++k) {
    opwright::Tensors all;
    all.emplace("a \"b\"\n", opwright::Tensor::of<int64_t>({1, 2, 3, 4}, {2, 2}));
    all.emplace("c", opwright::Tensor::of<double>({}, {0, 3}));
    opwright::write_tensors(folder + "/t.safetensors", all);
    opwright::Tensors again = opwright::read_tensors(folder + "/t.safetensors");
    CHECK(again.size() == 2 && again.at("a \"b\"\n").data<int64_t>()[3] == 4 && again.at("c").extent(1) == 3);
  }
  ow::SafeTensors file = ow::SafeTensors::open(folder + "/t.safetensors");
  CHECK(!file.changed());
}

void run_all(const std::string& folder, int rounds) {
  allocator(rounds);
  thread_pool(rounds);
  programs(folder, rounds);
  states(folder, rounds);
  memory();
  tensors(folder, rounds);
  damaged(folder, rounds);
  ow::allocator_empty_cache();
  CHECK(ow::allocator_stats().allocated == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (argv[2][0] == '0') {
    auto* data = static_cast<volatile char*>(ow::allocate(100));
    if (std::strcmp(argv[1], "read after") != 0) data[100] = 1;
    ow::deallocate(const_cast<char*>(data), 100);
    return data[0];
  }
  try {
    run_all(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "not caught: %s\n", error.what());
    return 1;
  }
  std::puts("fine");
}
