"""Torch's ops that the family computes on the device "npu"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functional import hardsigmoid, hardsigmoid_, hardsigmoid_backward

__all__: list[str] = []

ATEN: dict[str, Callable[..., Any]] = {
    "hardsigmoid": hardsigmoid,
    "hardsigmoid_": hardsigmoid_,
    "hardsigmoid_backward": hardsigmoid_backward,
}
