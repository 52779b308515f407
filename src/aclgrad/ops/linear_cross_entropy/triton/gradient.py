"""GPU kernel of the gradient. The BT × V matrix p is never held: it is made and used chunk by chunk.

A chunk of p comes from one product that makes logits and turns them into p (`triton_fused`, on Hopper), or else from
float32 logits of the vendor's library, or from the softmax, and one elementwise pass. Two products of the library use
it up: one finishes its share of a gradient, the other adds to the float32 sums of the other gradient. Where a softmax
is given, Hopper makes the next chunk of p while it computes weight_grad (`triton_overlap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, Call

from ..empty import Zeros
from .choose import (
    LEADING,
    OVERLAP_FEATURES,
    P_ALONE,
    P_BESIDE_LOGITS,
    P_OF_TWO,
    STRIP,
    STRIP_AS_RESERVE,
    aligned,
    cut,
    on_hopper,
    round_up,
    row_major,
    strip_rows,
)
from .probabilities.elementwise import Probabilities, Tokens, TrainingTokens
from .products import Gradient, Operand

if TYPE_CHECKING:
    from .probabilities.beside_weight_grad import WeightGradBesideP
    from .probabilities.hopper_product import FusedProbabilities


def _overlaps(call: Call) -> bool:
    """Whether p of a given softmax is made beside the products, which wants aligned rows everywhere."""
    softmax, weight_grad = call["softmax"], call["weight_grad"]
    if softmax is None or weight_grad is None or not on_hopper(call["input"].dtype, call.device):
        return False
    aligned = row_major(softmax) and softmax.strides[0] % 16 == 0 and row_major(weight_grad)
    return aligned and call.dims.H <= OVERLAP_FEATURES and call.dims.BT <= call.dims.V


class Gradients:
    """Phase two of `linear_cross_entropy_backward` and of `token_gradients`, which know their tokens differently."""

    def __init__(self, call: Call, tokens: type[Tokens | TrainingTokens]) -> None:
        scratch = Scratch()
        dtype, half, recomputes = call["input"].dtype, call["input"].dtype != F32, call["softmax"] is None
        self._recomputes = recomputes
        fuses, overlaps = recomputes and on_hopper(dtype, call.device), _overlaps(call)
        budget = P_OF_TWO if overlaps else P_BESIDE_LOGITS if recomputes and half and not fuses else P_ALONE
        self._cut = cut(call, budget)
        rows, columns = self._cut.rows, self._cut.columns
        leading = round_up(columns, LEADING)

        self._tokens = tokens(call, scratch)
        given = tokens is TrainingTokens
        self._x = Operand(call["input"], call.dims.BT, scratch)
        self._w = Operand(call["weight"], columns, scratch)
        chunks = self._cut.chunks
        overlaps = overlaps and len(chunks) > 1
        self._p = [scratch.tensor((rows, leading), dtype) for _ in range(2 if overlaps else 1)]
        logits = None
        if recomputes:
            strip = strip_rows(rows, leading, STRIP_AS_RESERVE if fuses else STRIP)
            logits = scratch.tensor((strip, leading), F32) if half else self._p[0]
        self._fill = [Probabilities(call, chunk, self._p[0], logits, given) for chunk in chunks]
        self._fuse = self._plan_fused(call, leading, given) if fuses else []
        self._beside = self._plan_overlap(call, leading) if overlaps else []
        self._gradients = self._plan_gradients(call, scratch)
        self.workspace = scratch.size

    def _plan_fused(self, call: Call, leading: int, given: bool) -> list[FusedProbabilities]:
        from .probabilities.hopper_product import FusedProbabilities

        strides = (self._x.stride, self._w.stride, leading)
        dtype, device = call["input"].dtype, call.device
        return [FusedProbabilities(chunk, call.dims.H, strides, given, dtype, device) for chunk in self._cut.chunks]

    def _plan_overlap(self, call: Call, leading: int) -> list[WeightGradBesideP]:
        from .probabilities.beside_weight_grad import WeightGradBesideP

        chunks = self._cut.chunks
        strides = (leading, self._x.stride, call["weight_grad"].strides[0], call["softmax"].strides[0])
        return [
            WeightGradBesideP(chunk, after, call.dims.H, strides, call["input"].dtype, call.device)
            for chunk, after in pairwise(chunks)
        ]

    def _plan_gradients(self, call: Call, scratch: Scratch) -> list[Gradient | None]:
        """Along the vocabulary, weight_grad is finished chunk by chunk, input_grad summed over all; else reversed."""
        chunks, along = self._cut.chunks, self._cut.along_vocabulary
        heights = (
            [call.dims.BT] if along else [chunk.t1 - chunk.t0 for chunk in chunks],
            [chunk.v1 - chunk.v0 for chunk in chunks] if along else [call.dims.V],
        )
        additions = (len(chunks), 1) if along else (1, len(chunks))
        return [
            None if call[name] is None else Gradient(call[name], rows, terms, scratch)
            for name, rows, terms in zip(("input_grad", "weight_grad"), heights, additions, strict=True)
        ]

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token is gathered there
        x, weight = args[1:3]
        softmax: Any = None if self._recomputes else args[-1]
        tokens = self._tokens(args, workspace)
        x, buffers = self._x(x, workspace), [piece.view(workspace) for piece in self._p]
        fuses = self._fuse and aligned(x, weight)
        overlaps = self._beside and aligned(x, softmax, outs[1])
        chunks, along = self._cut.chunks, self._cut.along_vocabulary
        input_gradient, weight_gradient = self._gradients
        for index, (t0, t1, v0, v1) in enumerate(chunks):
            first, final = index == 0, index == len(chunks) - 1
            x_part, w_part = x[t0:t1], self._w(weight[v0:v1], workspace)
            p = buffers[index % len(buffers)][: t1 - t0, : v1 - v0]
            of_tokens = [each[t0:t1] for each in tokens]
            if fuses:
                self._fuse[index](p, x_part, w_part, of_tokens)
            elif first or not overlaps:
                given = None if softmax is None else softmax[t0:t1, v0:v1]
                self._fill[index](p, x_part, w_part, given, of_tokens, workspace)
            if overlaps and not final:
                next_p = buffers[(index + 1) % 2]
                self._beside[index](outs[1][v0:v1], p, x_part, softmax[:, v1:], next_p, of_tokens)
            elif weight_gradient is not None:
                out = outs[1][v0:v1]
                weight_gradient(out, p.t(), x_part, workspace, first=along or first, last=along or final)
            if input_gradient is not None:
                out = outs[0][t0:t1]
                input_gradient(out, p, w_part, workspace, first=not along or first, last=not along or final)


def linear_cross_entropy_backward(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    if call["label_smoothing"] != 0:
        raise Unsupported(f"{call.label('label_smoothing')} is {call['label_smoothing']}, expected 0")
    return Zeros() if 0 in call.dims else Gradients(call, Tokens)


def token_gradients(call: Call) -> Launch:
    """Phase one: the same."""
    return Zeros() if 0 in call.dims else Gradients(call, TrainingTokens)
