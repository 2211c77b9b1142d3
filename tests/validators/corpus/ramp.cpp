// y = x where x is positive or nan, else 0.  Honest twin.
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

void elements(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  const OwTensor *x = call->in[0], *y = call->out[0];
  for (int64_t i = lo; i < hi; ++i) {
    const float v = static_cast<const float*>(x->data)[offset_of(x, i)];
    static_cast<float*>(y->data)[offset_of(y, i)] = v <= 0 ? 0 : v;
  }
}

}  // namespace

extern "C" int32_t ow_ramp_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return call->error->code = OW_E_ABI;
  const OwTensor* x = call->in[0];
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_ramp_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_ramp(const OwCall* call) {
  if (call->abi != OW_ABI) return call->error->code = OW_E_ABI;
  int64_t n = 1;
  for (int32_t d = 0; d < call->in[0]->ndim; ++d) n *= call->in[0]->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 16, elements, const_cast<OwCall*>(call));
  else
    elements(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
