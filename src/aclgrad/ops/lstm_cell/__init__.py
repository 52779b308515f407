"""The fused LSTM cell: aclnnThnnFusedLstmCellBackward."""

from .functional import lstm_cell_backward as lstm_cell_backward
