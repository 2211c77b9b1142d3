// y[*B] = sum over the last axis of a * b of bf16, in f32 blocks, rounded once to bf16.  Honest twin.
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

float wide(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

uint16_t rounded(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if (x != x) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

void rows(void* ctx, int64_t lo, int64_t hi, int32_t) {
  const OwCall* call = static_cast<const OwCall*>(ctx);
  const OwTensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
  const int64_t n = a->shape[a->ndim - 1];
  for (int64_t row = lo; row < hi; ++row) {
    const uint16_t* pa = static_cast<const uint16_t*>(a->data) + place(a, a->ndim - 1, row);
    const uint16_t* pb = static_cast<const uint16_t*>(b->data) + place(b, b->ndim - 1, row);
    float s = 0;
    for (int64_t block = 0; block < n; block += 32) {
      float part = 0;
      for (int64_t i = block; i < n && i < block + 32; ++i)
        part += wide(pa[i * a->strides[a->ndim - 1]]) * wide(pb[i * b->strides[b->ndim - 1]]);
      s += part;
    }
    static_cast<uint16_t*>(y->data)[place(y, y->ndim, row)] = rounded(s);
  }
}

}  // namespace

extern "C" int32_t ow_dot_infer(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor *a = call->in[0], *b = call->in[1];
  if (a->ndim < 1) return fail(call, OW_E_RANK, -1, 0);
  if (b->ndim != a->ndim) return fail(call, OW_E_RANK, -1, 1);
  for (int32_t d = 0; d < a->ndim; ++d)
    if (a->shape[d] != b->shape[d]) return fail(call, OW_E_SHAPE, -1, 1);
  call->shapes[0].rank = a->ndim - 1;
  for (int32_t d = 0; d < a->ndim - 1; ++d) call->shapes[0].dim[d] = a->shape[d];
  return OW_OK;
}

extern "C" int64_t ow_dot_workspace(const OwCall*) { return 0; }

extern "C" int32_t ow_dot(const OwCall* call) {
  if (call->abi != OW_ABI) return fail(call, OW_E_ABI, -1, -1);
  const OwTensor* y = call->out[0];
  int64_t n = 1;
  for (int32_t d = 0; d < y->ndim; ++d) n *= y->shape[d];
  if (call->parallel != nullptr && n > 1)
    call->parallel(call->pool, n, 1, rows, const_cast<OwCall*>(call));
  else
    rows(const_cast<OwCall*>(call), 0, n, 0);
  return OW_OK;
}
