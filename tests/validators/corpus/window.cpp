// y[*B, o] = greatest of x[*B, 2 * o + k - 1], k < 3, of f32, within x; nan if any is.  Honest twin.
#include "opwright/abi.h"

namespace {

int64_t place(const OwTensor* t, int32_t ndim, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = ndim - 1; d >= 0; --d) {
    offset += at % t->shape[d] * t->strides[d];
    at /= t->shape[d];
  }
  return offset;
}

int32_t fail(const OwCall* call, int32_t code, int32_t which, int32_t arg) {
  call->error->code = code;
  call->error->which = which;
  call->error->arg = arg;
  return code;
}

void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  const OwTensor *x = call->in[0], *y = call->out[0];
  const int64_t n = x->shape[x->ndim - 1], step = x->strides[x->ndim - 1], many = y->shape[y->ndim - 1];
  for (int64_t row = lo; row < hi; ++row) {
    const float* from = static_cast<const float*>(x->data) + place(x, x->ndim - 1, row);
    float* to = static_cast<float*>(y->data) + place(y, y->ndim - 1, row);
    for (int64_t o = 0; o < many; ++o) {
      float m = -__builtin_inff();
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t i = 2 * o + k - 1;
        if (i < 0 || i >= n) continue;
        const float v = from[i * step];
        if (v > m || v != v) m = v;
        if (m != m) break;
      }
      to[o * y->strides[y->ndim - 1]] = m;
    }
  }
}

}  // namespace

extern "C" int32_t ow_window_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* x = call->in[0];
  if (x->ndim < 1) return fail(call, OW_E_RANK, -1, 0);
  if (x->shape[x->ndim - 1] < 1) return fail(call, OW_E_REQUIRE, 0, -1);
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) call->shapes[0].dim[d] = x->shape[d];
  call->shapes[0].dim[x->ndim - 1] = (x->shape[x->ndim - 1] - 1) / 2 + 1;
  return OW_OK;
}

extern "C" int64_t ow_window_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_window(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* y = call->out[0];
  int64_t n = 1;
  for (int32_t d = 0; d < y->ndim - 1; ++d) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, rows, const_cast<OwCall*>(call));
  else
    rows(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
