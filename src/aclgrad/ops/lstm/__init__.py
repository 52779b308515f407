"""The whole LSTM: aclnnLSTM and aclnnLstmBackward."""

from .functional import lstm as lstm
from .functional import lstm_backward as lstm_backward
