"""What stands in for parts of torch while a model is exported: the same numbers, of what a graph can hold.

    with standing_in(torch):
        torch.export.export(…)

    checks        a test of what tensors hold that only raises or warns is no part of what is computed: it passes; so
                  does one whether a mask holds anywhere, before what is done where it does
    recurrences   layers over all steps as one call, where torch writes a step out for each
    loops         over the places where something holds (`for k in mask.nonzero()`), as over all places: where nothing
                  holds, what such a loop gathers is empty; parity says whether that is so
    functions     those that look at what tensors hold before they compute, by the same formula without the look
    sequences     packed ones as rows with lengths (packed.py)
    attention     flex_attention's score function, as arithmetic on the scores

May import: packed; torch's own modules, inside functions.  To add a function: a line in `_functions`.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import linecache
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from types import FrameType
from typing import Any, TypeAlias

from .packed import packed

__all__ = ["OURS", "RECURRENT", "but_the_last_place", "standing_in"]


def _conversion(torch: Any) -> Any:
    """`Module.to` that leaves a module alone which is there already: weights cannot be replaced while exporting."""
    plain = torch.nn.Module.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        held = [*self.parameters(), *self.buffers()]
        there = all(
            (device is None or t.device == device)
            and (dtype is None or t.dtype == dtype or not (t.is_floating_point() or t.is_complex()))
            for t in held
        )
        return self if layout is None and there else plain(self, *args, **kwargs)

    return to


@contextmanager
def standing_in(torch: Any) -> Iterator[None]:
    """Nothing of torch is changed afterwards."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
    from torch.nn.modules import transformer

    flex = importlib.import_module("torch.nn.attention.flex_attention")

    tensor, number = torch.Tensor.__bool__, torch.SymBool.__bool__

    def of_tensor(x: Any) -> bool:
        passes = _passes(sys._getframe(1))
        return bool(tensor(x)) if passes is None else passes

    def of_number(x: Any) -> bool:
        """Extents are asked: their checks hold for the graph.  What only a call knows is not."""
        try:
            return bool(number(x))
        except GuardOnDataDependentSymNode:
            passes = _passes(sys._getframe(1))
            if passes is None:
                raise
            return passes

    kind = torch.distributions.Distribution
    with ExitStack() as stack:
        # A distribution does not look at its parameters.
        stack.callback(kind.set_default_validate_args, kind._validate_args)
        kind.set_default_validate_args(False)
        for owner, name, value in (
            (torch.Tensor, "__bool__", of_tensor),
            (torch.SymBool, "__bool__", of_number),
            *_functions(torch),
            (torch.nn.Module, "to", _conversion(torch)),
            # Whether a mask is causal only chooses the kernel: the mask is given to it as well.
            (
                transformer,
                "_detect_is_causal_mask",
                lambda mask, is_causal=None, size=None: is_causal is True,
            ),
            (
                transformer.TransformerEncoder,
                "forward",
                _encoder(torch, transformer.TransformerEncoder.forward),
            ),
            *_loops(torch),
            *packed(torch),
            *_masks(torch),
            (flex, "flex_attention_hop", partial(_flex_attention, torch)),
            (flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),
        ):
            stack.callback(_put_back, owner, name, vars(owner).get(name))
            setattr(owner, name, value)
        yield


def _put_back(owner: Any, name: str, value: Any) -> None:
    if value is None:  # it was inherited
        delattr(owner, name)
    else:
        setattr(owner, name, value)


# ------------------------------------------------------------------------------------------------- checks


