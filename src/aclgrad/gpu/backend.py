"""The backend `triton`: a family's `kernel_triton` for tensors on a GPU, or interpreted where there is none.

Triton itself is imported when a call needs it.
"""

from __future__ import annotations

import torch

from ..core.backends import Launch, kernel, register
from ..core.errors import Unsupported
from ..core.spec import Call


def make(call: Call) -> Launch:
    """The launch of a call on its device, if it is a GPU's and the dtypes are those of the kernels."""
    if any(meta.dtype == torch.float64 for _, meta in call.metas(*call.spec.params)):
        raise Unsupported("computes in float32, these are float64")
    if call.device.type != "cuda" and not interpreting():
        raise Unsupported(f"runs on CUDA tensors (or interpreted, with TRITON_INTERPRET=1), these are on {call.device}")
    launch = kernel(call, "triton")
    from .devices import OnDevice

    return OnDevice(launch, call.device)


def interpreting() -> bool:
    """Whether Triton is there and interprets its kernels."""
    try:
        import triton
    except ImportError:
        return False
    return bool(triton.knobs.runtime.interpret)


register("triton", make)
