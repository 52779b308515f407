"""The gradients of a shard on a GPU, chunk by chunk of the tokens: input_grad of a chunk before its weight_grad.

So the ranks can sum the one while the other is computed. p of a chunk waits in between, with all columns of the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aclgrad.core import memory
from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta, meta_of
from aclgrad.core.plan import Remembered
from aclgrad.core.spec import Call
from aclgrad.gpu.products import multiply_in_parts

from ..spec_shards import shard_gradients
from . import choose
from .choose import GradientWay
from .choose_rows import Terms
from .choose_training import shard_way
from .columns import ColumnVectors
from .gradient import Gradients
from .layout import aligned, row_major
from .products import GradientSums
from .shards import ShardTokens, as_of_a_whole
from .tokens import TokenVectors, of_rows


class Begun(NamedTuple):
    """A call on its way."""

    args: Sequence[Any]
    workspace: Tensor
    tokens: TokenVectors
    columns: ColumnVectors
    x: Tensor
    weight_grad: Tensor | None
    bias_grad: Tensor | None


class ShardChunks(Gradients):
    """`begin`, then for every chunk `input_grad` and `weight_grad`; the results are those of `shard_gradients`."""

    def __init__(self, call: Call, rows: int) -> None:
        """`rows` are the tokens of a chunk."""
        self._rows = rows
        super().__init__(as_of_a_whole(call), ShardTokens)
        self._outs = tuple(call[name] for name in ("weight_grad", "bias_grad"))
        self._device, self._wide = call.device, call["top"].dtype
        self._chunks = tuple(slice(chunk.t0, chunk.t1) for chunk in self._way.cut.chunks)

    def _choose_way(self, call: Call, taken: int, own_p_given: bool) -> GradientWay:  # noqa: ARG002
        return shard_way(call, self._rows)

    def _plan_gradients(self, call: Call, scratch: Scratch) -> list[GradientSums | None]:
        """Of weight_grad over the chunks, in its own dtype where float32 would take too much; of input_grad none."""
        weight_grad, additions = call["weight_grad"], len(self._way.cut.chunks)
        if weight_grad is None:
            return [None, None]
        most = choose.WEIGHT_GRAD_SUMS if additions > 1 else None
        return [None, GradientSums(weight_grad, Terms([call.dims.V], additions, most), scratch)]

    def begin(self, args: Sequence[Any]) -> Begun:
        """Gather what p needs to know."""
        workspace = memory.workspace(self.workspace, self._device)
        assert workspace is not None  # every token is gathered there
        tokens, columns = self._tokens(args, (None, None, None), workspace)
        weight_grad, bias_grad = (None if meta is None else memory.empty(meta) for meta in self._outs)
        return Begun(args, workspace, tokens, columns, args[0], weight_grad, bias_grad)  # which lies in order

    def input_grad(self, begun: Begun, index: int, *, wanted: bool) -> Tensor | None:
        """P of a chunk, and its rows of input_grad in float32."""
        rows, weight = self._chunks[index], begun.args[1]
        x, w = begun.x[rows], self._w(weight, begun.workspace)
        p, tokens = self._p_of(begun, index), of_rows(begun.tokens, rows)
        if self._fuse and aligned(begun.x, weight):
            self._fuse[index](p, x, w, {**begun.columns, **tokens})
        else:
            self._fill[index](p, x, w, None, tokens, begun.columns, begun.workspace)
        if not wanted:
            return None
        out = memory.empty(Meta(x.shape, (x.shape[1], 1), self._wide, self._device))
        multiply_in_parts(out, p, w)
        return out

    def weight_grad(self, begun: Begun, index: int) -> None:
        """What the chunk counts in weight_grad and bias_grad."""
        p, x = self._p_of(begun, index), begun.x[self._chunks[index]]
        gradient, last = self._gradients[1], index == len(self._chunks) - 1
        if gradient is not None and begun.weight_grad is not None:
            gradient(begun.weight_grad, p.t(), x, begun.workspace, first=index == 0, last=last)
        if begun.bias_grad is not None:
            self._bias_grad[index](begun.bias_grad, p)

    def _p_of(self, begun: Begun, index: int) -> Tensor:
        rows = self._chunks[index]
        return self._p[0].view(begun.workspace)[: rows.stop - rows.start, : begun.args[1].shape[0]]


def can_chunk(input: Tensor, weight: Tensor) -> bool:
    """Whether the shard is computed so: half types and float32, rows in order, something to multiply."""
    sizes = (*input.shape, weight.shape[0])
    in_order = all(row_major(meta_of(matrix)) for matrix in (input, weight))
    return 0 not in sizes and input.dtype != torch.float64 and in_order


plan_chunks = Remembered(ShardChunks, shard_gradients)
"""The plan for arguments of `shard_gradients` and tokens of a chunk."""
