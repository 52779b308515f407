"""Vocabulary-parallel fused linear cross entropy: aclnnFusedLinearCrossEntropyLossGrad."""

from .functional import linear_cross_entropy_backward as linear_cross_entropy_backward
