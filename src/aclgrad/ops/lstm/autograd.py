"""An LSTM's gradient is a kernel's. Differentiated again, it is that of the textbook formula: a loop over all steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, again, past_transforms
from ...core.dispatch import is_plain
from .variants import BACKWARD, FORWARD, formula, op, operator, with_reset


def _keep(
    ctx: Any, inputs: Sequence[Any], reset: Tensor | None, packed: bool, hy: Tensor, saved: Sequence[Sequence[Tensor]]
) -> None:
    """`inputs` are those of `lstm`."""
    x, params, hx, batch_sizes, *ctx.attributes = inputs
    ctx.packed = packed
    ctx.states = hy.shape
    absent_or_one = [[] if tensor is None else [tensor] for tensor in (batch_sizes, reset)]
    groups = [[x], params, hx or [], *absent_or_one, *saved]
    ctx.counts = [len(group) for group in groups]
    ctx.save_for_backward(*[tensor for group in groups for tensor in group])
    ctx.set_materialize_grads(False)


def _gradients(
    ctx: Any, upstream: Sequence[Tensor | None], wants_x: bool, wants_params: bool, wants_states: Sequence[bool]
) -> Any:
    """Of x, params and hx: a tensor, a list and a list, those that nobody wants None."""
    kept = iter(ctx.saved_tensors)
    (x,), params, hx, lengths, resets, *activations = ([next(kept) for _ in range(count)] for count in ctx.counts)
    batch_sizes, reset = (found[0] if found else None for found in (lengths, resets))
    has_bias, num_layers, dropout, train, bidirectional, batch_first = ctx.attributes
    states = hx or [x.new_zeros(ctx.states)] * 2
    if not train:  # nothing was kept: a recorded graph may want what its example did not
        activations = _activations(reset, ctx.packed, x, params, states, batch_sizes, *ctx.attributes)
    dy, dh, dc = upstream
    if lengths and dy is not None and not ctx.packed:
        dy = dy.flatten(0, 1)
    mask = [wants_x, *(wants_states or (False, False)), wants_params]
    plain = not torch.is_grad_enabled() and is_plain(x, *resets, *(g for g in (dy, dh, dc) if g is not None))
    arguments = (
        x, states, params, dy, dh, dc, *activations, batch_sizes,
        has_bias, num_layers, dropout, train, bidirectional, batch_first, mask,
    )  # fmt: skip
    run = operator(BACKWARD, reset, ctx.packed).run if plain else partial(_by_the_op, reset, ctx.packed)
    dx, dh_prev, dc_prev, dparams = run(with_reset(BACKWARD, arguments, reset, ctx.packed))
    gradients = (
        dx if wants_x else None,
        list(dparams) if wants_params else [None] * len(params),
        [g if wanted else None for g, wanted in zip((dh_prev, dc_prev), wants_states, strict=True)] if hx else None,
    )
    inputs = (x, params, hx or None, batch_sizes, *ctx.attributes, *resets)
    return again(formula(reset, ctx.packed), inputs, upstream, (*gradients, *[None] * (len(inputs) - 3)))[:3]


@torch.no_grad()
def _activations(reset: Tensor | None, packed: bool, *inputs: Any) -> Any:
    """What the forward pass would have kept."""
    *tensors, has_bias, num_layers, dropout, _, bidirectional, batch_first = inputs
    arguments = (*tensors, has_bias, num_layers, dropout, True, bidirectional, batch_first)
    return op(FORWARD, reset, packed)(*with_reset(FORWARD, arguments, reset, packed))[3:]


@torch.no_grad()
def _by_the_op(reset: Tensor | None, packed: bool, arguments: Sequence[Any]) -> Any:
    """Past autograd: saved activations are functions of the input, too, which an op that takes them does not know."""
    return op(BACKWARD, reset, packed)(*arguments)


class Sequences(torch.autograd.Function):
    """`lstm` past torch's dispatcher, whose work on lists of tensors takes a small LSTM a tenth of its time."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`arguments`: attributes, packed, the number of states (0 or 2), x, reset, batch_sizes, the states, params."""
        attributes, packed, states, x, reset, batch_sizes, *tensors = arguments
        hx, params = tensors[:states], tensors[states:]
        inputs = (x, params, hx or None, batch_sizes, *attributes)
        run = operator(FORWARD, reset, packed).run
        output, hy, cy, *saved = run(with_reset(FORWARD, inputs, reset, packed))
        _keep(ctx, inputs, reset, packed, hy, [chains or [] for chains in saved])
        return output, hy, cy

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """In the order of the arguments."""
        _, _, _, wants_x, _, _, *wants = ctx.needs_input_grad
        states = ctx.counts[2]
        dx, dparams, dhx = _gradients(ctx, upstream, wants_x, any(wants[states:]), wants[:states])
        return None, None, None, dx, None, None, *(dhx or []), *dparams


sequences = past_transforms(Sequences)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _kept_of_an_op(ctx, inputs, None, False, output)


def _setup_with_resets(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, params, reset, *others = inputs
    _kept_of_an_op(ctx, (x, params, *others), reset, False, output)


def _setup_packed(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, params, hx, batch_sizes, reset, *attributes = inputs
    _kept_of_an_op(ctx, (x, params, hx, batch_sizes, *attributes), reset, True, output)


def _kept_of_an_op(
    ctx: Any, inputs: Sequence[Any], reset: Tensor | None, packed: bool, output: tuple[Any, ...]
) -> None:
    _, hy, _, *saved = output
    _keep(ctx, inputs, reset, packed, hy, saved)
    ctx.mark_non_differentiable(*[chain for chains in saved for chain in chains])


def _lstm(ctx: Any, *upstream: Any) -> Any:
    return _gradients_of_an_op(ctx, upstream, ctx.needs_input_grad)


def _lstm_with_resets(ctx: Any, *upstream: Any) -> Any:
    wants_x, wants_params, _, *others = ctx.needs_input_grad
    dx, dparams, *more = _gradients_of_an_op(ctx, upstream, (wants_x, wants_params, *others))
    return dx, dparams, None, *more


def _gradients_of_an_op(ctx: Any, upstream: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """In the order of the arguments of `lstm` and `lstm_packed`, where nothing behind the states has a gradient."""
    wants_x, wants_params, *rest = wanted
    wants_states = rest[0] if ctx.counts[2] else ()
    dx, dparams, dhx = _gradients(ctx, upstream[:3], wants_x, any(wants_params), wants_states)
    gradients = (dx, dparams, dhx, *[None] * len(wanted))
    return gradients[: len(wanted)]  # the dispatcher left out what equals its default at the end


GRADIENTS = {
    "lstm": Gradient(_setup, _lstm),
    "lstm_with_resets": Gradient(_setup_with_resets, _lstm_with_resets),
    "lstm_packed": Gradient(_setup_packed, _lstm),
}
