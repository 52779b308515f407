"""The product of a step in float32, made of half-precision products: one call of the library a step and direction.

δ · w_hh = high·high + low·high + high·low, as in `triton_products`, but every row of δ has a scale of its own: the
largest gate gradient of all rows is not known in time. A row lies in memory as [high | low | high] and a unit's weights
as [high | high | low]: the whole is one batch of products over pieces of that depth, to be added by who takes them.
Where torch's switch allows TF32, the products of the high parts are all there is.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from aclgrad.core.memory import Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import Kernel

from ....spec import LstmDims
from ...fp16_split.products import BLOCK_COLUMNS, BLOCK_ROWS, find_peak, split

TERMS = 3
"""Products of halves that a product in float32 is made of."""

MOST_UNITS = 4096
"""Hidden units that a program can have at once."""

PIECE, LONGEST, MOST_PIECES = 256, 512, 32
"""Terms of a piece if possible, and at most; pieces there may be. What a step's sums lose, all later steps inherit."""

ALIGN = 8
"""Elements to which pieces are aligned."""

Product = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""An output and the operands of a batch of products."""


def pieces(depth: int) -> int | None:
    """Into how many pieces of equal, aligned length the depth is cut; None if there is no good number."""
    counts = range(max(1, triton.cdiv(depth, LONGEST)), MOST_PIECES + 1)
    good = [count for count in counts if depth % (count * ALIGN) == 0]
    return next((count for count in good if count * PIECE >= depth), good[-1] if good else None)


class Weights:
    """w_hh [D, H, 4H] in halves: a unit's weights lie as [high | low], or as [high | high | low]."""

    def __init__(self, dims: LstmDims, device: torch.device, scratch: Scratch, *, twice: bool) -> None:
        self.width = 4 * dims.H
        row = (3 if twice else 2) * self.width
        self.halves = scratch.tensor((dims.D, dims.H, row), torch.float16)
        self.peak = scratch.tensor((1,), torch.int32)
        self._twice = twice
        block = {"ROWS": BLOCK_ROWS, "COLUMNS": BLOCK_COLUMNS}
        down, across = triton.cdiv(dims.D * dims.H, BLOCK_ROWS), triton.cdiv(self.width, BLOCK_COLUMNS)
        sizes = (dims.D * dims.H, self.width, self.width)
        self._find = Kernel(find_peak, (down,), device, (torch.int32, torch.float32, None), sizes, block)
        half = torch.float16
        self._splits = {
            precise: Kernel(
                split, (down, across), device,
                (half, half if twice and precise else None, half if precise else None, torch.float32, None,
                 torch.int32),
                (*sizes, row), block,
            )
            for precise in (False, True)
        }  # fmt: skip

    def __call__(self, workspace: torch.Tensor, w_hh: Any, *, precise: bool) -> None:
        """Take w_hh apart; without precision the low half is left out."""
        peak = self.peak.view(workspace)
        peak.zero_()
        self._find(peak, w_hh, None)
        high, second, third = (placed(self.halves, workspace, k * self.width) for k in (0, 1, 2 if self._twice else 1))
        again, low = second if self._twice else None, third
        self._splits[precise](high, again if precise else None, low if precise else None, w_hh, None, peak)


class Halves:
    """Room for the halves of a step's gate gradients and of w_hh, and for the products."""

    def __init__(self, dims: LstmDims, count: int, device: torch.device, scratch: Scratch) -> None:
        self.dims, self.count = dims, count
        self.weights = Weights(dims, device, scratch, twice=True)
        self.rows = scratch.tensor((dims.D, dims.N, TERMS * 4 * dims.H), torch.float16)
        self.products = scratch.tensor((dims.D, TERMS * count, dims.N, dims.H), torch.float32)
        self.peaks = scratch.tensor((2, dims.D, dims.N), torch.int32)

    def pieces(self, precise: bool) -> int:
        """Products of a step and direction that add up to its dh."""
        return TERMS * self.count if precise else self.count

    def prepared(self, workspace: torch.Tensor, w_hh: Any, *, precise: bool) -> list[Product]:
        """Take w_hh [D, H, 4H] apart; the products that every step then makes."""
        dims, count = self.dims, self.pieces(precise)
        self.weights(workspace, w_hh, precise=precise)
        rows, weights = (
            piece.view(workspace).view(*piece.shape[:2], TERMS * self.count, -1)[:, :, :count]
            for piece in (self.rows, self.weights.halves)
        )
        room = self.products.view(workspace).view(-1)[: dims.D * count * dims.N * dims.H]
        outs = room.view(dims.D, count, dims.N, dims.H)
        return [(outs[d], rows[d].transpose(0, 1), weights[d].permute(1, 2, 0)) for d in range(dims.D)]

    def pointers(self, workspace: torch.Tensor) -> tuple[Any, ...]:
        """For a step's kernel: products, halves of the gate gradients, the rows' peaks, that of w_hh."""
        of = (self.products, self.rows, self.peaks, self.weights.peak)
        return tuple(placed(piece, workspace) for piece in of)
