"""Phase one and two of a layer of the forward pass: operands made ready, one large product, the recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.memory import Piece
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import advanced, placed
from aclgrad.gpu.operands import Given
from aclgrad.gpu.products import multiply

from .bias import BiasSum
from .moves import Move, PlannedMove, Strides
from .problem import FORWARD_SAVED, Problem
from .recurrence.build import ForwardRecurrence
from .saved import SavedLists
from .workspace import ForwardWorkspace


class ForwardLayer:
    """The forward pass of one layer, both directions."""

    def __init__(self, call: Call, layer: int, space: ForwardWorkspace) -> None:
        dims = space.dims
        self.dims, self.layer, self.space = dims, layer, space
        self.first, self.last = layer == 0, layer == dims.L - 1
        self.features = dims.layer_input(layer)
        self.chains = range(layer * dims.D, (layer + 1) * dims.D)
        self.params = [range(k * 2 * dims.B, (k + 1) * 2 * dims.B) for k in self.chains]
        self.has_hx = bool(call["hx"])
        self._plan_input(call)
        self._plan_weights(call)
        saves = call["h"] is not None
        self.saved = SavedLists(call, FORWARD_SAVED, self.chains, space, written=True) if saves else None
        self._plan_recurrence(call)

    def _plan_input(self, call: Call) -> None:
        """The layer's input as a matrix: where it lies if it is one, else copied."""
        space, rows, dims = self.space, self.space.rows, self.dims
        self.move_x: PlannedMove | None = None
        self.x_strides = (self.features, 1)
        if self.first:
            t, n, feature = rows.of(call["input"])
            inner, outer, size = (t, n, dims.T) if rows.by_batch else (n, t, dims.N)
            if outer == inner * size and _is_matrix((inner, feature), self.features) and not rows.packed:
                self.x_strides = (inner, 1)
            else:  # packed rows are fewer than those of a launch
                into, of = (rows.within(dims.I),), ((t, n, feature),)
                move = Move(rows.shape(dims.I), into, of, space.dtype, space.dtype, clean=False, masked=rows.packed)
                self.move_x = move.planned(space.device)
                self.x_copy = space.scratch.tensor((rows.count, dims.I), space.dtype)
        gates = dims.D * 4 * dims.H
        self.input_product = space.input_products.of(rows.count, gates, self.features, self.x_strides[0])

    def _plan_weights(self, call: Call) -> None:
        """The weights of both directions below each other, and the sum of the biases."""
        dims, space = self.dims, self.space
        self.move_weights: list[PlannedMove | None] = []
        for which, width in enumerate((self.features, dims.H)):
            strides = [call["params"][p[which]].strides for p in self.params]
            transposed = which == 0 and self.input_product is not None
            into = (1, dims.D * 4 * dims.H) if transposed else (width, 1)
            lies_so = strides == [(width, 1)] and not transposed
            self.move_weights.append(None if lies_so else self._copies(4 * dims.H, width, strides, into))
        self.move_h0: PlannedMove | None = None
        if self.has_hx and not _is_matrix(call["hx"][0].strides[1:], dims.H):
            self.move_h0 = self._copies(dims.N, dims.H, [call["hx"][0].strides[1:]] * dims.D, (dims.H, 1))
        if dims.B == 2:
            biases = [call["params"][p[which]] for p in self.params for which in (2, 3)]
            self.bias_sum = BiasSum(dims, space.dtype, space.device, biases)

    def _copies(self, rows: int, width: int, strides: Sequence[Strides], into: Strides) -> PlannedMove:
        """Of a matrix for each direction, from and to these strides."""
        space = self.space
        targets, sources = ((0, *into),) * len(strides), tuple((0, *of) for of in strides)
        return Move((1, rows, width), targets, sources, space.dtype, space.dtype, clean=False).planned(space.device)

    def _plan_recurrence(self, call: Call) -> None:
        dims, rows, space = self.dims, self.space.rows, self.space
        t, n, u = rows.within(dims.D * dims.H)
        if self.last:
            t, n, u = rows.of_output(call["output"])
        h_init, c_init = (meta.strides for meta in call["hx"]) if self.has_hx else ((0, 0, 0),) * 2
        groups = {
            ("x_amax", "w_ih_amax"): self.input_product is not None,
            ("bias",): dims.B == 2,
            ("h0_product", "h_init", "c_init"): self.has_hx,
            ("saved",): self.saved is not None,
            ("batch_sizes",): dims.variable,
        }
        problem = Problem(
            dims, space.dtype, space.device, forward=True,
            present=frozenset(name for names, there in groups.items() if there for name in names),
            strides={
                "gates": rows.within(dims.D * 4 * dims.H)[:2],
                "h_init": h_init,
                "c_init": c_init,
                "output": (t, n, dims.H * u, u),
                "hy": call["hy"].strides,
                "cy": call["cy"].strides,
                "saved": self.saved.strides if self.saved else (0, 0, 0),
            },
            anew=space.anew.flags if space.anew else None,
            packed=space.packed,
        )  # fmt: skip
        self.recurrence = ForwardRecurrence(problem, space.scratch)

    def describe(self) -> str:
        """How its steps are run."""
        return self.recurrence.describe()

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Phase two; arguments and outputs of the operator are given by name."""
        space = self.space
        operands = self._gates(given, workspace)
        w_hh = self._weights(1, space.w_hh, given, workspace)
        operands |= self._w_hh(w_hh, workspace)
        if self.dims.B == 2:
            bias = operands["bias"] = placed(space.bias, workspace)
            self.bias_sum(bias, [given["params"][k] for p in self.params for k in p[2:]])
        if self.has_hx:
            operands["h0_product"] = self._h0_product(given, w_hh, workspace)
            operands["h_init"], operands["c_init"] = (advanced(state, self.chains[0]) for state in given["hx"])
        operands["output"] = given["output"] if self.last else placed(space.between, workspace)
        operands["hy"], operands["cy"] = (advanced(given[name], self.chains[0]) for name in ("hy", "cy"))
        if self.saved is not None:
            operands |= self.saved.operands(given, workspace)
        operands["batch_sizes"] = given["batch_sizes"]
        self.recurrence(workspace, operands)
        if self.saved is not None:
            self.saved.hand_over(given, workspace)

    def _gates(self, given: Given, workspace: torch.Tensor) -> dict[str, Any]:
        """What the layer's input gives the gates of all steps, and the amaxes whose scales are in it."""
        space = self.space
        w_ih = self._weights(0, space.w_ih, given, workspace)
        if not self.first:
            x = space.between.view(workspace)
        elif self.move_x is None:
            x = given["input"].as_strided((space.rows.count, self.features), self.x_strides)
        else:
            x = self.x_copy.view(workspace)
            self.move_x([x], [given["input"]], batch_sizes=space.row_count(workspace))
        gates, product = space.gates.view(workspace), self.input_product
        if product is not None:
            product(gates, x, w_ih.view(self.features, -1), workspace)
            x_amax, w_ih_amax = (piece.view(workspace) for piece in product.amaxes)
            return {"gates": gates, "x_amax": x_amax, "w_ih_amax": w_ih_amax}
        if self.features:
            multiply(gates, x, w_ih.t())
        else:
            gates.zero_()
        return {"gates": gates}

    def _weights(self, which: int, piece: Piece, given: Given, workspace: torch.Tensor) -> torch.Tensor:
        """w_ih or w_hh of all directions below each other, or w_ih transposed for a split product."""
        sources = [given["params"][p[which]] for p in self.params]
        move = self.move_weights[which]
        if move is None:
            weights: torch.Tensor = sources[0]
            return weights
        rows, width = sources[0].shape
        weights = piece.view(workspace).view(-1)[: self.dims.D * rows * width].view(self.dims.D * rows, width)
        transposed = which == 0 and self.input_product is not None
        places = [d * rows if transposed else d * rows * width for d in range(self.dims.D)]
        move([weights.view(-1)[place:] for place in places], sources)
        return weights

    def _w_hh(self, w_hh: torch.Tensor, workspace: torch.Tensor) -> dict[str, Any]:
        """w_hh as it is multiplied: as it is, or split."""
        split = self.space.w_hh_split
        if split is None:
            return {"w_hh": w_hh}
        parts = split.split(w_hh, workspace)
        return {"w_hh": parts[0], "w_hh_low": parts[-1], "w_hh_amax": split.amax.view(workspace)}

    def _h0_product(self, given: Given, w_hh: torch.Tensor, workspace: torch.Tensor) -> torch.Tensor:
        """The product of the initial h, which may be of any size, with w_hh."""
        space, rows = self.space, 4 * self.dims.H
        assert space.h0_product is not None
        assert space.h0 is not None
        product = space.h0_product.view(workspace)
        h0 = [given["hx"][0][k] for k in self.chains]
        if self.move_h0 is not None:
            copies = list(space.h0.view(workspace))
            self.move_h0(copies, h0)
            h0 = copies
        for d in range(self.dims.D):
            multiply(product[d], h0[d], w_hh[d * rows : (d + 1) * rows].t())
        return product


def _is_matrix(strides: Strides, width: int) -> bool:
    """Whether the library can multiply rows of `width` elements that lie so."""
    return strides[1] == 1 and strides[0] >= max(width, 1)
