"""The matrix that gate gradients are multiplied with for weight gradients: a row has what a step was made of.

It is [h of the forward chain | x | h of the reverse chain], so that either direction's part lies side by side.
"""

from __future__ import annotations

from typing import Any

import torch

from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.operands import Given

from .moves import Move
from .packed import PackedStates
from .workspace import BackwardWorkspace


class LayerInputs:
    """A layer's matrix in the workspace; layers use the same memory."""

    def __init__(self, call: Call, layer: int, space: BackwardWorkspace) -> None:
        dims, rows = space.dims, space.rows
        self._dims, self._space, self._first = dims, space, layer == 0
        self._chains = range(layer * dims.D, (layer + 1) * dims.D)
        self._features = dims.layer_input(layer)
        dtypes, masked = (space.dtype, space.dtype), dims.variable
        into, shape = rows.within(space.inputs_width), rows.shape(dims.H)
        states, initial = [rows.of_list(call["h"][k]) for k in self._chains], call["hx"][0].strides[1:]
        self._packed_h: PackedStates | None = None
        if space.packed is not None:
            self._packed_h = PackedStates(space, into[1], [strides[1:] for strides in states], initial)
        else:
            move = Move(
                shape, (into,) * dims.D, tuple(states), *dtypes, (initial,) * dims.D, masked=masked,
                reset=space.anew is not None,
            )  # fmt: skip
            self._move_h = move.planned(space.device)
        if self._first:
            move = Move(rows.shape(dims.I), (into,), (rows.of(call["input"]),), *dtypes, masked=masked)
        else:
            below = tuple(rows.of_list(call["h"][k - dims.D]) for k in self._chains)
            move = Move(shape, (into,) * dims.D, below, *dtypes, masked=masked)
        self._move_x = move.planned(space.device)

    def __call__(self, given: Given, workspace: torch.Tensor) -> torch.Tensor:
        """Copy everything there."""
        dims, space = self._dims, self._space
        inputs, sizes = space.inputs.view(workspace), space.with_data(given, workspace)
        middle = inputs[:, dims.H :]
        ends = [inputs, inputs[:, dims.H + self._features :]][: dims.D]
        states = [given["h"][k] for k in self._chains]
        initial: list[Any] = [advanced(given["hx"][0], k) for k in self._chains]
        if self._packed_h is not None:
            self._packed_h(workspace, ends, states, initial)
        else:
            anew = None if space.anew is None else placed(space.anew.flags, workspace)
            self._move_h(ends, states, initial, sizes, anew)
        if self._first:
            self._move_x([middle], [given["input"]], batch_sizes=sizes)
        else:
            below = [given["h"][k - dims.D] for k in self._chains]
            self._move_x([middle, middle[:, dims.H :]][: dims.D], below, batch_sizes=sizes)
        return inputs