def _passes(frame: FrameType | None) -> bool | None:
    """What a tensor's truth must be for the check that asks for it to pass; None: it is asked for another reason."""
    if frame is None:
        return None
    code = frame.f_code
    # What comes before the jump made the operand; the jump itself stands for the whole test.
    before = max(frame.f_lasti // 2 - 1, 0)
    first, last, start, end = next(itertools.islice(code.co_positions(), before, None))
    if first is None or last is None or start is None or end is None:
        return None
    asked = (first, start), (last, end)
    wanted = {truth for low, high, truth in _operands(code.co_filename) if low < asked[1] and asked[0] < high}
    return wanted.pop() if len(wanted) == 1 else None


_Spot: TypeAlias = "tuple[int, int]"


@cache
def _operands(file: str) -> tuple[tuple[_Spot, _Spot, bool | None], ...]:
    """What a source file tests: (start, end, the truth that lets the test pass, or None where it chooses)."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    out: list[tuple[_Spot, _Spot, bool | None]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test):
                wanted: bool | None = True
            case ast.If(test=test, body=body, orelse=other):
                wanted = False if _only_says(body) or _only_skips(test, body) else None
                wanted = True if not other and _only_where(test, body) else wanted
            case ast.While(test=test) | ast.IfExp(test=test):
                wanted = None
            case _:
                continue
        for x, truth in _leaves(test, wanted):
            out.append(((x.lineno, x.col_offset), (x.end_lineno or 0, x.end_col_offset or 0), truth))
    return tuple(out)


def _only_says(body: list[ast.stmt]) -> bool:
    """Raises in the end, or does nothing but warn."""
    return isinstance(body[-1], ast.Raise) or all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and isinstance(s.value.func, ast.Attribute)
        and s.value.func.attr in ("warn", "warning", "warning_once")
        for s in body
    )


def _mask_of(test: ast.expr) -> str:
    """`X.any()` and `torch.any(X)` → X's text."""
    match test:
        case ast.Call(func=ast.Attribute(value=x, attr="any"), args=[]):
            return ast.unparse(x)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="any"), args=[x]):
            return ast.unparse(x)
    return ""


def _only_where(test: ast.expr, body: list[ast.stmt]) -> bool:
    """Writes nowhere but where the mask holds that is asked for: where none does, that is nothing."""
    mask = _mask_of(test)

    def masked(s: ast.stmt) -> bool:
        match s:
            case (
                ast.Assign(targets=[ast.Subscript(slice=at)]) | ast.AugAssign(target=ast.Subscript(slice=at))
            ):
                return ast.unparse(at) == mask
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=how), args=[m, _])):
                return how in ("masked_fill_", "masked_scatter_") and ast.unparse(m) == mask
            case ast.Assign(
                targets=[ast.Name(id=x)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=y), attr="masked_fill"), args=[m, _]),
            ):
                return x == y and ast.unparse(m) == mask
        return False

    return bool(mask) and all(map(masked, body))


def _only_skips(test: ast.expr, body: list[ast.stmt]) -> bool:
    """`if not mask.any(): mask = None`: what holds nowhere need not be looked at, and may be; `if not len(places):
    continue`: so may what is empty."""
    match test, body:
        case ast.Compare(left=extent, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]), [ast.Continue()]:
            return re.search(r"\.(numel|size)\(|\.shape\[|^len\(", ast.unparse(extent)) is not None
        case (
            ast.UnaryOp(op=ast.Not(), operand=asked),
            [ast.Assign(targets=[ast.Name(id=x)], value=ast.Constant(value=None))],
        ):
            return x == _mask_of(asked)
    return False


