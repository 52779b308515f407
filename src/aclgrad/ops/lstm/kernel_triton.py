"""The LSTM and its gradient on NVIDIA GPUs: a launch a layer for the recurrence, large products for the rest.

Phase one decides how each layer's recurrence runs (`triton/choose.py`) and lays out the workspace
(`triton/layer_forward.py`, `triton/layer_backward.py`). `triton/README.md` is the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Piece, Scratch
from ...core.spec import Call
from .triton.anew import StartsAnew
from .triton.layer_backward import BackwardLayer
from .triton.layer_forward import ForwardLayer
from .triton.packed import PackedRows
from .triton.workspace import BackwardWorkspace, ForwardWorkspace


@dataclass(frozen=True)
class LayersLaunch:
    """Phase two: all layers, in the order in which they run."""

    workspace: int
    layers: tuple[ForwardLayer, ...] | tuple[BackwardLayer, ...]
    names: tuple[str, ...]  # of all arguments and outputs, in the contract's order
    batch_sizes: Piece | None  # for batch_sizes that do not lie one after another
    anew: StartsAnew | None  # what resets mean to the steps
    packed: PackedRows | None  # where the rows of each time lie

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        given = dict(zip(self.names, (*args, *outs), strict=True))
        memory = given["input"].new_empty(0, dtype=torch.uint8) if workspace is None else workspace
        if self.batch_sizes is not None:
            given["batch_sizes"] = self.batch_sizes.view(memory).copy_(given["batch_sizes"])
        if self.packed is not None:
            self.packed(given, memory)
        if self.anew is not None:
            self.anew(given, memory)
        for layer in self.layers:
            layer(given, memory)

    def describe(self) -> str:
        """A line for each layer, counted from 0; neighbours that run alike share one."""
        lines, first = [], 0
        described = sorted((layer.layer, layer.describe()) for layer in self.layers)
        for text, alike in groupby(text for _, text in described):
            last = first + len(list(alike)) - 1
            lines.append(f"layer {first}: {text}" if first == last else f"layers {first} to {last}: {text}")
            first = last + 1
        return "\n".join(lines)


@dataclass(frozen=True)
class NoSteps:
    """Phase two where there is nothing to compute: the last states are the initial ones."""

    names: tuple[str, ...]
    workspace = 0

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Write the states; everything else is empty."""
        given = dict(zip(self.names, (*args, *outs), strict=True))
        for k, state in enumerate((given["hy"], given["cy"])):
            state.copy_(given["hx"][k]) if given["hx"] else state.zero_()

    def describe(self) -> str:
        """In words."""
        return "nothing to compute: the last states are the initial ones"


def lstm(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    dims = call.dims
    if not (dims.T and dims.N and dims.H):
        return NoSteps(_names(call))
    scratch = Scratch()
    space = ForwardWorkspace(call, scratch)
    layers = tuple(ForwardLayer(call, layer, space) for layer in range(dims.L))
    batch_sizes = _contiguous_sizes(call, scratch)
    return LayersLaunch(scratch.size, layers, _names(call), batch_sizes, space.anew, space.packed)


def lstm_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    scratch = Scratch()
    space = BackwardWorkspace(call, scratch)
    layers = tuple(BackwardLayer(call, layer, space) for layer in reversed(range(call.dims.L)))
    batch_sizes = _contiguous_sizes(call, scratch)
    return LayersLaunch(scratch.size, layers, _names(call), batch_sizes, space.anew, space.packed)


lstm_with_resets, lstm_with_resets_backward = lstm_packed, lstm_packed_backward = lstm, lstm_backward
"""They find `reset` and how rows lie in the call."""


def _names(call: Call) -> tuple[str, ...]:
    """Of all arguments and outputs, in the contract's order."""
    return (*(arg.name for arg in call.spec.args), *call.spec.out_names)


def _contiguous_sizes(call: Call, scratch: Scratch) -> Piece | None:
    """Memory for batch_sizes if they do not lie one after another and kernels read them."""
    sizes = call["batch_sizes"]
    return (
        None
        if sizes is None or sizes.strides == (1,) or call.dims.total is not None
        else scratch.tensor(sizes.shape, torch.int64)
    )
