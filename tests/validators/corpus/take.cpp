// y[*J, d] = x[i[*J], d]: rows of an f32 matrix by i64 index, checked against the data.  Honest twin.
#include "opwright/abi.h"

namespace {

int32_t fail(const OwCall* call, int32_t code, int32_t which, int32_t arg, int64_t want, int64_t got) {
  call->error->code = code;
  call->error->which = which;
  call->error->arg = arg;
  call->error->want = want;
  call->error->got = got;
  return code;
}

int64_t offset_of(const OwTensor* t, int32_t ndim, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = ndim - 1; d >= 0; --d) {
    offset += at % t->shape[d] * t->strides[d];
    at /= t->shape[d];
  }
  return offset;
}

}  // namespace

extern "C" int32_t ow_take_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor *x = call->in[0], *i = call->in[1];
  if (x->ndim != 2) return fail(call, OW_E_RANK, -1, 0, 2, x->ndim);
  call->shapes[0].rank = i->ndim + 1;
  for (int32_t d = 0; d < i->ndim; ++d) call->shapes[0].dim[d] = i->shape[d];
  call->shapes[0].dim[i->ndim] = x->shape[1];
  return OW_OK;
}

// One row of x, gathered there first.
extern "C" int64_t ow_take_workspace(const OwCall* call) { return call->in[0]->shape[1] * 4; }

extern "C" int32_t ow_take(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor *x = call->in[0], *index = call->in[1], *y = call->out[0];
  const float* from = static_cast<const float*>(x->data);
  float* to = static_cast<float*>(y->data);
  float* row = static_cast<float*>(call->workspace);
  const int64_t width = x->shape[1], rows = x->shape[0];
  if (width > 0 && row == nullptr) return fail(call, OW_E_WORKSPACE, -1, -1, width * 4, 0);
  int64_t n = 1;
  for (int32_t d = 0; d < index->ndim; ++d) n *= index->shape[d];
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = static_cast<const int64_t*>(index->data)[offset_of(index, index->ndim, k)];
    if (at < 0) return fail(call, OW_E_DATA, 0, 1, 0, at);
    if (at >= rows) return fail(call, OW_E_DATA, 1, 1, rows, at);
    for (int64_t d = 0; d < width; ++d) row[d] = from[at * x->strides[0] + d * x->strides[1]];
    const int64_t base = offset_of(y, y->ndim - 1, k);
    for (int64_t d = 0; d < width; ++d) to[base + d * y->strides[y->ndim - 1]] = row[d];
  }
  return OW_OK;
}
