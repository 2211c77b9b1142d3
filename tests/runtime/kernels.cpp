// Kernels written by hand after abi.h, so that the runtime is tested without the generator.
// Each shows one thing: strides, an axis, a list, a data-dependent extent, workspace, threads, every status.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "opwright/abi.h"

namespace {

int32_t give_up(const OwCall* c, int32_t code, int32_t which, int32_t arg, int32_t axis, int64_t want, int64_t got) {
  *c->error = OwError{code, which, arg, axis, want, got};
  return code;
}

// Broadcasts two shapes; 0 or a status.
int32_t join(const OwCall* c, OwShape* out) {
  const OwTensor &a = *c->in[0], &b = *c->in[1];
  out->rank = a.ndim > b.ndim ? a.ndim : b.ndim;
  for (int k = 0; k < out->rank; ++k) {
    int i = k - (out->rank - a.ndim), j = k - (out->rank - b.ndim);
    int64_t x = i < 0 ? 1 : a.shape[i], y = j < 0 ? 1 : b.shape[j];
    if (x != y && x != 1 && y != 1) return give_up(c, OW_E_SHAPE, -1, 1, j, x, y);
    out->dim[k] = x == 1 ? y : x;
  }
  return OW_OK;
}

int64_t step(const OwTensor& t, int rank, int k) {
  int at = k - (rank - t.ndim);
  return at < 0 || t.shape[at] == 1 ? 0 : t.strides[at];
}

template <class T>
int32_t add(const OwCall* c) {
  const OwTensor &a = *c->in[0], &b = *c->in[1], &y = *c->out[0];
  double alpha = c->attr[0].f[0];
  int64_t n = 1, index[OW_MAX_RANK] = {};
  for (int k = 0; k < y.ndim; ++k) n *= y.shape[k];
  const T *pa = static_cast<const T*>(a.data), *pb = static_cast<const T*>(b.data);
  T* py = static_cast<T*>(y.data);
  for (int64_t e = 0; e < n; ++e) {
    *py = static_cast<T>(*pa + static_cast<T>(alpha) * *pb);
    for (int k = y.ndim - 1; k >= 0; --k) {
      pa += step(a, y.ndim, k);
      pb += step(b, y.ndim, k);
      py += y.strides[k];
      if (++index[k] < y.shape[k]) break;
      pa -= step(a, y.ndim, k) * y.shape[k];
      pb -= step(b, y.ndim, k) * y.shape[k];
      py -= y.strides[k] * y.shape[k];
      index[k] = 0;
    }
  }
  return OW_OK;
}

struct Rows {
  const OwCall* call;
  int axis;
};

// Row softmax along any axis, rows shared out among threads.
void softmax_rows(void* context, int64_t low, int64_t high, int32_t) {
  auto* rows = static_cast<Rows*>(context);
  const OwTensor &x = *rows->call->in[0], &y = *rows->call->out[0];
  int64_t n = x.shape[rows->axis], xs = x.strides[rows->axis], ys = y.strides[rows->axis];
  for (int64_t row = low; row < high; ++row) {
    int64_t rest = row, xo = 0, yo = 0;
    for (int k = x.ndim - 1; k >= 0; --k) {
      if (k == rows->axis) continue;
      xo += rest % x.shape[k] * x.strides[k];
      yo += rest % x.shape[k] * y.strides[k];
      rest /= x.shape[k];
    }
    const float* px = static_cast<const float*>(x.data) + xo;
    float* py = static_cast<float*>(y.data) + yo;
    float m = -INFINITY, s = 0;
    for (int64_t i = 0; i < n; ++i) m = px[i * xs] > m ? px[i * xs] : m;
    for (int64_t i = 0; i < n; ++i) s += std::exp(px[i * xs] - m);
    for (int64_t i = 0; i < n; ++i) py[i * ys] = std::exp(px[i * xs] - m) / s;
  }
}

void copy_shape(OwShape* out, const OwTensor& t) {
  out->rank = t.ndim;
  std::memcpy(out->dim, t.shape, sizeof(int64_t) * static_cast<size_t>(t.ndim));
}

struct Order {
  int32_t* thread;
  int64_t* count;
};

}  // namespace

#define NO_WORKSPACE(name) \
  extern "C" int64_t name##_workspace(const OwCall*) { return 0; }

