"""Packed sequences on a GPU: padded to [T, N, ·] in the workspace, computed as such, and packed again.

That is as much memory and time as the longest sequence has steps for all of them. `nn.LSTM` pads them itself there,
where the activations that a forward pass saves may stay as they are for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta, contiguous_strides
from aclgrad.core.plan import Operator
from aclgrad.core.spec import Call

from ..dims import SAVED, LstmDims

STARTS = {"h": 0, "c": 1}
"""Which state stands where sequences have no data: the reverse direction starts from there."""


@dataclass(frozen=True)
class Padded:
    """A tensor of packed rows, or one of a list of them, and its place in the workspace, [T·N, ·]."""

    name: str
    member: int | None
    piece: Piece

    def of(self, values: dict[str, Any]) -> torch.Tensor:
        """The tensor of packed rows."""
        found: torch.Tensor = values[self.name] if self.member is None else values[self.name][self.member]
        return found


@dataclass(frozen=True)
class Handle:
    """What stands for a tensor where a call is judged."""

    meta: Meta


class PaddedLaunch:
    """Phase two: pad, compute, pack."""

    def __init__(self, call: Call, operator: Operator, make: Callable[[Call], Launch]) -> None:
        dims: LstmDims = call.dims
        self._steps, self._batch, self._names = dims.T, dims.N, tuple(call.spec.params)
        scratch = Scratch()
        padded = {name: self._pieces(name, call, scratch) for name in self._names}
        self._inputs = [p for arg in call.spec.args for p in padded[arg.name]]
        self._outputs = [p for name in call.spec.out_names for p in padded[name]]
        self._inner, self._arguments = operator.spec, [arg.name for arg in operator.spec.args]
        inner, _ = operator.judge([self._stand_in(call, name, padded[name]) for name in self._arguments])
        outputs = {name: self._output(call, name, padded[name]) for name in operator.spec.out_names}
        self._launch = make(Call(inner.spec, {**inner.values, **outputs}, strict=False))
        self._scratch = scratch.reserve(self._launch.workspace)
        self.workspace = scratch.size

    def _pieces(self, name: str, call: Call, scratch: Scratch) -> list[Padded]:
        """Places for what has a row for every position."""
        if name not in ("input", "dy", "dx", "output", "reset", *SAVED):
            return []
        metas = call.metas(name)
        listed = not isinstance(call[name], Meta)
        rows = self._steps * self._batch
        pieces = [scratch.tensor((rows, *meta.shape[1:]), meta.dtype) for _, meta in metas]
        return [Padded(name, k if listed else None, piece) for k, piece in enumerate(pieces)]

    def _stand_in(self, call: Call, name: str, padded: Sequence[Padded]) -> Any:
        """The argument of the call that is made, as its contract judges it."""
        if padded:
            handles = [Handle(self._meta(p, call.device)) for p in padded]
            return handles if padded[0].member is not None else handles[0]
        value = call[name]
        if isinstance(value, Meta):
            return Handle(value)
        if name in ("hx", "params"):
            return [Handle(member) for member in value]
        return value

    def _output(self, call: Call, name: str, padded: Sequence[Padded]) -> Any:
        """The metadata of an output of the call that is made."""
        metas = tuple(self._meta(p, call.device) for p in padded)
        return call[name] if not metas else metas if padded[0].member is not None else metas[0]

    def _meta(self, padded: Padded, device: torch.device) -> Meta:
        shape = self._shape(padded)
        return Meta(shape, contiguous_strides(shape), padded.piece.dtype, device)

    def _shape(self, padded: Padded) -> tuple[int, ...]:
        """Input and gradients keep their two dimensions, flags have no features, all others get three."""
        if padded.name in ("input", "dy", "dx"):
            return padded.piece.shape
        return (self._steps, self._batch, *padded.piece.shape[1:])

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        given = dict(zip(self._names, (*args, *outs), strict=True))
        memory = given["input"].new_empty(0, dtype=torch.uint8) if workspace is None else workspace
        rows = self._rows(given["batch_sizes"], given["input"].shape[0])
        inner = {name: list(value) if isinstance(value, list | tuple) else value for name, value in given.items()}
        for padded in (*self._inputs, *self._outputs):
            view = padded.piece.view(memory)
            if padded in self._inputs:
                start = STARTS.get(padded.name)
                if start is None:
                    view.zero_()
                else:
                    view.view(self._steps, *given["hx"][start].shape[1:]).copy_(given["hx"][start][padded.member])
                view.index_copy_(0, rows, padded.of(given))
            if padded.member is None:
                inner[padded.name] = view.view(self._shape(padded))
            else:
                inner[padded.name][padded.member] = view.view(self._shape(padded))
        outputs = [inner[name] for name in self._inner.out_names]
        self._launch([inner[name] for name in self._arguments], outputs, memory[self._scratch :])
        for padded in self._outputs:
            padded.of(given).copy_(padded.piece.view(memory).index_select(0, rows))

    def _rows(self, batch_sizes: torch.Tensor, total: int) -> torch.Tensor:
        """Where packed rows lie among the padded ones; nobody waits for the counts, and none leads out of memory."""
        ends = batch_sizes.cumsum(0)
        row = torch.arange(total, device=batch_sizes.device)
        t = torch.searchsorted(ends, row, right=True).clamp_(max=max(self._steps - 1, 0))
        n = (row - (ends - batch_sizes)[t]).clamp_(0, max(self._batch - 1, 0))
        return t * self._batch + n

    def describe(self) -> str:
        """In words."""
        return f"padded to {self._steps} steps of {self._batch} sequences\n{self._launch.describe()}"
