"""The whole LSTM: aclnnLSTM and aclnnLstmBackward."""

from .functional import lstm, lstm_backward

__all__ = ["lstm", "lstm_backward"]