#define ADD(name, type)                                                               \
  extern "C" int32_t name(const OwCall* c) { return add<type>(c); }                   \
  extern "C" int32_t name##_infer(const OwCall* c) { return join(c, &c->shapes[0]); } \
  NO_WORKSPACE(name)
ADD(ow_add_f32, float)
ADD(ow_add_f64, double)
ADD(ow_add_i64, int64_t)

// softmax(x, axis) -> y, rows (aux: how many rows)
extern "C" int32_t ow_softmax_infer(const OwCall* c) {
  const OwTensor& x = *c->in[0];
  if (x.ndim < 1) return give_up(c, OW_E_RANK, -1, 0, -1, 1, x.ndim);
  int64_t axis = c->attr[0].i[0];
  if (axis < -x.ndim || axis >= x.ndim) return give_up(c, OW_E_AXIS, -1, 0, -1, x.ndim, axis);
  copy_shape(&c->shapes[0], x);
  c->shapes[1].rank = 0;
  return OW_OK;
}
extern "C" int32_t ow_softmax(const OwCall* c) {
  const OwTensor& x = *c->in[0];
  int64_t axis = c->attr[0].i[0], rows = 1;
  Rows context{c, static_cast<int>(axis < 0 ? axis + x.ndim : axis)};
  for (int k = 0; k < x.ndim; ++k)
    if (k != context.axis) rows *= x.shape[k];
  *static_cast<int64_t*>(c->out[1]->data) = rows;
  c->parallel(c->pool, rows, 1, softmax_rows, &context);
  return OW_OK;
}
NO_WORKSPACE(ow_softmax)

// cat(xs) -> y: along axis 0, dense f32 inputs
extern "C" int32_t ow_cat_infer(const OwCall* c) {
  if (c->list_len[0] < 1) return give_up(c, OW_E_REQUIRE, 0, -1, -1, 0, 0);
  copy_shape(&c->shapes[0], *c->in[0]);
  for (int k = 1; k < c->list_len[0]; ++k) {
    const OwTensor& x = *c->in[k];
    if (x.ndim != c->in[0]->ndim) return give_up(c, OW_E_RANK, -1, k, -1, c->in[0]->ndim, x.ndim);
    for (int j = 1; j < x.ndim; ++j)
      if (x.shape[j] != c->in[0]->shape[j]) return give_up(c, OW_E_SHAPE, -1, k, j, c->in[0]->shape[j], x.shape[j]);
    c->shapes[0].dim[0] += x.shape[0];
  }
  return OW_OK;
}
extern "C" int32_t ow_cat(const OwCall* c) {
  char* to = static_cast<char*>(c->out[0]->data);
  for (int k = 0; k < c->list_len[0]; ++k) {
    size_t bytes = sizeof(float);
    for (int j = 0; j < c->in[k]->ndim; ++j) bytes *= static_cast<size_t>(c->in[k]->shape[j]);
    std::memcpy(to, c->in[k]->data, bytes);
    to += bytes;
  }
  return OW_OK;
}
NO_WORKSPACE(ow_cat)

// nonzero(x) -> y: the positions of a dense vector's elements that are not zero; the extent depends on the data
extern "C" int32_t ow_nonzero_infer(const OwCall* c) {
  int64_t n = 0;
  for (int64_t k = 0; k < c->in[0]->shape[0]; ++k) n += static_cast<const float*>(c->in[0]->data)[k] != 0;
  c->shapes[0].rank = 1;
  c->shapes[0].dim[0] = n;
  return OW_OK;
}
extern "C" int32_t ow_nonzero(const OwCall* c) {
  int64_t* to = static_cast<int64_t*>(c->out[0]->data);
  for (int64_t k = 0; k < c->in[0]->shape[0]; ++k)
    if (static_cast<const float*>(c->in[0]->data)[k] != 0) *to++ = k;
  return OW_OK;
}
NO_WORKSPACE(ow_nonzero)

// take(x, i) -> y: rows of a dense matrix; an index out of range is found at run time
extern "C" int32_t ow_take_infer(const OwCall* c) {
  c->shapes[0].rank = 2;
  c->shapes[0].dim[0] = c->in[1]->shape[0];
  c->shapes[0].dim[1] = c->in[0]->shape[1];
  return OW_OK;
}
extern "C" int32_t ow_take(const OwCall* c) {
  int64_t width = c->in[0]->shape[1];
  for (int64_t k = 0; k < c->in[1]->shape[0]; ++k) {
    int64_t at = static_cast<const int64_t*>(c->in[1]->data)[k];
    if (at < 0 || at >= c->in[0]->shape[0]) return give_up(c, OW_E_INDEX, 0, 1, -1, c->in[0]->shape[0], at);
    std::memcpy(static_cast<float*>(c->out[0]->data) + k * width,
                static_cast<const float*>(c->in[0]->data) + at * width, sizeof(float) * static_cast<size_t>(width));
  }
  return OW_OK;
}
NO_WORKSPACE(ow_take)

