"""The whole LSTM: aclnnLstmBackward."""

from .functional import lstm_backward as lstm_backward
