"""Named inputs of the family, operator by operator."""

from . import cases_elemt, cases_gather, cases_sums, cases_training
from .cases_batches import of_shape

SUITES = {**cases_sums.SUITES, **cases_gather.SUITES, **cases_elemt.SUITES, **cases_training.SUITES}

SIZED = {
    "batch_norm_stats": of_shape(cases_sums._stats),
    "batch_norm_gather_stats_with_counts": cases_gather._gather,
    "batch_norm_elemt": of_shape(cases_elemt._forward()),
    "batch_norm_reduce_backward": of_shape(cases_sums._reduce()),
    "batch_norm_elemt_backward": of_shape(cases_elemt._backward()),
    "batch_norm": of_shape(cases_training._forward()),
    "batch_norm_backward": of_shape(cases_training._backward()),
}
