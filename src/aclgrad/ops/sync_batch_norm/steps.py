"""Batch norm of one process by the operators of the synchronised one, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Piece, Scratch
from ...core.meta import Meta, contiguous_strides
from ...core.plan import Operator
from ...core.spec import Call
from . import spec

Make = Callable[[Call], Launch]


class Steps:
    """Phase two of a composed operator: launches that share a workspace.

    An operand is the name of the call's own, a piece of the workspace, or a number. The pieces have to be there before
    the first step is planned.
    """

    def __init__(self, call: Call) -> None:
        self._call, self._scratch = call, Scratch()
        self._names = (*(arg.name for arg in call.spec.args), *call.spec.out_names)
        self._steps: list[tuple[Launch, list[Any] | None, list[Any]]] = []

    @property
    def workspace(self) -> int:
        """The shared pieces, then the workspace of a step."""
        return self._scratch.size + max((launch.workspace for launch, _, _ in self._steps), default=0)

    def piece(self, *shape: int, dtype: torch.dtype) -> Piece:
        """What one step leaves for another."""
        return self._scratch.tensor(shape, dtype)

    def own(self, launch: Launch) -> None:
        """Add a launch that takes the arguments and outputs of the whole, and the whole workspace."""
        self._steps.append((launch, None, []))

    def step(self, operator: Operator, make: Make, args: Sequence[Any], outs: Sequence[Any]) -> None:
        """Plan a launch of the operator."""
        names = (*(arg.name for arg in operator.spec.args), *operator.spec.out_names)
        values = {name: self._value(operand) for name, operand in zip(names, (*args, *outs), strict=True)}
        self._steps.append((make(Call(operator.spec, values, strict=False)), list(args), list(outs)))

    def _value(self, operand: Any) -> Any:
        if isinstance(operand, str):
            return self._call[operand]
        if isinstance(operand, Piece):
            return Meta(operand.shape, contiguous_strides(operand.shape), operand.dtype, self._call.device)
        return operand

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        given = dict(zip(self._names, (*args, *outs), strict=True))
        rest = None if workspace is None else workspace[self._scratch.size :]

        def tensor(operand: Any) -> Any:
            if isinstance(operand, str):
                return given[operand]
            if isinstance(operand, Piece):
                assert workspace is not None  # it holds the piece
                return operand.view(workspace)
            return operand

        for launch, mine, written in self._steps:
            if mine is None:
                launch(args, outs, workspace)
                continue
            launch([tensor(value) for value in mine], [tensor(value) for value in written], rest)

    def describe(self) -> str:
        """In words."""
        return "; ".join(launch.describe() for launch, _, _ in self._steps)


class Backward(Steps):
    """`batch_norm_backward`: the sums, then, if it is wanted, the gradient of the input."""

    def __init__(self, call: Call, reduce: Make, elemt_backward: Make) -> None:
        super().__init__(call)
        batch, wide = call.tensor("input"), call.tensor("mean").dtype
        wants = [call[f"wants_{name}"] for name in ("input", "weight", "bias")]
        dtype = torch.promote_types(batch.dtype, wide)
        sums = [self.piece(batch.shape[1], dtype=dtype) if wants[0] else None for _ in range(2)]
        counts = self.piece(1, dtype=torch.int64) if wants[0] else None
        results = ("grad_weight" if wants[1] else None, "grad_bias" if wants[2] else None)
        self._empty, self._counts, self._count = batch.numel == 0, counts, batch.numel // batch.shape[1]
        self.step(
            spec.batch_norm_reduce_backward, reduce,
            ("grad_out", "input", "mean", "invstd", "weight", *wants), (*sums, *results),
        )  # fmt: skip
        if wants[0]:
            vectors = ("mean", "invstd", "weight", *sums, counts)
            self.step(spec.batch_norm_elemt_backward, elemt_backward, ("grad_out", "input", *vectors), ("grad_input",))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        if self._counts is not None and workspace is not None:
            self._counts.view(workspace).fill_(self._count)
        super().__call__(args, outs, workspace)
        _, grad_weight, _ = outs
        if self._empty and grad_weight is not None:
            grad_weight.zero_()  # statistics of nothing are NaN
