"""The steps of the textbook LSTM, forward and back: what the operators of the family have in common.

Sequences of different lengths are padded to [T, N, ·]; `batch_sizes` [T] says which positions hold data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._shared.lstm_gates import gate_gradients, none_as_zeros

Saved = list[Tensor] | None
Forward = tuple[Tensor, Tensor, Tensor, Saved, Saved, Saved, Saved, Saved, Saved, Saved]
"""(output, hy, cy), then lists over layers and directions of [T, N, H] for the gradient: i, j, f, o, h, c, tanhc."""


@dataclass(frozen=True)
class Chain:
    """One direction of one layer."""

    index: int  # in the lists of saved activations and in dimension 0 of the states
    reverse: bool
    params: slice  # w_ih, w_hh and, with bias, b_ih, b_hh

    def forward_order(self, steps: int) -> Sequence[int]:
        """The time indices in the order the chain consumes its input."""
        return range(steps)[::-1] if self.reverse else range(steps)


def chains(layer: int, bidirectional: bool, has_bias: bool) -> list[Chain]:
    """The directions of a layer."""
    directions, width = 1 + bidirectional, 2 + 2 * has_bias
    indices = range(layer * directions, (layer + 1) * directions)
    return [Chain(k, k > indices[0], slice(k * width, (k + 1) * width)) for k in indices]


def forward(
    input: Tensor, params: Sequence[Tensor], reset: Tensor | None, hx: Sequence[Tensor] | None,
    batch_sizes: Tensor | None, has_bias: bool, num_layers: int, train: bool, bidirectional: bool, batch_first: bool,
) -> Forward:  # fmt: skip
    """`lstm`, with `reset` `lstm_with_resets`."""
    batch = hx[0].shape[1] if hx else input.shape[0] // max(1, 0 if batch_sizes is None else len(batch_sizes))
    x, valid = _time_major(input, batch, batch_sizes, batch_first)
    states = (1 + bidirectional) * num_layers, x.shape[1], params[1].shape[1]
    h0, c0 = hx or (input.new_zeros(states), input.new_zeros(states))
    saved, hy, cy = [], [], []
    for layer in range(num_layers):
        outputs = []
        for chain in chains(layer, bidirectional, has_bias):
            steps, h_last, c_last = _chain_forward(
                chain, x, params[chain.params], h0[chain.index], c0[chain.index], valid,
                _anew(chain, reset, valid),
            )  # fmt: skip
            saved.append(steps)
            hy.append(h_last)
            cy.append(c_last)
            outputs.append(_or_zero(valid, steps[4]))
        x = torch.cat(outputs, dim=-1)
    output = x.transpose(0, 1) if batch_first and valid is None else x
    i, j, f, o, h, c, tanhc = ([steps[k] for steps in saved] if train else None for k in range(7))
    return output, torch.stack(hy), torch.stack(cy), i, j, f, o, h, c, tanhc


def _chain_forward(
    chain: Chain, x: Tensor, params: Sequence[Tensor], h: Tensor, c: Tensor, valid: Tensor | None,
    anew: Tensor | None,
) -> tuple[list[Tensor], Tensor, Tensor]:  # fmt: skip
    """One chain over x [T, N, ·] from the states h, c [N, H]: the seven saved [T, N, H], the last h and c."""
    w_ih, w_hh, *biases = params
    steps: dict[int, tuple[Tensor, ...]] = {}
    for t in chain.forward_order(x.shape[0]):
        if anew is not None:
            h, c = torch.where(anew[t], 0.0, h), torch.where(anew[t], 0.0, c)
        a = x[t] @ w_ih.T + h @ w_hh.T
        if biases:
            a = a + (biases[0] + biases[1])
        a_i, a_f, a_g, a_o = a.chunk(4, dim=-1)
        i, f, g, o = torch.sigmoid(a_i), torch.sigmoid(a_f), torch.tanh(a_g), torch.sigmoid(a_o)
        c = _or_carried(valid, t, f * c + i * g, c)
        tanhc = torch.tanh(c)
        h = _or_carried(valid, t, o * tanhc, h)
        steps[t] = (i, g, f, o, h, c, tanhc)
    if not steps:
        return [h.new_zeros(0, *h.shape)] * 7, h, c
    return [torch.stack([steps[t][k] for t in range(x.shape[0])]) for k in range(7)], h, c


def backward(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], dy: Tensor | None, dh: Tensor | None,
    dc: Tensor | None, saved: Sequence[Sequence[Tensor]], reset: Tensor | None, batch_sizes: Tensor | None,
    has_bias: bool, num_layers: int, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:  # fmt: skip
    """`lstm_backward`, with `reset` `lstm_with_resets_backward`."""
    i, j, f, o, h, c, tanhc = saved
    _, batch, hidden = hx[0].shape
    x, valid = _time_major(input, batch, batch_sizes, batch_first)
    dh_prev, dc_prev = (
        list(_undefined_if_infinite(none_as_zeros(gradient, state)))
        for gradient, state in zip((dh, dc), hx, strict=True)
    )
    dparams = list(params)
    grad = none_as_zeros(dy, input.new_empty(*input.shape[:-1], (1 + bidirectional) * hidden))
    grad, _ = _time_major(grad, batch, batch_sizes, batch_first)
    for layer in reversed(range(num_layers)):
        group = chains(layer, bidirectional, has_bias)
        below = [h[chain.index] for chain in chains(layer - 1, bidirectional, has_bias)] if layer else [x]
        layer_input = _undefined_if_infinite(_or_zero(valid, torch.cat(below, dim=-1)))
        dx = torch.zeros_like(layer_input)
        for chain, grad_y in zip(group, grad.chunk(len(group), dim=-1), strict=True):
            k = chain.index
            weights = [_undefined_if_infinite(weight) for weight in params[chain.params][:2]]
            anew = _anew(chain, reset, valid)
            c_prev = _or_start(anew, _previous(chain, c[k], hx[1][k]))
            of_steps = (i[k], f[k], j[k], o[k], tanhc[k], c_prev)
            gates, dh_prev[k], dc_prev[k] = _chain_backward(
                chain, grad_y, of_steps, weights[1], dh_prev[k], dc_prev[k], valid, anew
            )
            dx = dx + _or_zero(valid, gates @ weights[0])
            h_prev = _or_start(anew, _previous(chain, h[k], hx[0][k]))
            h_prev = _undefined_if_infinite(_or_zero(valid, h_prev))
            rows = gates.flatten(0, 1).T
            bias = rows.sum(dim=1)
            gradients = [rows @ layer_input.flatten(0, 1), rows @ h_prev.flatten(0, 1), bias, bias]
            dparams[chain.params] = gradients[: 2 + 2 * has_bias]
        grad = dx
    if valid is not None:
        grad = grad.flatten(0, 1)
    elif batch_first:
        grad = grad.transpose(0, 1)
    return grad, torch.stack(dh_prev), torch.stack(dc_prev), dparams


def _chain_backward(
    chain: Chain,
    grad_y: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    w_hh: Tensor,
    dh: Tensor,
    dc: Tensor,
    valid: Tensor | None,
    anew: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One chain from its last step to its first: the gate gradients [T, N, 4H], dh and dc of the initial state."""
    steps, batch, hidden = grad_y.shape
    gates = grad_y.new_zeros(steps, batch, 4 * hidden)
    for t in reversed(chain.forward_order(steps)):
        blocks, dc_prev = gate_gradients(grad_y[t] + dh, dc, *(values[t] for values in saved))
        delta = torch.cat(blocks, dim=-1)
        gates[t] = _or_carried(valid, t, delta, torch.zeros_like(delta))
        dh = _or_carried(valid, t, delta @ w_hh, dh)
        dc = _or_carried(valid, t, dc_prev, dc)
        if anew is not None:
            dh, dc = torch.where(anew[t], 0.0, dh), torch.where(anew[t], 0.0, dc)
    return gates, dh, dc


