"""Torch's op that the family computes on the device "npu"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functional import hardsigmoid_backward

__all__: list[str] = []

ATEN: dict[str, Callable[..., Any]] = {"hardsigmoid_backward": hardsigmoid_backward}
