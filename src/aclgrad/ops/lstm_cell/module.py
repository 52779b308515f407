"""`nn.LSTMCell`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .._shared.autocast import autocast_dtype, lowered
from .._shared.modules import require_dtype, require_shape, require_states

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
        batched = not isinstance(input, Tensor) or input.dim() != 1
        require_shape("input", input, [None] * batched + [self.input_size], "[N, input_size] or [input_size]")
        states = (*input.shape[:-1], self.hidden_size)
        require_states(hx, states, "[N, hidden_size]" if batched else "[hidden_size]")
        h, c = hx if hx is not None else [input.new_zeros(states)] * 2
        if batched:
            return self._step(input, h, c)
        hy, cy = self._step(input.unsqueeze(0), h.unsqueeze(0), c.unsqueeze(0))
        return hy.squeeze(0), cy.squeeze(0)

    def _step(self, input: Tensor, hx: Tensor, cx: Tensor) -> States:
        """Two products, then the fused cell. Under autocast the cell runs in what torch's own runs in.

        That is autocast's dtype on a GPU, and that of c on a CPU.
        """
        lower = autocast_dtype(input)
        if lower is None:
            require_dtype("input", input, self.weight_ih.dtype, "weight_ih")
            require_dtype("hx[0]", hx, self.weight_hh.dtype, "weight_hh")
        cell_dtype = lower if lower is not None and input.is_cuda else None
        cx, *biases = lowered(cell_dtype, cx, *((self.bias_ih, self.bias_hh) if self.bias else ()))
        gates = (linear(input, self.weight_ih), linear(hx, self.weight_hh))
        x_gates, h_gates, *biases = [tensor.to(cx.dtype) for tensor in (*gates, *biases)]
        hy, cy, _ = torch.ops.aclgrad.lstm_cell(x_gates, h_gates, cx, *(biases or (None, None)))
        return hy, cy
