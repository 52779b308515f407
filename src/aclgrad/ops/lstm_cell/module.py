"""`nn.LSTMCell`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import linear

from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import recorded, require_dtype, require_shape, require_states
from .._shared.small import REFUSALS, is_exact, is_served

__all__ = ["LSTMCell"]

SMALL = 1 << 24
"""Products of numbers, those with the weights, up to which torch's own cell is faster; on a GPU for the host."""

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
        weights = {"weight_ih": self.weight_ih, "weight_hh": self.weight_hh}
        require_shape("weight_ih", weights["weight_ih"], (rows, self.input_size), "[4 * hidden_size, input_size]")
        require_shape("weight_hh", weights["weight_hh"], (rows, self.hidden_size), "[4 * hidden_size, hidden_size]")
        for name in ("bias_ih", "bias_hh"):
            bias = getattr(self, name)
            if bias is not None:
                require_shape(name, bias, (rows,), "[4 * hidden_size]")
                weights[name] = bias
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
        gates = linear(input, weight_ih), linear(hx, weight_hh)
        x_gates, h_gates, *both = (tensor.to(cx.dtype) for tensor in (*gates, *biases))
        hy, cy, _ = torch.ops.aclgrad.lstm_cell(x_gates, h_gates, cx, *both)
        return hy, cy
