"""The LSTM and its gradient on NVIDIA GPUs: a launch a layer for the recurrence, large products for the rest.

Phase one decides how each layer's recurrence runs (`triton/recurrence`) and lays out the
workspace (`triton/layer_forward`, `triton/layer_backward`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Piece, Scratch
from ...core.spec import Call
from .triton.layer_backward import SIZES, Layer
from .triton.layer_forward import HX, HY, ForwardLayer, ForwardRoom
from .triton.layer_forward import SIZES as FORWARD_SIZES
from .triton.workspace import Room

LayerCall = Callable[[Sequence[Any], Sequence[Any], torch.Tensor], None]


@dataclass(frozen=True)
class LayersLaunch:
    """Phase two: all layers, in this order."""

    workspace: int
    layers: tuple[LayerCall, ...]
    sizes_at: int  # the place of batch_sizes among the arguments
    sizes: Piece | None  # for batch_sizes that do not lie one after another

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        room = args[0].new_empty(0, dtype=torch.uint8) if workspace is None else workspace
        if self.sizes is not None:
            at = self.sizes_at
            args = (*args[:at], self.sizes.view(room).copy_(args[at]), *args[at + 1 :])
        for layer in self.layers:
            layer(args, outs, room)


@dataclass(frozen=True)
class NoSteps:
    """Phase two where there is nothing to compute: the last states are the initial ones."""

    workspace = 0

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Write the states; everything else is empty."""
        for k, state in enumerate(outs[HY : HY + 2]):
            state.copy_(args[HX][k]) if args[HX] else state.zero_()


def lstm(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    dims = call.dims
    if not (dims.T and dims.N and dims.H):
        return NoSteps()
    scratch = Scratch()
    room = ForwardRoom(call, scratch)
    layers = tuple(ForwardLayer(call, layer, room) for layer in range(dims.L))
    sizes = _lined_up(call, scratch)
    return LayersLaunch(scratch.size, layers, FORWARD_SIZES, sizes)


def lstm_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    scratch = Scratch()
    room = Room(call, scratch)
    layers = tuple(Layer(call, layer, room) for layer in reversed(range(call.dims.L)))
    sizes = _lined_up(call, scratch)
    return LayersLaunch(scratch.size, layers, SIZES, sizes)


def _lined_up(call: Call, scratch: Scratch) -> Piece | None:
    """Room for batch_sizes if they do not lie one after another."""
    sizes = call["batch_sizes"]
    return None if sizes is None or sizes.strides == (1,) else scratch.tensor(sizes.shape, torch.int64)
