"""Arguments in autocast's dtype. A parameter is cast once for all calls inside an autocast context, as torch does it.

Without that every call makes a copy of all weights, and the graph keeps each. Torch's own cache of casts can be neither
read nor watched from Python. So the casts made here live in a dictionary that hangs on an entry of that cache: they end
when torch clears it, which it does when the outermost context ends.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ...core.dispatch import is_plain

_latest: weakref.ref[Any] | None = None
"""Parameter → (its state when it was cast, the cast). Only torch's cache keeps the dictionary alive."""


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The dtype that autocast runs products in on the tensor's device; None where it is off."""
    kind = tensor.device.type
    # Meta has no autocast. torch.amp.is_autocast_available would say so, but torch.compile up to 2.11 stops at it.
    on = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def lowered(dtype: torch.dtype | None, *tensors: Tensor) -> list[Tensor]:
    """The tensors in autocast's dtype, as torch casts the arguments of its own fused modules; float64 is left alone."""
    if dtype is None:
        return list(tensors)
    if not _keeps(tensors):
        return [_cast(tensor, dtype) for tensor in tensors]
    kept = [_is_kept(tensor, dtype) for tensor in tensors]
    shared = iter(_shared([tensor for tensor, is_kept in zip(tensors, kept, strict=True) if is_kept], dtype))
    return [next(shared) if is_kept else _cast(t, dtype) for t, is_kept in zip(tensors, kept, strict=True)]


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.to(dtype)


def _keeps(tensors: Sequence[Tensor]) -> bool:
    """Whether casts are kept now. What is traced is no value to keep, nor is what a CUDA graph will compute later."""
    if not (is_plain(*tensors) and torch.is_autocast_cache_enabled()):
        return False
    return not (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing())


def _is_kept(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Torch's rule: a leaf in float32 that wants a gradient."""
    if not tensor.requires_grad or not tensor.is_leaf or tensor._is_view():
        return False
    return tensor.dtype == torch.float32 and dtype != torch.float32


class _Cast(torch.autograd.Function):
    """Parameters and their casts: each call gets views of the casts, of which gradients arrive in float32.

    So those of many calls are added in float32. If the cast itself had a history they would be added in its dtype.
    """

    @staticmethod
    def forward(ctx: Any, casts: Sequence[Tensor], *parameters: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        """Nothing is computed."""
        ctx.set_materialize_grads(False)
        return tuple([cast.detach() for cast in casts])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # noqa: ARG004
        """In the order of the arguments."""
        return None, *[None if grad is None else grad.to(torch.float32) for grad in grads]


def _shared(parameters: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """Their casts: the same until torch's cache is cleared, or a parameter is changed in a way that torch counts."""
    if not parameters:
        return ()
    known = _known(parameters[0].device)
    casts = []
    for parameter in parameters:
        state = (dtype, parameter._version, parameter.data_ptr())
        found = known.get(parameter)
        if found is None or found[0] != state:
            with torch.inference_mode(False):  # what is made for inference can serve nothing else
                found = known[parameter] = (state, parameter.detach().to(dtype))
        casts.append(found[1])
    return _Cast.apply(casts, *parameters) if torch.is_grad_enabled() else casts  # type: ignore[no-untyped-call]


def _known(device: torch.device) -> Any:
    """The dictionary, or a new one if torch's cache was cleared. Two threads may begin one each, which costs a cast.

    For an operator on autocast's list torch casts an empty leaf, and keeps that. The node by which it would be
    differentiated carries the dictionary and ends with it. If torch kept nothing, nothing is kept here.
    """
    global _latest
    known = None if _latest is None else _latest()
    if known is None:
        known = WeakIdKeyDictionary()
        with torch.inference_mode(False), torch.enable_grad():
            leaf = torch.empty(0, 0, dtype=torch.float32, device=device, requires_grad=True)
            product = torch.addmm(leaf, leaf.detach(), leaf.detach())
        assert product.grad_fn is not None  # since the leaf wants a gradient
        (node, _), *_ = product.grad_fn.next_functions
        assert node is not None  # likewise
        metadata: Any = node.metadata  # a dictionary that torch keeps with the node
        metadata[__name__] = known
        _latest = weakref.ref(known)
    return known
