"""The same call in f64: every float type becomes f64, every complex one c128, integers and bools stay.

What the gates `meaning` and `gradient` compute in, so that the source they compare with and finite differences have
digits to spare.  May import: generator.{bind, bound, spec, types}, draws, trial, values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..generator.bind import bind
from ..generator.bind_key import rederived
from ..generator.bound import BindKey
from ..generator.errors import OpwrightError
from ..generator.spec import OpSpec
from ..generator.types import DType
from .draws import DENORMAL_STEPS
from .trial import Trial
from .values import ARRAY, Array

__all__ = ["lift_dtype", "lift_key", "lift_trial"]


def lift_dtype(name: str) -> str:
    """`f64` for any float, `c128` for any complex, else the name itself."""
    dtype = DType(name)
    if dtype.is_complex:
        return DType.C128.value
    return DType.F64.value if dtype.is_float else name


def lift_key(spec: OpSpec, key: BindKey) -> BindKey | None:
    """The key in f64; None when the operator is not defined there (a type fixed to f32)."""
    static = tuple(
        (name, lift_dtype(value) if spec.attrs[name].kind == "dtype" and isinstance(value, str) else value)
        for name, value in key.static
    )
    try:
        # What is a float because an integer has become one stays as it is: no call says otherwise.
        types = rederived(spec, {v: DType(lift_dtype(d)) for v, d in key.types})
        lifted = replace(key, types=tuple((v, d.value) for v, d in sorted(types.items())), static=static)
        bind(spec, lifted)
    except OpwrightError:
        return None
    return lifted


def lift_trial(trial: Trial, key: BindKey) -> Trial:
    """The trial's arrays in f64: exactly, for every float is one; denormal numbers stay denormal."""
    arrays = {}
    for name, a in trial.arrays.items():
        wanted = ARRAY[DType.C128] if a.dtype.kind == "c" else ARRAY[DType.F64]
        inexact = a.dtype.kind in "fcV" or a.dtype.name == "bfloat16"
        arrays[name] = _lifted(a, wanted, trial.values) if inexact else a
    return replace(trial, key=key, arrays=arrays)


def _lifted(a: Array, wanted: np.dtype[Any], values: str) -> Array:
    """In class `denormal` a number of k steps above zero becomes one of k steps of f64, which is denormal there."""
    lifted: Array = a.astype(wanted)
    step = 2 * next(d for d, array in ARRAY.items() if array == a.dtype).eta
    if values != "denormal" or step <= 2.0**-1074:
        return lifted
    parts = lifted.reshape(-1).view(np.float64)
    small = np.abs(parts) <= DENORMAL_STEPS * step
    parts[small] *= 2.0**-1074 / step
    return lifted
