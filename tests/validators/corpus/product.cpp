// y[m, n] = sum over k of a[m, k] * b[k, n] of f32, in four chains by turns, each in blocks.  Honest twin.
#include "opwright/abi.h"

namespace {

int32_t fail(const OwCall* call, int32_t code, int32_t which, int32_t arg) {
  call->error->code = code;
  call->error->which = which;
  call->error->arg = arg;
  return code;
}

void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  const OwTensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
  const float *pa = static_cast<const float*>(a->data), *pb = static_cast<const float*>(b->data);
  const int64_t inner = a->shape[1];
  for (int64_t m = lo; m < hi; ++m)
    for (int64_t n = 0; n < y->shape[1]; ++n) {
      float total = 0;
      for (int64_t block = 0; block < inner; block += 64) {
        float part[4] = {0, 0, 0, 0};
        const int64_t end = block + 64 < inner ? block + 64 : inner;
        for (int64_t k = block; k < end; ++k)
          part[k & 3] += pa[m * a->strides[0] + k * a->strides[1]] * pb[k * b->strides[0] + n * b->strides[1]];
        total += (part[0] + part[1]) + (part[2] + part[3]);
      }
      static_cast<float*>(y->data)[m * y->strides[0] + n * y->strides[1]] = total;
    }
}

}  // namespace

extern "C" int32_t ow_product_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor *a = call->in[0], *b = call->in[1];
  if (a->ndim != 2) return fail(call, OW_E_RANK, -1, 0);
  if (b->ndim != 2) return fail(call, OW_E_RANK, -1, 1);
  if (a->shape[1] != b->shape[0]) return fail(call, OW_E_SHAPE, -1, 1);
  call->shapes[0].rank = 2;
  call->shapes[0].dim[0] = a->shape[0];
  call->shapes[0].dim[1] = b->shape[1];
  return OW_OK;
}

extern "C" int64_t ow_product_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_product(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const int64_t m = call->in[0]->shape[0];
  if (call->parallel != nullptr && m > 1)
    call->parallel(call->pool, m, 1, rows, const_cast<OwCall*>(call));
  else
    rows(const_cast<OwCall*>(call), 0, m, 0);
  return OW_OK;
}
