"""From shapes and attributes to extents: where each dim of a tensor sits, what each named extent is, what is refused.

Refusals carry the same kinds as a kernel's status (runtime/include/opwright/abi.h), so that the judge can ask a kernel
for the error that the oracle found.

May import: numpy, values, generator.{bound, expr, types, errors}.  To add a way to derive an extent: `Extents.solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..generator.bound import BoundOp, Dim, DimUse, Rule, Tensor
from ..generator.errors import JudgedError
from ..generator.expr import Expr, Name, walk
from .values import Array

__all__ = ["Extents", "OracleError", "OracleRefusal", "OracleTooLarge", "Shape"]

Shape = tuple[int, ...]


class OracleError(JudgedError):
    """The oracle met something that a verified program never contains, such as an element that nothing wrote."""


class OracleTooLarge(JudgedError):
    """More points than dense evaluation takes on."""


class OracleRefusal(JudgedError):
    """The operator refuses the call.

    kind   require | data | shape | rank | axis | index (the statuses of the call convention)
    which  the rule's position among the operator's rules, -1 when it is none of them
    """

    def __init__(self, kind: str, message: str, *, which: int = -1) -> None:
        super().__init__(message)
        self.kind = kind
        self.which = which


@dataclass
class Placed:
    """A tensor's physical axes in terms of its logical ones.

    source  for each physical axis the logical axis that lies there; -1: an axis of extent 1 that no index addresses
    ranks   how many axes each entry of `dims` has (those of `keep` included)
    """

    source: tuple[int, ...]
    ranks: tuple[int, ...]

    def logical(self, x: Array, extra: int = 0) -> Array:
        """A physical array with its axes in logical order (`extra` trailing axes stay)."""
        order = sorted((s, k) for k, s in enumerate(self.source) if s >= 0)
        dropped = tuple(k for k, s in enumerate(self.source) if s < 0)
        keep = [k for _, k in order]
        moved = np.transpose(x, [*dropped, *keep, *range(len(self.source), len(self.source) + extra)])
        return moved.reshape(moved.shape[len(dropped) :])

    def physical(self, x: Array, extra: int = 0) -> Array:
        """A logical array with its axes where the tensor has them, axes of extent 1 put in: the inverse."""
        n = len(self.source)
        present = [s for s in self.source if s >= 0]
        moved = np.transpose(x, [*present, *range(len(present), len(present) + extra)])
        for k in range(n):
            if self.source[k] < 0:
                moved = np.expand_dims(moved, k)
        return moved

    def physical_shape(self, logical: Shape) -> Shape:
        return tuple(1 if s < 0 else logical[s] for s in self.source)


def pack_name(use: DimUse) -> str:
    assert isinstance(use.extent, Name)
    return use.extent.id


@dataclass
class Extents:
    """All extents of one call.  `scalar` evaluates an expression of rank 0 over dims, attributes and, late, data."""

    op: BoundOp
    attrs: Mapping[str, Any]
    scalar: Callable[[Expr], Any]
    dims: dict[str, int] = field(default_factory=dict)
    packs: dict[str, Shape] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # logical shape of every tensor

    # ------------------------------------------------------------------------------------------ inputs
    def solve_shapes(self, physical: Mapping[str, Shape], check: Callable[[int, Rule], None]) -> None:
        """What shapes and attributes tell, in the order of a kernel's host code: inputs, rules as soon as they can be
        asked, derived extents.  check(position, rule) raises the refusal of a rule.
        """
        self._ranks(physical)
        self._sources(physical)
        pending = {k: r for k, r in enumerate(self.op.rules) if not r.data}

        def ask() -> None:
            for k, r in list(pending.items()):
                if self._known(r.expr):
                    del pending[k]
                    check(k, r)

        ask()
        for d in self.op.dims:
            if d.expr is not None and not d.data:
                self._derive(d)
                ask()
        self._expanded(physical)

    def solve_data(
        self,
        physical: Mapping[str, Shape],
        check: Callable[[int, Rule], None],
        out_shapes: Mapping[str, Shape],
    ) -> None:
        """The rest, which may read inputs: rules over data, `sizes`, and the shapes of outputs and temporaries."""
        early = {k for k, r in enumerate(self.op.rules) if not r.data and self._known(r.expr)}
        for k, r in enumerate(self.op.rules):
            if r.data:
                check(k, r)
        for d in self.op.dims:
            if d.data:
                self._derive(d)
        for k, r in enumerate(self.op.rules):
            if not r.data and k not in early:
                check(k, r)
        for t in self.op.outputs:
            self._output(t, physical, out_shapes.get(t.name))
        for t in self.op.temps:
            self.shapes[t.name] = physical[t.like] if t.like is not None else self.logical_shape(t.dims)

    def _known(self, x: Expr) -> bool:
        for n in walk(x):
            if isinstance(n, Name) and n.kind == "dim" and n.id not in self.dims:
                return False
            if isinstance(n, Name) and n.kind == "pack" and n.id not in self.packs:
                return False
        return True

    def axes_of(self, attr: str) -> tuple[int, ...] | None:
        """The axes that an attribute names; None: all of them."""
        value = self.attrs.get(attr)
        if value is None:
            return None
        if isinstance(value, (int, np.integer)):
            return (int(value),)
        found = tuple(int(v) for v in value)
        return None if not found and any(a.name == attr and a.empty_all for a in self.op.attrs) else found

    def _ranks(self, physical: Mapping[str, Shape]) -> None:
        """The rank of every pack, and from it the placement of every input."""
        known: dict[str, int] = {}
        for d in self.op.dims:
            if d.pack and d.rank is not None:
                known[d.name] = int(self.scalar(d.rank))
        todo = [t for t in self.op.inputs if not t.expand]
        while todo:
            progress = False
            for t in list(todo):
                ranks = self._entry_ranks(t, len(physical[t.name]), known)
                if ranks is None:
                    continue
                progress = True
                todo.remove(t)
                for use, r in zip(t.dims, ranks, strict=True):
                    if use.pack and not self.is_broadcast(pack_name(use)):
                        known.setdefault(pack_name(use), r)
                self.placed[t.name] = self.place(t, ranks, len(physical[t.name]))
            if not progress:
                raise OracleError(f"{self.op.name}: the rank of `{todo[0].name}`'s packs cannot be told")

    def is_broadcast(self, pack: str) -> bool:
        return any(d.name == pack and d.broadcast for d in self.op.dims)

    def spreads(self, pack: str) -> bool:
        """Whether an index may be larger than this pack: it broadcasts, or is one input's share of one that does."""
        joint = {s for d in self.op.dims if d.broadcast for s in d.sources}
        return any(d.name == pack and (d.broadcast or joint & set(d.sources)) for d in self.op.dims)

    def _entry_ranks(self, t: Tensor, rank: int, known: Mapping[str, int]) -> tuple[int, ...] | None:
        ranks: list[int | None] = []
        for use in t.dims:
            if not use.pack and not (use.keep and use.at is not None):
                ranks.append(1)
            elif use.at is not None:  # of an axis put back, too, there are as many as the attribute names
                axes = self.axes_of(use.at)
                ranks.append(None if axes is None else len(axes))
            elif self.is_broadcast(pack_name(use)):
                ranks.append(None)
            else:
                ranks.append(known.get(pack_name(use)))
        fixed = sum(r for r in ranks if r is not None)
        open_ = [k for k, r in enumerate(ranks) if r is None]
        if len(open_) > 1:
            # `T[*B, *N@dim]` with all axes named: nothing is left for *B
            whole = [k for k in open_ if t.dims[k].at is not None]
            if len(whole) != 1:
                return None
            for k in open_:
                ranks[k] = 0 if k != whole[0] else rank - fixed
        elif open_:
            ranks[open_[0]] = rank - fixed
        out = tuple(-1 if r is None else r for r in ranks)
        if any(r < 0 for r in out) or sum(out) != rank:
            least = sum(1 for u in t.dims if not u.pack)
            raise OracleRefusal(
                "rank",
                f"{self.op.name}: input `{t.name}` of rank {rank} does not fit "
                f"(at least {least}, {fixed} of it fixed)",
            )
        return out

    def place(self, t: Tensor, ranks: Sequence[int], total: int) -> Placed:
        """Physical positions of a tensor's dims; refuses axes that are out of range or named twice."""
        at: dict[int, int] = {}  # physical position -> logical axis
        logical = 0
        starts: list[int] = []
        for use, r in zip(t.dims, ranks, strict=True):
            starts.append(logical)
            logical += 0 if use.keep else r
        for k, use in enumerate(t.dims):
            if use.at is None:
                continue
            axes = self.axes_of(use.at)
            named = range(total) if axes is None else axes
            positions: list[int] = []
            for a in named:
                if not -total <= a < total:
                    raise OracleRefusal(
                        "axis",
                        f"{self.op.name}: `{use.at}` = {a} is out of range for rank {total} (`{t.name}`)",
                    )
                p = a % total
                if p in at or p in positions:
                    raise OracleRefusal("axis", f"{self.op.name}: `{use.at}` names axis {p} twice")
                positions.append(p)
            # A set of axes is walked in the order of the tensor, however it is written.
            for j, p in enumerate(sorted(positions)):
                at[p] = -1 if use.keep else starts[k] + j
        rest = [
            starts[k] + j if not use.keep else -1
            for k, (use, r) in enumerate(zip(t.dims, ranks, strict=True))
            if use.at is None
            for j in range(r)
        ]
        source = []
        for p in range(total):
            source.append(at[p] if p in at else rest.pop(0))
        return Placed(tuple(source), tuple(ranks))

    def _sources(self, physical: Mapping[str, Shape]) -> None:
        """Named extents from the shapes of inputs; all sources must agree (or broadcast)."""
        for t in self.op.inputs:
            if not t.expand:
                shape = physical[t.name]
                self._put_back(t, shape)
                pairs = sorted((s, shape[p]) for p, s in enumerate(self.placed[t.name].source) if s >= 0)
                self.shapes[t.name] = tuple(e for _, e in pairs)
        for d in self.op.dims:
            if d.expr is not None:
                continue
            found: list[tuple[Shape, str]] = []
            for name, position in d.sources:
                if self.op.tensor(name).expand:
                    continue
                start, count = self.span(name, position)
                found.append((self.shapes[name][start : start + count], name))
            if d.pack and d.broadcast:
                try:
                    self.packs[d.name] = np.broadcast_shapes(*(s for s, _ in found))
                except ValueError:
                    shapes = ", ".join(f"{list(s)} (`{n}`)" for s, n in found)
                    raise OracleRefusal("shape", f"{self.op.name}: {shapes} do not broadcast") from None
                continue
            first, origin = found[0]
            for s, name in found[1:]:
                if s != first:
                    raise OracleRefusal(
                        "shape",
                        f"{self.op.name}: {d.name} is {_plain(first)} in `{origin}` and "
                        f"{_plain(s)} in `{name}`",
                    )
            if d.pack:
                self.packs[d.name] = first
            else:
                self.dims[d.name] = first[0]

    def _put_back(self, t: Tensor, shape: Shape) -> None:
        """Axes that no index addresses have extent 1."""
        wrong = [e for e, s in zip(shape, self.placed[t.name].source, strict=True) if s < 0 and e != 1]
        if wrong:
            raise OracleRefusal(
                "shape",
                f"{self.op.name}: `{t.name}` is {list(shape)}, an axis of {wrong[0]} should have extent 1",
            )

    def span(self, tensor: str, position: int) -> tuple[int, int]:
        """First logical axis and number of axes of entry `position` of a tensor's dims."""
        t = self.op.tensor(tensor)
        ranks = self.placed[tensor].ranks
        start = sum(r for u, r in zip(t.dims[:position], ranks[:position], strict=True) if not u.keep)
        return start, ranks[position]

    # ------------------------------------------------------------------------------------------ the rest
    def _derive(self, d: Dim) -> None:
        assert d.expr is not None
        if d.pack:
            if isinstance(d.expr, Name) and d.expr.id in self.packs:
                self.packs[d.name] = self.packs[d.expr.id]
            elif isinstance(d.expr, Name) and d.expr.id in self.attrs:
                self.packs[d.name] = tuple(int(v) for v in self.attrs[d.expr.id])
            else:
                raise OracleError(f"{self.op.name}: pack `{d.name}` has no extents")
            return
        value = int(self.scalar(d.expr))
        if value < 0:
            raise OracleRefusal("shape", f"{self.op.name}: extent {d.name} would be {value}")
        self.dims[d.name] = value

    def extent(self, x: Expr) -> int:
        """A scalar extent; refuses negative ones."""
        if isinstance(x, Name) and x.kind == "dim":
            return self.dims[x.id]
        value = int(self.scalar(x))
        if value < 0:
            raise OracleRefusal("shape", f"{self.op.name}: an extent would be {value}")
        return value

    def entry(self, use: DimUse) -> Shape:
        """The extents of one entry of a tensor's dims."""
        if use.keep:
            return ()
        return self.packs[pack_name(use)] if use.pack else (self.extent(use.extent),)

    def logical_shape(self, dims: Sequence[DimUse]) -> Shape:
        return tuple(e for use in dims for e in self.entry(use))

    def _expanded(self, physical: Mapping[str, Shape]) -> None:
        """`expand` inputs: any shape that broadcasts to the declared one."""
        for t in self.op.inputs:
            whole = self.logical_shape(t.dims)
            if not t.expand:
                # an extent that an input states by an expression is checked
                if self.shapes[t.name] != whole and not any(
                    u.pack and self.is_broadcast(pack_name(u)) for u in t.dims
                ):
                    raise OracleRefusal(
                        "shape",
                        f"{self.op.name}: `{t.name}` is {list(self.shapes[t.name])}, expected {list(whole)}",
                    )
                continue
            have = physical[t.name]
            try:
                fits = np.broadcast_shapes(have, whole) == whole
            except ValueError:
                fits = False
            if not fits:
                raise OracleRefusal(
                    "shape",
                    f"{self.op.name}: `{t.name}` of shape {list(have)} does not broadcast to {list(whole)}",
                )
            self.shapes[t.name] = whole
            self.placed[t.name] = Placed(tuple(range(len(whole))), tuple(len(self.entry(u)) for u in t.dims))

    def _output(self, t: Tensor, physical: Mapping[str, Shape], given: Shape | None) -> None:
        if t.like is not None:
            given = physical[t.like]
        if t.expand or any(u.pack and not u.keep and self.is_broadcast(pack_name(u)) for u in t.dims):
            # The adjoint of an input that broadcasts has that input's own shape.
            if given is None and self.op.name.endswith(".grad"):
                given = physical.get(t.name.removeprefix("d"))
            if given is not None:
                self._given(t, given)
                return
        ranks = []
        for use in t.dims:
            if use.keep:
                if use.pack:
                    ranks.append(len(self.packs[pack_name(use)]))
                elif use.at is None:
                    ranks.append(1)
                else:
                    axes = self.axes_of(use.at)
                    ranks.append(self._all_axes(use) if axes is None else len(axes))
            else:
                ranks.append(len(self.entry(use)))
        self.placed[t.name] = self.place(t, ranks, sum(ranks))
        self.shapes[t.name] = self.logical_shape(t.dims)

    def _given(self, t: Tensor, shape: Shape) -> None:
        if t.expand:
            self.placed[t.name] = Placed(tuple(range(len(shape))), ())
            self.shapes[t.name] = shape
            return
        fixed = sum(1 for u in t.dims if not u.pack)
        ranks = tuple(len(shape) - fixed if u.pack else 1 for u in t.dims)
        self.placed[t.name] = self.place(t, ranks, len(shape))
        pairs = sorted((s, shape[p]) for p, s in enumerate(self.placed[t.name].source))
        self.shapes[t.name] = tuple(e for _, e in pairs)

    def _all_axes(self, use: DimUse) -> int:
        """How many axes `None` names: all those of the input whose dims the same attribute moves."""
        for t in self.op.inputs:
            for u, r in zip(t.dims, self.placed[t.name].ranks, strict=True):
                if u.at == use.at:
                    return r
        raise OracleError(f"{self.op.name}: nothing says how many axes `{use.at}` names")

    def output_shape(self, name: str) -> Shape:
        """The physical shape of an output."""
        return self.placed[name].physical_shape(self.shapes[name])


def _plain(shape: Shape) -> str:
    return str(shape[0]) if len(shape) == 1 else str(list(shape))
