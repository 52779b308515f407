"""The textbook LSTM and its gradient, in plain torch, in whatever floating-point dtype the tensors have.

In float64 this is the truth every kernel is judged against. `lstm` can be differentiated by autograd;
`lstm_backward` computes the same gradient from saved activations by the explicit formulas of README.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .reference_steps import Forward, backward, forward


def lstm(
    input: Tensor,
    params: Sequence[Tensor],
    hx: Sequence[Tensor] | None = None,
    batch_sizes: Tensor | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,  # noqa: ARG001  # in the document's argument list, without effect
    train: bool = True,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> Forward:
    """Forward pass: (output, hy, cy, i, j, f, o, h, c, tanhc); without `train` None for each of the seven lists.

    `output` is [T, N, D·H] ([N, T, D·H] with `batch_first`), `hy` and `cy` are [L·D, N, H]. An absent or empty `hx`
    is zero. `dropout` is part of the argument list and changes nothing. With `batch_sizes`, `input` is [T·N, I] and
    `batch_first` is ignored; past a sequence's end the states are carried, the output is zero and the gates are those
    of whatever lies there.
    """
    return forward(input, params, None, hx, batch_sizes, has_bias, num_layers, train, bidirectional, batch_first)


def lstm_with_resets(
    input: Tensor,
    params: Sequence[Tensor],
    reset: Tensor,
    hx: Sequence[Tensor] | None = None,
    batch_sizes: Tensor | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,  # noqa: ARG001  # as that of `lstm`
    train: bool = True,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> Forward:
    """`lstm` whose rows start anew, from zeros, at the times where `reset` [T, N] is set: see `spec_resets`."""
    return forward(input, params, reset, hx, batch_sizes, has_bias, num_layers, train, bidirectional, batch_first)


def lstm_backward(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    i: Sequence[Tensor],
    j: Sequence[Tensor],
    f: Sequence[Tensor],
    o: Sequence[Tensor],
    h: Sequence[Tensor],
    c: Sequence[Tensor],
    tanhc: Sequence[Tensor],
    batch_sizes: Tensor | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,  # noqa: ARG001  # in the document's argument list, without effect
    train: bool = True,  # noqa: ARG001
    bidirectional: bool = False,
    batch_first: bool = False,
    output_mask: Sequence[bool] | None = None,  # noqa: ARG001  # what to skip is a kernel's business
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Gradient: (dx, dh_prev, dc_prev, dparams), shaped as input, hx[0], hx[1] and params.

    An absent dy, dh or dc is zero. `dropout`, `train` and `output_mask` change nothing: every gradient is computed.
    Whatever depends on an infinite or undefined input is NaN; values at padded positions matter only where `h` and
    `c` hold the state a valid step started from.
    """
    return backward(
        input, hx, params, dy, dh, dc, (i, j, f, o, h, c, tanhc), None, batch_sizes, has_bias, num_layers,
        bidirectional, batch_first,
    )  # fmt: skip


def lstm_with_resets_backward(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], dy: Tensor | None, dh: Tensor | None,
    dc: Tensor | None, i: Sequence[Tensor], j: Sequence[Tensor], f: Sequence[Tensor], o: Sequence[Tensor],
    h: Sequence[Tensor], c: Sequence[Tensor], tanhc: Sequence[Tensor], reset: Tensor,
    batch_sizes: Tensor | None = None, has_bias: bool = True, num_layers: int = 1,
    dropout: float = 0.0, train: bool = True,  # noqa: ARG001  # as those of `lstm_backward`
    bidirectional: bool = False, batch_first: bool = False,
    output_mask: Sequence[bool] | None = None,  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """Gradient of `lstm_with_resets`: nothing goes back from a time to the one that it did not start from."""
    return backward(
        input, hx, params, dy, dh, dc, (i, j, f, o, h, c, tanhc), reset, batch_sizes, has_bias, num_layers,
        bidirectional, batch_first,
    )  # fmt: skip


