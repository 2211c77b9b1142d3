// Softmax of f32 along one axis, any strides.  Honest twin: passes every gate.
#include "opwright/abi.h"

namespace {

struct Rows {
  const OwCall* call;
  int64_t axis;
};

int64_t axis_of(const OwCall* call) {
  const int64_t rank = call->in[0]->ndim, axis = call->attr[0].i[0];
  return axis < 0 ? axis + rank : axis;
}

// Offset in elements of row `row` of `t`, the axis left out.
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
  const OwTensor* x = job->call->in[0];
  const OwTensor* y = job->call->out[0];
  const int64_t n = x->shape[job->axis], sx = x->strides[job->axis], sy = y->strides[job->axis];
  for (int64_t row = lo; row < hi; ++row) {
    const float* from = static_cast<const float*>(x->data) + offset_of(x, row, job->axis);
    float* to = static_cast<float*>(y->data) + offset_of(y, row, job->axis);
    float m = -__builtin_inff();
    for (int64_t i = 0; i < n; ++i) {
      const float v = from[i * sx];
      m = v > m || v != v ? v : m;
    }
    float s = 0;
    for (int64_t block = 0; block < n; block += 32) {  // blocked, as the bound demands
      float part = 0;
      for (int64_t i = block; i < n && i < block + 32; ++i) part += __builtin_expf(from[i * sx] - m);
      s += part;
    }
    for (int64_t i = 0; i < n; ++i) to[i * sy] = __builtin_expf(from[i * sx] - m) / s;
  }
}

int32_t fail(const OwCall* call, int32_t code, int32_t arg, int64_t want, int64_t got) {
  call->error->code = code;
  call->error->arg = arg;
  call->error->want = want;
  call->error->got = got;
  return code;
}

}  // namespace

extern "C" int32_t ow_softmax_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, OW_ABI, call->abi);
  const OwTensor* x = call->in[0];
  if (x->ndim < 1) return fail(call, OW_E_RANK, 0, 1, x->ndim);
  const int64_t axis = call->attr[0].i[0];
  if (axis < -x->ndim || axis >= x->ndim) return fail(call, OW_E_AXIS, 0, x->ndim, axis);
  call->shapes[0].rank = x->ndim;
  for (int32_t d = 0; d < x->ndim; ++d) call->shapes[0].dim[d] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_softmax_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_softmax(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, OW_ABI, call->abi);
  Rows job = {call, axis_of(call)};
  const OwTensor* x = call->in[0];
  int64_t n = 1;
  for (int64_t d = 0; d < x->ndim; ++d)
    if (d != job.axis) n *= x->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, rows, &job);
  else
    rows(&job, 0, n, 0);
  return OW_OK;
}
