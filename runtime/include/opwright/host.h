/* The host API in C: load a program folder, run it; call single operators of a kernel table. No Python, no compiler.
 * opwright/program.h is the same for C++, with owners and exceptions. docs/host_api.md shows both.
 *
 *   Every function that can fail returns an OPWRIGHT_* status; opwright_error() says why, in words, until the next
 *   failure on the same thread. Strings and tensors that are returned belong to the object they were asked of.
 *   Different programs, and one program, may be used from several threads at once.
 *
 * May include: abi.h. To add a function: declare it here, define it in runtime/src/host.cpp; never change one that is
 * there, but give the new one another name.
 */
#ifndef OPWRIGHT_HOST_H
#define OPWRIGHT_HOST_H
#include <stddef.h>

#include "abi.h"

#if defined(OPWRIGHT_BUILDS_HOST)
#define OPWRIGHT_API __attribute__((visibility("default")))
#else
#define OPWRIGHT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  OPWRIGHT_OK = 0,
  OPWRIGHT_VALUE = 1,   /* shapes, extents, symbols, values */
  OPWRIGHT_INDEX = 2,   /* an axis or index out of range */
  OPWRIGHT_TYPE = 3,    /* a dtype or attribute that is not taken */
  OPWRIGHT_MISSING = 4, /* no operator or no kernel of this kind was built */
  OPWRIGHT_PROGRAM = 5, /* a folder or file that cannot be read or does not fit */
  OPWRIGHT_RUNTIME = 6, /* not the caller's fault */
  OPWRIGHT_MEMORY = 7   /* no memory is left */
};

typedef struct OpwrightProgram OpwrightProgram;
typedef struct OpwrightKernels OpwrightKernels;
typedef struct OpwrightArray OpwrightArray;     /* memory of the runtime's, with its shape */
typedef struct OpwrightTensors OpwrightTensors; /* a .safetensors file */

OPWRIGHT_API const char* opwright_version(void);
OPWRIGHT_API const char* opwright_error(void);
OPWRIGHT_API int32_t opwright_threads(void);
OPWRIGHT_API int32_t opwright_set_threads(int32_t n); /* not while anything runs */

/* ---- arrays ---- */
OPWRIGHT_API int32_t opwright_array_new(OwDType dtype, int32_t rank, const int64_t* shape, OpwrightArray** out);
OPWRIGHT_API const OwTensor* opwright_array_tensor(const OpwrightArray* array);
OPWRIGHT_API void opwright_array_free(OpwrightArray* array);

/* ---- programs ---- */
/* The folder must hold kernels: `opwright build FOLDER` puts them there. dialect: null for the best one that this
 * machine runs, else such as "cpu-portable". */
OPWRIGHT_API int32_t opwright_program_load(const char* folder, const char* dialect, OpwrightProgram** out);
OPWRIGHT_API void opwright_program_free(OpwrightProgram* program);
OPWRIGHT_API const char* opwright_program_name(const OpwrightProgram* program);
OPWRIGHT_API const char* opwright_program_dialect(const OpwrightProgram* program);
OPWRIGHT_API int32_t opwright_program_inputs(const OpwrightProgram* program);
OPWRIGHT_API const char* opwright_program_input(const OpwrightProgram* program, int32_t k);
OPWRIGHT_API int32_t opwright_program_outputs(const OpwrightProgram* program);
OPWRIGHT_API const char* opwright_program_output(const OpwrightProgram* program, int32_t k);
/* inputs: one per input, in order, of any strides (null strides: contiguous). An input that is state is updated in
 * place. outputs: as many as opwright_program_outputs() says; each is yours to free. A register is an array of rank 0. */
OPWRIGHT_API int32_t opwright_program_run(OpwrightProgram* program, const OwTensor* const* inputs,
                                          OpwrightArray** outputs);

/* ---- single operators, from the table that `opwright build` made ---- */
OPWRIGHT_API int32_t opwright_kernels_open(const char* folder, const char* dialect, OpwrightKernels** out);
OPWRIGHT_API void opwright_kernels_free(OpwrightKernels* kernels);
/* inputs: in the order of the operator's signature, null where one is absent; the entries of its one list input, if it
 * has one, stand side by side. attrs: a JSON object as text, or null: "{\"axis\": -1}". outputs: room for n_out; those
 * the operator has are written, auxiliary ones too, and *n_out says how many. */
OPWRIGHT_API int32_t opwright_call(OpwrightKernels* kernels, const char* op, int32_t n_in,
                                   const OwTensor* const* inputs, const char* attrs, int32_t* n_out,
                                   OpwrightArray** outputs);

/* ---- .safetensors files ---- */
OPWRIGHT_API int32_t opwright_tensors_read(const char* path, OpwrightTensors** out);
OPWRIGHT_API void opwright_tensors_free(OpwrightTensors* tensors);
OPWRIGHT_API int32_t opwright_tensors_count(const OpwrightTensors* tensors);
OPWRIGHT_API const char* opwright_tensors_name(const OpwrightTensors* tensors, int32_t k);
OPWRIGHT_API const OwTensor* opwright_tensors_tensor(const OpwrightTensors* tensors, int32_t k);
OPWRIGHT_API int32_t opwright_tensors_write(const char* path, int32_t n, const char* const* names,
                                            const OwTensor* const* tensors);

/* ---- memory ---- */
OPWRIGHT_API int64_t opwright_memory_allocated(void);
OPWRIGHT_API int64_t opwright_memory_reserved(void);
OPWRIGHT_API void opwright_memory_empty_cache(void);
/* No more than this is taken from the system; what cannot be served then fails with OPWRIGHT_MEMORY. */
OPWRIGHT_API int32_t opwright_memory_set_limit(int64_t bytes);
/* Where memory to come is taken from, in pieces of 2 MiB and more; two nulls: the system's mmap. allocate gives null when
 * there is nothing. Both are called with a lock held: they must not call this library. */
OPWRIGHT_API int32_t opwright_memory_set_backend(void* (*allocate)(void* context, size_t bytes, size_t alignment),
                                                 void (*release)(void* context, void* data, size_t bytes),
                                                 void* context);

#ifdef __cplusplus
}
#endif
#endif
