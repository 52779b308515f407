"""Phase one and two of one layer: operands made ready, the recurrence, the products, what is left of the states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from ...core.memory import Piece, Scratch
from ...core.meta import Meta
from ...core.spec import Call
from ...gpu.addresses import advanced, placed
from ...gpu.launch import INTERPRETING, Kernel
from .spec import LstmDims
from .triton_move import Move, Rows, Strides, pointers
from .triton_products import Operand, Parts, large, multiply_parts, operand
from .triton_recurrence import Problem, Recurrence, recurrence
from .triton_sums import sum_rows, write_bias

INPUT, HX, PARAMS, DY, DH, DC, HIDDEN, SIZES = 0, 1, 2, 3, 4, 5, 10, 13
READ = ("i", "f", "j", "o", "tanhc", "c")
READ_AT = (6, 8, 7, 9, 12, 11)
"""The saved activations that the recurrence reads, and their places among the arguments."""

COLUMNS = 128
ALIGN = 8
"""Elements to which rows of a product's operand are aligned."""


class Room:
    """The workspace, shared by all layers."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        dims: LstmDims = call.dims
        self.scratch, self.dtype, self.device = scratch, call.tensor("input").dtype, call.device
        rows, gates, widest = dims.T * dims.N, dims.D * 4 * dims.H, max(dims.layer_input(k) for k in range(dims.L))
        self.delta = scratch.tensor((rows, gates), self.dtype)
        self.w_hh = scratch.tensor((dims.D, dims.H, 4 * dims.H), self.dtype)
        self.w_ih = scratch.tensor((gates * widest,), self.dtype)
        self.width = -(-(dims.D * dims.H + widest) // ALIGN) * ALIGN
        self.inputs = scratch.tensor((rows, self.width), self.dtype)
        self.dw = scratch.tensor((dims.D * 4 * dims.H * (dims.H + widest),), torch.float32)
        self.between = scratch.tensor((rows, dims.D * dims.H if dims.L > 1 else 0), self.dtype)
        self.split = self.dtype == torch.float32 and not INTERPRETING and large(rows, gates, dims.H)
        self._parts: dict[tuple[int, int, int], Parts] = {}
        self._matrices: dict[int, Piece] = {}
        self.delta_parts = self.parts(rows, gates)

    def parts(self, count: int, width: int, row: int | None = None) -> Parts | None:
        """Room for taking a matrix apart, where that pays. Layers use the same."""
        if not self.split:
            return None
        key = (count, width, row or width)
        if key not in self._parts:
            self._parts[key] = Parts(self.scratch, self.device, *key)
        return self._parts[key]

    def matrix(self, rows: int, width: int) -> Piece:
        """Room for a product. Layers use the same."""
        if width not in self._matrices:
            self._matrices[width] = self.scratch.tensor((rows, width), self.dtype)
        return self._matrices[width]


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
        self.recurrence: Recurrence = recurrence(problem, self.room.scratch)

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
        self.inputs_parts = room.parts(rows.count, dims.D * dims.H + self.features, room.width)

    def _plan_params(self, call: Call) -> None:
        dims, room = self.dims, self.room
        width = dims.H + self.features
        metas = [[call["dparams"][k] for k in p] for p in self.params]
        self.move_dw = []
        for which, columns in ((0, self.features), (1, dims.H)):
            into = tuple((0, *of[which].strides) for of in metas)
            move = Move(
                (1, 4 * dims.H, columns), into, ((0, width, 1),) * dims.D, room.dtype, torch.float32, clean=False,
                scaled=room.split,
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
        self.w_ih_parts = room.parts(dims.D * 4 * dims.H, self.features)
        t, n, feature = rows.of(call["dx"]) if self.first else rows.within(self.features)
        inner, outer, size = (t, n, dims.T) if rows.by_batch else (n, t, dims.N)
        self.dx_of = (inner, feature)
        matrix = outer == inner * size and feature == 1 and inner >= max(self.features, 1)
        masked = self.first and dims.variable
        if not matrix or masked or room.split:
            self.dx_room = room.matrix(rows.count, self.features)
            self.move_dx = Move(
                (dims.T, dims.N, self.features), ((t, n, feature),), (rows.within(self.features),), room.dtype,
                room.dtype, clean=False, masked=masked, scaled=room.split,
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
        self.recurrence(workspace, room.delta, room.w_hh, (*chains, states[0], dy, *states[1:], sizes))
        delta = room.delta.view(workspace)
        gates = operand(room.delta_parts, delta, workspace) if self.wants_params or self.wants_dx else ()
        if self.wants_params:
            self._params(args, outs[3], workspace, gates)
        if self.wants_dx:
            self._dx(weights[0], outs[0] if self.first else room.between.view(workspace), sizes, workspace, gates)

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
        dw = room.dw.view(workspace)[: dims.D * gates * width].view(dims.D, gates, width)
        operands = operand(self.inputs_parts, inputs, workspace)
        for d in range(dims.D):
            turned = [part[:, d * gates : (d + 1) * gates].t() for part in delta]
            multiply_parts(turned, [part[:, d * dims.H : d * dims.H + width] for part in operands], dw[d])
        peaks = self._peaks(self.inputs_parts, workspace)
        # a row of a direction's product: the forward chain has its h first, the reverse chain last
        for which, places in enumerate(((dims.H, 0), (0, self.features))):
            targets = [dparams[p[which]] for p in self.params]
            self.move_dw[which](*pointers(targets, [dw[d][:, places[d] :] for d in range(dims.D)], peaks=peaks))
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
            multiply_parts(delta, w_parts, scratch)
            peaks = self._peaks(self.w_ih_parts, workspace)
            self.move_dx(*pointers([dx], [scratch], sizes=sizes if dims.variable and self.first else None, peaks=peaks))

    def _peaks(self, other: Parts | None, workspace: torch.Tensor) -> tuple[Any, Any]:
        """The peaks of the gate gradients and of what they were multiplied with."""
        mine = self.room.delta_parts
        if mine is None or other is None:
            return None, None
        return mine.peak.view(workspace), other.peak.view(workspace)
