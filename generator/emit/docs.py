"""The page of an operator: what it computes, how it is called, what it is elsewhere.

May import: skeleton, spec, expr.
"""

from __future__ import annotations

from ..expr import show
from ..spec import AttrDecl, OpSpec
from .skeleton import fill, origin

__all__ = ["call_text", "page_name", "print_page"]


def page_name(spec: OpSpec) -> str:
    """`softmax.md`."""
    return f"{spec.op.replace('::', '_')}.md"


def call_text(spec: OpSpec) -> str:
    """`y = ow.ops.softmax(x, axis=-1)`."""
    args = [f"[{n}, …]" if t.is_list else f"{n}=None" if t.optional else n for n, t in spec.inputs.items()]
    args += [a.name + (f"={_default(a)}" if a.has_default or a.optional else "") for a in spec.attrs.values()]
    outs = ", ".join(n for n, t in spec.outputs.items() if not t.aux)
    name = spec.op if "::" not in spec.op else spec.op.replace("::", ".")
    return f"{outs} = ow.ops.{name}({', '.join(args)})"


def _default(a: AttrDecl) -> str:
    if a.default_expr is not None:
        return show(a.default_expr)
    return repr(list(a.default) if isinstance(a.default, tuple) else a.default)


def _kind(a: AttrDecl) -> str:
    kind = f"one of {', '.join(a.values)}" if a.kind == "enum" else a.kind
    return f"optional {kind}" if a.optional else kind


def _gradient(spec: OpSpec) -> str:
    g = spec.grad
    if g is None:
        return ""
    if g.none is not None:
        return f"None: {g.none}"
    names = ", ".join(f"`{n}`" for n in g.wrt)
    how = (
        "declared, and compared with the derived one"
        if g.against_derive
        else "declared"
        if g.compute is not None
        else "derived"
    )
    return f"With respect to {names}, {how}."


def print_page(spec: OpSpec) -> str:
    """The text of `<op>.md`."""
    return fill(
        "page.md.j2",
        op=spec.op,
        doc=spec.doc,
        origin=origin(spec),
        call=call_text(spec),
        types=[(n, f"`{show(t)}`") for n, t in spec.types.items()],
        inputs=[(n, t.show()) for n, t in spec.inputs.items()],
        attrs=[
            (a.name, _kind(a), f"`{_default(a)}`" if a.has_default or a.default_expr else "")
            for a in spec.attrs.values()
        ],
        outputs=[(n, t.show()) for n, t in spec.outputs.items()],
        compute=spec.compute_text.rstrip("\n"),
        require=[r.text for r in spec.require],
        grad=_gradient(spec),
        aten=[e.overload for e in spec.aten],
        onnx=[e.op for e in spec.onnx],
    )
