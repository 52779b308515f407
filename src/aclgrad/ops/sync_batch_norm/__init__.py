"""Synchronised batch norm: aclnnBatchNormStats, …GatherStatsWithCounts, …Elemt, …ReduceBackward, …ElemtBackward."""

from .functional import batch_norm_elemt as batch_norm_elemt
from .functional import batch_norm_elemt_backward as batch_norm_elemt_backward
from .functional import batch_norm_gather_stats_with_counts as batch_norm_gather_stats_with_counts
from .functional import batch_norm_reduce_backward as batch_norm_reduce_backward
from .functional import batch_norm_stats as batch_norm_stats
