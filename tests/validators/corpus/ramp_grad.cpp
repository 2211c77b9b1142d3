// dx = dy where x is positive or nan, else 0.  Honest twin.
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
  const OwTensor *x = call->in[0], *dy = call->in[1], *dx = call->out[0];
  for (int64_t i = lo; i < hi; ++i) {
    const float v = static_cast<const float*>(x->data)[offset_of(x, i)];
    const float g = static_cast<const float*>(dy->data)[offset_of(dy, i)];
    static_cast<float*>(dx->data)[offset_of(dx, i)] = v <= 0 ? 0 : g;
  }
}

int32_t fail(const OwCall* call, int32_t code, int32_t arg, int32_t axis, int64_t want, int64_t got) {
  call->error->code = code;
  call->error->arg = arg;
  call->error->axis = axis;
  call->error->want = want;
  call->error->got = got;
  return code;
}

}  // namespace

extern "C" int32_t ow_ramp_grad_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor *x = call->in[0], *dy = call->in[1];
  if (dy->ndim != x->ndim) return fail(call, OW_E_RANK, 1, -1, x->ndim, dy->ndim);
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) {
    if (dy->shape[d] != x->shape[d]) return fail(call, OW_E_SHAPE, 1, d, x->shape[d], dy->shape[d]);
    call->shapes[0].dim[d] = x->shape[d];
  }
  return OW_OK;
}

extern "C" int64_t ow_ramp_grad_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_ramp_grad(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  int64_t n = 1;
  for (int32_t d = 0; d < call->in[0]->ndim; ++d) n *= call->in[0]->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 16, elements, const_cast<OwCall*>(call));
  else
    elements(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
