"""Torch's LSTM on the device "npu": the whole sequence by one operator, where torch would take it apart into steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.dispatch import wants_gradient
from .._shared.autocast import autocast_dtype, lowered
from .packing import Packing

Results = tuple[Tensor, Tensor, Tensor]
Apart = Callable[..., Results]


class _Options(NamedTuple):
    """The arguments behind the tensors, in torch's order."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False


def lstm_input(apart: Apart, x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *options: Any) -> Results:
    """`torch.lstm` for sequences of one length [T, N, I]; `apart` is what torch does with it."""
    if x.dim() != 3 or not _is_served(x, hx, params, _Options(*options)):
        return apart(x, hx, params, *options)
    return _whole(torch.ops.aclgrad.lstm, x, hx, params, (None,), _Options(*options))


def lstm_data(
    apart: Apart, data: Tensor, batch_sizes: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *options: Any
) -> Results:
    """`torch.lstm` for packed sequences [total length, I]."""
    if data.dim() != 2 or not _is_served(data, hx, params, _Options(*options)):
        return apart(data, batch_sizes, hx, params, *options)
    lengths = Packing.of(batch_sizes, data).batch_sizes
    return _whole(torch.ops.aclgrad.lstm_packed, data, hx, params, (lengths, None), _Options(*options))


COMPOSED: dict[str, Callable[..., Any]] = {"lstm.input": lstm_input, "lstm.data": lstm_data}


def _is_served(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], options: _Options) -> bool:
    """Whether the operator has all of it: no dropout between layers, no projection, one dtype, at least one step."""
    drops = bool(options.dropout) and options.train and options.num_layers > 1
    weights = 2 * (1 + options.has_biases) * options.num_layers * (1 + options.bidirectional)
    one_dtype = autocast_dtype(x) is not None or len({tensor.dtype for tensor in (x, *hx, *params)}) == 1
    return len(params) == weights and not drops and one_dtype and x.is_floating_point() and x.numel() > 0


def _whole(
    op: Any, x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], lengths: Sequence[Tensor | None],
    options: _Options,
) -> Results:  # fmt: skip
    """Of all layers by `op`, which takes `lengths` behind the states."""
    keeps = wants_gradient((x, *hx, *params))
    x, h, c, *weights = lowered(autocast_dtype(x), x, *hx, *params)
    given = options._replace(dropout=0.0, train=keeps)
    y, h, c, *_ = op(x, weights, [h, c], *lengths, *given)
    return y, h, c
