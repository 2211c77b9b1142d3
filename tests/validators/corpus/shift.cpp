// y = a << b of i32.  Honest twin.
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

int32_t moved(int32_t a, int32_t b) {
  return b < 0 || b > 31 ? 0 : static_cast<int32_t>(static_cast<uint32_t>(a) << b);
}

void elements(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  for (int64_t i = lo; i < hi; ++i) {
    const int32_t a = static_cast<const int32_t*>(call->in[0]->data)[place(call->in[0], call->in[0]->ndim, i)];
    const int32_t b = static_cast<const int32_t*>(call->in[1]->data)[place(call->in[1], call->in[1]->ndim, i)];
    static_cast<int32_t*>(call->out[0]->data)[place(call->out[0], call->out[0]->ndim, i)] = moved(a, b);
  }
}

}  // namespace

extern "C" int32_t ow_shift_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* x = call->in[0];
  const OwTensor* b = call->in[1];
  if (x->ndim != b->ndim) return fail(call, OW_E_RANK, -1, 1);
  for (int32_t d = 0; d < x->ndim; ++d)
    if (x->shape[d] != b->shape[d]) return fail(call, OW_E_SHAPE, -1, 1);
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_shift_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_shift(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  int64_t n = 1;
  for (int32_t d = 0; d < call->out[0]->ndim; ++d) n *= call->out[0]->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 16, elements, const_cast<OwCall*>(call));
  else
    elements(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
