"""The product of a step of the gradient in float32, split: one call of the library a step and direction.

δ · w_hh = high·high + low·high + high·low, as in `fp16_split`, but every row of δ has a scale of its own: the amax of
all rows is not known in time. A row lies in memory as [high | low | high] and a unit's weights as [high | high | low]:
the whole is one batch of partial products, to be added by who takes them. Where torch's switch allows TF32, the
products of the high parts are all there is.
"""

from __future__ import annotations

from typing import Any

import torch

from aclgrad.core.memory import Scratch
from aclgrad.gpu.products import LibraryProduct

from ....dims import LstmDims
from ...fp16_split.split import SplitWeights

TERMS = 3
"""Products of parts that a product in float32 is made of."""


class SplitProducts:
    """A step's gate gradients and w_hh, split, and their products; the depth 4H is cut into `partials`."""

    def __init__(self, dims: LstmDims, partials: int, device: torch.device, scratch: Scratch) -> None:
        self._dims, self._partials = dims, partials
        self.weights = SplitWeights(dims.D, dims.H, device, scratch, twice=True)
        self.delta = scratch.tensor((dims.D, dims.N, TERMS * 4 * dims.H), torch.float16)
        self.products = scratch.tensor((dims.D, TERMS * partials, dims.N, dims.H), torch.float32)
        self.row_amax = scratch.tensor((2, dims.D, dims.N), torch.int32)

    def partials(self, precise: bool) -> int:
        """Products of a step and direction that add up to its dh."""
        return TERMS * self._partials if precise else self._partials

    def prepared(self, workspace: torch.Tensor, w_hh: Any, *, precise: bool) -> list[LibraryProduct]:
        """Split w_hh [D, H, 4H]; the products that every step then makes."""
        dims, count = self._dims, self.partials(precise)
        self.weights(workspace, w_hh, precise=precise)
        delta, weights = (
            piece.view(workspace).view(*piece.shape[:2], TERMS * self._partials, -1)[:, :, :count]
            for piece in (self.delta, self.weights.parts)
        )
        flat = self.products.view(workspace).view(-1)[: dims.D * count * dims.N * dims.H]
        outs = flat.view(dims.D, count, dims.N, dims.H)
        return [LibraryProduct(outs[d], delta[d].transpose(0, 1), weights[d].permute(1, 2, 0)) for d in range(dims.D)]
