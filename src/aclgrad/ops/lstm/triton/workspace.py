"""The workspace of an LSTM gradient, shared by all layers, and the products that need room there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import INTERPRETING, is_hopper

from ..spec import LstmDims
from .fp16_split.products import Parts, large, shares_of

if TYPE_CHECKING:
    from .fp16_split.hopper_product import HalvesProduct

ALIGN = 8
"""Elements to which rows of a product's operand are aligned."""


class Room:
    """The workspace, shared by all layers."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        dims: LstmDims = call.dims
        self.scratch, self.dtype, self.device = scratch, call.tensor("input").dtype, call.device
        rows, gates, widest = dims.T * dims.N, dims.D * 4 * dims.H, max(dims.layer_input(k) for k in range(dims.L))
        self._delta: Piece | None = None
        self.w_hh = scratch.tensor((dims.D, dims.H, 4 * dims.H), self.dtype)
        self.w_ih = scratch.tensor((gates * widest,), self.dtype)
        self.width = -(-(dims.D * dims.H + widest) // ALIGN) * ALIGN
        self.inputs = scratch.tensor((rows, self.width), self.dtype)
        self.split = self.dtype == torch.float32 and not INTERPRETING and large(rows, gates, dims.H)
        widths = {dims.H + dims.layer_input(k) for k in range(dims.L)}
        self.own = self.split and is_hopper(self.device)
        self.shares = {
            width: shares_of(4 * dims.H, width, rows, self.device, own=self.own) if self.split else 1
            for width in widths
        }
        most = max(width * shares for width, shares in self.shares.items())
        self.dw = scratch.tensor((dims.D * 4 * dims.H * most,), torch.float32)
        self.between = scratch.tensor((rows, dims.D * dims.H if dims.L > 1 else 0), self.dtype)
        self._parts: dict[tuple[int, int, int, bool], Parts] = {}
        self._matrices: dict[int, Piece] = {}
        self._shape = (rows, gates)
        self.delta_parts = self.parts(rows, gates)

    @property
    def delta(self) -> Piece:
        """Room for the gate gradients, where they are wanted as they are."""
        if self._delta is None:
            self._delta = self.scratch.tensor(self._shape, self.dtype)
        return self._delta

    def parts(self, count: int, width: int, row: int | None = None, *, by_rows: bool = False) -> Parts | None:
        """Room for taking a matrix apart, where that pays. Layers use the same."""
        if not self.split:
            return None
        key = (count, width, row or width, by_rows)
        if key not in self._parts:
            self._parts[key] = Parts(self.scratch, self.device, count, width, row or width, by_rows=by_rows)
        return self._parts[key]

    def product(
        self, shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], *, stacked: bool, shares: int = 1
    ) -> HalvesProduct | None:
        """A product in halves in one launch, if it can be had; a and b are (place of the first element, row)."""
        if not self.own or 0 in shape or any(number % ALIGN for number in (*a, *b)):
            return None
        from .fp16_split.hopper_product import HalvesProduct

        return HalvesProduct(shape, (a[1], b[1]), stacked, shares, self.device)

    def matrix(self, rows: int, width: int) -> Piece:
        """Room for a product. Layers use the same."""
        if width not in self._matrices:
            self._matrices[width] = self.scratch.tensor((rows, width), self.dtype)
        return self._matrices[width]
