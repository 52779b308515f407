"""The families of operators, one folder each: contract, reference, kernels, cases, documentation.

Importing this package registers them all.
"""

from . import hardsigmoid as hardsigmoid
from . import linear_cross_entropy as linear_cross_entropy
from . import lstm as lstm
from . import lstm_cell as lstm_cell
from . import sync_batch_norm as sync_batch_norm