// reverse(x) -> y through workspace: twice the input's bytes; says so when it gets less
extern "C" int32_t ow_reverse_infer(const OwCall* c) {
  copy_shape(&c->shapes[0], *c->in[0]);
  return OW_OK;
}
extern "C" int64_t ow_reverse_workspace(const OwCall* c) { return 8 * c->in[0]->shape[0]; }
extern "C" int32_t ow_reverse(const OwCall* c) {
  int64_t n = c->in[0]->shape[0], step = c->in[0]->strides[0];
  if (c->workspace_bytes < 8 * n) return give_up(c, OW_E_WORKSPACE, -1, -1, -1, 8 * n, c->workspace_bytes);
  if (reinterpret_cast<uintptr_t>(c->workspace) % 64 != 0) return OW_E_WORKSPACE;
  float* scratch = static_cast<float*>(c->workspace);
  for (int64_t k = 0; k < n; ++k) scratch[k] = static_cast<const float*>(c->in[0]->data)[(n - 1 - k) * step];
  for (int64_t k = 0; k < n; ++k) static_cast<float*>(c->out[0]->data)[k * c->out[0]->strides[0]] = scratch[k];
  return OW_OK;
}

// flags() -> y: what the call was told: flags, max_threads, abi, presence of the optional input
extern "C" int32_t ow_told_infer(const OwCall* c) {
  copy_shape(&c->shapes[0], *c->in[0]);
  return OW_OK;
}
extern "C" int32_t ow_told(const OwCall* c) {
  float* y = static_cast<float*>(c->out[0]->data);
  const int32_t flags = c->flags & 0x3fffffff;  // without what it says of the machine (OW_TILES of pairs.h)
  if (flags == 0)
    for (int64_t k = 0; k < c->out[0]->shape[0]; ++k) y[k] = -1;
  y[0] = static_cast<float>(flags);
  y[1] = static_cast<float>(c->max_threads);
  y[2] = static_cast<float>(c->abi);
  y[3] = c->in[1] != nullptr;
  y[4] = static_cast<float>(c->attr[0].count);
  return OW_OK;
}
NO_WORKSPACE(ow_told)

// status(x, code, arg, axis, want, got): infer passes, the run gives back `code` and the rest as its error
extern "C" int32_t ow_status_infer(const OwCall* c) {
  copy_shape(&c->shapes[0], *c->in[0]);
  return OW_OK;
}
extern "C" int32_t ow_status(const OwCall* c) {
  // Another op's row may stand for this kernel, with attributes of its own.
  auto attr = [&](int k) { return k == 0 || c->n_attr == 5 ? static_cast<int32_t>(c->attr[k].i[0]) : 0; };
  return give_up(c, attr(0), 0, attr(1), attr(2), attr(3), attr(4));
}
NO_WORKSPACE(ow_status)

// wait(x) -> y: returns once another thread of the process has made the first element of x something else than 0
extern "C" int32_t ow_wait_infer(const OwCall* c) {
  copy_shape(&c->shapes[0], *c->in[0]);
  return OW_OK;
}
extern "C" int32_t ow_wait(const OwCall* c) {
  const volatile float* first = static_cast<const float*>(c->in[0]->data);
  for (int k = 0; k < 20000; ++k) {
    if (*first != 0) return OW_OK;
    timespec millisecond{0, 1000000};
    nanosleep(&millisecond, nullptr);
  }
  return give_up(c, OW_E_DATA, 0, 0, -1, 0, 0);
}
NO_WORKSPACE(ow_wait)

// What the pool does, for test_threads: who[i] = thread that ran i, counts[i] += 1.
extern "C" void probe_chunk(void* context, int64_t low, int64_t high, int32_t thread) {
  auto* order = static_cast<Order*>(context);
  for (int64_t k = low; k < high; ++k) {
    order->thread[k] = thread;
    order->count[k] += 1;
    volatile double work = 0;
    for (int j = 0; j < 2000; ++j) work = work + std::sqrt(static_cast<double>(j));
  }
}
