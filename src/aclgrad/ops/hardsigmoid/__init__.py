"""hardsigmoid: aclnnHardsigmoid, aclnnInplaceHardsigmoid and aclnnHardsigmoidBackward."""

from .functional import hardsigmoid, hardsigmoid_, hardsigmoid_backward

__all__ = ["hardsigmoid", "hardsigmoid_", "hardsigmoid_backward"]
