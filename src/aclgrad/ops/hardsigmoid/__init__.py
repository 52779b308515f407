"""hardsigmoid: aclnnHardsigmoid, aclnnInplaceHardsigmoid and aclnnHardsigmoidBackward."""

from .functional import hardsigmoid as hardsigmoid
from .functional import hardsigmoid_ as hardsigmoid_
from .functional import hardsigmoid_backward as hardsigmoid_backward
