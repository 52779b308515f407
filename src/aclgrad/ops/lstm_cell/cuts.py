"""A cell may be cut into parts of its batch. The gradient of its biases is a sum over the batch."""

from __future__ import annotations

from ...core.cuts import along
from .spec import FORWARD_MATRICES, STATES

CUTS = {
    "lstm_cell": along(*FORWARD_MATRICES),
    "lstm_cell_backward": along(*STATES, "storage", "grad_gates", "grad_cx", sums=("grad_bias",)),
}