def lstm_packed(
    input: Tensor, params: Sequence[Tensor], hx: Sequence[Tensor], batch_sizes: Tensor, reset: Tensor | None = None,
    has_bias: bool = True, num_layers: int = 1, dropout: float = 0.0,  # noqa: ARG001  # as that of `lstm`
    train: bool = True, bidirectional: bool = False, batch_first: bool = False,
) -> Forward:  # fmt: skip
    """`lstm`, or with `reset` `lstm_with_resets`, of packed rows: input [total, I], output and lists [total, ·]."""
    rows = _rows_of(input, hx, batch_sizes)
    x, flags = _padded(input, rows, hx, batch_sizes), _padded_flags(reset, rows, hx, batch_sizes)
    output, hy, cy, *lists = forward(
        x, params, flags, hx, batch_sizes, has_bias, num_layers, train, bidirectional, batch_first
    )
    i, j, f, o, h, c, tanhc = (None if values is None else [_taken(v, rows) for v in values] for values in lists)
    return _taken(output, rows), hy, cy, i, j, f, o, h, c, tanhc


def lstm_packed_backward(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], dy: Tensor | None, dh: Tensor | None,
    dc: Tensor | None, i: Sequence[Tensor], j: Sequence[Tensor], f: Sequence[Tensor], o: Sequence[Tensor],
    h: Sequence[Tensor], c: Sequence[Tensor], tanhc: Sequence[Tensor], batch_sizes: Tensor,
    reset: Tensor | None = None, has_bias: bool = True, num_layers: int = 1,
    dropout: float = 0.0, train: bool = True,  # noqa: ARG001  # as those of `lstm_backward`
    bidirectional: bool = False, batch_first: bool = False,
    output_mask: Sequence[bool] | None = None,  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """Gradient of `lstm_packed`; dy and dx have packed rows, too."""
    rows = _rows_of(input, hx, batch_sizes)
    x, flags = _padded(input, rows, hx, batch_sizes), _padded_flags(reset, rows, hx, batch_sizes)
    grad = None if dy is None else _padded(dy, rows, hx, batch_sizes)
    lists = []
    for values, start in ((i, None), (j, None), (f, None), (o, None), (h, hx[0]), (c, hx[1]), (tanhc, None)):
        starts = [None] * len(values) if start is None else list(start)
        padded = [_padded(v, rows, hx, batch_sizes, s) for v, s in zip(values, starts, strict=True)]
        lists.append([value.unflatten(0, (len(batch_sizes), hx[0].shape[1])) for value in padded])
    dx, dh_prev, dc_prev, dparams = backward(
        x, hx, params, grad, dh, dc, lists, flags, batch_sizes, has_bias, num_layers, bidirectional, batch_first
    )
    return _taken(dx.unflatten(0, (len(batch_sizes), hx[0].shape[1])), rows), dh_prev, dc_prev, dparams


def _rows_of(data: Tensor, hx: Sequence[Tensor], batch_sizes: Tensor) -> Tensor:
    """Where packed rows lie among the T·N padded ones, found without a look at any count."""
    ends = batch_sizes.cumsum(0)
    row = torch.arange(data.shape[0], device=data.device)
    t = torch.searchsorted(ends, row, right=True)
    return t * hx[0].shape[1] + row - (ends - batch_sizes)[t]


def _padded(
    data: Tensor, rows: Tensor, hx: Sequence[Tensor], batch_sizes: Tensor, start: Tensor | None = None
) -> Tensor:
    """Packed rows [total, F] as [T·N, F]; where there is no data, zeros, or the state [N, F] that rows start from."""
    steps, batch = batch_sizes.shape[0], hx[0].shape[1]
    blank = data.new_zeros(steps * batch, data.shape[1]) if start is None else start.repeat(steps, 1)
    return blank.index_copy(0, rows, data)


def _padded_flags(reset: Tensor | None, rows: Tensor, hx: Sequence[Tensor], batch_sizes: Tensor) -> Tensor | None:
    """Packed flags [total] as [T, N]."""
    if reset is None:
        return None
    return _padded(reset.unsqueeze(1), rows, hx, batch_sizes).view(batch_sizes.shape[0], hx[0].shape[1])


def _taken(padded: Tensor, rows: Tensor) -> Tensor:
    """The packed rows of a padded [T, N, F]."""
    return padded.flatten(0, 1).index_select(0, rows)
