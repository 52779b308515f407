"""The lists of saved activations: used where they lie if all of them lie alike, otherwise copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aclgrad.core.memory import Piece
from aclgrad.core.spec import Call
from aclgrad.gpu.operands import Given

from .moves import Move, PlannedMove
from .workspace import Workspace


class SavedLists:
    """What a layer's recurrence reads or writes of the lists: members `chains` of those that have these `names`.

    Kernels call the contract's `j` g, and put the direction behind a name.
    """

    def __init__(self, call: Call, names: Sequence[str], chains: range, space: Workspace, *, written: bool) -> None:
        dims, rows = space.dims, space.rows
        self._chains, self._space, self._written = chains, space, written
        self._names = {name: "j" if name == "g" else name for name in names}
        metas = [call[name][k] for name in self._names.values() for k in chains]
        self.strides = rows.of_list(metas[0])
        self._copies: dict[str, tuple[PlannedMove, Piece]] = {}
        if len({meta.strides for meta in metas}) == 1:
            return
        shape = rows.shape(dims.H)
        self.strides = (rows.apart * dims.H, dims.H, 1)
        for name in self._names.values():
            lists, copies = tuple(rows.of_list(call[name][k]) for k in chains), (self.strides,) * dims.D
            targets, sources = (lists, copies) if written else (copies, lists)
            move = Move(
                shape, targets, sources, space.dtype, space.dtype, clean=False, masked=rows.packed, fills=not written
            )
            copy = space.scratch.tensor((dims.D, *shape), space.dtype)
            self._copies[name] = (move.planned(space.device), copy)

    def operands(self, given: Given, workspace: Any) -> dict[str, Any]:
        """What kernels are given; what they read has been copied if it has to be."""
        operands: dict[str, Any] = {}
        for name, contract_name in self._names.items():
            tensors = [given[contract_name][k] for k in self._chains]
            if contract_name in self._copies:
                move, piece = self._copies[contract_name]
                copies = list(piece.view(workspace))
                if not self._written:
                    move(copies, tensors, batch_sizes=self._space.row_count(workspace))
                tensors = copies
            operands[f"{name}0"], operands[f"{name}1"] = tensors[0], tensors[-1]
        return operands

    def hand_over(self, given: Given, workspace: Any) -> None:
        """Copy what kernels wrote elsewhere to where it is wanted."""
        for name, (move, piece) in self._copies.items():
            targets = [given[name][k] for k in self._chains]
            move(targets, list(piece.view(workspace)), batch_sizes=self._space.row_count(workspace))
