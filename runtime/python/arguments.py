"""What an overload's own arguments mean where a row of the table says less: a default that depends on a dtype, a number
of another category, ranks that the overload asks for and the operator does not, a choice that is ours to make.

Both doors read it: fronts.py for `call_aten`, generator/program/convert.py for programs.  A rule takes the overload's
arguments under its own names, and first `about`: a tensor's dtype and shape, None of what is no tensor.  It gives all
arguments back, or raises `Refused`.

May import: nothing of the package.  To add a rule: a function, and its line in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

__all__ = ["RULES", "About", "Refused", "Rule", "avg_pool", "ints", "max_pool", "planes", "shorter"]

About: TypeAlias = Callable[[Any], "tuple[str, tuple[Any, ...]] | None"]
Rule: TypeAlias = Callable[..., dict[str, Any]]

_FLOATS = ("f16", "bf16", "f32", "f64")


class Refused(Exception):
    """These arguments are not taken; the text says why."""


def ints(value: int | Sequence[int], n: int) -> list[int]:
    """A list argument that may be one number, or a list of one, for all `n` axes."""
    found = [value] if isinstance(value, int) else list(value)
    if len(found) not in (1, n):
        raise Refused(f"{found} should have {n} entries")
    return found * n if len(found) == 1 else found


def _dtype(about: About, x: Any) -> str:
    return (about(x) or ("", ()))[0]


def _rms_norm(
    about: About, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> dict[str, Any]:
    """Without `eps`, PyTorch takes the unit of what it computes in: f64, or f32 for the rest."""
    if not len(normalized_shape):
        raise Refused("`normalized_shape` must name at least one axis")
    small = (2.0**-52 if _dtype(about, input) in ("f64", "c128") else 2.0**-23) if eps is None else eps
    return {"input": input, "normalized_shape": normalized_shape, "weight": weight, "eps": small}


def _layer_norm(
    about: About, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> dict[str, Any]:
    if not len(normalized_shape):
        raise Refused("`normalized_shape` must name at least one axis")
    given = {"input": input, "normalized_shape": normalized_shape, "weight": weight, "bias": bias}
    return given | {"eps": eps}


def _hardtanh(about: About, self: Any, min_val: float = -1, max_val: float = 1) -> dict[str, Any]:
    """Integers stay integers: their ends are cut towards zero."""
    if _dtype(about, self) not in _FLOATS:
        min_val, max_val = int(min_val), int(max_val)
    return {"self": self, "min_val": min_val, "max_val": max_val}


def _sort(
    about: About, self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> dict[str, Any]:
    """Our order is stable, asked for or not."""
    return {"self": self, "stable": True, "dim": dim, "descending": descending}


def _scalar_tensor(about: About, s: Any, dtype: Any = None, **placement: Any) -> dict[str, Any]:
    """One number is an f32 whatever it is, where `full` goes by its category."""
    return {"s": s, "dtype": "f32" if dtype is None else dtype, **placement}


def _product(rank: int, about: About, self: Any, mat2: Any) -> dict[str, Any]:
    """`matmul` takes tensors of more axes, and broadcasts them."""
    batches = []
    for name, x in (("self", self), ("mat2", mat2)):
        known = about(x)
        if known is not None and len(known[1]) != rank:
            raise Refused(f"`{name}` must have rank {rank}, it has {len(known[1])}")
        if known is not None:
            batches.append(known[1][:-2])
    if len(batches) == 2 and batches[0] != batches[1]:
        raise Refused(f"`self` is a batch of {batches[0][0]}, `mat2` of {batches[1][0]}")
    return {"self": self, "mat2": mat2}


def _any(about: About, self: Any, dim: Any = None, keepdim: bool = False) -> dict[str, Any]:
    """No dim at all is every dim, as for other reductions; a list of none reduces nothing here, and only here."""
    if isinstance(dim, list | tuple) and not dim:
        raise Refused("`dim` names no axis: PyTorch reduces nothing then, the operator all axes")
    return {"self": self, "dim": dim, "keepdim": keepdim}


def _positive(value: Any, least: float) -> bool:
    """Whether a number that is known is at least so much; a program's may be an expression."""
    known = value if isinstance(value, int | float) else getattr(value, "value", None)
    return known is None or known >= least


