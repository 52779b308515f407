"""`nn.LSTMCell`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import linear

from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import member, recorded, require_dtype, require_shape, require_states
from .._shared.small import REFUSALS, is_exact, is_served
from .autograd import cell

__all__ = ["LSTMCell"]

SMALL = 1 << 24
"""Products of numbers, those with the weights, up to which torch's own cell is faster; on a GPU for the host."""

WEIGHTS = {
    "weight_ih": "[4 * hidden_size, input_size]",
    "weight_hh": "[4 * hidden_size, hidden_size]",
    **dict.fromkeys(("bias_ih", "bias_hh"), "[4 * hidden_size]"),
}
"""What a cell's parameters are called, and their shapes in words."""

States = tuple[Tensor, Tensor]


class LSTMCell(nn.LSTMCell):
    """`torch.nn.LSTMCell` by this package's kernels: same arguments, parameters and state_dict.

    Shapes: `input` [N, input_size] or [input_size]; `hx` = (h, c), each [N, hidden_size] or [hidden_size], zeros if
    absent. Returns (h, c). Can be differentiated any number of times.

    >>> import torch, aclgrad.nn
    >>> h, c = aclgrad.nn.LSTMCell(3, 4)(torch.ones(2, 3))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    def forward(self, input: Tensor, hx: States | None = None) -> States:
        """One step."""
        if is_served(input, by_gpu=True) and 4 * self.hidden_size * input.numel() <= SMALL and is_exact(input):
            try:
                return super().forward(input, hx)
            except REFUSALS:  # said better below
                pass
        if isinstance(input, Proxy):
            return recorded(self, input, hx)
        batched = not isinstance(input, Tensor) or input.dim() != 1
        require_shape("input", input, [None] * batched + [self.input_size], "[N, input_size] or [input_size]")
        states = (*input.shape[:-1], self.hidden_size)
        require_states(hx, states, "[N, hidden_size]" if batched else "[hidden_size]")
        h, c = hx if hx is not None else [input.new_zeros(states)] * 2
        if batched:
            return self._step(input, h, c)
        hy, cy = self._step(input.unsqueeze(0), h.unsqueeze(0), c.unsqueeze(0))
        return hy.squeeze(0), cy.squeeze(0)

    def _weights(self) -> dict[str, Tensor]:
        """Weights and biases that are there, as the options want them: all of them may have been set since.

        Whether `bias` was asked for is not looked at, as it is not in torch.
        """
        rows = 4 * self.hidden_size
        shapes = ((rows, self.input_size), (rows, self.hidden_size), (rows,), (rows,))
        weights = {}
        for (name, symbols), shape in zip(WEIGHTS.items(), shapes, strict=True):
            weight = member(self, name)
            if weight is None and len(shape) == 1:
                continue
            if getattr(weight, "shape", None) != shape:
                require_shape(name, weight, shape, symbols)
            weights[name] = weight
        return weights

    def _step(self, input: Tensor, hx: Tensor, cx: Tensor) -> States:
        """Two products, then the fused cell. Under autocast the cell runs in what torch's own runs in.

        That is autocast's dtype on a GPU, and that of c on a CPU.
        """
        weights = self._weights()
        weight_ih, weight_hh, *biases = weights.values()
        lower = autocast_dtype(input)
        if lower is None:
            require_dtype("input", input, weight_ih.dtype, "weight_ih")
            for name, weight in weights.items():
                require_dtype(name, weight, weight_ih.dtype, "weight_ih")
            require_dtype("hx[0]", hx, weight_hh.dtype, "weight_hh")
        cell_dtype = lower if lower is not None and input.is_cuda else None
        cx, *biases = lowered(cell_dtype, cx, *biases)
        if len(biases) == 1:  # the operator takes both or none, and adds them
            biases.append(torch.zeros_like(biases[0]))
        operands = linear(input, weight_ih), linear(hx, weight_hh), *(biases or (None, None))
        x_gates, h_gates, *both = (t if t is None or t.dtype == cx.dtype else t.to(cx.dtype) for t in operands)
        hy, cy, _ = cell(x_gates, h_gates, cx, *both)
        return hy, cy
