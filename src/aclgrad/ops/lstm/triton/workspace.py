"""What all layers of a pass share in the workspace, and the large products of the gradient that need memory there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.devices import is_hopper
from aclgrad.gpu.launch import INTERPRETING
from aclgrad.gpu.operands import Given

from .anew import starts_anew
from .fp16_split.input_product import InputProducts
from .fp16_split.products import best_split_k, worth_splitting
from .fp16_split.split import ALIGN, SplitMatrix, aligned
from .moves import Rows
from .packed import PackedRows, launch_dims

if TYPE_CHECKING:
    from .fp16_split.hopper_product import HopperProduct


class Workspace:
    """What both passes have: sizes, and what says where rows lie and which start a step from zeros."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        self.dims = launch_dims(call)
        self.scratch, self.dtype, self.device = scratch, call.tensor("input").dtype, call.device
        self.rows = Rows(self.dims)
        self.packed = None if self.dims.total is None else PackedRows(call, self.dims, scratch)
        self.anew = starts_anew(call, self.dims, scratch, self.packed)

    def row_count(self, workspace: torch.Tensor) -> Any:
        """Of packed sequences, how many rows there are, for moves of all rows; see `Rows`."""
        return None if self.packed is None else self.packed.count(workspace)

    def with_data(self, given: Given, workspace: torch.Tensor) -> Any:
        """What tells moves which rows there are: how many of each step, or how many packed ones in all."""
        return given["batch_sizes"] if self.packed is None else self.packed.count(workspace)


class ForwardWorkspace(Workspace):
    """The forward pass's."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        super().__init__(call, scratch)
        dims = self.dims
        float32 = self.dtype == torch.float32
        gates, widest = dims.D * 4 * dims.H, max(dims.layer_input(k) for k in range(dims.L))
        self.gates = scratch.tensor((self.rows.count, gates), torch.float32)
        self.w_ih = scratch.tensor((gates * widest,), self.dtype)
        self.w_hh = scratch.tensor((dims.D, 4 * dims.H, dims.H), self.dtype)
        self.w_hh_split = SplitMatrix(scratch, self.device, gates, dims.H, dims.H) if float32 else None
        self.bias = scratch.tensor((dims.D, 4 * dims.H), torch.float32)
        self.h0_product = scratch.tensor((dims.D, dims.N, 4 * dims.H), torch.float32) if call["hx"] else None
        self.h0 = scratch.tensor((dims.D, dims.N, dims.H), self.dtype) if call["hx"] else None
        self.between = scratch.tensor((self.rows.count, dims.D * dims.H if dims.L > 1 else 0), self.dtype)
        if self.packed is not None and dims.L > 1:
            self.packed.clear_tail(self.between)
        self.input_products = InputProducts(scratch, self.device, self.dtype)


class BackwardWorkspace(Workspace):
    """The gradient's. With `splits`, the operands of its large products are split."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        super().__init__(call, scratch)
        dims, rows = self.dims, self.rows.count
        gates, widest = dims.D * 4 * dims.H, max(dims.layer_input(k) for k in range(dims.L))
        self.w_hh = scratch.tensor((dims.D, dims.H, 4 * dims.H), self.dtype)
        self.w_ih = scratch.tensor((gates * widest,), self.dtype)
        self.inputs_width = aligned(dims.D * dims.H + widest)
        self.inputs = scratch.tensor((rows, self.inputs_width), self.dtype)
        self.splits = self.dtype == torch.float32 and not INTERPRETING and worth_splitting(rows, gates, dims.H)
        self._hopper = self.splits and is_hopper(self.device)
        self.split_k = {
            width: best_split_k(4 * dims.H, width, rows, self.device, hopper=self._hopper) if self.splits else 1
            for width in {dims.H + dims.layer_input(k) for k in range(dims.L)}
        }
        most = max(width * split_k for width, split_k in self.split_k.items())
        self.dw = scratch.tensor((dims.D * 4 * dims.H * most,), torch.float32)
        self.between = scratch.tensor((rows, dims.D * dims.H if dims.L > 1 else 0), self.dtype)
        self._split: dict[tuple[int, int, int, bool], SplitMatrix] = {}
        self._products: dict[int, Piece] = {}
        self._delta: Piece | None = None
        self._shape = (rows, gates)
        self.delta_split = self.split(rows, gates)

    def reserve_delta(self) -> Piece:
        """Memory for the gate gradients as they are. Layers use the same."""
        if self._delta is None:
            self._delta = self.scratch.tensor(self._shape, self.dtype)
        return self._delta

    def reserve_product(self, width: int) -> Piece:
        """Memory for a product with a row for every row of the gate gradients. Layers use the same."""
        if width not in self._products:
            self._products[width] = self.scratch.tensor((self._shape[0], width), self.dtype)
        return self._products[width]

    def split(
        self, count: int, width: int, row_stride: int | None = None, *, by_rows: bool = False
    ) -> SplitMatrix | None:
        """Memory for a split matrix, if they are split. Layers use the same."""
        if not self.splits:
            return None
        key = (count, width, row_stride or width, by_rows)
        if key not in self._split:
            self._split[key] = SplitMatrix(
                self.scratch, self.device, count, width, row_stride or width, by_rows=by_rows
            )
        return self._split[key]

    def product(
        self, shape: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], *, transposed: bool, split_k: int = 1
    ) -> HopperProduct | None:
        """A split product in one launch, if it can be had; a and b are (place of the first element, row stride)."""
        if not self._hopper or 0 in shape or any(number % ALIGN for number in (*a, *b)):
            return None
        from .fp16_split.hopper_product import HopperProduct

        return HopperProduct(shape, (a[1], b[1]), transposed, split_k, self.device)
