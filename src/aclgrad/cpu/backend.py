"""The backend `cpu`: a family's `kernel_cpu` for tensors in the host's memory."""

from __future__ import annotations

from ..core.backends import Launch, kernel, register
from ..core.errors import Unsupported
from ..core.spec import Call


def make(call: Call) -> Launch:
    """The launch of a call, if its tensors are on a CPU."""
    if call.device.type != "cpu":
        raise Unsupported(f"runs on CPU tensors, these are on {call.device}")
    return kernel(call, "cpu")


register("cpu", make)
