# Written by `make generate`; edit tools/generate.py or the contracts instead.
from .frontends.torch_conversion import Report as Report
from .frontends.torch_decompositions import decompositions as decompositions
from .frontends.torch_modules import TWINS as TWINS
from .frontends.torch_modules import convert as convert
from .frontends.torch_modules import revert as revert
from .ops.hardsigmoid.module import *
from .ops.linear_cross_entropy.module import *
from .ops.lstm.module import *
from .ops.lstm_cell.module import *
from .ops.sync_batch_norm.module import *
