"""Where the document of aclnnLstmBackward and the vendor's code differ."""

from __future__ import annotations

from ...core.profile import NOTHING
from ...core.spec import Call, Difference

INFINITIES = Difference(
    "an Inf in an input", "NaN in whatever depends on it", "what IEEE arithmetic makes of it", imitated=False
)
BACKWARD = (
    Difference("dy, dh or dc null", "161001", "it counts as zeros"),
    Difference("a list of the wrong length", "161002", "161001"),
    Difference("an empty tensor", "success; dh and dc are passed on, sums of nothing are zero", NOTHING),
    INFINITIES,
)
FORWARD = (
    Difference("an empty input", "success; the initial states are passed on", NOTHING),
    INFINITIES,
)


def backward_is_skipped(call: Call) -> bool:
    """The vendor's code looks for empty tensors among the gradients, the input and the lists."""
    names = ("input", "dy", "dh", "dc", "hx", "params", "i", "j", "f", "o", "h", "c", "tanhc")
    return any(meta.numel == 0 for _, meta in call.metas(*names))


def forward_is_skipped(call: Call) -> bool:
    """The vendor's code looks at the input."""
    return call.tensor("input").numel == 0
