"""Phase one and two of one layer: operands made ready, the recurrence, the products, what is left of the states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from aclgrad.core.memory import Piece
from aclgrad.core.meta import Meta
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.launch import Kernel

from ..spec import LstmDims
from .bias import sum_rows, write_bias
from .fp16_split.products import Operand, Parts, multiply_parts, operand
from .moves import Move, Rows, Scales, Strides, pointers
from .problem import Problem, Recurrence
from .recurrence.persistent.backward import recurrence
from .workspace import Room

INPUT, HX, PARAMS, DY, DH, DC, HIDDEN, SIZES = 0, 1, 2, 3, 4, 5, 10, 13
READ = ("i", "f", "j", "o", "tanhc", "c")
READ_AT = (6, 8, 7, 9, 12, 11)
"""The saved activations that the recurrence reads, and their places among the arguments."""

COLUMNS = 128


class Layer:
    """The gradient of one layer, both directions."""

    def __init__(self, call: Call, layer: int, room: Room) -> None:
        dims: LstmDims = call.dims
        self.dims, self.layer, self.room = dims, layer, room
        self.rows = Rows(dims)
        self.features = dims.layer_input(layer)
        self.first, self.last = layer == 0, layer == dims.L - 1
        self.chains = range(layer * dims.D, (layer + 1) * dims.D)
        self.params = [range(k * 2 * dims.B, (k + 1) * 2 * dims.B) for k in self.chains]
        self.wants_params = call["dparams"] is not None
        self.wants_dx = not self.first or call["dx"] is not None
        self._plan_saved(call)
        self._plan_weights(call)
        self._plan_recurrence(call)
        if self.wants_params:
            self._plan_inputs(call)
            self._plan_params(call)
        self._plan_dx(call)

    def _plan_saved(self, call: Call) -> None:
        """The activations are read where they lie if all lie alike; otherwise they are copied."""
        dims, room = self.dims, self.room
        metas = [call[name][k] for name in READ for k in self.chains]
        self.saved_of: Strides = metas[0].strides
        self.saved: list[tuple[Kernel, Piece]] = []
        if len({meta.strides for meta in metas}) == 1:
            return
        shape = (dims.T, dims.N, dims.H)
        self.saved_of = (dims.N * dims.H, dims.H, 1)
        for name in READ:
            sources = tuple(call[name][k].strides for k in self.chains)
            move = Move(shape, (self.saved_of,) * dims.D, sources, room.dtype, room.dtype, clean=False)
            self.saved.append((move.kernel(room.device), room.scratch.tensor((dims.D, *shape), room.dtype)))

    def _plan_weights(self, call: Call) -> None:
        """w_hh as [H, 4H], so that the recurrence reads along the gates; w_ih of both directions below each other."""
        dims, room = self.dims, self.room
        dtypes = (room.dtype, room.dtype)
        of = [[call["params"][p[which]].strides for p in self.params] for which in (0, 1)]
        turned = tuple((0, strides[1], strides[0]) for strides in of[1])
        self.move_w_hh = Move((1, dims.H, 4 * dims.H), ((0, 4 * dims.H, 1),) * dims.D, turned, *dtypes).kernel(
            room.device
        )
        plain = tuple((0, *strides) for strides in of[0])
        width = self.features
        self.move_w_ih = Move((1, 4 * dims.H, width), ((0, width, 1),) * dims.D, plain, *dtypes).kernel(room.device)

    def _plan_recurrence(self, call: Call) -> None:
        dims, rows = self.dims, self.rows
        if not self.last:
            t, n, u = rows.within(dims.D * dims.H)
        else:
            t, n, u = rows.of(call["dy"]) if call["dy"] is not None else (0, 0, 0)
        states = [call["hx"][1], call["dh"], call["dc"], call["dh_prev"], call["dc_prev"]]
        start_of, *others = ((0, 0, 0) if meta is None else meta.strides for meta in states)
        delta_t, delta_n, _ = rows.within(dims.D * 4 * dims.H)
        problem = Problem(
            dims, self.room.dtype, self.room.device,
            present=(not self.last or call["dy"] is not None, *(meta is not None for meta in states[1:])),
            strides=(self.saved_of, start_of, (t, n, dims.H * u, u), *others, (delta_t, delta_n)),
        )  # fmt: skip
        self.recurrence: Recurrence = recurrence(problem, self.room.scratch, self.room.delta_parts)
        self.delta = self.room.delta if self.recurrence.peaks is None else None

    def _plan_inputs(self, call: Call) -> None:
        """The other operand of the weight gradients: a row is [h of the forward chain | x | h of the reverse chain]."""
        dims, rows, room = self.dims, self.rows, self.room
        dtypes, variable = (room.dtype, room.dtype), dims.variable
        into = rows.within(room.width)
        shape = (dims.T, dims.N, dims.H)
        states = tuple(call["h"][k].strides for k in self.chains)
        initial = (call["hx"][0].strides[1:],) * dims.D
        self.move_h = Move(shape, (into,) * dims.D, states, *dtypes, initial, masked=variable).kernel(room.device)
        if self.first:
            move = Move((dims.T, dims.N, dims.I), (into,), (rows.of(call["input"]),), *dtypes, masked=variable)
        else:
            below = tuple(call["h"][k - dims.D].strides for k in self.chains)
            move = Move(shape, (into,) * dims.D, below, *dtypes, masked=variable)
        self.move_x = move.kernel(room.device)
        by_rows = self.recurrence.peaks is not None
        self.inputs_parts = room.parts(rows.count, dims.D * dims.H + self.features, room.width, by_rows=by_rows)

    def _plan_params(self, call: Call) -> None:
        dims, room = self.dims, self.room
        width = dims.H + self.features
        metas = [[call["dparams"][k] for k in p] for p in self.params]
        gates, shares = 4 * dims.H, room.shares[width]
        self.dw_products = [
            room.product(
                (gates, width, self.rows.count), (d * gates, dims.D * gates), (d * dims.H, room.width),
                stacked=True, shares=shares,
            )
            for d in range(dims.D)
        ]  # fmt: skip
        self.move_dw = []
        for which, columns in ((0, self.features), (1, dims.H)):
            into = tuple((0, *of[which].strides) for of in metas)
            move = Move(
                (1, 4 * dims.H, columns), into, ((0, width, 1),) * dims.D, room.dtype, torch.float32, clean=False,
                scaled=self._scales(Scales.SECOND), shares=shares, apart=gates * width,
            )  # fmt: skip
            self.move_dw.append(move.kernel(room.device))
        if dims.B == 2:
            self._plan_bias([meta for of in metas for meta in of[2:]])

    def _plan_bias(self, targets: Sequence[Meta]) -> None:
        dims, room = self.dims, self.room
        groups, gates = self.recurrence.groups, dims.D * 4 * dims.H
        self.sum_rows: Kernel | None = None
        sums = self.recurrence.sums
        if sums is None:
            per_group = 512
            groups = max(1, triton.cdiv(self.rows.count, per_group))
            sums = room.scratch.tensor((groups, gates), torch.float32)
            self.sum_rows = Kernel(
                sum_rows, (triton.cdiv(gates, COLUMNS), groups), room.device, (torch.float32, room.dtype),
                (gates, self.rows.count), {"GROUP": per_group, "ROWS": 16, "COLUMNS": COLUMNS},
            )  # fmt: skip
        self.sums = sums
        strides = tuple(meta.strides[0] for meta in (*targets[:2], *targets[-2:]))
        self.write_bias = Kernel(
            write_bias, (triton.cdiv(4 * dims.H, 32), dims.D), room.device, (*(room.dtype,) * 4, torch.float32),
            (4 * dims.H, strides), {"GROUPS": groups, "ROWS": 16, "COLUMNS": 32},
        )  # fmt: skip

    def _plan_dx(self, call: Call) -> None:
        """The last product writes dx itself where that is a matrix; otherwise it is copied there."""
        room, rows, dims = self.room, self.rows, self.dims
        self.move_dx: Kernel | None = None
        if not self.wants_dx:
            return
        gates = dims.D * 4 * dims.H
        self.w_ih_parts = room.parts(gates, self.features)
        t, n, feature = rows.of(call["dx"]) if self.first else rows.within(self.features)
        inner, outer, size = (t, n, dims.T) if rows.by_batch else (n, t, dims.N)
        self.dx_of = (inner, feature)
        matrix = outer == inner * size and feature == 1 and inner >= max(self.features, 1)
        masked = self.first and dims.variable
        self.dx_product = room.product(
            (rows.count, self.features, gates), (0, gates), (0, self.features), stacked=False
        )
        if not matrix or masked or room.split:
            self.dx_room = room.matrix(rows.count, self.features)
            self.move_dx = Move(
                (dims.T, dims.N, self.features), ((t, n, feature),), (rows.within(self.features),), room.dtype,
                room.dtype, clean=False, masked=masked, scaled=self._scales(Scales.ROWS),
            ).kernel(room.device)  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor) -> None:
        """Phase two."""
        room = self.room
        sizes = args[SIZES]
        weights = [[args[PARAMS][p[which]] for p in self.params] for which in (0, 1)]
        size = 4 * self.dims.H * self.dims.H
        self.move_w_hh(*pointers([placed(room.w_hh, workspace, d * size) for d in range(self.dims.D)], weights[1]))
        saved = [[args[at][k] for k in self.chains] for at in READ_AT]
        for which, (kernel, piece) in enumerate(self.saved):
            copies = list(piece.view(workspace))
            kernel(*pointers(copies, saved[which]))
            saved[which] = copies
        dy = args[DY] if self.last else placed(room.between, workspace)
        states = [advanced(of, self.chains[0]) for of in (args[HX][1], args[DH], args[DC], *outs[1:3])]
        chains = [tensors[k] for k in (0, -1) for tensors in saved]
        self.recurrence(workspace, self.delta, room.w_hh, (*chains, states[0], dy, *states[1:], sizes))
        gates: Operand = ()
        if self.wants_params or self.wants_dx:
            gates = self._gates(workspace)
        if self.wants_params:
            self._params(args, outs[3], workspace, gates)
        if self.wants_dx:
            self._dx(weights[0], outs[0] if self.first else room.between.view(workspace), sizes, workspace, gates)

    def _gates(self, workspace: torch.Tensor) -> Operand:
        """The gate gradients as the products want them."""
        if self.delta is not None:
            return operand(self.room.delta_parts, self.delta.view(workspace), workspace)
        assert self.room.delta_parts is not None  # or the recurrence would not have made parts
        return self.room.delta_parts.made(workspace)

    def _params(
        self, args: Sequence[Any], dparams: Sequence[torch.Tensor], workspace: torch.Tensor, delta: Operand
    ) -> None:
        dims, room = self.dims, self.room
        inputs, gates, width = room.inputs.view(workspace), 4 * dims.H, dims.H + self.features
        middle = inputs[:, dims.H :]
        ends = [inputs, inputs[:, dims.H + self.features :]][: dims.D]
        states = [args[HIDDEN][k] for k in self.chains]
        self.move_h(*pointers(ends, states, [advanced(args[HX][0], k) for k in self.chains], args[SIZES]))
        if self.first:
            self.move_x(*pointers([middle], [args[INPUT]], sizes=args[SIZES]))
        else:
            below = [args[HIDDEN][k - dims.D] for k in self.chains]
            targets = [middle, middle[:, dims.H :]][: dims.D]
            self.move_x(*pointers(targets, below, sizes=args[SIZES]))
        shares = room.shares[width]
        dw = room.dw.view(workspace)[: dims.D * shares * gates * width].view(dims.D, shares, gates, width)
        row_peaks = self.recurrence.peaks
        by = None if row_peaks is None else row_peaks.view(workspace)
        operands = operand(self.inputs_parts, inputs, workspace, by)
        for d, product in enumerate(self.dw_products):
            mine = [part[:, d * gates : (d + 1) * gates] for part in delta]
            others = [part[:, d * dims.H : d * dims.H + width] for part in operands]
            if product is not None and len(delta) > 1:
                product(dw[d], mine, others)
            else:
                multiply_parts([part.t() for part in mine], others, dw[d])
        mine_peak, other_peak = self._peaks(self.inputs_parts, workspace)
        peaks = (mine_peak if by is None else None, other_peak)
        # a row of a direction's product: the forward chain has its h first, the reverse chain last
        for which, places in enumerate(((dims.H, 0), (0, self.features))):
            targets = [dparams[p[which]] for p in self.params]
            self.move_dw[which](*pointers(targets, [dw[d, 0, :, places[d] :] for d in range(dims.D)], peaks=peaks))
        if dims.B == 2:
            self._bias([dparams[k] for p in self.params for k in p[2:]], workspace)

    def _bias(self, targets: Sequence[torch.Tensor], workspace: torch.Tensor) -> None:
        sums = self.sums.view(workspace)
        if self.sum_rows is not None:
            self.sum_rows(sums, self.room.delta.view(workspace))
        self.write_bias(*targets[:2], *targets[-2:], sums)

    def _dx(
        self, weights: Sequence[torch.Tensor], dx: torch.Tensor, sizes: torch.Tensor | None, workspace: torch.Tensor,
        delta: Operand,
    ) -> None:  # fmt: skip
        dims, room, rows = self.dims, self.room, self.rows
        gates = dims.D * 4 * dims.H
        w_ih = room.w_ih.view(workspace)[: gates * self.features].view(gates, self.features)
        self.move_w_ih(*pointers([w_ih[d * 4 * dims.H :] for d in range(dims.D)], weights))
        w_parts = operand(self.w_ih_parts, w_ih, workspace)
        if self.move_dx is None:
            multiply_parts(delta, w_parts, dx.as_strided((rows.count, self.features), self.dx_of))
        else:
            scratch = self.dx_room.view(workspace)
            if self.dx_product is not None and len(delta) > 1:
                self.dx_product(scratch, delta, w_parts)
            else:
                multiply_parts(delta, w_parts, scratch)
            peaks = self._peaks(self.w_ih_parts, workspace)
            self.move_dx(*pointers([dx], [scratch], sizes=sizes if dims.variable and self.first else None, peaks=peaks))

    def _scales(self, of_rows: Scales) -> Scales:
        """What is in a product of gate gradients: `of_rows` if their rows have scales of their own."""
        if not self.room.split:
            return Scales.NONE
        return Scales.BOTH if self.recurrence.peaks is None else of_rows

    def _peaks(self, other: Parts | None, workspace: torch.Tensor) -> tuple[Any, Any]:
        """The peaks of the gate gradients and of what they were multiplied with."""
        mine = self.room.delta_parts
        if mine is None or other is None:
            return None, None
        return (self.recurrence.peaks or mine.peak).view(workspace), other.peak.view(workspace)
