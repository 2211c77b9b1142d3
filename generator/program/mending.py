"""A configuration that a model's own code refused → the configuration that it asks for.

    for change in widened(error, config):      what a layer was made for, as wide as what came to it
    for change in asked(error, config):        what the line that failed reads of a configuration and does not find
        kwargs = changed(kwargs, config, change)

A field that a class does not declare is looked for in the configurations beside it, then among what its name means
(`shrink.meant`); one that holds nothing gets what its name and its type mean; a dictionary that has no entry for a
kind of layer gets what it says of all layers; a `default_x` that holds nothing is the first of `xs`; a tuple that is
added to a list becomes one; two fields that must agree get one value.

May import: shrink (transformers' objects are used through what all configurations have).  To read another complaint:
a branch in `asked`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from .shrink import meant

__all__ = ["Change", "absent", "agreeing", "asked", "changed", "refused", "widened"]


@dataclass(frozen=True)
class Change:
    """A field of every configuration of a class, and what it gets."""

    kind: type
    field: str
    value: Any


#: (what a name without a meaning of its own looks like, what it gets)
_DEFAULTS: tuple[tuple[str, Any], ...] = (
    (r"eps(ilon)?$", 1e-6),
    (r"dropout|drop_prob|drop_rate|pdrop$|jitter", 0.0),
    (r"^(use|is|has|add|do|with|enable|output|return|tie)_|_bias$", False),
    (r"initializer_(range|std|factor)", 0.02),
    (r"rope_theta|rotary_base", 10000.0),
    (r"token_(id|index)$", 3),
)
#: What a dictionary of layers' kinds says, where it says nothing at all.
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
#: So many of the innermost calls are looked at.
_DEPTH = 6


def asked(error: BaseException, config: Any) -> Iterator[Change]:
    """What would let the line pass that raised `error`, the likeliest first."""
    missing = getattr(error, "obj", None)
    if isinstance(error, AttributeError) and _is_config(missing):
        value = _found(error.name or "", missing, config)
        if value is not None:
            yield Change(type(missing), error.name or "", value)
        return
    for k, (frame, spot) in enumerate(_frames(error.__traceback__)):
        reads = list(_reads(frame, _expression(frame.f_code.co_filename, spot)))
        if k == 0 and not reads:  # it refuses by its own words: by what it looked at before
            reads = [r for test in _guards(frame, spot) for r in _reads(frame, test)]
        for owner, field in reads:
            owner = next((c for c in _all(owner) if hasattr(c, field)), owner)
            value = getattr(owner, field, None)
            if isinstance(value, tuple) and "tuple" in str(error) and "list" in str(error):
                yield Change(type(owner), field, list(value))
            elif value is None:
                guess = _filled(field, owner, config)
                if guess is not None:
                    yield Change(type(owner), field, guess)
            elif isinstance(error, KeyError) and isinstance(value, Mapping) and error.args:
                more = _by_kind(value, str(error.args[0]), owner)
                if more is not None:
                    yield Change(type(owner), field, more)
        if reads:
            return


#: How PyTorch says what a layer was made for, and what came to it.
_WIDTHS = tuple(
    re.compile(said)
    for said in (
        r"shapes cannot be multiplied \(\d+x(?P<now>\d+) and (?P<made>\d+)x\d+\)",
        r"expected input\[.*?\] to have (?P<made>\d+) channels, but got (?P<now>\d+)",
        r"normalized_shape=\[(?P<made>\d+)\], expected .*got input of size\[[\d, ]*?(?P<now>\d+)\]",
    )
)


def widened(error: BaseException, config: Any) -> Iterator[Change]:
    """The fields that hold the width which a layer was made for, with the width that came to it: those first that the
    `__init__` of a module where it happened reads."""
    found = next((m for said in _WIDTHS if (m := said.search(str(error)))), None)
    if found is None:
        return
    made, now = int(found["made"]), int(found["now"])
    owners = [frame.f_locals.get("self") for frame, _ in _frames(error.__traceback__)]
    read = [set(_kept(type(x)).values()) | _named(type(x)) for x in owners if x is not None]
    found_in: list[tuple[int, int, Change]] = []
    for owner in _all(config):
        for field, value in list(vars(owner).items()):
            new: Any = None
            if type(value) is int and value == made:
                new = now
            elif isinstance(value, list | tuple) and made in value and all(type(x) is int for x in value):
                new = type(value)(now if x == made else x for x in value)
            depth = next((k for k, fields in enumerate(read) if field in fields), None)
            if new is not None and depth is not None:
                found_in.append((depth, len(found_in), Change(type(owner), field, new)))
    yield from (change for _, _, change in sorted(found_in, key=lambda x: x[:2]))


def _named(kind: type) -> set[str]:
    """The fields of a configuration that a class's `__init__` speaks of."""
    try:
        return set(re.findall(r"\bconfig\.(\w+)", inspect.getsource(kind.__init__)))  # type: ignore[misc]
    except (OSError, TypeError):
        return set()