def planes(about: About, name: str, x: Any, n: int, channels: bool = False) -> None:
    """Windows over `n` axes walk a picture of channels, or a batch of them; `channels`: there is at least one."""
    known = about(x)
    if known is not None and len(known[1]) not in (n + 1, n + 2):
        raise Refused(f"`{name}` must have rank {n + 1} or {n + 2}, it has {len(known[1])}")
    alone = known is not None and channels and len(known[1]) == n + 1
    if known is not None and any(_extent(e) == 0 for e in known[1][0 if alone else 1 :]):
        raise Refused(f"`{name}` of shape {list(known[1])} has nothing to walk: only a batch may be empty")


def _windows(
    about: About,
    x: Any,
    n: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
) -> dict[str, Any]:
    """Windows over `n` axes; without a stride they lie side by side."""
    planes(about, "self", x, n, channels=True)
    side_by_side = not isinstance(stride, int) and not len(stride)
    if not all(_positive(p, 0) for p in ints(padding, n)):
        raise Refused(f"`padding` must not be negative, it is {padding}")
    return {
        "kernel_size": ints(kernel_size, n),
        "stride": ints(kernel_size if side_by_side else stride, n),
        "padding": ints(padding, n),
    }


def _extent(n: Any) -> int | None:
    """An extent, where it is known before the call: a program's may be an expression."""
    return n if isinstance(n, int) else getattr(n, "value", None)


def _within(about: About, x: Any, windows: dict[str, Any]) -> dict[str, Any]:
    """Windows that are rounded up (`ceil_mode`) and reach beyond the padded axis end with it: nobody walks the rest,
    which is the most of a window that a model's config gives for images of any size."""
    known = about(x)
    kernel = list(windows["kernel_size"])
    extents = known[1][-len(kernel) :] if known is not None else ()
    for k, (n, stride, padding) in enumerate(
        zip(extents, windows["stride"], windows["padding"], strict=False)
    ):
        extent = _extent(n)
        if extent is None or not all(isinstance(v, int) for v in (kernel[k], stride, padding)):
            continue
        whole = extent + 2 * padding
        if whole < kernel[k] < whole + stride:  # else there is no window at all
            kernel[k] = whole
    return {**windows, "kernel_size": kernel}


def _fitting(
    about: About, x: Any, windows: dict[str, Any], ceil_mode: bool, dilation: Sequence[int] = ()
) -> None:
    """At least one window lies within each padded axis, as far as extents are known."""
    known = about(x)
    kernel = windows["kernel_size"]
    extents = known[1][-len(kernel) :] if known is not None else ()
    for k, n in enumerate(extents):
        step = dilation[k] if dilation else 1
        size, stride, padding = kernel[k], windows["stride"][k], windows["padding"][k]
        have = _extent(n)
        if have is None or not all(isinstance(v, int) for v in (size, stride, padding, step)):
            continue
        if step < 1:
            raise Refused(f"`dilation` must be at least 1, it is {step}")
        spare = have + 2 * padding - step * (size - 1) - 1
        if spare + (max(stride - 1, 0) if ceil_mode else 0) < 0:
            raise Refused(f"a window of {size} does not fit into {have}, padded by {padding} on both sides")


