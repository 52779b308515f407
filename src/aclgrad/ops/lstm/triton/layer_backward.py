"""Phase one and two of a layer's gradient: operands made ready, the recurrence, the products, the gradients' places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.memory import Piece
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.operands import Given

from ..dims import LstmDims
from .bias import BiasGradients
from .choose import choose
from .fp16_split.products import Factor, multiply_split
from .fp16_split.split import SplitMatrix, as_factor
from .moves import Move, PlannedMove, Rows, Scales, Strides
from .problem import BACKWARD_SAVED, Problem, Recurrence
from .recurrence import build
from .workspace import BackwardWorkspace

CONTRACT_NAMES = {name: "j" if name == "g" else name for name in BACKWARD_SAVED}
"""Of the activations that the recurrence reads."""

STATES = ("dh", "dc", "dh_prev", "dc_prev")


class BackwardLayer:
    """The gradient of one layer, both directions."""

    def __init__(self, call: Call, layer: int, space: BackwardWorkspace) -> None:
        dims: LstmDims = call.dims
        self.dims, self.layer, self.space = dims, layer, space
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
        dims, space = self.dims, self.space
        metas = [call[name][k] for name in CONTRACT_NAMES.values() for k in self.chains]
        self.saved_strides: Strides = metas[0].strides
        self.saved_copies: dict[str, tuple[PlannedMove, Piece]] = {}
        if len({meta.strides for meta in metas}) == 1:
            return
        shape = (dims.T, dims.N, dims.H)
        self.saved_strides = (dims.N * dims.H, dims.H, 1)
        for name in CONTRACT_NAMES.values():
            sources = tuple(call[name][k].strides for k in self.chains)
            move = Move(shape, (self.saved_strides,) * dims.D, sources, space.dtype, space.dtype, clean=False)
            copy = space.scratch.tensor((dims.D, *shape), space.dtype)
            self.saved_copies[name] = (move.planned(space.device), copy)

    def _plan_weights(self, call: Call) -> None:
        """w_hh as [H, 4H], so that the recurrence reads along the gates; w_ih of both directions below each other."""
        dims, space, width = self.dims, self.space, self.features
        dtypes = (space.dtype, space.dtype)
        w_ih, w_hh = ([call["params"][p[which]].strides for p in self.params] for which in (0, 1))
        transposed = tuple((0, strides[1], strides[0]) for strides in w_hh)
        into = ((0, 4 * dims.H, 1),) * dims.D
        self.move_w_hh = Move((1, dims.H, 4 * dims.H), into, transposed, *dtypes).planned(space.device)
        plain = tuple((0, *strides) for strides in w_ih)
        into = ((0, width, 1),) * dims.D
        self.move_w_ih = Move((1, 4 * dims.H, width), into, plain, *dtypes).planned(space.device)

    def _plan_recurrence(self, call: Call) -> None:
        dims, rows, space = self.dims, self.rows, self.space
        if not self.last:
            t, n, u = rows.within(dims.D * dims.H)
        else:
            t, n, u = rows.of(call["dy"]) if call["dy"] is not None else (0, 0, 0)
        present = {name for name in STATES if call[name] is not None}
        if not self.last or call["dy"] is not None:
            present.add("dy")
        if dims.variable:
            present.add("batch_sizes")
        problem = Problem(
            dims, space.dtype, space.device, forward=False, present=frozenset(present),
            strides={
                "saved": self.saved_strides,
                "c_init": call["hx"][1].strides,
                "dy": (t, n, dims.H * u, u),
                **{name: (0, 0, 0) if call[name] is None else call[name].strides for name in STATES},
                "delta": rows.within(dims.D * 4 * dims.H)[:2],
            },
            anew=space.anew.flags if space.anew else None,
        )  # fmt: skip
        choice = choose(problem, split_delta=space.splits)
        self.delta = None if build.leaves_delta_split(choice) else space.reserve_delta()
        self.recurrence: Recurrence = build.backward(
            problem, choice, space.scratch, space.w_hh, self.delta, space.delta_split
        )

    def _plan_inputs(self, call: Call) -> None:
        """The other operand of the weight gradients: a row is [h of the forward chain | x | h of the reverse chain]."""
        dims, rows, space = self.dims, self.rows, self.space
        dtypes, masked = (space.dtype, space.dtype), dims.variable
        into = rows.within(space.inputs_width)
        shape = (dims.T, dims.N, dims.H)
        states = tuple(call["h"][k].strides for k in self.chains)
        initial = (call["hx"][0].strides[1:],) * dims.D
        move = Move(shape, (into,) * dims.D, states, *dtypes, initial, masked=masked, reset=space.anew is not None)
        self.move_h = move.planned(space.device)
        if self.first:
            move = Move((dims.T, dims.N, dims.I), (into,), (rows.of(call["input"]),), *dtypes, masked=masked)
        else:
            below = tuple(call["h"][k - dims.D].strides for k in self.chains)
            move = Move(shape, (into,) * dims.D, below, *dtypes, masked=masked)
        self.move_x = move.planned(space.device)
        by_rows = self.recurrence.row_amax is not None
        width = dims.D * dims.H + self.features
        self.inputs_split = space.split(rows.count, width, space.inputs_width, by_rows=by_rows)

    def _plan_params(self, call: Call) -> None:
        dims, space = self.dims, self.space
        width = dims.H + self.features
        metas = [[call["dparams"][k] for k in p] for p in self.params]
        gates, split_k = 4 * dims.H, space.split_k[width]
        self.dw_products = [
            space.product(
                (gates, width, self.rows.count), (d * gates, dims.D * gates), (d * dims.H, space.inputs_width),
                transposed=True, split_k=split_k,
            )
            for d in range(dims.D)
        ]  # fmt: skip
        self.move_dw = []
        for which, columns in ((0, self.features), (1, dims.H)):
            into = tuple((0, *of[which].strides) for of in metas)
            move = Move(
                (1, gates, columns), into, ((0, width, 1),) * dims.D, space.dtype, torch.float32, clean=False,
                scaled=self._scales(Scales.SECOND), split_k=split_k, split_stride=gates * width,
            )  # fmt: skip
            self.move_dw.append(move.planned(space.device))
        if dims.B == 2:
            biases = [meta for of in metas for meta in of[2:]]
            sums = self.recurrence.bias_sums
            self.bias_gradients = BiasGradients(dims, space.dtype, space.device, space.scratch, sums, biases)

    def _plan_dx(self, call: Call) -> None:
        """The last product writes dx itself where that is a matrix; otherwise it is copied there."""
        space, rows, dims = self.space, self.rows, self.dims
        self.move_dx: PlannedMove | None = None
        if not self.wants_dx:
            return
        gates = dims.D * 4 * dims.H
        self.w_ih_split = space.split(gates, self.features)
        t, n, feature = rows.of(call["dx"]) if self.first else rows.within(self.features)
        inner, outer, size = (t, n, dims.T) if rows.by_batch else (n, t, dims.N)
        self.dx_strides = (inner, feature)
        is_matrix = outer == inner * size and feature == 1 and inner >= max(self.features, 1)
        masked = self.first and dims.variable
        self.dx_product = space.product(
            (rows.count, self.features, gates), (0, gates), (0, self.features), transposed=False
        )
        if not is_matrix or masked or space.splits:
            self.dx_piece = space.reserve_product(self.features)
            self.move_dx = Move(
                (dims.T, dims.N, self.features), ((t, n, feature),), (rows.within(self.features),), space.dtype,
                space.dtype, clean=False, masked=masked, scaled=self._scales(Scales.ROWS),
            ).planned(space.device)  # fmt: skip

    def describe(self) -> str:
        """How its steps are run."""
        return self.recurrence.describe()

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Phase two; arguments and outputs of the operator are given by name."""
        space = self.space
        w_ih, w_hh = ([given["params"][p[which]] for p in self.params] for which in (0, 1))
        size = 4 * self.dims.H * self.dims.H
        self.move_w_hh([placed(space.w_hh, workspace, d * size) for d in range(self.dims.D)], w_hh)
        self.recurrence(workspace, self._operands(given, workspace))
        if not (self.wants_params or self.wants_dx):
            return
        delta = self._delta(workspace)
        if self.wants_params:
            self._params(given, workspace, delta)
        if self.wants_dx:
            dx = given["dx"] if self.first else space.between.view(workspace)
            self._dx(w_ih, dx, given["batch_sizes"], workspace, delta)

    def _operands(self, given: Given, workspace: torch.Tensor) -> dict[str, Any]:
        """What the recurrence is given; states begin with those of the layer's first chain."""
        operands: dict[str, Any] = {}
        for name, contract_name in CONTRACT_NAMES.items():
            tensors = [given[contract_name][k] for k in self.chains]
            if contract_name in self.saved_copies:
                move, piece = self.saved_copies[contract_name]
                copies = list(piece.view(workspace))
                move(copies, tensors)
                tensors = copies
            operands[f"{name}0"], operands[f"{name}1"] = tensors[0], tensors[-1]
        operands["c_init"] = advanced(given["hx"][1], self.chains[0])
        operands["dy"] = given["dy"] if self.last else placed(self.space.between, workspace)
        for name in STATES:
            operands[name] = advanced(given[name], self.chains[0])
        operands["batch_sizes"] = given["batch_sizes"]
        return operands

    def _delta(self, workspace: torch.Tensor) -> Factor:
        """The gate gradients as the products want them."""
        split = self.space.delta_split
        if self.delta is not None:
            return as_factor(split, self.delta.view(workspace), workspace)
        assert split is not None  # or the recurrence would not have left them split
        return split.factor(workspace)

    def _params(self, given: Given, workspace: torch.Tensor, delta: Factor) -> None:
        dims, space, dparams = self.dims, self.space, given["dparams"]
        gates, width = 4 * dims.H, dims.H + self.features
        inputs = self._inputs(given, workspace)
        split_k = space.split_k[width]
        dw = space.dw.view(workspace)[: dims.D * split_k * gates * width].view(dims.D, split_k, gates, width)
        row_amax = self.recurrence.row_amax
        by_rows = None if row_amax is None else row_amax.view(workspace)
        factor = as_factor(self.inputs_split, inputs, workspace, by_rows)
        for d, product in enumerate(self.dw_products):
            left = [part[:, d * gates : (d + 1) * gates] for part in delta]
            right = [part[:, d * dims.H : d * dims.H + width] for part in factor]
            if product is not None and len(delta) > 1:
                product(dw[d], left, right)
            else:
                multiply_split([part.t() for part in left], right, dw[d])
        delta_amax, inputs_amax = self._amaxes(self.inputs_split, workspace)
        amaxes = (delta_amax if by_rows is None else None, inputs_amax)
        # a row of a direction's product: the forward chain has its h first, the reverse chain last
        for which, places in enumerate(((dims.H, 0), (0, self.features))):
            targets = [dparams[p[which]] for p in self.params]
            self.move_dw[which](targets, [dw[d, 0, :, places[d] :] for d in range(dims.D)], amaxes=amaxes)
        if dims.B == 2:
            self.bias_gradients(workspace, self.delta, [dparams[k] for p in self.params for k in p[2:]])

    def _inputs(self, given: Given, workspace: torch.Tensor) -> torch.Tensor:
        """[h of the forward chain | x | h of the reverse chain], copied."""
        dims, sizes = self.dims, given["batch_sizes"]
        inputs = self.space.inputs.view(workspace)
        middle = inputs[:, dims.H :]
        ends = [inputs, inputs[:, dims.H + self.features :]][: dims.D]
        states = [given["h"][k] for k in self.chains]
        anew = None if self.space.anew is None else placed(self.space.anew.flags, workspace)
        self.move_h(ends, states, [advanced(given["hx"][0], k) for k in self.chains], sizes, anew)
        if self.first:
            self.move_x([middle], [given["input"]], batch_sizes=sizes)
        else:
            below = [given["h"][k - dims.D] for k in self.chains]
            self.move_x([middle, middle[:, dims.H :]][: dims.D], below, batch_sizes=sizes)
        return inputs

    def _dx(
        self,
        weights: Sequence[torch.Tensor],
        dx: torch.Tensor,
        sizes: torch.Tensor | None,
        workspace: torch.Tensor,
        delta: Factor,
    ) -> None:
        dims, space, rows = self.dims, self.space, self.rows
        gates = dims.D * 4 * dims.H
        w_ih = space.w_ih.view(workspace)[: gates * self.features].view(gates, self.features)
        self.move_w_ih([w_ih[d * 4 * dims.H :] for d in range(dims.D)], weights)
        factor = as_factor(self.w_ih_split, w_ih, workspace)
        if self.move_dx is None:
            multiply_split(delta, factor, dx.as_strided((rows.count, self.features), self.dx_strides))
            return
        product = self.dx_piece.view(workspace)
        if self.dx_product is not None and len(delta) > 1:
            self.dx_product(product, delta, factor)
        else:
            multiply_split(delta, factor, product)
        self.move_dx([dx], [product], batch_sizes=sizes, amaxes=self._amaxes(self.w_ih_split, workspace))

    def _scales(self, of_rows: Scales) -> Scales:
        """What is in a product of gate gradients: `of_rows` if their rows have scales of their own."""
        if not self.space.splits:
            return Scales.NONE
        return Scales.BOTH if self.recurrence.row_amax is None else of_rows

    def _amaxes(self, other: SplitMatrix | None, workspace: torch.Tensor) -> tuple[Any, Any]:
        """Those of the gate gradients and of what they were multiplied with."""
        delta = self.space.delta_split
        if delta is None or other is None:
            return None, None
        return (self.recurrence.row_amax or delta.amax).view(workspace), other.amax.view(workspace)