def _previous(chain: Chain, state: Tensor, start: Tensor) -> Tensor:
    """The state each step started from: `state` [T, N, H] moved by one step, `start` [N, H] in front."""
    first = start.unsqueeze(0)[: state.shape[0]]
    return torch.cat([state[1:], first] if chain.reverse else [first, state[:-1]])


def _time_major(
    value: Tensor, batch: int, batch_sizes: Tensor | None, batch_first: bool
) -> tuple[Tensor, Tensor | None]:
    """The value as [T, N, ·], and which positions hold data as [T, N, 1] (None: all)."""
    if batch_sizes is None:
        return value.transpose(0, 1) if batch_first else value, None
    valid = batch_sizes[:, None] > torch.arange(batch, device=batch_sizes.device)
    return value.reshape(batch_sizes.shape[0], batch, value.shape[1]), valid.unsqueeze(-1)


def _anew(chain: Chain, reset: Tensor | None, valid: Tensor | None) -> Tensor | None:
    """Which rows a chain starts from zeros at each time, as [T, N, 1] (None: none)."""
    if reset is None:
        return None
    anew = reset.unsqueeze(-1) if valid is None else reset.unsqueeze(-1) & valid
    if chain.reverse:
        anew = torch.cat([anew[1:], torch.zeros_like(anew[:1])])
    return anew if valid is None else anew & valid


def _or_start(anew: Tensor | None, previous: Tensor) -> Tensor:
    """The state that each step starts from, zero where that is anew."""
    return previous if anew is None else torch.where(anew, 0.0, previous)


def _or_carried(valid: Tensor | None, t: int, computed: Tensor, carried: Tensor) -> Tensor:
    return computed if valid is None else torch.where(valid[t], computed, carried)


def _or_zero(valid: Tensor | None, value: Tensor) -> Tensor:
    return value if valid is None else torch.where(valid, value, 0.0)


def _undefined_if_infinite(value: Tensor) -> Tensor:
    """NaN where the value is infinite: a product spreads a NaN to all that depends on it, an infinity not always."""
    return torch.where(torch.isinf(value), torch.nan, value)
