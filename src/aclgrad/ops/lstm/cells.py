"""A layer of an LSTM that also gives c of every step, as a differentiable function.

The forward pass saves c for its gradient anyway. Going back, a gradient of c at a step adds to the dc that the step
passes to the one before; no operator takes one. But every unit may have a shadow: a unit with the same gates and c but
o = 1 and tanh c = 0, whose h nobody multiplies. What arrives as a gradient of its h is added to its dc as it is, and
its gate gradients are the share that c has in those of the unit. So `lstm_backward` finds everything, for twice the
units; the halves are added. Without a gradient of c it is called as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...core.autograd import Formula, again
from ...core.dispatch import wants_gradient
from .dims import SAVED
from .variants import BACKWARD, FORWARD, formula, op, with_reset

GATES = 4
States = tuple[Tensor, Tensor]


def with_cells(
    x: Tensor, params: Sequence[Tensor], hx: Sequence[Tensor] | None, batch_sizes: Tensor | None, reset: Tensor | None,
    packed: bool, *options: bool,
) -> tuple[Tensor, States, Tensor]:  # fmt: skip
    """(output, (hy, cy), c of every step) of a layer; `options`: has_bias, bidirectional.

    Output and c are [T, N, D·H], if `packed` [total length, D·H].
    """
    has_bias, bidirectional = options
    attributes = (has_bias, 1, 0.0, True, bidirectional, False)
    if forward_ad._current_level >= 0:
        given = (x, list(params), list(hx) if hx else None, batch_sizes, *attributes)
        output, hy, cy, cells = _cells_formula(reset, packed)(*given, *([] if reset is None else [reset]))
    else:
        states = list(hx or ())
        differentiated = torch._C._are_functorch_transforms_active() or wants_gradient((x, *states, *params))
        # torch.compile cannot trace a function with `setup_context` where no gradient is wanted.
        call: Any = _Cells.apply if differentiated else _Cells.forward
        found: Any = call(attributes, packed, len(states), x, reset, batch_sizes, *states, *params)
        output, hy, cy, cells, *_ = found
    return output, (hy, cy), cells


def _cells_formula(reset: Tensor | None, packed: bool) -> Formula:
    """The same in torch's own operations."""

    def cells_formula(*inputs: Any) -> list[Tensor]:
        output, hy, cy, *saved = formula(reset, packed)(*inputs)
        return [output, hy, cy, torch.cat(saved[SAVED.index("c")], -1)]

    return cells_formula


