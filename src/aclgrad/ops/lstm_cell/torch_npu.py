"""Torch's ops that the family computes on the device "npu"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functional import lstm_cell, lstm_cell_backward

__all__: list[str] = []

ATEN: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
}
