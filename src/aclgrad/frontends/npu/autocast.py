"""`torch.autocast("npu")`: the same ops in the same dtypes as on a GPU, as on Ascend.

Torch has its lists of ops only inside its C++. The names of the whole list can be asked for; which of them run in the
lower dtype and which in the widest of their arguments is written down here, and the others run in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .memory import DEVICE_TYPE
from .registrations import Registrations, overload

_LOWER = {
    "_convolution", "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "cudnn_convolution",
    "cudnn_convolution_transpose", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv",
    "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
}  # fmt: skip
_WIDEST = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
}  # fmt: skip
_REFUSED = "binary_cross_entropy"
_OF_A_GPU = "AutocastCUDA"
_KEY = "AutocastPrivateUse1"
_HALF = (torch.float16, torch.bfloat16)


def register() -> Callable[[], None]:
    """Let torch call these for ops on its list; what is returned ends it."""
    made = Registrations()
    made.add_for_others(torch.library.fallthrough_kernel, _KEY)
    for full_name in torch._C._dispatch_get_registrations_for_dispatch_key(_OF_A_GPU):
        namespace, _, name = full_name.partition("::")
        if namespace == "aten":
            made.add(name, _kernel(name), _KEY)
    return made.undo


def _kernel(name: str) -> Callable[..., Any]:
    op, below = overload(name), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

    def call(*args: Any, **options: Any) -> Any:
        dtype = _dtype(name, args, options)
        with torch._C._ExcludeDispatchKeyGuard(below):
            if dtype is None:
                return op(*args, **options)
            return op(*[_cast(arg, dtype) for arg in args], **{key: _cast(arg, dtype) for key, arg in options.items()})

    return call


def _dtype(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> torch.dtype | None:
    """The dtype that the op's arguments are cast to."""
    if name in _LOWER:
        return torch.get_autocast_dtype(DEVICE_TYPE)
    if name in _WIDEST:
        found = {tensor.dtype for tensor in _tensors((args, list(options.values()))) if _is_cast(tensor)}
        return None if len(found) < 2 else torch.float32
    if name == _REFUSED:
        raise RuntimeError(
            "binary_cross_entropy is unsafe under autocast, expected binary_cross_entropy_with_logits, "
            "or autocast switched off around it"
        )
    if options.get("dtype") is not None or not any(t.dtype in _HALF for t in _tensors(args) if _is_cast(t)):
        return None
    return torch.float32


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _tensors(member)


def _is_cast(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.device.type == DEVICE_TYPE and tensor.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if _is_cast(value) else value
    if isinstance(value, list | tuple):
        return type(value)([_cast(member, dtype) for member in value])
    return value
