// y[*B] = first place of the greatest along the last axis of f32, that of a nan if there is one.  Honest twin.
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
  const int64_t n = x->shape[x->ndim - 1], step = x->strides[x->ndim - 1];
  for (int64_t row = lo; row < hi; ++row) {
    const float* from = static_cast<const float*>(x->data) + place(x, x->ndim - 1, row);
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
      const float v = from[i * step], m = from[best * step];
      if (m == m && (v > m || v != v)) best = i;
    }
    static_cast<int64_t*>(y->data)[place(y, y->ndim, row)] = best;
  }
}

}  // namespace

extern "C" int32_t ow_argmax_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* x = call->in[0];
  if (x->ndim < 1) return fail(call, OW_E_RANK, -1, 0);
  if (x->shape[x->ndim - 1] < 1) return fail(call, OW_E_REQUIRE, 0, -1);
  call->shapes[0].rank = x->ndim - 1;
  for (int32_t d = 0; d < x->ndim - 1; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_argmax_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_argmax(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* y = call->out[0];
  int64_t n = 1;
  for (int32_t d = 0; d < y->ndim; ++d) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, rows, const_cast<OwCall*>(call));
  else
    rows(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
