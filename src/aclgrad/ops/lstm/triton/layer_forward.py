"""Phase one and two of a layer of the forward pass: operands made ready, one large product, the recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.launch import Kernel
from aclgrad.gpu.products import multiply

from ..dims import SAVED, LstmDims
from .fp16_split.input_product import Products
from .fp16_split.products import Parts
from .moves import Move, Rows, Strides, pointers
from .recurrence.per_step.forward import ForwardProblem, ForwardRecurrence
from .recurrence.per_step.forward_kernel import sum_biases

INPUT, PARAMS, HX, SIZES = 0, 1, 2, 3
OUTPUT, HY, CY, FIRST_SAVED = 0, 1, 2, 3
COLUMNS = 256


class ForwardRoom:
    """The workspace, shared by all layers."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        dims: LstmDims = call.dims
        self.scratch, self.dtype, self.device = scratch, call.tensor("input").dtype, call.device
        self.rows = Rows(dims)
        self.single = self.dtype == torch.float32
        gates, widest = dims.D * 4 * dims.H, max(dims.layer_input(k) for k in range(dims.L))
        self.gates = scratch.tensor((self.rows.count, gates), torch.float32)
        self.w_ih = scratch.tensor((gates * widest,), self.dtype)
        self.w_hh = scratch.tensor((dims.D, 4 * dims.H, dims.H), self.dtype)
        self.w_hh_parts = Parts(scratch, self.device, gates, dims.H, dims.H) if self.single else None
        self.bias = scratch.tensor((dims.D, 4 * dims.H), torch.float32)
        self.opening = scratch.tensor((dims.D, dims.N, 4 * dims.H), torch.float32) if call["hx"] else None
        self.h0 = scratch.tensor((dims.D, dims.N, dims.H), self.dtype) if call["hx"] else None
        self.between = scratch.tensor((self.rows.count, dims.D * dims.H if dims.L > 1 else 0), self.dtype)
        self.products = Products(scratch, self.device, self.dtype)


