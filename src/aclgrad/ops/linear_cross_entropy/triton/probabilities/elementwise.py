"""The elementwise half of the GPU kernel: what each token subtracts, and probabilities from logits or a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import Kernel, jit
from aclgrad.gpu.products import multiply

from ...training import STATISTICS
from ..choose import Chunk, ceil_div

LINE = 2048  # columns of p that a program takes
TOKENS = 256  # tokens whose statistics a program gathers

LOG2E = tl.constexpr(1.4426950408889634)
LOG2E_LOW = tl.constexpr(1.925963033500e-8)  # what float32 loses of log2(e)
LN2 = tl.constexpr(0.6931471805599453)


@jit
def gather_tokens(  # type: ignore[no-untyped-def]
    mask, target, grad, logits_max, sum_exp, own, scale, top, total,
    tokens, vocabulary, mask_stride, target_stride, grad_stride, max_stride, sum_stride,
    BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every token's own target (-1 if it lies elsewhere), gradient and statistics, each gapless for what follows."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    elsewhere = tl.load(mask + (token >> BITS) * mask_stride, inside, other=1).to(tl.int32)
    elsewhere = (elsewhere >> (token & ((1 << BITS) - 1)).to(tl.int32)) & 1
    row = tl.load(target + token * target_stride, inside, other=-1).to(tl.int64)
    here = (elsewhere == 0) & (row >= 0) & (row < vocabulary)
    tl.store(own + token, tl.where(here, row, -1), inside)
    tl.store(scale + token, tl.load(grad + token * grad_stride, inside), inside)
    if logits_max is not None:
        tl.store(top + token, tl.load(logits_max + token * max_stride, inside), inside)
        tl.store(total + token, tl.load(sum_exp + token * sum_stride, inside), inside)


@jit
def exponential(x, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """e^x. The hardware's 2^y is close, y = x·log2(e) is not for large x; `EXACT` makes up for the rounding of y."""
    y = x * LOG2E
    e = tl.exp2(y)
    if EXACT:
        lost = tl.fma(x, LOG2E, -y) + x * LOG2E_LOW
        e = tl.where((e > 0) & (e < float("inf")), e + e * (lost * LN2), e)
    return e


