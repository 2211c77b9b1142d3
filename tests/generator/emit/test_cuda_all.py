"""Every operator's CUDA text, at its first case in f32: NVRTC makes a cubin of it, or the printer refuses it by name.

Nightly: it takes a minute and a half.  An operator whose text has no form yet stands in `NO_TEXT` with the reason.
"""

from __future__ import annotations

import pytest
from test_cuda import compile_cubin, nvrtc

from opwright.generator.emit import emit_cuda
from opwright.generator.errors import LowerError
from opwright.generator.normal import normalise
from opwright.generator.spec import OpSpec
from opwright.generator.types import DType
from opwright.validators.case_calls import Calls
from opwright.workflows.workbench import Workbench

pytestmark = [pytest.mark.cuda, pytest.mark.nightly]

SIZES = "extents that depend on data have no CUDA launcher yet"
COMPLEX = "complex numbers have no CUDA text yet"
NO_TEXT = {
    **dict.fromkeys(
        ("bincount", "bincount_weighted", "nonzero", "repeat_interleave", "unique", "unique_consecutive"),
        SIZES,
    ),
    **dict.fromkeys(
        (
            *("complex", "fft", "imag", "irfft", "polar", "real", "rfft"),
            *("view_as_complex", "view_as_real"),
        ),
        COMPLEX,
    ),
}
SPECS = Workbench.here().own()


@pytest.mark.parametrize("spec", SPECS, ids=[s.op for s in SPECS])
def test_every_operator_compiles_or_is_refused_by_name(spec: OpSpec) -> None:
    lib = nvrtc()
    if lib is None:
        pytest.skip("NVRTC is not installed (pip install 'opwright[cuda]')")
    calls = Calls(spec, 0)
    types = "+".join("f32" if DType.F32 in d else d[0].value for _, d in calls.choices) or "-"
    op = normalise(calls.resolve(calls.call("case0", types), calls.types(types))[0])
    if spec.op in NO_TEXT:
        with pytest.raises(LowerError, match=NO_TEXT[spec.op]):
            emit_cuda(op, "sm_80")
        return
    log, cubin = compile_cubin(lib, emit_cuda(op, "sm_80").kernel, "sm_80")
    assert cubin[:4] == b"\x7fELF", log
