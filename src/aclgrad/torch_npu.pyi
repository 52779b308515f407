# Written by `make generate`; edit tools/generate.py or the contracts instead.
from .ops.linear_cross_entropy.torch_npu import *
from .ops.lstm.torch_npu import *
