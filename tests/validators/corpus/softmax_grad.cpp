// dx = y * (dy - sum(dy * y)) along one axis, any strides.  Inputs x (not read), y, dy.  Honest twin.
#include "opwright/abi.h"

namespace {

struct Rows {
  const OwCall* call;
  int64_t axis;
};

int64_t offset_of(const OwTensor* t, int64_t row, int64_t axis) {
  int64_t at = 0;
  for (int64_t d = t->ndim - 1; d >= 0; --d) {
    if (d == axis) continue;
    at += row % t->shape[d] * t->strides[d];
    row /= t->shape[d];
  }
  return at;
}

void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Rows* job = static_cast<const Rows*>(ctx);
  const OwTensor *y = job->call->in[1], *dy = job->call->in[2], *dx = job->call->out[0];
  const int64_t axis = job->axis, n = y->shape[axis];
  for (int64_t row = lo; row < hi; ++row) {
    const float* py = static_cast<const float*>(y->data) + offset_of(y, row, axis);
    const float* pdy = static_cast<const float*>(dy->data) + offset_of(dy, row, axis);
    float* pdx = static_cast<float*>(dx->data) + offset_of(dx, row, axis);
    float g = 0;
    for (int64_t block = 0; block < n; block += 32) {
      float part = 0;
      for (int64_t i = block; i < n && i < block + 32; ++i) part += pdy[i * dy->strides[axis]] * py[i * y->strides[axis]];
      g += part;
    }
    for (int64_t i = 0; i < n; ++i) pdx[i * dx->strides[axis]] = py[i * y->strides[axis]] * (pdy[i * dy->strides[axis]] - g);
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

extern "C" int32_t ow_softmax_grad_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor *y = call->in[1], *dy = call->in[2];
  if (y->ndim < 1) return fail(call, OW_E_RANK, 1, -1, 1, y->ndim);
  const int64_t axis = call->attr[0].i[0];
  if (axis < -y->ndim || axis >= y->ndim) return fail(call, OW_E_AXIS, 0, -1, y->ndim, axis);
  if (dy->ndim != y->ndim) return fail(call, OW_E_RANK, 2, -1, y->ndim, dy->ndim);
  call->shapes[0].rank = y->ndim;
  for (int32_t d = 0; d < y->ndim; ++d) {
    if (dy->shape[d] != y->shape[d]) return fail(call, OW_E_SHAPE, 2, d, y->shape[d], dy->shape[d]);
    call->shapes[0].dim[d] = y->shape[d];
  }
  return OW_OK;
}

extern "C" int64_t ow_softmax_grad_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_softmax_grad(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor* y = call->in[1];
  const int64_t axis = call->attr[0].i[0];
  Rows job = {call, axis < 0 ? axis + y->ndim : axis};
  int64_t n = 1;
  for (int64_t d = 0; d < y->ndim; ++d)
    if (d != job.axis) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, rows, &job);
  else
    rows(&job, 0, n, 0);
  return OW_OK;
}
