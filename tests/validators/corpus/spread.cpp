// y[*B] = variance of f64 along the last axis, in two passes of blocks.  Honest twin.
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
    const double* from = static_cast<const double*>(x->data) + place(x, x->ndim - 1, row);
    double sum = 0;
    for (int64_t block = 0; block < n; block += 32) {
      double part = 0;
      for (int64_t i = block; i < n && i < block + 32; ++i) part += from[i * step];
      sum += part;
    }
    const double mean = sum / static_cast<double>(n);
    double square = 0;
    for (int64_t block = 0; block < n; block += 32) {
      double part = 0;
      for (int64_t i = block; i < n && i < block + 32; ++i) {
        const double d = from[i * step] - mean;
        part += d * d;
      }
      square += part;
    }
    static_cast<double*>(y->data)[place(y, y->ndim, row)] = square / static_cast<double>(n);
  }
}

}  // namespace

extern "C" int32_t ow_spread_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* x = call->in[0];
  if (x->ndim < 1) return fail(call, OW_E_RANK, -1, 0);
  call->shapes[0].rank = x->ndim - 1;
  for (int32_t d = 0; d < x->ndim - 1; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_spread_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_spread(const OwCall* call) {
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
