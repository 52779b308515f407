"""Phase one and two of a layer's gradient: operands made ready, the recurrence, the products, the gradients' places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.operands import Given

from .bias import BiasGradients
from .choose import choose
from .fp16_split.products import Factor, multiply_split
from .fp16_split.scale import LEAST_AMAX
from .fp16_split.split import SplitMatrix, as_factor
from .inputs import LayerInputs
from .moves import Move, PlannedMove, Scales
from .packed import PackedRows
from .problem import BACKWARD_SAVED, Problem, Recurrence
from .recurrence import build
from .saved import SavedLists
from .workspace import BackwardWorkspace

STATES = ("dh", "dc", "dh_prev", "dc_prev")


class BackwardLayer:
    """The gradient of one layer, both directions."""

    def __init__(self, call: Call, layer: int, space: BackwardWorkspace) -> None:
        dims = space.dims
        self.dims, self.layer, self.space = dims, layer, space
        self.rows = space.rows
        self.features = dims.layer_input(layer)
        self.first, self.last = layer == 0, layer == dims.L - 1
        self.chains = range(layer * dims.D, (layer + 1) * dims.D)
        self.params = [range(k * 2 * dims.B, (k + 1) * 2 * dims.B) for k in self.chains]
        self.wants_params = call["dparams"] is not None
        self.wants_dx = not self.first or call["dx"] is not None
        self.saved = SavedLists(call, BACKWARD_SAVED, self.chains, space, written=False)
        self._plan_weights(call)
        self._plan_recurrence(call)
        if self.wants_params:
            self.inputs = LayerInputs(call, layer, space)
            self._plan_params(call)
        self._plan_dx(call)

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
                "saved": self.saved.strides,
                "c_init": call["hx"][1].strides,
                "dy": (t, n, dims.H * u, u),
                **{name: (0, 0, 0) if call[name] is None else call[name].strides for name in STATES},
                "delta": rows.within(dims.D * 4 * dims.H)[:2],
            },
            anew=space.anew.flags if space.anew else None,
            packed=space.packed,
        )  # fmt: skip
        choice = choose(problem, split_delta=space.splits)
        self.delta = None if build.leaves_delta_split(choice) else space.reserve_delta()
        self.recurrence: Recurrence = build.backward(
            problem, choice, space.scratch, space.w_hh, self.delta, space.delta_split
        )
        if space.packed is not None:
            self._clear_tails(space.packed)

    def _clear_tails(self, packed: PackedRows) -> None:
        """Rows beyond the last add nothing to weight gradients and bias gradients, which sum over all."""
        split, row_amax = self.space.delta_split, self.recurrence.row_amax
        if self.delta is not None:
            packed.clear_tail(self.delta)
        elif split is not None and row_amax is not None:
            packed.clear_tail(split.high)
            packed.clear_tail(split.low)
            packed.clear_tail(row_amax, LEAST_AMAX.value)

    def _plan_params(self, call: Call) -> None:
        dims, space = self.dims, self.space
        width = dims.H + self.features
        by_rows = self.recurrence.row_amax is not None
        self.inputs_split = space.split(
            self.rows.count, dims.D * dims.H + self.features, space.inputs_width, by_rows=by_rows
        )
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
                rows.shape(self.features), ((t, n, feature),), (rows.within(self.features),), space.dtype,
                space.dtype, clean=False, masked=masked, fills=not rows.packed, scaled=self._scales(Scales.ROWS),
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
            self._dx(w_ih, dx, space.with_data(given, workspace), workspace, delta)

    def _operands(self, given: Given, workspace: torch.Tensor) -> dict[str, Any]:
        """What the recurrence is given; states begin with those of the layer's first chain."""
        operands = self.saved.operands(given, workspace)
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
        inputs = self.inputs(given, workspace)
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

    def _dx(
        self,
        weights: Sequence[torch.Tensor],
        dx: torch.Tensor,
        sizes: Any,
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
