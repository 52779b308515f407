"""hardsigmoid: aclnnHardsigmoidBackward."""

from .functional import hardsigmoid_backward as hardsigmoid_backward
