"""An LSTM's gradient is a kernel's. Differentiated again, it is that of the textbook formula: a loop over all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, again
from ...core.dispatch import is_plain
from ...core.textbook import textbook
from . import spec


def _keep(ctx: Any, inputs: Sequence[Any], hy: Tensor, saved: Sequence[Sequence[Tensor]]) -> None:
    x, params, hx, batch_sizes, *ctx.attributes = inputs
    ctx.states = hy.shape
    groups = [[x], params, hx or [], [] if batch_sizes is None else [batch_sizes], *saved]
    ctx.counts = [len(group) for group in groups]
    ctx.save_for_backward(*[tensor for group in groups for tensor in group])
    ctx.set_materialize_grads(False)


def _gradients(
    ctx: Any, upstream: Sequence[Tensor | None], wants_x: bool, wants_params: bool, wants_states: Sequence[bool]
) -> Any:
    """Of x, params and hx: a tensor, a list and a list, those that nobody wants None."""
    kept = iter(ctx.saved_tensors)
    (x,), params, hx, lengths, *activations = ([next(kept) for _ in range(count)] for count in ctx.counts)
    has_bias, num_layers, dropout, train, bidirectional, batch_first = ctx.attributes
    states = hx or [x.new_zeros(ctx.states)] * 2
    if not train:  # nothing was kept: a recorded graph may want what its example did not
        activations = _activations(x, params, states, lengths[0] if lengths else None, *ctx.attributes)
    dy, dh, dc = upstream
    if lengths and dy is not None:
        dy = dy.flatten(0, 1)
    mask = [wants_x, *(wants_states or (False, False)), wants_params]
    plain = not torch.is_grad_enabled() and is_plain(x, *(grad for grad in (dy, dh, dc) if grad is not None))
    arguments = (
        x, states, params, dy, dh, dc, *activations, lengths[0] if lengths else None,
        has_bias, num_layers, dropout, train, bidirectional, batch_first, mask,
    )  # fmt: skip
    results = spec.lstm_backward.run(arguments) if plain else _by_the_op(*arguments)
    dx, dh_prev, dc_prev, dparams = results
    gradients = (
        dx if wants_x else None,
        list(dparams) if wants_params else [None] * len(params),
        [g if wanted else None for g, wanted in zip((dh_prev, dc_prev), wants_states, strict=True)] if hx else None,
    )
    inputs = (x, params, hx or None, lengths[0] if lengths else None, *ctx.attributes)
    return again(textbook(spec.lstm), inputs, upstream, (*gradients, *[None] * (1 + len(ctx.attributes))))[:3]


@torch.no_grad()
def _activations(*inputs: Any) -> Any:
    """What the forward pass would have kept."""
    *tensors, has_bias, num_layers, dropout, _, bidirectional, batch_first = inputs
    return torch.ops.aclgrad.lstm(*tensors, has_bias, num_layers, dropout, True, bidirectional, batch_first)[3:]


@torch.no_grad()
def _by_the_op(*arguments: Any) -> Any:
    """Past autograd: saved activations are functions of the input, too, which an op that takes them does not know."""
    return torch.ops.aclgrad.lstm_backward(*arguments)


class Sequences(torch.autograd.Function):
    """`lstm` past torch's dispatcher, whose work on lists of tensors takes a small LSTM a tenth of its time."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`arguments`: attributes, the number of states (0 or 2), x, batch_sizes, the states, params."""
        attributes, states, x, batch_sizes, *tensors = arguments
        hx, params = tensors[:states], tensors[states:]
        output, hy, cy, *saved = spec.lstm.run((x, params, hx or None, batch_sizes, *attributes))
        _keep(ctx, (x, params, hx, batch_sizes, *attributes), hy, [chains or [] for chains in saved])
        return output, hy, cy

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """In the order of the arguments."""
        _, _, wants_x, _, *wants = ctx.needs_input_grad
        states = ctx.counts[2]
        dx, dparams, dhx = _gradients(ctx, upstream, wants_x, any(wants[states:]), wants[:states])
        return None, None, dx, None, *(dhx or []), *dparams


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, hy, _, *saved = output
    _keep(ctx, inputs, hy, saved)
    ctx.mark_non_differentiable(*[chain for chains in saved for chain in chains])


def _lstm(ctx: Any, *upstream: Any) -> Any:
    wants_x, wants_params, *rest = ctx.needs_input_grad
    wants_states = rest[0] if ctx.counts[2] else ()
    dx, dparams, dhx = _gradients(ctx, upstream[:3], wants_x, any(wants_params), wants_states)
    gradients = (dx, dparams, dhx, *[None] * (1 + len(ctx.attributes)))
    return gradients[: len(ctx.needs_input_grad)]  # the dispatcher left out what equals its default at the end


GRADIENTS = {
    "lstm": Gradient(_setup, _lstm),
}
