"""Small C++ kernels for the tests of the sandbox and the harness: one input, one output, f32, contiguous."""

from __future__ import annotations

from pathlib import Path

from opwright.toolchain import compile_library

TEMPLATE = """
#include "opwright/abi.h"
%(head)s
extern "C" int32_t ow_t_infer(const OwCall* call) {
  call->shapes[0].rank = call->in[0]->ndim;
  for (int32_t d = 0; d < call->in[0]->ndim; ++d) call->shapes[0].dim[d] = call->in[0]->shape[d];
  return OW_OK;
}
extern "C" int64_t ow_t_workspace(const OwCall* call) { return %(workspace)s; }
extern "C" int32_t ow_t(const OwCall* call) {
  float* x = (float*)call->in[0]->data;
  float* y = (float*)call->out[0]->data;
  const int64_t n = call->in[0]->shape[0];
  %(body)s
  return OW_OK;
}
"""

COPY = "for (int64_t i = 0; i < n; ++i) y[i] = x[i];"


def source(body: str = COPY, *, head: str = "", workspace: str = "0") -> str:
    """A kernel `ow_t` of this body."""
    return TEMPLATE % {"body": body, "head": head, "workspace": workspace}


def library(body: str = COPY, *, head: str = "", workspace: str = "0") -> Path:
    """The same, built."""
    return compile_library(
        {"k.cpp": source(body, head=head, workspace=workspace)}, name="test kernel", dialect="cpu-portable"
    )