def _leaves(test: ast.expr, wanted: bool | None) -> Iterator[tuple[ast.expr, bool | None]]:
    """The operands of a test, each with the truth that it must have for the test to have the wanted one."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=x):
            yield from _leaves(x, None if wanted is None else not wanted)
        case ast.BoolOp(values=values):
            for v in values:
                yield from _leaves(v, wanted)
        case _:
            yield test, wanted


# ------------------------------------------------------------------------------------------------- loops

#: More places are no list of parts to go through one by one.
_MOST = 256


#: How many of the last places no loop goes to.
_LEFT_OUT: ContextVar[int] = ContextVar("_LEFT_OUT", default=0)


@contextmanager
def but_the_last_place() -> Iterator[None]:
    """Loops over places leave out the last: where parts are counted from 0 and one number more says "none", a module
    would not run if anything chose that."""
    before = _LEFT_OUT.set(1)
    try:
        yield
    finally:
        _LEFT_OUT.reset(before)


class _Place(list[int]):
    """A row of `nonzero()` of one axis: the number of a place, as an index and in comparisons."""

    def item(self) -> int:
        return self[0]

    def __index__(self) -> int:
        return self[0]

    __int__ = __index__

    def squeeze(self, *_: int) -> int:
        return self[0]


def _loops(torch: Any) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    whole: dict[int, tuple[Any, int]] = {}  # what nonzero() gave (it stays alive) → of how many places
    plain_iter = torch.Tensor.__iter__

    def remembering(plain: Callable[..., Any]) -> Callable[..., Any]:
        def nonzero(x: Any, **options: Any) -> Any:
            out = plain(x, **options)
            if isinstance(out, torch.Tensor) and x.dim() == 1 and type(x.shape[0]) is int:
                whole[id(out)] = out, x.shape[0]
            return out

        return nonzero

    def over_places(x: Any) -> Iterator[Any]:
        of = whole.get(id(x))
        if of is None or type(x.shape[0]) is int or of[1] > _MOST:
            return iter(plain_iter(x))
        return iter([_Place([k]) for k in range(of[1] - _LEFT_OUT.get())])

    for owner in (torch, torch.Tensor):
        yield owner, "nonzero", remembering(owner.nonzero)
    yield torch.Tensor, "__iter__", over_places


# ------------------------------------------------------------------------------------------------- attention


def _flex_attention(
    torch: Any,
    query: Any,
    key: Any,
    value: Any,
    score_mod: Callable[..., Any],
    block_mask: tuple[Any, ...],
    scale: float,
    options: Any,
) -> tuple[Any, Any, Any]:
    """As torch's own dense form: every score through `score_mod`, those that the mask leaves out at -inf; and, in
    powers of 2, the logarithm of the sum and the greatest score."""
    group = query.shape[1] // key.shape[1]
    key, value = (torch.repeat_interleave(x, group, dim=1) if group > 1 else x for x in (key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * scale
    # Each place along an axis of its own: a function of one score is elementwise on all of them.
    places = [
        torch.arange(n, device=query.device).reshape([-1 if k == axis else 1 for k in range(4)])
        for axis, n in enumerate(scores.shape)
    ]
    scores = score_mod(scores, *places).to(wide).expand(scores.shape)
    seen = block_mask[-1](*places)
    scores = scores.masked_fill(~seen, -math.inf)
    most = scores.amax(-1)
    total = torch.where(most == -math.inf, most, scores.logsumexp(-1))
    out = torch._safe_softmax(scores, -1).to(query.dtype) @ value
    return out, total / math.log(2), most / math.log(2)


def _encoder(torch: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A stack of encoder layers that is not trained passes over what is padded at the ends of rows: 0 is there."""

    def forward(
        self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None
    ) -> Any:
        pad = src_key_padding_mask
        shortened = (
            getattr(self, "use_nested_tensor", False)
            and torch.backends.mha.get_fastpath_enabled()
            and not self.layers[0].training
            and src.dim() == 3
            and pad is not None
            and mask is None
            and not torch.is_autocast_enabled("cpu")
        )
        if not shortened:
            return plain(self, src, mask, pad, is_causal)
        norm, self.norm = self.norm, None
        try:
            out = plain(self, src, mask, pad, is_causal)
        finally:
            self.norm = norm
        left_out = pad if pad.dtype == torch.bool else pad != 0
        if getattr(self, "mask_check", True):
            left_out = left_out & (left_out[:, :-1] <= left_out[:, 1:]).all()
        out = out.masked_fill(left_out.unsqueeze(-1), 0.0)
        return out if norm is None else norm(out)

    return forward