def changed(kwargs: Mapping[str, Any], config: Any, change: Change) -> dict[str, Any]:
    """The keyword arguments with which `config` was made, and the change."""
    out = dict(kwargs)
    for path in _paths(config, change.kind):
        if not path:
            out[change.field] = change.value
            continue
        first = path[0]
        own = copy.deepcopy(out.get(first) if _is_config(out.get(first)) else getattr(config, first))
        at = own
        for name in path[1:]:
            at = getattr(at, name)
        setattr(at, change.field, change.value)
        out[first] = own
    return out


def agreeing(kwargs: Mapping[str, Any], message: str) -> dict[str, Any] | None:
    """The keyword arguments with one value where a validation says that two fields must have one (the smaller of two
    numbers), and with the fields that it misses; None where it says something else."""
    lacking, wanted = _LACKING.search(message), _WANTED.search(message)
    if lacking is not None:
        names = re.findall(r"\w+", lacking[1])
        return {**kwargs, **{n: _of_name(n) or 4 for n in names if n not in kwargs}}
    if wanted is not None:
        return {**kwargs, wanted[1]: int(wanted[2])}
    sides = list(_SIDE.finditer(message))[:2]
    if len(sides) < 2 or not _AGREE.search(message):
        return None
    said = [next((int(g) for g in (m["is"], m["was"]) if g and g != "None"), None) for m in sides]
    whole = [
        n for n, m in zip(said, sides, strict=True) if m["more"] and n is not None
    ]  # what is worked out stays
    numbers = whole or [n for n in said if n is not None]
    if not numbers:
        return None
    out = dict(kwargs)
    for m, value in zip(sides, said, strict=True):
        names = m["path"].removeprefix("config.").split(".")
        if value == min(numbers) or m["more"]:
            continue
        if len(names) == 1:
            out[names[0]] = min(numbers)
        elif len(names) == 2 and _is_config(out.get(names[0])):
            out[names[0]] = copy.deepcopy(out[names[0]])
            setattr(out[names[0]], names[1], min(numbers))
        else:
            return None
    return out


_LACKING = re.compile(r"missing required fields?: \[(.*?)\]")
_WANTED = re.compile(r"requires (\w+)=(\d+)\b")
_AGREE = re.compile(r"\b(match|equal|be the same)\b")
#: A field as a validation says it: `path=56`, `path` (56), `path // 4` (14).
_SIDE = re.compile(
    r"`(?P<path>[a-z_][\w.]*)(?P<more>[^`=]*)(?:=(?P<is>\d+|None))?`(?: ?\((?P<was>\d+|None)\))?"
)


def absent(error: BaseException) -> list[str]:
    """Names that were None in what raised `error`: of variables there, then of what callers gave for them."""
    out: list[str] = []
    passed: set[str] = set()
    for k, (frame, spot) in enumerate(_frames(error.__traceback__)):
        for node in ast.walk(_expression(frame.f_code.co_filename, spot)):
            match node:
                case ast.Name(id=name) if k == 0:
                    found = [name]
                case ast.keyword(arg=str(arg), value=ast.Name(id=name)) if arg in passed:
                    found = [name]
                case ast.Call(args=given) if k > 0 and passed:
                    found = [x.id for x in given if isinstance(x, ast.Name)]
                case _:
                    continue
            out += [n for n in found if frame.f_locals.get(n, ...) is None and n not in out]
        passed |= {n for n in out if frame.f_locals.get(n, ...) is None}
    return out


def _is_config(x: Any) -> bool:
    return hasattr(x, "to_diff_dict") and hasattr(x, "model_type")


def _nested(config: Any) -> Iterator[tuple[str, Any]]:
    yield from ((n.lstrip("_"), v) for n, v in list(vars(config).items()) if _is_config(v))


def _paths(config: Any, kind: type) -> Iterator[tuple[str, ...]]:
    if type(config) is kind:
        yield ()
    for name, value in _nested(config):
        yield from ((name, *rest) for rest in _paths(value, kind))


def _all(config: Any) -> Iterator[Any]:
    yield config
    for _, value in _nested(config):
        yield from _all(value)


