"""Synchronised batch norm on a GPU."""

from __future__ import annotations

from ...core.backends import Launch
from ...core.spec import Call
from .triton.elementwise import BatchNormElemt, BatchNormElemtBackward
from .triton.gather_stats import BatchNormGatherStatsWithCounts
from .triton.reduce_backward import BatchNormReduceBackward
from .triton.stats import BatchNormStats


def batch_norm_stats(call: Call) -> Launch:
    """Any of the float dtypes but float64, any strides."""
    return BatchNormStats(call)


def batch_norm_gather_stats_with_counts(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides, any numeric counts."""
    return BatchNormGatherStatsWithCounts(call)


def batch_norm_elemt(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    return BatchNormElemt(call)


def batch_norm_reduce_backward(call: Call) -> Launch:
    """Any of the float dtypes but float64, any mix of vectors, any strides."""
    return BatchNormReduceBackward(call)


def batch_norm_elemt_backward(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides, any numeric counter."""
    return BatchNormElemtBackward(call)
