"""One step of an LSTM at a time, as whoever streams runs it: a cell a layer.

A whole sequence's kernel lays the weights out anew in every call, which pays over many steps or rows. For one step of
few rows it is most of the time, and torch's products read the weights where they lie. On a GPU that is so where no
gradient is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ...core.registry import lookup
from .._shared.small import REFUSALS, WIDE, is_served
from .dims import LstmDims

States = tuple[Tensor, Tensor]

QUICKER: dict[str, dict[torch.dtype, tuple[tuple[int, int], ...]]] = {
    "cpu": {
        torch.float64: ((1024, 0),),
        torch.float32: ((64, 0),),
        torch.float16: ((1, 0), (4, 724), (16, 1448)),
        torch.bfloat16: ((16, 0), (64, 8)),
    },
    "cuda": {torch.float32: ((64, 0),), torch.float16: ((256, 0),), torch.bfloat16: ((256, 0),)},
}
"""Sequences up to which this is faster, and from how many units on.

In float16 torch multiplies row by row on a CPU. Several rows of large weights take it less time than the whole
sequence's kernel takes to lay these out.
"""

ROW_BY_ROW = 128
"""Sequences times units up to which such products take less time than the host of that kernel."""


def _is_quicker(x: Tensor, rows: int, units: int) -> bool:
    if x.dtype == torch.float16 and x.is_cpu and rows * units <= ROW_BY_ROW:
        return True
    sizes = QUICKER["cuda" if x.is_cuda else "cpu"].get(x.dtype, ())
    return any(rows <= most and units >= least for most, least in sizes)


def by_cells(module: nn.RNNBase, x: Tensor, hx: Sequence[Tensor] | None) -> tuple[Tensor, States] | None:
    """What the module returns for one step: x [1, N, ·], [N, 1, ·] with `batch_first` or [1, ·]; None where it is not
    for this, or wants to be refused in words.

    Torch's cell computes in float32 and float64. Of half types it rounds every intermediate result on a CPU; there the
    products alone are torch's, and the rest is the operator `lstm_cell`.
    """
    device = "cuda" if x.is_cuda else "cpu"
    if not is_served(x, by_gpu=True) or x.is_nested or x.dim() not in (2, 3) or torch.is_autocast_enabled(device):
        return None
    batched = x.dim() == 3
    time = 1 if batched and module.batch_first else 0
    if x.shape[time] != 1:
        return None
    rows = x.shape[1 - time] if batched else 1
    whole = x.dtype in WIDE or x.is_cuda
    if (
        not _is_quicker(x, rows, module.hidden_size)
        or (torch.is_grad_enabled() and (x.is_cuda or not whole))
        or module.proj_size
        or (module.dropout and module.training)
    ):
        return None
    weights = _weights(module)
    chains = module.num_layers * (1 + module.bidirectional)
    states = _states(x, hx, (chains, rows, module.hidden_size) if batched else (chains, module.hidden_size))
    if weights is None or states is None:
        return None
    try:
        cell = torch.lstm_cell if whole else _in_half_precision
        step, finals = _layers(module, x.select(time, 0) if batched else x, weights, states, cell)
    except REFUSALS:  # said better by the operator
        return None
    h, c = _together(finals)
    return (step.unsqueeze(time), (h, c)) if batched else (step, (h.squeeze(1), c.squeeze(1)))


@cache
def _shapes(*sizes: int) -> list[torch.Size]:
    inputs, hidden, layers, directions, biases = sizes
    dims = LstmDims(0, 0, inputs, hidden, layers, directions, biases, variable=False, batch_first=False, P=0)
    return [torch.Size(shape) for shape in dims.param_shapes()]


def _weights(module: nn.RNNBase) -> list[Tensor] | None:
    """Those of the module, if they are its parameters and what its options want."""
    named = module._parameters
    weights = [named.get(name) for name in module._flat_weights_names]
    options = (module.input_size, module.hidden_size, module.num_layers, 1 + module.bidirectional, 1 + module.bias)
    if [None if weight is None else weight.shape for weight in weights] != _shapes(*options):
        return None
    return weights  # type: ignore[return-value]  # none is None


def _states(x: Tensor, hx: Any, shape: tuple[int, ...]) -> list[States] | None:
    """(h, c) of every chain, [N, H]; None where they are not what the module takes."""
    if hx is None:
        zeros = x.new_zeros(1 if len(shape) == 2 else shape[1], shape[-1])
        return [(zeros, zeros)] * shape[0]
    if type(hx) not in (tuple, list) or len(hx) != 2:
        return None
    h, c = hx
    for state in (h, c):
        if type(state) is not Tensor or state.shape != shape or state.dtype != x.dtype:
            return None
    if len(shape) == 2:
        h, c = h.unsqueeze(1), c.unsqueeze(1)
    return list(zip(h.unbind(), c.unbind(), strict=True))


def _layers(
    module: nn.RNNBase, x: Tensor, weights: Sequence[Tensor], states: Sequence[States], cell: Any
) -> tuple[Tensor, list[States]]:
    """The last layer's output, and (h, c) of every chain."""
    directions, each = 1 + module.bidirectional, 4 if module.bias else 2
    finals: list[States] = []
    for k, state in enumerate(states):
        finals.append(cell(x, state, *weights[k * each : (k + 1) * each]))
        if len(finals) % directions == 0:
            x = finals[-1][0] if directions == 1 else torch.cat([h for h, _ in finals[-2:]], -1)
    return x, finals


def _together(finals: Sequence[States]) -> States:
    """(h, c) of all chains, in other memory than the output, which is the last h."""
    if len(finals) == 1:
        ((h, c),) = finals
        return h.clone().unsqueeze(0), c.unsqueeze(0)
    h, c = map(torch.stack, zip(*finals, strict=True))
    return h, c


def _in_half_precision(x: Tensor, state: States, w_ih: Tensor, w_hh: Tensor, *biases: Tensor) -> States:
    h, c = state
    hy, cy, _ = lookup("lstm_cell")(linear(x, w_ih), linear(h, w_hh), c, *biases)
    return hy, cy
