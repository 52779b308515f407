"""Vocabulary-parallel fused linear cross entropy: its statistics, its loss and its gradient."""

from .functional import cross_entropy_with_max_sum as cross_entropy_with_max_sum
from .functional import linear_cross_entropy_backward as linear_cross_entropy_backward
from .functional import linear_online_max_sum as linear_online_max_sum
