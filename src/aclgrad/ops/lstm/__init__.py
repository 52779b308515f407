"""The whole LSTM: aclnnLSTM and aclnnLstmBackward."""

from . import spec_packed as spec_packed  # operators without a document register, too
from . import spec_resets as spec_resets
from .functional import lstm, lstm_backward

__all__ = ["lstm", "lstm_backward"]
