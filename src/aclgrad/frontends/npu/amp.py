"""`torch.npu.amp`: torch's autocast and gradient scaler, for the device."""

from __future__ import annotations

import torch

from ...core.errors import Unsupported
from .memory import DEVICE_TYPE

__all__ = ["GradScaler", "autocast"]


class autocast(torch.autocast):  # noqa: N801  torch's name
    """`torch.autocast("npu")`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__(DEVICE_TYPE, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("npu")`; a scale that never changes, `dynamic=False`, is refused."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        if not dynamic:
            raise Unsupported("dynamic is False, expected True: torch's scaler changes its scale", "dynamic")
        super().__init__(DEVICE_TYPE, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
