# Written by `make generate`; edit tools/generate.py or the contracts instead.
from .ops.hardsigmoid.torch_npu import *
from .ops.linear_cross_entropy.torch_npu import *
from .ops.lstm.torch_npu import *
from .ops.lstm_cell.torch_npu import *
from .ops.sync_batch_norm.torch_npu import *
