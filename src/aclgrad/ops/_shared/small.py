"""Small calls of modules: torch's own operations serve them, which cost the host less than a kernel of ours.

They compute the same function as exactly, and each module says up to how much work they are the faster ones. What torch
refuses goes the module's ordinary way, whose checks say what is wrong.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.dispatch import is_watched

enabled = True
"""Tests of the kernels switch it off: their tensors are small."""

WIDE = (torch.float32, torch.float64)
"""Dtypes that torch computes in; half types it rounds several times on the way, on a CPU."""

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch raises for arguments that do not fit."""


def is_served(input: Tensor, *, by_gpu: bool = False) -> bool:
    """Whether torch may serve a call with this input: it is in a CPU's memory, or a GPU's, and nobody traces it.

    Nor does torch.func transform it: what is mapped does not say whether a gradient is wanted (`restate`).
    """
    if not enabled or type(input) is not Tensor or not (input.is_cpu or (by_gpu and input.is_cuda)):
        return False
    return not is_watched() and not torch._C._are_functorch_transforms_active()


def is_exact(tensor: Tensor) -> bool:
    """Whether torch computes in the tensor's dtype, and on a CPU it is a wide one."""
    return (tensor.dtype in WIDE or tensor.is_cuda) and not torch.is_autocast_enabled(
        "cuda" if tensor.is_cuda else "cpu"
    )


_packing: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
"""Tells who packs what nodes save, as `torch.utils.checkpoint` does, else they keep it alive; given True, it does not
ask whether the compiler traces."""


def restate(node: Any, x: Tensor, gradients: Callable[[Tensor, Sequence[Any], Sequence[Any]], Any]) -> None:
    """Have a gradient of torch's, which it cannot differentiate as often as ours, differentiated by a formula.

    The node has saved `x`. `gradients(x, found, upstream)` are called where somebody may differentiate what it found.
    """
    kept: Callable[[], Any] = weakref.ref(x) if _packing is not None and _packing(True) is None else lambda: x

    def restated(found: Sequence[Any], upstream: Sequence[Any]) -> Any:
        return gradients(kept(), found, upstream) if torch.is_grad_enabled() else None

    node.register_hook(restated)
