"""Torch's LSTM on the device "npu": the whole sequence by one operator, where torch would take it apart into steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.dispatch import wants_gradient
from .._shared.autocast import autocast_dtype, lowered
from .packing import Packing

Results = tuple[Tensor, Tensor, Tensor]
Apart = Callable[..., Results]


def lstm_input(
    apart: Apart,
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Results:
    """`torch.lstm` for sequences of one length; `apart` is what torch does with it."""
    options = (has_biases, num_layers, dropout, train, bidirectional)
    if input.dim() != 3 or not _is_served(input, hx, params, *options):
        return apart(input, hx, params, *options, batch_first)
    return _whole(input, hx, params, None, has_biases, num_layers, bidirectional, batch_first)


def lstm_data(
    apart: Apart,
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Results:
    """`torch.lstm` for packed sequences."""
    options = (has_biases, num_layers, dropout, train, bidirectional)
    if data.dim() != 2 or not _is_served(data, hx, params, *options):
        return apart(data, batch_sizes, hx, params, *options)
    packing = Packing.of(batch_sizes, data)
    whole = (has_biases, num_layers, bidirectional, False)
    y, h, c = _whole(packing.padded(data), hx, params, packing.batch_sizes, *whole)
    return packing.packed(y), h, c


COMPOSED: dict[str, Callable[..., Any]] = {"lstm.input": lstm_input, "lstm.data": lstm_data}


def _is_served(
    x: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> bool:
    """Whether the operator has all of it: no dropout between layers, no projection, one dtype, at least one step."""
    drops = bool(dropout) and train and num_layers > 1
    whole = len(params) == 2 * (1 + has_biases) * num_layers * (1 + bidirectional) and len(hx) == 2
    one_dtype = autocast_dtype(x) is not None or len({tensor.dtype for tensor in (x, *hx, *params)}) == 1
    return whole and not drops and one_dtype and x.is_floating_point() and x.numel() > 0


def _whole(
    x: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    batch_sizes: Tensor | None,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Results:
    keeps = wants_gradient((x, *hx, *params))
    x, h, c, *weights = lowered(autocast_dtype(x), x, *hx, *params)
    options = (has_biases, num_layers, 0.0, keeps, bidirectional, batch_first)
    y, h, c, *_ = torch.ops.aclgrad.lstm(x, weights, [h, c], batch_sizes, *options)
    return y, h, c
