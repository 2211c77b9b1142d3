"""Packed sequences as rows with lengths: what stands in for them while a model is exported.

What torch packs has as many numbers as the lengths add up to, in an order that they decide; of that no graph can be
made for other lengths.  Here a packed sequence holds the padded rows and as many batch sizes as the rows are long
(those beyond the longest are 0), and a recurrence goes over whole rows: what comes after a row's end is left out of its
results.  Functions of single steps see no difference; one that sums over all packed numbers would, and parity says so.

    for owner, name, value in packed(torch): …      as `standins.standing_in` puts them there

May import: torch's own modules, inside functions.  To add a recurrent module: its class in `packed`, and its states.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["packed"]

#: Enough to shut or open a gate for good, in every dtype.
_SHUT = 1e4


def packed(torch: Any) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """(owner, name, what stands there)."""
    vf = torch._VF
    kind = torch.nn.utils.rnn.PackedSequence
    yield vf, "_pack_padded_sequence", lambda *a: _pack(torch, *a)
    yield (
        vf,
        "_pad_packed_sequence",
        lambda *a: _pad(torch, sys._getframe(1).f_locals.get("total_length"), *a),
    )
    for module in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        yield module, "forward", _recurrent(torch, kind, module.forward)


def _pack(torch: Any, x: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    rows = x if batch_first else x.transpose(0, 1)
    step = torch.arange(rows.shape[1], device=lengths.device)
    return rows, (lengths.unsqueeze(0) > step.unsqueeze(1)).sum(1)


def _lengths(torch: Any, rows: Any, sizes: Any) -> Any:
    row = torch.arange(rows.shape[0], device=sizes.device)
    return (sizes.unsqueeze(0) > row.unsqueeze(1)).sum(1)


def _within(torch: Any, rows: Any, lengths: Any) -> Any:
    """Whether a step is before the end of its row; of the rank of the rows."""
    inside = torch.arange(rows.shape[1], device=rows.device) < lengths.to(rows.device).unsqueeze(1)
    return inside.reshape([*inside.shape, *[1] * (rows.dim() - 2)])


def _pad(
    torch: Any, asked: Any, rows: Any, sizes: Any, batch_first: bool, value: float, length: Any
) -> tuple[Any, Any]:
    lengths = _lengths(torch, rows, sizes)
    rows = torch.where(_within(torch, rows, lengths), rows, torch.full((), value, dtype=rows.dtype))
    if asked is None:
        longest = lengths.max().item()
        torch._check(longest >= 0)
        torch._check(longest <= rows.shape[1])
        rows = rows.narrow(1, 0, longest)
    elif rows.shape[1] != length:
        more = [0, 0] * (rows.dim() - 2)
        rows = torch.nn.functional.pad(rows, [*more, 0, length - rows.shape[1]], value=value)
    return (rows if batch_first else rows.transpose(0, 1)), lengths


def _recurrent(torch: Any, kind: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, kind):
            return plain(self, input, hx)
        self._update_flat_weights()  # those that are traced
        rows, sizes, order, back = input
        lengths = _lengths(torch, rows, sizes)
        states = _states(torch, self, rows, None if hx is None else self.permute_hidden(hx, order))
        out, last = _layers(torch, self, rows, lengths, states)
        hidden = tuple(last) if self.mode == "LSTM" else last[0]
        return kind(out, sizes, order, back), self.permute_hidden(hidden, back)

    return forward


def _states(torch: Any, module: Any, rows: Any, given: Any) -> list[Any]:
    """The first states: h, and c of an LSTM."""
    if given is not None:
        return list(given) if module.mode == "LSTM" else [given]
    count = module.num_layers * (2 if module.bidirectional else 1)
    widths = [module.proj_size or module.hidden_size] + [module.hidden_size] * (module.mode == "LSTM")
    return [torch.zeros(count, rows.shape[0], n, dtype=rows.dtype, device=rows.device) for n in widths]


def _layers(torch: Any, module: Any, rows: Any, lengths: Any, states: list[Any]) -> tuple[Any, list[Any]]:
    """The rows after all layers, and each layer's and direction's last states."""
    ways = 2 if module.bidirectional else 1
    each = len(module._flat_weights) // (module.num_layers * ways)
    inside = _within(torch, rows, lengths)
    step = torch.arange(rows.shape[1], device=rows.device)
    end = lengths.to(rows.device).unsqueeze(1)
    turned = torch.where(step < end, end - 1 - step, step)  # a row read from its end
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(module.num_layers):
        if layer and module.dropout > 0 and module.training:
            rows = torch.nn.functional.dropout(rows, module.dropout)
        made = []
        for way in range(ways):
            k = layer * ways + way
            weights = module._flat_weights[k * each : (k + 1) * each]
            x = _read(rows, turned) if way else rows
            y, found = _one(torch, module, x, inside, end, [s[k : k + 1] for s in states], weights)
            made.append(_read(y, turned) if way else y)
            for kept, state in zip(last, found, strict=True):
                kept.append(state)
        rows = torch.where(inside, torch.cat(made, -1) if ways > 1 else made[0], 0.0)
    return rows, [torch.stack(kept) for kept in last]


def _read(rows: Any, places: Any) -> Any:
    return rows.gather(1, places.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


def _one(
    torch: Any, module: Any, rows: Any, inside: Any, end: Any, states: list[Any], weights: list[Any]
) -> tuple[Any, list[Any]]:
    """One layer in one direction: all its steps, and its states after each row's last one.

    A state h is the step's own output.  The cell of an LSTM is no output: from a row's end on it is held, by one more
    input that shuts the gate of what is new and opens that of what was."""
    if module.mode == "LSTM":
        n = module.hidden_size
        first, *rest = weights
        held = torch.cat(
            [first.new_full((n, 1), -_SHUT), first.new_full((n, 1), _SHUT), first.new_zeros(2 * n, 1)]
        )
        weights = [torch.cat([first, held], 1), *rest]
        rows = torch.cat([rows, (~inside).to(rows.dtype)], -1)
    name = module.mode.lower()
    given = states if module.mode == "LSTM" else states[0]
    out = getattr(torch._VF, name)(rows, given, weights, module.bias, 1, 0.0, module.training, False, True)
    y = out[0]
    h = _read(y, (end - 1).clamp(min=0)).squeeze(1)
    return y, [h] if module.mode != "LSTM" else [h, out[2].squeeze(0)]
