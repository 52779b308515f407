"""The LSTM cell can be differentiated any number of times.

Its second derivative, and all that follow, are those of the textbook formula, which torch differentiates. For that the
activated gates, which the first derivative reads, are differentiable as well: their slopes follow from their values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient
from ...core.direct import past_dispatcher
from . import reference, spec


def _keep_states(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, _, cx, input_bias, _ = inputs
    _, cy, storage = output
    ctx.has_bias = input_bias is not None
    ctx.save_for_backward(cx, cy, storage)
    ctx.set_materialize_grads(False)


def _lstm_cell(ctx: Any, grad_hy: Tensor | None, grad_cy: Tensor | None, grad_storage: Tensor | None) -> Any:
    cx, cy, storage = ctx.saved_tensors
    if grad_hy is None and grad_cy is None:
        grad_hy = torch.zeros_like(cx)
    gates, grad_cx, bias = _cell_backward(grad_hy, grad_cy, cx, cy, storage, ctx.has_bias)
    if grad_storage is not None:
        direct = grad_storage * _slopes(storage)
        gates, bias = gates + direct, bias + direct.sum(0) if ctx.has_bias else bias
    return gates, gates, grad_cx, *([bias, bias.clone()] if ctx.has_bias else [None, None])


def _slopes(storage: Tensor) -> Tensor:
    """Of the activations at the gates' values i, f, g, o."""
    i, f, g, o = storage.chunk(4, dim=1)
    return torch.cat([i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)], dim=1)


def _keep_arguments(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    *tensors, ctx.has_bias = inputs
    ctx.given = [tensor is not None for tensor in tensors]
    ctx.save_for_backward(*[tensor for tensor in tensors if tensor is not None])


def _lstm_cell_backward(ctx: Any, *grads: Tensor) -> Any:
    """By torch, through the textbook formula; `vjp` can itself be differentiated, by whatever differentiates this."""
    produced = [grad for grad, made in zip(grads, (True, True, ctx.has_bias), strict=True) if made]

    def formula(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        arguments: list[Any] = [next(given) if there else None for there in ctx.given]
        results = reference.lstm_cell_backward(*[*arguments, ctx.has_bias])
        return tuple(result for result in results if result is not None)

    pull_back: Any = torch.func.vjp(formula, *ctx.saved_tensors)[1]
    found = iter(pull_back(tuple(produced)))
    return *(next(found) if there else None for there in ctx.given), None


GRADIENTS = {
    "lstm_cell": Gradient(_keep_states, _lstm_cell),
    "lstm_cell_backward": Gradient(_keep_arguments, _lstm_cell_backward),
}

cell = past_dispatcher(spec.lstm_cell, GRADIENTS["lstm_cell"])
_cell_backward = past_dispatcher(spec.lstm_cell_backward, GRADIENTS["lstm_cell_backward"])
