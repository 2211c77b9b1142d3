"""A text that holds an image or a sound: one token stands for each of the features that an encoder makes of it.

    inputs = placed(module, inputs, refusal)    the text with as many as the model said that it wants, or None
    tokens = held(config, inputs)               input → the tokens in it that stand for something
    inputs = without(inputs, tokens)            the text alone
    drawn = kept(example, drawn, tokens)        new text around the same places

A model counts both and says both numbers where they differ; which token it is, its configuration says.

May import: torch_compat (torch inside functions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import torch_compat as compat

__all__ = ["MEDIA", "held", "kept", "placed", "without"]

#: Inputs of which a text may hold the features.
MEDIA = ("pixel_values", "input_features")

_COUNTS = re.compile(
    r"(?:(\w+) (?:features|tokens)\b.*?)?tokens\W{1,3}(\d+)\D+?features\W{1,3}(\d+)",
    re.IGNORECASE | re.DOTALL,
)
_NAMED = re.compile(r"token id (\d+)")
_FIELD = re.compile(r"(^|_)token_(id|index)$")
#: Tokens around what is placed, and of a text as such.
_OTHERS = re.compile(
    r"^(pad|bos|eos|unk|sep|cls|mask|decoder)_|start|begin|end|boi|eoi|boa|eoa|newline|row|col"
)
#: So much text comes after the last feature, at least.
TAIL = 7


def placed(module: Any, inputs: Mapping[str, Any], refusal: str) -> dict[str, Any] | None:
    """The inputs with `refusal`'s number of placeholders in all rows, behind their first token."""
    torch = compat.require_torch()
    found, ids = _COUNTS.search(refusal), inputs.get("input_ids")
    if found is None or ids is None or ids.dim() != 2:
        return None
    token = _token(module.config, (found[1] or "").lower(), refusal)
    have, wanted = int(found[2]), int(found[3])
    if have == wanted:  # that was no count of features but of their elements
        wanted //= _width(module)
    each, rest = divmod(wanted, len(ids))
    if token is None or rest or not each or have == wanted or (have and have < wanted):
        return None
    ids = torch.where(ids == token, ids[:, :1], ids)
    length = 1 + each + max(TAIL, ids.shape[1] - 1 - each if not have else 0)

    def longer(x: Any) -> Any:
        if x.shape[:2] != ids.shape or x.is_floating_point():
            return x
        times = [1, -(-length // x.shape[1]), *[1] * (x.dim() - 2)]
        return x.repeat(times)[:, :length].contiguous()

    out = {name: longer(x) for name, x in {**inputs, "input_ids": ids}.items() if hasattr(x, "shape")}
    out["input_ids"] = torch.cat(
        [
            out["input_ids"][:, :1],
            torch.full((len(ids), each), token, dtype=ids.dtype),
            out["input_ids"][:, 1 + each :],
        ],
        dim=1,
    )
    return out


def _width(module: Any) -> int:
    table = module.get_input_embeddings() if hasattr(module, "get_input_embeddings") else None
    return int(getattr(table, "embedding_dim", 1))


def _token(config: Any, kind: str, refusal: str) -> int | None:
    named = _NAMED.search(refusal)
    if named is not None:
        return int(named[1])
    tokens = dict(_tokens(config))
    names = sorted(tokens, key=lambda n: (kind not in n, len(n)))
    return tokens[names[0]] if names and (kind in names[0] or len(names) == 1) else None


def _tokens(config: Any) -> Iterator[tuple[str, int]]:
    """The special tokens of a configuration and of those in it that may stand for something."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_diff_dict"):
            yield from _tokens(value)
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and _FIELD.search(name)
            and not _OTHERS.search(name)
        ):
            yield name, value


def held(config: Any, inputs: Mapping[str, Any]) -> dict[str, list[int]]:
    """Which inputs hold tokens that stand for something, beside what they stand for."""
    ids = inputs.get("input_ids")
    if ids is None or not any(name in inputs for name in MEDIA):
        return {}
    tokens = sorted({t for _, t in _tokens(config) if bool((ids == t).any())})
    masks = {  # a mask that says where features stand
        name: [1]
        for name, x in inputs.items()
        if name.endswith("mask") and x.dim() == 2 and 0 < int(x.sum()) < x.numel()
    }
    return masks | ({"input_ids": tokens} if tokens else {})


def without(inputs: Mapping[str, Any], tokens: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    torch = compat.require_torch()
    out = {name: x for name, x in inputs.items() if name not in MEDIA}
    for name, stand in tokens.items():
        plain = out[name][~torch.isin(out[name], torch.tensor(list(stand)))]
        out[name] = torch.where(torch.isin(out[name], torch.tensor(list(stand))), plain[0], out[name])
    return out


def kept(example: Any, drawn: Any, tokens: Sequence[int]) -> Any:
    """`drawn` with the tokens of `example` where they are there, and nowhere else."""
    torch = compat.require_torch()
    stands = torch.isin(example, torch.tensor(list(tokens)))
    plain = example[~stands]
    drawn = torch.where(
        torch.isin(drawn, torch.tensor(list(tokens))), int(plain.min()) if plain.numel() else 0, drawn
    )
    rows = torch.arange(len(drawn)) % len(example)
    n = min(drawn.shape[1], example.shape[1])
    drawn[:, :n] = torch.where(stands[rows, :n], example[rows, :n], drawn[:, :n])
    return drawn
