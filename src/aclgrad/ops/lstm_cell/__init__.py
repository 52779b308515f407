"""The fused LSTM cell: aclnnThnnFusedLstmCell and aclnnThnnFusedLstmCellBackward."""

from .functional import lstm_cell, lstm_cell_backward

__all__ = ["lstm_cell", "lstm_cell_backward"]
