"""An LSTM is differentiable once, as it is in torch's fused implementations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, refusal
from ...core.errors import Unsupported


def _keep_activations(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, params, hx, batch_sizes, *attributes = inputs
    _, hy, _, *saved = output
    ctx.attributes = attributes
    ctx.states = hy.shape
    groups = [[x], params, hx or [], [] if batch_sizes is None else [batch_sizes], *saved]
    ctx.counts = [len(group) for group in groups]
    ctx.save_for_backward(*[tensor for group in groups for tensor in group])
    ctx.mark_non_differentiable(*[chain for chains in saved for chain in chains])
    ctx.set_materialize_grads(False)


def _lstm(ctx: Any, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None, *saved: Any) -> Any:  # noqa: ARG001
    kept = iter(ctx.saved_tensors)
    (x,), params, hx, lengths, *activations = ([next(kept) for _ in range(count)] for count in ctx.counts)
    has_bias, num_layers, dropout, train, bidirectional, batch_first = ctx.attributes
    if not train:
        raise Unsupported("train was False, so nothing was kept for the gradient; expected True", "train")
    wants_input, wants_params, wants_states = ctx.needs_input_grad[0], any(_flat(ctx.needs_input_grad[1])), bool(hx)
    states = hx or [x.new_zeros(ctx.states)] * 2
    if lengths and dy is not None:
        dy = dy.flatten(0, 1)
    mask = [bool(wants_input), wants_states, wants_states, wants_params]
    dx, dh_prev, dc_prev, dparams = torch.ops.aclgrad.lstm_backward(
        x, states, params, dy, dh, dc, *activations, lengths[0] if lengths else None,
        has_bias, num_layers, dropout, train, bidirectional, batch_first, mask,
    )  # fmt: skip
    gradients = (
        dx if wants_input else None,
        dparams if wants_params else [None] * len(params),
        [dh_prev, dc_prev] if hx else None,
        *[None] * (1 + len(ctx.attributes)),
    )
    return gradients[: len(ctx.needs_input_grad)]  # the dispatcher left out what equals its default at the end


def _flat(value: Any) -> list[bool]:
    return [value] if isinstance(value, bool) else list(value)


GRADIENTS = {
    "lstm": Gradient(_keep_activations, _lstm),
    "lstm_backward": refusal("an LSTM's gradient cannot be differentiated again; torch.nn.LSTM on a CPU can"),
}