def _masks(torch: Any) -> Iterator[tuple[Any, str, Any]]:
    """transformers maps a mask that is made of several functions over each axis (`vmap`), which leaves marks in the
    graph; a function of indices gives the same for all of them at once, each along an axis of its own."""
    home = sys.modules.get("transformers.masking_utils")
    if home is None or not hasattr(home, "_vmap_expansion_sdpa"):
        return

    def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def at(*indices: Any) -> Any:
            axes = [x.reshape([-1 if k == j else 1 for j in range(4)]) for k, x in enumerate(indices)]
            return function(*axes).expand([x.shape[0] for x in indices])

        return at

    yield home, "_vmap_expansion_sdpa", mapped
    plain = getattr(home, "_ignore_bidirectional_mask_sdpa", None)
    if plain is None:
        return

    def left_out(padding_mask: Any, kv_length: Any, local_attention_size: Any = None) -> Any:
        """Nobody gave a mask and nothing is local: eager makes none, and looks at no tensor to say so."""
        if padding_mask is None and local_attention_size is None:
            return True
        return plain(padding_mask, kv_length, local_attention_size)

    yield home, "_ignore_bidirectional_mask_sdpa", left_out
    yield home, "TransformGetItemToIndex", nullcontext


# ------------------------------------------------------------------------------------------------- recurrences

#: torch's functions of which the steps may vary, and how many states they keep: an operator of one layer means all.
RECURRENT = {"gru": 1, "rnn_tanh": 1, "rnn_relu": 1, "lstm": 2}
#: The namespace of the calls that stand for ATen's: an `opwright.X` means what `aten.X` does.
OURS = "opwright"


def _layers(torch: Any, name: str, plain: Callable[..., Any], *args: Any) -> Any:
    """As a call that no decomposition knows.  Packed sequences and what training draws stay torch's."""
    if len(args) != 9 or not isinstance(args[2], list | tuple):
        return plain(*args)
    x, states, weights, biases, layers, dropout, train, both_ways, _ = args
    projected = len(weights) != (4 if biases else 2) * layers * (2 if both_ways else 1)
    if projected or (train and dropout > 0 and layers > 1):
        return plain(*args)
    _register(torch)
    states = states if RECURRENT[name] == 1 else list(states)
    return getattr(getattr(torch.ops, OURS), name).input(x, states, list(weights), *args[3:])


