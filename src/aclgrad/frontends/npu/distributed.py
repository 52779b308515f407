"""`torch.distributed` with tensors of the device: by the backend gloo, which programs for Ascend know as "hccl"."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed

from .fallback import fallback
from .memory import DEVICE_TYPE
from .registrations import Registrations

_BACKEND = "hccl"
_LISTS = ("backend_list", "default_device_backend_map", "backend_capability", "backend_type_map", "_plugins")

_WHOLE = ("_allgather_base_", "_reduce_scatter_base_")
"""What gathers into a tensor, or scatters one: gloo would divide it by its rows, and others by its elements."""


def register() -> Callable[[], None]:
    """Let collectives take tensors of the device, and name the backend; what is returned ends it."""
    if not (distributed.is_available() and distributed.is_gloo_available()):
        return lambda: None
    made = Registrations("c10d")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has kernels of its own, which look for a backend with real devices
        for full_name in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
            if full_name.startswith("c10d::"):
                name = full_name.partition("::")[2]
                op = getattr(torch.ops.c10d, name).default
                kernel = partial(_flat if name in _WHOLE else fallback, op)
                made.add(op, kernel, "PrivateUse1", allow_override=True)
    backend: Any = distributed.Backend
    before = {name: getattr(backend, name).copy() for name in _LISTS}
    backend.register_backend(_BACKEND, _group, devices=["cpu", DEVICE_TYPE])
    del backend.default_device_backend_map[DEVICE_TYPE]  # alone it would lack the processor's part: torch asks for one

    def undo() -> None:
        made.undo()
        for name, value in before.items():
            setattr(backend, name, value)
        delattr(backend, _BACKEND.upper())

    return undo


def _group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)


def _flat(op: Any, output: Tensor, given: Tensor, *args: Any) -> Any:
    return fallback(op, output.view(-1), given.view(-1), *args)
