"""Synchronised batch norm on a GPU."""

from __future__ import annotations

from ...core.backends import Launch
from ...core.spec import Call
from . import spec
from .steps import Backward, Steps
from .triton.elementwise import BatchNormElemt, BatchNormElemtBackward
from .triton.gather_stats import BatchNormGatherStatsWithCounts
from .triton.reduce_backward import BatchNormReduceBackward
from .triton.stats import BatchNormStats
from .triton.training import FinishStats


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


def batch_norm(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    steps, channels, wide = Steps(call), call.tensor("input").shape[1], call.tensor("mean").dtype
    centre, inverse = (steps.piece(channels, dtype=wide) for _ in range(2))
    steps.step(spec.batch_norm_stats, batch_norm_stats, ("input", 0.0), (centre, inverse))
    steps.own(FinishStats(call, centre, inverse))
    affine = ("weight", "bias", "mean", "invstd")
    steps.step(spec.batch_norm_elemt, batch_norm_elemt, ("input", *affine, call["eps"]), ("output",))
    return steps


def batch_norm_backward(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    return Backward(call, batch_norm_reduce_backward, batch_norm_elemt_backward)
