"""Synchronised batch norm: aclnnBatchNormElemtBackward."""

from .functional import batch_norm_elemt_backward as batch_norm_elemt_backward
