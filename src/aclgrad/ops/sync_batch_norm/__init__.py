"""Synchronised batch norm: aclnnBatchNormStats, …GatherStatsWithCounts, …Elemt, …ReduceBackward, …ElemtBackward."""

from . import spec_training as spec_training
from .functional import (
    batch_norm_elemt,
    batch_norm_elemt_backward,
    batch_norm_gather_stats_with_counts,
    batch_norm_reduce_backward,
    batch_norm_stats,
)

__all__ = [
    "batch_norm_elemt",
    "batch_norm_elemt_backward",
    "batch_norm_gather_stats_with_counts",
    "batch_norm_reduce_backward",
    "batch_norm_stats",
]