@cache
def _register(torch: Any) -> Any:
    """The calls' schemas, results as torch computes them, and their extents."""
    library = torch.library.Library(OURS, "FRAGMENT")
    rest = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"

    def extents(x: Any, states: Any, weights: Any, *rest: Any) -> Any:
        states = states if isinstance(states, list | tuple) else [states]
        y = x.new_empty((*x.shape[:2], states[0].shape[2] * (2 if rest[4] else 1)))
        return y, *(torch.empty_like(state) for state in states)

    def computed(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: tuple(t.contiguous() for t in plain(*args))

    for name, kept in RECURRENT.items():
        taken = f"Tensor input, Tensor{'[]' if kept > 1 else ''} hx, {rest}, bool batch_first"
        given = ", ".join(["Tensor"] * (1 + kept))
        library.define(f"{name}.input({taken}) -> ({given})")
        library.impl(
            f"{name}.input", computed(getattr(torch.ops.aten, name).input), "CompositeExplicitAutograd"
        )
        torch.library.register_fake(f"{OURS}::{name}.input", extents, lib=library)
    return library


# ------------------------------------------------------------------------------------------------- functions


def _functions(torch: Any) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """(owner, name, what stands there)."""

    def fill_diagonal_(x: Any, value: Any, wrap: bool = False) -> Any:
        if x.dim() != 2 or wrap:
            return plain_fill(x, value, wrap)
        row, column = (torch.arange(n, device=x.device) for n in x.shape)
        return x.masked_fill_(row.unsqueeze(1) == column, value)

    # Extents become numbers where strides are counted.
    def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Any:
        if dim is None:
            return x.reshape(-1).gather(0, indices.reshape(-1))
        if x.dim() != indices.dim():
            return plain_take(x, indices, dim)
        at = dim % x.dim()
        rest = [*x.shape[:at], *x.shape[at + 1 :]], [*indices.shape[:at], *indices.shape[at + 1 :]]
        joined = list(torch.broadcast_shapes(*rest))
        ours, theirs = ([*joined[:at], t.shape[at], *joined[at:]] for t in (x, indices))
        return x.expand(ours).gather(at, indices.expand(theirs).remainder(x.shape[at]))  # from the end, too

    plain_take = torch.take_along_dim
    yield torch, "take_along_dim", take_along_dim
    yield torch.Tensor, "take_along_dim", take_along_dim
    plain_fill = torch.Tensor.fill_diagonal_
    yield torch.Tensor, "fill_diagonal_", fill_diagonal_

    # Covariances look at the weights of what is observed.
    def cov(x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
        if fweights is not None or aweights is not None or x.dim() > 2:
            return plain_cov(x, correction=correction, fweights=fweights, aweights=aweights)
        rows = x.reshape(1, -1) if x.dim() < 2 else x
        apart = rows - rows.mean(1, keepdim=True)
        out = apart @ apart.conj().T / torch.sym_max(rows.shape[1] - correction, 0)
        return out.squeeze()

    def corrcoef(x: Any) -> Any:
        c = cov(x)
        if c.dim() == 0:
            return c / c
        size = c.diagonal().real.sqrt()
        c = c / size.unsqueeze(1) / size.unsqueeze(0)
        if c.is_complex():
            return torch.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
        return c.clamp(-1, 1)

    # An extent that varies stays one: Python's own functions would make it the example's number.
    def of_extent(plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
        def f(x: Any, *rest: Any) -> Any:
            varies = isinstance(x, torch.SymInt | torch.SymFloat) and not rest
            return symbolic(x) if varies else plain(x, *rest)

        return f

    yield math, "sqrt", of_extent(math.sqrt, torch.sym_sqrt)
    plain_cov = torch.cov
    vf = torch._VF
    for name in RECURRENT:
        yield vf, name, partial(_layers, torch, name, getattr(vf, name))

    # How many there are is counted by a mask.
    def combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
        n = x.shape[0]
        if not isinstance(n, int) or r < 1:
            return plain_combinations(x, r, with_replacement)
        chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows = list(chosen(range(n), r))
        if not rows:
            return x.new_empty(0, r)
        return x[torch.tensor(rows, device=x.device)]

    plain_combinations = torch.combinations
    yield torch, "combinations", combinations

    # How many numbers the residuals are depends on the rank: here it is the full one, as the other drivers have it.
    def lstsq(a: Any, b: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
        m, n = a.shape[-2:]
        vector = b.dim() == a.dim() - 1
        b = b.unsqueeze(-1) if vector else b
        if m >= n:
            q, r = torch.linalg.qr(a)
            x = torch.linalg.solve_triangular(r, q.mH @ b, upper=True)
        else:
            q, r = torch.linalg.qr(a.mH)
            x = q @ torch.linalg.solve_triangular(r.mH, b, upper=False)
        left = (b - a @ x).abs().square().sum(-2) if m > n and driver != "gelsy" else a.new_empty(0)
        rank = torch.full(a.shape[:-2], min(m, n), dtype=torch.int64, device=a.device)
        out = x.squeeze(-1) if vector else x
        return torch.return_types.linalg_lstsq((out, left, rank, a.new_empty(0)))

    yield torch.linalg, "lstsq", lstsq
    for owner in (torch, torch.Tensor):
        yield owner, "cov", cov
        yield owner, "corrcoef", corrcoef