@jit
def weigh_tokens(  # type: ignore[no-untyped-def]
    target, grad, logits_max, sum_exp, others, own, scale, top, total, own_p,
    tokens, vocabulary, ignored, target_stride, grad_stride, max_stride, sum_stride, others_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """What p of every token is made of in training, and p of its own target; NaN if that is not in the vocabulary."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    row = tl.load(target + token * target_stride, inside, other=0).to(tl.int64)
    here = (row >= 0) & (row < vocabulary)
    weight = tl.load(grad + token * grad_stride, inside, other=0.0)
    weight = tl.where(row == ignored, 0.0, tl.where(here, weight, float("nan")))
    sums = tl.load(sum_exp + token * sum_stride, inside, other=1.0)
    tl.store(own + token, tl.where(here, row, -1), inside)
    tl.store(scale + token, weight, inside)
    tl.store(top + token, tl.load(logits_max + token * max_stride, inside), inside)
    tl.store(total + token, sums, inside)
    tl.store(own_p + token, -(tl.load(others + token * others_stride, inside, other=0.0) / sums) * weight, inside)


@jit
def probabilities(  # type: ignore[no-untyped-def]
    source, p, own, scale, top, total, own_p, first, columns, source_row, source_column, p_row,
    EXACT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """P = (softmax − one-hot) · grad for `BLOCK` columns of a token; column 0 is row `first` of the weight.

    `source` holds logits, or where there are no statistics the softmax itself. p of the own target may be given.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(source + token * source_row + column.to(tl.int64) * source_column, inside, other=0.0)
    if top is not None:
        e = exponential(x - tl.load(top + token), EXACT)
        x = tl.div_rn(e, tl.load(total + token)) if EXACT else e * (1.0 / tl.load(total + token))
    target = tl.load(own + token) - first
    if own_p is None:
        x = tl.where(column == target, x - 1.0, x) * tl.load(scale + token)
    else:
        x = tl.where(column == target, tl.load(own_p + token), x * tl.load(scale + token))
    tl.store(p + token * p_row + column, x.to(p.dtype.element_ty), inside)


class Tokens:
    """What p needs to know of every token, gathered into the workspace: own target, gradient, statistics."""

    __slots__ = ("_gather", "_pieces")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        vectors = [call[name] for name in ("target_mask", "masked_target", "grad", "logits_max", "sum_exp_logits")]
        if call["softmax"] is not None:
            vectors[3:] = [None, None]
        dtypes = [I64, *(None if meta is None else F32 for meta in vectors[2:])]
        self._pieces = [None if dtype is None else scratch.tensor((tokens,), dtype) for dtype in dtypes]
        self._gather = Kernel(
            gather_tokens, (ceil_div(tokens, TOKENS),), call.device,
            [*(meta and meta.dtype for meta in vectors), *dtypes],
            [tokens, vocabulary, *(meta.strides[0] if meta else 0 for meta in vectors)],
            {"BITS": 0 if vectors[0].dtype == torch.bool else 3, "BLOCK": TOKENS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], workspace: torch.Tensor) -> list[torch.Tensor]:
        """Own targets, gradients and, unless the softmax is given, maxima and sums."""
        grad, _, _, mask, target, _, logits_max, sum_exp, softmax = args
        statistics = (logits_max, sum_exp) if softmax is None else (None, None)
        gathered = [None if piece is None else piece.view(workspace) for piece in self._pieces]
        self._gather(mask, target, grad, *statistics, *gathered)
        return [tensor for tensor in gathered if tensor is not None]


class TrainingTokens:
    """The same for training, where targets are rows of the weight; p of the own targets is known."""

    __slots__ = ("_pieces", "_weigh")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        vectors = [call[name] for name in ("target", "grad", *STATISTICS)]
        dtypes = [I64, F32, F32, F32, F32]
        self._pieces = [scratch.tensor((tokens,), dtype) for dtype in dtypes]
        self._weigh = Kernel(
            weigh_tokens, (ceil_div(tokens, TOKENS),), call.device, [*(meta.dtype for meta in vectors), *dtypes],
            [tokens, vocabulary, call["ignore_index"], *(meta.strides[0] for meta in vectors)], {"BLOCK": TOKENS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], workspace: torch.Tensor) -> list[torch.Tensor]:
        """Own targets, gradients, maxima, sums, and p of the own targets."""
        grad, _, _, target, _, *statistics = args[:8]
        gathered = [piece.view(workspace) for piece in self._pieces]
        self._weigh(target, grad, *statistics, *gathered)
        return gathered


class Probabilities:
    """p of one chunk: from logits made a strip of tokens at a time, or from the softmax."""

    def __init__(self, call: Call, chunk: Chunk, p: Piece, logits: Piece | None, given: bool) -> None:
        """P of the own targets may be `given`."""
        rows, columns = chunk.t1 - chunk.t0, chunk.v1 - chunk.v0
        dtype = call["input"].dtype
        self._chunk, self._logits = chunk, logits
        self._rows = rows if logits is None else logits.shape[0]
        strides = call["softmax"].strides if logits is None else (logits.shape[1], 1)
        statistic = None if logits is None else F32
        self._kernels = [
            Kernel(
                probabilities, (min(self._rows, rows - row), ceil_div(columns, LINE)), call.device,
                [F32, dtype, I64, F32, statistic, statistic, F32 if given else None],
                [chunk.v0, columns, *strides, p.shape[1]],
                {"EXACT": dtype == F32, "BLOCK": LINE},
            )
            for row in range(0, rows, self._rows)
        ]  # fmt: skip

    def __call__(
        self, p: torch.Tensor, x: torch.Tensor, w: torch.Tensor, softmax: torch.Tensor | None,
        tokens: Sequence[torch.Tensor], workspace: torch.Tensor,
    ) -> None:  # fmt: skip
        """Launch. x, w, the softmax and `tokens`, as they were gathered, are the chunk's."""
        for index, kernel in enumerate(self._kernels):
            row = index * self._rows
            end = min(row + self._rows, self._chunk.t1 - self._chunk.t0)
            if self._logits is not None:
                source = self._logits.view(workspace)[: end - row, : w.shape[0]]
                multiply(source, x[row:end], w.t())
            else:
                assert softmax is not None  # the plan's mode
                source = softmax[row:end]
            known = [each[row:end] for each in tokens]
            kernel(source, p[row:end], *known, *[None] * (5 - len(known)))
