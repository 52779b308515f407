"""The fused LSTM cell: aclnnThnnFusedLstmCell and aclnnThnnFusedLstmCellBackward."""

from .functional import lstm_cell as lstm_cell
from .functional import lstm_cell_backward as lstm_cell_backward
