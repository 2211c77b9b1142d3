// y[*B] = sum of f32 over the axes that `axes` names, in double, rounded once.  Honest twin.
#include "opwright/abi.h"

namespace {

int32_t fail(const OwCall* call, int32_t code, int32_t arg, int64_t want, int64_t got) {
  call->error->code = code;
  call->error->which = -1;
  call->error->arg = arg;
  call->error->want = want;
  call->error->got = got;
  return code;
}

// Bit d: axis d is summed.
int32_t summed(const OwCall* call, uint32_t* mask) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, OW_ABI, call->abi);
  const OwTensor* x = call->in[0];
  const OwAttr* axes = &call->attr[0];
  *mask = 0;
  if (x->ndim < axes->count) return fail(call, OW_E_RANK, 0, axes->count, x->ndim);
  for (int64_t k = 0; k < axes->count; ++k) {
    const int64_t axis = axes->i[k] < 0 ? axes->i[k] + x->ndim : axes->i[k];
    if (axis < 0 || axis >= x->ndim || (*mask >> axis & 1u)) return fail(call, OW_E_AXIS, 0, x->ndim, axes->i[k]);
    *mask |= 1u << axis;
  }
  return OW_OK;
}

struct Job {
  const OwCall* call;
  uint32_t mask;
};

// Offset in x of number `at` among the places of the axes that are summed (or of those that are not), row-major.
int64_t offset_of(const OwTensor* x, uint32_t mask, uint32_t bit, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = x->ndim - 1; d >= 0; --d) {
    if ((mask >> d & 1u) != bit) continue;
    offset += at % x->shape[d] * x->strides[d];
    at /= x->shape[d];
  }
  return offset;
}

void places(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Job* job = static_cast<const Job*>(ctx);
  const OwTensor *x = job->call->in[0], *y = job->call->out[0];
  const float* from = static_cast<const float*>(x->data);
  int64_t n = 1;
  for (int32_t d = 0; d < x->ndim; ++d) n *= job->mask >> d & 1u ? x->shape[d] : 1;
  for (int64_t row = lo; row < hi; ++row) {
    const int64_t start = offset_of(x, job->mask, 0, row);
    double s = 0;
    for (int64_t i = 0; i < n; ++i) s += static_cast<double>(from[start + offset_of(x, job->mask, 1, i)]);
    static_cast<float*>(y->data)[offset_of(y, 0, 0, row)] = static_cast<float>(s);
  }
}

}  // namespace

extern "C" int32_t ow_total_infer(const OwCall* call) {
  uint32_t mask;
  if (const int32_t code = summed(call, &mask)) return code;
  const OwTensor* x = call->in[0];
  call->shapes[0].rank = 0;
  for (int32_t d = 0; d < x->ndim; ++d)
    if (!(mask >> d & 1u)) call->shapes[0].dim[call->shapes[0].rank++] = x->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_total_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_total(const OwCall* call) {
  uint32_t mask;
  if (const int32_t code = summed(call, &mask)) return code;
  const OwTensor* y = call->out[0];
  Job job{call, mask};
  int64_t n = 1;
  for (int32_t d = 0; d < y->ndim; ++d) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, places, &job);
  else
    places(&job, 0, n, 0);
  return OW_OK;
}
