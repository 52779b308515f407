"""The LSTM gradient on NVIDIA GPUs: a launch a layer for the recurrence, large products for the rest.

Phase one decides how each layer's recurrence runs (`triton_recurrence`) and lays out the workspace (`triton_layer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Piece, Scratch
from ...core.spec import Call
from .triton_layer import SIZES, Layer, Room


@dataclass(frozen=True)
class LayersLaunch:
    """Phase two: all layers, the last one first."""

    workspace: int
    layers: tuple[Layer, ...]
    sizes: Piece | None  # for batch_sizes that do not lie one after another

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        room = torch.empty(0, dtype=torch.uint8) if workspace is None else workspace
        if self.sizes is not None:
            args = (*args[:SIZES], self.sizes.view(room).copy_(args[SIZES]), *args[SIZES + 1 :])
        for layer in self.layers:
            layer(args, outs, room)


def lstm_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    scratch = Scratch()
    room = Room(call, scratch)
    layers = tuple(Layer(call, layer, room) for layer in reversed(range(call.dims.L)))
    sizes = call["batch_sizes"]
    lined_up = sizes is None or sizes.strides == (1,)
    piece = None if lined_up else scratch.tensor(sizes.shape, torch.int64)
    return LayersLaunch(scratch.size, layers, piece)
