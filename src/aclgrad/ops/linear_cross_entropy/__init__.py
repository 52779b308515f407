"""Vocabulary-parallel fused linear cross entropy: its statistics, its loss and its gradient."""

from . import scale as scale  # operators without a document register, too
from . import spec_shards as spec_shards
from . import training as training
from .functional import cross_entropy_with_max_sum, linear_cross_entropy_backward, linear_online_max_sum

__all__ = ["cross_entropy_with_max_sum", "linear_cross_entropy_backward", "linear_online_max_sum"]
