"""p = (softmax − one-hot) · grad in a pass over logits that the library made, or over the softmax."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import few, jit
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.products import multiply_in_parts

from ..choose import LINE, Chunk
from ..columns import ColumnVectors
from ..maths import exponential, logits_of
from ..options import LogitOptions
from ..tokens import TokenVectors, of_rows
from .slopes import column_slopes


@jit
def probabilities(
    source_ptr, p_ptr, own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr, biases_ptr, classes_ptr,
    first, columns, source_row, source_column, p_row, factor, cap, EXACT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`BLOCK` columns of p of a token; column 0 is row `first` of the weight.

    `source` holds products, or where there are no statistics the softmax itself. p of the own target may be given.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(source_ptr + token * source_row + column.to(tl.int64) * source_column, inside, other=0.0)
    z = logits_of(x, biases_ptr, first + column, inside, factor, cap, EXACT)
    x = z
    if top_ptr is not None:
        e = exponential(z - tl.load(top_ptr + token), EXACT)
        x = tl.div_rn(e, tl.load(total_ptr + token)) if EXACT else e * (1.0 / tl.load(total_ptr + token))
    target = tl.load(own_ptr + token) - first
    if own_p_ptr is None:
        x = tl.where(column == target, x - 1.0, x) * tl.load(scale_ptr + token)
    else:
        alpha = tl.load(scale_ptr + token)
        if beta_ptr is not None:
            alpha += tl.where(x > 0.0, (z - tl.load(top_ptr + token)) * tl.load(beta_ptr + token), 0.0)
        x = column_slopes(x * alpha, z, token, first + column, inside, delta_ptr, classes_ptr, cap)
        x = tl.where(column == target, tl.load(own_p_ptr + token), x)
    tl.store(p_ptr + token * p_row + column, x.to(p_ptr.dtype.element_ty), inside)


class Probabilities:
    """p of one chunk: from logits made a strip of tokens at a time, or from the softmax."""

    def __init__(
        self, call: Call, chunk: Chunk, p: Piece, logits: Piece | None, own_p_given: bool, options: LogitOptions
    ) -> None:
        """P of the own targets may be given."""
        dtype = call["input"].dtype
        self._chunk, self._logits = chunk, logits
        self._rows = chunk.rows if logits is None else logits.shape[0]
        strides = call["softmax"].strides if logits is None else (logits.shape[1], 1)
        statistic = None if logits is None else F32
        operands = (
            Operand("source", F32), Operand("p", dtype), Operand("own", I64), Operand("scale", F32),
            Operand("top", statistic), Operand("total", statistic), Operand("own_p", F32 if own_p_given else None),
            Operand("beta", None if call["entropy_grad"] is None else F32),
            Operand("delta", F32 if options.smoothing else None), Operand("biases", F32 if options.bias else None),
            Operand("classes", F32 if options.weighs_classes else None),
        )  # fmt: skip
        numbers = {
            "first": chunk.v0, "columns": chunk.columns,
            "source_row": strides[0], "source_column": strides[1], "p_row": p.shape[1], **options.logit_numbers(dtype),
        }  # fmt: skip
        self._kernels = [
            NamedKernel(
                probabilities, (min(self._rows, chunk.rows - row), triton.cdiv(chunk.columns, LINE)), call.device,
                operands, numbers, {"EXACT": dtype == F32, "BLOCK": LINE},
                unknown=few(chunk.rows * chunk.columns),
            )
            for row in range(0, chunk.rows, self._rows)
        ]  # fmt: skip

    def __call__(
        self, p: torch.Tensor, x: torch.Tensor, w: torch.Tensor, softmax: torch.Tensor | None, tokens: TokenVectors,
        columns: ColumnVectors, workspace: torch.Tensor,
    ) -> None:  # fmt: skip
        """Launch. x, w, the softmax and `tokens` are the chunk's, `columns` those of the whole vocabulary."""
        for index, kernel in enumerate(self._kernels):
            rows = slice(index * self._rows, min((index + 1) * self._rows, self._chunk.rows))
            if self._logits is not None:
                source = self._logits.view(workspace)[: rows.stop - rows.start, : w.shape[0]]
                multiply_in_parts(source, x[rows], w.t())
            else:
                assert softmax is not None  # the plan's mode
                source = softmax[rows]
            kernel({**columns, **of_rows(tokens, rows), "source": source, "p": p[rows]})