# ---- what the failing line reads


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, tuple[int, int, int, int]]]:
    """The innermost calls of a model's own code, with what of a line was being computed."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        spots = list(code.co_positions())
        spot = spots[trace.tb_lasti // 2] if trace.tb_lasti // 2 < len(spots) else (None,) * 4
        if "torch" not in code.co_filename.split("site-packages")[-1].split("/")[:2]:
            first, last, start, end = spot
            if first is not None and last is not None and start is not None and end is not None:
                found.append((trace.tb_frame, (first, start, last, end)))
        trace = trace.tb_next
    yield from found[: -_DEPTH - 1 : -1]


def refused(error: BaseException) -> bool:
    """Whether the model's own code raised this by a `raise`."""
    for frame, spot in _frames(error.__traceback__):
        return next(_guards(frame, spot), None) is not None
    return False


def _guards(frame: FrameType, spot: tuple[int, int, int, int]) -> Iterator[ast.expr]:
    """The test of the innermost `if` around the `raise` that stands there, where one does."""
    try:
        lines, first = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    at = spot[0] - first + 1
    tests = [
        x.test
        for x in ast.walk(tree)
        if isinstance(x, ast.If)
        and any(isinstance(y, ast.Raise) and y.lineno <= at <= (y.end_lineno or at) for y in x.body)
    ]
    yield from tests[-1:]


def _reads(frame: FrameType, tree: ast.AST) -> Iterator[tuple[Any, str]]:
    """(configuration, field) for every field that the expression reads, at once or through what `__init__` kept."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = _value(node.value, frame)
        if _is_config(owner):
            yield owner, node.attr
        elif owner is not None and node.attr in (kept := _kept(type(owner))):
            config = frame.f_locals.get("config", getattr(owner, "config", None))
            if _is_config(config):
                yield config, kept[node.attr]


def _expression(file: str, spot: tuple[int, int, int, int]) -> ast.AST:
    first, start, last, end = spot
    lines = linecache.getlines(file)[first - 1 : last]
    if not lines:
        return ast.Module([], [])
    # Columns count bytes.
    whole = [line.encode() for line in lines]
    whole[-1] = whole[-1][:end]
    whole[0] = whole[0][start:]
    text = b"".join(whole).decode(errors="replace")
    for source in (f"({text}\n)", textwrap.dedent(text)):
        try:
            return ast.parse(source)
        except SyntaxError:
            continue
    return ast.Module([], [])


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What a name, or an attribute of one, is there."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        try:
            return getattr(owner, node.attr, None)
        except Exception:
            return None
    return None


def _kept(kind: type) -> dict[str, str]:
    """`self.x = config.y` in a class's `__init__`: x → y."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))  # type: ignore[misc]
    except (OSError, TypeError, SyntaxError):
        return {}
    out = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=x)], value=ast.Attribute(attr=y)
            ):
                out[x] = y
    return out


# ---- what a field gets


def _found(name: str, owner: Any, config: Any) -> Any:
    """What a field that a class does not declare would hold: what another of the model's configurations says, or what
    its name means."""
    for other in _all(config):
        value = vars(other).get(name)
        if value is not None and other is not owner and type(other) is not type(owner):
            return value
    for other in (owner, *_all(config)):
        rope = vars(other).get("rope_parameters")
        if isinstance(rope, Mapping) and rope.get(name) is not None:
            return rope[name]
    return _of_name(name)


def _of_name(name: str) -> Any:
    for pattern, value in _DEFAULTS:
        if re.search(pattern, name):
            return value
    return meant(name)


def _filled(name: str, owner: Any, config: Any) -> Any:
    """What a field that holds nothing gets."""
    value = _of_name(name)
    if value is not None:
        return value
    kinds = (
        {f.name: str(f.type) for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else {}
    )
    said = kinds.get(name, "")
    choices = vars(owner).get(f"{name.removeprefix('default_')}s") if name.startswith("default_") else None
    if isinstance(choices, list | tuple) and choices:
        return choices[0]  # one of those that it has
    words = re.split(r"\W+", re.sub(r"\[[^\]]*\]", "", said))
    if "int" in words:
        return 4
    if "float" in words:
        return 1.0
    if "list[int]" in said:
        return [0]
    if re.search(r"\blist\b(?!\[)", said):
        return []
    return {} if re.search(r"\bdict\b", said) and "Config" not in said else None


def _by_kind(value: Mapping[str, Any], key: str, owner: Any) -> dict[str, Any] | None:
    """What a dictionary says of all layers, for each kind of layer."""
    kinds = getattr(owner, "layer_types", None)
    if not isinstance(kinds, Sequence) or key not in kinds:
        return None
    plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
    plain = plain or dict(next((v for v in value.values() if isinstance(v, Mapping)), _ROTARY))
    return {k: v for k, v in value.items() if isinstance(v, Mapping)} | {
        k: dict(plain) for k in dict.fromkeys(kinds) if not isinstance(value.get(k), Mapping)
    }
