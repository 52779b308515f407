"""An LSTM whose h is projected, by one whose h is not.

With m = o⊙tanh(c) and h = w_hr·m the gates are w_ih·x + w_hh·h = w_ih·x + (w_hh·w_hr)·m: those of a plain LSTM with
the recurrent weight w_hh·w_hr, whose output m is projected for all steps at once. Only an initial h comes from no m: it
is a part of the input of a sequence's first step, with the weight w_hh.

That is one product a step instead of two, but a larger one, and w_hh·w_hr once a call. On a CPU torch's own operations
serve what would be more work than that is worth: a step at a time, a small projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.functional import linear, pad

from ...core.dispatch import is_plain, wants_gradient
from .._shared.small import REFUSALS, is_exact, is_served
from .packing import Packing

States = tuple[Tensor, Tensor]
Layer = Callable[[Tensor, list[Tensor], "States | None"], tuple[Tensor, States]]
"""From the input, weights and (h, c) of a layer: its output and the last (h, c)."""

SUM_LENGTH = 128
"""Terms that a GPU's library sums of float32: every step multiplies with the sums, so that their errors add up."""

WORTH = 4
"""How many times torch's multiplications these may be and still take less time on a CPU."""


def projected(
    plain: Layer, x: Tensor, params: Sequence[Tensor], hx: Sequence[Tensor] | None, packing: Packing | None,
    directions: int, reset: Tensor | None = None,
) -> tuple[Tensor, States]:  # fmt: skip
    """A layer with weights (w_ih, w_hh, biases, w_hr) of each direction, by a `plain` one.

    `x` is [T, N, ·], or with `packing` packed rows; h, of `hx` and of the results, has w_hr's rows. `plain` knows of
    resets; `reset` is for the initial h, which is an input there.
    """
    each = len(params) // directions
    chains = [params[k : k + each] for k in range(0, len(params), each)]
    steps = x.shape[0] if packing is None else packing.batch_sizes.shape[0]
    if hx is None and steps == 1:  # or nothing would depend on w_hh, whose gradient is zero and not absent
        batch = x.shape[1] if packing is None else packing.batch
        hx = [x.new_zeros(directions, batch, size) for size in chains[0][-1].shape]
    weights = [weight for d in range(directions) for weight in _plain_weights(chains, d, steps, first=hx is not None)]
    states = None
    if hx is not None:
        h0 = list(hx[0])
        if reset is not None:  # a sequence that starts anew at once
            at_once = reset[0] if packing is None else reset[: packing.batch]
            h0[0] = torch.where(at_once.unsqueeze(-1), 0.0, h0[0])
        x = torch.cat([x, *(_at_the_first_step(h0[d], d, x.shape[0], packing) for d in range(directions))], -1)
        states = torch.zeros_like(hx[1]), hx[1]
    output, (last, cy) = plain(x, weights, states)
    heads = [chain[-1] for chain in chains]
    parts = output.chunk(directions, -1)
    output = torch.cat([linear(part, head) for part, head in zip(parts, heads, strict=True)], -1)
    return output, (torch.stack([linear(m, head) for m, head in zip(last, heads, strict=True)]), cy)


def by_torch(
    module: nn.RNNBase, x: Tensor, weights: list[Tensor], hx: Sequence[Tensor] | None, batch_sizes: Tensor | None
) -> tuple[Tensor, States] | None:
    """The output and (h, c) of a projected LSTM; None where that is not torch's to compute. Packed data stays so."""
    if not is_served(x) or not is_exact(x) or not is_plain(x, *weights, *(hx or ())):
        return None
    rows, hidden, size = math.prod(x.shape[:-1]), module.hidden_size, module.proj_size
    if 4 * hidden * (size + rows) <= WORTH * 5 * size * rows:
        return None
    batch = int(batch_sizes[0]) if batch_sizes is not None else x.shape[0 if module.batch_first else 1]
    chains = module.num_layers * (1 + module.bidirectional)
    states = list(hx) if hx is not None else [x.new_zeros(chains, batch, width) for width in (size, hidden)]
    lstm: Any = torch.lstm
    options = (module.bias, module.num_layers, module.dropout, module.training, module.bidirectional)
    try:
        if batch_sizes is None:
            output, hy, cy = lstm(x, states, weights, *options, module.batch_first)
        else:
            output, hy, cy = lstm(x, batch_sizes, states, weights, *options)
    except REFUSALS:  # said better where a kernel does it
        return None
    return output, (hy, cy)


def _plain_weights(chains: Sequence[Sequence[Tensor]], direction: int, steps: int, *, first: bool) -> list[Tensor]:
    """w_ih, w_hh and biases of a direction of the plain layer, with the columns of all directions' `first` h."""
    w_ih, w_hh, *biases, w_hr = chains[direction]
    if first:
        columns = [w_hh if d == direction else torch.zeros_like(w_hh) for d in range(len(chains))]
        w_ih = torch.cat([w_ih, *columns], 1)
    if steps > 1:
        return [w_ih, product(w_hh, w_hr), *biases]
    unused = w_hh.new_zeros(()).expand(w_hh.shape[0], w_hr.shape[1])  # a single step has no m before it
    return [w_ih, unused, *biases]


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b. On a GPU sums of float32 are kept short: the library would add one term after another.

    >>> product(torch.ones(2, 3), torch.ones(3, 4)).shape
    torch.Size([2, 4])
    """
    if not a.is_cuda or a.dtype != torch.float32 or forward_ad._current_level >= 0:
        return a @ b
    differentiated = torch._C._are_functorch_transforms_active() or wants_gradient((a, b))
    # torch.compile cannot trace a function with `setup_context` where no gradient is wanted.
    call: Any = ShortSums.apply if differentiated else ShortSums.forward
    found: Tensor = call(a, b)
    return found


class ShortSums(torch.autograd.Function):
    """A product whose sums of `SUM_LENGTH` terms are added to each other, and so are those of its gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        """Each product is added to those before."""
        first, *more = zip(a.split(SUM_LENGTH, 1), b.split(SUM_LENGTH), strict=True)
        total: Tensor = first[0] @ first[1]
        for left, right in more:
            total = torch.addmm(total, left, right)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004  autograd's names
        """Keep both."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Can be differentiated."""
        a, b = ctx.saved_tensors
        wants_a, wants_b = ctx.needs_input_grad
        return product(grad, b.t()) if wants_a else None, product(a.t(), grad) if wants_b else None


def _at_the_first_step(h: Tensor, direction: int, rows: int, packing: Packing | None) -> Tensor:
    """h [N, P] where a direction of each sequence begins, zeros elsewhere: laid out as the layer's input.

    That has `rows` rows, or so many times if the sequences are equally long.
    """
    if packing is None:
        more = rows - 1
        return pad(h.unsqueeze(0), (0, 0, 0, 0, more, 0) if direction else (0, 0, 0, 0, 0, more))
    if direction == 0:
        return pad(h, (0, 0, 0, rows - h.shape[0]))
    return h.new_zeros(rows, h.shape[1]).index_copy(0, packing.last_rows(), h)
