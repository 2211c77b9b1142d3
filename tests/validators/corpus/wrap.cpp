// y = x * x - 7 of i64, which wraps.  Honest twin.
#include "opwright/abi.h"

namespace {

int64_t offset_of(const OwTensor* t, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = t->ndim - 1; d >= 0; --d) {
    offset += at % t->shape[d] * t->strides[d];
    at /= t->shape[d];
  }
  return offset;
}

int64_t value(int64_t x) {
  const uint64_t u = static_cast<uint64_t>(x);
  return static_cast<int64_t>(u * u - 7u);
}

void elements(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  const OwTensor *x = call->in[0], *y = call->out[0];
  for (int64_t i = lo; i < hi; ++i)
    static_cast<int64_t*>(y->data)[offset_of(y, i)] = value(static_cast<const int64_t*>(x->data)[offset_of(x, i)]);
}

}  // namespace

extern "C" int32_t ow_wrap_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return call->error->code = OW_E_ABI;
  const OwTensor* x = call->in[0];
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_wrap_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_wrap(const OwCall* call) {
  if (call->abi != OW_ABI) return call->error->code = OW_E_ABI;
  int64_t n = 1;
  for (int32_t d = 0; d < call->in[0]->ndim; ++d) n *= call->in[0]->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 16, elements, const_cast<OwCall*>(call));
  else
    elements(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
