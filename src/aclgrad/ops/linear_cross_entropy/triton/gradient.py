"""The gradient on a GPU. The BT × V matrix p is never held: it is made and used chunk by chunk.

A chunk of p comes from one product that makes logits and turns them into p (`probabilities/hopper_product.py`), or else
from float32 logits of the vendor's library, or from the softmax, and one pass (`probabilities/elementwise.py`). Two
products of the library use it up: one finishes its share of a gradient, the other adds to the float32 sums of the other
gradient. Where a softmax is given, Hopper makes the next chunk of p while it computes weight_grad
(`probabilities/beside_weight_grad.py`). `choose.gradient_way` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, Call

from ..empty import Zeros
from .choose import GradientWay, gradient_way
from .choose_rows import reads_as_it_lies
from .choose_training import gradient_terms, training_way
from .column_sums import ColumnSums
from .columns import ColumnVectors
from .layout import aligned
from .options import LogitOptions
from .probabilities.elementwise import Probabilities
from .products import Factor, GradientSums
from .tokens import Tokens, TokenVectors, TrainingTokens, of_rows

if TYPE_CHECKING:
    from .probabilities.beside_weight_grad import WeightGradBesideP
    from .probabilities.hopper_product import ProbabilitiesProduct


class TokensOfCall(Protocol):
    """What p needs to know of the tokens of a call, and of the columns."""

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[TokenVectors, ColumnVectors]:
        """Gather it."""


class Gradients:
    """Phase two of the operators for gradients, which know their tokens differently."""

    def __init__(self, call: Call, tokens: Callable[[Call, Scratch], TokensOfCall]) -> None:
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        self._tokens = tokens(call, scratch)
        own_p_given = tokens is not Tokens
        self._way = way = self._choose_way(call, scratch.end, own_p_given)
        dtype, chunks = call["input"].dtype, way.cut.chunks
        rows, columns = way.cut.rows, way.cut.columns

        self._x = Factor(call["input"], rows, scratch)
        lies = reads_as_it_lies(call["weight"], call.dims.BT)
        self._w = Factor(call["weight"], columns, scratch, as_it_lies=lies)
        self._p = [scratch.tensor((rows, way.leading), dtype) for _ in range(2 if way.overlaps else 1)]
        logits = None
        if way.recomputes:
            logits = self._p[0] if dtype == F32 else scratch.tensor((way.strip_rows, way.leading), F32)
        options = LogitOptions.of(call) if own_p_given else LogitOptions()
        self._fill = [Probabilities(call, chunk, self._p[0], logits, own_p_given, options) for chunk in chunks]
        self._fuse = self._plan_fused(call, own_p_given, options) if way.fuses else []
        self._beside = self._plan_overlap(call) if way.overlaps else []
        self._gradients = self._plan_gradients(call, scratch)
        self._bias_grad = []
        if call["bias_grad"] is not None:
            self._bias_grad = [ColumnSums(call, chunk, way.leading, begins=chunk.t0 == 0) for chunk in chunks]
        self.workspace = scratch.size

    def _choose_way(self, call: Call, taken: int, own_p_given: bool) -> GradientWay:
        """How p is cut and made; some bytes of the workspace are `taken`."""
        return training_way(call, taken) if own_p_given else gradient_way(call)

    def _plan_fused(self, call: Call, own_p_given: bool, options: LogitOptions) -> list[ProbabilitiesProduct]:
        from .probabilities.hopper_product import ProbabilitiesProduct

        strides = (self._x.stride, self._w.stride, self._way.leading)
        dtype, device = call["input"].dtype, call.device
        entropy = call["entropy_grad"] is not None
        return [
            ProbabilitiesProduct(chunk, call.dims.H, strides, own_p_given, dtype, device, options, entropy=entropy)
            for chunk in self._way.cut.chunks
        ]

    def _plan_overlap(self, call: Call) -> list[WeightGradBesideP]:
        from .probabilities.beside_weight_grad import WeightGradBesideP

        strides = (self._way.leading, self._x.stride, call["weight_grad"].strides[0], call["softmax"].strides[0])
        return [
            WeightGradBesideP(chunk, after, call.dims.H, strides, call["input"].dtype, call.device)
            for chunk, after in pairwise(self._way.cut.chunks)
        ]

    def _plan_gradients(self, call: Call, scratch: Scratch) -> list[GradientSums | None]:
        """Sums of input_grad and weight_grad."""
        gradients = {
            name: GradientSums(call[name], terms, scratch)
            for name, terms in gradient_terms(call, self._way.cut).items()
        }
        return [gradients.get(name) for name in ("input_grad", "weight_grad")]

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token is gathered there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        weight, input_grad, weight_grad = given["weight"], given["input_grad"], given["weight_grad"]
        softmax = None if self._way.recomputes else given["softmax"]
        tokens, columns = self._tokens(args, outs, workspace)
        x, buffers = given["input"], [piece.view(workspace) for piece in self._p]
        fuses = self._fuse and aligned(x, weight)
        overlaps = self._beside and softmax is not None and aligned(x, softmax, weight_grad)
        chunks, (whole_t, whole_v) = self._way.cut.chunks, (len(x), len(weight))
        input_gradient, weight_gradient = self._gradients
        for index, (t0, t1, v0, v1) in enumerate(chunks):
            first, final = index == 0, index == len(chunks) - 1
            first_t, last_t, first_v, last_v = t0 == 0, t1 == whole_t, v0 == 0, v1 == whole_v
            if first or t0 != chunks[index - 1].t0:
                x_part = self._x(x[t0:t1], workspace)
            w_part = self._w(weight[v0:v1], workspace)
            p = buffers[index % len(buffers)][: t1 - t0, : v1 - v0]
            chunk_tokens = of_rows(tokens, slice(t0, t1))
            if fuses:
                self._fuse[index](p, x_part, w_part, {**columns, **chunk_tokens})
            elif first or not overlaps:
                of_chunk = None if softmax is None else softmax[t0:t1, v0:v1]
                self._fill[index](p, x_part, w_part, of_chunk, chunk_tokens, columns, workspace)
            if overlaps and softmax is not None and not final:
                next_p = buffers[(index + 1) % 2]
                self._beside[index](weight_grad[v0:v1], p, x_part, softmax[:, v1:], next_p, chunk_tokens)
            elif weight_gradient is not None:
                out = weight_grad[v0:v1]
                weight_gradient(out, p.t(), self._x.wide(x_part), workspace, first=first_t, last=last_t)
            if self._bias_grad:
                self._bias_grad[index](given["bias_grad"][v0:v1], p)
            if input_gradient is not None:
                out = input_grad[t0:t1]
                input_gradient(out, p, self._w.wide(w_part), workspace, first=first_v, last=last_v)

    def describe(self) -> str:
        """In words."""
        return self._way.describe()


def linear_cross_entropy_backward(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    if call["label_smoothing"] != 0:
        raise Unsupported(f"{call.label('label_smoothing')} is {call['label_smoothing']}, expected 0")
    return Zeros() if 0 in call.dims else Gradients(call, Tokens)


def token_gradients(call: Call) -> Launch:
    """Phase one: the same. Without features there is still a bias."""
    nothing = 0 in call.dims if call["bias_grad"] is None else call.dims.BT == 0
    return Zeros() if nothing else Gradients(call, TrainingTokens)