class ForwardLayer:
    """The forward pass of one layer, both directions."""

    def __init__(self, call: Call, layer: int, room: ForwardRoom) -> None:
        dims: LstmDims = call.dims
        self.dims, self.room = dims, room
        self.first, self.last = layer == 0, layer == dims.L - 1
        self.features = dims.layer_input(layer)
        self.chains = range(layer * dims.D, (layer + 1) * dims.D)
        self.params = [range(k * 2 * dims.B, (k + 1) * 2 * dims.B) for k in self.chains]
        self.started = bool(call["hx"])
        self._plan_input(call)
        self._plan_weights(call)
        self._plan_saved(call)
        self._plan_recurrence(call)

    def _plan_weights(self, call: Call) -> None:
        """The weights of both directions below each other, and the sum of the biases."""
        dims, room = self.dims, self.room
        self.move_weights: list[Kernel | None] = []
        for which, width in enumerate((self.features, dims.H)):
            of = [call["params"][p[which]].strides for p in self.params]
            turned = which == 0 and self.deep_product is not None
            into = (1, dims.D * 4 * dims.H) if turned else (width, 1)
            lies_so = of == [(width, 1)] and not turned
            self.move_weights.append(None if lies_so else self._beside(4 * dims.H, width, of, into))
        self.move_h0: Kernel | None = None
        if self.started and not _is_matrix(call["hx"][0].strides[1:], dims.H):
            self.move_h0 = self._beside(dims.N, dims.H, [call["hx"][0].strides[1:]] * dims.D, (dims.H, 1))
        if dims.B == 2:
            metas = [call["params"][p[which]] for p in self.params for which in (2, 3)]
            strides = tuple(meta.strides[0] for meta in (*metas[:2], *metas[-2:]))
            self.sum_biases = Kernel(
                sum_biases, (triton.cdiv(4 * dims.H, COLUMNS), dims.D), room.device,
                (torch.float32, *(room.dtype,) * 4), (4 * dims.H, strides), {"COLUMNS": COLUMNS},
            )  # fmt: skip

    def _beside(self, rows: int, width: int, of: Sequence[Strides], into: Strides) -> Kernel:
        """Copies of matrices from and to these strides."""
        room = self.room
        targets, sources = ((0, *into),) * len(of), tuple((0, *strides) for strides in of)
        return Move((1, rows, width), targets, sources, room.dtype, room.dtype, clean=False).kernel(room.device)

    def _plan_input(self, call: Call) -> None:
        """The layer's input as a matrix: where it lies if it is one, else copied."""
        room, rows, dims = self.room, self.room.rows, self.dims
        self.move_x: Kernel | None = None
        self.x_of = (self.features, 1)
        if self.first:
            t, n, feature = rows.of(call["input"])
            inner, outer, size = (t, n, dims.T) if rows.by_batch else (n, t, dims.N)
            if outer == inner * size and _is_matrix((inner, feature), self.features):
                self.x_of = (inner, 1)
            else:
                shape = (dims.T, dims.N, dims.I)
                move = Move(
                    shape, (rows.within(dims.I),), ((t, n, feature),), room.dtype, room.dtype, clean=False
                )  # fmt: skip
                self.move_x = move.kernel(room.device)
                self.x_room = room.scratch.tensor((rows.count, dims.I), room.dtype)
        self.deep_product = room.products.of(rows.count, dims.D * 4 * dims.H, self.features, self.x_of[0])

    def _plan_saved(self, call: Call) -> None:
        """The activations are written where they are wanted if all lie alike; otherwise they are copied there."""
        dims, room = self.dims, self.room
        self.saved_of: Strides = (0, 0, 0)
        self.saved: list[tuple[Kernel, Piece]] = []
        self.saves = call["h"] is not None
        if not self.saves:
            return
        metas = [call[name][k] for name in SAVED for k in self.chains]
        self.saved_of = metas[0].strides
        if len({meta.strides for meta in metas}) == 1:
            return
        shape = (dims.T, dims.N, dims.H)
        self.saved_of = (dims.N * dims.H, dims.H, 1)
        for name in SAVED:
            targets = tuple(call[name][k].strides for k in self.chains)
            move = Move(shape, targets, (self.saved_of,) * dims.D, room.dtype, room.dtype, clean=False)
            self.saved.append((move.kernel(room.device), room.scratch.tensor((dims.D, *shape), room.dtype)))

    def _plan_recurrence(self, call: Call) -> None:
        dims, rows, room = self.dims, self.room.rows, self.room
        t, n, u = rows.within(dims.D * dims.H)
        if self.last:
            t, n, u = call["output"].strides if dims.variable else rows.of(call["output"])
        starts = [meta.strides for meta in call["hx"]] if self.started else [(0, 0, 0)] * 2
        problem = ForwardProblem(
            dims, room.dtype, room.device, self.deep_product is not None, dims.B == 2, self.started, self.saves,
            strides=(
                rows.within(dims.D * 4 * dims.H)[:2], *starts, (t, n, dims.H * u, u), call["hy"].strides,
                call["cy"].strides, self.saved_of,
            ),
        )  # fmt: skip
        self.recurrence = ForwardRecurrence(problem, room.scratch)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor) -> None:
        """Phase two."""
        room, dims = self.room, self.dims
        precise = not (room.single and torch.backends.cuda.matmul.allow_tf32)
        peaks = self._gates(args, workspace)
        w_hh = self._weights(1, room.w_hh, args, workspace)
        operands, w_peak = self._recurrent(w_hh, workspace)
        bias = None
        if dims.B == 2:
            bias = placed(room.bias, workspace)
            biases = [args[PARAMS][k] for p in self.params for k in p[2:]]
            self.sum_biases(bias, *biases[:2], *biases[-2:])
        opening: torch.Tensor | None = None
        starts: tuple[Any, ...] = (None, None)
        if self.started:
            opening = self._opening(args, w_hh, workspace)
            starts = tuple(advanced(state, self.chains[0]) for state in args[HX])
        output = outs[OUTPUT] if self.last else placed(room.between, workspace)
        states = [advanced(state, self.chains[0]) for state in (outs[HY], outs[CY])]
        saved = self._saved(outs, workspace)
        chains = [None if tensors is None else tensors[k] for k in (0, -1) for tensors in saved]
        self.recurrence(
            workspace, precise,
            (*operands, w_peak, placed(room.gates, workspace), *peaks, bias, opening, *starts, output, *states, *chains,
             args[SIZES]),
        )  # fmt: skip
        if self.saved:
            for (kernel, _), sources, name in zip(self.saved, saved, range(FIRST_SAVED, len(outs)), strict=True):
                kernel(*pointers([outs[name][k] for k in self.chains], sources or ()))

    def _gates(self, args: Sequence[Any], workspace: torch.Tensor) -> tuple[Any, Any]:
        """What the layer's input gives the gates of all steps; the peaks that it is scaled by."""
        room = self.room
        weights = self._weights(0, room.w_ih, args, workspace)
        if not self.first:
            x = room.between.view(workspace)
        elif self.move_x is None:
            x = args[INPUT].as_strided((room.rows.count, self.features), self.x_of)
        else:
            x = self.x_room.view(workspace)
            self.move_x(*pointers([x], [args[INPUT]]))
        gates, product = room.gates.view(workspace), self.deep_product
        if product is not None:
            product(gates, x, weights.view(self.features, -1), workspace)
            return product.peaks[0].view(workspace), product.peaks[1].view(workspace)
        if self.features:
            multiply(gates, x, weights.t())
        else:
            gates.zero_()
        return None, None

    def _weights(self, which: int, piece: Piece, args: Sequence[Any], workspace: torch.Tensor) -> torch.Tensor:
        """w_ih or w_hh of all directions below each other, or w_ih turned for a deep product."""
        sources = [args[PARAMS][p[which]] for p in self.params]
        move = self.move_weights[which]
        if move is None:
            weights: torch.Tensor = sources[0]
            return weights
        rows, width = sources[0].shape
        weights = piece.view(workspace).view(-1)[: self.dims.D * rows * width].view(self.dims.D * rows, width)
        turned = which == 0 and self.deep_product is not None
        places = [d * rows if turned else d * rows * width for d in range(self.dims.D)]
        move(*pointers([weights.view(-1)[place:] for place in places], sources))
        return weights

    def _recurrent(self, w_hh: torch.Tensor, workspace: torch.Tensor) -> tuple[tuple[Any, Any], Any]:
        """w_hh as it is multiplied, in one or two parts, and its peak."""
        room = self.room
        if room.w_hh_parts is None:
            return (w_hh, None), None
        parts = room.w_hh_parts.of(w_hh, workspace)
        return (parts[0], parts[1] if len(parts) == 2 else None), room.w_hh_parts.peak.view(workspace)

    def _opening(self, args: Sequence[Any], w_hh: torch.Tensor, workspace: torch.Tensor) -> torch.Tensor:
        """The product of the initial h, which may be of any size, with w_hh."""
        room, rows = self.room, 4 * self.dims.H
        assert room.opening is not None
        assert room.h0 is not None
        opening = room.opening.view(workspace)
        h0 = [args[HX][0][k] for k in self.chains]
        if self.move_h0 is not None:
            copies = list(room.h0.view(workspace))
            self.move_h0(*pointers(copies, h0))
            h0 = copies
        for d in range(self.dims.D):
            multiply(opening[d], h0[d], w_hh[d * rows : (d + 1) * rows].t())
        return opening

    def _saved(self, outs: Sequence[Any], workspace: torch.Tensor) -> list[Sequence[torch.Tensor] | None]:
        """Where the recurrence writes what it saves, for each of the seven lists."""
        if self.saved:
            return [list(piece.view(workspace)) for _, piece in self.saved]
        return [None if of is None else [of[k] for k in self.chains] for of in outs[FIRST_SAVED:]]


def _is_matrix(strides: Strides, width: int) -> bool:
    """Whether the library can multiply rows of `width` elements that lie so."""
    return strides[1] == 1 and strides[0] >= max(width, 1)