class _Cells(torch.autograd.Function):
    """`lstm` of one layer, and the c it saved."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        attributes: Any, packed: bool, states: int, x: Tensor, reset: Tensor | None, batch_sizes: Tensor | None,
        *tensors: Tensor,
    ) -> Any:  # fmt: skip
        """Returns output, hy, cy, cells, then everything that is saved, chain after chain of each list."""
        arguments = (x, list(tensors[states:]), list(tensors[:states]), batch_sizes, *attributes)
        output, hy, cy, *saved = op(FORWARD, reset, packed)(*with_reset(FORWARD, arguments, reset, packed))
        cells = torch.cat(saved[SAVED.index("c")], -1)
        return output, hy, cy, cells, *[chain for chains in saved for chain in chains]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.attributes, ctx.packed, ctx.states, x, reset, batch_sizes, *tensors = inputs
        _, hy, _, _, *saved = output
        ctx.mark_non_differentiable(*saved)
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.given = hy.shape, len(tensors)
        ctx.save_for_backward(x, reset, batch_sizes, *tensors, *saved)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """In the order of the arguments; can be differentiated."""
        x, reset, batch_sizes, *rest = ctx.saved_tensors
        tensors, saved = rest[: ctx.given], rest[ctx.given :]
        hx, params = tensors[: ctx.states], tensors[ctx.states :]
        _, _, _, wants_x, _, _, *wants = ctx.needs_input_grad
        upstream = upstream[:4]
        if all(gradient is None for gradient in upstream):
            return (None,) * (6 + ctx.given)
        chains = len(saved) // len(SAVED)
        lists = [saved[k : k + chains] for k in range(0, len(saved), chains)]
        mask = [wants_x, *(wants[: ctx.states] or (False, False)), any(wants[ctx.states :])]
        with torch.no_grad():
            states = hx or [x.new_zeros(ctx.shape)] * 2
            options = (reset, ctx.packed, batch_sizes, ctx.attributes, mask)
            dx, dh, dc, dparams = _gradients(x, states, params, upstream, lists, *options)
        found = [
            dx if wants_x else None,
            dparams if mask[3] else [None] * len(params),
            [g if wanted else None for g, wanted in zip((dh, dc), wants, strict=False)] if hx else None,
        ]
        inputs = (x, params, hx or None, batch_sizes, *ctx.attributes, *([] if reset is None else [reset]))
        nothing = [None] * (len(inputs) - len(found))
        dx, dparams, dhx = again(_cells_formula(reset, ctx.packed), inputs, upstream, (*found, *nothing))[:3]
        return None, None, None, dx, None, None, *(dhx or []), *dparams


def _gradients(
    x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], upstream: Sequence[Any], saved: list[list[Tensor]],
    reset: Tensor | None, packed: bool, batch_sizes: Tensor | None, attributes: Any, mask: list[bool],
) -> Any:  # fmt: skip
    """dx, dh_prev, dc_prev, dparams."""
    dy, dh, dc, dcells = upstream
    has_bias, *_ = attributes
    if dcells is not None:
        chains, each = len(saved[0]), 2 + 2 * has_bias
        if dy is None:
            dy = torch.zeros_like(dcells)
        halves = zip(dy.chunk(chains, -1), dcells.chunk(chains, -1), strict=True)
        dy = torch.cat([half for pair in halves for half in pair], -1)
        dh, dc = (None if state is None else torch.cat([state, torch.zeros_like(state)], -1) for state in (dh, dc))
        hx = [torch.cat([state, state], -1) for state in hx]
        params = [_doubled(weight, recurrent=k % each == 1) for k, weight in enumerate(params)]
        saved = [[_shadowed(name, part) for part in parts] for name, parts in zip(SAVED, saved, strict=True)]
    if batch_sizes is not None and dy is not None and not packed:
        dy = dy.flatten(0, 1)
    arguments = (x, hx, params, dy, dh, dc, *saved, batch_sizes, *attributes, mask)
    given = with_reset(BACKWARD, arguments, reset, packed)
    dx, dh_prev, dc_prev, dparams = op(BACKWARD, reset, packed)(*given)
    if dcells is not None:
        hidden = hx[0].shape[-1] // 2
        dh_prev = dh_prev[..., :hidden]
        if mask[2]:
            dc_prev = dc_prev[..., :hidden] + dc_prev[..., hidden:]
        if mask[3]:
            dparams = [_halved(slope, recurrent=k % each == 1) for k, slope in enumerate(dparams)]
    return dx, dh_prev, dc_prev, dparams


def _shadowed(name: str, values: Tensor) -> Tensor:
    """A saved activation of units and of their shadows behind them."""
    shadow = torch.ones_like(values) if name == "o" else torch.zeros_like(values) if name == "tanhc" else values
    return torch.cat([values, shadow], -1)


def _doubled(weight: Tensor, *, recurrent: bool) -> Tensor:
    """A weight or bias for units and shadows: the same rows; the shadows' h has columns of zeros."""
    rows = weight.reshape(GATES, weight.shape[0] // GATES, *weight.shape[1:])
    rows = torch.cat([rows, rows], 1).flatten(0, 1)
    return torch.cat([rows, torch.zeros_like(rows)], 1) if recurrent else rows


def _halved(slope: Tensor, *, recurrent: bool) -> Tensor:
    """The gradient of a weight or bias from that of its double."""
    hidden = slope.shape[0] // (2 * GATES)
    both = slope.reshape(GATES, 2, hidden, *slope.shape[1:]).sum(1).flatten(0, 1)
    return both[:, : both.shape[1] // 2] if recurrent else both
