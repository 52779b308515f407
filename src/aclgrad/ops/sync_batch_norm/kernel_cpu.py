"""Synchronised batch norm on the CPU."""

from __future__ import annotations

from ...core.backends import Launch
from ...core.spec import Call
from .cpu.elementwise import BatchNormElemt, BatchNormElemtBackward
from .cpu.reduce_backward import BatchNormReduceBackward
from .cpu.stats import BatchNormGatherStatsWithCounts, BatchNormStats
from .cpu.training import BatchNorm, BatchNormBackward
from .steps import Backward


def batch_norm_stats(call: Call) -> Launch:
    """Any of the float dtypes, any strides."""
    return BatchNormStats(call)


def batch_norm_gather_stats_with_counts(call: Call) -> Launch:
    """Any mix of float dtypes, any strides, any numeric counts."""
    return BatchNormGatherStatsWithCounts(call)


def batch_norm_elemt(call: Call) -> Launch:
    """Any mix of float dtypes, any strides."""
    return BatchNormElemt(call)


def batch_norm_reduce_backward(call: Call) -> Launch:
    """Any of the float dtypes, any mix of vectors, any strides."""
    return BatchNormReduceBackward(call)


def batch_norm_elemt_backward(call: Call) -> Launch:
    """Any mix of float dtypes, any strides, any numeric counter."""
    return BatchNormElemtBackward(call)


def batch_norm(call: Call) -> Launch:
    """Any mix of float dtypes, any strides."""
    return BatchNorm(call)


def batch_norm_backward(call: Call) -> Launch:
    """Any mix of float dtypes, any strides; the sums alone are the synchronised layer's."""
    if call["wants_input"]:
        return BatchNormBackward(call)
    return Backward(call, batch_norm_reduce_backward, batch_norm_elemt_backward)