def avg_pool(
    n: int,
    about: About,
    self: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> dict[str, Any]:
    """A list for each of the `n` axes; no divisor but the window's own."""
    if divisor_override is not None:
        raise Refused("`divisor_override` must be None")
    windows = _windows(about, self, n, kernel_size, stride, padding)
    _fitting(about, self, windows, ceil_mode)
    return {
        "self": self,
        **(_within(about, self, windows) if ceil_mode else windows),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "divisor_override": None,
    }


def max_pool(
    n: int,
    about: About,
    self: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> dict[str, Any]:
    """A list for each of the `n` axes."""
    lists = {**_windows(about, self, n, kernel_size, stride, padding), "dilation": ints(dilation, n)}
    _fitting(about, self, lists, ceil_mode, lists["dilation"])
    return {"self": self, **lists, "ceil_mode": ceil_mode}


def shorter(output_padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> None:
    """What is added behind a transposed convolution is less than a step of it."""
    if not all(p < s or p < d for p, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise Refused(
            f"`output_padding` {list(output_padding)} must be below `stride` {list(stride)} or "
            f"`dilation` {list(dilation)} along every axis"
        )


def _convolution(
    about: About,
    input: Any,
    weight: Any,
    bias: Any,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
) -> dict[str, Any]:
    """A list for each axis of a window: "valid" is a padding of one 0."""
    _, shape = about(weight) or ("", ())
    n = len(shape) - 2
    if transposed:
        shorter(ints(output_padding, n), ints(stride, n), ints(dilation, n))
    return {
        "input": input,
        "weight": weight,
        "bias": bias,
        "stride": ints(stride, n),
        "padding": ints(padding, n),
        "dilation": ints(dilation, n),
        "transposed": transposed,
        "output_padding": ints(output_padding, n),
        "groups": groups,
    }


def _pow(about: About, self: Any, exponent: Any) -> dict[str, Any]:
    known = about(self)
    whole = known is not None and known[0] in ("bool", "u8", "i8", "i16", "i32", "i64")
    if whole and isinstance(exponent, int) and exponent < 0:
        raise Refused(f"integers have no integer power below 0: `exponent` is {exponent}")
    return {"self": self, "exponent": exponent}


def _softshrink(about: About, self: Any, lambd: float = 0.5) -> dict[str, Any]:
    if not _positive(lambd, 0):
        raise Refused(f"`lambd` must not be negative, it is {lambd}")
    return {"self": self, "lambd": lambd}


def _renorm(about: About, self: Any, p: float, dim: int, maxnorm: float) -> dict[str, Any]:
    known = about(self)
    if known is not None and len(known[1]) < 2:
        raise Refused(f"`self` must have at least two axes, it has {len(known[1])}")
    if not p > 0:
        raise Refused(f"`p` must be above 0, it is {p}")
    if not maxnorm >= 0:
        raise Refused(f"`maxnorm` must not be negative, it is {maxnorm}")
    return {"self": self, "p": p, "dim": dim, "maxnorm": maxnorm}


def _arange(names: Sequence[str], about: About, *args: Any, **more: Any) -> dict[str, Any]:
    """In an integer dtype narrower than i64 PyTorch counts by the numbers as they are, then cuts them off."""
    given = {**dict(zip(names, args, strict=False)), **more}
    start, end, step = given.get("start", 0), given.get("end"), given.get("step", 1)
    numbers = all(isinstance(v, int | float) for v in (start, end, step))
    narrow = str(given.get("dtype")).removeprefix("torch.") in _NARROW
    if not narrow or not numbers or all(isinstance(v, int) for v in (start, end, step)):
        return given
    if not step or not math.isfinite(count := (end - start) / step) or count < 0:
        return given  # the operator says what is wrong
    first, by = int(start), int(step)
    if by == 0:
        raise Refused(f"a step of {step} is none in an integer dtype")
    given["end"] = first + math.ceil(count) * by
    return given | ({"start": first} if "start" in given else {}) | ({"step": by} if "step" in given else {})


_NARROW = ("int32", "int16", "int8", "uint8", "i32", "i16", "i8", "u8")

RULES: dict[str, Rule] = {
    "aten.all.dims": _any,
    "aten.any.dims": _any,
    "aten.arange.default": partial(_arange, ("end",)),
    "aten.arange.start": partial(_arange, ("start", "end")),
    "aten.arange.start_step": partial(_arange, ("start", "end", "step")),
    "aten.avg_pool2d.default": partial(avg_pool, 2),
    "aten.avg_pool3d.default": partial(avg_pool, 3),
    "aten.bmm.default": partial(_product, 3),
    "aten.convolution.default": _convolution,
    "aten.hardtanh.default": _hardtanh,
    "aten.max_pool2d_with_indices.default": partial(max_pool, 2),
    "aten.max_pool3d_with_indices.default": partial(max_pool, 3),
    "aten.native_layer_norm.default": _layer_norm,
    "aten.mm.default": partial(_product, 2),
    "aten.pow.Tensor_Scalar": _pow,
    "aten.renorm.default": _renorm,
    "aten.rms_norm.default": _rms_norm,
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.softshrink.default": _softshrink,
    "aten.sort.stable": _sort,
}
