// y = x of f32 with row j of u added to row i[j], in double, rounded once.  Honest twin.
#include "opwright/abi.h"

namespace {

int32_t fail(const OwCall* call, int32_t code, int32_t which, int32_t arg) {
  call->error->code = code;
  call->error->which = which;
  call->error->arg = arg;
  return code;
}

}  // namespace

extern "C" int32_t ow_deposit_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor *x = call->in[0], *i = call->in[1], *u = call->in[2];
  if (x->ndim != 2) return fail(call, OW_E_RANK, -1, 0);
  if (i->ndim != 1) return fail(call, OW_E_RANK, -1, 1);
  if (u->ndim != 2) return fail(call, OW_E_RANK, -1, 2);
  if (u->shape[0] != i->shape[0] || u->shape[1] != x->shape[1]) return fail(call, OW_E_SHAPE, -1, 2);
  call->shapes[0].rank = 2;
  for (int32_t d = 0; d < 2; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

// A row in double.
extern "C" int64_t ow_deposit_workspace(const OwCall* call) { return call->in[0]->shape[1] * 8; }

extern "C" int32_t ow_deposit(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor *x = call->in[0], *index = call->in[1], *u = call->in[2], *y = call->out[0];
  const int64_t *at = static_cast<const int64_t*>(index->data), count = index->shape[0], width = x->shape[1];
  for (int64_t j = 0; j < count; ++j) {
    if (at[j * index->strides[0]] < 0) return fail(call, OW_E_DATA, 0, 1);
    if (at[j * index->strides[0]] >= x->shape[0]) return fail(call, OW_E_DATA, 1, 1);
  }
  double* row = static_cast<double*>(call->workspace);
  for (int64_t v = 0; v < x->shape[0]; ++v) {
    for (int64_t d = 0; d < width; ++d)
      row[d] = static_cast<double>(static_cast<const float*>(x->data)[v * x->strides[0] + d * x->strides[1]]);
    for (int64_t j = 0; j < count; ++j) {
      if (at[j * index->strides[0]] != v) continue;
      for (int64_t d = 0; d < width; ++d)
        row[d] += static_cast<double>(static_cast<const float*>(u->data)[j * u->strides[0] + d * u->strides[1]]);
    }
    for (int64_t d = 0; d < width; ++d)
      static_cast<float*>(y->data)[v * y->strides[0] + d * y->strides[1]] = static_cast<float>(row[d]);
  }
  return OW_OK;
}
