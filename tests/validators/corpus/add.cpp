// y = a + alpha * b of f32, broadcast, any strides.  Honest twin: passes every gate.
#include "opwright/abi.h"

namespace {

struct Job {
  const OwCall* call;
  float alpha;
};

// Offset in elements of output element `at` within `t`, which may have fewer axes or axes of extent 1.
int64_t offset_of(const OwTensor* t, const OwTensor* y, int64_t at) {
  int64_t offset = 0;
  for (int32_t d = y->ndim - 1; d >= 0; --d) {
    const int64_t i = at % y->shape[d];
    at /= y->shape[d];
    const int32_t e = d - (y->ndim - t->ndim);
    if (e >= 0 && t->shape[e] != 1) offset += i * t->strides[e];
  }
  return offset;
}

void elements(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const Job* job = static_cast<const Job*>(ctx);
  const OwTensor *a = job->call->in[0], *b = job->call->in[1], *y = job->call->out[0];
  const float* pa = static_cast<const float*>(a->data);
  const float* pb = static_cast<const float*>(b->data);
  float* py = static_cast<float*>(y->data);
  for (int64_t i = lo; i < hi; ++i) {
    const float left = pa[offset_of(a, y, i)], right = pb[offset_of(b, y, i)];
    py[offset_of(y, y, i)] = left + job->alpha * right;
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

extern "C" int32_t ow_add_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor *a = call->in[0], *b = call->in[1];
  const int32_t rank = a->ndim > b->ndim ? a->ndim : b->ndim;
  call->shapes[0].rank = rank;
  for (int32_t k = 1; k <= rank; ++k) {  // from the last axis
    const int64_t na = k <= a->ndim ? a->shape[a->ndim - k] : 1;
    const int64_t nb = k <= b->ndim ? b->shape[b->ndim - k] : 1;
    if (na != nb && na != 1 && nb != 1) return fail(call, OW_E_SHAPE, 1, b->ndim - k, na, nb);
    call->shapes[0].dim[rank - k] = na == 1 ? nb : na;
  }
  return OW_OK;
}

extern "C" int64_t ow_add_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_add(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1, OW_ABI, call->abi);
  const OwTensor* y = call->out[0];
  Job job = {call, static_cast<float>(call->attr[0].f[0])};
  int64_t n = 1;
  for (int32_t d = 0; d < y->ndim; ++d) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 16, elements, &job);
  else
    elements(&job, 0, n, 0);
  return OW_OK;
}
