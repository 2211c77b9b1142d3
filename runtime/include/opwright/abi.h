/* The one call convention between a kernel and everybody who calls it: the runtime's dispatcher, the program
 * executor, the judge (by ctypes), tvm-ffi and torch.library shims.
 *
 * A generated library exports three symbols per kernel <k> (k = "ow_" + content hash):
 *   int32_t <k>(const OwCall*)             run; outputs are given, nothing is allocated inside
 *   int32_t <k>_infer(const OwCall*)       check every host-side rule of the spec and write the shapes of all outputs
 *                                          into call->shapes (data-dependent sizes read the inputs)
 *   int64_t <k>_workspace(const OwCall*)   bytes of scratch that a run needs (for call->max_threads threads)
 * All three return an OW_* status; <k>_workspace returns -status when it fails.
 *
 * Plain C so that kernels need no other header than DLPack's structs, repeated here (DLPack v1.0 layout).
 * May include: <stdint.h> only.  To add a field: append it, raise OW_ABI, and mirror it in
 * validators/abi.py and runtime/python (tests/runtime/test_abi.py compares the offsets).
 */
#ifndef OPWRIGHT_ABI_H
#define OPWRIGHT_ABI_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OW_ABI 1
#define OW_MAX_RANK 16

/* ---- DLPack (layout only; names prefixed so that dlpack.h may be included beside this file) ---- */
typedef struct {
  int32_t device_type;
  int32_t device_id;
} OwDevice; /* 1 = CPU, 2 = CUDA */
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} OwDType; /* 0 int 1 uint 2 float 4 bfloat 5 complex 6 bool */
typedef struct {
  void* data;
  OwDevice device;
  int32_t ndim;
  OwDType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; never null when given to a kernel */
  uint64_t byte_offset;
} OwTensor; /* == DLTensor */

/* ---- status ---- */
enum {
  OW_OK = 0,
  OW_E_REQUIRE = 1,   /* a `require` does not hold: error->which = its index in the spec */
  OW_E_SHAPE = 2,     /* extents disagree: error->arg, error->axis, error->want, error->got */
  OW_E_RANK = 3,      /* error->arg, error->want (minimum rank), error->got */
  OW_E_AXIS = 4,      /* axis attribute out of range: error->arg = attribute, error->got, error->want = rank */
  OW_E_INDEX = 5,     /* a data-dependent index is out of range: error->which, error->got, error->want = extent */
  OW_E_OVERLAP = 6,   /* outputs overlap inputs in a way the spec does not allow */
  OW_E_WORKSPACE = 7, /* workspace null or too small */
  OW_E_DATA = 8,      /* a `require` over data does not hold: error->which */
  OW_E_ABI = 9
};

typedef struct {
  int32_t code;  /* OW_* */
  int32_t which; /* index of the rule in the kernel's table row (`rules`), -1 when none */
  int32_t arg;   /* index of the input or attribute (OW_E_AXIS), n_in + index of an output, -1 when none */
  int32_t axis;
  int64_t want, got;
} OwError;

/* One attribute value. Scalars have count 1; `ints`, `axes`, `floats` have any count; absent: count -1.
 * i and f both hold the value where the kind is `scalar` (f for float tests, i for integer dtypes). */
typedef struct {
  int64_t count;
  const int64_t* i;
  const double* f;
} OwAttr;

typedef struct {
  int32_t rank;
  int32_t pad;
  int64_t dim[OW_MAX_RANK];
} OwShape;

/* for (chunk of [0, n)) fn(ctx, lo, hi, thread); thread < max_threads; returns after all have run */
typedef void (*OwChunk)(void* ctx, int64_t lo, int64_t hi, int32_t thread);
typedef void (*OwParallelFor)(void* pool, int64_t n, int64_t grain, OwChunk fn, void* ctx);

typedef struct {
  uint32_t abi; /* OW_ABI */
  int32_t n_in, n_out, n_attr;
  const OwTensor* const*
      in; /* flat, in the order of the spec; a list input contributes list_len[k] entries; null = absent */
  const int32_t* list_len;    /* one per list input, in order; null when the op has none */
  const OwTensor* const* out; /* null entries never occur in a run; ignored by infer and workspace */
  const OwAttr* attr;         /* every non-static attribute, in the order of the kernel's table row */
  OwShape* shapes;            /* n_out, written by infer */
  void* workspace;            /* 64-byte aligned */
  int64_t workspace_bytes;
  void* stream;           /* CUstream or null */
  OwError* error;         /* never null */
  OwParallelFor parallel; /* null: run on the calling thread */
  void* pool;
  int32_t max_threads; /* >= 1 */
  int32_t flags;       /* OW_INPLACE_k: bit k set when output k is the in-place twin of its declared input;
                          OW_TILES (pairs.h): the process may use the processor's tiles */
} OwCall;

typedef int32_t (*OwKernel)(const OwCall*);
typedef int64_t (*OwWorkspace)(const OwCall*);

#ifdef __cplusplus
}
#endif
#endif
